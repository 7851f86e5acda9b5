"""MuJoCo tasks in evaluations: lanes in compiled code that play episodes by their numbers."""

from typing import Any

from tenfold.domains.mujoco.lanes import MujocoEnvironments
from tenfold.envs.bases import ChosenLanes


class MujocoEpisodes(ChosenLanes, MujocoEnvironments):
    """As `ChosenEpisodes` of the same task, in every bit."""

    def __init__(self, name: str, lanes: int, stream: Any, episodes: int, original: Any) -> None:
        self.episodes = episodes
        super().__init__(name, lanes, 0, 0, original)
        self.streams[:], self.episode[:] = stream, range(lanes)
        self.for_all("reset")

    def begin(self, i: int) -> None:
        """Lane i at the start of its current episode."""
        self.functions["reset"].ctypes(self.table.address, i)

    def cut(self, i: int) -> None:
        self.truncated[i], self.final_obs[i] = True, self.obs[i]

    def rest(self, i: int) -> None:
        super().rest(i)
        self.idle[i], self.moving = True, self.playing
        self.terminated[i] = self.truncated[i] = False

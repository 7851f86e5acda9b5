"""Worlds with several agents as lanes, agent by agent: lane = agent · worlds + world.

What a single agent's environment is to the rest of the code, a lane is here; `finished` has one
Episode for each world that ended, with the mean of its agents' returns and every agent's own. Lanes
of agents that have left a world before its end, or have not yet come, are `skipped` until the world
begins again.
"""

from tenfold.core.errors import EnvironmentFault
from tenfold.envs.adapter import Environments
from tenfold.envs.faults import fault_of


class Worlds(Environments):
    """What worlds of any kind can do."""

    multiagent = True

    @property
    def frame_rate(self) -> int:
        return 7

    def begin(self, w: int) -> None:
        """Resets world w to the start of its current episode."""
        raise NotImplementedError

    def cut(self, w: int) -> None:
        """After a step: ends world w's episode there, as a time limit of its own would."""
        lanes = slice(w, None, self.worlds)
        self.final_obs[lanes] = self.obs[lanes]
        self.truncated[lanes] = ~self.skipped[lanes]
        self.episode[w] += 1
        self.begin(w)

    def raised(self, i: int, what: str, error: BaseException) -> EnvironmentFault:
        """Of world i as a whole, whoever of its agents it was."""
        return fault_of(
            f"{self.name}, world {self.first + i}, episode {self.episode[i]}, step "
            f"{self.length[i]}",
            what,
            error,
        )

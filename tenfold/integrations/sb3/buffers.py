"""`rollout_buffer` and `replay_buffer` of a model: what our memories hold under Stable-Baselines3's
names, to be read."""

from typing import Any

import numpy as np


def read_only(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view


class RolloutView:
    """A rollout, [T, B, …]."""

    names = {
        "rewards": "reward",
        "values": "value",
        "log_probs": "log_p",
        "advantages": "advantage",
        "returns": "target",
        "observations": "obs",
    }

    def __init__(self, learner: Any) -> None:
        self.rollout = learner.rollout
        self.buffer_size, self.n_envs = self.rollout.log_p.shape

    @property
    def pos(self) -> int:
        return int(self.rollout.count[0])

    @property
    def full(self) -> bool:
        return self.pos == self.buffer_size

    @property
    def actions(self) -> np.ndarray:
        rollout = self.rollout
        return read_only(rollout.real if rollout.real.shape[-1] else rollout.chosen)

    @property
    def episode_starts(self) -> np.ndarray:
        """1 where a row begins an episode; of the first row that is not known here."""
        starts = np.zeros_like(self.rollout.boundary)
        starts[1:] = self.rollout.boundary[:-1]
        return read_only(starts)

    def __getattr__(self, name: str) -> np.ndarray:
        if name not in self.names:
            raise AttributeError(name)
        return read_only(getattr(self.rollout, self.names[name]))


class ReplayView:
    """A replay memory: what can be drawn from it, [rows, 1, …], the oldest first."""

    def __init__(self, learner: Any) -> None:
        self.learner, self.replay = learner, learner.replay
        self.n_envs = learner.envs.num_envs
        self.buffer_size = max(learner.settings.capacity // self.n_envs, 1)

    def size(self) -> int:
        """Steps of each environment that are held."""
        return int(self.replay.rows) // self.n_envs

    @property
    def pos(self) -> int:
        return self.size() % self.buffer_size

    @property
    def full(self) -> bool:
        return self.size() >= self.buffer_size

    def column(self, name: str) -> np.ndarray:
        return read_only(getattr(self.replay, name)[np.flatnonzero(self.replay.ready)][:, None])

    @property
    def observations(self) -> np.ndarray:
        return self.column("obs")

    @property
    def actions(self) -> np.ndarray:
        return self.column("action")

    @property
    def rewards(self) -> np.ndarray:
        return self.column("reward")

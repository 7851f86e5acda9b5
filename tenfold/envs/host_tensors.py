"""Environments of tensors behind the adapter of all others: what they return comes to the host.
Evaluations play in them, and a run that learns there is the reference of those that learn on the
device."""

import numpy as np
import torch

from tenfold.envs.adapter import Environments, Episode
from tenfold.envs.tensor_sources import close_episodes, open_episodes


class HostTensors(Environments):
    """The first `lanes` worlds; the others, where there are more, do as the last of these does.
    Where an environment does not give the last observation of an episode, the one acted on last
    stands for it."""

    exact_resume = False

    def __init__(self, name: str, lanes: int, seed: int, first: int = 0) -> None:
        self.tensors = open_episodes(name, lanes)
        tensors = self.tensors
        super().__init__(name, lanes, seed, tensors.observation_space, tensors.action_space, first)
        # whether a lane's world can begin an episode: not where one was cut before its end
        self.startable = np.ones(lanes, np.bool_)
        self.begun = 0
        self.begin()

    @property
    def time_limit(self) -> int | None:
        return self.tensors.time_limit

    def begin(self) -> None:
        """Resets all worlds."""
        seed = self.episode_seed(0) + self.begun
        self.begun += 1
        self.obs[:] = self.tensors.reset(seed)[: self.num_envs].cpu().numpy()
        self.length, self.ret = [0] * self.num_envs, [0.0] * self.num_envs

    def step(self, actions: np.ndarray) -> None:
        tensors, lanes = self.tensors, self.num_envs
        rows = np.minimum(np.arange(tensors.num_envs), lanes - 1)
        step = tensors.step(torch.from_numpy(np.asarray(actions)[rows]).to(tensors.device))
        self.final_obs[:] = self.obs if step.final_obs is None else on_host(step.final_obs, lanes)
        self.obs[:] = on_host(step.obs, lanes)
        self.reward[:] = on_host(step.reward, lanes)
        self.terminated[:] = on_host(step.terminated, lanes)
        self.truncated[:] = on_host(step.truncated, lanes)
        self.finished = []
        for i in range(lanes):
            self.note(i)

    def note(self, i: int) -> None:
        """Checks what a lane's step brought, and counts it."""
        ended = bool(self.terminated[i] or self.truncated[i])
        last = self.final_obs[i] if ended else self.obs[i]
        if not (np.isfinite(self.reward[i]) and np.isfinite(last).all()):
            raise self.not_finite(i)
        self.ret[i] += float(self.reward[i])
        self.length[i] += 1
        if ended:
            self.finished.append(Episode(i, self.ret[i], self.length[i]))
            self.episode[i] += 1
            self.ret[i], self.length[i], self.startable[i] = 0.0, 0, True

    def cut(self, w: int) -> None:
        """Ends the episode of lane w as a time limit would; its world goes on all the same."""
        self.truncated[w], self.startable[w] = True, False

    def can_begin(self, w: int) -> bool:
        return bool(self.startable[w])

    def restore(self, state: dict[str, np.ndarray]) -> bool:
        """The state of a simulator is its own: all episodes begin anew."""
        self.begin()
        return False

    def close(self) -> None:
        close_episodes(self.tensors, self.num_envs)


def on_host(tensor: torch.Tensor, lanes: int) -> np.ndarray:
    return tensor[:lanes].cpu().numpy()

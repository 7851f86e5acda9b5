"""Bases of environments: those whose state is a row of numbers, with a choice for each of several
heads, whose episodes are chosen; ordinary ones that play the episodes of a seed."""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

from tenfold.core.errors import EnvironmentFault
from tenfold.core.kernels import kernel
from tenfold.core.random import Purpose, key
from tenfold.envs.adapter import Environments


class StateEnvironments(Environments):
    """Lanes whose state is a row of numbers, and whose episodes are functions of their address:
    lane i plays those of the stream (seed, EPISODE, first + i). A row and two counters restore a
    lane, here and on a GPU, which works on copies of these arrays."""

    def __init__(
        self,
        name: str,
        num_envs: int,
        seed: int,
        observation_space: Any,
        action_space: Any,
        first: int,
        numbers: int,
    ) -> None:
        super().__init__(name, num_envs, seed, observation_space, action_space, first)
        self.states = np.zeros((num_envs, numbers))
        self.length, self.episode = np.zeros(num_envs, np.int64), np.zeros(num_envs, np.int64)
        self.ret = np.zeros(num_envs)
        self.state_arrays = {
            "state": self.states,
            "length": self.length,
            "episode": self.episode,
            "ret": self.ret,
        }
        self.streams = np.array(self.keys, np.uint64)


class ChosenLanes:
    """Mixin: list it before an adapter whose `begin(i)` starts lane i's current episode. After an
    episode a lane waits until `play` starts another one, by its number."""

    autoreset = False
    name: str
    episodes: int  # how many there are to choose from
    episode: Any
    length: Any
    playing: list[int]
    begin: Callable[[int], None]

    def play(self, i: int, episode: int) -> None:
        """Starts an episode in lane i; a number beyond the last removes the lane."""
        if episode < self.episodes:
            self.episode[i] = episode
            self.begin(i)
        else:
            self.rest(i)

    def rest(self, i: int) -> None:
        """No step moves lane i from now on."""
        self.playing = [lane for lane in self.playing if lane != i]

    def location(self, i: int, later: int = 0) -> str:
        return f"{self.name}, evaluation, episode {self.episode[i]}, step {self.length[i] + later}"


class SeededEnv(gym.Env[np.ndarray, Any]):
    """After `reset(seed=s)` it plays the episodes of lane 0 of seed s, one with each `reset()`."""

    stream: Any = None
    episode = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode += 1
        if seed is not None or self.stream is None:
            episode_seed = int(self.np_random.integers(2**62)) if seed is None else seed
            self.stream, self.episode = key(episode_seed, Purpose.EPISODE), 0
        self.begin()
        return self.observe()

    def begin(self) -> None:
        """The first state of the episode."""
        raise NotImplementedError

    def observe(self) -> tuple[np.ndarray, dict[str, Any]]:
        """The observation and info of the current state."""
        raise NotImplementedError


@kernel
def find_masked_head(action, mask):
    """The first head that has an option and whose action is masked, or −1."""
    options = len(mask) // len(action)
    for head in range(len(action)):
        legal = mask[head * options : (head + 1) * options]
        if legal.any() and not (0 <= action[head] < options and legal[action[head]]):
            return head
    return -1


@kernel
def find_masked_action(action, mask):
    """−1 − (i · heads + head) of the first masked action, of lane i; 0 where there is none."""
    for i in range(len(action)):
        head = find_masked_head(action[i], mask[i])
        if head >= 0:
            return -1 - (i * action.shape[1] + head)
    return 0


class CompiledHeads(Environments):
    """Lanes with one choice for each of several heads, stepped by one kernel call. The mask
    [B, heads · options] belongs to the present `obs`."""

    heads = ""  # what the heads belong to, in the plural
    step_kernel: Any  # takes `step_arrays`; returns the number of episodes that ended, or
    # what `find_masked_action` found, and nothing has moved then
    step_arrays: tuple[Any, ...]  # these arrays are written to, never replaced

    def __init__(
        self, name: str, num_envs: int, seed: int, spaces: tuple[Any, Any], first: int
    ) -> None:
        super().__init__(name, num_envs, seed, *spaces, first)
        heads, options = len(self.action_space), int(self.action_space.nvec[0])
        self.mask = self.options = np.zeros((num_envs, heads * options), np.bool_)
        self.action = np.zeros((num_envs, heads), np.int64)
        self.length, self.episode = np.zeros(num_envs, np.int64), np.zeros(num_envs, np.int64)
        # the first rows of `last` are the episodes that ended: lane, return, length
        self.ret, self.last = np.zeros(num_envs), np.zeros((num_envs, 3))
        self.state_arrays = {"length": self.length, "episode": self.episode, "ret": self.ret}

    def masked_action(self, head: int, action: int, options: np.ndarray) -> str:
        """Says why the action is refused, and which are legal."""
        raise NotImplementedError

    def step(self, actions: np.ndarray) -> None:
        """One step of every environment with actions [B, heads]."""
        self.begin_rounds()
        if actions.shape != self.action.shape:
            raise EnvironmentFault(
                f"{self.name}: {actions.shape} actions do not fit lanes and {self.heads} "
                f"{self.action.shape}."
            )
        self.action[:] = actions
        ended = self.step_kernel(*self.step_arrays)
        if ended > 0:
            self.note_ended(self.last[:ended])
        elif ended < 0:
            i, head = divmod(-1 - ended, len(self.action_space))
            options = self.options[i].reshape(len(self.action_space), -1)[head]
            why = self.masked_action(head, int(self.action[i, head]), options)
            raise EnvironmentFault(f"{self.location(i, later=1)}: {why}")

"""What several environments gave in a sample, as arrays, and RLlib's episodes as slices of them.

Row t of lane i is what environment i showed in round t: its observation, then what was done there.
An episode of n steps takes n + 1 rows, the last with its true final observation; the round after it
resets the environment, and what was chosen there is not part of anything.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any
from uuid import uuid4

import gymnasium as gym
import numpy as np
import torch
from ray.rllib.core.columns import Columns
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.env.utils.infinite_lookback_buffer import InfiniteLookbackBuffer

ACTIONS = Columns.ACTIONS
Picker = Callable[[Any], Any]
LEAVES = (gym.spaces.Box, gym.spaces.Discrete, gym.spaces.MultiDiscrete, gym.spaces.MultiBinary)


@dataclass
class Leaf:
    """One array of an observation: where it lies in it, and that of all environments now, once more
    flat for joining and as a tensor."""

    pick: Picker | None  # none: the observation is the array
    now: np.ndarray
    place: int = 0  # among all of the observation
    joined: np.ndarray = field(init=False)
    tensor: torch.Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.joined = self.now.reshape(-1, *self.now.shape[2:]) if self.now.ndim > 1 else self.now
        self.tensor = torch.from_numpy(self.now)

    def see(self, seen: Sequence[Any]) -> None:
        parts = list(map(self.pick, seen)) if self.pick else seen
        if self.now.ndim > 1:
            np.concatenate(parts, out=self.joined)
        else:
            self.now[:] = parts

    def for_module(self) -> torch.Tensor:
        """32-bit floats, as RLlib's connectors make them."""
        wide = self.tensor.is_floating_point() and self.tensor.dtype != torch.float16
        return self.tensor.float() if wide else self.tensor


def within(pick: Picker | None, key: Any) -> Picker:
    """What lies under a key of what is picked."""
    return (lambda one: pick(one)[key]) if pick else itemgetter(key)


def leaves_of(space: gym.Space, lanes: int, pick: Picker | None = None) -> Any:
    """A Leaf for every array of the space, nested as it is."""
    if isinstance(space, gym.spaces.Dict):
        return {key: leaves_of(part, lanes, within(pick, key)) for key, part in space.items()}
    if isinstance(space, gym.spaces.Tuple):
        return tuple(leaves_of(part, lanes, within(pick, i)) for i, part in enumerate(space))
    if not isinstance(space, LEAVES):
        raise ValueError(
            f"BulkEnvRunner has no arrays for observations in {space}; leave env_runner_cls out, "
            "and RLlib's own runner takes them"
        )
    return Leaf(pick, np.zeros((lanes, *(space.shape or ())), space.dtype))


def nested(like: Any, function: Callable[[Any], Any]) -> Any:
    """`function` of every leaf."""
    if isinstance(like, dict):
        return {key: nested(part, function) for key, part in like.items()}
    if isinstance(like, tuple):
        return tuple(nested(part, function) for part in like)
    return function(like)


def flat(like: Any) -> list[Any]:
    found: list[Any] = []
    nested(like, found.append)
    return found


@dataclass
class Running:
    """An episode that has not ended: the row of the first observation of its present chunk, and how
    many rows before it belong to the chunk before."""

    start: int
    lookback: int = 0
    t_started: int = 0
    began: float | None = None
    name: str = field(default_factory=lambda: uuid4().hex)
    custom: dict[Any, Any] = field(default_factory=dict)


class Lanes:
    """The arrays of one sample, and what makes episodes of them."""

    def __init__(self, space: gym.Space, action_space: gym.Space, lanes: int) -> None:
        self.count = lanes
        self.tree = leaves_of(space, lanes)
        self.leaves: list[Leaf] = flat(self.tree)
        for place, leaf in enumerate(self.leaves):
            leaf.place = place
        self.like = SingleAgentEpisode(observation_space=space, action_space=action_space)
        # of every episode, before it is filled; making one anew walks through its spaces
        self.constant = {name: getattr(self.like, name) for name in SingleAgentEpisode.__slots__}
        self.extra = SingleAgentEpisode(
            observations=[0, 0], actions=[0], rewards=[0], extra_model_outputs={"": [0]}
        ).extra_model_outputs[""]
        self.clear(1)

    def clear(self, rows: int) -> None:
        """Room for so many rows, in arrays that no episode holds."""
        self.rows = max(rows, 2)
        self.obs = [self.room(leaf.now) for leaf in self.leaves]
        self.reward = np.zeros((self.count, self.rows))
        self.outputs: dict[str, np.ndarray] = {}
        self.infos: list[list[dict[str, Any]]] = [[] for _ in range(self.count)]

    def room(self, column: np.ndarray) -> np.ndarray:
        return np.empty((self.count, self.rows, *column.shape[1:]), column.dtype)

    def grow(self, rows: int) -> None:
        """Episodes that were made before keep the arrays they have."""
        more, self.rows = rows - self.rows, rows

        def longer(array: np.ndarray) -> np.ndarray:
            end = np.empty((self.count, more, *array.shape[2:]), array.dtype)
            return np.concatenate([array, end], 1)

        self.obs, self.reward = [longer(array) for array in self.obs], longer(self.reward)
        self.outputs = {name: longer(array) for name, array in self.outputs.items()}

    def carry(self, first: int, last: int, rows: int) -> None:
        """Goes on in new arrays, which begin with the rows first … last of the old."""
        old, reward, outputs, infos = self.obs, self.reward, self.outputs, self.infos
        self.clear(rows)
        kept, steps = slice(first, last + 1), slice(first, last)
        for array, before in zip(self.obs, old, strict=True):
            array[:, : last + 1 - first] = before[:, kept]
        self.reward[:, : last - first] = reward[:, steps]
        for name, before in outputs.items():
            self.outputs[name] = self.room(before[:, 0])
            self.outputs[name][:, : last - first] = before[:, steps]
        self.infos = [lane[kept] for lane in infos]

    # a round

    def see(self, row: int, seen: Sequence[Any], infos: Sequence[dict[str, Any]]) -> None:
        """The observations of all environments, as they gave them."""
        if row >= self.rows:
            self.grow(2 * self.rows)
        for leaf, array in zip(self.leaves, self.obs, strict=True):
            leaf.see(seen)
            array[:, row] = leaf.now
        for lane, info in zip(self.infos, infos, strict=True):
            lane.append(dict(info or ()))  # environments may give the same one every time

    def for_module(self, device: Any) -> Any:
        return nested(self.tree, lambda leaf: leaf.for_module().to(device))

    def first_of(self, lane: int, row: int) -> Any:
        """The observation in a row."""
        return nested(self.tree, lambda leaf: self.obs[leaf.place][lane, row])

    def note(self, row: int, outputs: dict[str, np.ndarray]) -> None:
        """What the module said of the observations, by name."""
        for name, value in outputs.items():
            if name not in self.outputs:
                self.outputs[name] = self.room(value)
            self.outputs[name][:, row] = value

    # episodes

    def episode(self, lane: int, of: Running, stop: int, ended_at: float | None) -> Any:
        """The chunk of an episode whose last observation lies in row `stop`, as RLlib holds one
        after `to_numpy`."""
        first, like, before = of.start - of.lookback, self.like, of.lookback
        made = SingleAgentEpisode.__new__(SingleAgentEpisode)
        for name, value in self.constant.items():
            setattr(made, name, value)
        made.id_, made.t_started, made.t = of.name, of.t_started, of.t_started + stop - of.start
        arrays = [array[lane, first : stop + 1] for array in self.obs]
        seen = nested(self.tree, lambda leaf: arrays[leaf.place])
        made.observations = filled(like.observations, seen, before)
        made.infos = filled(like.infos, self.infos[lane][first : stop + 1], before)
        made.rewards = filled(like.rewards, self.reward[lane, first:stop], before)
        made.actions = filled(like.actions, self.outputs[ACTIONS][lane, first:stop], before)
        made.extra_model_outputs = {
            name: filled(self.extra, array[lane, first:stop], before)
            for name, array in self.outputs.items()
            if name != ACTIONS
        }
        made._custom_data = of.custom
        made._start_time, made._last_step_time = of.began, ended_at
        made._last_added_infos = self.infos[lane][stop]
        made._last_added_observation = nested(seen, lambda array: array[-1])
        return made


def filled(like: Any, data: Any, lookback: int) -> Any:
    """RLlib's buffer with other contents; making one anew walks through its space."""
    made = InfiniteLookbackBuffer.__new__(InfiniteLookbackBuffer)
    made.__dict__.update(like.__dict__)
    made.data, made.lookback, made.finalized = data, lookback, not isinstance(data, list)
    return made

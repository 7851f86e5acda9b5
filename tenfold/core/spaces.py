"""Action spaces of Gymnasium as arrays: discrete, bounded and mixed actions."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from tenfold.core.errors import CheckpointError, EnvironmentFault
from tenfold.core.graph_spaces import Gated
from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.core.random import below, uniform


@dataclass(frozen=True)
class DiscreteActions:
    """Actions 0 … n − 1 for the agent, start … start + n − 1 for the environment."""

    n: int
    start: int
    reals = 0  # numbers of an action that are stored

    def random(
        self, stream: np.uint64, address: np.ndarray, mask: np.ndarray | None = None
    ) -> np.ndarray:
        """Uniformly random actions for the environment, draw number `address` [B] of the
        stream, of those that a mask [B, n] allows."""
        if mask is None:
            return below(stream, address, self.n) + self.start
        return allowed_actions(uniform(stream, address), mask) + self.start

    def for_env(self, action: np.ndarray) -> np.ndarray:
        return action + self.start if self.start else action

    def check_stored(self, action: np.ndarray) -> None:
        """Refuses rows of a checkpoint that hold none of these."""
        if (wrong := (action < 0) | (action >= self.n)).any():
            raise CheckpointError(
                f"the replay memory holds action {action[wrong][0]}, and there are {self.n}, from "
                "0 on."
            )


def allowed_actions(u: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Actions [B] that a mask [B, n] allows, each as likely as the other, by uniform numbers; the
    first where nothing is allowed."""
    rank = (u * mask.sum(-1)).astype(np.int64)
    return (mask.cumsum(-1) > rank[:, None]).argmax(-1)


def discrete_actions(space: gym.Space[Any], name: str) -> DiscreteActions:
    """The actions of a Q-learning agent; any other space is refused with the agent that fits."""
    if isinstance(space, spaces.Discrete):
        return DiscreteActions(int(space.n), int(space.start))
    fitting = "sac, td3 or ppo" if isinstance(space, spaces.Box) else "ppo"
    raise EnvironmentFault(
        f"{name} has {action_kind(space)} actions ({space}), and dqn needs one Discrete action: "
        f"train it with {fitting}."
    )


@dataclass(frozen=True)
class PolicyActions:
    """The actions of a policy: categorical components (`sizes`, first values `starts`) and
    continuous numbers (`low`, `high`), in the order in which they stand in the space, and how the
    environment's action is put together from them."""

    space: gym.Space[Any]
    sizes: tuple[int, ...] = ()
    starts: tuple[int, ...] = ()
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    children: tuple["PolicyActions", ...] = ()
    # for each number the place of the option that must be chosen for it to count, or -1
    gates: tuple[int, ...] = ()

    @property
    def options(self) -> int:
        """Of all categorical components together: the length of a mask."""
        return sum(self.sizes)

    @property
    def leaves(self) -> tuple["PolicyActions", ...]:
        """The parts that have no parts, in order."""
        return (
            tuple(leaf for part in self.children for leaf in part.leaves)
            if self.children
            else (self,)
        )

    @property
    def numbers(self) -> int:
        return len(self.sizes) + len(self.low)

    def for_env(self, discrete: np.ndarray, real: np.ndarray) -> np.ndarray:
        """Components [B, C] and numbers [B, D] as the environments' actions [B, …]; mixtures as
        rows for `decode`."""
        if self.children:
            return np.concatenate([discrete, real], axis=1, dtype=np.float64)
        if self.sizes:
            discrete = discrete + self.starts if any(self.starts) else discrete
            if isinstance(self.space, spaces.Discrete):
                return discrete[:, 0]
            # a copy: an environment may keep its action, or change it
            return discrete.astype(self.space.dtype).reshape(-1, *(self.space.shape or ()))
        assert isinstance(self.space, spaces.Box)
        return (
            np.clip(real, self.low, self.high, dtype=np.float64)
            .astype(self.space.dtype)
            .reshape(-1, *self.space.shape)
        )

    def random(
        self, stream: np.uint64, address: np.ndarray, mask: np.ndarray | None = None
    ) -> np.ndarray:
        """Random actions for the environment, draw number `address` [B] of the stream: every
        allowed option equally likely, and every number within its bounds (±1 where there are
        none)."""
        rows, numbers = len(address), self.numbers
        u = uniform(stream, (address[:, None] * numbers + np.arange(numbers)).ravel())
        u, at = u.reshape(rows, -1), 0
        discrete = np.zeros((rows, len(self.sizes)), np.int64)
        for c, n in enumerate(self.sizes):
            allowed = np.ones((rows, n), np.bool_) if mask is None else mask[:, at : at + n]
            rank = (u[:, c] * allowed.sum(-1)).astype(np.int64)
            discrete[:, c] = (allowed.cumsum(-1) > rank[:, None]).argmax(-1)
            at += n
        low, high = (
            np.nan_to_num(bound, posinf=1, neginf=-1)
            for bound in (np.array(self.low), np.array(self.high))
        )
        return self.for_env(discrete, low + (high - low) * u[:, len(self.sizes) :])

    def decode(self, row: np.ndarray) -> Any:
        """A mixture's action from its row."""
        at_sizes, at_numbers = 0, len(self.sizes)
        actions = []
        for part in self.children:
            c, d = len(part.sizes), len(part.low)
            part_row = np.concatenate(
                [row[at_sizes : at_sizes + c], row[at_numbers : at_numbers + d]]
            )
            at_sizes, at_numbers = at_sizes + c, at_numbers + d
            actions.append(
                part.decode(part_row)
                if part.children
                else part.for_env(part_row[None, :c].astype(np.int64), part_row[None, c:])[0]
            )
        return (
            dict(zip(self.space.keys(), actions, strict=True))
            if isinstance(self.space, spaces.Dict)
            else tuple(actions)
        )


def policy_actions(space: gym.Space[Any], name: str) -> PolicyActions:
    """Discrete, MultiDiscrete, MultiBinary, Box, and Dict or Tuple of these."""
    if isinstance(space, spaces.Discrete):
        return PolicyActions(space, (int(space.n),), (int(space.start),))
    if isinstance(space, spaces.MultiDiscrete):
        return PolicyActions(
            space, tuple(map(int, np.ravel(space.nvec))), tuple(map(int, np.ravel(space.start)))
        )
    if isinstance(space, spaces.MultiBinary):
        return PolicyActions(space, (2,) * math.prod(space.shape), (0,) * math.prod(space.shape))
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        refuse_empty(space, name)
        return PolicyActions(
            space,
            low=tuple(map(float, np.ravel(space.low))),
            high=tuple(map(float, np.ravel(space.high))),
        )
    if isinstance(space, spaces.Tuple | spaces.Dict):
        below = list(space.values()) if isinstance(space, spaces.Dict) else list(space.spaces)
        children = tuple(policy_actions(part, name) for part in below)
        sizes, starts, low, high = (
            tuple(x for part in children for x in getattr(part, field))
            for field in ("sizes", "starts", "low", "high")
        )
        return PolicyActions(space, sizes, starts, low, high, children, gates_of(children, name))
    raise EnvironmentFault(
        f"{name} has actions of type {type(space).__name__} ({space}), which ppo cannot choose: "
        "wrap the environment so that they are Discrete, MultiDiscrete, MultiBinary, Box, or a "
        "Dict or Tuple of these."
    )


def gates_of(children: tuple[PolicyActions, ...], name: str) -> tuple[int, ...]:
    """The gates of all numbers, or none where no part is Gated."""
    gates: list[int] = []
    firsts = np.cumsum([0, *(part.options for part in children)]).tolist()
    for part, first in zip(children, firsts, strict=False):
        if not isinstance(part.space, Gated):
            gates += [gate + first if gate >= 0 else -1 for gate in part.gates] or [-1] * len(
                part.low
            )
            continue
        rows, option = part.space.shape[0], part.space.option
        fitting = [
            (at, other.sizes[0])
            for other, at in zip(children, firsts, strict=False)
            if len(set(other.sizes)) == 1 and len(other.sizes) == rows and option < other.sizes[0]
        ]
        if not fitting:
            raise EnvironmentFault(
                f"{name} has Gated numbers in {rows} rows, and beside them no {rows} components of "
                f"one size that could choose option {option}."
            )
        at, size = fitting[0]
        gates += np.repeat(at + size * np.arange(rows) + option, len(part.low) // rows).tolist()
    return tuple(gates) if max(gates, default=-1) >= 0 else ()


def action_kind(space: gym.Space[Any]) -> str:
    """In words, for whoever has the wrong one."""
    kinds = {
        "Box": "continuous",
        "Discrete": "discrete",
        "MultiDiscrete": "several discrete",
        "MultiBinary": "several binary",
    }
    return kinds.get(type(space).__name__, type(space).__name__)


def scaling_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for rows, columns in ((1, 1), (3, 6), (0, 2)):
        low = rng.normal(size=columns)
        action = rng.uniform(-1, 1, (rows, columns)).astype(np.float32)
        action[:1], action[1:2] = 1, -1  # the bounds themselves
        yield action, low, low + rng.exponential(size=columns)


def scale_actions_reference(action, low, high):
    """low + (a + 1)/2 · (high − low), which rounding must not carry over a bound."""
    share = (np.asarray(action, np.float64) + 1) / 2
    return np.clip(low + share * (high - low), low, high)


@pair(scale_actions_reference, scaling_examples, rtol=2e-7, atol=1e-7)
@kernel
def scale_actions(action, low, high):
    """The same as float32: seven NumPy functions take ten times as long for a few numbers."""
    scaled = np.empty_like(action)
    for i in range(action.shape[0]):
        for j in range(action.shape[1]):
            share = (np.float64(action[i, j]) + 1) / 2
            x = low[j] + share * (high[j] - low[j])
            scaled[i, j] = min(max(x, low[j]), high[j])
    return scaled


@dataclass(frozen=True)
class BoundedActions:
    """Actions of real numbers: each −1 … 1 for the agent and in memory, `low` … `high` for the
    environment."""

    space: spaces.Box
    low: np.ndarray
    high: np.ndarray

    @property
    def reals(self) -> int:
        return len(self.low)

    def for_env(self, action: np.ndarray) -> np.ndarray:
        """Numbers [B, D] as the environments' actions [B, …]."""
        if action.dtype == self.space.dtype == np.float32:
            scaled = scale_actions(np.ascontiguousarray(action), self.low, self.high)
        else:
            scaled = scale_actions_reference(action, self.low, self.high).astype(self.space.dtype)
        return scaled.reshape(-1, *self.space.shape)

    def random(
        self, stream: np.uint64, address: np.ndarray, mask: np.ndarray | None = None
    ) -> np.ndarray:
        """Uniformly random actions for the environment, draw number `address` [B] of the
        stream."""
        counter = address[:, None] * self.reals + np.arange(self.reals)
        return self.for_env(2 * uniform(stream, counter) - 1)

    def check_stored(self, action: np.ndarray) -> None:
        """Refuses rows of a checkpoint that hold none of these."""
        if not (np.abs(action) <= 1).all():
            raise CheckpointError("the replay memory holds actions that are not between -1 and 1.")


def refuse_empty(space: spaces.Box, name: str) -> None:
    """Actions without a number in them are nothing to learn."""
    if not np.size(space.low):
        raise EnvironmentFault(f"{name} has actions without a number in them: {space}.")


def bounded_actions(
    space: gym.Space[Any], name: str, agent: str, needed: str = "continuous ones (a Box)"
) -> BoundedActions:
    """The actions of an agent that chooses real numbers within bounds; any other space is refused
    with the agent that fits."""
    if not isinstance(space, spaces.Box):
        fitting = "dqn, sac or ppo" if isinstance(space, spaces.Discrete) else "ppo"
        raise EnvironmentFault(
            f"{name} has {action_kind(space)} actions ({space}), and {agent} needs {needed}: train "
            f"it with {fitting}."
        )
    if not np.issubdtype(space.dtype, np.floating):
        raise EnvironmentFault(
            f"{name} has a Box of whole numbers as actions ({space}), and {agent} needs real ones: "
            "wrap the environment so that they are floats."
        )
    refuse_empty(space, name)
    low, high = (np.ravel(bound).astype(np.float64) for bound in (space.low, space.high))
    if not np.isfinite([*low, *high]).all():
        raise EnvironmentFault(
            f"{name} has actions without bounds ({space}), and {agent} needs finite ones: give its "
            "action space bounds, or train ppo."
        )
    return BoundedActions(space, low, high)

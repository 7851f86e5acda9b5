"""Environments written as functions of numbers: in NumPy for the host, and as Triton twins for the
GPU.

A state is a tuple of numbers, each of them an array [lanes] of float64:

    begin(stream, episode)   -> state               its draws are `uniform(stream, address)`
    advance(state, action)   -> state, reward, terminated
    observe(state)           -> what the agent sees, a tuple of numbers
    mask(state)              -> where actions may be forbidden: a truth for each option, a tuple

`action` is an array [lanes], or a tuple of them where an action has several components or real
numbers; real ones are cut at their bounds. The Triton twins have the same signatures; their numbers
are tensors. Of the NumPy functions `register_task` makes environments as any other, and of both a
pair that `tenfold check` compares.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from tenfold.core.errors import EnvironmentFault, UserError, described
from tenfold.core.pairs import pair
from tenfold.core.random import Purpose, key
from tenfold.core.spaces import PolicyActions, policy_actions
from tenfold.envs.bases import SeededEnv, StateEnvironments
from tenfold.envs.control_dynamics import KINDS

TRIED, CHECKED = 64, 24  # lanes when a task is registered; steps of an episode that are checked


class Functions(NamedTuple):
    """Of a task, all in NumPy or all in Triton."""

    begin: Callable[..., Any]
    advance: Callable[..., Any]
    observe: Callable[..., Any]
    mask: Callable[..., Any] | None = None


@dataclass(frozen=True)
class Task:
    """An environment as functions; `states` and `obs` are how many numbers a state and an
    observation have."""

    name: str
    host: Functions
    device: Functions | None
    actions: PolicyActions
    limit: int
    states: int
    obs: int

    def observation_space(self) -> gym.spaces.Box:
        return gym.spaces.Box(-np.inf, np.inf, (self.obs,), np.float32)

    def split_actions(self, actions: np.ndarray) -> Any:
        """Actions [lanes, …] as `advance` takes them."""
        if actions.ndim == 1:
            return actions
        rows = actions.reshape(len(actions), -1).T.astype(self.kind)
        return tuple(rows) if len(rows) > 1 else rows[0]

    @property
    def kind(self) -> Any:
        return np.int64 if self.actions.sizes else np.float64

    # of rows [lanes, numbers]

    def begin(self, streams: np.ndarray, episode: np.ndarray) -> np.ndarray:
        return as_rows(self.host.begin(streams, episode), len(streams))

    def advance(self, states: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, Any, Any]:
        next_states, reward, terminated = self.host.advance(
            columns_of(states), self.split_actions(actions)
        )
        return as_rows(next_states, len(states)), reward, terminated

    def observe(self, states: np.ndarray) -> np.ndarray:
        return as_rows(self.host.observe(columns_of(states)), len(states)).astype(np.float32)

    def mask(self, states: np.ndarray) -> np.ndarray:
        """All True where the task has no mask."""
        if self.host.mask is None:
            return np.ones((len(states), self.actions.options), np.bool_)
        return as_rows(self.host.mask(columns_of(states)), len(states)) != 0


TASKS: dict[str, Task] = {}


def columns_of(rows: np.ndarray) -> tuple[np.ndarray, ...]:
    """The numbers of rows, each an array of its own that may be written to."""
    return tuple(rows.T.copy())


def as_rows(numbers: Any, lanes: int) -> np.ndarray:
    """A tuple of numbers as rows."""
    rows = np.zeros((lanes, len(numbers)))
    for column, number in zip(rows.T, numbers, strict=True):
        column[:] = number
    return rows


def task_of(name: str) -> Task | None:
    """By a name that may have its module in front."""
    return TASKS.get(name.rpartition(":")[2])


def runs_on_gpu(name: str) -> bool:
    """Whether an environment is there in Triton as well."""
    task = task_of(name)
    return name in KINDS or (task is not None and task.device is not None)


# registering


def register_task(
    name: str,
    host: Functions,
    device: Functions | None = None,
    *,
    actions: gym.Space[Any],
    limit: int,
    rtol: float = 1e-9,
    atol: float = 1e-9,
) -> None:
    """An environment from now on: Gymnasium's `make(name)`, `--env my_module:name`, and on the GPU
    where there are `device` functions. `actions` is their Discrete, MultiDiscrete or Box space,
    `limit` the most steps of an episode; device and host may differ by the tolerances."""
    if limit < 1:
        raise UserError(f"{name}: the limit is {limit}, and an episode has at least one step.")
    spaces = (gym.spaces.Discrete, gym.spaces.MultiDiscrete, gym.spaces.Box)
    policy_space = policy_actions(actions, name) if isinstance(actions, spaces) else None
    if policy_space is None or any(policy_space.starts):
        raise UserError(
            f"{name}: its actions are {actions}, and must be a Discrete, MultiDiscrete or Box "
            "space, whole numbers counted from 0."
        )
    if device is not None and (device.mask is None) != (host.mask is None):
        raise UserError(f"{name}: host and device must both have a mask, or neither.")
    TASKS[name] = task = tried(name, host, device, policy_space, limit)
    gym.registry.pop(name, None)
    gym.register(
        name, "tenfold.envs.functions:FunctionEnv", max_episode_steps=limit, kwargs={"task": name}
    )
    if device is not None:
        register_pair(task, rtol, atol)


def tried(
    name: str, host: Functions, device: Functions | None, actions: PolicyActions, limit: int
) -> Task:
    """The task, whose functions were called once; what is wrong with them is said."""
    streams = np.array([key(i, Purpose.EPISODE) for i in range(TRIED)])
    episode, where = np.zeros(TRIED, np.int64), "begin"
    try:
        state = host.begin(streams, episode)
        where = "observe"
        obs = host.observe(state)
        task = Task(name, host, device, actions, limit, len(state), len(obs))
        where = "mask"
        allowed = task.mask(task.begin(streams, episode))
        where = "advance"
        rows = actions.random(key(0, Purpose.RANDOM_POLICY), np.arange(TRIED), allowed)
        after, reward, terminated = task.advance(task.begin(streams, episode), rows)
        as_rows((reward, terminated), TRIED)
    except Exception as error:
        raise UserError(f"{name}: {where} in NumPy failed: {described(error)}") from error
    if allowed.shape[1] != actions.options:
        raise UserError(
            f"{name}: its mask has {allowed.shape[1]} numbers, and its actions have "
            f"{actions.options} options."
        )
    if after.shape[1] != task.states:
        raise UserError(
            f"{name}: begin gives a state of {task.states} numbers, and advance one of "
            f"{after.shape[1]}."
        )
    return task


def register_pair(task: Task, rtol: float, atol: float) -> None:
    """Device and host, step by step, from states that episodes reach."""

    def examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
        draws = key(int(rng.integers(2**62)), Purpose.RANDOM_POLICY)
        for lanes in (1, 2, 33):
            envs = FunctionEnvironments(task, task.name, lanes, int(rng.integers(2**31)), True)
            for step in range(min(task.limit, CHECKED)):
                action = task.actions.random(draws, step * lanes + np.arange(lanes), envs.mask)
                if step % 4 < 2:
                    actions = action.reshape(lanes, -1).astype(task.kind)
                    yield envs.states, envs.episode, envs.streams, actions
                envs.step(action)

    def reference(state, episode, streams, action):
        after, reward, terminated = task.advance(state, action)
        return (
            after,
            task.observe(after),
            np.broadcast_to(reward, len(state)).astype(np.float64),
            np.broadcast_to(terminated, len(state)).astype(np.bool_),
            task.begin(streams, episode),
            task.mask(after),
        )

    def can_run() -> bool:
        if not find_spec("triton"):
            return False
        from tenfold.ops.device.language import available

        return available()

    @pair(reference, examples, name=f"envs.tasks.{task.name}", rtol=rtol, atol=atol, when=can_run)
    def on_device(state, episode, streams, action):
        from tenfold.envs.device import device_task, step_on_device

        return step_on_device(device_task(task.name), state, episode, streams, action)


# the environments


class FunctionEnvironments(StateEnvironments):
    """All lanes of a task, one call of its functions a step."""

    def __init__(
        self, task: Task, name: str, num_envs: int, seed: int, policy: bool, first: int = 0
    ) -> None:
        self.task = task
        spaces = task.observation_space(), task.actions.space
        super().__init__(name, num_envs, seed, *spaces, first, task.states)
        has_mask = task.host.mask is not None
        self.unread_mask = has_mask and not policy
        self.masked = has_mask and policy
        if self.masked:
            self.make_masks(task.actions.options)
        self.states[:] = task.begin(self.streams, self.episode)
        self.see_again()

    def step(self, actions: np.ndarray) -> None:
        """One step of every environment with actions [B], or [B, numbers]."""
        self.begin_rounds()
        self.states[:], self.reward[:], terminated = self.call("advance", self.states, actions)
        if np.asarray(terminated).dtype != np.bool_:
            for i, ends in enumerate(np.broadcast_to(terminated, self.num_envs).tolist()):
                self.require_flags(i, ends, False)
        self.terminated[:] = terminated
        self.obs[:] = self.call("observe", self.states)
        self.length += 1
        self.ret += self.reward
        np.greater_equal(self.length, self.task.limit, out=self.truncated)
        finite = np.isfinite(self.reward) & np.isfinite(self.obs).all(1)
        if not finite.all():
            raise self.not_finite(int(np.argmin(finite)))
        ended = np.flatnonzero(self.terminated | self.truncated)
        if len(ended):
            self.final_obs[ended] = self.obs[ended]
            if self.mask is not None:
                last = self.call("mask", self.states[ended])
                for i, allowed in zip(ended.tolist(), last, strict=True):
                    if not self.terminated[i]:
                        self.note_final_mask(i, allowed)
            self.note_ended(np.stack([ended, self.ret[ended], self.length[ended]], 1))
            self.episode[ended] += 1
            self.length[ended], self.ret[ended] = 0, 0.0
            self.states[ended] = self.call("begin", self.streams[ended], self.episode[ended])
            self.obs[ended] = self.call("observe", self.states[ended])
        if self.mask is not None:
            self.mask[:] = self.call("mask", self.states)

    def call(self, what: str, *arrays: np.ndarray) -> Any:
        """One of the functions; what it raises is told with its place."""
        try:
            return getattr(self.task, what)(*arrays)
        except Exception as error:
            raise EnvironmentFault(f"{self.name}: {what} failed: {described(error)}") from error

    def see_again(self) -> None:
        self.obs[:] = self.call("observe", self.states)
        if self.mask is not None:
            self.mask[:] = self.call("mask", self.states)


class FunctionEnv(SeededEnv):
    """A task as an ordinary environment, its mask as `info["action_mask"]`."""

    metadata = {"render_modes": []}

    def __init__(self, task: str, render_mode: str | None = None) -> None:
        self.task, self.render_mode = TASKS[task], render_mode
        self.observation_space = self.task.observation_space()
        self.action_space = self.task.actions.space
        self.row = np.zeros((1, self.task.states))

    def begin(self) -> None:
        self.row[:] = self.task.begin(np.array([self.stream]), np.array([self.episode]))

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if self.task.actions.sizes:
            assert self.action_space.contains(action), f"{action!r} is not in {self.action_space}"
        self.row[:], reward, terminated = self.task.advance(self.row, np.asarray(action)[None])
        obs, info = self.observe()
        return obs, float(np.ravel(reward)[0]), bool(np.ravel(terminated)[0]), False, info

    def observe(self) -> tuple[np.ndarray, dict[str, Any]]:
        masked = self.task.host.mask is not None
        info = {"action_mask": self.task.mask(self.row)[0]} if masked else {}
        return self.task.observe(self.row)[0], info

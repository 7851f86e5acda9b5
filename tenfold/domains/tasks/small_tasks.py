"""Two small tasks: Catch, the smallest with images, and Assign, with masks and many action heads.

Assign: ten workers choose among eight tasks at once, each among those it may do; what one choice is
worth depends on all the others.

    reward = (1 / workers) · Σ_w ( value[w, task_w] − [more than CAPACITY workers chose task_w] )

A task has room for two. Everybody in a crowded one pays, so taking the best value for oneself is
not the best for all, and the heads must be told apart in what they earned. Every step shows new
values and new masks, whatever was chosen before: what matters is only the joint choice, which makes
the task a plain test of masks and of credit between heads. Random legal choices earn about
3.8 in an episode, each worker's best value for itself 8.3, the best joint choices 13.2.

Values are uniform in [0.1, 1]; an option is legal with probability 0.6, and where that leaves a
worker nothing, one drawn task is. An observation holds the values, worker by worker, and 0 for what
is not legal. Each number is a function of its address (stream of the lane, episode, step, place),
so an environment is restored from two counters. An episode is cut after 16 steps.
"""

from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np

from tenfold.core.errors import EnvironmentFault
from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.core.random import Purpose, draw_uniform, key, uniform_reference
from tenfold.envs.bases import CompiledHeads, SeededEnv, find_masked_action, find_masked_head

WORKERS, TASKS = 10, 8
OPTIONS = WORKERS * TASKS
STEPS = 16
CAPACITY = 2  # workers that a task has room for
LEAST, LEGAL = 0.1, 0.6  # the smallest value; the probability that an option is legal
# of a step: values, legality, and the task left to a worker that has none
DRAWS = 2 * OPTIONS + WORKERS


def observation_space() -> gym.spaces.Box:
    return gym.spaces.Box(0, 1, (OPTIONS,), np.float32)


def action_space() -> gym.spaces.MultiDiscrete:
    return gym.spaces.MultiDiscrete([TASKS] * WORKERS)


# one row


@kernel
def show(stream, episode, step, obs, mask):
    """Writes values and legal options of a step, 0 … STEPS; in the last one nobody acts."""
    first = (episode * (STEPS + 1) + step) * DRAWS
    for w in range(WORKERS):
        some = False
        for o in range(w * TASKS, (w + 1) * TASKS):
            mask[o] = draw_uniform(stream, first + OPTIONS + o) < LEGAL
            some |= mask[o]
        if not some:
            mask[w * TASKS + int(draw_uniform(stream, first + 2 * OPTIONS + w) * TASKS)] = True
        for o in range(w * TASKS, (w + 1) * TASKS):
            obs[o] = LEAST + (1 - LEAST) * draw_uniform(stream, first + o) if mask[o] else 0.0


@kernel
def earn(obs, action):
    """The reward of a joint choice."""
    total = 0.0
    for w in range(WORKERS):
        together = 0
        for other in range(WORKERS):
            together += action[other] == action[w]
        total += obs[w * TASKS + action[w]] - (1.0 if together > CAPACITY else 0.0)
    return total / WORKERS


# rows


@kernel
def show_all(length, episode, streams, obs, mask):
    """Writes what every lane observes now."""
    for i in range(len(length)):
        show(streams[i], episode[i], length[i], obs[i], mask[i])


@kernel
def play_all(action, length, episode, streams, obs, final_obs, mask, reward, truncated, ret, last):
    """One step of every lane, SAME_STEP: where an episode ended, final_obs has its last
    observation, and obs and mask are the next one's first. The first rows of `last` [B, 3] are the
    episodes that ended: lane, return, length.

    Returns the number of episodes that ended; a masked action is refused before any lane moves.
    """
    ended = find_masked_action(action, mask)
    if ended:
        return ended
    for i in range(len(length)):
        reward[i] = earn(obs[i], action[i])
        ret[i] += reward[i]
        length[i] += 1
        truncated[i] = length[i] == STEPS
        if truncated[i]:
            show(streams[i], episode[i], length[i], final_obs[i], mask[i])
            last[ended, 0], last[ended, 1], last[ended, 2] = i, ret[i], length[i]
            episode[i] += 1
            length[i], ret[i] = 0, 0.0
            ended += 1
        show(streams[i], episode[i], length[i], obs[i], mask[i])
    return ended


# the pair


def show_reference(stream: np.uint64, episode: int, step: int) -> tuple[np.ndarray, np.ndarray]:
    drawn = uniform_reference(stream, (episode * (STEPS + 1) + step) * DRAWS + np.arange(DRAWS))
    value, legality = drawn[: 2 * OPTIONS].reshape(2, WORKERS, TASKS)
    mask = legality < LEGAL
    for w in np.flatnonzero(~mask.any(1)):
        mask[w, int(drawn[2 * OPTIONS + w] * TASKS)] = True
    return np.where(mask, LEAST + (1 - LEAST) * value, 0).astype(np.float32).ravel(), mask.ravel()


def step_reference(
    length: np.ndarray, episode: np.ndarray, streams: np.ndarray, action: np.ndarray
) -> tuple[np.ndarray, ...]:
    """One step by the equation, one lane after another."""
    results: list[list[Any]] = [[], [], [], [], []]
    for i, tasks in enumerate(action):
        observe = show_reference(streams[i], episode[i], length[i])[0].reshape(WORKERS, TASKS)
        crowded = np.bincount(tasks, minlength=TASKS) > CAPACITY
        reward = np.mean(observe[np.arange(WORKERS), tasks].astype(np.float64) - crowded[tasks])
        length[i] += 1
        obs, mask = show_reference(streams[i], episode[i], length[i])
        final, cut = np.zeros_like(obs), length[i] == STEPS
        if cut:
            final, length[i], episode[i] = obs, 0, episode[i] + 1
            obs, mask = show_reference(streams[i], episode[i], 0)
        for result, value in zip(results, (obs, final, mask, reward, cut), strict=True):
            result.append(value)
    return length, episode, *map(np.array, results)


def random_lanes(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """Lanes anywhere in their episodes, some at their last step; random legal actions, or each
    worker's first one."""
    for lanes in (1, 2, 33):
        for together in (False, True):
            streams = np.array(
                [key(int(rng.integers(2**62)), Purpose.EPISODE, i) for i in range(lanes)]
            )
            episode, length = (
                rng.integers(1000, size=lanes),
                rng.choice([0, 7, STEPS - 2, STEPS - 1], lanes),
            )
            masks = [
                show_reference(*at)[1].reshape(WORKERS, TASKS)
                for at in zip(streams, episode, length, strict=True)
            ]
            action = [
                [np.flatnonzero(o)[0] if together else rng.choice(np.flatnonzero(o)) for o in mask]
                for mask in masks
            ]
            yield length, episode, streams, np.array(action, dtype)


@pair(
    step_reference,
    random_lanes,
    rtol=1e-12,
    atol=1e-12,
    dtypes=("int64",),
    name="envs.assign.play_all",
)
def step_once(
    length: np.ndarray, episode: np.ndarray, streams: np.ndarray, action: np.ndarray
) -> tuple[np.ndarray, ...]:
    """One step of `AssignEnvironments` from these states."""
    envs = AssignEnvironments("tenfold/Assign-v0", len(length), 0)
    envs.length[:], envs.episode[:], envs.streams[:] = length, episode, streams
    show_all(envs.length, envs.episode, envs.streams, envs.obs, envs.options)
    envs.step(action)
    return (
        envs.length,
        envs.episode,
        envs.obs,
        envs.final_obs,
        envs.options,
        envs.reward,
        envs.truncated,
    )


# the classes


def masked_action_message(worker: int, action: int, options: np.ndarray) -> str:
    return (
        f"worker {worker} may not choose task {action}: its options are "
        f"{', '.join(map(str, np.flatnonzero(options)))}."
    )


class AssignEnvironments(CompiledHeads):
    """All lanes in one kernel call a step. Lane i plays the episodes of the stream (seed, EPISODE,
    first + i)."""

    heads = "workers"
    step_kernel = staticmethod(play_all)

    def __init__(self, name: str, num_envs: int, seed: int, first: int = 0) -> None:
        super().__init__(name, num_envs, seed, (observation_space(), action_space()), first)
        self.streams = np.array(self.keys, np.uint64)
        self.step_arrays = (
            self.action,
            self.length,
            self.episode,
            self.streams,
            self.obs,
            self.final_obs,
            self.options,
            self.reward,
            self.truncated,
            self.ret,
            self.last,
        )
        self.see_again()

    def masked_action(self, head: int, action: int, options: np.ndarray) -> str:
        return masked_action_message(head, action, options)

    def see_again(self) -> None:
        show_all(self.length, self.episode, self.streams, self.obs, self.options)


class AssignEnv(SeededEnv):
    """The task as an ordinary environment, with the mask as `info["action_mask"]`."""

    metadata = {"render_modes": []}

    def __init__(self, render_mode: str | None = None) -> None:
        self.observation_space, self.action_space = observation_space(), action_space()
        self.render_mode = render_mode
        self.length = STEPS
        self.obs, self.mask = np.zeros(OPTIONS, np.float32), np.zeros(OPTIONS, np.bool_)

    def begin(self) -> None:
        self.length = 0

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if self.length == STEPS:
            raise EnvironmentFault(
                "This episode of tenfold/Assign-v0 is over: call reset() to begin one."
            )
        tasks = np.asarray(action, np.int64)
        if tasks.shape != self.action_space.shape:
            raise EnvironmentFault(
                f"tenfold/Assign-v0 needs one action for each of its {WORKERS} workers, and got "
                f"{action}."
            )
        w = find_masked_head(tasks, self.mask)
        if w >= 0:
            raise EnvironmentFault(
                "tenfold/Assign-v0: "
                f"{masked_action_message(w, int(tasks[w]), self.mask.reshape(WORKERS, TASKS)[w])}"
            )
        reward = earn(self.obs, tasks)
        self.length += 1
        obs, info = self.observe()
        return obs, reward, False, self.length == STEPS, info

    def observe(self) -> tuple[np.ndarray, dict[str, Any]]:
        show(self.stream, self.episode, self.length, self.obs, self.mask)
        return self.obs.copy(), {"action_mask": self.mask.copy()}


# Catch


SIDE = 10


class Catch(gym.Env[np.ndarray, int]):
    """A ball falls from the top of a 10 × 10 image; a paddle on the bottom row moves left, stays or
    moves right.

    The ball starts in a random column and falls one row a step; at the bottom the reward is +1 if
    the paddle is under it, −1 if not, and the episode terminates. A uniformly random policy gets
    about −0.74, an optimal one 1.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 8}

    def __init__(self, render_mode: str | None = None) -> None:
        self.observation_space = gym.spaces.Box(0, 255, (SIDE, SIDE), np.uint8)
        self.action_space = gym.spaces.Discrete(3)
        self.render_mode = render_mode
        self.ball_row = self.ball_column = self.paddle = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.ball_row, self.ball_column = 0, int(self.np_random.integers(SIDE))
        self.paddle = SIDE // 2
        return self.image(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.paddle = min(max(self.paddle + int(action) - 1, 0), SIDE - 1)
        self.ball_row += 1
        landed = self.ball_row == SIDE - 1
        reward = (1.0 if self.paddle == self.ball_column else -1.0) if landed else 0.0
        return self.image(), reward, landed, False, {}

    def image(self) -> np.ndarray:
        image = np.zeros((SIDE, SIDE), np.uint8)
        image[SIDE - 1, self.paddle] = 128
        image[self.ball_row, self.ball_column] = 255
        return image

    def render(self) -> np.ndarray:  # type: ignore[override]
        return np.repeat(np.kron(self.image(), np.ones((16, 16), np.uint8))[..., None], 3, axis=2)

"""CartPole, Acrobot, MountainCar and Pendulum as environments: all lanes at once, or an ordinary
one. `control_dynamics` and `control_tasks` say what a step is."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.core.random import Purpose, key, uniform_reference
from tenfold.core.tables import B1, D1, D2, F2, I1, U1, opener, table_of
from tenfold.envs.bases import SeededEnv, StateEnvironments
from tenfold.envs.control_dynamics import (
    HIGHEST_START,
    KINDS,
    LEFT_WALL,
    LOWEST_START,
    MAX_TORQUE,
    MOUNTAIN_CAR,
    RIGHT_WALL,
    STATES,
    ControlTask,
    advance,
    begin,
    observe,
)

# rows


@kernel
def reset_all(kind, state, length, episode, streams, obs):
    """The start of every lane's current episode."""
    for i in range(len(state)):
        length[i] = 0
        begin(kind, state[i], streams[i], episode[i])
        observe(kind, state[i], obs[i])


class ControlState(NamedTuple):
    """What a step of all lanes reads and writes, but for the actions, which are whole numbers or
    real ones."""

    task: I1  # its number and its limit of steps
    state: D2
    length: I1
    episode: I1
    streams: U1
    obs: F2
    final_obs: F2
    reward: D1
    terminated: B1
    truncated: B1
    ret: D1  # of the current episodes
    last: D2  # in its first rows [3] the episodes that ended: lane, return, length


open_state = opener(ControlState)


@kernel
def play_all(action, table):
    """One step of every lane, SAME_STEP: where an episode ended, final_obs has its last observation
    and obs the next one's first.

    Returns the number of episodes that ended. A lane i whose observation or reward is not finite
    stops it at once, before it is reset: the result is then −1 − i, and the lanes after i have not
    moved.
    """
    a = open_state(table)
    kind, limit, ended = a.task[0], a.task[1], 0
    for i in range(len(a.state)):
        a.reward[i], a.terminated[i] = advance(kind, a.state[i], action[i])
        observe(kind, a.state[i], a.obs[i])
        a.length[i] += 1
        a.ret[i] += a.reward[i]
        a.truncated[i] = a.length[i] >= limit  # whether terminated or not, as Gymnasium's TimeLimit
        total = a.reward[i] * 0.0
        for j in range(a.obs.shape[1]):
            total += a.obs[i, j] * 0.0  # 0 for every finite number, NaN otherwise
        if total != 0.0:
            return -1 - i
        if a.terminated[i] or a.truncated[i]:
            for j in range(a.obs.shape[1]):  # a loop compiles in a seventh of a slice's time
                a.final_obs[i, j] = a.obs[i, j]
            a.last[ended, 0], a.last[ended, 1], a.last[ended, 2] = i, a.ret[i], a.length[i]
            ended += 1
            a.episode[i] += 1
            a.length[i], a.ret[i] = 0, 0.0
            begin(kind, a.state[i], a.streams[i], a.episode[i])
            observe(kind, a.state[i], a.obs[i])
    return ended


# the pair: Gymnasium's own environments, one lane at a time


def random_lanes(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """States from all over each task, the edges where episodes end included, some lanes one step
    before the time limit."""
    cart = [2.5, 2, 0.22, 2]
    spread = np.array([cart, [3.2, 3.2, 12, 28], [0, 0.07, 0, 0], [30, 8, 0, 0], cart])
    for kind in KINDS.values():
        for lanes in (1, 2, 65):
            state = rng.uniform(-1, 1, (lanes, STATES)) * spread[kind.number]
            if kind.number == MOUNTAIN_CAR:
                # some at the wall
                state[:, 0] = rng.uniform(LEFT_WALL - 0.1, RIGHT_WALL, lanes).clip(LEFT_WALL)
            action = (
                rng.integers(kind.actions, size=lanes)
                if kind.actions
                else rng.uniform(-3, 3, lanes)
            )
            length = rng.choice([0, 7, kind.limit - 2, kind.limit - 1], lanes)
            streams = np.array(
                [key(int(rng.integers(2**62)), Purpose.EPISODE, i) for i in range(lanes)]
            )
            episode = rng.integers(1000, size=lanes)
            yield (
                kind,
                state,
                length,
                episode,
                streams,
                action.astype(dtype) if kind.actions else action,
            )


def step_reference(
    kind: ControlTask,
    state: np.ndarray,
    length: np.ndarray,
    episode: np.ndarray,
    streams: np.ndarray,
    action: np.ndarray,
) -> tuple[np.ndarray, ...]:
    """Gymnasium's environment put into each state, stepped once, and started anew from a drawn
    state where it ended."""
    obs, final_obs = np.zeros((2, len(state), kind.obs_size), np.float32)
    reward, (terminated, truncated) = np.zeros(len(state)), np.zeros((2, len(state)), np.bool_)
    env: Any = gym.make(kind.original).unwrapped
    for i in range(len(state)):
        env.reset()
        env.state = state[i, : kind.used]
        raw_obs, reward[i], terminated[i], _, _ = env.step(
            int(action[i]) if kind.actions else action[i : i + 1]
        )
        state[i, : kind.used] = env.state
        truncated[i] = length[i] + 1 >= kind.limit
        if terminated[i] or truncated[i]:
            final_obs[i] = kind.select(raw_obs)
            episode[i] += 1
            low, high = LOWEST_START[kind.number], HIGHEST_START[kind.number]
            state[i] = low + (high - low) * uniform_reference(
                streams[i], STATES * episode[i] + np.arange(STATES)
            )
            raw_obs = seen_by_gymnasium(kind, env, state[i])
        obs[i] = kind.select(raw_obs)
    length[:] = np.where(terminated | truncated, 0, length + 1)
    return obs, final_obs, reward, terminated, truncated, state, length, episode


def seen_by_gymnasium(kind: ControlTask, env: Any, state: np.ndarray) -> np.ndarray:
    env.state = state[: kind.used]
    look = getattr(env, "_get_ob", None) or getattr(env, "_get_obs", None)
    return look() if look else np.float32(env.state)  # type: ignore[return-value]


@pair(
    step_reference,
    random_lanes,
    rtol=1e-6,
    atol=1e-6,
    dtypes=("int64", "float64"),
    name="envs.control.step_all",
)
def step_once(
    kind: ControlTask,
    state: np.ndarray,
    length: np.ndarray,
    episode: np.ndarray,
    streams: np.ndarray,
    action: np.ndarray,
) -> tuple[np.ndarray, ...]:
    """`play_all` with fresh arrays for its results."""
    obs, final_obs = np.zeros((2, len(state), kind.obs_size), np.float32)
    terminated, truncated = np.zeros((2, len(state)), np.bool_)
    reward, ret, last = np.zeros(len(state)), np.zeros(len(state)), np.zeros((len(state), 3))
    task, ends = np.array([kind.number, kind.limit]), (reward, terminated, truncated, ret, last)
    lanes = ControlState(task, state, length, episode, streams, obs, final_obs, *ends)
    play_all(action, table_of(lanes))
    return obs, final_obs, reward, terminated, truncated, state, length, episode


class ControlEnvironments(StateEnvironments):
    """All lanes of one task, one kernel call a step."""

    def __init__(self, name: str, num_envs: int, seed: int, first: int = 0) -> None:
        self.kind = kind = KINDS[name]
        spaces = kind.observation_space(), kind.action_space()
        super().__init__(name, num_envs, seed, *spaces, first, STATES)
        self.last = np.zeros((num_envs, 3))
        self.action = np.zeros(num_envs, np.int64 if kind.actions else np.float64)
        # what every step hands to the kernel; these arrays are written to, never replaced
        self.lanes = ControlState(
            np.array([kind.number, kind.limit]),
            self.states,
            self.length,
            self.episode,
            self.streams,
            self.obs,
            self.final_obs,
            self.reward,
            self.terminated,
            self.truncated,
            self.ret,
            self.last,
        )
        self.kernel_arguments = (self.action, table_of(self.lanes))
        self.begin_all()

    def begin_all(self) -> None:
        """Every lane at the start of its current episode."""
        self.length[:], self.ret[:] = 0, 0.0
        number = self.kind.number
        reset_all(number, self.states, self.length, self.episode, self.streams, self.obs)

    def step(self, actions: np.ndarray) -> None:
        """One step of every environment with actions [B], or torques [B, 1]."""
        self.begin_rounds()
        self.action[:] = actions if actions.ndim == 1 else actions[:, 0]
        self.end_rounds(play_all(*self.kernel_arguments))

    def end_rounds(self, ended: int) -> None:
        """Notes what `play_all` said of the last step."""
        if ended > 0:
            self.note_ended(self.last[:ended])
        elif ended < 0:
            raise self.not_finite(-1 - ended)

    def see_again(self) -> None:
        for row, obs in zip(self.states, self.obs, strict=True):
            observe(self.kind.number, row, obs)


class ControlEnv(SeededEnv):
    """One of the tasks as an ordinary environment."""

    metadata = {"render_modes": ["rgb_array"]}

    def __init__(self, kind: str, render_mode: str | None = None) -> None:
        self.kind = task = KINDS[kind]
        self.metadata = {**self.metadata, "render_fps": task.frame_rate}
        self.observation_space, self.action_space = task.observation_space(), task.action_space()
        self.render_mode = render_mode
        self.row = np.zeros(STATES)
        self.torque: float | None = None
        self.painter: Any = None

    def begin(self) -> None:
        begin(self.kind.number, self.row, self.stream, self.episode)
        self.torque = None

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if self.kind.actions:
            assert self.action_space.contains(action), (
                f"{action!r} is not one of the {self.kind.actions} actions"
            )
            reward, terminated = advance(self.kind.number, self.row, int(action))
        else:
            self.torque = float(np.ravel(action)[0])
            reward, terminated = advance(self.kind.number, self.row, self.torque)
        obs, info = self.observe()
        return obs, reward, terminated, False, info

    def observe(self) -> tuple[np.ndarray, dict[str, Any]]:
        obs = np.zeros(self.kind.obs_size, np.float32)
        observe(self.kind.number, self.row, obs)
        return obs, {}

    def render(self) -> np.ndarray:  # type: ignore[override]
        """Gymnasium's drawing of the same state."""
        if self.painter is None:
            self.painter = gym.make(self.kind.original, render_mode="rgb_array").unwrapped
            self.painter.reset()
        self.painter.state = self.row[: self.kind.used].copy()
        self.painter.last_u = (
            None if self.torque is None else min(max(self.torque, -MAX_TORQUE), MAX_TORQUE)
        )
        return self.painter.render()

    def close(self) -> None:
        if self.painter is not None:
            self.painter.close()
            self.painter = None

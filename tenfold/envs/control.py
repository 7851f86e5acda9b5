"""CartPole, Acrobot, MountainCar and Pendulum as environments: all lanes at once, or an ordinary
one. `control_dynamics` and `control_tasks` say what a step is."""

from typing import Any

import gymnasium as gym
import numpy as np

from tenfold.core.random import Purpose, key
from tenfold.core.tables import table_of
from tenfold.envs.adapter import StateEnvironments
from tenfold.envs.control_dynamics import KINDS, MAX_TORQUE, STATES, advance, begin, observe
from tenfold.envs.control_tasks import Lanes, play_all, reset_all


class ControlEnvironments(StateEnvironments):
    """All lanes of one task, one kernel call a step."""

    def __init__(self, name: str, num_envs: int, seed: int, first: int = 0) -> None:
        self.kind = kind = KINDS[name]
        spaces = kind.observation_space(), kind.action_space()
        super().__init__(name, num_envs, seed, *spaces, first, STATES)
        self.last = np.zeros((num_envs, 3))
        self.action = np.zeros(num_envs, np.int64 if kind.actions else np.float64)
        # what every step hands to the kernel; these arrays are written to, never replaced
        self.lanes = Lanes(
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
        self.given = (self.action, table_of(self.lanes))
        reset_all(kind.number, self.states, self.length, self.episode, self.streams, self.obs)

    def step(self, actions: np.ndarray) -> None:
        """One step of every environment with actions [B], or torques [B, 1]."""
        self.begin_rounds()
        self.action[:] = actions if actions.ndim == 1 else actions[:, 0]
        self.end_rounds(play_all(*self.given))

    def end_rounds(self, ended: int) -> None:
        """Notes what `play_all` said of the last step."""
        if ended > 0:
            self.note_ended(self.last[:ended])
        elif ended < 0:
            raise self.not_finite(-1 - ended)

    def see_again(self) -> None:
        for row, seen in zip(self.states, self.obs, strict=True):
            observe(self.kind.number, row, seen)


class ControlEnv(gym.Env[np.ndarray, Any]):
    """One of the tasks as an ordinary environment. After `reset(seed=s)` it plays the episodes of
    lane 0 of seed s, one with each further `reset()`."""

    metadata = {"render_modes": ["rgb_array"]}

    def __init__(self, kind: str, render_mode: str | None = None) -> None:
        self.kind = task = KINDS[kind]
        self.metadata = {**self.metadata, "render_fps": task.frame_rate}
        self.observation_space, self.action_space = task.observation_space(), task.action_space()
        self.render_mode = render_mode
        self.row = np.zeros(STATES)
        self.stream: np.uint64 | None = None
        self.episode = 0
        self.torque: float | None = None
        self.painter: Any = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode += 1
        if seed is not None or self.stream is None:
            own = int(self.np_random.integers(2**62)) if seed is None else seed
            self.stream, self.episode = key(own, Purpose.EPISODE), 0
        begin(self.kind.number, self.row, self.stream, self.episode)
        self.torque = None
        return self.seen(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if self.kind.actions:
            assert self.action_space.contains(action), (
                f"{action!r} is not one of the {self.kind.actions} actions"
            )
            reward, terminated = advance(self.kind.number, self.row, int(action))
        else:
            self.torque = float(np.ravel(action)[0])
            reward, terminated = advance(self.kind.number, self.row, self.torque)
        return self.seen(), reward, terminated, False, {}

    def seen(self) -> np.ndarray:
        obs = np.zeros(self.kind.obs_size, np.float32)
        observe(self.kind.number, self.row, obs)
        return obs

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

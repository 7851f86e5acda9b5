"""`predict`: actions for observations as Stable-Baselines3 takes and gives them."""

import copy
from typing import Any

import gymnasium as gym
import numpy as np

from tenfold.core.errors import UserError

TUPLE = (
    "You have passed a tuple to the predict() function instead of a Numpy array or a Dict. You are "
    "probably mixing Gym API with SB3 VecEnv API: `obs, info = env.reset()` (Gym) vs `obs = "
    "vec_env.reset()` (SB3 VecEnv)."
)


class WrongObservation(UserError, ValueError):
    """An observation of another form than the space's."""


class Predictor:
    """A model's policy. What an environment's normalisation shows is normalised already."""

    def __init__(self, model: Any) -> None:
        self.model, self.agent = model, copy.copy(model.agent)
        self.agent.norm = None
        self.space: gym.Space[Any] = model.action_space
        self.rng = np.random.default_rng(model.run_seed)

    def __call__(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
        mask: Any = None,
    ) -> tuple[np.ndarray, Any]:
        if isinstance(observation, tuple) and isinstance(observation[-1], dict):
            raise ValueError(TUPLE)
        layout = self.agent.input_layout
        try:
            rows, single = layout.rows_of(channels_last(layout, observation))
        except UserError as error:
            raise WrongObservation(
                f"Unexpected observation for {self.model.observation_space}: {error}"
            ) from None
        allowed = None if mask is None else np.asarray(mask, np.bool_).reshape(len(rows), -1)
        actions, state = self.actions(rows, allowed, state, episode_start, deterministic)
        actions = np.asarray(actions, self.space.dtype).reshape(-1, *(self.space.shape or ()))
        return (np.squeeze(actions, axis=0) if single else actions), state

    def actions(
        self, rows: np.ndarray, mask: Any, state: Any, episode_start: Any, deterministic: bool
    ) -> tuple[Any, Any]:
        """Actions [B, …] in the environment's numbers, and the next state."""
        agent, model = self.agent, self.model
        if hasattr(model, "exploration_rate"):
            if not deterministic and self.rng.random() < model.exploration_rate:
                return [self.space.sample() for _ in rows], state
            return agent.greedy(rows), state
        if not model.on_policy:
            if deterministic or not model.draws_actions:
                return agent.greedy(rows), state
            return agent.sampled(rows, None, self.next_draws(len(rows))), state
        draws = None if deterministic else agent.draws(len(rows), self.next_draws(len(rows)))
        before = self.state_rows(state, episode_start, len(rows)) if agent.state_size else None
        actions, after = agent.infer(rows, mask, draws, before)
        return actions, self.state_parts(after) if agent.state_size else state

    def next_draws(self, rows: int) -> int:
        """The address of the next draws; they are the agent's, wherever it is used."""
        agent = self.model.agent
        agent.sampled_rows += rows
        return agent.sampled_rows - rows

    def state_rows(self, state: Any, episode_start: Any, count: int) -> np.ndarray:
        """(h, c), each [1, B, size], as our rows; those of episodes that begin are zero."""
        size = self.agent.state_size
        if state is None:
            return np.zeros((count, size), np.float32)
        rows = np.concatenate([np.asarray(part)[0] for part in state], -1).astype(np.float32)
        if episode_start is not None:
            rows[np.asarray(episode_start, np.bool_)] = 0
        return rows

    def state_parts(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        half = rows.shape[1] // 2
        return rows[None, :, :half].copy(), rows[None, :, half:].copy()


def channels_last(layout: Any, observation: Any) -> Any:
    """Images with their channels first as the environment has them."""
    if not getattr(layout, "channels_last", False) or isinstance(observation, dict):
        return observation
    array = np.asarray(observation)
    if array.shape[-3:] != layout.shape and np.moveaxis(array, -3, -1).shape[-3:] == layout.shape:
        return np.moveaxis(array, -3, -1)
    return array

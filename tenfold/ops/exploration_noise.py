"""Noise that is added to actions while an agent explores: normal, or of an Ornstein-Uhlenbeck
process that begins at 0 with every episode. Both are x ← keep·x + shift + spread·z, for each number
of an action by itself, with z a normal number.

The noise of a round is the same however often it is asked for, since the state before it is kept:
a resumed run draws again what was drawn before its checkpoint.
"""

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np

from tenfold.core.errors import UserError
from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.core.random import Purpose, draw_normal, fill_normal_reference, key

KEEP, SHIFT, SPREAD = range(3)  # rows of `rule`
BEFORE, NOW = range(2)  # of `state`


def noise_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for lanes, reals in ((1, 1), (3, 2)):
        stream, ended = key(int(rng.integers(99)), Purpose.ACTION_NOISE), rng.random(lanes) < 0.5
        for at, rounds in ((-1, 0), (6, 7), (7, 7)):
            action = rng.uniform(-1, 1, (lanes, reals)).astype(dtype)
            rule, state = rng.random((3, reals)), rng.normal(size=(2, lanes, reals))
            yield stream, rule, state, np.array([at]), rounds, ended, action


def add_noise_reference(stream, rule, state, at, rounds, ended, action):
    """The noise of round `rounds`, added to actions [B, D] between −1 and 1. `at`: the round of
    which `state` is; `ended`: whose episode ended before this round."""
    if at[0] != rounds:
        state[BEFORE] = np.where(ended[:, None], 0.0, state[NOW])
        at[0] = rounds
    normal = fill_normal_reference(stream, rounds * action.size, np.empty(action.size))
    z = normal.reshape(action.shape)
    state[NOW] = rule[KEEP] * state[BEFORE] + rule[SHIFT] + rule[SPREAD] * z
    action[:] = np.clip(action + state[NOW], -1, 1)
    return state, at, action


@pair(add_noise_reference, noise_examples, rtol=1e-6, atol=1e-7)
@kernel
def add_noise(stream, rule, state, at, rounds, ended, action):
    lanes, reals = action.shape
    for i in range(lanes):
        for d in range(reals):
            if at[0] != rounds:
                state[BEFORE, i, d] = 0.0 if ended[i] else state[NOW, i, d]
            z = draw_normal(stream, (rounds * lanes + i) * reals + d)
            x = rule[KEEP, d] * state[BEFORE, i, d] + rule[SHIFT, d] + rule[SPREAD, d] * z
            state[NOW, i, d] = x
            action[i, d] = min(max(action[i, d] + x, -1.0), 1.0)
    at[0] = rounds
    return state, at, action


class ActionNoise:
    """Of `lanes` environments. `rule` [3, D] is how noise follows from the noise before."""

    def __init__(self, stream: Any, rule: Any, lanes: int) -> None:
        self.stream, self.rule = stream, np.array(rule, np.float64)
        self.values = np.zeros((2, lanes, self.rule.shape[1]))  # before the latest round and in it
        self.at = np.full(1, -1)

    def add(self, action: np.ndarray, rounds: int, ended: np.ndarray) -> np.ndarray:
        """The actions [B, D] of a round with its noise; `ended`: whose episode ended before it."""
        noisy = action.copy()
        add_noise(self.stream, self.rule, self.values, self.at, rounds, ended, noisy)
        return noisy

    def begin(self) -> None:
        """Episodes that were running go on nowhere."""
        self.values[:], self.at[:] = 0, -1

    def state(self, ended: np.ndarray) -> dict[str, np.ndarray]:
        """`ended`: whose episode ended in the last step."""
        values = self.values.copy()
        values[NOW, ended] = 0  # whoever goes on from here is not told of those ends
        return {"noise": values, "noise_round": self.at.copy()}

    def load_state(self, state: dict[str, Any]) -> None:
        """Noise begins anew where none was saved, or other noise was set."""
        values = np.asarray(state.get("noise", ()))
        if values.shape == self.values.shape:
            self.values[:], self.at[:] = values, np.asarray(state["noise_round"])
        else:
            self.begin()


class OwnNoise:
    """A Python object, and a copy of it for each further environment: called with nothing, it
    gives what is added to an action; `reset()`, if there is one, begins an episode."""

    def __init__(self, noise: Any, lanes: int, reals: int) -> None:
        if not callable(noise):
            raise UserError(f"{noise!r:.60} cannot be called, and noise on actions must be.")
        self.noises = [noise, *(copy.deepcopy(noise) for _ in range(lanes - 1))]
        self.reals = reals

    def add(self, action: np.ndarray, rounds: int, ended: np.ndarray) -> np.ndarray:
        for i in ended.nonzero()[0]:
            getattr(self.noises[i], "reset", bool)()
        rows = [np.asarray(noise(), np.float32).reshape(-1) for noise in self.noises]
        if wrong := [row for row in rows if row.shape not in ((1,), (self.reals,))]:
            raise UserError(
                f"The noise gave {wrong[0].size} numbers, and an action has {self.reals}."
            )
        return np.clip(action + np.stack(rows), -1, 1).astype(np.float32)

"""ARX, the baseline of system identification: the next observation is linear in the last ones and
the last actions.

    y_t = Σ_{i ≤ lags} (A_i·y_{t−i} + B_i·a_{t−i}) + c        by least squares
"""

from typing import NamedTuple

import numpy as np


class ARX(NamedTuple):
    """`weight` [Y, lags·(Y + A) + 1]: for each lag, the nearest first, observations then actions;
    the last column is c."""

    weight: np.ndarray
    lags: int

    def forecast(self, y: np.ndarray, a: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Observations 1 … K steps on: y [n, lags, Y] and a [n, lags, A] end with the present ones,
        and `actions` [n, K, A] begin with the present one, which replaces a's last. Each prediction
        is fed back."""
        y, a = y.copy(), np.concatenate((a[:, :-1], actions), 1)
        for k in range(actions.shape[1]):
            recent = np.concatenate((y[:, k : k + self.lags], a[:, k : k + self.lags]), -1)
            y = np.concatenate((y, (rows_of(recent) @ self.weight.T)[:, None]), 1)
        return y[:, self.lags :]

    def k_step_r2(self, y: np.ndarray, a: np.ndarray, steps: int) -> np.ndarray:
        """R² of the observations k = 1 … steps ahead, [steps]; y [E, T, Y], a [E, T, A]. As
        nets.forecast.k_step_r2 has it."""
        starts = range(self.lags - 1, y.shape[1] - steps)
        past_y, past_a = (
            np.concatenate([x[:, t - self.lags + 1 : t + 1] for t in starts]) for x in (y, a)
        )
        found = self.forecast(past_y, past_a, np.concatenate([a[:, t : t + steps] for t in starts]))
        following = np.concatenate([y[:, t + 1 : t + 1 + steps] for t in starts])
        spread = np.square(following - following.mean((0, 1))).sum((0, 2))
        return 1 - np.square(found - following).sum((0, 2)) / spread


def repeated_r2(y: np.ndarray, steps: int) -> np.ndarray:
    """R² of y [E, T, Y] 1 … steps ahead, [steps], where every forecast is the present observation.
    Below ARX there is this."""
    starts = y.shape[1] - steps
    following = np.stack([y[:, k : k + starts] for k in range(1, steps + 1)])  # [K, E, S, Y]
    both = y[:, :starts], following.mean((1, 2), keepdims=True)
    error, spread = (np.square(following - other).sum((1, 2, 3)) for other in both)
    return np.where(spread > 0, 1 - error / np.maximum(spread, np.finfo(np.float64).tiny), 0.0)


def rows_of(recent: np.ndarray) -> np.ndarray:
    """[n, lags, Y + A], the latest last -> [n, lags·(Y + A) + 1]."""
    return np.concatenate((recent[:, ::-1].reshape(len(recent), -1), np.ones((len(recent), 1))), 1)


def fit_arx(y: np.ndarray, a: np.ndarray, lags: int = 2) -> ARX:
    """From sequences y [E, T, Y] and a [E, T, A]."""
    both = np.concatenate((y, a), -1).astype(np.float64)
    if both.shape[1] <= lags:
        raise ValueError(f"Sequences of {both.shape[1]} steps are too short for {lags} lags.")
    recent = np.concatenate([both[:, t - lags : t] for t in range(lags, both.shape[1])])
    following = np.concatenate([y[:, t] for t in range(lags, both.shape[1])])
    return ARX(np.linalg.lstsq(rows_of(recent), following, rcond=None)[0].T, lags)

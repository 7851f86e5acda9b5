"""Forecasts: k-step means of a latent model, the share of the observations' variance that they
explain, and two baselines.

ARX, the baseline of system identification, is linear in the last observations and actions:

    y_t = Σ_{i ≤ lags} (A_i·y_{t−i} + B_i·a_{t−i}) + c        by least squares

Below it there is repeating the present observation.
"""

from typing import NamedTuple

import numpy as np
import torch

from tenfold.domains.dynamics.latent import LatentNetwork

WORST = -1e9  # R² of what is not finite
LEAST_SHARE = 1e-3  # of a surprise: below, readings hardly err


def forecast(network: LatentNetwork, z: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
    """Means of the observations 1 … K steps after state z [M, B, D] under actions a [M, B, K, A]:
    [M, B, K, Y].

    Every model of the ensemble rolls on its own, without noise; their observations are averaged.
    """
    models = network.dynamics.models
    z = z.unsqueeze(1).expand(-1, models, -1, -1)
    ahead = []
    for k in range(a.shape[2]):
        z, _ = network.dynamics(z, a[:, None, :, k].expand(-1, models, -1, -1))
        ahead.append(network.decode(z.flatten(1, 2)).view(*z.shape[:3], -1).mean(1))
    return torch.stack(ahead, 2)


def beliefs(network: LatentNetwork, y: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
    """What is believed of the state after each observation of sequences y [M, B, T, Y] under
    actions a [M, B, T', A]: [M, T, B, D]. A reading less the share E of its surprise that is error,
    as the closed-form fit has found it; a first reading is all there is.

    With n readings seen a surprise is due to both ends of the step, so that the share grows from a
    half to E: e_n = 1 / (1 + p_n), p_{n+1} = 1 − e_n + w, p_1 = 1 + w, where w = (1 − e)²/e belongs
    to the steady share e (variances in units of a reading's; Kalman's filter of a level).
    """
    mean, _, _ = network.posterior(y.transpose(1, 2))
    share = network.dynamics.share
    if not share.any():
        return mean
    share, steady, wander = steady_share(share)
    believed, before = [mean[:, 0]], 1 + wander
    for t in range(1, mean.shape[1]):
        own = 1 / (1 + before)
        before = 1 - own + wander
        predicted = network.dynamics.predict(believed[-1], a[:, :, t - 1])[0]
        surprise = mean[:, t] - predicted
        believed.append(mean[:, t] - surprise @ (share * (own / steady).clamp(max=1)).mT)
    return torch.stack(believed, 1)


def steady_share(share: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The share E [M, D, D] itself, what it is of one number on the mean, and the variance that a
    step adds then, in that of a reading: [M, 1, 1] each."""
    steady = (share.diagonal(dim1=-2, dim2=-1).mean(-1)).clamp(LEAST_SHARE, 1)[:, None, None]
    return share, steady, (1 - steady).square() / steady


def forecasts(network: LatentNetwork, y: torch.Tensor, a: torch.Tensor, steps: int) -> torch.Tensor:
    """The same from every moment of sequences y [M, B, T, Y] that has `steps` actions in a [M, B,
    T', A]: [M, B, S, steps, Y]."""
    starts = min(y.shape[2], a.shape[2] - steps + 1)
    mean = beliefs(network, y[:, :, :starts], a)
    actions = a.unfold(2, steps, 1)[:, :, :starts].movedim(-1, 3)  # [M, B, S, steps, A]
    found = forecast(network, mean[:, :starts].transpose(1, 2).flatten(1, 2), actions.flatten(1, 2))
    return found.view(*y.shape[:2], starts, steps, -1)


@torch.no_grad()
def k_step_r2(network: LatentNetwork, y: torch.Tensor, a: torch.Tensor, steps: int) -> torch.Tensor:
    """R² of the observations k = 1 … steps after what is believed of a state, [M, steps]; y [M, B,
    T, Y], a [M, B, T, A].

    1 − Σ (y − foretold)² / Σ (y − mean of y)², over all sequences, starts and numbers. Below 0:
    worse than the mean. Noise of the observations keeps it below 1 even for the true system. Starts
    are those from which all horizons fit. Observations that do not vary have nothing to be
    explained: 0; a forecast that is not finite counts as worse than all: WORST.
    """
    starts = y.shape[2] - steps
    if starts < 1:
        raise ValueError(f"Sequences of {y.shape[2]} steps are too short to look {steps} ahead.")
    z = beliefs(network, y[:, :, :starts], a).flatten(1, 2)
    # [M, B, starts, steps, …] of what follows each start, then time before batch
    following, actions = (
        x.unfold(2, steps, 1).movedim(-1, 3).transpose(1, 2).flatten(1, 2)
        for x in (y[:, :, 1:], a[:, :, :-1])
    )
    error = (forecast(network, z, actions) - following).square().sum((1, 3))
    spread = (following - following.mean((1, 2), keepdim=True)).square().sum((1, 3))
    return torch.where(spread > 0, 1 - error / spread, 0.0).nan_to_num(nan=WORST, neginf=WORST)


# baselines


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
        `k_step_r2` has it."""
        starts = range(self.lags - 1, y.shape[1] - steps)
        past_y, past_a = (
            np.concatenate([x[:, t - self.lags + 1 : t + 1] for t in starts]) for x in (y, a)
        )
        found = self.forecast(past_y, past_a, np.concatenate([a[:, t : t + steps] for t in starts]))
        following = np.concatenate([y[:, t + 1 : t + 1 + steps] for t in starts])
        spread = np.square(following - following.mean((0, 1))).sum((0, 2))
        return explained(np.square(found - following).sum((0, 2)), spread)


def repeated_r2(y: np.ndarray, steps: int) -> np.ndarray:
    """R² of y [E, T, Y] 1 … steps ahead, [steps], where every forecast is the present observation.
    Below ARX there is this."""
    starts = y.shape[1] - steps
    following = np.stack([y[:, k : k + starts] for k in range(1, steps + 1)])  # [K, E, S, Y]
    both = y[:, :starts], following.mean((1, 2), keepdims=True)
    error, spread = (np.square(following - other).sum((1, 2, 3)) for other in both)
    return explained(error, spread)


def explained(error: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """The share of what varies, 0 where nothing does."""
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

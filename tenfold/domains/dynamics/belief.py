"""The belief of the hidden state, forecasts from it, R², and two baselines.

A belief is a recursive filter: predict by the dynamics, correct by the encoder. Both give a
Gaussian with a diagonal covariance, and the belief after an observation is their product: a
prediction alone diverges from the state, an encoder alone forgets the past. Along a whole
recording beliefs are the encoder's readings less the share of a surprise that is error of the
reading, as the closed-form fit estimated it.

R² counts the values that were observed. A forecast starts where a state was read. ARX, the baseline
of system identification, is linear in the last observations and actions,

    y_t = Σ_{i ≤ lags} (A_i·y_{t−i} + B_i·a_{t−i}) + c        by least squares

and takes estimates (`missing`) for single missing values, but no row without any observation. The
second baseline repeats the last value that was observed.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from tenfold.core.pairs import pair
from tenfold.domains.dynamics.latent import LatentNetwork
from tenfold.domains.dynamics.missing import all_missing, forward_fill, observed_mean
from tenfold.ops.qlearning import tensor

WORST_R2 = -1e9  # R² of what is not finite
LEAST_SHARE = 1e-3  # of a surprise: below, readings hardly err

Gaussian = tuple[torch.Tensor, torch.Tensor]  # mean and variance


def fuse_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for shape in ((1, 1), (3, 2), (4, 5)):
        one, other = tensor(rng, dtype, *shape), tensor(rng, dtype, *shape)
        yield one, tensor(rng, dtype, *shape).exp(), other, tensor(rng, dtype, *shape).exp()


def fuse_reference(mean, variance, other_mean, other_variance):
    """The product of two Gaussians: precisions add, and means count by their precision."""
    precision = 1 / variance + 1 / other_variance
    return (mean / variance + other_mean / other_variance) / precision, 1 / precision


@pair(
    fuse_reference,
    fuse_examples,
    rtol=1e-5,
    atol=1e-6,
    dtypes=("float32", "float64"),
    gradients=(0, 1, 2, 3),
)
def fuse(
    mean: torch.Tensor,
    variance: torch.Tensor,
    other_mean: torch.Tensor,
    other_variance: torch.Tensor,
) -> Gaussian:
    """The same by its gain, which also bears variances of 0."""
    gain = variance / (variance + other_variance)
    return torch.lerp(mean, other_mean, gain), variance * (1 - gain)


class Belief:
    """Mean and variance [M, D] of M members, and the encoder's state."""

    def __init__(self, network: LatentNetwork) -> None:
        self.network = network
        size = (network.members, network.config.latent)
        self.mean, self.variance = network.flat.new_zeros(size), network.flat.new_ones(size)
        units = network.encoder.units
        self.carried = network.flat.new_zeros(network.members, 1, units) if units else None
        self.encoded = 0  # calls of the encoder

    @torch.no_grad()
    def predict(self, action: torch.Tensor) -> None:
        """One step under actions [M, A]: V' = diag(J·V·Jᵀ) + the variance of the dynamics, the
        ensemble's disagreement included."""
        dynamics = self.network.dynamics
        z, a = self.mean[:, None], action[:, None]
        slope = dynamics.jacobian(
            *(x.unsqueeze(1).expand(-1, dynamics.models, -1, -1) for x in (z, a))
        ).mean(1)[:, 0]
        mean, added = dynamics.predict(z, a)
        spread = (slope.square() @ self.variance.unsqueeze(-1)).squeeze(-1)
        self.mean, self.variance = mean[:, 0], spread + added[:, 0]

    @torch.no_grad()
    def correct(self, y: torch.Tensor, is_reset: torch.Tensor) -> None:
        """By an observation [M, Y]; where an episode begins nothing was known before."""
        if self.carried is not None:
            self.carried = self.carried * ~is_reset[:, None, None]
        mean, variance, self.carried = self.network.encode(y[:, None], self.carried)
        self.encoded += 1
        fused = fuse(self.mean, self.variance, mean[:, 0], variance[:, 0])
        if self.network.config.missing:  # without an observation, no correction
            nothing = all_missing(y)[:, None]
            fused = [
                torch.where(nothing, before, after)
                for before, after in zip((self.mean, self.variance), fused, strict=True)
            ]
            mean = torch.where(nothing[:, None], 0.0, mean)
            variance = torch.where(nothing[:, None], 1.0, variance)
        self.mean, self.variance = (
            torch.where(is_reset[:, None], first, later)
            for first, later in zip((mean[:, 0], variance[:, 0]), fused, strict=True)
        )

    def state(self) -> dict[str, torch.Tensor]:
        carried = {} if self.carried is None else {"carried": self.carried}
        return {"mean": self.mean, "variance": self.variance, **carried}

    def load_state(self, state: dict[str, Any]) -> None:
        for name in self.state():
            setattr(self, name, torch.as_tensor(state[name]).to(self.mean))


# along a recording


@torch.no_grad()
def beliefs(network: LatentNetwork, y: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
    """Beliefs of the state after each observation of sequences y [M, B, T, Y] under actions a [M,
    B, T', A]: [M, T, B, D]. A reading less the share E of its surprise that is error. Rows without
    an observation are predicted, so that the next reading counts for more; before the first reading
    the belief is 0, the mean of all states.

    With n readings a surprise is due to both ends of the step, so that the share grows from a half
    to E: e_n = 1 / (1 + p_n), p_{n+1} = 1 − e_n + w, p_1 = 1 + w, where w = (1 − e)²/e belongs to
    the steady share e, that of one number on the mean (variances in units of a reading's; Kalman's
    filter of a level).
    """
    rows, actions = y.transpose(1, 2), a.transpose(1, 2)
    mean, _, _ = network.posterior(rows)
    gone, share = all_missing(rows)[..., None], network.dynamics.share
    if not share.any() and not gone.any():
        return mean
    steady = share.diagonal(dim1=-2, dim2=-1).mean(-1).clamp(LEAST_SHARE, 1)[:, None, None]
    wander = (1 - steady).square() / steady  # variance that a step adds
    states, known = [torch.where(gone[:, 0], 0.0, mean[:, 0])], ~gone[:, 0]
    before = (1 + wander).expand(*known.shape)  # variance of the next prediction
    for t in range(1, y.shape[2]):
        predicted, _ = network.dynamics.predict(states[-1], actions[:, t - 1])
        predicted = torch.where(known, predicted, 0.0)  # before the first reading nothing moves
        error = torch.where(known, 1 / (1 + before), 0.0)  # a first reading is believed
        surprise = (mean[:, t] - predicted) * (error / steady).clamp(max=1)
        states.append(torch.where(gone[:, t], predicted, mean[:, t] - surprise @ share.mT))
        after = torch.where(gone[:, t], before, 1 - error)
        before = torch.where(known | ~gone[:, t], after + wander, before)
        known = known | ~gone[:, t]
    return torch.stack(states, 1)


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


@torch.no_grad()
def forecasts(network: LatentNetwork, y: torch.Tensor, a: torch.Tensor, steps: int) -> torch.Tensor:
    """The same from every moment of sequences y [M, B, T, Y] that has `steps` actions in a [M, B,
    T', A]: [M, B, S, steps, Y]."""
    starts = min(y.shape[2], a.shape[2] - steps + 1)
    z = beliefs(network, y[:, :, :starts], a).transpose(1, 2).flatten(1, 2)
    actions = a.unfold(2, steps, 1)[:, :, :starts].movedim(-1, 3)  # [M, B, S, steps, A]
    return forecast(network, z, actions.flatten(1, 2)).view(*y.shape[:2], starts, steps, -1)


# R²


def observed_r2(predicted: np.ndarray, following: np.ndarray) -> np.ndarray:
    """1 − Σ (y − predicted)² / Σ (y − mean of y)² of forecasts [n, K, Y], over the observed values:
    [K]. Observations that do not vary have nothing to be explained: 0; a forecast that is not
    finite is worse than all others: WORST."""
    observed = ~np.isnan(following)
    known = np.where(observed, following, 0.0)
    mean = known.sum((0, 1)) / np.maximum(observed.sum((0, 1)), 1)
    error, spread = (
        np.square(np.where(observed, known - other, 0.0)).sum((0, 2)) for other in (predicted, mean)
    )
    r2 = np.where(spread > 0, 1 - error / np.where(spread > 0, spread, 1.0), 0.0)
    return np.nan_to_num(r2, nan=WORST_R2, neginf=WORST_R2)


@torch.no_grad()
def k_step_r2(network: LatentNetwork, y: torch.Tensor, a: torch.Tensor, steps: int) -> np.ndarray:
    """R² of the observations k = 1 … steps after a state that was read, [M, steps]; y [M, B, T, Y],
    a [M, B, T, A]. Noise of the observations keeps it below 1 even for the true system. Starts are
    those from which all horizons fit."""
    starts = y.shape[2] - steps
    if starts < 1:
        raise ValueError(f"Sequences of {y.shape[2]} steps are too short to look {steps} ahead.")
    predicted = forecasts(network, y, a[:, :, :-1], steps)[:, :, :starts]
    following = y[:, :, 1:].unfold(2, steps, 1).movedim(-1, 3)  # [M, B, S, steps, Y]
    read = ~all_missing(y[:, :, :starts])
    both = (
        (x[m][read[m]].cpu().double().numpy() for x in (predicted, following))
        for m in range(len(y))
    )
    return np.stack([observed_r2(*one) for one in both])


def repeated_r2(y: np.ndarray, steps: int) -> np.ndarray:
    """R² of y [E, T, Y] 1 … steps ahead where every forecast is the last value that was observed;
    before the first one, the mean. Each horizon has its own mean."""
    starts = y.shape[1] - steps
    last = np.full((len(y), starts, y.shape[2]), observed_mean(y.reshape(1, -1, y.shape[2]))[0])
    for e, column in np.ndindex(len(y), y.shape[2]):
        gone = np.isnan(y[e, :, column])
        first = int(np.argmin(gone))
        if not gone.all():
            last[e, first:, column] = forward_fill(y[e, :, column], gone)[first:starts]
    read = ~all_missing(y[:, :starts])
    following = np.stack([y[:, k : k + starts] for k in range(1, steps + 1)], 2)  # [E, S, K, Y]
    ahead = following[read]
    return np.concatenate(
        [observed_r2(last[read][:, None], ahead[:, k : k + 1]) for k in range(steps)]
    )


# ARX


def no_imputation(rows: np.ndarray) -> np.ndarray:
    """Of recordings without missing values."""
    return rows


def stack_windows(rows: np.ndarray, moments: range, first: int, last: int) -> np.ndarray:
    """rows[:, t + first : t + last] of every moment t, one episode below another."""
    return np.concatenate([rows[:, t + first : t + last] for t in moments])


class ARX(NamedTuple):
    """`weight` [Y, lags·(Y + A) + 1]: for each lag, the nearest first, observations then actions;
    the last column is c. `fill` gives rows [E, T, Y] with estimates for missing values."""

    weight: np.ndarray
    lags: int
    fill: Callable[[np.ndarray], np.ndarray] = no_imputation

    def forecast(self, y: np.ndarray, a: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Observations 1 … K steps on: y [n, lags, Y] and a [n, lags, A] end with the present ones,
        and `actions` [n, K, A] begin with the present one, which replaces a's last. Each prediction
        is fed back."""
        y, a = y.copy(), np.concatenate((a[:, :-1], actions), 1)
        for k in range(actions.shape[1]):
            recent = np.concatenate((y[:, k : k + self.lags], a[:, k : k + self.lags]), -1)
            y = np.concatenate((y, (regressors(recent) @ self.weight.T)[:, None]), 1)
        return y[:, self.lags :]

    def k_step_r2(self, y: np.ndarray, a: np.ndarray, steps: int) -> np.ndarray:
        """R² of the observations k = 1 … steps ahead, [steps]; y [E, T, Y], a [E, T, A]."""
        moments, past = range(self.lags - 1, y.shape[1] - steps), (1 - self.lags, 1)
        use = ~stack_windows(all_missing(y), moments, *past).any(1)
        whole = stack_windows(self.fill(y), moments, *past)[use]
        actions = (stack_windows(a, moments, *span)[use] for span in (past, (0, steps)))
        predicted = self.forecast(whole, *actions)
        return observed_r2(predicted, stack_windows(y, moments, 1, 1 + steps)[use])


def regressors(recent: np.ndarray) -> np.ndarray:
    """[n, lags, Y + A], the latest last -> [n, lags·(Y + A) + 1]."""
    return np.concatenate((recent[:, ::-1].reshape(len(recent), -1), np.ones((len(recent), 1))), 1)


def fit_arx(
    y: np.ndarray,
    a: np.ndarray,
    lags: int = 2,
    fill: Callable[[np.ndarray], np.ndarray] = no_imputation,
) -> ARX:
    """From sequences y [E, T, Y] and a [E, T, A]."""
    if y.shape[1] <= lags:
        raise ValueError(f"Sequences of {y.shape[1]} steps are too short for {lags} lags.")
    whole, moments = fill(y), range(lags, y.shape[1])
    use = ~stack_windows(all_missing(y), moments, -lags, 1).any(1)
    both = np.concatenate((whole, a), -1).astype(np.float64)
    recent = regressors(stack_windows(both, moments, -lags, 0)[use])
    following = stack_windows(whole, moments, 0, 1)[use, 0]
    return ARX(np.linalg.lstsq(recent, following, rcond=None)[0].T, lags, fill)

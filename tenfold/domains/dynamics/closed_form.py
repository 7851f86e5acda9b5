"""Dynamics that are linear in their weights, fitted in closed form to states from the encoder.

    (z_{t+1} − b_t) / dt  ≈  W·φ(b_t) + G·a_t        ridge regression of [W, G], one small system
    for each model

Neighbouring radial basis functions overlap, so that gradient steps learn sums of weights early and
differences late; least squares finds both at once. The models of an ensemble are fitted to the same
steps with other random weights (a Bayesian bootstrap), so that they differ where there is little
data. Training continues from there by gradients, encoder and decoder included.

b_t is the filtered belief before the step, not the encoder's reading: fitted to readings, a field
seen through much noise pulls everything to the middle; and where actions were chosen by looking at
z_t they correlate with its error (G came out 5 % too large on the limit cycle for an agent that
plans). Beliefs err too, but independently of what was known before the step (in a closed loop the
prediction error has to be minimised; Ljung, System Identification, 1999). A reading's error is in
two surprises, of the step to t with a plus and of the step from t with a minus: while neighbouring
surprises correlate negatively the share E of a surprise that is error is too small. Fit and share
alternate.

From there Gauss-Newton steps minimise the prediction error of a filter (`prediction_error`): the
negative log density of the surprises, Gaussian with their own covariance, and of the coefficients'
prior: ½ (n·log det Σ ss'/n + Σ λ (θ − θ₀)²). As many steps as an output has coefficients are added
that had the variance expected before: few steps could be fitted exactly, and would seem to have no
noise. The covariance is fixed within a step, and a step that does not lower the loss is halved.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from tenfold.core.pairs import pair
from tenfold.core.random import Purpose, key, uniform
from tenfold.domains.dynamics.dynamics import Dynamics, raw_of
from tenfold.domains.dynamics.prediction_error import (
    Record,
    covariance,
    filter_sensitivities,
    first_belief,
    with_first_shares,
)

PRIOR = 0.1  # how far a weight is expected to move a state in one step, whatever the unit of time
# of G, as a share of the prior's precision: actions are large and many, no prior is needed
SURE = 1e-3
NEWTON_STEPS = 10  # of Gauss and Newton at most
ENOUGH = 2.0  # of the logarithm of a density: what a step gains is not worth another one
LEAST_STEP = 1e-2  # halved to less than this, a step is not made
GAIN_PRIOR = 1.0  # precision of each number of E around the share that was found before
FAR = 1e6  # deviations of a state: a belief that errs by so much has run away
MOST = 600  # coefficients: their matrix is summed anew at every step
BLOCK = 256  # steps whose derivatives are written down at once: they stay in the cache
ROUNDS = 2  # of fits and shares by turns: more of them overshoot
MOST_ERROR = 0.95  # the largest share of a surprise that is error
# times as large as before, surprises are of beliefs that follow a model which is not stable
RUNAWAY = 10


class Fit(NamedTuple):
    """Coefficients [D, P + A] of a step, the gain E [D, D], and the surprises [T, D] that they
    leave."""

    coefficients: np.ndarray
    gain: np.ndarray
    surprise: np.ndarray
    loss: float


def gauss_newton(
    record: Record,
    coefficients: np.ndarray,
    gain: np.ndarray,
    penalty: np.ndarray,
    gain_only: bool = False,
) -> Fit:
    """From these coefficients and this gain to those that predict best; `penalty` [P + A] is the
    prior's precision of a coefficient. `gain_only`: the coefficients stay as they are."""
    shape = coefficients.shape
    centre = np.concatenate((np.zeros(coefficients.size), gain.ravel()))
    precision = prior_precision(penalty, gain)
    free = slice(coefficients.size if gain_only else 0, None)

    def at(theta: np.ndarray) -> Fit:
        weights, share = theta[: coefficients.size].reshape(shape), theta[coefficients.size :]
        share = share.reshape(gain.shape)
        surprise = record.follow(weights, share)[1]
        prior = float(precision @ np.square(theta - centre)) / 2
        return Fit(weights, share, surprise, density_loss(record, surprise, shape[1]) + prior)

    theta = np.concatenate((coefficients.ravel(), gain.ravel()))
    best = at(theta)
    if not np.isfinite(best.loss):  # beliefs ran away: readings alone do not
        theta[free] = 0.0
        best = at(theta)
    weight = np.ones((1, len(record.a)))
    for _ in range(NEWTON_STEPS):
        gram, slope = normal_equations(record, best, weight)
        down = slope[0] - precision * (theta - centre)
        step = np.zeros_like(theta)
        step[free] = np.linalg.solve((gram[0] + np.diag(precision))[free, free], down[free])
        size = 1.0
        candidate = at(theta + step)
        while not candidate.loss < best.loss and size > LEAST_STEP:
            size /= 2
            candidate = at(theta + size * step)
        gained = best.loss - candidate.loss
        if not gained > 0:
            break
        theta, best = theta + size * step, candidate
        if gained < ENOUGH:
            break
    return best


def prior_precision(penalty: np.ndarray, gain: np.ndarray) -> np.ndarray:
    """Of all coefficients [D·(P + A)], alike in every dimension, and then of the gain, [K]."""
    return np.concatenate((np.tile(penalty, len(gain)), np.full(gain.size, GAIN_PRIOR)))


def density_loss(record: Record, surprise: np.ndarray, rows: int) -> float:
    """½ n·log det of their covariance; without end where one is far away."""
    counted = surprise[record.whole]
    if not np.abs(counted).max() < FAR:  # nor where it is not a number
        return np.inf
    log_det = float(np.linalg.slogdet(covariance(record, surprise, rows))[1])
    return 0.5 * (len(counted) + rows) * log_det


def normal_equations(record: Record, fit: Fit, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Σ w S'Λ S [N, K, K] and Σ w S'Λ s [N, K] over the steps that count, with the inverse Λ of the
    surprises' covariance and weights w [N, T]; block by block, so that a long recording takes no
    more memory than a short one."""
    size, count = len(fit.gain), fit.coefficients.size + fit.gain.size
    root = np.linalg.cholesky(
        np.linalg.inv(covariance(record, fit.surprise, fit.coefficients.shape[1]))
    )
    gram, slope = np.zeros((len(weight), count, count)), np.zeros((len(weight), count))
    carried = first_belief(
        record.z[0], fit.gain, record.scale[0], record.middle, fit.coefficients.size
    )
    for start in range(0, len(record.a), BLOCK):
        part = slice(start, start + BLOCK)
        z, counted = record.z[start : start + BLOCK + 1], record.whole[part]
        near = record._replace(scale=record.scale[start : start + BLOCK + 1])
        _, surprise, by, carried = filter_sensitivities(
            z, record.a[part], counted, fit.coefficients, fit.gain, *near.filter, carried
        )
        rows = (root.T @ by[counted]).reshape(-1, count)
        target = (surprise[counted] @ root).ravel()
        for n, w in enumerate(weight):
            scale = np.repeat(np.sqrt(w[part][counted]), size)
            scaled = rows * scale[:, None]
            gram[n] += scaled.T @ scaled
            slope[n] += scaled.T @ (scale * target)
    return gram, slope


def bootstrap_coefficients(
    record: Record, fit: Fit, weight: np.ndarray, penalty: np.ndarray
) -> np.ndarray:
    """Coefficients [N, D, P + A] with other weights [N, T] of the steps: the minimum of what is
    quadratic around the fit, one small system for each model."""
    theta = np.concatenate((fit.coefficients.ravel(), fit.gain.ravel()))
    precision = prior_precision(penalty, fit.gain)
    pulled = precision * theta
    pulled[fit.coefficients.size :] = 0.0
    gram, slope = normal_equations(record, fit, weight)
    step = np.linalg.solve(gram + np.diag(precision), (slope - pulled)[..., None])[..., 0]
    return (theta + step)[:, : fit.coefficients.size].reshape(-1, *fit.coefficients.shape)


def minimise_prediction_error(
    record: Record, coefficients: np.ndarray, error: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Coefficients [N, D, P + A] whose predictions err least, from a fit to beliefs with the share
    `error` [D], one for each row of weights [N, rows]; the squares that they leave, [N, D]; and the
    share [D, D]."""
    penalty, gain = penalty_of(record, coefficients.shape[1]), np.diag(error)
    before = record.follow(coefficients, gain)[1]
    best = gauss_newton(with_first_shares(record, gain, before), coefficients, gain, penalty)
    record = with_first_shares(record, best.gain, best.surprise)  # of what was only expected then
    best = gauss_newton(record, best.coefficients, best.gain, penalty)
    squares = np.square(best.surprise[record.whole]).mean(0)
    if len(weights) == 1:
        return best.coefficients[None], squares[None], best.gain
    every = np.zeros((len(weights), len(record.a)))
    every[:, record.whole] = weights
    models = bootstrap_coefficients(record, best, every, penalty)
    return models, np.repeat(squares[None], len(weights), 0), best.gain


def noise_of_readings(record: Record, coefficients: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of coefficients [D, P + A] that were fitted to other readings than the record's: the squares
    that they leave of these, [D], and the share of their surprises that is error, [D, D]."""
    gain = np.zeros((len(coefficients), len(coefficients)))
    surprise = record.follow(coefficients, gain)[1]
    if coefficients.size + gain.size <= MOST:
        record = with_first_shares(record, gain, surprise)
        penalty = penalty_of(record, coefficients.shape[1])
        _, gain, surprise, _ = gauss_newton(record, coefficients, gain, penalty, gain_only=True)
    return np.square(surprise[record.whole]).mean(0), gain


def penalty_of(record: Record, inputs: int, noise: float = 1.0) -> np.ndarray:
    """The prior's precision of each coefficient, times the noise, [P + A]; features come before
    actions."""
    penalty = np.full(inputs, noise / PRIOR**2)
    penalty[inputs - record.a.shape[1] :] *= SURE
    return penalty


# ridge regression


def ridge_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for rows, features, outputs in ((1, 1, 1), (7, 3, 2), (60, 12, 2)):
        yield (
            rng.normal(size=(rows, features)),
            rng.normal(size=(rows, outputs)),
            rng.exponential(size=(2, rows)),
            rng.uniform(0.1, 1, features),
        )


def ridge_reference(x, y, weight, penalty):
    """argmin Σ_t w_t ‖y_t − B x_t‖² + Σ_p λ_p ‖B_p‖², as least squares of rows scaled by √w with
    rows √λ below them."""
    coefficients = []
    for w in weight:
        root = np.sqrt(w)[:, None]
        rows = np.concatenate((root * x, np.diag(np.sqrt(penalty))))
        target = np.concatenate((root * y, np.zeros((x.shape[1], y.shape[1]))))
        coefficients.append(np.linalg.lstsq(rows, target, rcond=None)[0].T)
    return np.stack(coefficients)


@pair(ridge_reference, ridge_examples, rtol=1e-6, atol=1e-7)
def ridge(x: np.ndarray, y: np.ndarray, weight: np.ndarray, penalty: np.ndarray) -> np.ndarray:
    """Coefficients [N, outputs, features] by the normal equations; x [T, features], y [T, outputs],
    weights [N, T]."""
    weighted = weight[:, :, None] * x
    gram = weighted.transpose(0, 2, 1) @ x + np.diag(penalty)
    return np.linalg.solve(gram, weighted.transpose(0, 2, 1) @ y).transpose(0, 2, 1)


def bootstrap(seed: int, models: int, rows: int) -> np.ndarray:
    """Weights [N, T] of mean 1: exponential, by (seed, model, row); of one model alone 1."""
    if models == 1:
        return np.ones((1, rows))
    return -np.log1p(
        -np.stack(
            [uniform(key(seed, Purpose.SEQUENCE, 1 + n), np.arange(rows)) for n in range(models)]
        )
    )


def lag_one_correlation(surprise: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Of each step's surprise [T, D] with the one before it in the same episode, [D]."""
    both = (whole[:-1] & whole[1:])[:, None]
    along, squares = (
        np.sum(surprise[1:] * other * both, 0) for other in (surprise[:-1], surprise[1:])
    )
    return along / np.maximum(squares, np.finfo(np.float64).tiny)


def step_inputs(dynamics: Dynamics, start: np.ndarray, a: np.ndarray) -> np.ndarray:
    """Features and actions [T, P + A] of steps from states [T, D]."""
    phi = dynamics.features(torch.from_numpy(start).to(dynamics.weight)[None, None])
    return np.concatenate((phi[0, 0].double().cpu().numpy(), a), 1)


def fit_steps(record: Record, x: np.ndarray, start: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Ridge regression of the steps from states [T, D] on their inputs x, with weights [N, rows]:
    [N, D, P + A]."""
    penalty = penalty_of(record, x.shape[1], record.noise)
    return ridge(x[record.whole], (record.z[1:] - start)[record.whole], weight, penalty)


def fit_with_beliefs(dynamics: Dynamics, record: Record) -> tuple[np.ndarray, np.ndarray]:
    """Beliefs before the steps [T, D], and the share [D] of a surprise that is error, by turns of
    fit and share; each episode's first reading is believed."""
    z, whole = record.z, record.whole
    scale = np.repeat(np.concatenate(([False], whole))[:, None], z.shape[1], 1).astype(np.float64)
    record = record._replace(scale=scale)
    start, error, one = z[:-1], np.zeros(z.shape[1]), np.ones((1, int(whole.sum())))
    for _ in range(ROUNDS):
        plain = fit_steps(record, step_inputs(dynamics, start, record.a), start, one)[0]
        before = record.follow(plain, np.diag(error))[1]
        next_error = np.clip(error - lag_one_correlation(before, whole), 0, MOST_ERROR)
        belief, surprise = record.follow(plain, np.diag(next_error))
        # nor where it is not a number
        if not np.abs(surprise[whole]).max() <= RUNAWAY * np.abs(before[whole]).max():
            break
        start, error = belief[:-1], next_error
    return start, error


@torch.no_grad()
def refit(
    dynamics: Dynamics,
    member: int,
    z: np.ndarray,
    variance: np.ndarray,
    a: np.ndarray,
    whole: np.ndarray,
    seed: int,
    alone: np.ndarray | None = None,
) -> None:
    """Fits one member's dynamics to consecutive states z [T + 1, D], read with these variances,
    under actions a [T, A]; `whole` [T] is False where the next state belongs to another episode.
    Where readings depend on several observations, the fit is to states `alone` [T + 1, D] that
    depend on one each, NaN where that cannot be (`single_observation_states`); noise and share are
    those of z.

    The noise is the variance of the residuals plus that of both ends of a step, since the bound
    compares a step with the whole posterior of z. From posterior means alone it would be too small,
    and the bound would bend the encoder to the model.
    """
    readings, steps = z, whole
    if alone is not None:
        known = np.logical_and.reduce(np.isfinite(alone), 1)
        z, whole = np.where(known[:, None], alone, z), whole & known[:-1] & known[1:]
    if not whole.any():
        return
    count, noise = dynamics.weight.shape[-1], float(dynamics.variance()[member].mean())
    axis = dynamics.axis.double().cpu().numpy() if dynamics.kind == "rbf" else np.zeros(0)
    a, none, middle = np.asarray(a, np.float64), np.zeros_like(z), np.zeros(z.shape[1])
    record = Record(z, a, whole, axis, float(dynamics.width), none, middle, noise)
    start, error = fit_with_beliefs(dynamics, record)
    x = step_inputs(dynamics, start, a)
    weights = bootstrap(seed, dynamics.models, int(whole.sum()))
    if z.shape[1] * (x.shape[1] + z.shape[1]) <= MOST:
        plain = fit_steps(record, x, start, np.ones((1, weights.shape[1])))[0]
        fitted, left, share = minimise_prediction_error(record, plain, error, weights)
    else:
        share, fitted = np.diag(error), fit_steps(record, x, start, weights)
        moved = (z[1:] - start)[whole]
        left = np.square(moved - x[whole] @ fitted.transpose(0, 2, 1)).mean(1)  # [N, D]
    if alone is not None:
        squares, share = noise_of_readings(record._replace(z=readings, whole=steps), fitted.mean(0))
        left = np.repeat(squares[None], len(fitted), 0)
    left += (variance[:-1] + variance[1:])[steps].mean(0)
    targets = (dynamics.weight, dynamics.action_weight, dynamics.raw_variance, dynamics.share)
    drift, push = fitted[..., :count] / dynamics.dt, fitted[..., count:] / dynamics.dt
    values = (drift, push, raw_of(left), share)
    for tensor, value in zip(targets, values, strict=True):
        tensor[member] = torch.from_numpy(value).to(tensor)

"""Dynamics in closed form, second part: the least error of a filter's predictions
(`prediction_error`), by steps of Gauss and Newton.

What is least is the negative logarithm of the surprises' Gaussian density, whose covariance is
their own, and of the prior of the coefficients: ½ (n·log det Σ ss'/n + Σ λ (θ − θ₀)²). As many
steps as an output has coefficients are added that had the variance expected before: few steps could
be followed exactly, and would seem to have no noise. The covariance is held while a step is
computed, and a step that does not lower the whole is halved.
"""

from typing import Any, NamedTuple

import numpy as np

from tenfold.domains.dynamics.prediction_error import filtered, first_belief, followed

PRIOR = 0.1  # how far a weight is expected to move a state in one step, whatever the unit of time
# of G, as a share of the prior's precision: actions are large and many, no prior is needed
SURE = 1e-3
ROUNDS = 10  # steps of Gauss and Newton at most
ENOUGH = 2.0  # of the logarithm of a density: what a step gains is not worth another one
LEAST_STEP = 1e-2  # halved to less than this, a step is not made
GAIN_PRIOR = 1.0  # precision of each number of E around the share that was found before
LEAST = 1e-12  # of a surprise's variance
LEAST_SHARE = 1e-3  # of a surprise: below, readings hardly err
SETTLES = 100  # readings after which a share is the steady one
FIRST_PRIOR = 4  # first readings that are added, as far apart as all readings are
FAR = 1e6  # deviations of a state: a belief that errs by so much has run away
MOST = 600  # coefficients: their matrix is summed anew at every step
BLOCK = 256  # steps whose derivatives are written down at once: they stay in the cache


class Record(NamedTuple):
    """What is fitted to: consecutive readings z [T + 1, D] and actions a [T, A]; `whole` [T] is
    False where the next reading belongs to another episode, `observed` [T] where it is missing; the
    grid's axis (empty for linear dynamics) and width; the factors `scale` [T + 1, D] of the gain at
    each reading and the prediction `middle` [D] of first readings; and the variance that a surprise
    is expected to have."""

    z: np.ndarray
    a: np.ndarray
    whole: np.ndarray
    observed: np.ndarray
    axis: np.ndarray
    width: float
    scale: np.ndarray
    middle: np.ndarray
    noise: float = 0.0

    @property
    def counted(self) -> np.ndarray:
        """Which steps have an error of prediction, [T]."""
        return self.whole & self.observed

    @property
    def filter(self) -> tuple[Any, ...]:
        """What `filtered` and `followed` take behind coefficients and gain."""
        return self.axis, self.width, self.scale, self.middle


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
    prior's precision of a coefficient. `held`: the coefficients stay, and the gain alone is looked
    for."""
    shape = coefficients.shape
    centre = np.concatenate((np.zeros(coefficients.size), gain.ravel()))
    precision = prior_precision(penalty, gain)
    free = slice(coefficients.size if gain_only else 0, None)

    def at(theta: np.ndarray) -> Fit:
        weights, share = theta[: coefficients.size].reshape(shape), theta[coefficients.size :]
        share = share.reshape(gain.shape)
        surprise = followed(*record[:4], weights, share, *record.filter)[1]
        prior = float(precision @ np.square(theta - centre)) / 2
        return Fit(weights, share, surprise, density_loss(record, surprise, shape[1]) + prior)

    theta = np.concatenate((coefficients.ravel(), gain.ravel()))
    best = at(theta)
    if not np.isfinite(best.loss):  # beliefs ran away: readings alone do not
        theta[free] = 0.0
        best = at(theta)
    weight = np.ones((1, len(record.a)))
    for _ in range(ROUNDS):
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


def begin_steps(whole: np.ndarray) -> np.ndarray:
    """How many readings of its episode came before each one, [T + 1]."""
    rows = np.arange(len(whole) + 1)
    begins = np.concatenate(([True], ~whole))
    return rows - np.maximum.accumulate(np.where(begins, rows, 0))


def with_first_shares(record: Record, gain: np.ndarray, surprise: np.ndarray) -> Record:
    """The record with the share of its surprises that is error where episodes begin.

    The error of a reading has the variance r = e·s, of a steady surprise's variance s and share e.
    A first reading is off its mean by more: by v, the variance of first readings, of which r is
    error. What is unknown of the state then is p = v − r, of a reading's error e' = r / (p + r) of
    it; each reading leaves e'·p, and the step adds what keeps the steady p in its place:

        p' = e'·p + (1 − e)·(s − r)        factor e' / e of the gain, for each number of the state

    Were a first reading believed as it is, its error would be in all beliefs after it, as long as
    the gain is near 1, and go along with the steps from there: trials of 40 steps of a rotation
    behind counts faded half as fast again as the true one.
    """
    age, z = begin_steps(record.whole), record.z
    usual, spread = z.mean(0), z.var(0)
    first = z[:-1][(age[:-1] == 0) & record.counted]
    rows = len(first) + FIRST_PRIOR
    middle = (first.sum(0) + FIRST_PRIOR * usual) / rows
    spread = spread + np.square(usual - middle)
    wide = (np.square(first - middle).sum(0) + FIRST_PRIOR * spread) / rows
    steady = np.clip(gain.diagonal(), LEAST_SHARE, 1)
    error = steady * np.maximum(covariance(record, surprise, 0).diagonal(), LEAST)
    unknown = np.maximum(wide - error, 0)
    added = (1 - steady) * (error / steady - error)
    factors = np.ones((min(SETTLES, age.max() + 1), len(steady)))
    for row in factors:
        share = error / (unknown + error)
        row[:] = share / steady
        unknown = share * unknown + added
    scale = np.ones_like(z)
    early = age < len(factors)
    scale[early] = factors[age[early]]
    return record._replace(scale=scale, middle=middle)


def prior_precision(penalty: np.ndarray, gain: np.ndarray) -> np.ndarray:
    """Of all coefficients [D·(P + A)], alike in every dimension, and then of the gain, [K]."""
    return np.concatenate((np.tile(penalty, len(gain)), np.full(gain.size, GAIN_PRIOR)))


def covariance(record: Record, surprise: np.ndarray, rows: int) -> np.ndarray:
    """Of the surprises [T, D] of steps that count, as if `rows` more had the variance expected."""
    counted = surprise[record.counted]
    expected = rows * max(record.noise, LEAST) * np.eye(counted.shape[1])
    return (counted.T @ counted + expected) / (len(counted) + rows)


def density_loss(record: Record, surprise: np.ndarray, rows: int) -> float:
    """½ n·log det of their covariance; without end where one is far away."""
    counted = surprise[record.counted]
    if not np.abs(counted).max() < FAR:  # nor where it is not a number
        return np.inf
    return (
        0.5
        * (len(counted) + rows)
        * float(np.linalg.slogdet(covariance(record, surprise, rows))[1])
    )


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
        block = record.z[start : start + BLOCK + 1], *(column[part] for column in record[1:4])
        near = record._replace(scale=record.scale[start : start + BLOCK + 1])
        _, surprise, by, carried = filtered(
            *block, fit.coefficients, fit.gain, *near.filter, carried
        )
        counted = record.counted[part]
        rows = (root.T @ by[counted]).reshape(-1, count)
        target = (surprise[counted] @ root).ravel()
        for n, w in enumerate(weight):
            scale = np.repeat(np.sqrt(w[part][counted]), size)
            scaled = rows * scale[:, None]
            gram[n] += scaled.T @ scaled
            slope[n] += scaled.T @ (scale * target)
    return gram, slope


def resampled(record: Record, fit: Fit, weight: np.ndarray, penalty: np.ndarray) -> np.ndarray:
    """Coefficients [N, D, P + A] with other weights [N, T] of the steps: the minimum of what is
    quadratic around the fit, one small system for each model."""
    theta = np.concatenate((fit.coefficients.ravel(), fit.gain.ravel()))
    precision = prior_precision(penalty, fit.gain)
    pulled = precision * theta
    pulled[fit.coefficients.size :] = 0.0
    gram, slope = normal_equations(record, fit, weight)
    step = np.linalg.solve(gram + np.diag(precision), (slope - pulled)[..., None])[..., 0]
    return (theta + step)[:, : fit.coefficients.size].reshape(-1, *fit.coefficients.shape)


# from a fit to beliefs, and of readings that others are fitted to


def predicting(
    record: Record, coefficients: np.ndarray, error: np.ndarray, weights: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Coefficients [N, D, P + A] whose predictions err least, from a fit to beliefs with the share
    `error` [D], one for each row of weights [N, rows]; the squares that they leave, [N, D]; and the
    share [D, D]. The first `count` inputs are features."""
    penalty, gain = penalty_of(coefficients, count), np.diag(error)
    before = followed(*record[:4], coefficients, gain, *record.filter)[1]
    best = gauss_newton(with_first_shares(record, gain, before), coefficients, gain, penalty)
    record = with_first_shares(record, best.gain, best.surprise)  # of what was only expected then
    best = gauss_newton(record, best.coefficients, best.gain, penalty)
    squares = np.square(best.surprise[record.counted]).mean(0)
    if len(weights) == 1:
        return best.coefficients[None], squares[None], best.gain
    every = np.zeros((len(weights), len(record.a)))
    every[:, record.counted] = weights
    models = resampled(record, best, every, penalty)
    return models, np.repeat(squares[None], len(weights), 0), best.gain


def of_readings(
    record: Record, coefficients: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Of coefficients [D, P + A] that were fitted to other readings than the record's: the squares
    that they leave of these, [D], and the share of their surprises that is error, [D, D]."""
    size = len(coefficients)
    none = np.zeros((size, size))
    surprise = followed(*record[:4], coefficients, none, *record.filter)[1]
    if coefficients.size + none.size <= MOST:
        record = with_first_shares(record, none, surprise)
        best = gauss_newton(
            record, coefficients, none, penalty_of(coefficients, count), gain_only=True
        )
        surprise, none = best.surprise, best.gain
    return np.square(surprise[record.counted]).mean(0), none


def penalty_of(coefficients: np.ndarray, count: int) -> np.ndarray:
    """The prior's precision of each coefficient, [P + A]; the first `count` are of features."""
    penalty = np.full(coefficients.shape[1], 1 / PRIOR**2)
    penalty[count:] *= SURE
    return penalty

"""Dynamics in closed form, second part: the least error of predictions, by steps of Gauss and
Newton.

A belief follows the readings z by the model itself,

    s_t = z_{t+1} − b_t − B·x(b_t, a_t)        surprise;  x holds the features φ(b_t) and the action
    b_{t+1} = z_{t+1} − E·s_t                  E [D, D]: the share of a surprise that is error

so that a coefficient moves a prediction twice: directly, and through every belief before it. Least
squares of s with x alone (`fitting`) knows of the first; where readings err by more than a step's
noise, E is near 1 and the second is ten times as large. The derivative of a prediction is the
regressor filtered by share and slope of the step,

    S_t = J_t·M_t + ∂(B·x)/∂(B, E),    M_{t+1} = E·S_t − ∂E·s_t,    J_t = I + W·φ'(b_t)

with M = 0 where an episode begins (recursive prediction errors; Ljung, System Identification,
1999, chapters 7 and 10). What is least is the negative logarithm of the surprises' Gaussian
density, whose covariance is their own, and of the prior of the coefficients: ½ (n·log det Σ ss'/n
+ Σ λ (θ − θ₀)²). Σ is held while a step is computed, and a step that does not lower it is halved.

A reading that was not seen leaves the prediction as the belief, and its step counts nothing.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair

ROUNDS = 10  # steps of Gauss and Newton at most
ENOUGH = 2.0  # of the logarithm of a density: what a step gains is not worth another one
LEAST_STEP = 1e-2  # halved to less than this, a step is not made
GAIN_PRIOR = 1.0  # precision of each number of E around the share that was found before
LEAST = 1e-12  # of a surprise's variance
FAR = 1e6  # deviations of a state: a belief that errs by so much has run away
MOST = 600  # coefficients: their matrix is summed anew at every step
BLOCK = 256  # steps whose derivatives are written down at once: they stay in the cache


# beliefs, surprises and their derivatives


def filtered_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """One step, one number of state, no actions, a grid or none, breaks, unseen readings, and a
    derivative that is carried in."""
    for rows, size, grid, actions in ((1, 1, 3, 1), (2, 2, 0, 2), (9, 1, 0, 0), (25, 3, 2, 1)):
        features = grid**size if grid else size + 1
        count = size * (features + actions) + size * size
        yield (
            rng.normal(size=(rows + 1, size)),
            rng.normal(size=(rows, actions)),
            rng.random(rows) < 0.8,
            rng.random(rows) < 0.8,
            0.1 * rng.normal(size=(size, features + actions)),
            0.5 * np.eye(size) + 0.1 * rng.normal(size=(size, size)),
            np.linspace(-2, 2, grid) if grid else np.zeros(0),
            0.7,
            np.concatenate((rng.normal(size=(size, 1)), 0.1 * rng.normal(size=(size, count))), 1),
        )


def filtered_reference(z, a, whole, seen, coefficients, gain, axis, width, carried):
    """The recursion as it is written, differentiated by autograd."""
    z, a, carried = (torch.from_numpy(np.array(part)) for part in (z, a, carried))
    now = torch.from_numpy(np.concatenate((coefficients.ravel(), gain.ravel())))
    centres = torch.from_numpy(np.array(axis))

    def features(b: torch.Tensor) -> torch.Tensor:
        if not len(axis):
            return torch.cat((b, b.new_ones(1)))
        bells = torch.exp(-(((b[:, None] - centres) / width) ** 2) / 2)
        product = bells[0]
        for along in bells[1:]:
            product = (product[:, None] * along).flatten()
        return product

    def run(theta: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        own = theta[: coefficients.size].view(coefficients.shape)
        share = theta[coefficients.size :].view(gain.shape)
        belief = [carried[:, 0] + carried[:, 1:] @ (theta - now)]
        surprise, predicted = [], []
        for t in range(len(a)):
            predicted.append(belief[t] + own @ torch.cat((features(belief[t]), a[t])))
            surprise.append(z[t + 1] - predicted[t])
            known = z[t + 1] - share @ surprise[t] if seen[t] else predicted[t]
            belief.append(known if whole[t] else z[t + 1])
        return torch.stack(belief), torch.stack(surprise), torch.stack(predicted)

    belief, surprise, _ = run(now)
    slope = torch.autograd.functional.jacobian(lambda theta: run(theta)[2], now)
    last = torch.autograd.functional.jacobian(lambda theta: run(theta)[0][-1], now)
    after = torch.cat((belief[-1][:, None], last), 1)
    return tuple(part.numpy() for part in (belief, surprise, slope, after))


@kernel
def features_at(b, axis, width, bells, x):
    """φ(b) into the front of x: Gaussians on a grid, or (b, 1)."""
    size, grid = len(b), len(axis)
    if grid == 0:
        x[:size] = b
        x[size] = 1.0
        return size + 1
    count = 1
    for d in range(size):
        count *= grid
        for g in range(grid):
            away = (b[d] - axis[g]) / width
            bells[d, g] = math.exp(-0.5 * away * away)
    for p in range(count):
        product, rest = 1.0, p
        for d in range(size - 1, -1, -1):
            product *= bells[d, rest % grid]
            rest //= grid
        x[p] = product
    return count


@kernel
def step_slope(b, axis, width, coefficients, x, slope):
    """J = I + W·φ'(b) into `slope` [D, D]; x holds φ(b)."""
    size, grid = len(b), len(axis)
    slope[:] = 0.0
    for d in range(size):
        slope[d, d] = 1.0
    if grid == 0:
        slope += coefficients[:, :size]
        return
    for p in range(grid**size):
        rest = p
        for c in range(size - 1, -1, -1):
            steep = (axis[rest % grid] - b[c]) / (width * width) * x[p]
            rest //= grid
            for d in range(size):
                slope[d, c] += coefficients[d, p] * steep


@pair(filtered_reference, filtered_examples, rtol=1e-8, atol=1e-9)
@kernel
def filtered(z, a, whole, seen, coefficients, gain, axis, width, carried):
    """Beliefs [T + 1, D] along readings z [T + 1, D] under actions a [T, A], surprises [T, D], the
    derivative of each prediction by all coefficients and then all of the gain, [T, D, K], and what
    is carried on: the last belief beside its derivative, [D, 1 + K], as `carried` is of the first.
    Where a step is not `whole` [T] an episode begins with its reading; `seen` [T]: whether the
    reading after the step was."""
    steps, size, inputs = len(a), z.shape[1], coefficients.shape[1]
    first, count = size * inputs, size * inputs + size * size
    belief, surprise = np.empty((steps + 1, size)), np.empty((steps, size))
    slope = np.zeros((steps, size, count))
    x, bells, jacobian = np.empty(inputs), np.empty((size, len(axis))), np.empty((size, size))
    belief[0] = carried[:, 0]
    before = carried[:, 1:].copy()
    for t in range(steps):
        place = features_at(belief[t], axis, width, bells, x)
        x[place:] = a[t]
        step_slope(belief[t], axis, width, coefficients, x, jacobian)
        for d in range(size):
            moved = 0.0
            for p in range(inputs):
                moved += coefficients[d, p] * x[p]
            surprise[t, d] = z[t + 1, d] - belief[t, d] - moved
            for c in range(size):
                for k in range(count):
                    slope[t, d, k] += jacobian[d, c] * before[c, k]
            for p in range(inputs):
                slope[t, d, d * inputs + p] += x[p]
        if not whole[t]:
            before[:] = 0.0
            belief[t + 1] = z[t + 1]
        elif not seen[t]:
            before[:] = slope[t]
            belief[t + 1] = z[t + 1] - surprise[t]
        else:
            before[:] = 0.0
            for d in range(size):
                belief[t + 1, d] = z[t + 1, d]
                for c in range(size):
                    belief[t + 1, d] -= gain[d, c] * surprise[t, c]
                    for k in range(count):
                        before[d, k] += gain[d, c] * slope[t, c, k]
                    before[d, first + d * size + c] -= surprise[t, c]
    after = np.empty((size, 1 + count))
    after[:, 0] = belief[steps]
    after[:, 1:] = before
    return belief, surprise, slope, after


def followed_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for *given, _carried in filtered_examples(rng, dtype):
        yield tuple(given)


def followed_reference(z, a, whole, seen, coefficients, gain, axis, width):
    """`filtered` without its derivatives, from the first reading."""
    start = np.zeros((z.shape[1], 1 + coefficients.size + gain.size))
    start[:, 0] = z[0]
    return filtered_reference(z, a, whole, seen, coefficients, gain, axis, width, start)[:2]


@pair(followed_reference, followed_examples, rtol=1e-9, atol=1e-12)
@kernel
def followed(z, a, whole, seen, coefficients, gain, axis, width):
    """Beliefs [T + 1, D] and surprises [T, D] alone; the first belief is the first reading."""
    steps, size, inputs = len(a), z.shape[1], coefficients.shape[1]
    belief, surprise = np.empty((steps + 1, size)), np.empty((steps, size))
    x, bells = np.empty(inputs), np.empty((size, len(axis)))
    belief[0] = z[0]
    for t in range(steps):
        place = features_at(belief[t], axis, width, bells, x)
        x[place:] = a[t]
        for d in range(size):
            moved = 0.0
            for p in range(inputs):
                moved += coefficients[d, p] * x[p]
            surprise[t, d] = z[t + 1, d] - belief[t, d] - moved
        for d in range(size):
            belief[t + 1, d] = z[t + 1, d]
            if whole[t] and seen[t]:
                for c in range(size):
                    belief[t + 1, d] -= gain[d, c] * surprise[t, c]
            elif whole[t]:
                belief[t + 1, d] -= surprise[t, d]
    return belief, surprise


# the fit


class Record(NamedTuple):
    """What is fitted to: consecutive readings z [T + 1, D] and actions a [T, A]; `whole` [T] is
    False where the next reading belongs to another episode, `seen` [T] where it is missing; the
    grid's axis (empty for linear dynamics) and width."""

    z: np.ndarray
    a: np.ndarray
    whole: np.ndarray
    seen: np.ndarray
    axis: np.ndarray
    width: float

    @property
    def counted(self) -> np.ndarray:
        """Which steps have an error of prediction, [T]."""
        return self.whole & self.seen


class Fit(NamedTuple):
    """Coefficients [D, P + A] of a step, the gain E [D, D], and the surprises [T, D] that they
    leave."""

    coefficients: np.ndarray
    gain: np.ndarray
    surprise: np.ndarray
    loss: float


def gauss_newton(
    record: Record, coefficients: np.ndarray, gain: np.ndarray, penalty: np.ndarray
) -> Fit:
    """From these coefficients and this gain to those that predict best; `penalty` [P + A] is the
    prior's precision of a coefficient."""
    shape = coefficients.shape
    centre = np.concatenate((np.zeros(coefficients.size), gain.ravel()))
    precision = np.concatenate((np.tile(penalty, shape[0]), np.full(gain.size, GAIN_PRIOR)))

    def at(theta: np.ndarray) -> Fit:
        own, share = theta[: coefficients.size].reshape(shape), theta[coefficients.size :]
        share = share.reshape(gain.shape)
        surprise = followed(*record[:4], own, share, *record[4:])[1]
        prior = float(precision @ np.square(theta - centre)) / 2
        return Fit(own, share, surprise, density_loss(surprise[record.counted]) + prior)

    theta = np.concatenate((coefficients.ravel(), gain.ravel()))
    best = at(theta)
    if not np.isfinite(best.loss):  # beliefs ran away: readings alone do not
        theta = np.zeros_like(theta)
        best = at(theta)
    weight = np.ones((1, len(record.a)))
    for _ in range(ROUNDS):
        gram, slope = normal_equations(record, best, weight)
        down = slope[0] - precision * (theta - centre)
        step = np.linalg.solve(gram[0] + np.diag(precision), down)
        size = 1.0
        found = at(theta + step)
        while not found.loss < best.loss and size > LEAST_STEP:
            size /= 2
            found = at(theta + size * step)
        gained = best.loss - found.loss
        if not gained > 0:
            break
        theta, best = theta + size * step, found
        if gained < ENOUGH:
            break
    return best


def covariance(surprise: np.ndarray) -> np.ndarray:
    """Σ ss'/n of surprises [n, D], never quite 0."""
    return surprise.T @ surprise / len(surprise) + LEAST * np.eye(surprise.shape[1])


def density_loss(surprise: np.ndarray) -> float:
    """½ n·log det of the covariance of surprises [n, D]; without end where one is far away."""
    if not np.abs(surprise).max() < FAR:  # nor where it is not a number
        return np.inf
    return 0.5 * len(surprise) * float(np.linalg.slogdet(covariance(surprise))[1])


def normal_equations(record: Record, fit: Fit, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Σ w S'Λ S [N, K, K] and Σ w S'Λ s [N, K] over the steps that count, with the inverse Λ of the
    surprises' covariance and weights w [N, T]; block by block, so that a long recording takes no
    more memory than a short one."""
    size, count = len(fit.gain), fit.coefficients.size + fit.gain.size
    root = np.linalg.cholesky(np.linalg.inv(covariance(fit.surprise[record.counted])))
    gram, slope = np.zeros((len(weight), count, count)), np.zeros((len(weight), count))
    carried = np.zeros((size, 1 + count))
    carried[:, 0] = record.z[0]
    for start in range(0, len(record.a), BLOCK):
        part = slice(start, start + BLOCK)
        given = record.z[start : start + BLOCK + 1], *(own[part] for own in record[1:4])
        _, surprise, by, carried = filtered(
            *given, fit.coefficients, fit.gain, *record[4:], carried
        )
        counted = record.counted[part]
        rows = (root.T @ by[counted]).reshape(-1, count)
        wanted = (surprise[counted] @ root).ravel()
        for n, w in enumerate(weight):
            scale = np.repeat(np.sqrt(w[part][counted]), size)
            scaled = rows * scale[:, None]
            gram[n] += scaled.T @ scaled
            slope[n] += scaled.T @ (scale * wanted)
    return gram, slope


def resampled(record: Record, fit: Fit, weight: np.ndarray, penalty: np.ndarray) -> np.ndarray:
    """Coefficients [N, D, P + A] with other weights [N, T] of the steps: the minimum of what is
    quadratic around the fit, one small system for each model."""
    theta = np.concatenate((fit.coefficients.ravel(), fit.gain.ravel()))
    precision = np.concatenate(
        (np.tile(penalty, len(fit.gain)), np.full(fit.gain.size, GAIN_PRIOR))
    )
    pulled = precision * theta
    pulled[fit.coefficients.size :] = 0.0
    gram, slope = normal_equations(record, fit, weight)
    step = np.linalg.solve(gram + np.diag(precision), (slope - pulled)[..., None])[..., 0]
    return (theta + step)[:, : fit.coefficients.size].reshape(-1, *fit.coefficients.shape)

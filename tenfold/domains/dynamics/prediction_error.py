"""Readings, the beliefs that follow them, and the error of predictions with its derivatives.

A belief follows the readings z by the model itself,

    s_t = z_{t+1} − b_t − B·x(b_t, a_t)        surprise;  x holds the features φ(b_t) and the action
    b_{t+1} = z_{t+1} − E·s_t                  E [D, D]: the share of a surprise that is error

so that a coefficient moves a prediction twice: directly, and through every belief before it. The
derivative of a prediction is the regressor filtered by share and slope of the step,

    S_t = J_t·M_t + ∂(B·x)/∂(B, E),    M_{t+1} = E·S_t − ∂E·s_t,    J_t = I + W·φ'(b_t)

(recursive prediction errors; Ljung, System Identification, 1999, chapters 7 and 10). An episode
begins with the prediction m, the mean of first readings. Surprises of first readings are larger
than later ones, and so are, for some steps, those of the readings after them: less of them is
error. So the share is E·diag(c) with the factor c [T + 1, D] of each reading; c = 0 believes a
first reading.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.domains.dynamics.dynamics import rbf_features

LEAST = 1e-12  # of a surprise's variance
LEAST_SHARE = 1e-3  # of a surprise: below, readings hardly err
SETTLES = 100  # readings after which a share is the steady one
FIRST_PRIOR = 4  # first readings that are added, as far apart as all readings are


def filter_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """One step, one number of state, no actions, a grid or none, breaks, and a derivative that is
    carried in."""
    for rows, size, grid, actions in ((1, 1, 3, 1), (2, 2, 0, 2), (9, 1, 0, 0), (25, 3, 2, 1)):
        features = grid**size if grid else size + 1
        count = size * (features + actions) + size * size
        yield (
            rng.normal(size=(rows + 1, size)),
            rng.normal(size=(rows, actions)),
            rng.random(rows) < 0.8,
            0.1 * rng.normal(size=(size, features + actions)),
            0.5 * np.eye(size) + 0.1 * rng.normal(size=(size, size)),
            np.linspace(-2, 2, grid) if grid else np.zeros(0),
            0.7,
            rng.uniform(0, 1.5, (rows + 1, size)),
            rng.normal(size=size),
            np.concatenate((rng.normal(size=(size, 1)), 0.1 * rng.normal(size=(size, count))), 1),
        )


def filter_sensitivities_reference(
    z, a, whole, coefficients, gain, axis, width, scale, middle, carried
):
    """The recursion as it is written, differentiated by autograd."""
    z, a, scale, middle, carried = (
        torch.from_numpy(np.array(part)) for part in (z, a, scale, middle, carried)
    )
    now = torch.from_numpy(np.concatenate((coefficients.ravel(), gain.ravel())))
    centres = torch.from_numpy(np.array(axis))

    def features(b: torch.Tensor) -> torch.Tensor:
        return rbf_features(b, centres, width) if len(axis) else torch.cat((b, b.new_ones(1)))

    def run(theta: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        weights = theta[: coefficients.size].view(coefficients.shape)
        share = theta[coefficients.size :].view(gain.shape)
        belief = [carried[:, 0] + carried[:, 1:] @ (theta - now)]
        surprise, predicted = [], []
        for t in range(len(a)):
            predicted.append(belief[t] + weights @ torch.cat((features(belief[t]), a[t])))
            surprise.append(z[t + 1] - predicted[t])
            error = surprise[t] if whole[t] else z[t + 1] - middle
            belief.append(z[t + 1] - share @ (scale[t + 1] * error))
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


@kernel
def innovation_of(reading, b, a, coefficients, axis, width, bells, x, surprise):
    """What a reading has more than was predicted from the belief b under the action a, into
    `surprise` [D]; features and action into x."""
    x[features_at(b, axis, width, bells, x) :] = a
    for d in range(len(b)):
        moved = 0.0
        for p in range(len(x)):
            moved += coefficients[d, p] * x[p]
        surprise[d] = reading[d] - b[d] - moved


@pair(filter_sensitivities_reference, filter_examples, rtol=1e-8, atol=1e-9)
@kernel
def filter_sensitivities(z, a, whole, coefficients, gain, axis, width, scale, middle, carried):
    """Beliefs [T + 1, D] along readings z [T + 1, D] under actions a [T, A], surprises [T, D], the
    derivative of each prediction by all coefficients and then all of the gain, [T, D, K], and what
    is carried on: the last belief beside its derivative, [D, 1 + K], as `carried` is of the first.
    Where a step is not `whole` [T] an episode begins with its reading. `scale` [T + 1, D] are the
    factors of the gain, `middle` [D] is the prediction of an episode's first reading."""
    steps, size, inputs = len(a), z.shape[1], coefficients.shape[1]
    first, count = size * inputs, size * inputs + size * size
    belief, surprise = np.empty((steps + 1, size)), np.empty((steps, size))
    slope = np.zeros((steps, size, count))
    x, bells, jacobian = np.empty(inputs), np.empty((size, len(axis))), np.empty((size, size))
    belief[0] = carried[:, 0]
    before = carried[:, 1:].copy()
    for t in range(steps):
        innovation_of(z[t + 1], belief[t], a[t], coefficients, axis, width, bells, x, surprise[t])
        step_slope(belief[t], axis, width, coefficients, x, jacobian)
        for d in range(size):
            for c in range(size):
                for k in range(count):
                    slope[t, d, k] += jacobian[d, c] * before[c, k]
            for p in range(inputs):
                slope[t, d, d * inputs + p] += x[p]
        if not whole[t]:
            before[:] = 0.0
            for d in range(size):
                belief[t + 1, d] = z[t + 1, d]
                for c in range(size):
                    away = scale[t + 1, c] * (z[t + 1, c] - middle[c])
                    belief[t + 1, d] -= gain[d, c] * away
                    before[d, first + d * size + c] -= away
        else:
            before[:] = 0.0
            for d in range(size):
                belief[t + 1, d] = z[t + 1, d]
                for c in range(size):
                    share = gain[d, c] * scale[t + 1, c]
                    belief[t + 1, d] -= share * surprise[t, c]
                    for k in range(count):
                        before[d, k] += share * slope[t, c, k]
                    before[d, first + d * size + c] -= scale[t + 1, c] * surprise[t, c]
    after = np.empty((size, 1 + count))
    after[:, 0] = belief[steps]
    after[:, 1:] = before
    return belief, surprise, slope, after


def first_belief(
    z: np.ndarray, gain: np.ndarray, scale: np.ndarray, middle: np.ndarray, coefficients: int
) -> np.ndarray:
    """The belief after the first reading z [D] of all beside its derivative, as
    `filter_sensitivities` takes it."""
    size = len(z)
    start = np.zeros((size, 1 + coefficients + size * size))
    away = scale * (z - middle)
    start[:, 0] = z - gain @ away
    for d in range(size):
        column = 1 + coefficients + d * size
        start[d, column : column + size] = -away
    return start


def filter_states_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for *arguments, _carried in filter_examples(rng, dtype):
        yield tuple(arguments)


def filter_states_reference(z, a, whole, coefficients, gain, axis, width, scale, middle):
    """`filter_sensitivities` without its derivatives, from the first reading."""
    start = first_belief(z[0], gain, scale[0], middle, coefficients.size)
    arguments = z, a, whole, coefficients, gain, axis, width, scale, middle, start
    return filter_sensitivities_reference(*arguments)[:2]


@pair(filter_states_reference, filter_states_examples, rtol=1e-9, atol=1e-12)
@kernel
def filter_states(z, a, whole, coefficients, gain, axis, width, scale, middle):
    """Beliefs [T + 1, D] and surprises [T, D] alone, from the first reading."""
    steps, size, inputs = len(a), z.shape[1], coefficients.shape[1]
    belief, surprise = np.empty((steps + 1, size)), np.empty((steps, size))
    x, bells = np.empty(inputs), np.empty((size, len(axis)))
    for d in range(size):
        belief[0, d] = z[0, d]
        for c in range(size):
            belief[0, d] -= gain[d, c] * scale[0, c] * (z[0, c] - middle[c])
    for t in range(steps):
        innovation_of(z[t + 1], belief[t], a[t], coefficients, axis, width, bells, x, surprise[t])
        for d in range(size):
            belief[t + 1, d] = z[t + 1, d]
            for c in range(size):
                off = surprise[t, c] if whole[t] else z[t + 1, c] - middle[c]
                belief[t + 1, d] -= gain[d, c] * scale[t + 1, c] * off
    return belief, surprise


# the record of a fit


class Record(NamedTuple):
    """What is fitted to: consecutive readings z [T + 1, D] and actions a [T, A]; `whole` [T] is
    False where the next reading belongs to another episode; the grid's axis (empty for linear
    dynamics) and width; the factors `scale` [T + 1, D] of the gain at each reading and the
    prediction `middle` [D] of first readings; and the variance that a surprise is expected to
    have."""

    z: np.ndarray
    a: np.ndarray
    whole: np.ndarray
    axis: np.ndarray
    width: float
    scale: np.ndarray
    middle: np.ndarray
    noise: float = 0.0

    @property
    def filter(self) -> tuple[Any, ...]:
        """What `filter_sensitivities` and `filter_states` take behind coefficients and gain."""
        return self.axis, self.width, self.scale, self.middle

    def follow(self, coefficients: np.ndarray, gain: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Beliefs [T + 1, D] and surprises [T, D]."""
        return filter_states(self.z, self.a, self.whole, coefficients, gain, *self.filter)


def covariance(record: Record, surprise: np.ndarray, rows: int) -> np.ndarray:
    """Of the surprises [T, D] of steps that count, as if `rows` more had the variance expected."""
    counted = surprise[record.whole]
    expected = rows * max(record.noise, LEAST) * np.eye(counted.shape[1])
    return (counted.T @ counted + expected) / (len(counted) + rows)


def episode_ages(whole: np.ndarray) -> np.ndarray:
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
    age, z = episode_ages(record.whole), record.z
    usual, spread = z.mean(0), z.var(0)
    first = z[:-1][(age[:-1] == 0) & record.whole]
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

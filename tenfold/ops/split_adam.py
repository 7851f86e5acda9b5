"""What `ops.adam` does to a flat buffer, in slices that a team of threads takes: every number is
the same. One thread takes a sum of squares, beside steps of others where nothing waits for it."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.core.work import THREADS, share_work, team_of
from tenfold.ops.adam import (
    adam_numba,
    adam_reference,
    clip_array_reference,
    clip_numba,
    on_tensors,
    polyak_numba,
    polyak_reference,
    sum_of_squares,
)

SLICE = 1 << 13  # numbers


@kernel
def slices_of(size):
    return (size + SLICE - 1) // SLICE


@kernel
def adam_slice(index, squares, flat, grad, mean, square, step, lr, eps, decay):
    """One of the sums of squares, or a slice of the step."""
    if index < squares.size:
        size = grad.size // squares.size
        squares[index] = sum_of_squares(grad[index * size : (index + 1) * size])
        return
    first = (index - squares.size) * SLICE
    last = min(first + SLICE, flat.size)
    moments = mean[first:last], square[first:last]
    adam_numba(flat[first:last], grad[first:last], *moments, step, lr, eps, decay)


@kernel
def adam_by_team(team, squares, flat, grad, mean, square, step, lr, eps, decay):
    """`adam_numba`; `squares` takes the sums of the gradient's squares, of as many equal parts as
    it has room for."""
    if team[THREADS] == 0:
        adam_numba(flat, grad, mean, square, step, lr, eps, decay)
    arguments = (squares, flat, grad, mean, square, step, lr, eps, decay)
    slices = slices_of(flat.size) if team[THREADS] else 0
    share_work(team, squares.size + slices, adam_slice, arguments)


@kernel
def scale_slice(index, grad, scale):
    for j in range(index * SLICE, min((index + 1) * SLICE, grad.size)):
        grad[j] *= scale


@kernel
def clip_by_team(team, grad, limit):
    """`clip_numba`'s norm; the gradient is shortened in place."""
    if team[THREADS] == 0:
        return clip_numba(grad, limit)[1]
    norm = np.sqrt(sum_of_squares(grad))
    if norm + 1e-6 > limit:
        scale = np.float32(limit / (norm + 1e-6))
        share_work(team, slices_of(grad.size), scale_slice, (grad, scale))
    return norm


@kernel
def polyak_slice(index, target, online, tau):
    first, last = index * SLICE, min((index + 1) * SLICE, target.size)
    polyak_numba(target[first:last], online[first:last], tau)


@kernel
def polyak_by_team(team, target, online, tau):
    """`polyak_numba`."""
    if team[THREADS] == 0:
        polyak_numba(target, online, tau)
    else:
        share_work(team, slices_of(target.size), polyak_slice, (target, online, tau))


# the pairs: several slices, the last of them short


def buffers(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """Parameters, gradient, moments; of one number too."""
    for size in (2 * SLICE + 37, SLICE, 1):
        yield tuple(rng.normal(size=(4, size)).astype(dtype))


def step_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for flat, grad, mean, square in buffers(rng, dtype):
        for step in (1, 1000):
            start = (0 * mean, 0 * square) if step == 1 else (mean * 0.1, square**2 * 0.1)
            yield flat, grad, *start, step, 1e-3, 1e-8, (0.0, 3.0)[step > 1]


def step_reference(flat, grad, *more):
    return *on_tensors(adam_reference)(flat, grad, *more), np.square(grad).sum(dtype=np.float64)


@pair(step_reference, step_examples, rtol=1e-5, atol=1e-7)
def adam_by_three(flat, grad, mean, square, step, lr, eps, decay):
    squares = np.zeros(1, np.float32)
    adam_by_team(team_of(3), squares, flat, grad, mean, square, step, lr, eps, decay)
    return flat, mean, square, squares[0]


def limit_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for _, grad, *_ in buffers(rng, dtype):
        yield from ((grad, 0.5), (grad, 1e6))


@pair(clip_array_reference, limit_examples, rtol=1e-5, atol=1e-8)
def clip_by_three(grad, limit):
    norm = clip_by_team(team_of(3), grad, limit)
    return grad, norm


def follow_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for target, online, *_ in buffers(rng, dtype):
        yield from ((target, online, 0.005), (target, online, 1.0))


@pair(on_tensors(polyak_reference), follow_examples, rtol=1e-5, atol=1e-7)
def polyak_by_three(target, online, tau):
    polyak_by_team(team_of(3), target, online, tau)
    return target

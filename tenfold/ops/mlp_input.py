"""The derivative of a multilayer perceptron's output by its input alone, as compiled code: how an
actor learns through a critic. Arrays lie as `mlp` says."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.ops.mlp import mlp_examples, mlp_forward, mlp_of, through_activation
from tenfold.ops.products import LISTED, NEXT, NO_FLOOR, SAME, by_tiles, layer_by_input
from tenfold.ops.tiles import LANES, at, on_stack


def input_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """All inputs, and the last alone."""
    for flat, sizes, activation, x, hidden, by_output in mlp_examples(rng, dtype):
        mlp_forward(flat, sizes, activation, x, hidden)
        delta = np.zeros_like(hidden)
        delta[delta.size - by_output.size :] = by_output.ravel()
        for first in (0, len(x) - 1):
            yield flat, sizes, activation, x, hidden, delta, first, np.zeros_like(x[first:])


def mlp_by_input_reference(flat, sizes, activation, x, hidden, delta, first, by_input):
    """∂/∂x of Σ output · (the derivative by the output), by autograd."""
    leaf = torch.from_numpy(x).requires_grad_()
    output = mlp_of(torch.from_numpy(flat), sizes, activation, leaf.T).T
    output.backward(torch.from_numpy(delta[delta.size - output.numel() :]).view(output.shape))
    assert leaf.grad is not None
    return leaf.grad[first:]


@pair(mlp_by_input_reference, input_examples, rtol=1e-4, atol=1e-5)
@kernel
def mlp_by_input(flat, sizes, activation, x, hidden, delta, first, by_input):
    """The derivative by the inputs from `first` on, into `by_input`; of `x` only the number of
    items counts. The end of `delta`, shaped like `hidden`, holds the derivative by the output, the
    rest of it is scratch. No gradient by a parameter is formed."""
    rows, used, place = by_input.shape[1], flat.size, hidden.size
    for i in range(sizes.size - 2, 0, -1):
        into, out = sizes[i], sizes[i + 1]
        used -= out * (into + 1)
        place -= rows * out
        by_x, below = at(delta, place - rows * into), at(hidden, place - rows * into)
        layer_by_input(out, rows, into, at(flat, used), at(delta, place), by_x)
        through_activation(rows * into, by_x, below, activation)
    of_some_inputs(sizes[1], rows, sizes[0], first, flat, delta, by_input)
    return by_input


@kernel
def of_some_inputs(out, rows, into, first, weight, by_y, by_x):
    """by_x = the rows from `first` on of weightᵀ·by_y:   weight [out, into], by_y [out, rows]."""
    wanted = into - first
    if rows >= LANES and max(out, wanted) <= LISTED:
        nothing = on_stack(1, np.float32)
        nothing[0] = np.float32(0)
        a, b, c = at(weight, first), at(by_y, 0), at(by_x, 0)
        by_tiles(wanted, rows, out, a, NEXT, into, b, c, nothing, SAME, NO_FLOOR)
        return
    for i in range(wanted):
        for b in range(rows):
            by_x[i, b] = np.float32(0)
        for k in range(out):
            factor = weight[k * into + first + i]
            for b in range(rows):
                by_x[i, b] += factor * by_y[k * rows + b]

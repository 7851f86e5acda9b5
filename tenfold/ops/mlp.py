"""A multilayer perceptron on one flat buffer, forward and backward, as compiled code that allocates
nothing.

`sizes` holds the widths [inputs, hidden…, outputs]; the buffer holds weight (out, in) and bias of
each layer in turn, the order of `parameters()` of the torch module that views it. Any depth, one
signature, float32. Activations are [features, B]: then the products of the forward pass need no
transpose (`ops.products`). Layer outputs lie one after another at the end of `hidden`, Σ sizes[1:]
× B numbers, the network's output last. GELU's and SiLU's values do not tell their derivatives: for
the backward pass `hidden` has as much room again in front, where these are kept (`layer_total`).
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.ops.activations import (
    ACTIVATIONS,
    FUNCTIONS,
    GELU,
    RELU,
    activate,
    through_activation,
)
from tenfold.ops.products import (
    NEXT,
    NO_FLOOR,
    SAME,
    TILED,
    by_tiles,
    layer,
    layer_by_bias,
    layer_by_input,
    layer_by_weight,
)
from tenfold.ops.tiles import LANES, at, on_stack


def parameter_count(sizes: Any) -> int:
    return int(sum((i + 1) * o for i, o in pairwise(sizes)))


@kernel
def parameter_total(sizes):
    """The same inside compiled code."""
    total = 0
    for i in range(sizes.size - 1):
        total += (sizes[i] + 1) * sizes[i + 1]
    return total


@kernel
def output_total(sizes):
    """Numbers that all layers give for an item."""
    total = 0
    for i in range(1, sizes.size):
        total += sizes[i]
    return total


@kernel
def layer_total(sizes, activation):
    """Room for an item in `hidden`, from which a backward pass can be made."""
    return output_total(sizes) * (2 if activation >= GELU else 1)


@kernel
def room_of(scratch, sizes, activation, rows):
    """The part of scratch that is `hidden` for so many rows."""
    return scratch[: rows * layer_total(sizes, activation)]


@kernel
def kept_at(activation, rows, sizes, hidden):
    """How far in front of an output the activation's derivative is kept in so much room; 0: it is
    not."""
    numbers = rows * output_total(sizes)
    return numbers if activation >= GELU and hidden >= 2 * numbers else 0


def mlp_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """Flat parameters, sizes, activation, inputs, scratch for hidden layers, and a derivative by
    the output."""
    for activation in ACTIVATIONS.values():
        for sizes, rows in (
            ((1, 1), 1),
            ((4, 64, 64, 2), 32),
            ((5, 3), 7),
            ((3, 7, 1, 5, 2), 1),
            ((6, 33, 9), 13),
            ((9, 70, 5, 40, 3), 17),
            ((3, 12, 12, 1), 8),
        ):
            width = np.array(sizes, np.int64)
            flat = rng.normal(size=parameter_count(sizes)).astype(dtype) / 3
            if len(sizes) > 2:  # every third unit of the first layer never fires with ReLU
                flat[sizes[0] * sizes[1] : (sizes[0] + 1) * sizes[1] : 3] = -100
            yield (
                flat,
                width,
                activation,
                rng.normal(size=(sizes[0], rows)).astype(dtype),
                np.zeros(rows * layer_total(width, activation), dtype),
                rng.normal(size=(sizes[-1], rows)).astype(dtype),
            )


def forward_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """With room for a backward pass and without, and with room for a larger network."""
    for k, (flat, sizes, activation, x, hidden, _) in enumerate(mlp_examples(rng, dtype)):
        outputs = x.shape[1] * output_total(sizes)
        yield (
            flat,
            sizes,
            activation,
            x,
            (hidden, hidden[:outputs], np.zeros(outputs + 5, dtype))[k % 3],
        )


def mlp_forward_reference(flat, sizes, activation, x, hidden):
    """x ← f(x·Wᵀ + b) layer by layer, no f after the last."""
    return mlp_of(torch.from_numpy(flat), sizes, activation, torch.from_numpy(x).T).T


def mlp_of(flat: torch.Tensor, sizes: Any, activation: int, x: torch.Tensor) -> torch.Tensor:
    used = 0
    for i, (into, out) in enumerate(pairwise(sizes.tolist())):
        weight, bias = (
            flat[used : used + out * into].view(out, into),
            flat[used + out * into : used + out * (into + 1)],
        )
        used += out * (into + 1)
        x = F.linear(x, weight, bias)
        if i < len(sizes) - 2:
            x = FUNCTIONS[activation](x)
    return x


@pair(mlp_forward_reference, forward_examples, rtol=1e-4, atol=1e-5)
@kernel
def mlp_forward(flat, sizes, activation, x, hidden):
    """The output [out, B], a view of the end of `hidden`, which keeps every layer's output for the
    backward pass."""
    rows, used, last, below = x.shape[1], 0, sizes.size - 2, at(x, 0)
    offset = hidden.size - rows * output_total(sizes)
    kept = kept_at(activation, rows, sizes, hidden.size)
    for i in range(last + 1):
        into, out = sizes[i], sizes[i + 1]
        floor = np.float32(0) if activation == RELU and i < last else NO_FLOOR
        layer(
            out,
            rows,
            into,
            at(flat, used),
            at(flat, used + out * into),
            below,
            at(hidden, offset),
            floor,
        )
        if i < last:
            activate(rows * out, at(hidden, offset), activation, kept)
        below = at(hidden, offset)
        used += out * (into + 1)
        offset += rows * out
    return hidden[offset - rows * sizes[last + 1] : offset].reshape(sizes[last + 1], rows)


def backward_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for flat, sizes, activation, x, hidden, by_output in mlp_examples(rng, dtype):
        mlp_forward(flat, sizes, activation, x, hidden)
        delta = np.zeros_like(hidden)
        delta[delta.size - by_output.size :] = by_output.ravel()
        yield (
            flat,
            sizes,
            activation,
            x,
            hidden,
            delta,
            np.zeros(x.shape[1] * sizes.max(), dtype),
            np.ones_like(flat),
        )


def mlp_backward_reference(flat, sizes, activation, x, hidden, delta, turned, grad):
    """∂/∂θ of Σ output · (the derivative by the output), by autograd."""
    parameters = torch.from_numpy(flat).requires_grad_()
    output = mlp_of(parameters, sizes, activation, torch.from_numpy(x).T).T
    output.backward(torch.from_numpy(delta[delta.size - output.numel() :]).view(output.shape))
    return parameters.grad


@pair(mlp_backward_reference, backward_examples, rtol=1e-4, atol=1e-5)
@kernel
def mlp_backward(flat, sizes, activation, x, hidden, delta, turned, grad):
    """Gradients by all parameters into `grad`. The end of `delta` (shaped like `hidden`) holds the
    derivative by the output; the rest of it and `turned` [B × the largest width] are scratch. The
    derivative by the input is not formed."""
    mlp_backward_to_input(flat, sizes, activation, x, hidden, delta, turned, grad, delta[:0])
    return grad


def to_input_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for *inputs, grad in backward_examples(rng, dtype):
        yield *inputs, grad, np.zeros(inputs[3].size, dtype)


def to_input_reference(flat, sizes, activation, x, hidden, delta, turned, grad, by_input):
    """∂/∂θ and ∂/∂x of Σ output · (the derivative by the output), by autograd."""
    network = flat, sizes, activation, x, hidden, delta
    by_parameters = mlp_backward_reference(*network, turned, grad)
    return by_parameters, mlp_by_input_reference(*network, 0, by_input).flatten()


@pair(to_input_reference, to_input_examples, rtol=1e-4, atol=1e-5)
@kernel
def mlp_backward_to_input(flat, sizes, activation, x, hidden, delta, turned, grad, by_input):
    """`mlp_backward`, and the derivative by the input into `by_input`, unless that is empty."""
    rows, used, offset = x.shape[1], flat.size, hidden.size
    kept = kept_at(activation, rows, sizes, hidden.size)
    for i in range(sizes.size - 2, -1, -1):
        into, out = sizes[i], sizes[i + 1]
        used -= out * (into + 1)
        offset -= rows * out
        weight, by_y = at(flat, used), at(delta, offset)
        below = at(hidden, offset - rows * into) if i else at(x, 0)
        layer_by_bias(out, rows, by_y, at(grad, used + out * into))
        if i:
            by_x = at(delta, offset - rows * into)
            layer_by_input(out, rows, into, weight, by_y, by_x)
            through_activation(rows * into, by_x, below, activation, kept)
        elif by_input.size:
            layer_by_input(out, rows, into, weight, by_y, at(by_input, 0))
        layer_by_weight(out, rows, into, by_y, below, at(turned, 0), at(grad, used))
    return grad, by_input


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
    rows, used, offset = by_input.shape[1], flat.size, hidden.size
    kept = kept_at(activation, rows, sizes, hidden.size)
    for i in range(sizes.size - 2, 0, -1):
        into, out = sizes[i], sizes[i + 1]
        used -= out * (into + 1)
        offset -= rows * out
        by_x, below = at(delta, offset - rows * into), at(hidden, offset - rows * into)
        layer_by_input(out, rows, into, at(flat, used), at(delta, offset), by_x)
        through_activation(rows * into, by_x, below, activation, kept)
    by_y = delta[offset - rows * sizes[1] :]
    of_some_inputs(sizes[1], rows, sizes[0], first, flat, by_y, by_input)
    return by_input


@kernel
def of_some_inputs(out, rows, into, first, weight, by_y, by_x):
    """by_x = the rows from `first` on of weightᵀ·by_y:   weight [out, into], by_y [out, rows]."""
    inputs = into - first
    if rows >= LANES and max(out, inputs) <= TILED:
        nothing = on_stack(1, np.float32)
        nothing[0] = np.float32(0)
        a, b, c = at(weight, first), at(by_y, 0), at(by_x, 0)
        by_tiles(inputs, rows, out, a, NEXT, into, b, rows, c, rows, nothing, SAME, NO_FLOOR)
        return
    for i in range(inputs):
        for b in range(rows):
            by_x[i, b] = np.float32(0)
        for k in range(out):
            factor = weight[k * into + first + i]
            for b in range(rows):
                by_x[i, b] += factor * by_y[k * rows + b]

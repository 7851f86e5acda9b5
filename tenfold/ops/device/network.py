"""A multilayer perceptron in Triton: parameters as tuples of tensors that stay in registers,
forward, backward, Adam.

A network is
(weight [in, out], bias [out]) of each layer in turn, read from and written to the flat buffer of
the torch module, whose weights are (out, in); what is padded is zero and stays so.
"""

import math
from itertools import pairwise
from typing import NamedTuple

import triton.language as tl

from tenfold.ops import activations
from tenfold.ops.adam import BETA1, BETA2
from tenfold.ops.device.language import gpu_kernel, padded


class NetShape(NamedTuple):
    """What a network's kernels are compiled for: widths of the layers, the same rounded up to
    powers of two."""

    sizes: tuple[int, ...]
    pads: tuple[int, ...]
    layers: int
    parameters: int
    activation: int
    precision: str

    @classmethod
    def of(cls, sizes: tuple[int, ...], activation: str, precision: str) -> "NetShape":
        return cls(
            sizes,
            tuple(padded(size) for size in sizes),
            len(sizes) - 1,
            sum((before + 1) * after for before, after in pairwise(sizes)),
            activations.ACTIVATIONS[activation],
            precision,
        )


RELU = tl.constexpr(activations.RELU)  # else tanh
KEEP1, KEEP2 = tl.constexpr(BETA1), tl.constexpr(BETA2)
LOG_KEEP1, LOG_KEEP2 = tl.constexpr(math.log(BETA1)), tl.constexpr(math.log(BETA2))


@gpu_kernel
def layer_places(layer: tl.constexpr, N: tl.constexpr):
    """Of a layer in the flat buffer: (places of the weight, which of them exist, places of the
    bias, which of them exist)."""
    at = 0
    for before in tl.static_range(layer):
        at += (N.sizes[before] + 1) * N.sizes[before + 1]
    row, column = tl.arange(0, N.pads[layer]), tl.arange(0, N.pads[layer + 1])
    exists = column < N.sizes[layer + 1]
    return (
        at + column[None, :] * N.sizes[layer] + row[:, None],
        exists[None, :] & (row[:, None] < N.sizes[layer]),
        at + N.sizes[layer] * N.sizes[layer + 1] + column,
        exists,
    )


@gpu_kernel
def load(flat, N: tl.constexpr):
    layers = ()
    for layer in tl.static_range(len(N.sizes) - 1):
        weight, has_weight, bias, has_bias = layer_places(layer, N)
        layers = layers + (
            tl.load(flat + weight, mask=has_weight, other=0.0),
            tl.load(flat + bias, mask=has_bias, other=0.0),
        )
    return layers


@gpu_kernel
def store(flat, layers, N: tl.constexpr):
    for layer in tl.static_range(len(N.sizes) - 1):
        weight, has_weight, bias, has_bias = layer_places(layer, N)
        tl.store(flat + weight, layers[2 * layer], mask=has_weight)
        tl.store(flat + bias, layers[2 * layer + 1], mask=has_bias)


@gpu_kernel
def zeros_like(layers, N: tl.constexpr):
    zeros = ()
    for i in tl.static_range(2 * N.layers):
        zeros = zeros + (layers[i] * 0.0,)
    return zeros


@gpu_kernel
def sum_of(layers, more, N: tl.constexpr):
    sums = ()
    for i in tl.static_range(2 * N.layers):
        sums = sums + (layers[i] + more[i],)
    return sums


@gpu_kernel
def moved_towards(layers, other, share, N: tl.constexpr):
    """layers + share·(other − layers): Polyak's average."""
    moved = ()
    for i in tl.static_range(2 * N.layers):
        moved = moved + (layers[i] + share * (other[i] - layers[i]),)
    return moved


@gpu_kernel
def where(condition, layers, other, N: tl.constexpr):
    selected = ()
    for i in tl.static_range(2 * N.layers):
        selected = selected + (tl.where(condition, layers[i], other[i]),)
    return selected


@gpu_kernel
def sum_of_squares(layers, N: tl.constexpr):
    total = 0.0
    for i in tl.static_range(len(N.sizes) - 1):
        weight, bias = layers[2 * i], layers[2 * i + 1]
        total += tl.sum(tl.sum(weight * weight, 1), 0) + tl.sum(bias * bias, 0)
    return total


@gpu_kernel
def activated(x, N: tl.constexpr):
    if N.activation == RELU:
        return tl.maximum(x, 0.0)
    else:
        return 2 * tl.sigmoid(2 * x) - 1


@gpu_kernel
def slope_at(output, N: tl.constexpr):
    """The activation's derivative, from its output."""
    if N.activation == RELU:
        return tl.where(output > 0, 1.0, 0.0)
    else:
        return 1 - output * output


@gpu_kernel
def forward(layers, x, N: tl.constexpr):
    """Rows x [B, in] -> (x, each hidden layer's output, the network's)."""
    outputs = (x,)
    for layer in tl.static_range(len(N.sizes) - 1):
        x = (
            tl.dot(x, layers[2 * layer], input_precision=N.precision)
            + layers[2 * layer + 1][None, :]
        )
        if layer < N.layers - 1:
            x = activated(x, N)
        outputs = outputs + (x,)
    return outputs


@gpu_kernel
def backward(layers, outputs, delta, N: tl.constexpr):
    """The gradient by all parameters, from `delta`, that by the network's output."""
    grads = ()
    for i in tl.static_range(len(N.sizes) - 1):
        before = outputs[N.layers - 1 - i]
        grads = (
            tl.dot(tl.trans(before), delta, input_precision=N.precision),
            tl.sum(delta, 0),
        ) + grads
        if i < N.layers - 1:
            weight = tl.trans(layers[2 * (N.layers - 1 - i)])
            delta = tl.dot(delta, weight, input_precision=N.precision) * slope_at(before, N)
    return grads


@gpu_kernel
def adam_rates(lr, steps):
    """(lr / (1 − β₁ᵗ), 1 / √(1 − β₂ᵗ)) of step number `steps`; all float64 but the results."""
    rate = (lr / (1 - tl.exp(steps * LOG_KEEP1))).to(tl.float32)
    return rate, (1 / tl.sqrt(1 - tl.exp(steps * LOG_KEEP2))).to(tl.float32)


@gpu_kernel
def adam_step(x, mean, square, grad, rate, unbias, eps):
    """(parameters, first moment, second moment) after a step of Adam: `rate` is lr / (1 − β₁ᵗ),
    `unbias` is 1 / √(1 − β₂ᵗ)."""
    m = KEEP1 * mean + (1 - KEEP1) * grad
    s = KEEP2 * square + (1 - KEEP2) * grad * grad
    return x - rate * m / (tl.sqrt(s) * unbias + eps), m, s


@gpu_kernel
def adam(layers, grads, mean, square, scale, power1, power2, lr, eps, N: tl.constexpr):
    """A step of Adam with gradients times `scale`; `power1` and `power2` are β₁ and β₂ to the
    step's number, float64. Returns parameters and moments."""
    rate = lr.to(tl.float32) / (1 - power1).to(tl.float32)
    unbias = 1 / tl.sqrt((1 - power2).to(tl.float32))
    new, means, squares = (), (), ()
    for i in tl.static_range(2 * N.layers):
        x, m, s = adam_step(layers[i], mean[i], square[i], grads[i] * scale, rate, unbias, eps)
        new = new + (x,)
        means, squares = means + (m,), squares + (s,)
    return new, means, squares

"""Noisy layers (Fortunato et al., 2018) as compiled code on one flat buffer: the parameters under
one draw of noise, and the gradient by means and scales from the gradient by these.

The buffer holds weight (out, in), bias, and the scales of both, of each layer in turn, the order of
`parameters()` of the torch module that views it. Under noise there are the weights and biases
alone, as `ops.mlp` takes them. A noise vector has in + out numbers for each layer.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.core.random import Purpose, draw_normal, fill_normal_reference, key
from tenfold.ops.mlp import parameter_count


def factor_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for size in (1, 50):
        yield key(size, Purpose.NOISE_ACT), int(rng.integers(9)), np.zeros(size, dtype)


def fill_factors_reference(stream, count, out):
    """f(x) = sign(x)√|x| of standard normal numbers."""
    fill_normal_reference(stream, count * out.size, out)
    return np.sign(out) * np.sqrt(np.abs(out))


@pair(fill_factors_reference, factor_examples, rtol=1e-5, atol=1e-6)
@kernel
def fill_factors(stream, count, out):
    """The factors of noise vector number `count`."""
    for i in range(out.size):
        x = np.float32(draw_normal(stream, count * out.size + i))
        out[i] = np.sqrt(x) if x > 0 else -np.sqrt(-x)
    return out


def noisy_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for sizes in ((1, 1), (4, 3), (3, 7, 5, 2)):
        plain = parameter_count(sizes)
        yield (
            rng.normal(size=2 * plain).astype(dtype),
            np.array(sizes),
            rng.normal(size=sum(i + o for i, o in pairwise(sizes))).astype(dtype),
            np.zeros(plain, dtype),
        )


def split_layers(flat, sizes, noise):
    """(weight, bias, their scales, factors of inputs and outputs) of each layer."""
    used = drawn = 0
    for i, o in pairwise(sizes.tolist()):
        count = (i + 1) * o
        weight, bias = flat[used : used + i * o].reshape(o, i), flat[used + i * o : used + count]
        scales = flat[used + count : used + 2 * count]
        yield (
            weight,
            bias,
            scales[: i * o].reshape(o, i),
            scales[i * o :],
            noise[drawn : drawn + i],
            noise[drawn + i : drawn + i + o],
        )
        used, drawn = used + 2 * count, drawn + i + o


def noisy_parameters_reference(flat, sizes, factors, out):
    """w_oi = μ_oi + σ_oi f(ε_o) f(ε_i), b_o = μ_o + σ_o f(ε_o)."""
    layers = []
    for weight, bias, by_weight, by_bias, into, outward in split_layers(flat, sizes, factors):
        layers += [(weight + by_weight * np.outer(outward, into)).ravel(), bias + by_bias * outward]
    return np.concatenate(layers)


@pair(noisy_parameters_reference, noisy_examples, rtol=1e-5, atol=1e-6)
@kernel
def noisy_parameters(flat, sizes, factors, out):
    """Into `out`: weights and biases under noise."""
    used = offset = drawn = 0
    for layer in range(sizes.size - 1):
        into, outward = sizes[layer], sizes[layer + 1]
        count, weights = (into + 1) * outward, into * outward
        below = factors[drawn : drawn + into]
        for o in range(outward):
            factor = factors[drawn + into + o]
            row, scale, start = used + o * into, used + count + o * into, offset + o * into
            # loops between views vectorise: six times as fast as by sums of indices
            mean, spread = flat[row : row + into], flat[scale : scale + into]
            noisy_row = out[start : start + into]
            for i in range(into):
                noisy_row[i] = mean[i] + spread[i] * (factor * below[i])
            out[offset + weights + o] = (
                flat[used + weights + o] + flat[used + count + weights + o] * factor
            )
        used, offset, drawn = used + 2 * count, offset + count, drawn + into + outward
    return out


def slope_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for flat, sizes, factors, out in noisy_examples(rng, dtype):
        yield rng.normal(size=out.size).astype(dtype), sizes, factors, np.ones_like(flat)


def noisy_gradient_reference(grad, sizes, factors, out):
    """By w: μ has that of w, σ that times the factors."""
    used, gradients = 0, []
    both = np.zeros_like(out)
    for *_, into, outward in split_layers(both, sizes, factors):
        i, o = len(into), len(outward)
        weight, bias = grad[used : used + i * o], grad[used + i * o : used + (i + 1) * o]
        used += (i + 1) * o
        gradients += [weight, bias, weight * np.outer(outward, into).ravel(), bias * outward]
    return np.concatenate(gradients)


@pair(noisy_gradient_reference, slope_examples, rtol=1e-5, atol=1e-6)
@kernel
def noisy_gradient(grad, sizes, factors, out):
    """Into `out`, all of whose numbers are overwritten: the gradient by means and scales."""
    used = offset = drawn = 0
    for layer in range(sizes.size - 1):
        into, outward = sizes[layer], sizes[layer + 1]
        count, weights = (into + 1) * outward, into * outward
        below = factors[drawn : drawn + into]
        for o in range(outward):
            factor = factors[drawn + into + o]
            row, scale, start = used + o * into, used + count + o * into, offset + o * into
            slopes = grad[start : start + into]
            by_mean, by_spread = out[row : row + into], out[scale : scale + into]
            for i in range(into):
                by_mean[i] = slopes[i]
                by_spread[i] = slopes[i] * (factor * below[i])
            slope = grad[offset + weights + o]
            out[used + weights + o] = slope
            out[used + count + weights + o] = slope * factor
        used, offset, drawn = used + 2 * count, offset + count, drawn + into + outward
    return out

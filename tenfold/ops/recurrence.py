"""Gated recurrent units and long short-term memory over time, forward and backward: the equations
in torch, and the same as compiled code that allocates nothing.

A memory of H numbers is given x_t and what it held before. `keep_t` is 0 where row t begins an
episode, and what was held is forgotten there, exactly; else 1. Parameters lie as torch.nn.GRU and
torch.nn.LSTM have them: weights [gates·H, inputs] and [gates·H, H], two biases; gates in the order
r, z, n and i, f, g, o. A state is one row of numbers: h, and behind it c where there is one.

Compiled: parameters lie in one flat buffer in this order; `sizes` are inputs, H and gates; rows are
[T·B, …], time by time. What runs over time has a row for each lane and a column for each gate, so
that a few lanes fill vectors too.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from tenfold.core.kernels import kernel, tanh
from tenfold.core.pairs import pair
from tenfold.ops.products import NEXT, NO_FLOOR, SAME, product, turn
from tenfold.ops.tiles import at, on_stack

GRU_GATES, LSTM_GATES = 3, 4


def gates_of(weight_hh: torch.Tensor) -> int:
    return weight_hh.shape[0] // weight_hh.shape[1]


def lstm_step(
    by_input: torch.Tensor, state: torch.Tensor, weight_hh: torch.Tensor, bias_hh: torch.Tensor
) -> torch.Tensor:
    """i, f, o = σ(…), g = tanh(…) of W x + b + U h + b';   c ← f·c + i·g,   h = o·tanh c.
    `by_input` is W x + b, [B, 4H]; state [B, 2H]."""
    h, c = state.chunk(2, -1)
    i, f, g, o = (by_input + torch.addmm(bias_hh, h, weight_hh.t())).chunk(4, -1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return torch.cat([o.sigmoid() * c.tanh(), c], -1)


def gru_step(
    by_input: torch.Tensor, state: torch.Tensor, weight_hh: torch.Tensor, bias_hh: torch.Tensor
) -> torch.Tensor:
    """r, z = σ(W x + b + U h + b'),   n = tanh(W x + b + r·(U h + b')),   h ← (1 − z)·n + z·h."""
    xr, xz, xn = by_input.chunk(3, -1)
    hr, hz, hn = torch.addmm(bias_hh, state, weight_hh.t()).chunk(3, -1)
    z = (xz + hz).sigmoid()
    n = (xn + (xr + hr).sigmoid() * hn).tanh()
    return n + z * (state - n)


def recur(
    x: torch.Tensor,
    state: torch.Tensor,
    keep: torch.Tensor,
    weight_ih: torch.Tensor,
    weight_hh: torch.Tensor,
    bias_ih: torch.Tensor,
    bias_hh: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """x [T, B, inputs], state [B, S], keep [T, B] -> (h [T, B, H], the state behind the last row
    [B, S])."""
    step = lstm_step if gates_of(weight_hh) == LSTM_GATES else gru_step
    size, outputs = weight_hh.shape[1], []
    by_input = torch.nn.functional.linear(x, weight_ih, bias_ih)
    for t in range(x.shape[0]):
        state = step(by_input[t], state * keep[t][:, None], weight_hh, bias_hh)
        outputs.append(state[:, :size])
    return torch.stack(outputs), state


# compiled


@kernel
def times(m, n, depth, a, ra, ca, b, c):
    """c [m, n] = a·b, b [depth, n]; a[i, k] is a[i·ra + k·ca]."""
    nothing = on_stack(1, np.float32)
    nothing[0] = np.float32(0)
    product(m, n, depth, a, ra, ca, b, c, nothing, SAME, NO_FLOOR)


@kernel
def sigmoid_of(size, x):
    """x ← σ(x) = (1 + tanh(x / 2)) / 2."""
    half = np.float32(0.5)
    for i in range(size):
        x[i] = half + half * tanh(half * x[i])


@kernel
def tanh_of(size, x):
    for i in range(size):
        x[i] = tanh(x[i])


@kernel
def column_sums(rows, columns, x, out):
    for j in range(columns):
        out[j] = np.float32(0)
    for i in range(rows):
        for j in range(columns):
            out[j] += x[i * columns + j]


@kernel
def lstm_gates(size, gate, by_hidden, bias, before_c, cell, h):
    """Of one lane: gates [4H] from what the input gave, in place; c and h."""
    for j in range(4 * size):
        gate[j] += by_hidden[j] + bias[j] + bias[4 * size + j]
    sigmoid_of(2 * size, gate)
    tanh_of(size, at(gate, 2 * size))
    sigmoid_of(size, at(gate, 3 * size))
    for j in range(size):
        cell[j] = gate[size + j] * before_c[j] + gate[j] * gate[2 * size + j]
        h[j] = gate[3 * size + j] * tanh(cell[j])


@kernel
def gru_gates(size, gate, by_hidden, bias, before_h, cell, h):
    """The same of a GRU: `cell` is U h + b' of n."""
    for j in range(2 * size):
        gate[j] += by_hidden[j] + bias[j] + bias[3 * size + j]
    sigmoid_of(2 * size, gate)
    for j in range(size):
        k = 2 * size + j
        cell[j] = by_hidden[k] + bias[3 * size + k]
        gate[k] = tanh(gate[k] + bias[k] + gate[j] * cell[j])
        h[j] = gate[k] + gate[size + j] * (before_h[j] - gate[k])


def memory_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """Parameters, sizes, rows, states, keeps, and room for what the backward pass needs: gates,
    cells, states before, outputs."""
    for gates in (GRU_GATES, LSTM_GATES):
        for steps, lanes, inputs, size in (
            (1, 1, 1, 1),
            (3, 2, 3, 5),
            (5, 8, 9, 16),
            (7, 3, 2, 33),
            (32, 8, 64, 64),
        ):
            wide, kinds, rows = gates * size, gates - 2, steps * lanes
            flat = rng.normal(size=wide * (inputs + size + 2)).astype(dtype) / 4
            keep = (rng.random((steps, lanes)) > 0.2).astype(dtype)
            room = [np.zeros((rows, width), dtype) for width in (wide, size, size, size, size)]
            yield (
                flat,
                np.array([inputs, size, gates]),
                rng.normal(size=(rows, inputs)).astype(dtype),
                rng.normal(size=(lanes, kinds * size)).astype(dtype),
                keep,
                np.zeros(wide * (inputs + size + lanes), dtype),
                *room,
            )


def by_autograd(flat: Any, sizes: Any, x: Any, state: Any, keep: Any) -> tuple[Any, ...]:
    """Parameters and rows that gradients are asked of, outputs and states behind the last rows."""
    inputs, size, gates = sizes.tolist()
    wide = gates * size
    parameters, rows = (torch.from_numpy(array.copy()).requires_grad_() for array in (flat, x))
    weight_ih, weight_hh, *biases = parameters.split([wide * inputs, wide * size, wide, wide])
    sequences = rows.view(*keep.shape, inputs)
    start, kept = torch.from_numpy(state), torch.from_numpy(keep)
    weights = weight_ih.view(wide, inputs), weight_hh.view(wide, size)
    return parameters, rows, *recur(sequences, start, kept, *weights, *biases)


def memory_forward_reference(flat, sizes, x, state, keep, *room):
    _, _, h, last = by_autograd(flat, sizes, x, state, keep)
    return h.flatten(0, 1), last


@pair(memory_forward_reference, memory_examples, rtol=1e-4, atol=1e-5)
@kernel
def memory_forward(flat, sizes, x, state, keep, scratch, gate, cell, before_h, before_c, h):
    """Outputs into `h` [T·B, H]; `state` becomes that behind the last rows. Gates, cells and the
    states before every row are kept for the backward pass. `scratch` has room for gates · H times
    inputs + H + B."""
    steps, lanes = keep.shape
    inputs, size, count = sizes[0], sizes[1], sizes[2]
    wide = count * size
    turned, by_hidden = at(scratch, wide * inputs), at(scratch, wide * (inputs + size))
    bias = at(flat, wide * (inputs + size))
    turn(wide, inputs, at(flat, 0), at(scratch, 0))
    turn(wide, size, at(flat, wide * inputs), turned)
    times(steps * lanes, wide, inputs, at(x, 0), inputs, NEXT, at(scratch, 0), at(gate, 0))
    for t in range(steps):
        first = t * lanes
        for b in range(lanes):
            for j in range(size):
                before_h[first + b, j] = state[b, j] * keep[t, b]
            if count == LSTM_GATES:
                for j in range(size):
                    before_c[first + b, j] = state[b, size + j] * keep[t, b]
        times(lanes, wide, size, at(before_h, first * size), size, NEXT, turned, by_hidden)
        for b in range(lanes):
            row = first + b
            gates, added = at(gate, row * wide), at(by_hidden, b * wide)
            out = at(h, row * size)
            if count == LSTM_GATES:
                past = at(before_c, row * size)
                lstm_gates(size, gates, added, bias, past, at(cell, row * size), out)
                for j in range(size):
                    state[b, size + j] = cell[row, j]
            else:
                past = at(before_h, row * size)
                gru_gates(size, gates, added, bias, past, at(cell, row * size), out)
            for j in range(size):
                state[b, j] = h[row, j]
    return h, state


@kernel
def lstm_slopes(size, gate, cell, before_c, by_h, by_c, slope):
    """Of one lane: ∂L/∂(sums of the gates) into `slope` [4H]; `by_c` becomes that by c before."""
    one = np.float32(1)
    for j in range(size):
        i, f, g, o = gate[j], gate[size + j], gate[2 * size + j], gate[3 * size + j]
        out = tanh(cell[j])
        through = by_c[j] + by_h[j] * o * (one - out * out)
        slope[j] = through * g * i * (one - i)
        slope[size + j] = through * before_c[j] * f * (one - f)
        slope[2 * size + j] = through * i * (one - g * g)
        slope[3 * size + j] = by_h[j] * out * o * (one - o)
        by_c[j] = through * f


@kernel
def gru_slopes(size, gate, cell, before_h, by_h, slope, by_hidden):
    """The same of a GRU: the sums of n depend on h through U h + b' alone, whose slopes stand in
    `by_hidden`; `by_h` becomes the part of ∂L/∂h before that goes past the gates."""
    one = np.float32(1)
    for j in range(size):
        r, z, n = gate[j], gate[size + j], gate[2 * size + j]
        by_n = by_h[j] * (one - z) * (one - n * n)
        slope[j] = by_hidden[j] = by_n * cell[j] * r * (one - r)
        slope[size + j] = by_hidden[size + j] = by_h[j] * (before_h[j] - n) * z * (one - z)
        slope[2 * size + j] = by_n
        by_hidden[2 * size + j] = by_n * r
        by_h[j] *= z


def backward_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for flat, sizes, x, state, keep, scratch, *room in memory_examples(rng, dtype):
        start = state.copy()
        memory_forward(flat, sizes, x, state, keep, scratch, *room)
        gate, cell, before_h, before_c, h = room
        slopes = np.zeros((2, *gate.shape), dtype)
        past = np.zeros((3, len(state), sizes[1]), dtype)
        by_h = rng.normal(size=h.shape).astype(dtype)
        kept = (gate, cell, before_h, before_c)
        yield flat, sizes, x, keep, *kept, by_h, slopes, past, np.zeros_like(x), flat * 0, start


def memory_backward_reference(flat, sizes, x, keep, *more):
    """∂/∂x and ∂/∂θ of Σ h · (the derivative by h), by autograd."""
    by_h, start = more[4], more[-1]
    parameters, rows, h, _ = by_autograd(flat, sizes, x, start, keep)
    h.backward(torch.from_numpy(by_h).view_as(h))
    return rows.grad, parameters.grad


@pair(memory_backward_reference, backward_examples, rtol=1e-4, atol=2e-5)
@kernel
def memory_backward(
    flat, sizes, x, keep, gate, cell, before_h, before_c, by_h, slopes, past, by_x, grad, start
):
    """The derivative by x into `by_x`, gradients by all parameters into `grad`, from that by h
    [T·B, H], which is lost. `slopes` [2, T·B, gates·H] and `past` [3, B, H] are scratch. `start` is
    not read: the state in front of the first row is a constant."""
    steps, lanes = keep.shape
    inputs, size, count = sizes[0], sizes[1], sizes[2]
    wide, rows = count * size, steps * lanes
    second = slopes[0] if count == LSTM_GATES else slopes[1]
    by_state, by_c, passed = past[0], past[1], past[2]
    by_state[:], by_c[:], passed[:] = 0, 0, 0
    for t in range(steps - 1, -1, -1):
        first = t * lanes
        for b in range(lanes):
            row = first + b
            for j in range(size):
                by_h[row, j] += by_state[b, j] + passed[b, j]
            gates, slope = at(gate, row * wide), at(slopes, row * wide)
            by, cells = at(by_h, row * size), at(cell, row * size)
            if count == LSTM_GATES:
                lstm_slopes(
                    size, gates, cells, at(before_c, row * size), by, at(by_c, b * size), slope
                )
            else:
                behind = at(second, row * wide)
                gru_slopes(size, gates, cells, at(before_h, row * size), by, slope, behind)
                for j in range(size):
                    passed[b, j] = by_h[row, j] * keep[t, b]
        times(
            lanes,
            size,
            wide,
            at(second, first * wide),
            wide,
            NEXT,
            at(flat, wide * inputs),
            at(by_state, 0),
        )
        for b in range(lanes):
            for j in range(size):
                by_state[b, j] *= keep[t, b]
                by_c[b, j] *= keep[t, b]
    times(wide, inputs, rows, at(slopes, 0), NEXT, wide, at(x, 0), at(grad, 0))
    times(wide, size, rows, at(second, 0), NEXT, wide, at(before_h, 0), at(grad, wide * inputs))
    column_sums(rows, wide, at(slopes, 0), at(grad, wide * (inputs + size)))
    column_sums(rows, wide, at(second, 0), at(grad, wide * (inputs + size + 1)))
    times(rows, inputs, wide, at(slopes, 0), wide, NEXT, at(flat, 0), at(by_x, 0))
    return by_x, grad

"""What `ops.mlp` does, for wide networks and large batches: in pieces that a team of threads takes.

Forward, and back from outputs to inputs, a piece is a block of a batch's items through all layers,
since items never meet. A gradient by weights is cut into rectangles of its own numbers, each a sum
over all items. So no sum is split: every number is that of `ops.mlp` to the last bit (but where
that leaves a product to BLAS). Pieces follow from sizes alone, so no number depends on how many
threads there are.

Several networks of the same sizes, such as two critics, learn from one batch side by side: their
parameters lie one after another in `flat`, and each has a row of `layers`, what `ops.mlp` calls
`hidden`, and of `delta`. A team of no threads is that of networks that are not wide: then `ops.mlp`
does all, one network after another.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.core.work import BLOCK, THREADS, bounds_of, pieces_of, share_work, team_of
from tenfold.ops.activations import (
    GELU,
    LEAKY_RELU,
    RELU,
    SELU,
    SILU,
    activate,
    through_activation,
)
from tenfold.ops.mlp import (
    kept_at,
    layer_total,
    mlp_backward,
    mlp_backward_reference,
    mlp_forward,
    mlp_forward_reference,
    output_total,
    parameter_count,
    parameter_total,
)
from tenfold.ops.products import (
    FEATURES,
    LISTED,
    NEXT,
    NO_FLOOR,
    SAME,
    by_tiles,
    layer_by_bias,
    layer_by_weight,
    turn_part,
)
from tenfold.ops.tiles import LANES, at, on_stack

PANEL, CHUNK = 32, 126  # columns and rows of a rectangle of weights: whole tiles
# multiplications of a layer for a batch from which pieces are worth that threads wait for others
WIDE_LAYER = 1 << 21


def are_wide(rows: int, *networks: Any) -> bool:
    """Whether networks of these sizes are worth being split for so many items."""
    layers = [layer for sizes in networks for layer in pairwise(np.asarray(sizes).tolist())]
    largest, widest = max(into * out for into, out in layers), max(max(layer) for layer in layers)
    by_vectors = bool({"fma", "neon"} & FEATURES)  # else BLAS is faster
    fits = max(rows, widest) <= LISTED
    return by_vectors and fits and rows >= 2 * BLOCK and rows * largest >= WIDE_LAYER


def scratch_size(sizes: Any, rows: int) -> int:
    """Numbers of scratch for the gradient of one of such networks."""
    sizes = np.asarray(sizes)
    return rows * int(np.maximum(sizes[:-1], sizes[1:]).sum())


@kernel
def scratch_total(sizes, rows):
    """The same inside compiled code."""
    total = 0
    for i in range(sizes.size - 1):
        total += rows * max(sizes[i], sizes[i + 1])
    return total


@kernel
def activate_part(count, rows, width, h, activation, kept):
    """`activate` of so many columns."""
    for k in range(0 if activation == RELU else width):
        activate(count, at(h, k * rows), activation, kept)


@kernel
def through_part(count, rows, width, delta, h, activation, kept):
    """`through_activation` of so many columns."""
    for k in range(width):
        through_activation(count, at(delta, k * rows), at(h, k * rows), activation, kept)


@kernel
def first_output(network, layers, sizes, rows):
    """Where a network's outputs begin in `layers`: they end with its row."""
    return (network + 1) * layers.shape[1] - rows * output_total(sizes)


# forward


@kernel
def forward_block(index, blocks, flat, sizes, activation, x, layers):
    """A block of items through all layers of a network."""
    network, block, rows = index // blocks, index % blocks, x.shape[1]
    used, offset = network * parameter_total(sizes), first_output(network, layers, sizes, rows)
    last, kept = sizes.size - 2, kept_at(activation, rows, sizes, layers.shape[1])
    first, count = bounds_of(block, rows, BLOCK)
    below = at(x, first)
    for i in range(last + 1):
        into, out = sizes[i], sizes[i + 1]
        weight, bias, above = (
            at(flat, used),
            at(flat, used + out * into),
            at(layers, offset + first),
        )
        floor = np.float32(0) if activation == RELU and i < last else NO_FLOOR
        by_tiles(out, count, into, weight, into, NEXT, below, rows, above, rows, bias, NEXT, floor)
        if i < last:
            activate_part(count, rows, out, above, activation, kept)
        below = above
        used += out * (into + 1)
        offset += rows * out


@kernel
def forward_all(team, flat, sizes, activation, x, layers):
    """`mlp_forward` of as many networks as `layers` has rows; outputs are at their ends."""
    rows, size = x.shape[1], parameter_total(sizes)
    if team[THREADS] == 0 or rows < BLOCK:
        for n in range(layers.shape[0]):
            mlp_forward(flat[n * size : (n + 1) * size], sizes, activation, x, layers[n])
    else:
        blocks = pieces_of(rows, BLOCK)
        arguments = (blocks, flat, sizes, activation, x, layers)
        share_work(team, layers.shape[0] * blocks, forward_block, arguments)


@kernel
def output_of(layers, network, sizes, rows):
    """The output [out, B] of a network."""
    outputs = sizes[sizes.size - 1]
    return layers[network, layers.shape[1] - rows * outputs :].reshape(outputs, rows)


@kernel
def forward(team, flat, sizes, activation, x, hidden):
    """`mlp_forward`."""
    layers = hidden.reshape(1, hidden.size)
    forward_all(team, flat, sizes, activation, x, layers)
    return output_of(layers, 0, sizes, x.shape[1])


# back


@kernel
def back_through(first, count, rows, weights, sizes, activation, hidden, delta, kept):
    """Derivatives by the outputs of all layers but the last, of so many items."""
    used, offset = parameter_total(sizes), rows * output_total(sizes)
    nothing = on_stack(1, np.float32)
    nothing[0] = np.float32(0)
    for i in range(sizes.size - 2, 0, -1):
        into, out = sizes[i], sizes[i + 1]
        used -= out * (into + 1)
        offset -= rows * out
        by_y, by_x = at(delta, offset + first), at(delta, offset - rows * into + first)
        weight, below = at(weights, used), at(hidden, offset - rows * into + first)
        by_tiles(
            into, count, out, weight, NEXT, into, by_y, rows, by_x, rows, nothing, SAME, NO_FLOOR
        )
        through_part(count, rows, into, by_x, below, activation, kept)


@kernel
def backward_block(index, blocks, flat, sizes, activation, x, layers, delta, turned):
    """Derivatives of a block of items, and the inputs of every layer transposed: [items, inputs] in
    panels of columns, one behind the other, layer after layer."""
    network, block, rows = index // blocks, index % blocks, x.shape[1]
    first, count = bounds_of(block, rows, BLOCK)
    start, weights = (
        first_output(network, layers, sizes, rows),
        at(flat, network * parameter_total(sizes)),
    )
    kept = kept_at(activation, rows, sizes, layers.shape[1])
    hidden, target = at(layers, start), at(turned, network * scratch_total(sizes, rows))
    back_through(first, count, rows, weights, sizes, activation, hidden, at(delta, start), kept)
    used, offset = 0, 0
    for i in range(sizes.size - 1):
        into, panels = sizes[i], pieces_of(sizes[i], PANEL)
        inputs = at(hidden, offset - rows * into + first) if i else at(x, first)
        for panel in range(panels if into >= LANES else 0):
            left, width = bounds_of(panel, into, PANEL)
            place = at(target, used + left * rows + first * width)
            turn_part(width, count, at(inputs, left * rows), rows, place, width)
        used += rows * max(into, sizes[i + 1])
        offset += rows * sizes[i + 1]


@kernel
def rectangles(into, out):
    """(panels, chunks) of a layer's weights."""
    return (pieces_of(into, PANEL), pieces_of(out, CHUNK)) if into >= LANES else (1, 1)


@kernel
def rectangle_total(sizes):
    """Rectangles of all layers."""
    total = 0
    for i in range(sizes.size - 1):
        panels, chunks = rectangles(sizes[i], sizes[i + 1])
        total += panels * chunks
    return total


@kernel
def weight_rectangle(index, total, sizes, rows, x, layers, delta, turned, grad):
    """One of all layers' rectangles of a network's gradient; with the first of a row of them the
    gradient by its biases."""
    network, index, i = index // total, index % total, 0
    used, offset = network * parameter_total(sizes), first_output(network, layers, sizes, rows)
    scratch = network * scratch_total(sizes, rows)
    panels, chunks = rectangles(sizes[0], sizes[1])
    while index >= panels * chunks:
        index -= panels * chunks
        used += (sizes[i] + 1) * sizes[i + 1]
        offset += rows * sizes[i + 1]
        scratch += rows * max(sizes[i], sizes[i + 1])
        i += 1
        panels, chunks = rectangles(sizes[i], sizes[i + 1])
    into, out, panel, chunk = sizes[i], sizes[i + 1], index // chunks, index % chunks
    above, height = bounds_of(chunk, out, CHUNK if chunks > 1 else out)
    left, width = bounds_of(panel, into, PANEL)
    by_y = at(delta, offset + above * rows)
    if panel == 0:
        layer_by_bias(height, rows, by_y, at(grad, used + out * into + above))
    if into < LANES:  # columns too few for a vector
        inputs = at(layers, offset - rows * into) if i else at(x, 0)
        layer_by_weight(out, rows, into, by_y, inputs, at(turned, scratch), at(grad, used))
        return
    nothing = on_stack(1, np.float32)
    nothing[0] = np.float32(0)
    b, c = at(turned, scratch + left * rows), at(grad, used + above * into + left)
    by_tiles(height, width, rows, by_y, rows, NEXT, b, width, c, into, nothing, SAME, NO_FLOOR)


@kernel
def backward_all(team, flat, sizes, activation, x, layers, delta, turned, grad):
    """`mlp_backward` of as many networks as `layers` has rows; for each of them, if they are wide,
    `turned` has room for `scratch_size`."""
    rows, size = x.shape[1], parameter_total(sizes)
    if team[THREADS] == 0 or rows < BLOCK:
        for n in range(layers.shape[0]):
            first, last = n * size, (n + 1) * size
            arguments = (layers[n], delta[n], turned, grad[first:last])
            mlp_backward(flat[first:last], sizes, activation, x, *arguments)
    else:
        networks, blocks, total = layers.shape[0], pieces_of(rows, BLOCK), rectangle_total(sizes)
        blocks_of = (blocks, flat, sizes, activation, x, layers, delta, turned)
        share_work(team, networks * blocks, backward_block, blocks_of)
        rectangles_of = (total, sizes, rows, x, layers, delta, turned, grad)
        share_work(team, networks * total, weight_rectangle, rectangles_of)


@kernel
def backward(team, flat, sizes, activation, x, hidden, delta, turned, grad):
    """`mlp_backward`."""
    layers, by_layers = hidden.reshape(1, hidden.size), delta.reshape(1, delta.size)
    backward_all(team, flat, sizes, activation, x, layers, by_layers, turned, grad)


# the pairs: wide networks, and batches whose blocks are of unequal sizes


def split_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """What `mlp_examples` yields, for two networks: `layers` and `delta` have a row for each."""
    for activation, sizes, rows in (
        (0, (17, 96, 200, 12), 64),
        (1, (9, 193, 40, 1), 37),
        (2, (4, 70, 5, 33), 100),
        (0, (33, 2), 32),
        (0, (8, 64, 64, 2), 1),
        (GELU, (9, 96, 70, 3), 37),
        (SILU, (5, 130, 6), 64),
        (SELU, (6, 20, 33, 2), 40),
        (LEAKY_RELU, (7, 64, 5), 33),
    ):
        numbers = rows * layer_total(np.array(sizes), activation)
        by_output = np.zeros((2, numbers), dtype)
        by_output[:, numbers - rows * sizes[-1] :] = rng.normal(size=(2, rows * sizes[-1]))
        flat = rng.normal(size=2 * parameter_count(sizes)).astype(dtype) / 3
        flat[sizes[0] * sizes[1] : (sizes[0] + 1) * sizes[1] : 3] = -100  # never fire with ReLU
        yield (
            flat,
            np.array(sizes),
            activation,
            rng.normal(size=(sizes[0], rows)).astype(dtype),
            np.zeros((2, numbers), dtype),
            by_output,
        )


def split_networks_reference(flat, sizes, activation, x, layers, delta):
    """(outputs, gradients) of one network after another."""
    outputs, gradients = [], []
    for part, hidden, by_layers in zip(np.split(flat, 2), layers, delta, strict=True):
        outputs.append(mlp_forward_reference(part, sizes, activation, x, hidden))
        arguments = (x, hidden, by_layers, None, None)
        gradients.append(mlp_backward_reference(part, sizes, activation, *arguments))
    return torch.stack(outputs), torch.cat(gradients)


@pair(split_networks_reference, split_examples, rtol=1e-4, atol=1e-4)
def split_networks(flat, sizes, activation, x, layers, delta):
    """By three threads."""
    team, rows = team_of(3), x.shape[1]
    turned, grad = np.zeros(2 * scratch_size(sizes, rows), np.float32), np.ones_like(flat)
    forward_all(team, flat, sizes, activation, x, layers)
    outputs = layers[:, layers.shape[1] - rows * sizes[-1] :].reshape(2, sizes[-1], rows).copy()
    backward_all(team, flat, sizes, activation, x, layers, delta, turned, grad)
    return outputs, grad

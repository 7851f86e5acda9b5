"""`ops.sampling` in Triton: the sum tree, whose leaves are written and looked up together, level by
level, inside other kernels or in a launch of their own; and permutations, each thread one
index of it."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from tenfold.ops import sampling
from tenfold.ops.device.language import (
    LaunchedKernel,
    bits,
    device,
    device_pair,
    gpu_kernel,
    key_tensor,
)
from tenfold.ops.sampling import (
    find_examples,
    find_reference,
    put_reference,
    tree_examples,
)

# leaves that are compared with one another; that are summed above together; that a program finds
CHUNK, WIDE, SIZE = 64, 1024, 128


@gpu_kernel
def put(tree, half: tl.constexpr, leaf, value, valid):
    """Sets leaves, and the sums above them anew. Of equal leaves at most one may be `valid`."""
    node, level = half + leaf, tl.full((), half, tl.int32)
    tl.store(tree + node, value, mask=valid)
    while level > 1:
        tl.debug_barrier()
        node, level = node // 2, level // 2
        left = tl.load(tree + 2 * node, mask=valid, other=0.0)
        right = tl.load(tree + 2 * node + 1, mask=valid, other=0.0)
        tl.store(tree + node, left + right, mask=valid)
    tl.debug_barrier()


@gpu_kernel
def find(tree, half, mass):
    """The leaf i with Σ_{j<i} p_j ≤ mass < Σ_{j≤i} p_j; a subtree of zero mass is never
    entered."""
    node, level = (mass * 0.0).to(tl.int32) + 1, tl.full((), 0, tl.int32) + half
    while level > 1:
        left = tl.load(tree + 2 * node)
        right = (mass >= left) & (tl.load(tree + 2 * node + 1) > 0)
        mass = tl.where(right, mass - left, mass)
        node, level = 2 * node + right.to(tl.int32), level // 2
    return node - half


@gpu_kernel
def is_last(leaf, valid, SIZE: tl.constexpr):
    """Whether no later item has the same leaf."""
    i = tl.arange(0, SIZE)
    same = (leaf[:, None] == leaf[None, :]) & (i[None, :] > i[:, None]) & valid[None, :]
    return tl.sum(same.to(tl.int32), 1) == 0


# launches


@LaunchedKernel
def put_kernel(tree, leaf, value, half, count, CHUNK: tl.constexpr, WIDE: tl.constexpr):
    """One program: leaves in their order, of equal ones the last counts; then the sums above them,
    level by level."""
    for first in range(0, count, CHUNK):
        item = first + tl.arange(0, CHUNK)
        valid = item < count
        target = tl.load(leaf + item, mask=valid, other=-1)
        last = valid & is_last(target, valid, CHUNK)
        tl.store(tree + half + target, tl.load(value + item, mask=valid, other=0.0), mask=last)
        tl.debug_barrier()
    level, shift = tl.full((), 0, tl.int32) + half, tl.full((), 0, tl.int32)
    while level > 1:
        level, shift = level // 2, shift + 1
        for first in range(0, count, WIDE):
            item = first + tl.arange(0, WIDE)
            valid = item < count
            node = (half + tl.load(leaf + item, mask=valid, other=0)) >> shift
            left = tl.load(tree + 2 * node, mask=valid, other=0.0)
            right = tl.load(tree + 2 * node + 1, mask=valid, other=0.0)
            tl.store(tree + node, left + right, mask=valid)
        tl.debug_barrier()


@LaunchedKernel
def find_kernel(
    tree, inputs, leaf, priority, half, count, SHARES: tl.constexpr, SIZE: tl.constexpr
):
    """`inputs` are masses, or with SHARES uniform numbers: item i then falls into the i-th of
    `count` equal parts of the whole mass."""
    item = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    valid = item < count
    mass = tl.load(inputs + item, mask=valid, other=0.0)
    if SHARES:
        mass = (item.to(tl.float64) + mass) / count.to(tl.float64) * tl.load(tree + 1)
    index = find(tree, half, tl.where(valid, mass, 0.0))
    tl.store(leaf + item, index.to(tl.int64), mask=valid)
    tl.store(priority + item, tl.load(tree + half + index, mask=valid, other=0.0), mask=valid)


def put_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """Those of `ops.sampling`, and more leaves than are compared with one another."""
    yield from tree_examples(rng, dtype)
    tree = np.zeros(64)
    yield tree, rng.integers(0, 30, 150), rng.integers(0, 50, 150).astype(np.float64)


@device_pair(put_reference, put_examples, "ops.device.sampling.put")
def put_leaves(tree: torch.Tensor, leaf: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """`ops.sampling.put` on the GPU: tree [2·size] and value [B] float64, leaf [B] int64."""
    put_kernel((1, 1, 1), (tree, leaf, value, len(tree) // 2, len(leaf)), (CHUNK, WIDE))
    return tree


def find_leaves(
    tree: torch.Tensor, inputs: torch.Tensor, shares: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """(leaf, its priority) of masses [B] float64; with `shares` of uniform numbers, the i-th of
    which falls into the i-th of B equal parts of the whole mass."""
    leaf = torch.empty(len(inputs), dtype=torch.int64, device=tree.device)
    priority, count = torch.empty_like(inputs), len(inputs)
    arguments = tree, inputs, leaf, priority, len(tree) // 2, count
    find_kernel((-(-count // SIZE), 1, 1), arguments, (shares, SIZE))
    return leaf, priority


def sample_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for tree, _, _ in tree_examples(rng, dtype):
        for size in (1, 33, 100):
            yield tree, rng.random(size)


def sample_reference(tree, u):
    leaf = tree[len(tree) // 2 :]
    index = find_reference(tree, (np.arange(len(u)) + u) / len(u) * leaf.sum())
    return index, leaf[index]


@device_pair(find_reference, find_examples, "ops.device.sampling.find")
def find_by_mass(tree, mass):
    return find_leaves(tree, mass)[0]


@device_pair(sample_reference, sample_examples, "ops.device.sampling.sample")
def find_by_shares(tree, u):
    return find_leaves(tree, u, shares=True)


ROUNDS = tl.constexpr(sampling.ROUNDS)


@gpu_kernel
def through(x, stream, first, UPPER: tl.constexpr, LOWER: tl.constexpr):
    """All rounds of places x, uint64; `first` is the number of the permutation's first draw."""
    left, right = x >> LOWER, x & ((1 << LOWER) - 1)
    for r in tl.static_range(0, 2 * ROUNDS, 4):
        left = left ^ (
            ((bits(stream, first + r) | 1) * right + bits(stream, first + r + 1)) >> (64 - UPPER)
        )
        right = right ^ (
            ((bits(stream, first + r + 2) | 1) * left + bits(stream, first + r + 3)) >> (64 - LOWER)
        )
    return (left << LOWER) | right


@gpu_kernel
def places(item, stream, count, N: tl.constexpr, UPPER: tl.constexpr, LOWER: tl.constexpr):
    """Where the places `item` [rows] of permutation number `count` of N come from, int64. Halves
    of UPPER and LOWER bits are those of `split_bits`."""
    first = count * (2 * ROUNDS)
    x = through(item.to(tl.uint64), stream, first, UPPER, LOWER)
    if (1 << (UPPER + LOWER)) > N:
        while tl.sum((x >= N).to(tl.int32), 0) > 0:
            x = tl.where(x >= N, through(x, stream, first, UPPER, LOWER), x)
    return x.to(tl.int64)


@gpu_kernel
def order_kernel(
    stream, count, out, N: tl.constexpr, UPPER: tl.constexpr, LOWER: tl.constexpr, PAD: tl.constexpr
):
    item = tl.arange(0, PAD)
    valid = item < N
    sources = places(tl.where(valid, item, 0), tl.load(stream), tl.load(count), N, UPPER, LOWER)
    tl.store(out + item, sources, mask=valid)


@device_pair(sampling.shuffle_reference, sampling.shuffle_examples, "ops.device.sampling.shuffle")
def shuffle_on_device(stream: Any, count: int, order: Any) -> torch.Tensor:
    size = len(order)
    out = torch.zeros(size, dtype=torch.int64, device=device())
    number = torch.tensor([count], device=device())
    upper, lower = sampling.split_bits(size)
    order_kernel[(1,)](
        key_tensor([stream], device()),
        number,
        out,
        size,
        upper,
        lower,
        triton.next_power_of_2(size),
    )
    return out

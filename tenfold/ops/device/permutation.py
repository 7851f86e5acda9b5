"""`ops.permutation` in Triton: where places of a permutation come from, each thread its own."""

from typing import Any

import torch
import triton
import triton.language as tl

from tenfold.core.pairs import pair
from tenfold.ops import permutation as plain
from tenfold.ops.device.language import available, bits, device, gpu_kernel, words

ROUNDS = tl.constexpr(plain.ROUNDS)


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
    there = item < N
    found = places(tl.where(there, item, 0), tl.load(stream), tl.load(count), N, UPPER, LOWER)
    tl.store(out + item, found, mask=there)


@pair(
    plain.shuffle_reference,
    plain.shuffle_examples,
    name="ops.device.permutation.places",
    when=available,
)
def shuffle_on_device(stream: Any, count: int, order: Any) -> torch.Tensor:
    size = len(order)
    out = torch.zeros(size, dtype=torch.int64, device=device())
    number = torch.tensor([count], device=device())
    upper, lower = plain.split_bits(size)
    order_kernel[(1,)](
        words([stream], device()), number, out, size, upper, lower, triton.next_power_of_2(size)
    )
    return out

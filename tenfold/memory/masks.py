"""Masks of allowed actions in a replay memory: a row beside every row of observations, that of the
TRUE final observation included. `[rows, 0]` where the environment offers none."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.memory.gathering import ahead, gather_examples, gather_reference
from tenfold.memory.rows import copy_row


@kernel
def add_masks(mask, head, first_lane, terminated, truncated, skipped, new_mask, final_mask):
    """The masks of the observations that `add_rows` is about to write, in the same places."""
    length = mask.shape[0] // head.size
    for i in range(skipped.size):
        lane = first_lane + i
        base, h = lane * length, head[lane]
        if not skipped[i]:
            h += 1
            if terminated[i] or truncated[i]:
                copy_row(mask, base + h % length, final_mask, i)
                h += 1
        copy_row(mask, base + h % length, new_mask, i)


def mask_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for row, length, n_step, frames, _, stored, *_ in gather_examples(rng, dtype):
        if frames == 1:
            mask = rng.random((len(stored.kind), 3)) < 0.5
            yield row, length, n_step, stored.kind, mask, np.zeros((len(row), 3), np.bool_)


def gather_masks_reference(row, length, n_step, kind, mask, out):
    """The masks as if they were observations."""
    zeros, floats = np.zeros(len(row), np.int64), np.zeros(len(row))
    stored = (mask, np.zeros(len(kind), np.int64), np.zeros(len(kind)), kind)
    *_, found = gather_reference(
        row, length, n_step, 1, 1.0, stored, out.copy(), zeros, floats, floats.copy(), out.copy()
    )
    return found


@pair(gather_masks_reference, mask_examples)
@kernel
def gather_masks(row, length, n_step, kind, mask, out):
    """The masks of the states that a batch's returns end in."""
    for item in range(row.size):
        place = row[item]
        lane = 0 if place < length else place // length * length
        # any array of numbers will do for rewards, whose sum is not looked at
        _, _, place = ahead(place, lane, length, n_step, 1.0, kind, kind)
        copy_row(out, item, mask, place)
    return out

"""Drawing and scoring actions of masked heads in compiled code, without torch and without an
allocation.

The functions on `HeadTables` look at shapes and raise; the kernels they call are for use inside
other kernels, and return what went wrong as a number. The references are those of `MaskedHeads`.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.ops.head_tables import (
    EMPTY,
    FAULTS,
    FINE,
    LOWEST,
    NOT_FINITE,
    NOT_UNIFORM,
    OUT_OF_RANGE,
    RAISE,
    HeadTables,
)
from tenfold.ops.heads import MaskedHeads, log_prob_reference, policies, sample_reference

MINUS_INFINITY, LEAST = np.float32(-np.inf), np.float32(-87)
PER_LN_2 = np.float32(1 / math.log(2))
ROUNDER = np.float32(1.5 * 2**23)  # added and taken away again it leaves a whole number
LN_2_UPPER = np.float32(710 / 1024)  # few bits, so that its product with k is exact
LN_2_LOWER = np.float32(math.log(2) - 710 / 1024)
ONE, E2, E3, E4, E5, E6, E7 = (np.float32(1 / math.factorial(k)) for k in range(1, 8))


@kernel(inline="always")
def exponentials(x, bits):
    """x ← exp(x) for x ≤ 0, and 0 below LEAST: 2ᵏ·eʳ with x = k·ln 2 + r, |r| ≤ ½ ln 2, eʳ by its
    series. A plain loop over np.exp calls the library once a number; this one is vectorised.
    Relative error below 3e-7."""
    scale = bits.view(np.float32)
    for m in range(x.size):
        clipped = max(x[m], LEAST)
        k = (clipped * PER_LN_2 + ROUNDER) - ROUNDER
        r = (clipped - k * LN_2_UPPER) - k * LN_2_LOWER
        series = ONE + r * (ONE + r * (E2 + r * (E3 + r * (E4 + r * (E5 + r * (E6 + r * E7))))))
        bits[m] = (np.int32(k) + np.int32(127)) << np.int32(23)  # the float 2ᵏ
        x[m] = series if x[m] > LEAST else np.float32(0)
    for m in range(x.size):
        x[m] *= scale[m]


@kernel(inline="always")
def weigh(logits, mask, b, offsets, fallback, weight, bits, highest):
    """exp(x − max) of row b's options into `weight`, 0 where forbidden, and each component's
    maximum into `highest`. Of an empty component the fallback is left. Returns a fault or FINE. No
    branch depends on the mask: a processor would guess wrong at every second option of a random
    one."""
    off = 0
    for m in range(logits.shape[1]):
        x = logits[b, m]
        # counted as integers, which a processor adds in any order
        off += np.int32(not abs(x) <= -LOWEST)
        weight[m] = x if mask[b, m] else MINUS_INFINITY
    for i in range(offsets.size - 1):
        most = MINUS_INFINITY
        for m in range(offsets[i], offsets[i + 1]):
            most = max(most, weight[m])
        if most == MINUS_INFINITY and off == 0:
            if fallback[i] < 0:
                return i * 4 + EMPTY
            most = logits[b, offsets[i] + fallback[i]]
            weight[offsets[i] + fallback[i]] = most
        highest[i] = most
        for m in range(offsets[i], offsets[i + 1]):
            weight[m] -= most
    if off != 0:
        for i in range(offsets.size - 1):
            for m in range(offsets[i], offsets[i + 1]):
                if not np.isfinite(logits[b, m]):
                    return i * 4 + NOT_FINITE
    exponentials(weight, bits)
    return FINE


@kernel
def draw_heads(logits, mask, uniform, offsets, fallback, weight, bits, actions, log_prob):
    """For use inside other kernels: writes `actions` [B, C] and each component's log-probability.
    Returns FINE, or where it stopped and why: (row·C + component)·4 + fault. `weight` and `bits`
    [M] are scratch."""
    count = offsets.size - 1
    for b in range(logits.shape[0]):
        fault = weigh(logits, mask, b, offsets, fallback, weight, bits, log_prob[b])
        if fault != FINE:
            return b * count * 4 + fault
        for i in range(count):
            u = uniform[b, i]
            if not 0 <= u <= 1:
                return (b * count + i) * 4 + NOT_UNIFORM
            total = np.float32(0)
            for m in range(offsets[i], offsets[i + 1]):
                total += weight[m]
            # the first option at which the sum exceeds the aim; the last of positive weight where
            # rounding put the aim past all
            aim, running, place, beyond = u * total, np.float32(0), offsets[i], False
            for m in range(offsets[i], offsets[i + 1]):
                place = m if weight[m] > 0 and not beyond else place
                running += weight[m]
                beyond = beyond or running > aim
            actions[b, i] = place - offsets[i]
            log_prob[b, i] = logits[b, place] - log_prob[b, i] - np.log(total)
    return FINE


@kernel
def score_heads(logits, mask, actions, offsets, fallback, absent, weight, bits, log_prob):
    """For use inside other kernels: writes the log-probability [B, C] of given actions. Returns as
    `draw_heads` does."""
    count = offsets.size - 1
    for b in range(logits.shape[0]):
        fault = weigh(logits, mask, b, offsets, fallback, weight, bits, log_prob[b])
        if fault != FINE:
            return b * count * 4 + fault
        for i in range(count):
            place = offsets[i] + actions[b, i]
            if not offsets[i] <= place < offsets[i + 1]:
                return (b * count + i) * 4 + OUT_OF_RANGE
            if mask[b, place]:
                total = np.float32(0)
                for m in range(offsets[i], offsets[i + 1]):
                    total += weight[m]
                log_prob[b, i] = logits[b, place] - log_prob[b, i] - np.log(total)
            else:
                empty = not np.any(mask[b, offsets[i] : offsets[i + 1]])
                log_prob[b, i] = (
                    np.float32(0) if empty and (absent or actions[b, i] == fallback[i]) else LOWEST
                )
    return FINE


@kernel
def linear_draw_heads(
    features,
    weight,
    bias,
    mask,
    uniform,
    offsets,
    fallback,
    weights,
    bits,
    logits,
    actions,
    log_prob,
):
    """`draw_heads` on logits = features·Wᵀ + b, which are written into `logits` [B, M]."""
    np.dot(features, weight.T, logits)
    for b in range(logits.shape[0]):
        for m in range(logits.shape[1]):
            logits[b, m] += bias[m]
    return draw_heads(logits, mask, uniform, offsets, fallback, weights, bits, actions, log_prob)


# on tables


def raise_fault(fault: int, components: int) -> None:
    (row, component), kind = divmod(fault // 4, components), fault % 4
    raise ValueError(f"row {row}, component {component} {FAULTS[kind]}")


def check_shapes(
    tables: HeadTables, logits: np.ndarray, mask: np.ndarray, per_component: tuple[np.ndarray, ...]
) -> None:
    """Compiled code does not look at bounds."""
    offsets = tables.offsets
    if logits.shape[1:] != (offsets[-1],) or mask.shape != logits.shape or mask.dtype != np.bool_:
        raise ValueError(
            f"logits and a bool mask must be [B, {offsets[-1]}]; they are {logits.shape}, "
            f"{mask.dtype} {mask.shape}"
        )
    for array in per_component:
        if array.shape != (len(logits), offsets.size - 1):
            raise ValueError(
                f"arrays of one number a component must be {(len(logits), offsets.size - 1)}; one "
                f"is {array.shape}"
            )


def sample_numba_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for heads, logits, mask in policies(rng, dtype):
        flat = logits.reshape(-1, heads.options).numpy()
        allowed = (
            np.ones(flat.shape, np.bool_) if mask is None else mask.reshape(flat.shape).numpy()
        )
        shape = (len(flat), heads.count)
        yield (
            heads.tables,
            flat,
            allowed,
            rng.random(shape).astype(dtype),
            np.zeros(shape, np.int64),
            np.ones(shape, dtype),
        )


def heads_like(tables: HeadTables) -> "MaskedHeads":
    """The module of the examples' tables, whose no-op is the last option."""
    on_empty = "raise" if tables.fallback[0] == RAISE else "absent" if tables.absent else -1
    return MaskedHeads(np.diff(tables.offsets).tolist(), on_empty)


def sample_numba_reference(tables, logits, mask, uniform, actions, log_prob):
    heads, x, allowed = heads_like(tables), torch.from_numpy(logits), torch.from_numpy(mask)
    drawn = sample_reference(heads, x, allowed, torch.from_numpy(uniform))
    return drawn, log_prob_reference(heads, x, drawn, allowed)


@pair(sample_numba_reference, sample_numba_examples, rtol=2e-5, atol=5e-6)
def sample_numba(
    tables: HeadTables,
    logits: np.ndarray,
    mask: np.ndarray,
    uniform: np.ndarray,
    actions: np.ndarray,
    log_prob: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """`MaskedHeads.act` on float32 arrays: writes `actions` and `log_prob` [B, C] and returns
    them."""
    check_shapes(tables, logits, mask, (uniform, actions, log_prob))
    fault = draw_heads(
        logits,
        mask,
        uniform,
        tables.offsets,
        tables.fallback,
        tables.weight,
        tables.bits,
        actions,
        log_prob,
    )
    if fault >= 0:
        raise_fault(fault, len(tables.fallback))
    return actions, log_prob


def log_prob_numba_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for tables, logits, mask, uniform, actions, log_prob in sample_numba_examples(rng, dtype):
        sample_numba(tables, logits, mask, uniform, actions, log_prob)
        yield tables, logits, mask, actions, np.zeros_like(log_prob)


def log_prob_numba_reference(tables, logits, mask, actions, log_prob):
    heads = heads_like(tables)
    return log_prob_reference(
        heads, torch.from_numpy(logits), torch.from_numpy(actions), torch.from_numpy(mask)
    )


@pair(log_prob_numba_reference, log_prob_numba_examples, rtol=2e-5, atol=5e-6)
def log_prob_numba(
    tables: HeadTables,
    logits: np.ndarray,
    mask: np.ndarray,
    actions: np.ndarray,
    log_prob: np.ndarray,
) -> np.ndarray:
    """`MaskedHeads.log_prob` on float32 arrays: writes `log_prob` [B, C] and returns it."""
    check_shapes(tables, logits, mask, (actions, log_prob))
    fault = score_heads(
        logits,
        mask,
        actions,
        tables.offsets,
        tables.fallback,
        tables.absent,
        tables.weight,
        tables.bits,
        log_prob,
    )
    if fault >= 0:
        raise_fault(fault, len(tables.fallback))
    return log_prob


def linear_sample_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for tables, logits, mask, uniform, actions, log_prob in sample_numba_examples(rng, dtype):
        features, weight = (
            rng.normal(size=(len(logits), 9)).astype(dtype),
            rng.normal(size=(logits.shape[1], 9)).astype(dtype),
        )
        yield (
            tables,
            features,
            weight,
            logits[0].copy(),
            mask,
            uniform,
            np.zeros_like(logits),
            actions,
            log_prob,
        )


def linear_sample_reference(
    tables, features, weight, bias, mask, uniform, logits, actions, log_prob
):
    return sample_numba_reference(
        tables, features @ weight.T + bias, mask, uniform, actions, log_prob
    )


@pair(linear_sample_reference, linear_sample_examples, rtol=2e-5, atol=1e-5)
def linear_sample_numba(
    tables: HeadTables,
    features: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray,
    mask: np.ndarray,
    uniform: np.ndarray,
    logits: np.ndarray,
    actions: np.ndarray,
    log_prob: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """The output layer too: logits = features·Wᵀ + b into `logits` [B, M], then as
    `sample_numba`."""
    check_shapes(tables, logits, mask, (uniform, actions, log_prob))
    fault = linear_draw_heads(
        features,
        weight,
        bias,
        mask,
        uniform,
        tables.offsets,
        tables.fallback,
        tables.weight,
        tables.bits,
        logits,
        actions,
        log_prob,
    )
    if fault >= 0:
        raise_fault(fault, len(tables.fallback))
    return actions, log_prob

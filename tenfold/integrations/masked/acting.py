"""From logits or observations to actions of masked heads, in one compiled call: what an environment
runner needs of a step.

Beside the actions there are the masked logits and the log-probability of whole actions, so that
nothing is left to compute. Masks are bool, int8, uint8 or floats of 0 and 1.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.ops.activations import ELU, RELU, TANH
from tenfold.ops.head_layout import padded_logits_reference
from tenfold.ops.head_tables import LOWEST
from tenfold.ops.heads import MaskedHeads, log_prob_reference, policies, sample_reference
from tenfold.ops.mlp import mlp_forward, mlp_of, parameter_count

Acted = tuple[np.ndarray, np.ndarray, np.ndarray]


@kernel
def choose(logits, mask, uniform, offsets, fallback, actions, joint):
    """Draws actions [B, C] from logits [B, M], writes their log-probabilities summed over heads
    into `joint` [B], and puts the finite minimum where an option is forbidden. False where that
    cannot be done."""
    rows, options = logits.shape
    allowed, strange = np.empty((rows, options), np.bool_), 0
    for b in range(rows):
        for m in range(options):
            allowed[b, m] = mask[b, m] != 0
            strange += np.int32(mask[b, m] != allowed[b, m])
    log_prob = np.empty((rows, offsets.size - 1), np.float32)
    weight, bits = np.empty(options, np.float32), np.empty(options, np.int32)
    if strange or not draw_heads(
        logits, allowed, uniform, offsets, fallback, weight, bits, actions, log_prob
    ):
        return False
    for b in range(rows):
        for m in range(options):
            logits[b, m] = logits[b, m] if allowed[b, m] else LOWEST
        total = np.float32(0)
        for i in range(offsets.size - 1):
            total += log_prob[b, i]
            column = offsets[i] + actions[b, i]
            # the fallback of an empty head
            logits[b, column] = logits[b, column] if allowed[b, column] else np.float32(0)
        joint[b] = total
    return True


@kernel
def forward_and_choose(
    flat, sizes, activation, x, logits, mask, uniform, offsets, fallback, actions, joint
):
    """`choose` on the logits of observations [B, D]."""
    inputs = np.ascontiguousarray(x.T)
    output = mlp_forward(
        flat, sizes, activation, inputs, np.empty(x.shape[0] * sizes[1:].sum(), np.float32)
    )
    for b in range(logits.shape[0]):
        for m in range(logits.shape[1]):
            logits[b, m] = output[m, b]
    return choose(logits, mask, uniform, offsets, fallback, actions, joint)


def check_width(what: str, array: np.ndarray, rows: int, width: int) -> None:
    """Compiled code does not look at bounds."""
    if array.shape != (rows, width):
        raise ValueError(
            f"{what} give {array.shape} numbers where the mask asks for {(rows, width)}"
        )


def drawn(
    heads: MaskedHeads,
    kernel: Any,
    network: tuple[Any, ...],
    logits: np.ndarray,
    mask: np.ndarray,
    uniform: np.ndarray,
) -> Acted:
    """The results of `choose`, or of `forward_and_choose` with its `network` in front."""
    # int8 or float32, so that only two forms of the kernels are compiled
    mask = mask.view(np.int8) if mask.itemsize == 1 else mask.astype(np.float32, copy=False)
    check_width("logits", logits, *mask.shape)
    check_width("uniform numbers", uniform, len(mask), heads.count)
    actions, joint = np.empty(uniform.shape, np.int64), np.empty(len(mask), np.float32)
    offsets, fallback, _ = heads.tables
    if not kernel(*network, logits, mask, uniform, offsets, fallback, actions, joint):
        # says what is wrong: row, component and option
        heads.act(torch.from_numpy(logits), torch.from_numpy(mask), torch.from_numpy(uniform))
        raise ValueError("a logit or a mask is not usable")
    return logits, actions, joint


def logits_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for k, (heads, logits, mask) in enumerate(policies(rng, dtype)):
        rows = logits.reshape(-1, heads.options).numpy()
        allowed = np.ones(rows.shape) if mask is None else mask.reshape(rows.shape).numpy()
        kind = (np.bool_, np.int8, np.float32, np.float64)[k % 4]
        yield heads, rows, allowed.astype(kind), rng.random((len(rows), heads.count)).astype(dtype)


def act_on_logits_reference(heads, logits, mask, uniform):
    x, allowed = torch.from_numpy(logits), torch.from_numpy(mask != 0)
    actions = sample_reference(heads, x, allowed, torch.from_numpy(uniform))
    masked = heads.flat(padded_logits_reference(heads, x, allowed))
    return masked, actions, log_prob_reference(heads, x, actions, allowed).sum(-1)


@pair(act_on_logits_reference, logits_examples, rtol=2e-5, atol=5e-6)
def act_on_logits(
    heads: MaskedHeads, logits: np.ndarray, mask: np.ndarray, uniform: np.ndarray
) -> Acted:
    """The masked logits [B, M], in place of those given; actions [B, C]; the log-probability of
    whole actions [B]."""
    return drawn(heads, choose, (), logits, mask, uniform)


def observations_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """Networks without a hidden layer, with one and with two, of every activation."""
    for k, (heads, logits, mask, uniform) in enumerate(logits_examples(rng, dtype)):
        sizes = np.array([3 + k, *(5, 9)[: k % 3], logits.shape[1]])
        flat = rng.normal(size=parameter_count(sizes)).astype(dtype)
        obs = rng.normal(size=(len(logits), sizes[0])).astype(dtype)
        yield heads, flat, sizes, (RELU, TANH, ELU)[k % 3], obs, mask, uniform


def act_on_observations_reference(heads, flat, sizes, activation, x, mask, uniform):
    logits = mlp_of(torch.from_numpy(flat), sizes, activation, torch.from_numpy(x))
    return act_on_logits_reference(heads, logits.numpy(), mask, uniform)


@pair(act_on_observations_reference, observations_examples, rtol=2e-5, atol=1e-5)
def act_on_observations(
    heads: MaskedHeads,
    flat: np.ndarray,
    sizes: np.ndarray,
    activation: int,
    x: np.ndarray,
    mask: np.ndarray,
    uniform: np.ndarray,
) -> Acted:
    """`act_on_logits` of the network (`ops.mlp`) on observations [B, D]."""
    check_width("observations", x, len(mask), int(sizes[0]))
    logits = np.empty(mask.shape, np.float32)
    return drawn(heads, forward_and_choose, (flat, sizes, activation, x), logits, mask, uniform)


# drawing actions, for use inside of kernels


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
    maximum into `highest`. Of an empty component the fallback is left. False where a logit is not
    finite, or a component is empty and has no fallback. No branch depends on the mask: a processor
    would guess wrong at every second option of a random one."""
    not_finite = 0
    for m in range(logits.shape[1]):
        x = logits[b, m]
        # counted as integers, which a processor adds in any order
        not_finite += np.int32(not abs(x) <= -LOWEST)
        weight[m] = x if mask[b, m] else MINUS_INFINITY
    if not_finite:
        return False
    for i in range(offsets.size - 1):
        most = MINUS_INFINITY
        for m in range(offsets[i], offsets[i + 1]):
            most = max(most, weight[m])
        if most == MINUS_INFINITY:
            if fallback[i] < 0:
                return False
            most = logits[b, offsets[i] + fallback[i]]
            weight[offsets[i] + fallback[i]] = most
        highest[i] = most
        for m in range(offsets[i], offsets[i + 1]):
            weight[m] -= most
    exponentials(weight, bits)
    return True


@kernel
def draw_heads(logits, mask, uniform, offsets, fallback, weight, bits, actions, log_prob):
    """Writes `actions` [B, C] and each component's log-probability; `weight` and `bits` [M] are
    scratch. False where a row cannot be drawn from, or a uniform number is none."""
    for b in range(logits.shape[0]):
        if not weigh(logits, mask, b, offsets, fallback, weight, bits, log_prob[b]):
            return False
        for i in range(offsets.size - 1):
            u = uniform[b, i]
            if not 0 <= u <= 1:
                return False
            total = np.float32(0)
            for m in range(offsets[i], offsets[i + 1]):
                total += weight[m]
            # the first option at which the sum exceeds the aim; the last of positive weight where
            # rounding put the aim past all
            aim, running, column, beyond = u * total, np.float32(0), offsets[i], False
            for m in range(offsets[i], offsets[i + 1]):
                column = m if weight[m] > 0 and not beyond else column
                running += weight[m]
                beyond = beyond or running > aim
            actions[b, i] = column - offsets[i]
            log_prob[b, i] = logits[b, column] - log_prob[b, i] - np.log(total)
    return True

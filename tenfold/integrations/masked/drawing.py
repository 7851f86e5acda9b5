"""Drawing actions of masked heads in compiled code, without torch and without an allocation; for
use inside other kernels. `acting` is how Python calls it."""

import math

import numpy as np

from tenfold.core.kernels import kernel
from tenfold.ops.head_tables import LOWEST

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
            aim, running, place, beyond = u * total, np.float32(0), offsets[i], False
            for m in range(offsets[i], offsets[i + 1]):
                place = m if weight[m] > 0 and not beyond else place
                running += weight[m]
                beyond = beyond or running > aim
            actions[b, i] = place - offsets[i]
            log_prob[b, i] = logits[b, place] - log_prob[b, i] - np.log(total)
    return True

"""NumPy's `default_rng(seed)` in compiled code, bit for bit: SeedSequence of one whole number,
PCG64 (O'Neill's XSL-RR), uniform numbers, and normal ones by the ziggurat with NumPy's tables,
which Numba ships.

A generator is uint64 [4]: the state's high and low half, the increment's high and low half. It is
for environments that draw by NumPy and must not draw anything else here; everything of our own
draws by address (`core.random`).
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numba.np.random._constants import fi_double, ki_double, wi_double, ziggurat_nor_r

from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair

LOW_32 = np.uint64(0xFFFFFFFF)
# SeedSequence's: two constants that change while they hash, two that mix
HASH_A, HASH_A_STEP = np.uint64(0x43B0D7E5), np.uint64(0x931E8875)
HASH_B, HASH_B_STEP = np.uint64(0x8B51F9DD), np.uint64(0x58F38DED)
MIX_LEFT, MIX_RIGHT = np.uint64(0xCA01F9DD), np.uint64(0x4973F715)
HALF_WORD, POOL = np.uint64(16), 4
# PCG64's multiplier, in halves
FACTOR_HIGH, FACTOR_LOW = np.uint64(2549297995355413924), np.uint64(4865540595714422341)
U1, U8, U11, U32, U58, U63 = (np.uint64(n) for n in (1, 8, 11, 32, 58, 63))
BYTE, FRACTION_52 = np.uint64(0xFF), np.uint64(0x000FFFFFFFFFFFFF)
UNIT_53 = 1.0 / 9007199254740992.0
# where the ziggurat's tail begins, and its inverse as NumPy writes it
TAIL, TAIL_INVERSE = float(ziggurat_nor_r), 0.27366123732975827203338247596


@kernel
def hashed(value, constant, step):
    """A 32-bit number hashed, and the next constant."""
    value = (value ^ constant) & LOW_32
    constant = (constant * step) & LOW_32
    value = (value * constant) & LOW_32
    return value ^ (value >> HALF_WORD), constant


@kernel
def mixed(left, right):
    result = (MIX_LEFT * left - MIX_RIGHT * right) & LOW_32
    return result ^ (result >> HALF_WORD)


@kernel
def product(a, b):
    """The high and the low half of a product of two uint64."""
    a_low, a_high, b_low, b_high = a & LOW_32, a >> U32, b & LOW_32, b >> U32
    low, middle, other = a_low * b_low, a_high * b_low, a_low * b_high
    carry = (low >> U32) + (middle & LOW_32) + (other & LOW_32)
    return a_high * b_high + (middle >> U32) + (other >> U32) + (carry >> U32), a * b


@kernel
def advance_state(g):
    """state · multiplier + increment, on 128 bits."""
    high, low = product(g[1], FACTOR_LOW)
    high += g[0] * FACTOR_LOW + g[1] * FACTOR_HIGH
    g[1] = low + g[3]
    g[0] = high + g[2] + np.uint64(g[1] < low)


@kernel
def seed_generator(seed, g):
    """The generator of `default_rng(seed)`, for seeds in [0, 2³²)."""
    pool, constant = np.zeros(POOL, np.uint64), HASH_A
    for i in range(POOL):
        pool[i], constant = hashed(np.uint64(seed if i == 0 else 0), constant, HASH_A_STEP)
    for source in range(POOL):
        for target in range(POOL):
            if source != target:
                value, constant = hashed(pool[source], constant, HASH_A_STEP)
                pool[target] = mixed(pool[target], value)
    # the state and the increment of PCG64, four words of two halves each, the low one first
    state_words, constant = np.zeros(4, np.uint64), HASH_B
    for i in range(8):
        value, constant = hashed(pool[i % POOL], constant, HASH_B_STEP)
        state_words[i // 2] |= value << (U32 if i % 2 else np.uint64(0))
    g[0] = g[1] = 0
    g[2], g[3] = (state_words[2] << U1) | (state_words[3] >> U63), (state_words[3] << U1) | U1
    advance_state(g)
    low = g[1] + state_words[1]
    g[0], g[1] = g[0] + state_words[0] + np.uint64(low < g[1]), low
    advance_state(g)


@kernel
def next_bits(g):
    advance_state(g)
    word, turn = g[0] ^ g[1], g[0] >> U58
    return (word >> turn) | (word << ((np.uint64(64) - turn) & U63))


@kernel
def next_double(g):
    """A number in [0, 1)."""
    return float(np.int64(next_bits(g) >> U11)) * UNIT_53


@kernel
def next_uniform(g, low, high):
    return low + (high - low) * next_double(g)


@kernel
def next_normal(g):
    while True:
        bits = next_bits(g)
        layer = np.int64(bits & BYTE)
        bits >>= U8
        magnitude = (bits >> U1) & FRACTION_52
        x = float(np.int64(magnitude)) * wi_double[layer]
        if bits & U1:
            x = -x
        if magnitude < ki_double[layer]:
            return x
        if layer == 0:
            while True:
                beyond = -TAIL_INVERSE * math.log1p(-next_double(g))
                height = -math.log1p(-next_double(g))
                if height + height > beyond * beyond:
                    break
            return -(TAIL + beyond) if (magnitude >> U8) & U1 else TAIL + beyond
        edge = (fi_double[layer - 1] - fi_double[layer]) * next_double(g) + fi_double[layer]
        if edge < math.exp(-0.5 * x * x):
            return x


# the pair


def seed_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for seed in (0, 1, 2**31 - 1, 2**32 - 1, *rng.integers(2**32, size=60).tolist()):
        yield seed, 9, 300


def numpy_draws(seed: int, uniform: int, normal: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.uniform(-0.1, 0.1, uniform), rng.standard_normal(normal)])


@pair(numpy_draws, seed_examples, rtol=0, name="core.numpy_random.default_rng")
def compiled_draws(seed: int, uniform: int, normal: int) -> np.ndarray:
    return draw_some(seed, uniform, normal)


@kernel
def draw_some(seed, uniform, normal):
    """So many uniform numbers in ±0.1, then so many normal ones."""
    g, draws = np.zeros(4, np.uint64), np.zeros(uniform + normal)
    seed_generator(seed, g)
    for i in range(uniform):
        draws[i] = next_uniform(g, -0.1, 0.1)
    for i in range(normal):
        draws[uniform + i] = next_normal(g)
    return draws

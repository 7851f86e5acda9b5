"""One counter-based generator: draw = f(seed, purpose, member, counter).

Nothing here has a state. A draw is a function of its address, so plain and fast engines see the
same batches, member i sees what it sees alone, and a resumed run goes on as if it had never
stopped: only counters are saved.

    key  = mix(mix(mix(seed + G) + purpose·G) + member·G)          mix: SplitMix64's finaliser
    bits = mix(key + mix(counter·G))                               G: 2⁶⁴ / golden ratio, odd

Steele, Lea & Flood (2014), "Fast splittable pseudorandom number generators", give the finaliser and
its constants. It is applied twice, so that two keys do not give the same sequence shifted. The same
function stands here for Python integers (the reference), NumPy, Numba and torch. Uniform numbers
and integers are equal in every bit; normal numbers agree to the last digits of float64 (libraries
differ in log and cos).
"""

import math
from enum import IntEnum
from typing import Any, Protocol

import numpy as np
import torch

from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair

GOLDEN = 0x9E3779B97F4A7C15
FIRST, SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
WORD = (1 << 64) - 1
UNIT = 2.0**-53  # the spacing of the 53-bit uniform numbers

G, F1, F2 = np.uint64(GOLDEN), np.uint64(FIRST), np.uint64(SECOND)
S27, S30, S31, S11 = (np.uint64(s) for s in (27, 30, 31, 11))


class Purpose(IntEnum):
    """What a draw is for. Each purpose is a stream of its own; numbers are part of the file format
    and never change."""

    INIT = 1
    EPISODE = 2
    COIN = 3
    ACTION = 4
    REPLAY = 5
    NOISE_ACT = 6
    NOISE_ONLINE = 7
    NOISE_TARGET = 8
    EVALUATE = 9
    RANDOM_POLICY = 10
    SELECT = 11
    SHUFFLE = 12
    FRACTION = 13
    NEXT_FRACTION = 14
    POSTERIOR = 20
    MASK = 21
    SEQUENCE = 22
    PLAN = 30
    NOVELTY = 31
    START = 40
    PROCESS = 41
    MEASURE = 42
    WORLD = 43
    POLICY = 44
    NEXT_POLICY = 45
    ACTION_NOISE = 46


def mix_reference(x: int) -> int:
    x = ((x ^ (x >> 30)) * FIRST) & WORD
    x = ((x ^ (x >> 27)) * SECOND) & WORD
    return x ^ (x >> 31)


def key(seed: int, purpose: Purpose, member: int = 0) -> np.uint64:
    """The stream of one purpose of one member of one seed."""
    k = mix_reference((seed + GOLDEN) & WORD)
    k = mix_reference((k + purpose * GOLDEN) & WORD)
    return np.uint64(mix_reference((k + member * GOLDEN) & WORD))


def signed(word: int) -> int:
    """The 64-bit word as torch's int64 sees it."""
    return word - (1 << 64) if word >> 63 else word


# bits


def bits_reference(stream: np.uint64, counter: np.ndarray) -> np.ndarray:
    """64 random bits for each counter, in Python integers."""
    one = [
        mix_reference((int(stream) + mix_reference((int(c) * GOLDEN) & WORD)) & WORD)
        for c in counter.ravel()
    ]
    return np.array(one, np.uint64).reshape(counter.shape)


def random_counters(rng: np.random.Generator, dtype: str) -> Any:
    for shape in ((1,), (7,), (3, 5), (0,)):
        yield (
            key(int(rng.integers(2**62)), Purpose.REPLAY, 3),
            rng.integers(0, 2**62, shape).astype(np.int64),
        )
    yield key(0, Purpose.INIT), np.arange(4)


@kernel
def mix(x):
    x = (x ^ (x >> S30)) * F1
    x = (x ^ (x >> S27)) * F2
    return x ^ (x >> S31)


@kernel
def draw_bits(stream, counter):
    """One draw, for use inside other kernels."""
    return mix(stream + mix(np.uint64(counter) * G))


@kernel
def draw_uniform(stream, counter):
    """One uniform number in [0, 1), for use inside other kernels."""
    return np.float64(draw_bits(stream, counter) >> S11) * UNIT


@pair(bits_reference, random_counters, name="ops.random.bits (NumPy)")
def bits(stream: np.uint64, counter: np.ndarray) -> np.ndarray:
    """64 random bits for each counter, in NumPy."""
    mixed = mix.py_func  # of arrays
    return mixed(mixed(np.asarray(counter).astype(np.uint64) * G) + np.asarray(stream, np.uint64))


@pair(bits_reference, random_counters, name="ops.random.bits (Numba)")
@kernel
def bits_numba(stream, counter):
    out = np.empty(counter.shape, np.uint64)
    for i in range(counter.size):
        out.flat[i] = draw_bits(stream, counter.flat[i])
    return out


def mix_torch(x: torch.Tensor) -> torch.Tensor:
    """`mix` of int64 words. Products wrap; shifts are made logical by a mask."""

    def shifted(x: torch.Tensor, by: int) -> torch.Tensor:
        return (x >> by) & ((1 << (64 - by)) - 1)

    x = (x ^ shifted(x, 30)) * signed(FIRST)
    x = (x ^ shifted(x, 27)) * signed(SECOND)
    return x ^ shifted(x, 31)


def bits_torch(stream: np.uint64 | torch.Tensor, counter: torch.Tensor) -> torch.Tensor:
    """64 random bits as int64, on the counter's device. Streams that differ from row to row are a
    tensor of int64 words."""
    start = stream if isinstance(stream, torch.Tensor) else signed(int(stream))
    return mix_torch(mix_torch(counter.to(torch.int64) * signed(GOLDEN)) + start)


@pair(bits_reference, random_counters, name="ops.random.bits (torch)")
def bits_torch_as_words(stream: np.uint64, counter: np.ndarray) -> np.ndarray:
    return bits_torch(stream, torch.from_numpy(counter)).numpy().view(np.uint64)


# numbers


def uniform_reference(stream: np.uint64, counter: np.ndarray) -> np.ndarray:
    """Uniform in [0, 1): the upper 53 bits."""
    return np.array(
        [(int(b) >> 11) * UNIT for b in bits_reference(stream, counter).ravel()]
    ).reshape(counter.shape)


@pair(uniform_reference, random_counters, name="ops.random.uniform (NumPy)")
def uniform(stream: np.uint64, counter: np.ndarray) -> np.ndarray:
    return (bits(stream, counter) >> S11).astype(np.float64) * UNIT


@pair(uniform_reference, random_counters, name="ops.random.uniform (torch)")
def uniform_torch_as_array(stream: np.uint64, counter: np.ndarray) -> np.ndarray:
    return uniform_torch(stream, torch.from_numpy(counter)).numpy()


def uniform_torch(stream: np.uint64 | torch.Tensor, counter: torch.Tensor) -> torch.Tensor:
    return ((bits_torch(stream, counter) >> 11) & ((1 << 53) - 1)).to(torch.float64) * UNIT


def consecutive(rng: np.random.Generator, dtype: str) -> Any:
    for size in (1, 2, 33):
        yield (
            key(int(rng.integers(2**62)), Purpose.COIN),
            int(rng.integers(2**40)),
            np.zeros(size, dtype),
        )


def fill_uniform_reference(stream: np.uint64, start: int, out: np.ndarray) -> np.ndarray:
    out[:] = uniform_reference(stream, start + np.arange(out.size))
    return out


@pair(fill_uniform_reference, consecutive, dtypes=("float64", "float32"))
@kernel
def fill_uniform(stream, start, out):
    """Uniform numbers of the counters start, start + 1, … into `out`, without an allocation."""
    for i in range(out.size):
        out[i] = draw_uniform(stream, start + i)
    return out


def fill_normal_reference(stream: np.uint64, start: int, out: np.ndarray) -> np.ndarray:
    """Standard normal numbers by Box and Muller: √(−2 ln(1 − u₁))·cos(2π u₂), u from counters 2c
    and 2c + 1."""
    counter = 2 * (start + np.arange(out.size))
    u1, u2 = uniform_reference(stream, counter), uniform_reference(stream, counter + 1)
    out[:] = [
        math.sqrt(-2 * math.log1p(-a)) * math.cos(2 * math.pi * b)
        for a, b in zip(u1, u2, strict=True)
    ]
    return out


@kernel
def draw_normal(stream, counter):
    """One standard normal number, for use inside other kernels."""
    radius = np.sqrt(-2 * np.log1p(-draw_uniform(stream, 2 * counter)))
    return radius * np.cos(2 * np.pi * draw_uniform(stream, 2 * counter + 1))


@pair(fill_normal_reference, consecutive, rtol=1e-6, atol=1e-9, dtypes=("float64", "float32"))
@kernel
def fill_normal(stream, start, out):
    for i in range(out.size):
        out[i] = draw_normal(stream, start + i)
    return out


@pair(
    fill_normal_reference,
    consecutive,
    rtol=1e-6,
    atol=1e-9,
    dtypes=("float64", "float32"),
    name="ops.random.normal (torch)",
)
def fill_normal_torch(stream: np.uint64, start: int, out: np.ndarray) -> np.ndarray:
    out[:] = normal_torch(stream, start, out.size).numpy()
    return out


def normal_torch(
    stream: np.uint64, start: int, size: int, device: str | torch.device = "cpu"
) -> torch.Tensor:
    counter = 2 * (start + torch.arange(size, device=device))
    u1, u2 = uniform_torch(stream, counter), uniform_torch(stream, counter + 1)
    return torch.sqrt(-2 * torch.log1p(-u1)) * torch.cos(2 * math.pi * u2)


def below(stream: np.uint64, counter: np.ndarray, n: int) -> np.ndarray:
    """Whole numbers 0 … n − 1: ⌊u·n⌋, whose bias is under n / 2⁵³."""
    return (uniform(stream, counter) * n).astype(np.int64)


class RandomSource(Protocol):
    """Random numbers by address, as an algorithm's `act` is given them."""

    def uniform(self, size: int = 1) -> torch.Tensor: ...
    def normal(self, size: int = 1) -> torch.Tensor: ...

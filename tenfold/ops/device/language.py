"""How every Triton function is compiled, and what all of them need: draws, schedules, powers of
two.

Without a GPU the same functions run in Triton's interpreter (TRITON_INTERPRET=1), slowly: so are
they tested. Numbers that change from launch to launch come as tensors or as arguments that Triton
does not look at: it compiles anew for integers that are 1 or divisible by 16. Where an `if` on
constants returns, the rest stands under its `else`: Triton reads on after a return. A part of a
constant is named as one, `N: tl.constexpr = S.net`, before it is handed on.
"""

import copy
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from tenfold.core import random
from tenfold.core.pairs import Example, pair

GOLDEN, FIRST, SECOND = (
    tl.constexpr(number) for number in (random.GOLDEN, random.FIRST, random.SECOND)
)
UNIT = tl.constexpr(random.UNIT)
INT32 = 2**31 - 1


def gpu_kernel(function: Any = None, **options: Any) -> Any:
    """Triton's `jit` with our options."""
    return triton.jit(function, **options) if function else lambda f: triton.jit(f, **options)


def kind_of(argument: Any) -> Any:
    """What Triton compiles anew for."""
    kind = type(argument)
    return argument > INT32 if kind is int else kind if kind is float else argument.dtype


class LaunchedKernel:
    """A kernel that is called by itself, often: compiled once for each set of constants and types,
    and then launched without Triton's look at every argument, which takes longer than a small
    kernel does. So nothing is assumed of integers and addresses. Constants come last."""

    def __init__(self, function: Any) -> None:
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        runtime_names = [name for name in names if name not in function.__annotations__]
        self.kernel, self.made = triton.jit(function, do_not_specialize=runtime_names), {}

    def __call__(
        self, grid: tuple[int, int, int], arguments: tuple[Any, ...], constants: tuple[Any, ...]
    ) -> None:
        """With four warps."""
        key = (arguments[0].get_device(), constants, *map(kind_of, arguments))
        made = self.made.get(key)
        if made is None:  # always in the interpreter
            self.made[key] = self.kernel[grid](*arguments, *constants)
        else:
            made[grid](*arguments, *constants)


def available() -> bool:
    """Whether these functions can run here: on a GPU, or in the interpreter."""
    return torch.cuda.is_available() or triton.knobs.runtime.interpret


def device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def on_device(value: Any) -> Any:
    """An example's value where kernels run: arrays become tensors, modules are copied."""
    if isinstance(value, np.ndarray):
        value = torch.from_numpy(value)
    if isinstance(value, torch.Tensor):
        return value.to(device())
    if isinstance(value, torch.nn.Module):
        return copy.deepcopy(value).to(device())
    if isinstance(value, dict):
        return {name: on_device(item) for name, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(on_device, value))
    return value


def device_pair(reference: Any, example: Example, name: str, **options: Any) -> Any:
    """`core.pairs.pair` for launches: the examples are moved to where kernels run."""

    def register(function: Any) -> Any:
        def launch(*inputs: Any) -> Any:
            return function(*map(on_device, inputs))

        pair(reference, example, name=name, when=available, **options)(launch)
        return function

    return register


def padded(size: int, least: int = 16) -> int:
    """The power of two that a tensor's side takes; a product's sides are at least 16."""
    return max(least, 1 << (size - 1).bit_length())


def key_tensor(keys: list[Any], device: Any) -> torch.Tensor:
    """Streams of `core.random` as int64 tensors hold them."""
    return torch.tensor([random.signed(int(k)) for k in keys], dtype=torch.int64, device=device)


@gpu_kernel
def mix(x):
    x = (x ^ (x >> 30)) * FIRST
    x = (x ^ (x >> 27)) * SECOND
    return x ^ (x >> 31)


@gpu_kernel
def bits(stream, counter):
    """64 random bits for each counter, those of `core.random`."""
    counter = counter.to(tl.int64).to(tl.uint64, bitcast=True)
    return mix(stream.to(tl.uint64, bitcast=True) + mix(counter * GOLDEN))


@gpu_kernel
def uniform(stream, counter):
    """Uniform in [0, 1), float64: the upper 53 bits."""
    return (bits(stream, counter) >> 11).to(tl.float64) * UNIT


@gpu_kernel
def table_at(points, count, step):
    """As `core.kernels.table_at`."""
    low, high = count * 0, count
    for _ in range(32):
        middle = (low + high) // 2
        here = low < high
        less = here & (tl.load(points + middle, mask=here, other=0.0) > step)
        low = tl.where(here & (less == 0), middle + 1, low)
        high = tl.where(less, middle, high)
    first, second = tl.maximum(low - 1, 0), tl.minimum(low, count - 1)
    begin, finish = tl.load(points + first), tl.load(points + second)
    start, end = tl.load(points + count + first), tl.load(points + count + second)
    between = (low > 0) & (low < count)
    done = (step - begin) / tl.where(between, finish - begin, 1.0)
    # outside of the table both are one point
    return start + (end - start) * tl.where(between, done, 0.0)


@gpu_kernel
def schedule_at(numbers, step, KIND: tl.constexpr):
    """The value at an environment step of a schedule's numbers (`core.kernels.as_numbers`)."""
    value = tl.load(numbers + 1)
    if KIND == 3:
        value = table_at(numbers + tl.load(numbers + 2).to(tl.int64), value.to(tl.int64), step)
    elif KIND > 0:
        start, end = value, tl.load(numbers + 2)
        behind = tl.maximum(step.to(tl.float64) - tl.load(numbers + 4), 0.0)
        done = tl.minimum(behind / tl.load(numbers + 3), 1.0)
        value = start + (end - start) * done
        if KIND == 2:
            value = start * tl.exp(tl.log(end / start) * done)
    return value

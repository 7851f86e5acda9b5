"""How every compiled function is compiled: once, kept on disk, with NumPy's rules of arithmetic;
and the clock that such functions look at."""

import time
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic


def kernel(function: Any = None, **options: Any) -> Any:
    """Numba's `njit` with our options, and more of them where a function asks. The wrapper for
    calls from C, which nobody makes, is not compiled."""
    ours: dict[str, Any] = {"error_model": "numpy", "no_cfunc_wrapper": True} | options

    def compiled(function: Any) -> Any:
        try:
            return njit(cache=True, **ours)(function)
        except RuntimeError:  # neither the package's folder nor the user's can be written to
            return njit(**ours)(function)

    return compiled(function) if function else compiled


def look_at_clock(typing_context: Any) -> Any:
    """The machine's monotonic clock, inside a kernel; a look at it takes some 25 ns."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number, whole = ir.IntType(32), ir.IntType(64)
        moment = ir.ArrayType(whole, 2)  # seconds, nanoseconds
        place = cgutils.alloca_once(builder, moment)
        kind = ir.FunctionType(number, [number, moment.as_pointer()])
        look = cgutils.get_or_insert_function(builder.module, kind, "clock_gettime")
        builder.call(look, [ir.Constant(number, time.CLOCK_MONOTONIC), place])
        seconds, rest = (builder.extract_value(builder.load(place), part) for part in (0, 1))
        return builder.add(builder.mul(seconds, ir.Constant(whole, 10**9)), rest)

    return types.int64(), build


nanoseconds: Any = intrinsic(look_at_clock)

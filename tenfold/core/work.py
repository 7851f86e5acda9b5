"""Work that compiled code shares with the process's team of threads (`core.threads`): a kernel for
every index, with any arguments.

    @kernel
    def fill(index, row, value):
        row[index] = value

    @kernel
    def fill_all(team, row, value):
        share_work(team, row.size, fill, (row, value))

A team is an int64 array: the address of its threads (0: there is only the one that calls) and how
many take part; none where there is no work to share. Which thread does an index varies, so an index
writes what no other one touches, and nothing depends on the number of threads.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from tenfold.core.kernels import kernel
from tenfold.core.threads import run_work, team_for

WORD = ir.IntType(64)
ADDRESS, THREADS = range(2)  # places in a team
NO_TEAM = np.zeros(2, np.int64)
BLOCK = 32  # items of a batch that are one piece of work


def team_of(threads: int) -> np.ndarray:
    """So many threads of the process's team, with the one that calls."""
    return np.array([team_for(threads), threads])


def bind_task(typing: Any, task: Any, arguments: Any) -> Any:
    """The addresses of a function (address, index) that calls `task(index, *arguments)`, and of the
    arguments, which lie on the calling function's stack until that returns."""
    called = typing.resolve_function_type(task, (types.int64, *arguments.types), {})

    def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        stored = cgutils.alloca_once_value(builder, values[1])
        kind = ir.FunctionType(ir.VoidType(), [WORD, WORD])
        name = builder.module.get_unique_name(f"task.{builder.function.name}")
        function = ir.Function(builder.module, kind, name)
        function.linkage = "internal"
        inner = ir.IRBuilder(function.append_basic_block())
        address, index = function.args
        loaded = inner.load(inner.inttoptr(address, stored.type))
        compiled = task.dispatcher.get_compile_result(called)
        context.call_internal_no_propagate(
            inner, compiled.fndesc, called, [index, *cgutils.unpack_tuple(inner, loaded)]
        )
        inner.ret_void()
        context.add_linking_libs((compiled.library,))
        words = [builder.ptrtoint(pointer, WORD) for pointer in (function, stored)]
        return context.make_tuple(builder, signature.return_type, words)

    return types.UniTuple(types.int64, 2)(task, arguments), build


bound: Any = intrinsic(bind_task)


@kernel
def pieces_of(size, piece):
    """How many pieces there are: of so many, the last with what is left over."""
    return max(1, size // piece)


@kernel
def bounds_of(index, size, piece):
    """(where a piece begins, its size)."""
    first = index * piece
    return first, size - first if index == pieces_of(size, piece) - 1 else piece


@kernel
def block_size(team, items):
    """Items of a piece of work: all, where there is none to share."""
    return BLOCK if team[THREADS] else max(1, items)


@kernel(inline="always")
def share_work(team, count, task, arguments):
    """`task(index, *arguments)` for every index below `count`."""
    function, stored = bound(task, arguments)
    run_work(team[ADDRESS], team[THREADS], function, stored, count)

"""Work that compiled code shares with the process's team of threads (`core.threads`): a kernel for
every index, with any arguments.

    @kernel
    def fill(index, row, value):
        row[index] = value

    @kernel
    def fill_all(team, row, value):
        share_work(team, row.size, fill, (row, value))

A team is an int64 array: the address of its threads (0: there is only the one that calls) and how
many take part; none where there is no work to share. Which thread does an index varies: an index
writes what no other one touches, and nothing depends on the number of threads. A team may measure
now and then whether the others help: on cores that other programs keep busy they do not.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from tenfold.core.kernels import kernel, nanoseconds
from tenfold.core.threads import run_work, team_for

WORD = ir.IntType(64)
# Places in a team: those that take part now; then, of a team that measures, those that may (else
# 0), pieces of work in this period and its length, the quickest by all and by one, in nanoseconds
ADDRESS, THREADS, ALL_ADDRESS, ALL, DONE, PERIOD, BY_ALL, BY_ONE = range(8)
NO_TEAM = np.zeros(8, np.int64)
TRIALS = 4  # pieces of work that are measured by all, then by one, at the beginning of a period
SHORTEST, LONGEST, NEVER = 64, 4096, 1 << 62
BLOCK = 32  # items of a batch that are one piece of work


@kernel
def find_blas(matrix, row, column, out):
    """Calls every function of BLAS that products do. The first call of each in a process looks it
    up under Python's lock, which a thread of a team never gets while the one that calls waits for
    it."""
    np.dot(matrix, matrix, out)
    np.dot(matrix, column, out[:, :1].copy())
    np.dot(row, matrix, out[:1])
    np.dot(row, column, out[:1, :1].copy())
    np.dot(column, row, out)
    np.dot(matrix.T, matrix, out)


def team_of(threads: int, measures: bool = False) -> np.ndarray:
    """So many threads of the process's team, with the one that calls. `measures`: they take part
    only while that is quicker."""
    address = team_for(threads)
    if address:
        matrix, out = np.zeros((2, 2), np.float32), np.zeros((2, 2), np.float32)
        find_blas(matrix, matrix[:1], np.zeros((2, 1), np.float32), out)
    trial = [address, threads, 0, SHORTEST] if measures and threads > 1 else [0, 0, 0, 0]
    return np.array([address, threads, *trial, NEVER, NEVER])


@kernel
def begin_trial(team):
    """The time, where a team measures."""
    return nanoseconds() if team[ALL] else 0


@kernel
def end_trial(team, began):
    if began:
        choose_threads(team, nanoseconds() - began)


@kernel
def choose_threads(team, spent):
    """After a piece of work that took so many nanoseconds: who does the next one. A period begins
    with trials, by all and by one; each is twice as long as the last."""
    done = team[DONE]
    if done < 2 * TRIALS:
        place = BY_ALL if done < TRIALS else BY_ONE
        team[place] = min(team[place], spent)
    done += 1
    if done >= team[PERIOD]:
        done = 0
        team[PERIOD] = min(2 * team[PERIOD], LONGEST)
        team[BY_ALL], team[BY_ONE] = NEVER, NEVER
    helps = done < TRIALS or (done >= 2 * TRIALS and team[BY_ALL] < team[BY_ONE])
    team[DONE] = done
    team[ADDRESS], team[THREADS] = (team[ALL_ADDRESS], team[ALL]) if helps else (0, 1)


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

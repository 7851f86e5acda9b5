"""What compiled code needs of the machine beyond arithmetic: functions of C libraries called by
their address, words that several threads share, and a lock with a condition to sleep on.

An address is a number that arrives at run time, so kernels that call one can be kept on disk.
Gaps between threads are closed by sequentially consistent words; on x86 they cost no more than
weaker ones.
"""

from platform import machine
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from tenfold.core.tables import array_at

WORD, NUMBER = ir.IntType(64), ir.IntType(32)
ORDER, ALIGNED = "seq_cst", 8


def call_address(typing: Any, address: Any, first: Any, second: Any) -> Any:
    """`void f(first, second)` at an address; both arguments are pointers or int64."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [WORD, WORD])
        builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), arguments[1:])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), build


def load_word(typing: Any, address: Any) -> Any:
    """The int64 at an address."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], WORD.as_pointer())
        return builder.load_atomic(pointer, ORDER, ALIGNED)

    return types.int64(types.int64), build


def store_word(typing: Any, address: Any, value: Any) -> Any:
    """Writes the int64 at an address."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], WORD.as_pointer())
        builder.store_atomic(arguments[1], pointer, ORDER, ALIGNED)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), build


def add_word(typing: Any, address: Any, value: Any) -> Any:
    """Adds to the int64 at an address; returns what it was before."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], WORD.as_pointer())
        return builder.atomic_rmw("add", pointer, arguments[1], ORDER)

    return types.int64(types.int64, types.int64), build


def pause_core(typing: Any) -> Any:
    """A short pause of a core that waits. (LLVM's own instruction: Numba has no assembler.)"""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if machine() in ("x86_64", "AMD64"):
            kind, name, inputs = ir.FunctionType(ir.VoidType(), []), "llvm.x86.sse2.pause", []
        else:
            kind, name = ir.FunctionType(ir.VoidType(), [NUMBER]), "llvm.aarch64.hint"
            inputs = [ir.Constant(NUMBER, 1)]
        builder.call(cgutils.get_or_insert_function(builder.module, kind, name), inputs)
        return context.get_dummy_value()

    return types.void(), build


def view_numbers(typing: Any, address: Any, length: Any) -> Any:
    """So many float64 at an address, as an array that owns nothing."""
    view = types.Array(types.float64, 1, "C")

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return array_at(context, builder, view, list(arguments))

    return view(types.int64, types.int64), build


def c_function(name: str, arguments: int) -> Any:
    """A function of the C library that takes so many pointers and returns an int."""

    def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kind = ir.FunctionType(NUMBER, [WORD] * arguments)
        function = cgutils.get_or_insert_function(builder.module, kind, name)
        return builder.sext(builder.call(function, values), WORD)

    word = types.int64
    typings = (
        lambda typing: (word(), build),
        lambda typing, a: (word(word), build),
        lambda typing, a, b: (word(word, word), build),
    )
    return intrinsic(typings[arguments])


call: Any = intrinsic(call_address)
load: Any = intrinsic(load_word)
store: Any = intrinsic(store_word)
add: Any = intrinsic(add_word)
pause: Any = intrinsic(pause_core)
numbers_at: Any = intrinsic(view_numbers)
mutex_init, cond_init = c_function("pthread_mutex_init", 2), c_function("pthread_cond_init", 2)
mutex_lock, mutex_unlock = (
    c_function("pthread_mutex_lock", 1),
    c_function("pthread_mutex_unlock", 1),
)
cond_wait = c_function("pthread_cond_wait", 2)
cond_broadcast = c_function("pthread_cond_broadcast", 1)
give_way = c_function("sched_yield", 0)

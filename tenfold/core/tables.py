"""Many arrays for a kernel as one argument: a table of their addresses and shapes.

Numba looks at every argument of a call from Python: 44 arrays one by one cost 2.8 µs, as much as
the work of a small round, a named tuple of them 6.0, a table 0.24. Inside the kernel the table is
opened as a named tuple again, which costs nothing there.

    class Step(NamedTuple):
        reward: F2
        count: I1

    open_step = opener(Step)

    @kernel
    def store(table):
        step = open_step(table)
        step.reward[step.count[0], 0] = 1

    step = Step(...)
    store(table_of(step))

A table does not keep its arrays alive: whoever makes one holds on to them.
"""

from typing import Annotated, Any, NamedTuple, get_type_hints

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

MOST_DIMENSIONS = 4


def contiguous(element: Any, dimensions: int) -> types.Array:
    return types.Array(element, dimensions, "C")


# the kind of number, then the dimensions
F1 = Annotated[np.ndarray, contiguous(types.float32, 1)]
F2 = Annotated[np.ndarray, contiguous(types.float32, 2)]
F3 = Annotated[np.ndarray, contiguous(types.float32, 3)]
D1 = Annotated[np.ndarray, contiguous(types.float64, 1)]
D2 = Annotated[np.ndarray, contiguous(types.float64, 2)]
I1 = Annotated[np.ndarray, contiguous(types.int64, 1)]
I2 = Annotated[np.ndarray, contiguous(types.int64, 2)]
I3 = Annotated[np.ndarray, contiguous(types.int64, 3)]
B1 = Annotated[np.ndarray, contiguous(types.boolean, 1)]
B2 = Annotated[np.ndarray, contiguous(types.boolean, 2)]
B3 = Annotated[np.ndarray, contiguous(types.boolean, 3)]
W1 = Annotated[np.ndarray, contiguous(types.int32, 1)]
U1 = Annotated[np.ndarray, contiguous(types.uint64, 1)]
Y1 = Annotated[np.ndarray, contiguous(types.uint8, 1)]


def field_types(kind: type) -> list[types.Array]:
    return [hint.__metadata__[0] for hint in get_type_hints(kind, include_extras=True).values()]


def table_of(arrays: NamedTuple) -> np.ndarray:
    """int64 [fields, 1 + MOST_DIMENSIONS]: each array's address, then its shape."""
    table = np.zeros((len(arrays), 1 + MOST_DIMENSIONS), np.int64)
    for row, name, array, want in zip(
        table, arrays._fields, arrays, field_types(type(arrays)), strict=True
    ):
        if (
            array.dtype.name != want.dtype.name.removesuffix("ean")
            or array.ndim != want.ndim
            or not array.flags.c_contiguous
        ):
            raise TypeError(
                f"{name} is {array.dtype} of {array.ndim} dimensions, and must be {want}."
            )
        row[0], row[1 : 1 + array.ndim] = array.ctypes.data, array.shape
    return table


def opener(kind: type) -> Any:
    """For kernels: the function that turns a table into the named tuple `kind` of its arrays."""
    found = types.NamedTuple(field_types(kind), kind)

    @intrinsic
    def open_table(typing: Any, table: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            numbers = make_array(signature.args[0])(context, builder, arguments[0]).data

            def number(row: int, column: int) -> Any:
                return builder.load(
                    cgutils.gep_inbounds(builder, numbers, row * (1 + MOST_DIMENSIONS) + column)
                )

            values = [
                array_at(context, builder, want, [number(row, c) for c in range(1 + want.ndim)])
                for row, want in enumerate(found.types)
            ]
            return context.make_tuple(builder, found, values)

        return found(table), codegen

    return open_table


def array_at(context: Any, builder: Any, want: types.Array, numbers: list[Any]) -> Any:
    """The array of an address and a shape, in C order."""
    array = make_array(want)(context, builder)
    size = context.get_abi_sizeof(context.get_data_type(want.dtype))
    itemsize = context.get_constant(types.intp, size)
    address, *shape = numbers
    strides = [itemsize]
    for length in reversed(shape[1:]):
        strides.insert(0, builder.mul(strides[0], length))
    populate_array(
        array,
        data=builder.inttoptr(address, array.data.type),
        shape=shape,
        strides=strides,
        itemsize=itemsize,
        meminfo=None,
    )
    return array._getvalue()

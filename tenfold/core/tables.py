"""Many arrays for a kernel as one argument: a table of their addresses and shapes.

Numba looks at every argument of a call from Python: 44 arrays one by one cost 2.8 µs, as much as
the work of a small round, a named tuple of them 6.0, a table 0.1. Inside the kernel the table is
opened as a named tuple, which costs nothing there. What it is opened as follows from the arrays
themselves, their names, kinds of number and dimensions: nobody writes it down a second time, and
kernels that were compiled for other arrays are never taken from the disk.

    @kernel
    def store(table):
        a = open_table(table)
        a.reward[a.count[0], 0] = a.scale

    table = KernelTable({"reward": reward, "count": count, "scale": np.array(0.5)})
    store(table)
    compiled_for(store, table)(table)  # the same, without the look at its arguments' types

An array without dimensions is opened as its number.
"""

import hashlib
from collections import namedtuple
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, NamedTuple, get_type_hints

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import (
    NativeValue,
    intrinsic,
    models,
    register_model,
    typeof_impl,
    unbox,
)
from numba.np.arrayobj import make_array, populate_array
from numba.np.numpy_support import from_dtype

MOST_DIMENSIONS = 4
Fields = tuple[tuple[str, str, int], ...]  # name, kind of number, dimensions


class TableType(types.Type):
    """Of the tables with these fields. Its name is the same in every process: compiled kernels on
    the disk are found by it."""

    def __init__(self, fields: Fields) -> None:
        self.fields = fields
        super().__init__(f"Table_{hashlib.sha256(repr(fields).encode()).hexdigest()[:16]}")

    @property
    def key(self) -> Fields:
        return self.fields


register_model(TableType)(models.OpaqueModel)


class KernelTable:
    """Arrays by name, and as one argument of kernels. It keeps them alive."""

    def __init__(self, *columns: Mapping[str, np.ndarray]) -> None:
        self.arrays = arrays = {name: array for part in columns for name, array in part.items()}
        assert len(arrays) == sum(map(len, columns)), "two columns have one name"
        self.type = table_type(
            tuple((name, array.dtype.name, array.ndim) for name, array in arrays.items())
        )
        self.numbers = np.zeros((len(arrays), 1 + MOST_DIMENSIONS), np.int64)
        for row, (name, array) in zip(self.numbers, self.arrays.items(), strict=True):
            if not array.flags.c_contiguous:
                raise TypeError(f"{name} is not contiguous, and must be.")
            row[0], row[1 : 1 + array.ndim] = array.ctypes.data, array.shape
        self.address = self.numbers.ctypes.data

    def replace(self, name: str, array: np.ndarray) -> None:
        """Another array of this name, of the same kind; its size may be another."""
        self.arrays[name] = array
        row = self.numbers[list(self.arrays).index(name)]
        row[0], row[1 : 1 + array.ndim] = array.ctypes.data, array.shape


table_type = cache(TableType)


@typeof_impl.register(KernelTable)
def type_of_table(table: KernelTable, context: Any) -> TableType:
    return table.type


@unbox(TableType)
def table_address(kind: TableType, table: Any, c: Any) -> NativeValue:
    number = c.pyapi.object_getattr_string(table, "address")
    address = c.pyapi.long_as_voidptr(number)
    c.pyapi.decref(number)
    return NativeValue(c.builder.bitcast(address, c.context.get_value_type(kind)))


def compiled_for(kernel: Any, *arguments: Any) -> Any:
    """The compiled form of a kernel for arguments of these types, which are then no longer looked
    at."""
    signature = tuple(kernel.typeof_pyval(argument) for argument in arguments)
    kernel.compile(signature)
    return kernel.overloads[signature].entry_point


@cache
def tuple_of(fields: Fields) -> types.NamedTuple:
    """What a table is opened as."""
    kinds = [
        types.Array(from_dtype(np.dtype(dtype)), dimensions, "C")
        if dimensions
        else from_dtype(np.dtype(dtype))
        for _, dtype, dimensions in fields
    ]
    return types.NamedTuple(kinds, namedtuple("Arrays", [name for name, _, _ in fields]))


def opened_at(context: Any, builder: Any, opened: types.NamedTuple, numbers: Any) -> Any:
    """The named tuple of the arrays and numbers whose addresses and shapes begin at a pointer."""

    def load(row: int, column: int) -> Any:
        index = row * (1 + MOST_DIMENSIONS) + column
        return builder.load(cgutils.gep_inbounds(builder, numbers, index))

    values = []
    for row, kind in enumerate(opened.types):
        if isinstance(kind, types.Array):
            shape = [load(row, column) for column in range(1 + kind.ndim)]
            values.append(array_at(context, builder, kind, shape))
        else:
            pointer = context.get_data_type(kind).as_pointer()
            values.append(
                context.unpack_value(builder, kind, builder.inttoptr(load(row, 0), pointer))
            )
    return context.make_tuple(builder, opened, values)


def open_arrays(typing: Any, table: Any) -> Any:
    """The named tuple of a table's arrays and numbers."""
    opened = tuple_of(table.fields)

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        whole = context.get_value_type(types.int64)
        numbers = builder.bitcast(arguments[0], whole.as_pointer())
        return opened_at(context, builder, opened, numbers)

    return opened(table), codegen


def opener_at(fields: Fields) -> Any:
    """For compiled functions that have a table's address alone, as C and other threads call them:
    opens the table with these fields."""
    opened = tuple_of(fields)

    @intrinsic
    def open_at(typing: Any, address: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            whole = context.get_value_type(types.int64)
            numbers = builder.inttoptr(arguments[0], whole.as_pointer())
            return opened_at(context, builder, opened, numbers)

        return opened(types.int64), codegen

    return open_at


open_table: Any = intrinsic(open_arrays)  # for kernels


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


# tables whose named tuple is written out


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
    tuple_type = types.NamedTuple(field_types(kind), kind)

    @intrinsic
    def open_named(typing: Any, table: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            numbers = make_array(signature.args[0])(context, builder, arguments[0]).data

            def number(row: int, column: int) -> Any:
                return builder.load(
                    cgutils.gep_inbounds(builder, numbers, row * (1 + MOST_DIMENSIONS) + column)
                )

            values = [
                array_at(context, builder, want, [number(row, c) for c in range(1 + want.ndim)])
                for row, want in enumerate(tuple_type.types)
            ]
            return context.make_tuple(builder, tuple_type, values)

        return tuple_type(table), codegen

    return open_named

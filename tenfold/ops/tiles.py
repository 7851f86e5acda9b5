"""What LLVM is told about products of float32 matrices: loops over vectors whose sums stay in
registers.

Compiled functions get pointers here, by `at(array, place)`: a slice of an array would cost two
atomic additions. Vectors are LLVM's own, of any length on any processor: it splits what is longer
than a register. Their lengths are arguments, so that the long form can be tested where no register
holds it.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import extending, float32, types
from numba.core import cgutils
from numba.core.registry import cpu_target

LANES = 8  # numbers in a vector, and of the side of a square that is transposed at once
# rows that a tile can have; with two vectors a row the largest takes 12 registers, AVX2 has 16
ROWS = (6, 2, 1)
NUMBER, INDEX, WORD = ir.FloatType(), ir.IntType(64), ir.IntType(32)
POINTER, LIST = types.CPointer(float32), types.CPointer(types.intp)


def features() -> set[str]:
    """Those of the processor that Numba compiles for, which keys its cache on them too: "avx2",
    "fma", …"""
    context: Any = cpu_target.target_context
    named = context.codegen().magic_tuple()[2].split(",")
    return {feature[1:] for feature in named if feature.startswith("+")}


def columns_of(wide: int) -> tuple[int, ...]:
    """The columns that a tile can have where the longest vector holds `wide` numbers: two vectors,
    one, one of LANES."""
    return tuple(dict.fromkeys((2 * wide, wide, LANES)))


def intrinsic(define: Callable[..., Any]) -> Any:
    """Numba's, with constants known as such. The definition's first argument is Numba's own, and
    none of the call's."""
    return extending.intrinsic(prefer_literal=True)(define)


# words of LLVM


def load(builder, pointer, offset, kind):
    return builder.load(builder.bitcast(builder.gep(pointer, [offset]), kind.as_pointer()), align=4)


def store(builder, vector, pointer, offset):
    builder.store(
        vector, builder.bitcast(builder.gep(pointer, [offset]), vector.type.as_pointer()), align=4
    )


def shuffle(builder, x, y, order):
    return builder.shuffle_vector(x, y, ir.Constant(ir.VectorType(WORD, len(order)), order))


def spread(builder, number, lanes):
    """The number in all lanes."""
    empty = ir.Constant(ir.VectorType(NUMBER, lanes), ir.Undefined)
    return shuffle(builder, builder.insert_element(empty, number, WORD(0)), empty, [0] * lanes)


def lines(builder, pointer, step, rows):
    """Pointers to the beginnings of these rows, `step` numbers apart."""
    return [builder.gep(pointer, [builder.mul(step, row)]) for row in rows]


def loop(builder, end, step, first, body):
    """values = body(counter, values) for counter = 0, step, … below `end`, at least once, from the
    values `first`."""
    before, inside, after = (
        builder.block,
        builder.append_basic_block(),
        builder.append_basic_block(),
    )
    builder.branch(inside)
    builder.position_at_end(inside)
    counter, *values = phis = [
        builder.phi(kind) for kind in (INDEX, *(value.type for value in first))
    ]
    new = [builder.add(counter, INDEX(step)), *body(counter, values)]
    for phi, begin, then in zip(phis, [INDEX(0), *first], new, strict=True):
        phi.add_incoming(begin, before)
        phi.add_incoming(then, inside)
    builder.cbranch(builder.icmp_signed("<", new[0], end), inside, after)
    builder.position_at_end(after)
    return new[1:]


def call(builder, name, kind, *values):
    function = ir.FunctionType(kind, [value.type for value in values])
    return builder.call(cgutils.get_or_insert_function(builder.module, function, name), values)


# pointers


@intrinsic
def at(_, array, offset):
    """A pointer to a number of an array, or of what a pointer points to."""

    def generate(context, builder, signature, args):
        kind, value = signature.args[0], args[0]
        start = (
            context.make_array(kind)(context, builder, value).data
            if isinstance(kind, types.Array)
            else value
        )
        return builder.gep(start, [args[1]])

    return types.CPointer(array.dtype)(array, types.intp), generate


@intrinsic
def on_stack(_, size, kind):
    """A pointer to room for `size` numbers of a kind until the calling function returns."""

    def generate(context, builder, signature, args):
        element = context.get_data_type(kind.dtype)
        with builder.goto_entry_block():
            return builder.bitcast(
                builder.alloca(ir.ArrayType(element, size.literal_value)), element.as_pointer()
            )

    return types.CPointer(kind.dtype)(size, kind), generate


# kernels


@intrinsic
def any_bits(_, row, size):
    """Whether some of a row's numbers, LANES or more, is not 0.0."""

    def generate(context, builder, signature, args):
        row, size = args
        bit_vector, last = ir.VectorType(WORD, LANES), builder.sub(size, INDEX(LANES))
        any_lane = loop(
            builder,
            last,
            LANES,
            [load(builder, row, last, bit_vector)],
            lambda offset, bits: [builder.or_(bits[0], load(builder, row, offset, bit_vector))],
        )
        return builder.icmp_unsigned(
            "!=", call(builder, f"llvm.vector.reduce.or.v{LANES}i32", WORD, *any_lane), WORD(0)
        )

    return types.boolean(POINTER, types.intp), generate


@intrinsic
def tile(_, wide, rows, columns, which, a, b, c, start, floor, order, depth):
    """c[i·rc + j] = max(start[i·rs] + Σ_k a[i·ra + k·ca]·b[k·rb + j], floor) for `columns` numbers
    j, the first `rows` i in the list `which` and the first `depth` k in `order`, 1 or more. Numbers
    come with their steps: (a, ra, ca), (b, rb), (c, rc), (start, rs). `wide`, a constant, is the
    length of the longest vector.

    Every size of a tile is a loop of its own; the calling function is not inlined, so that they are
    compiled once.
    """

    def generate(context, builder, signature, args):
        builder.function.attributes.add("noinline")
        _, rows, columns, which, *stepped, floor, order, depth = args
        numbers = [cgutils.unpack_tuple(builder, pointer) for pointer in stepped]
        rest = [which, *numbers, floor, order, depth]
        sizes = [(count, across) for count in ROWS for across in columns_of(wide.literal_value)]
        done = builder.append_basic_block()
        choice = builder.switch(builder.add(builder.mul(rows, INDEX(100)), columns), done)
        for count, across in sizes:
            block = builder.append_basic_block()
            choice.add_case(INDEX(count * 100 + across), block)
            builder.position_at_end(block)
            tile_of(builder, count, across, min(wide.literal_value, across), *rest)
            builder.branch(done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    n, stepped = types.intp, types.Tuple((POINTER, types.intp))
    in_a = types.Tuple((POINTER, n, n))
    return types.void(wide, n, n, LIST, in_a, stepped, stepped, stepped, float32, LIST, n), generate


def tile_of(builder, count, across, lanes, which, in_a, in_b, in_c, start, floor, order, depth):
    """A tile of one size: count × across sums, in vectors of `lanes`. Numbers are lists of a
    pointer and its steps."""
    (a, ra, ca), (b, rb), (c, rc), (start, rs) = in_a, in_b, in_c, start
    kind, offsets = (
        ir.VectorType(NUMBER, lanes),
        [INDEX(offset) for offset in range(0, across, lanes)],
    )
    rows = [builder.load(builder.gep(which, [INDEX(i)])) for i in range(count)]
    factors = lines(builder, a, ra, rows)

    def add_products(counter, sums):
        k = builder.load(builder.gep(order, [counter]))
        offset_a, row_b = builder.mul(k, ca), builder.gep(b, [builder.mul(k, rb)])
        right = [load(builder, row_b, offset, kind) for offset in offsets]
        left = [
            spread(builder, builder.load(builder.gep(line, [offset_a])), lanes) for line in factors
        ]
        pairs = ((x, y) for x in left for y in right)
        return [
            call(builder, f"llvm.fmuladd.v{lanes}f32", kind, x, y, total)
            for (x, y), total in zip(pairs, sums, strict=True)
        ]

    first = [
        spread(builder, builder.load(number), lanes)
        for number in lines(builder, start, rs, rows)
        for _ in offsets
    ]
    sums, least = iter(loop(builder, depth, 1, first, add_products)), spread(builder, floor, lanes)
    for line in lines(builder, c, rc, rows):
        for offset in offsets:
            total = next(sums)
            # NaN stays
            store(
                builder,
                builder.select(builder.fcmp_ordered("<", total, least), least, total),
                line,
                offset,
            )


@intrinsic
def turn_tile(_, b, rb, c, rc):
    """LANES × LANES numbers transposed: c[j·rc + i] = b[i·rb + j]. Pairs of rows are interleaved by
    1, then 2, then 4 numbers."""

    def generate(context, builder, signature, args):
        b, rb, c, rc = args
        places, zero, kind = (
            [INDEX(i) for i in range(LANES)],
            INDEX(0),
            ir.VectorType(NUMBER, LANES),
        )
        rows = [load(builder, line, zero, kind) for line in lines(builder, b, rb, places)]
        for step, low, up in (
            (1, [0, 8, 1, 9, 4, 12, 5, 13], 2),
            (2, [0, 1, 8, 9, 4, 5, 12, 13], 2),
            (4, [0, 1, 2, 3, 8, 9, 10, 11], 4),
        ):
            for i in (i for i in range(LANES) if not i & step):
                x, y = rows[i], rows[i + step]
                rows[i], rows[i + step] = (
                    shuffle(builder, x, y, low),
                    shuffle(builder, x, y, [lane + up for lane in low]),
                )
        for j, line in zip((0, 2, 1, 3, 4, 6, 5, 7), lines(builder, c, rc, places), strict=True):
            store(builder, rows[j], line, zero)
        return context.get_dummy_value()

    return types.void(POINTER, types.intp, POINTER, types.intp), generate

"""Products of float32 matrices for small networks, inside compiled code.

BLAS packs both factors anew for every product, which at these sizes costs as much as the product.
Here a tile of 6 rows × 2 vectors of sums stays in registers while k runs (`ops.tiles`); large
products are left to BLAS. A sum runs over k in order, whatever its tile, so a result does not
depend on the other rows and columns. Rows of zeros are left out: with ReLU these are the units that
no item of the batch makes fire, a third of a trained network and more.

Matrices are pointers to numbers row by row, and their sizes.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from numba import carray  # pyright: ignore[reportPrivateImportUsage]

from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.ops.tiles import LANES, ROWS, any_bits, at, features, on_stack, tile, turn_tile

FEATURES = features()
WIDE = 16 if "avx512f" in FEATURES else LANES  # numbers in the longest vector
MOST = ROWS[0]
# Multiplications from which BLAS is as fast (bench/products.py). With the longest vectors a tile
# needs half as many numbers of `b` a second, and BLAS catches up late. Processors without fused
# multiplication and addition have registers for a quarter of a tile: there BLAS is always faster.
LARGE = (
    1 << 26 if "avx512f" in FEATURES else 1 << 23 if {"fma", "neon"} & FEATURES else 0
)  # fmt: skip
LISTED = 4096  # rows that a list of rows has room for
TILED = 1024  # rows up to which a product is by tiles: those with more are left to BLAS too
SEARCHED = 1 << 16  # multiplications from which looking for rows of zeros pays
NO_FLOOR = np.float32(-np.inf)
# steps; for plain numbers Numba would compile every mixture of them anew
NEXT, SAME = np.int64(1), np.int64(0)


@kernel
def turn(m, n, b, c):
    """c [n, m] = bᵀ, b [m, n]."""
    turn_part(m, n, b, n, c, m)


@kernel
def turn_part(m, n, b, rb, c, rc):
    """The same of parts of matrices, whose rows are rb and rc numbers apart."""
    if m < LANES or n < LANES:
        for i in range(m):
            for j in range(n):
                c[j * rc + i] = b[i * rb + j]
        return
    for above in range(0, m, LANES):
        i = min(above, m - LANES)  # the last square may cover what the one before it did
        for before in range(0, n, LANES):
            j = min(before, n - LANES)
            turn_tile(at(b, i * rb + j), rb, at(c, j * rc + i), rc)


@kernel
def used_rows(m, n, b, rb, listed, search):
    """Lists the rows of b [m, n] that are not all zeros, or all rows; returns their number, at
    least 1."""
    count = 0
    for i in range(m):
        listed[count] = i
        count += not search or any_bits(at(b, i * rb), n)
    return max(count, 1)


@kernel
def zero_others(m, n, c, rc, listed, count):
    """Rows of c [m, n] that are not among the listed, in order, become zeros."""
    passed = 0
    for i in range(m if count < m else 0):
        if passed < count and listed[passed] == i:
            passed += 1
        else:
            for j in range(n):
                c[i * rc + j] = np.float32(0)


@cache
def by_tiles_of(wide):
    """The product by tiles of vectors of `wide` numbers at most."""

    @kernel
    def by_tiles(m, n, depth, a, ra, ca, b, rb, c, rc, start, rs, floor):
        """c[i·rc + j] = max(start[i·rs] + Σ_k a[i·ra + k·ca]·b[k·rb + j], floor); b [depth, n] and
        c [m, n], n ≥ LANES, with their rows rb and rc numbers apart.

        Without a start (rs = 0, one 0 there) or a floor a row of zeros in `a` makes one in `c`.
        """
        which, order = on_stack(LISTED, np.intp), on_stack(LISTED, np.intp)
        search = m * n * depth >= SEARCHED and depth >= LANES
        in_a = ca == 1 and rs == 0
        inner, used = (
            used_rows(depth, n, b, rb, order, search and not in_a),
            used_rows(m, depth, a, ra, which, search and in_a),
        )
        zero_others(m, n, c, rc, which, used)
        rows = MOST if used >= MOST else 2 if used >= 2 else 1
        for above in range(0, used, rows):
            i = min(above, used - rows)  # the last tile may cover rows of the one before it
            before = 0
            while before < n:
                columns = 2 * wide
                while columns > LANES and (n - before <= columns // 2 or n < columns):
                    columns //= 2
                j = min(before, n - columns)
                tile(
                    wide,
                    rows,
                    columns,
                    at(which, i),
                    (at(a, 0), ra, ca),
                    (at(b, j), rb),
                    (at(c, j), rc),
                    (at(start, 0), rs),
                    floor,
                    order,
                    inner,
                )
                before += columns

    return by_tiles


by_tiles = by_tiles_of(WIDE)


@kernel
def by_blas(m, n, depth, a, ca, b, c, start, rs, floor):
    """The same by BLAS; `a` is [m, depth] where ca is 1, else [depth, m]."""
    right, out = carray(b, (depth, n)), carray(c, (m, n))
    if ca == 1:
        np.dot(carray(a, (m, depth)), right, out)
    else:
        np.dot(carray(a, (depth, m)).T, right, out)
    if rs == 0 and floor == NO_FLOOR:
        return
    for i in range(m):
        first = start[i * rs]
        for j in range(n):
            total = c[i * n + j] + first
            c[i * n + j] = floor if total < floor else total


@kernel(fastmath={"reassoc", "nsz", "contract"})
def of_one(m, depth, a, b, c, start, floor):
    """The same for one column: sums in vectors along k."""
    for i in range(m):
        total = np.float32(0)
        for k in range(depth):
            total += a[i * depth + k] * b[k]
        total += start[i]
        c[i] = floor if total < floor else total


@kernel(inline="always")
def product(m, n, depth, a, ra, ca, b, c, start, rs, floor):
    if n < LANES or m * n * depth > LARGE or max(m, depth) > TILED:
        by_blas(m, n, depth, a, ca, b, c, start, rs, floor)
    else:
        by_tiles(m, n, depth, a, ra, ca, b, n, c, n, start, rs, floor)


# what networks ask for


@kernel(inline="always")
def layer(out, rows, into, weight, bias, x, y, floor):
    """y = max(weight·x + bias, floor):   weight [out, into], x [into, rows], y [out, rows]."""
    if rows == 1:
        of_one(out, into, weight, x, y, bias, floor)
    else:
        product(out, rows, into, weight, into, NEXT, x, y, bias, NEXT, floor)


@kernel(inline="always")
def layer_by_input(out, rows, into, weight, by_y, by_x):
    """by_x = weightᵀ·by_y:   the derivative by a layer's input [into, rows] from that by its output
    [out, rows]."""
    nothing = on_stack(1, np.float32)
    nothing[0] = np.float32(0)
    product(into, rows, out, weight, NEXT, into, by_y, by_x, nothing, SAME, NO_FLOOR)


@kernel(inline="always")
def layer_by_weight(out, rows, into, by_y, x, scratch, by_weight):
    """by_weight [out, into] = by_y·xᵀ; `scratch` has room for `rows` times the larger of the
    widths. `by_y` is lost."""
    nothing = on_stack(1, np.float32)
    nothing[0] = np.float32(0)
    if into < LANES <= min(rows, out):  # columns too few for a vector: the transpose of all
        turn(out, rows, by_y, scratch)
        product(into, out, rows, x, rows, NEXT, scratch, by_y, nothing, SAME, NO_FLOOR)
        turn(into, out, by_y, by_weight)
    else:
        turn(into, rows, x, scratch)
        product(out, into, rows, by_y, rows, NEXT, scratch, by_weight, nothing, SAME, NO_FLOOR)


@kernel(fastmath={"reassoc", "nsz"})
def layer_by_bias(out, rows, by_y, by_bias):
    """by_bias [out] = the sums of the rows of by_y."""
    for j in range(out):
        total = np.float32(0)
        for i in range(rows):
            total += by_y[j * rows + i]
        by_bias[j] = total


# the pairs


def factors(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """a [m, depth] or its transpose, b [depth, n], a start for every row and a floor. Sizes around
    those of tiles, dead rows."""
    for m, n, depth in (
        (1, 8, 1),
        (2, 9, 3),
        (6, 16, 5),
        (7, 17, 1),
        (5, 64, 32),
        (13, 33, 70),
        (64, 32, 64),
        (65, 100, 33),
    ):
        for transposed, adds in ((False, True), (False, False), (True, False)):
            a, b = (
                rng.normal(size=(m, depth)).astype(dtype),
                rng.normal(size=(depth, n)).astype(dtype),
            )
            a[rng.random(m) < 0.3], b[rng.random(depth) < 0.3] = 0, 0
            start = rng.normal(size=m).astype(dtype) if adds else np.zeros(1, dtype)
            a = np.ascontiguousarray(a.T) if transposed else a
            yield a, b, start, np.float32(0) if adds else NO_FLOOR, transposed
    dead = np.zeros((64, 64), dtype)
    yield dead, dead, np.zeros(1, dtype), NO_FLOOR, False
    yield (
        np.full((2, 8), np.nan, dtype),
        np.ones((8, 8), dtype),
        np.ones(2, dtype),
        np.float32(0),
        False,
    )


def factors_by_width(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for wide in (8, 16):
        for inputs in factors(rng, dtype):
            yield wide, *inputs


def product_reference(a, b, start, floor, transposed):
    return np.maximum((a.T if transposed else a).astype(np.float64) @ b + start[:, None], floor)


def product_by_width_reference(wide, *inputs):
    return product_reference(*inputs)


@pair(product_by_width_reference, factors_by_width, rtol=1e-5, atol=1e-5)
def product_by_tiles(wide, a, b, start, floor, transposed):
    m, rs = a.shape[1] if transposed else a.shape[0], 0 if start.size == 1 else 1
    depth, n = b.shape
    out = np.empty(m * n, np.float32)
    ra, ca = (1, m) if transposed else (depth, 1)
    by_tiles_of(wide)(m, n, depth, a.ravel(), ra, ca, b.ravel(), n, out, n, start, rs, floor)
    return out.reshape(m, n)


@pair(product_reference, factors, rtol=1e-5, atol=1e-5)
@kernel
def product_by_blas(a, b, start, floor, transposed):
    m, rs = a.shape[1] if transposed else a.shape[0], 0 if start.size == 1 else 1
    depth, n = b.shape
    out = np.empty((m, n), np.float32)
    by_blas(
        m, n, depth, at(a, 0), m if transposed else 1, at(b, 0), at(out, 0), at(start, 0), rs, floor
    )
    return out


def turn_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for shape in ((1, 1), (7, 20), (20, 7), (8, 8), (9, 23), (64, 32)):
        yield (rng.normal(size=shape).astype(dtype),)


@pair(lambda matrix: matrix.T, turn_examples)
@kernel
def turned(matrix):
    m, n = matrix.shape
    out = np.empty((n, m), np.float32)
    turn(m, n, at(matrix, 0), at(out, 0))
    return out

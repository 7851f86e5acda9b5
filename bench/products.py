"""The products of a layer by tiles of registers against BLAS, and where BLAS catches up.

Forward, the derivative by the input and that by the weight of one layer, square in its widths, with
dense factors: no row of zeros is left out. `ops.products.LARGE` is the number of multiplications
from which BLAS is as fast.
"""

from typing import Any

import numpy as np
from measure import row
from numba import njit

from tenfold.core.system import set_threads
from tenfold.engines.fused import zeros
from tenfold.ops.products import NEXT, NO_FLOOR, SAME, by_blas, by_tiles, turn
from tenfold.ops.tiles import at

SIZES = (
    (64, 32),
    (64, 128),
    (64, 512),
    (128, 128),
    (256, 32),
    (256, 128),
    (256, 512),
    (512, 128),
    (512, 512),
    (1024, 128),
    (1024, 512),
)  # widths, items of a batch


@njit(cache=True, error_model="numpy")
def three_by_tiles(width, rows, weight, bias, x, by_y, turned, y, by_x, by_weight):
    by_tiles(
        width,
        rows,
        width,
        at(weight, 0),
        width,
        NEXT,
        at(x, 0),
        rows,
        at(y, 0),
        rows,
        at(bias, 0),
        NEXT,
        NO_FLOOR,
    )
    by_tiles(
        width,
        rows,
        width,
        at(weight, 0),
        NEXT,
        width,
        at(by_y, 0),
        rows,
        at(by_x, 0),
        rows,
        at(bias, 0),
        SAME,
        NO_FLOOR,
    )
    turn(width, rows, at(x, 0), at(turned, 0))
    by_tiles(
        width,
        width,
        rows,
        at(by_y, 0),
        rows,
        NEXT,
        at(turned, 0),
        width,
        at(by_weight, 0),
        width,
        at(bias, 0),
        SAME,
        NO_FLOOR,
    )


@njit(cache=True, error_model="numpy")
def three_by_blas(width, rows, weight, bias, x, by_y, y, by_x, by_weight):
    by_blas(
        width, rows, width, at(weight, 0), NEXT, at(x, 0), at(y, 0), at(bias, 0), NEXT, NO_FLOOR
    )
    by_blas(
        width,
        rows,
        width,
        at(weight, 0),
        width,
        at(by_y, 0),
        at(by_x, 0),
        at(bias, 0),
        SAME,
        NO_FLOOR,
    )
    np.dot(by_y.reshape(width, rows), x.reshape(width, rows).T, by_weight.reshape(width, width))


def products() -> list[dict[str, Any]]:
    set_threads(1)
    rng, rows = np.random.default_rng(0), []
    for width, items in SIZES:
        weight, x, by_y = zeros(width * width), zeros(width * items), zeros(width * items)
        for matrix in (weight, x, by_y):
            matrix[:] = rng.normal(size=matrix.size)
        bias, turned = zeros(width), zeros(width * items)
        ours, theirs = (
            [zeros(width * items), zeros(width * items), zeros(width * width)] for _ in range(2)
        )

        def tiles(width=width, items=items, own=(weight, bias, x, by_y, turned, *ours)) -> None:
            three_by_tiles(width, items, *own)

        def blas(width=width, items=items, own=(weight, bias, x, by_y, *theirs)) -> None:
            three_by_blas(width, items, *own)

        tiles()
        blas()
        worst = max(float(np.abs(a - b).max()) for a, b in zip(ours, theirs, strict=True))
        rows.append(
            row(
                "products",
                {"width": width, "batch": items, "multiplications": width * width * items},
                ("BLAS", blas),
                ("tiles", tiles),
                worst < 1e-3,
                worst,
            )
        )
    return rows


NAMES = {"products": products}

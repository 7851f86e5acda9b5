"""Arrays given to a kernel by a table of their addresses are those very arrays."""

from typing import Any, NamedTuple

import numpy as np
import pytest

from tenfold.core.kernels import kernel
from tenfold.core.tables import B2, D1, F2, F3, I1, U1, W1, Y1, opener, table_of


class Several(NamedTuple):
    rows: F2
    cube: F3
    total: D1
    counts: I1
    stream: U1
    whole: W1
    bytes: Y1
    mask: B2


open_several = opener(Several)


@kernel
def change(table):
    """Something of every array, by its own indices; returns shapes as they are seen inside."""
    a = open_several(table)
    for i in range(a.rows.shape[0]):
        for j in range(a.rows.shape[1]):
            a.rows[i, j] = a.cube[i, j, a.cube.shape[2] - 1] if a.mask[i, j] else a.whole[j]
    a.total[0] = a.rows.sum() + a.bytes[1]
    a.counts[a.counts.size - 1] += 2
    a.stream[0] += np.uint64(1)
    return a.rows.shape, a.cube.shape, a.mask.size


def several(rng: np.random.Generator, n: int, m: int) -> Several:
    return Several(
        np.zeros((n, m), np.float32),
        rng.normal(size=(n, m, 5)).astype(np.float32),
        np.zeros(1),
        np.arange(4),
        np.array([2**63], np.uint64),
        rng.integers(-9, 9, max(m, 1)).astype(np.int32),
        np.array([7, 250], np.uint8),
        rng.random((n, m)) < 0.5,
    )


@pytest.mark.parametrize(("n", "m"), [(1, 1), (3, 7), (5, 0), (0, 4)])
def test_a_kernel_reads_and_writes_the_arrays_themselves(n: int, m: int) -> None:
    a = several(np.random.default_rng(n), n, m)
    table = table_of(a)
    for times in (1, 2):
        assert change(table) == ((n, m), (n, m, 5), n * m)
        expected = np.where(a.mask, a.cube[:, :, 4], a.whole[:m])
        assert np.array_equal(a.rows, expected)
        assert a.total[0] == pytest.approx(expected.sum() + 250, rel=1e-5)
        assert a.counts.tolist() == [0, 1, 2, 3 + 2 * times] and a.stream[0] == 2**63 + times


@pytest.mark.parametrize(
    "changes",
    [
        {"rows": np.zeros((2, 3))},
        {"rows": np.zeros(3, np.float32)},
        {"cube": np.zeros((2, 3, 5), np.float32).transpose(1, 0, 2)},
        {"mask": np.zeros((2, 3), np.uint8)},
        {"counts": np.zeros(4, np.uint64)},
    ],
)
def test_an_array_of_another_kind_or_order_is_refused_by_name(changes: dict[str, Any]) -> None:
    a = several(np.random.default_rng(0), 2, 3)._replace(**changes)
    with pytest.raises(TypeError, match=f"^{next(iter(changes))} is "):
        table_of(a)

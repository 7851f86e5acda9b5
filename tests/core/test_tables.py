"""Arrays given to a kernel by a table of their addresses are those very arrays."""

import numpy as np
import pytest

from tenfold.core.kernels import kernel
from tenfold.core.tables import KernelTable, compiled_for, open_table


@kernel
def change(table):
    """Something of every array, by its own indices; returns shapes as they are seen inside."""
    a = open_table(table)
    for i in range(a.rows.shape[0]):
        for j in range(a.rows.shape[1]):
            a.rows[i, j] = a.cube[i, j, a.cube.shape[2] - 1] if a.mask[i, j] else a.whole[j]
    a.total[0] = a.rows.sum() * a.factor + a.bytes[1] + (a.added if a.adds else 0)
    a.counts[a.counts.size - 1] += 2
    a.stream[0] += np.uint64(1)
    return a.rows.shape, a.cube.shape, a.mask.size


def several(rng: np.random.Generator, n: int, m: int) -> dict[str, np.ndarray]:
    return {
        "rows": np.zeros((n, m), np.float32),
        "cube": rng.normal(size=(n, m, 5)).astype(np.float32),
        "total": np.zeros(1),
        "counts": np.arange(4),
        "stream": np.array([2**63], np.uint64),
        "whole": rng.integers(-9, 9, max(m, 1)).astype(np.int32),
        "bytes": np.array([7, 250], np.uint8),
        "mask": rng.random((n, m)) < 0.5,
        "factor": np.array(0.5),
        "added": np.array(3),
        "adds": np.array(True),
    }


@pytest.mark.parametrize(("n", "m"), [(1, 1), (3, 7), (5, 0), (0, 4)])
def test_a_kernel_reads_and_writes_the_arrays_themselves(n: int, m: int) -> None:
    a = several(np.random.default_rng(n), n, m)
    table = KernelTable(a)
    compiled = compiled_for(change, table)
    for times, call in ((1, change), (2, compiled), (3, change)):
        a["added"][...] = times  # numbers are those of the moment of the call
        assert call(table) == ((n, m), (n, m, 5), n * m)
        expected = np.where(a["mask"], a["cube"][:, :, 4], a["whole"][:m])
        assert np.array_equal(a["rows"], expected)
        assert a["total"][0] == pytest.approx(0.5 * expected.sum() + 250 + times, rel=1e-5)
        assert a["counts"].tolist() == [0, 1, 2, 3 + 2 * times]
        assert a["stream"][0] == 2**63 + times


def test_a_kernel_is_compiled_once_for_tables_of_one_kind_and_anew_for_others() -> None:
    rng = np.random.default_rng(0)
    change(KernelTable(several(rng, 1, 1)))
    before = len(change.signatures)
    change(KernelTable(several(rng, 3, 2)))
    assert len(change.signatures) == before
    change(KernelTable(several(rng, 3, 2) | {"total": np.zeros(1, np.float32)}))
    assert len(change.signatures) == before + 1


def test_an_array_in_another_order_is_refused_by_name() -> None:
    turned = np.zeros((2, 3, 5), np.float32).transpose(1, 0, 2)
    with pytest.raises(TypeError, match=r"^cube is not contiguous"):
        KernelTable(several(np.random.default_rng(0), 2, 3) | {"cube": turned})

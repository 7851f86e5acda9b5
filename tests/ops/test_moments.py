"""Running moments: by hand, cut into any batches, merged, restored, and rows that would spoil them
refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from tenfold.core.errors import CheckpointError, ObservationError
from tenfold.ops.moments import RunningNorm, norm_apply, norm_update


def test_moments_by_hand() -> None:
    norm = RunningNorm(1)
    assert norm.normalise(np.array([[3.0]])).item() == 3  # nothing seen: as it is
    norm.update(np.array([[1.0], [3.0]]))
    assert (norm.mean.item(), norm.variance.item()) == (2, 1)
    norm.update(np.array([[8.0]]))  # 1, 3, 8: mean 4, variance (9 + 1 + 16)/3
    assert (
        norm.count[0] == 3
        and norm.mean.item() == pytest.approx(4)
        and norm.variance.item() == pytest.approx(26 / 3)
    )
    assert norm.normalise(np.array([[8.0]], np.float32)).item() == pytest.approx(
        4 / np.sqrt(26 / 3)
    )


def test_numbers_are_clipped_at_ten_and_a_constant_column_is_zero() -> None:
    norm = RunningNorm(2)
    norm.update(np.array([[0.0, 7.0], [2.0, 7.0]]))
    assert norm.normalise(np.array([[1e6, 7.0], [-1e6, 7.0], [6.0, 8.0]], np.float32)).tolist() == [
        [10, 0],
        [-10, 0],
        [5, 10],
    ]
    tight = RunningNorm(1, clip=2.0)
    assert tight.normalise(np.array([[9.0]], np.float32)).item() == 2


@settings(max_examples=50, deadline=None)
@given(
    st.integers(0, 10**6),
    st.lists(st.integers(1, 9), min_size=1, max_size=6),
    st.sampled_from([0.0, 1.0, 1e6]),
    st.sampled_from(["float32", "float64"]),
)
def test_moments_do_not_depend_on_how_the_rows_were_cut(
    seed: int, cuts: list[int], far: float, dtype: str
) -> None:
    rows = (far + np.random.default_rng(seed).normal(size=(sum(cuts), 5))).astype(dtype)
    norm, merged = RunningNorm(5), RunningNorm(5)
    for part in np.split(rows, np.cumsum(cuts)[:-1]):
        norm.update(part)
        alone = RunningNorm(5)
        alone.update(part)
        merged.merge(alone)
    for found in (norm, merged):
        assert found.count[0] == len(rows)
        assert np.allclose(found.mean, rows.mean(0, dtype=np.float64), rtol=1e-12, atol=1e-12)
        assert np.allclose(found.variance, rows.var(0, dtype=np.float64), rtol=1e-6, atol=1e-12)
        assert np.allclose(
            found.inv_std, 1 / np.sqrt(rows.var(0, dtype=np.float64) + 1e-8), rtol=1e-6
        )


def test_a_loaded_state_goes_on_as_if_never_stopped() -> None:
    rng = np.random.default_rng(0)
    norm, resumed = RunningNorm(4), RunningNorm(4)
    norm.update(rng.normal(size=(10, 4)))
    state = norm.state()
    resumed.load_state(state)
    rows = rng.normal(size=(3, 4)).astype(np.float32)
    assert np.array_equal(norm.normalise(rows), resumed.normalise(rows))
    norm.update(rows)
    resumed.update(rows)
    assert all(
        np.array_equal(a, b)
        for a, b in zip(norm.state().values(), resumed.state().values(), strict=True)
    )
    assert state["count"][0] == 10  # a state is a copy


def test_a_state_of_another_size_or_without_a_part_is_refused() -> None:
    norm = RunningNorm(3)
    norm.update(np.ones((2, 3)))
    before = norm.state()
    with pytest.raises(CheckpointError, match="mean is \\[4\\] and must be \\[3\\]"):
        norm.load_state(RunningNorm(4).state())
    with pytest.raises(CheckpointError, match="m2 is missing"):
        norm.load_state({"count": np.zeros(1), "mean": np.zeros(3)})
    assert all(
        np.array_equal(a, b) for a, b in zip(norm.state().values(), before.values(), strict=True)
    )


def test_rows_that_would_spoil_the_moments_are_refused() -> None:
    norm = RunningNorm(2)
    with pytest.raises(ObservationError, match="not finite: column 1 of row 2"):
        norm.update(np.array([[0, 0], [1, 1], [0, np.inf]]))
    for rows in (np.zeros(2), np.zeros((1, 3))):
        with pytest.raises(ValueError, match=r"must be \[B, 2\]"):
            norm.update(rows)
    assert norm.count[0] == 0


def test_other_compiled_code_can_call_the_kernels() -> None:
    @njit
    def caller(count, mean, m2, inv_std, rows, out):
        norm_update(count, mean, m2, rows)
        return norm_apply(rows, mean, inv_std, 10.0, out)

    count, mean, m2 = np.zeros(1, np.int64), np.zeros(2), np.zeros(2)
    rows = np.array([[1.0, 2.0], [3.0, 6.0]], np.float32)
    assert caller(count, mean, m2, np.ones(2), rows, np.zeros((2, 2), np.float32)).tolist() == [
        [-1, -2],
        [1, 2],
    ]
    assert count[0] == 2 and mean.tolist() == [2, 4] and m2.tolist() == [2, 8]

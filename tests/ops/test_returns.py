"""Advantages and returns: time limits, terminations and both autoreset modes worked out by hand,
then what must hold for any rollout."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from tenfold.ops import returns
from tenfold.ops.returns import (
    gae,
    gae_into,
    gae_reference,
    gae_scan,
    lambda_returns,
    lambda_returns_reference,
    lambda_returns_scan,
    n_step_returns,
    n_step_returns_reference,
    n_step_returns_scan,
)
from tenfold.ops.rollouts import episode_edges, random_rollout

FORMS = [
    (gae, gae_reference, 0.9),
    (lambda_returns, lambda_returns_reference, 0.9),
    (n_step_returns, n_step_returns_reference, 3),
]
NAMES = ["gae", "lambda", "n-step"]


def column(*numbers: float) -> np.ndarray:
    """[T, 1]"""
    return np.array(numbers)[:, None]


def test_a_time_limit_bootstraps_from_the_final_observation_and_not_from_the_reset() -> None:
    # one step cut by a time limit: δ = 1 + 0.99·5 − 5 = 0.95; with V(next reset) = 0 it would be −4
    advantage = gae(column(1.0), column(0.99), column(5.0), column(5.0), column(1.0), 0.95)
    assert advantage.item() == pytest.approx(0.95)


def test_same_step_autoreset_by_hand() -> None:
    """Two steps, a time limit after the second, then the first step of the next episode. γ = ½, λ =
    ½."""
    # V(s0) = 1, V(s1) = 2, V(final) = 4, next episode: V(s0') = 100, V(s1') = 200
    discount, boundary, weight = episode_edges(
        column(0, 0, 0) > 0, column(0, 1, 0) > 0, None, 0.5, float
    )
    given_to_all = column(1, 2, 3), discount, column(1, 2, 100), column(2, 4, 200), boundary
    # δ = 1 + 1 − 1 = 1,  2 + 2 − 2 = 2,  3 + 100 − 100 = 3;  A_1 = 2 (the 3 is behind the
    # boundary), A_0 = 1 + ¼·2
    assert gae(*given_to_all, 0.5).ravel().tolist() == [1.5, 2.0, 3.0]
    # G_1 = 2 + ½·4 = 4;  one step: 1 + ½·2 = 2, two: 1 + ½·2 + ¼·4 = 3, so G_0 = ½·2 + ½·3
    assert lambda_returns(*given_to_all, 0.5).ravel().tolist() == [2.5, 4.0, 103.0]
    assert n_step_returns(*given_to_all, 1).ravel().tolist() == [2.0, 4.0, 103.0]
    assert n_step_returns(*given_to_all, 2).ravel().tolist() == [3.0, 4.0, 103.0]
    assert n_step_returns(*given_to_all, 3).ravel().tolist() == [3.0, 4.0, 103.0]
    assert weight.ravel().tolist() == [1, 1, 1]


def test_next_step_autoreset_gives_the_same_numbers_with_its_inserted_row_masked() -> None:
    """The same episodes under NEXT_STEP: the row after the end goes from the final observation to
    the reset, by an ignored action."""
    value = column(1, 2, 4, 100)  # of the observations acted on: the third is the final one
    next_value = column(2, 4, 100, 200)  # simply the next row's
    truncated, skipped = column(0, 1, 0, 0) > 0, column(0, 0, 1, 0) > 0
    discount, boundary, weight = episode_edges(
        column(0, 0, 0, 0) > 0, truncated, skipped, 0.5, float
    )
    assert discount.ravel().tolist() == [0.5, 0.5, 0, 0.5]
    assert boundary.ravel().tolist() == [0, 1, 1, 0]
    assert weight.ravel().tolist() == [1, 1, 0, 1]
    real = weight > 0
    given_to_all = column(1, 2, 0, 3), discount, value, next_value, boundary
    assert gae(*given_to_all, 0.5)[real].tolist() == [1.5, 2.0, 3.0]
    assert lambda_returns(*given_to_all, 0.5)[real].tolist() == [2.5, 4.0, 103.0]
    assert n_step_returns(*given_to_all, 2)[real].tolist() == [3.0, 4.0, 103.0]


def test_without_the_mask_the_inserted_row_would_leak_the_next_episode() -> None:
    """What the mask is for: unmasked, the row's advantage takes up the next episode's."""
    value, next_value, reward = column(1, 2, 4, 100), column(2, 4, 100, 200), column(1, 2, 0, 3)
    unmasked = gae(reward, column(0.5, 0.5, 0.5, 0.5), value, next_value, column(0, 1, 0, 0), 0.5)
    assert unmasked[2, 0] == pytest.approx(0 + 50 - 4 + 0.25 * 3)


def test_a_termination_has_no_value_behind_it() -> None:
    # r = −1, terminated: nothing of V(s') = 1000 nor of the next episode counts
    discount, boundary, _ = episode_edges(column(1, 0) > 0, column(0, 0) > 0, None, 0.99, float)
    given_to_all = column(-1, 7), discount, column(3, 0), column(1000, 0), boundary
    assert gae(*given_to_all, 0.95)[0, 0] == -4
    assert lambda_returns(*given_to_all, 0.95)[0, 0] == n_step_returns(*given_to_all, 5)[0, 0] == -1


def test_a_step_that_terminates_and_meets_the_time_limit_is_a_termination() -> None:
    discount, boundary, _ = episode_edges(np.array([[True]]), np.array([[True]]), None, 0.99)
    assert discount.item() == 0 and boundary.item() == 1 and discount.dtype == np.float32


def test_lambda_zero_is_one_step_and_lambda_one_is_the_whole_return() -> None:
    rollout = random_rollout(np.random.default_rng(0), "float64", 12, 5)
    reward, discount, value, next_value, _ = rollout
    delta = reward + discount * next_value - value
    assert np.allclose(gae(*rollout, 0.0), delta)
    assert np.allclose(lambda_returns(*rollout, 0.0), delta + value)
    assert np.allclose(n_step_returns(*rollout, 1), delta + value)
    assert np.allclose(lambda_returns(*rollout, 1.0), n_step_returns(*rollout, 12))
    # undiscounted, no end, no values: the sum of the rewards to come
    ones, zeros = np.ones_like(reward), np.zeros_like(reward)
    assert np.allclose(gae(reward, ones, zeros, zeros, zeros, 1.0), reward[::-1].cumsum(0)[::-1])


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(1, 12),
    st.integers(1, 9),
    st.sampled_from([0.0, 0.3, 0.95, 1.0]),
)
def test_a_lambda_return_is_the_advantage_plus_the_value(
    seed: int, time: int, batch: int, lam: float
) -> None:
    """Where next_value is the next row's value inside an episode, the two definitions agree (they
    are the book's and the paper's)."""
    reward, discount, value, next_value, boundary = random_rollout(
        np.random.default_rng(seed), "float64", time, batch
    )
    next_value[:-1] = np.where(boundary[:-1] > 0, next_value[:-1], value[1:])
    rollout = reward, discount, value, next_value, boundary
    assert np.allclose(
        lambda_returns(*rollout, lam), gae(*rollout, lam) + value, rtol=1e-10, atol=1e-10
    )


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 12), st.integers(1, 6), st.data())
def test_nothing_flows_over_a_boundary(
    seed: int, time: int, batch: int, data: st.DataObject
) -> None:
    """Whatever happens after an end leaves every number up to it unchanged, bit for bit."""
    rng = np.random.default_rng(seed)
    rollout = random_rollout(rng, "float32", time, batch)
    end = data.draw(st.integers(0, time - 2))
    rollout[4][end] = 1
    other = [a.copy() for a in rollout]
    for array, fresh in zip(other, random_rollout(rng, "float32", time, batch), strict=True):
        array[end + 1 :] = fresh[end + 1 :]
    for form, _, last in FORMS:
        assert np.array_equal(form(*rollout, last)[: end + 1], form(*other, last)[: end + 1])


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(1, 20),
    st.integers(1, 40),
    st.sampled_from(["float32", "float64"]),
    st.integers(1, 25),
)
def test_fast_equals_definition_on_any_rollout(
    seed: int, time: int, batch: int, dtype: str, n: int
) -> None:
    rollout = random_rollout(np.random.default_rng(seed), dtype, time, batch)
    tolerance = (
        {"rtol": 1e-4, "atol": 1e-5} if dtype == "float32" else {"rtol": 1e-10, "atol": 1e-11}
    )
    assert np.allclose(gae(*rollout, 0.95), gae_reference(*rollout, 0.95), **tolerance)
    assert np.allclose(
        gae_scan(*map(torch.from_numpy, rollout), 0.95).numpy(),
        gae_reference(*rollout, 0.95),
        **tolerance,
    )
    few = tuple(a[:, :2] for a in rollout)
    assert np.allclose(n_step_returns(*few, n), n_step_returns_reference(*few, n), **tolerance)
    assert np.allclose(
        n_step_returns_scan(*few, n).numpy(), n_step_returns_reference(*few, n), **tolerance
    )
    assert np.allclose(lambda_returns(*few, 0.7), lambda_returns_reference(*few, 0.7), **tolerance)
    assert np.allclose(
        lambda_returns_scan(*few, 0.7).numpy(), lambda_returns_reference(*few, 0.7), **tolerance
    )


@pytest.mark.parametrize(("form", "reference", "last"), FORMS, ids=NAMES)
def test_members_equal_each_alone_and_components_each_alone(
    form: Any, reference: Any, last: Any
) -> None:
    rollout = random_rollout(np.random.default_rng(1), "float32", 7, 3, (2,), (4,))
    reward, discount, value, next_value, boundary = rollout
    together = form(*rollout, last)
    assert together.shape == (2, 7, 3, 4) and together.dtype == np.float32
    for m in range(2):
        assert np.array_equal(together[m], form(*(a[m] for a in rollout), last))
        for k in range(4):
            alone = form(
                reward[m, ..., k],
                discount[m],
                value[m, ..., k],
                next_value[m, ..., k],
                boundary[m],
                last,
            )
            assert np.array_equal(together[m, ..., k], alone)


@pytest.mark.parametrize(("form", "reference", "last"), FORMS, ids=NAMES)
def test_tensors_give_tensors_of_the_same_numbers_without_gradient(
    form: Any, reference: Any, last: Any
) -> None:
    rollout = random_rollout(np.random.default_rng(2), "float32", 7, 3)
    tensors = [torch.from_numpy(a) for a in rollout]
    tensors[2].requires_grad_()
    found = form(*tensors, last)
    assert (
        isinstance(found, torch.Tensor) and found.dtype == torch.float32 and not found.requires_grad
    )
    assert np.array_equal(found.numpy(), form(*rollout, last))
    assert form(*tensors[:4], tensors[4].bool(), last).equal(found)
    out = torch.zeros(7, 3)
    assert form(*tensors, last, out=out) is out and out.equal(found)
    assert form(*(t.detach().bfloat16() for t in tensors), last).dtype == torch.float32


@pytest.mark.parametrize(
    ("form", "scan"),
    [
        ("gae", gae_scan),
        ("lambda_returns", lambda_returns_scan),
        ("n_step_returns", n_step_returns_scan),
    ],
)
def test_tensors_of_another_device_go_to_the_scan(
    form: str, scan: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A meta tensor has a shape and a device but no numbers: only the scan can take it."""
    called = []
    monkeypatch.setattr(
        returns, f"{form}_scan", lambda *inputs: called.append(inputs) or scan(*inputs)
    )
    rollout = [torch.zeros(2, 5, 3, device="meta") for _ in range(5)]
    assert getattr(returns, form)(*rollout, 1).shape == (2, 5, 3)
    assert len(called) == 1


def test_strides_lists_and_mixed_types_are_taken_as_they_are_meant() -> None:
    rollout = random_rollout(np.random.default_rng(3), "float64", 6, 4)
    expected = gae_reference(*rollout, 0.9)
    batch_major = [np.ascontiguousarray(a.T).T for a in rollout]
    assert np.allclose(gae(*batch_major, 0.9), expected)
    assert np.allclose(
        gae(rollout[0].astype(np.float32), *rollout[1:4], rollout[4].astype(np.int64), 0.9),
        expected,
        atol=1e-6,
    )
    assert np.allclose(gae(*(a.tolist() for a in rollout), 0.9), expected)
    whole = gae(
        np.ones((3, 2), np.int64), *np.ones((3, 3, 2), np.float32), np.zeros((3, 2), bool), 1.0
    )
    assert whole.dtype == np.float32 and whole[0, 0] == 3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({0: (5, 3)}, "discount is"),
        ({1: (5,)}, "discount must be"),
        ({2: (5, 4)}, "value is \\[5, 4\\]"),
        ({3: (4, 3)}, "next_value is"),
        ({4: (3, 5)}, "boundary is"),
        ({0: (0, 3), 1: (0, 3), 2: (0, 3), 3: (0, 3), 4: (0, 3)}, "empty"),
    ],
)
def test_shapes_that_do_not_fit_are_named(change: dict[int, tuple[int, ...]], words: str) -> None:
    arrays = [np.zeros(change.get(i, (5, 3)), np.float32) for i in range(5)]
    if 0 in change and len(change) == 1:
        arrays[1] = np.zeros((5, 4), np.float32)
        words = "discount must be"
    for form, _, last in FORMS:
        with pytest.raises(ValueError, match=words):
            form(*arrays, last)


def test_an_out_that_does_not_fit_and_zero_steps_are_refused() -> None:
    rollout = random_rollout(np.random.default_rng(3), "float32", 6, 4)
    for out in (np.zeros((6, 5), np.float32), np.zeros((6, 4)), np.zeros((4, 6), np.float32).T):
        with pytest.raises(ValueError, match="out must be C-contiguous float32"):
            gae(*rollout, 0.9, out=out)
    with pytest.raises(ValueError, match="at least one step"):
        n_step_returns(*rollout, 0)


def test_other_compiled_code_can_call_the_kernel() -> None:
    @njit
    def caller(reward, discount, value, next_value, boundary, out):
        gae_into(reward, discount, value, next_value, boundary, 0.9, out)
        return out.sum()

    rollout = random_rollout(np.random.default_rng(4), "float32", 6, 4)
    out = np.full((6, 4), np.nan, np.float32)
    assert caller(*rollout, out) == pytest.approx(gae_reference(*rollout, 0.9).sum(), rel=1e-4)


def test_nothing_is_allocated_when_out_is_given() -> None:
    import tracemalloc

    rollout = random_rollout(np.random.default_rng(5), "float32", 256, 64)
    out = np.empty_like(rollout[0])
    for form, _, last in FORMS:
        form(*rollout, last, out=out)
        tracemalloc.start()
        form(*rollout, last, out=out)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 10_000 < out.nbytes

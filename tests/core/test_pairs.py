"""Every fast path equals its reference: the same registry that `tenfold check` walks."""

import numpy as np
import pytest

from tenfold.core.pairs import PAIRS, Pair, all_pairs, check_pair, compare, pair


# from the last to the first: `tests/kernels.py` comes from the other end
@pytest.mark.parametrize("tested", all_pairs()[::-1], ids=lambda p: p.name)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_fast_path_equals_its_reference(tested: Pair, seed: int) -> None:
    verdict = check_pair(tested, seed)
    assert verdict.equal, verdict
    assert verdict.cases >= 4


def test_every_module_with_a_fast_path_is_in_the_registry() -> None:
    modules = {p.fast.__module__ for p in all_pairs()}
    assert modules >= {
        "tenfold.core.random",
        "tenfold.ops.adam",
        "tenfold.ops.qlearning",
        "tenfold.ops.sampling",
        "tenfold.nets.layers",
        "tenfold.memory.replay_gather",
        "tenfold.memory.replay_rows",
    }


def halves(rng: np.random.Generator, dtype: str):
    yield (rng.normal(size=5).astype(dtype),)


def test_a_fast_path_that_is_wrong_in_one_element_is_found() -> None:
    wrong = Pair(
        "wrong",
        lambda x: np.append(x[:-1] / 2, x[-1] / 2 + 1e-3),
        lambda x: x / 2,
        halves,
        1e-5,
        1e-6,
        ("float64",),
        (),
    )
    verdict = check_pair(wrong)
    assert not verdict.equal
    assert verdict.difference == pytest.approx(1e-3)


def test_a_fast_path_of_another_shape_or_with_a_nan_is_found() -> None:
    for fast in (lambda x: x[:1] / 2, lambda x: np.full_like(x, np.nan)):
        assert not check_pair(
            Pair("wrong", fast, lambda x: x / 2, halves, 1e-5, 1e-6, ("float32",), ())
        ).equal


def test_integers_are_compared_exactly() -> None:
    assert compare(np.array([2**60]), np.array([2**60 + 1]), 1e-3, 1.0)[1] > 1


def test_pair_returns_the_very_function() -> None:
    def fast(x: np.ndarray) -> np.ndarray:
        return x

    try:
        assert pair(fast, halves, name="a test's own")(fast) is fast
        assert "a test's own" in PAIRS
    finally:
        PAIRS.pop("a test's own")

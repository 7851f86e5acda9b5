"""Structured observations in one row: where each key lies, what is refused by name, and moments worked out by hand."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from tenfold.errors import CheckpointError, EnvironmentFault, UserError
from tenfold.ops.observations import (
    FlattenPlan,
    ObservationError,
    RunningNorm,
    example_space,
    flatten_reference,
    norm_apply,
    norm_update,
    stacked,
)

SMALL = Dict({"eye": Dict({"left": Box(0, 255, (2, 2), np.uint8), "lid": Discrete(3, start=5)}), "arm": Box(-9, 9, (2,), np.float64),
              "legs": MultiDiscrete([2, 3]), "pair": Tuple((MultiBinary(2), Box(-1, 1)))})


def small() -> dict[str, Any]:
    return {"eye": {"left": np.array([[1, 2], [3, 4]], np.uint8), "lid": np.int64(6)}, "arm": np.array([0.5, -2.5]),
            "legs": np.array([1, 2]), "pair": (np.array([0, 1], np.int8), np.array([0.25], np.float32))}


def plain(plan: FlattenPlan, observations: Any, rows: int) -> np.ndarray:
    return flatten_reference(plan, observations, np.full((rows, plan.size), np.nan, np.float32))


def room(plan: FlattenPlan, rows: int) -> np.ndarray:
    return np.full((rows, plan.size), np.nan, np.float32)


def test_a_nested_observation_by_hand() -> None:
    plan = FlattenPlan(SMALL)
    assert {leaf.key: (leaf.column, leaf.size) for leaf in plan.leaves} == {
        "arm": (0, 2), "eye.left": (2, 4), "eye.lid": (6, 3), "legs": (9, 5), "pair.0": (14, 2), "pair.1": (16, 1)}  # Gymnasium sorts keys
    expected = [0.5, -2.5, 1, 2, 3, 4, 0, 1, 0, 0, 1, 0, 0, 1, 0, 1, 0.25]
    for observations in ([small()], stacked([small()])):
        for _ in range(2):  # the second time the dtypes are known
            out = plan.flatten(observations, room(plan, 1))
            assert out.dtype == np.float32 and out[0].tolist() == expected


@settings(max_examples=40, deadline=None)
@given(st.data(), st.integers(1, 6), st.integers(0, 10**6))
def test_any_space_is_flattened_as_leaf_by_leaf(data: st.DataObject, rows: int, seed: int) -> None:
    dtypes = [np.float64, np.float32, np.float16, np.int64, np.int32, np.int16, np.int8, np.uint64, np.uint32, np.uint16, np.uint8]
    shapes = st.one_of(st.lists(st.integers(1, 3), max_size=3).map(tuple), st.just((0,)))
    leaf = st.one_of(
        st.builds(lambda shape, dtype: Box(0 if np.dtype(dtype).kind == "u" else -7, 7, shape, dtype), shapes, st.sampled_from(dtypes)),
        st.builds(Discrete, st.integers(1, 5), start=st.integers(-3, 3)),
        st.builds(MultiDiscrete, st.lists(st.integers(1, 4), min_size=1, max_size=3), st.sampled_from([np.int64, np.int32, np.int8, np.uint8, np.int16])),
        st.builds(MultiBinary, st.integers(1, 4)))
    branch = st.recursive(leaf, lambda below: st.one_of(st.dictionaries(st.sampled_from("abcdef"), below, min_size=1, max_size=4).map(Dict),
                                                        st.lists(below, min_size=1, max_size=3).map(tuple).map(Tuple)), max_leaves=8)
    space = Dict({"first": Box(-1, 1, (1,)), "rest": data.draw(branch)})
    space.seed(seed)
    plan = FlattenPlan(space)
    observations = [space.sample() for _ in range(rows)]
    expected = plain(plan, observations, rows)
    for _ in range(2):
        assert np.array_equal(plan.flatten(observations, room(plan, rows)), expected)
        assert np.array_equal(plan.flatten(stacked(observations), room(plan, rows)), expected)


def test_numbers_in_other_dtypes_strides_lists_and_tensors_are_taken() -> None:
    plan = FlattenPlan(SMALL)
    SMALL.seed(1)
    batch = stacked([SMALL.sample() for _ in range(4)])
    expected = plain(plan, batch, 4)
    for change in (lambda a: a.astype(np.float32), lambda a: a, lambda a: np.repeat(a, 2, -1)[:, ::2], lambda a: a.astype(">f8"), np.ndarray.tolist,
                   torch.from_numpy, np.asfortranarray):
        changed = batch | {"arm": change(batch["arm"])}
        for _ in range(2):
            assert np.array_equal(plan.flatten(changed, room(plan, 4)), expected)
    one = small() | {"legs": [1, 2], "arm": (0.5, -2.5), "eye": {"left": [[1, 2], [3, 4]], "lid": 6}}
    assert np.array_equal(plan.flatten([one], room(plan, 1)), plan.flatten([small()], room(plan, 1)))


def test_observations_of_different_dtypes_in_one_list() -> None:
    plan = FlattenPlan(SMALL)
    mixed = [small(), small() | {"arm": np.array([0.5, -2.5], np.float32)}, small() | {"arm": np.array([1, 2], np.int8)}]
    out = plan.flatten(mixed, room(plan, 3))
    assert out[:, :2].tolist() == [[0.5, -2.5], [0.5, -2.5], [1, 2]]
    assert np.array_equal(out, plain(plan, mixed, 3))


def test_a_key_the_space_does_not_know_is_ignored() -> None:
    plan = FlattenPlan(SMALL)
    assert np.array_equal(plan.flatten([small() | {"more": "words"}], room(plan, 1)), plan.flatten([small()], room(plan, 1)))


def spoiled(path: str, value: Any) -> dict[str, Any]:
    found = small()
    if "." in path:
        above, below = path.split(".")
        found[above] = found[above] | {below: value}
    else:
        found[path] = value
    return found


WRONG = [
    ("arm", np.array([1.0, np.nan]), "arm holds nan, which is not finite"),
    ("arm", np.array([-np.inf, 1.0]), "arm holds -inf"),
    ("arm", np.array([1.0, 1e300]), "arm holds 1e\\+300, which float32 cannot hold"),
    ("arm", np.zeros(3), "arm has shape \\[.*3\\], and must have \\[.*2\\]"),
    ("arm", np.zeros((1, 2)), "arm has shape"),
    ("arm", np.array(["a", "b"]), "arm holds <U1, and must hold numbers"),
    ("eye.left", np.zeros((4,), np.uint8), "eye.left has shape"),
    ("eye.lid", np.int64(4), "eye.lid holds 4 in row 1, and must hold one of 5 … 7"),
    ("eye.lid", np.int64(8), "eye.lid holds 8"),
    ("eye.lid", np.float64(6), "eye.lid holds float64, and must hold whole numbers"),
    ("legs", np.array([1, 3]), "legs holds 3 in row 1, and must hold one of 0 … 2"),
    ("legs", np.array([-1, 0]), "legs holds -1"),
    ("legs", np.array([2, 0]), "legs holds 2 in row 1, and must hold one of 0 … 1"),
]


@pytest.mark.parametrize(("path", "value", "words"), WRONG, ids=[f"{path}-{i}" for i, (path, _, _) in enumerate(WRONG)])
@pytest.mark.parametrize("batched", [False, True], ids=["list", "batch"])
def test_what_the_space_does_not_allow_is_refused_by_its_key(path: str, value: Any, words: str, batched: bool) -> None:
    plan, norm = FlattenPlan(SMALL), RunningNorm(17)
    good = small()
    for step in path.split("."):
        good = good[step]
    # the second of two observations is wrong; a batch has one dtype and one shape, so there the first may be as wrong
    fits = np.shape(good) == np.shape(value) and np.asarray(value).dtype.kind != "U"
    observations: Any = [small(), spoiled(path, value)]
    if batched:
        observations = stacked([small(), spoiled(path, value)] if fits else [spoiled(path, value)] * 2)
    for _ in range(2):
        with pytest.raises(ObservationError, match=words) as caught:
            plan.flatten(observations, room(plan, 2), norm, learn=True)
        assert caught.value.key == path
        assert isinstance(caught.value, UserError) and isinstance(caught.value, ValueError)
        assert norm.count[0] == 0 and not norm.mean.any()  # nothing was learned from it
    plan.flatten([small(), small()], room(plan, 2))  # and the plan still works


def test_shapes_that_swap_their_sizes_are_found_though_the_sum_is_right() -> None:
    space = Dict({"a": Box(-1, 1, (2,)), "b": Box(-1, 1, (3,))})
    plan = FlattenPlan(space)
    for rows in (1, 2):
        good = {"a": np.zeros((rows, 2), np.float32), "b": np.zeros((rows, 3), np.float32)}
        plan.flatten(good, room(plan, rows))
        with pytest.raises(ObservationError, match="key a has shape"):
            plan.flatten({"a": good["b"], "b": good["a"]}, room(plan, rows))


def test_a_missing_key_is_named_with_those_that_are_there() -> None:
    plan = FlattenPlan(SMALL)
    observation = small()
    del observation["eye"]["lid"]
    with pytest.raises(ObservationError, match=r"key eye\.lid is missing; there is: left"):
        plan.flatten([observation], room(plan, 1))
    observation = stacked([small()])
    del observation["eye"]
    with pytest.raises(ObservationError, match="key eye is missing; there is: arm, legs, pair"):
        plan.flatten(observation, room(plan, 1))
    with pytest.raises(ObservationError, match=r"key pair\.1 is missing"):
        plan.flatten([small() | {"pair": (np.zeros(2, np.int8),)}], room(plan, 1))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_cell_is_checked_for_nan(dtype: Any) -> None:
    plan = FlattenPlan(Dict({"a": Box(-1, 1, (3,)), "b": Box(-1, 1, (2, 2), np.float64), "c": Box(-1, 1, ())}))
    for rows in (1, 5):
        for key, shape in (("a", (3,)), ("b", (2, 2)), ("c", ())):
            for cell in np.ndindex(rows, *shape):
                batch = {k: np.zeros((rows, *s), dtype) for k, s in (("a", (3,)), ("b", (2, 2)), ("c", ()))}
                batch[key][cell] = np.nan
                with pytest.raises(ObservationError, match=f"key {key} holds nan, which is not finite, in row {cell[0]};"):
                    plan.flatten(batch, room(plan, rows))


def test_spaces_that_are_no_dict_and_spaces_without_numbers() -> None:
    plan = FlattenPlan(Box(-1, 1, (2, 2)))
    values = np.arange(8, dtype=np.float32).reshape(2, 2, 2)
    assert plan.flatten(values, room(plan, 2)).tolist() == values.reshape(2, 4).tolist() == plan.flatten(list(values), room(plan, 2)).tolist()
    with pytest.raises(ObservationError, match="The observation holds nan"):
        plan.flatten(np.full((1, 2, 2), np.nan), room(plan, 1))
    assert FlattenPlan(Discrete(3)).flatten(np.array([2, 0]), np.zeros((2, 3), np.float32)).tolist() == [[0, 0, 1], [1, 0, 0]]
    with_hole = FlattenPlan(Dict({"a": Dict({}), "b": Tuple((Box(0, 1, (0,)), Discrete(2)))}))
    assert with_hole.flatten([{"a": {}, "b": (np.zeros(0, np.float32), 1)}], room(with_hole, 1)).tolist() == [[0, 1]]
    with pytest.raises(EnvironmentFault, match="without a number"):
        FlattenPlan(Dict({"a": Dict({}), "b": Box(0, 1, (0,))}))
    with pytest.raises(EnvironmentFault, match="type Text"):
        FlattenPlan(Dict({"a": gym.spaces.Text(3)}))


def test_an_out_that_does_not_fit_is_refused() -> None:
    plan = FlattenPlan(SMALL)
    for out in (np.zeros((1, 16), np.float32), np.zeros((1, 17)), np.zeros((17, 1), np.float32), np.zeros((2, 34), np.float32)[:, ::2]):
        with pytest.raises(ValueError, match="out must be C-contiguous float32"):
            plan.flatten([small()], out)
    with pytest.raises(ValueError, match="out has 3 rows for 1 observations"):
        plan.flatten([small()], room(plan, 3))


def test_only_the_joined_bytes_are_allocated() -> None:
    import tracemalloc
    plan, norm = FlattenPlan(Dict({str(i): Box(-1, 1, (100,)) for i in range(10)})), RunningNorm(1000)
    batch, out = {str(i): np.zeros((64, 100), np.float32) for i in range(10)}, room(plan, 64)
    for _ in range(2):
        plan.flatten(batch, out, norm, learn=True)
    tracemalloc.start()
    plan.flatten(batch, out, norm, learn=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert out.nbytes <= peak < out.nbytes + 10_000


# running moments ------------------------------------------------------------------------------------------------------------


def test_moments_by_hand() -> None:
    norm = RunningNorm(1)
    assert norm.normalise(np.array([[3.0]])).item() == 3  # nothing seen: as it is
    norm.update(np.array([[1.0], [3.0]]))
    assert (norm.mean.item(), norm.variance.item()) == (2, 1)
    norm.update(np.array([[8.0]]))  # 1, 3, 8: mean 4, variance (9 + 1 + 16)/3
    assert norm.count[0] == 3 and norm.mean.item() == pytest.approx(4) and norm.variance.item() == pytest.approx(26 / 3)
    assert norm.normalise(np.array([[8.0]], np.float32)).item() == pytest.approx(4 / np.sqrt(26 / 3))


def test_numbers_are_clipped_at_ten_and_a_constant_column_is_zero() -> None:
    norm = RunningNorm(2)
    norm.update(np.array([[0.0, 7.0], [2.0, 7.0]]))
    assert norm.normalise(np.array([[1e6, 7.0], [-1e6, 7.0], [6.0, 8.0]], np.float32)).tolist() == [[10, 0], [-10, 0], [5, 10]]
    tight = RunningNorm(1, clip=2.0)
    assert tight.normalise(np.array([[9.0]], np.float32)).item() == 2


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.lists(st.integers(1, 9), min_size=1, max_size=6), st.sampled_from([0.0, 1.0, 1e6]), st.sampled_from(["float32", "float64"]))
def test_moments_do_not_depend_on_how_the_rows_were_cut(seed: int, cuts: list[int], far: float, dtype: str) -> None:
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
        assert np.allclose(found.inv_std, 1 / np.sqrt(rows.var(0, dtype=np.float64) + 1e-8), rtol=1e-6)


def test_one_pass_equals_flatten_update_normalise() -> None:
    space = example_space()
    space.seed(3)
    plan = FlattenPlan(space)
    norm, apart, frozen = RunningNorm(plan.size), RunningNorm(plan.size), RunningNorm(plan.size)
    for rows in (1, 4, 32):
        batch = stacked([space.sample() for _ in range(rows)])
        flat = plan.flatten(batch, room(plan, rows))
        apart.update(flat)
        assert np.array_equal(plan.flatten(batch, room(plan, rows), norm, learn=True), apart.normalise(flat))
        assert all(np.array_equal(a, b) for a, b in zip(norm.state().values(), apart.state().values(), strict=True))
        before = norm.state()
        plan.flatten(batch, room(plan, rows), norm)
        assert np.array_equal(norm.mean, before["mean"]) and norm.count[0] == before["count"][0]
        assert np.array_equal(plan.flatten(batch, room(plan, rows), frozen), np.clip(flat, -10, 10))
    in_place = flat.copy()
    assert norm.normalise(in_place, in_place) is in_place and np.array_equal(in_place, norm.normalise(flat))


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
    assert all(np.array_equal(a, b) for a, b in zip(norm.state().values(), resumed.state().values(), strict=True))
    assert state["count"][0] == 10  # a state is a copy


def test_a_state_of_another_size_or_without_a_part_is_refused() -> None:
    norm = RunningNorm(3)
    norm.update(np.ones((2, 3)))
    before = norm.state()
    with pytest.raises(CheckpointError, match="mean is \\[4\\] and must be \\[3\\]"):
        norm.load_state(RunningNorm(4).state())
    with pytest.raises(CheckpointError, match="m2 is missing"):
        norm.load_state({"count": np.zeros(1), "mean": np.zeros(3)})
    assert all(np.array_equal(a, b) for a, b in zip(norm.state().values(), before.values(), strict=True))


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
    assert caller(count, mean, m2, np.ones(2), rows, np.zeros((2, 2), np.float32)).tolist() == [[-1, -2], [1, 2]]
    assert count[0] == 2 and mean.tolist() == [2, 4] and m2.tolist() == [2, 8]

"""Structured observations in one row: where each key lies, and what is refused by name."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from hypothesis import given, settings
from hypothesis import strategies as st

from tenfold.core.errors import EnvironmentFault, ObservationError, UserError
from tenfold.ops.moments import RunningNorm
from tenfold.ops.observation_leaves import example_space
from tenfold.ops.observations import FlattenPlan, flatten_reference

SMALL = Dict(
    {
        "eye": Dict({"left": Box(0, 255, (2, 2), np.uint8), "lid": Discrete(3, start=5)}),
        "arm": Box(-9, 9, (2,), np.float64),
        "legs": MultiDiscrete([2, 3]),
        "pair": Tuple((MultiBinary(2), Box(-1, 1))),
    }
)


def stacked(observations: list[Any]) -> Any:
    """Observations as one whose leaves have the batch in front."""
    first = observations[0]
    if isinstance(first, dict):
        return {key: stacked([o[key] for o in observations]) for key in first}
    if isinstance(first, tuple):
        return tuple(stacked([o[i] for o in observations]) for i in range(len(first)))
    return np.stack(observations)


def small() -> dict[str, Any]:
    return {
        "eye": {"left": np.array([[1, 2], [3, 4]], np.uint8), "lid": np.int64(6)},
        "arm": np.array([0.5, -2.5]),
        "legs": np.array([1, 2]),
        "pair": (np.array([0, 1], np.int8), np.array([0.25], np.float32)),
    }


def plain(plan: FlattenPlan, observations: Any, rows: int) -> np.ndarray:
    return flatten_reference(plan, observations, np.full((rows, plan.size), np.nan, np.float32))


def room(plan: FlattenPlan, rows: int) -> np.ndarray:
    return np.full((rows, plan.size), np.nan, np.float32)


def test_a_nested_observation_by_hand() -> None:
    plan = FlattenPlan(SMALL)
    assert {leaf.key: (leaf.column, leaf.size) for leaf in plan.leaves} == {
        # Gymnasium sorts keys
        "arm": (0, 2),
        "eye.left": (2, 4),
        "eye.lid": (6, 3),
        "legs": (9, 5),
        "pair.0": (14, 2),
        "pair.1": (16, 1),
    }
    expected = [0.5, -2.5, 1, 2, 3, 4, 0, 1, 0, 0, 1, 0, 0, 1, 0, 1, 0.25]
    for observations in ([small()], stacked([small()])):
        for _ in range(2):  # the second time the dtypes are known
            out = plan.flatten(observations, room(plan, 1))
            assert out.dtype == np.float32 and out[0].tolist() == expected


@settings(max_examples=40, deadline=None)
@given(st.data(), st.integers(1, 6), st.integers(0, 10**6))
def test_any_space_is_flattened_as_leaf_by_leaf(data: st.DataObject, rows: int, seed: int) -> None:
    dtypes = [
        np.float64,
        np.float32,
        np.float16,
        np.int64,
        np.int32,
        np.int16,
        np.int8,
        np.uint64,
        np.uint32,
        np.uint16,
        np.uint8,
    ]
    shapes = st.one_of(st.lists(st.integers(1, 3), max_size=3).map(tuple), st.just((0,)))
    leaf = st.one_of(
        st.builds(
            lambda shape, dtype: Box(0 if np.dtype(dtype).kind == "u" else -7, 7, shape, dtype),
            shapes,
            st.sampled_from(dtypes),
        ),
        st.builds(Discrete, st.integers(1, 5), start=st.integers(-3, 3)),
        st.builds(
            MultiDiscrete,
            st.lists(st.integers(1, 4), min_size=1, max_size=3),
            st.sampled_from([np.int64, np.int32, np.int8, np.uint8, np.int16]),
        ),
        st.builds(MultiBinary, st.integers(1, 4)),
    )
    branch = st.recursive(
        leaf,
        lambda below: st.one_of(
            st.dictionaries(st.sampled_from("abcdef"), below, min_size=1, max_size=4).map(Dict),
            st.lists(below, min_size=1, max_size=3).map(tuple).map(Tuple),
        ),
        max_leaves=8,
    )
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
    for change in (
        lambda a: a.astype(np.float32),
        lambda a: a,
        lambda a: np.repeat(a, 2, -1)[:, ::2],
        lambda a: a.astype(">f8"),
        np.ndarray.tolist,
        torch.from_numpy,
        np.asfortranarray,
    ):
        changed = batch | {"arm": change(batch["arm"])}
        for _ in range(2):
            assert np.array_equal(plan.flatten(changed, room(plan, 4)), expected)
    one = small() | {
        "legs": [1, 2],
        "arm": (0.5, -2.5),
        "eye": {"left": [[1, 2], [3, 4]], "lid": 6},
    }
    assert np.array_equal(
        plan.flatten([one], room(plan, 1)), plan.flatten([small()], room(plan, 1))
    )


def test_observations_of_different_dtypes_in_one_list() -> None:
    plan = FlattenPlan(SMALL)
    mixed = [
        small(),
        small() | {"arm": np.array([0.5, -2.5], np.float32)},
        small() | {"arm": np.array([1, 2], np.int8)},
    ]
    out = plan.flatten(mixed, room(plan, 3))
    assert out[:, :2].tolist() == [[0.5, -2.5], [0.5, -2.5], [1, 2]]
    assert np.array_equal(out, plain(plan, mixed, 3))


def test_a_key_the_space_does_not_know_is_ignored() -> None:
    plan = FlattenPlan(SMALL)
    assert np.array_equal(
        plan.flatten([small() | {"more": "words"}], room(plan, 1)),
        plan.flatten([small()], room(plan, 1)),
    )


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


@pytest.mark.parametrize(
    ("path", "value", "words"), WRONG, ids=[f"{path}-{i}" for i, (path, _, _) in enumerate(WRONG)]
)
@pytest.mark.parametrize("batched", [False, True], ids=["list", "batch"])
def test_what_the_space_does_not_allow_is_refused_by_its_key(
    path: str, value: Any, words: str, batched: bool
) -> None:
    plan, norm = FlattenPlan(SMALL), RunningNorm(17)
    good = small()
    for step in path.split("."):
        good = good[step]
    # the second of two observations is wrong; a batch has one dtype and one shape, so there the
    # first may be as wrong
    fits = np.shape(good) == np.shape(value) and np.asarray(value).dtype.kind != "U"
    observations: Any = [small(), spoiled(path, value)]
    if batched:
        observations = stacked(
            [small(), spoiled(path, value)] if fits else [spoiled(path, value)] * 2
        )
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
    plan = FlattenPlan(
        Dict({"a": Box(-1, 1, (3,)), "b": Box(-1, 1, (2, 2), np.float64), "c": Box(-1, 1, ())})
    )
    for rows in (1, 5):
        for key, shape in (("a", (3,)), ("b", (2, 2)), ("c", ())):
            for cell in np.ndindex(rows, *shape):
                batch = {
                    k: np.zeros((rows, *s), dtype)
                    for k, s in (("a", (3,)), ("b", (2, 2)), ("c", ()))
                }
                batch[key][cell] = np.nan
                with pytest.raises(
                    ObservationError,
                    match=f"key {key} holds nan, which is not finite, in row {cell[0]};",
                ):
                    plan.flatten(batch, room(plan, rows))


def test_spaces_that_are_no_dict_and_spaces_without_numbers() -> None:
    plan = FlattenPlan(Box(-1, 1, (2, 2)))
    values = np.arange(8, dtype=np.float32).reshape(2, 2, 2)
    assert (
        plan.flatten(values, room(plan, 2)).tolist()
        == values.reshape(2, 4).tolist()
        == plan.flatten(list(values), room(plan, 2)).tolist()
    )
    with pytest.raises(ObservationError, match="The observation holds nan"):
        plan.flatten(np.full((1, 2, 2), np.nan), room(plan, 1))
    assert FlattenPlan(Discrete(3)).flatten(
        np.array([2, 0]), np.zeros((2, 3), np.float32)
    ).tolist() == [[0, 0, 1], [1, 0, 0]]
    with_hole = FlattenPlan(Dict({"a": Dict({}), "b": Tuple((Box(0, 1, (0,)), Discrete(2)))}))
    assert with_hole.flatten(
        [{"a": {}, "b": (np.zeros(0, np.float32), 1)}], room(with_hole, 1)
    ).tolist() == [[0, 1]]
    with pytest.raises(EnvironmentFault, match="without a number"):
        FlattenPlan(Dict({"a": Dict({}), "b": Box(0, 1, (0,))}))
    with pytest.raises(EnvironmentFault, match="type Text"):
        FlattenPlan(Dict({"a": gym.spaces.Text(3)}))


def test_an_out_that_does_not_fit_is_refused() -> None:
    plan = FlattenPlan(SMALL)
    for out in (
        np.zeros((1, 16), np.float32),
        np.zeros((1, 17)),
        np.zeros((17, 1), np.float32),
        np.zeros((2, 34), np.float32)[:, ::2],
    ):
        with pytest.raises(ValueError, match="out must be C-contiguous float32"):
            plan.flatten([small()], out)
    with pytest.raises(ValueError, match="out has 3 rows for 1 observations"):
        plan.flatten([small()], room(plan, 3))


def test_only_the_joined_bytes_are_allocated() -> None:
    import tracemalloc

    plan, norm = (
        FlattenPlan(Dict({str(i): Box(-1, 1, (100,)) for i in range(10)})),
        RunningNorm(1000),
    )
    batch, out = {str(i): np.zeros((64, 100), np.float32) for i in range(10)}, room(plan, 64)
    for _ in range(2):
        plan.flatten(batch, out, norm, learn=True)
    tracemalloc.start()
    plan.flatten(batch, out, norm, learn=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert out.nbytes <= peak < out.nbytes + 10_000


def test_one_pass_equals_flatten_update_normalise() -> None:
    space = example_space()
    space.seed(3)
    plan = FlattenPlan(space)
    norm, apart, frozen = RunningNorm(plan.size), RunningNorm(plan.size), RunningNorm(plan.size)
    for rows in (1, 4, 32):
        batch = stacked([space.sample() for _ in range(rows)])
        flat = plan.flatten(batch, room(plan, rows))
        apart.update(flat)
        assert np.array_equal(
            plan.flatten(batch, room(plan, rows), norm, learn=True), apart.normalise(flat)
        )
        assert all(
            np.array_equal(a, b)
            for a, b in zip(norm.state().values(), apart.state().values(), strict=True)
        )
        before = norm.state()
        plan.flatten(batch, room(plan, rows), norm)
        assert np.array_equal(norm.mean, before["mean"]) and norm.count[0] == before["count"][0]
        assert np.array_equal(plan.flatten(batch, room(plan, rows), frozen), np.clip(flat, -10, 10))
    in_place = flat.copy()
    assert norm.normalise(in_place, in_place) is in_place and np.array_equal(
        in_place, norm.normalise(flat)
    )

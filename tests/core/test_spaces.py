"""Spaces become rows."""

import gymnasium as gym
import numpy as np
import pytest

from tenfold.core.errors import EnvironmentFault, UserError
from tenfold.core.layout import observation_layout
from tenfold.core.spaces import DiscreteActions, bounded_actions, discrete_actions, policy_actions

B = gym.spaces


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.longdouble])
def test_vectors_keep_their_numbers_and_all_floats_become_the_networks_precision(
    dtype: type[np.floating],
) -> None:
    layout = observation_layout(B.Box(-1, 1, (3,), dtype), "x")
    assert layout.dtype == np.float32 and layout.encoder == "mlp" and layout.direct
    assert layout.encode(np.array([0.1, 0.2, 0.3])).tolist() == np.float32([0.1, 0.2, 0.3]).tolist()


@pytest.mark.parametrize(
    ("shape", "net_shape", "encoder"),
    [
        ((10, 10), (1, 10, 10), "small"),
        ((84, 84, 3), (3, 84, 84), "nature"),
        ((4, 84, 84), (4, 84, 84), "nature"),
        ((96, 96, 1), (1, 96, 96), "nature"),
        ((3, 12, 12), (3, 12, 12), "small"),
    ],
)
def test_images_are_recognised_in_either_layout(shape, net_shape, encoder: str) -> None:
    layout = observation_layout(B.Box(0, 255, shape, np.uint8), "x")
    assert (layout.net_shape, layout.encoder, layout.scale) == (net_shape, encoder, 1 / 255)
    batch = np.arange(2 * np.prod(shape)).reshape(2, *shape)
    moved = layout.to_net(batch)
    assert moved.shape == (2, *net_shape)
    expected = batch.transpose(0, 3, 1, 2) if layout.channels_last else batch.reshape(2, *net_shape)
    assert np.array_equal(moved, expected)
    assert layout.to_net(batch[None]).shape == (1, 2, *net_shape)  # members in front


def test_discrete_parts_are_one_hot_by_hand() -> None:
    assert observation_layout(B.Discrete(4, start=2), "x").encode(3).tolist() == [0, 1, 0, 0]
    assert observation_layout(B.MultiDiscrete([2, 3]), "x").encode([1, 2]).tolist() == [
        0,
        1,
        0,
        0,
        1,
    ]
    assert observation_layout(B.MultiBinary(3), "x").encode([1, 0, 1]).tolist() == [1, 0, 1]


def test_tuples_and_dicts_are_joined_in_their_order() -> None:
    both = B.Dict(b=B.Box(0, 1, (2,), np.float32), a=B.Tuple((B.Discrete(2), B.Discrete(3))))
    layout = observation_layout(both, "x")
    assert list(layout.keys) == list(both.keys())
    expected = {"a": [0, 1, 1, 0, 0], "b": [0.25, 0.5]}
    assert layout.encode({"b": [0.25, 0.5], "a": (1, 0)}).tolist() == [
        x for k in both for x in expected[k]
    ]


def test_numbers_alone_come_one_by_one_or_as_a_batch() -> None:
    speed = B.Box(-1, 1, ())
    for single in (np.float32(0.5), 0.5):
        rows, one = observation_layout(speed, "x").rows_of(single)
        assert one and rows.tolist() == [[0.5]]
    for batch in (np.array([0.5, 0.25]), np.array([[0.5], [0.25]])):
        rows, one = observation_layout(speed, "x").rows_of(batch)
        assert not one and rows.tolist() == [[0.5], [0.25]]
    both = observation_layout(B.Dict(at=B.Box(-1, 1, (2,)), speed=speed), "x")
    rows, one = both.rows_of({"at": [0.125, 0.75], "speed": 0.5})
    assert one and rows.tolist() == [[0.125, 0.75, 0.5]]
    many = {"at": np.array([[0.125, 0.75], [0, 1]]), "speed": np.array([0.5, -0.5])}
    rows, one = both.rows_of(many)
    assert not one and rows.tolist() == [[0.125, 0.75, 0.5], [0, 1, -0.5]]


def test_an_observation_of_another_kind_is_refused_by_what_it_is() -> None:
    both = observation_layout(B.Dict(flags=B.MultiBinary(2), speed=B.Box(0, 1, (2,))), "x")
    with pytest.raises(
        EnvironmentFault,
        match=r"is of type ndarray: its space promises a dict with the keys flags, speed\.",
    ):
        both.rows_of(np.zeros(4))
    with pytest.raises(EnvironmentFault, match="has no key speed"):
        both.encode({"flags": [0, 1]})
    with pytest.raises(
        EnvironmentFault, match=r"is of type int: its space promises a tuple of 2 parts\."
    ):
        observation_layout(B.Tuple((B.Discrete(2), B.Discrete(3))), "x").encode(1)
    with pytest.raises(
        UserError, match=r"has shape \(3,\); this agent takes \(4,\) or, in a batch, \(B, 4\)\."
    ):
        observation_layout(B.Box(0, 1, (4,)), "x").rows_of(np.zeros(3))


def test_other_spaces_are_refused_by_name() -> None:
    with pytest.raises(EnvironmentFault, match="observations of type Text"):
        observation_layout(B.Text(5), "Odd-v0")
    with pytest.raises(
        EnvironmentFault, match=r"Pendulum-v1 has continuous actions.*train it with sac, td3 or ppo"
    ):
        discrete_actions(B.Box(-1, 1, (1,)), "Pendulum-v1")
    assert discrete_actions(B.Discrete(3, start=-1), "x") == DiscreteActions(3, -1)


def test_actions_without_a_number_are_refused() -> None:
    nothing = B.Box(-1, 1, (0,))
    for read in (
        lambda: policy_actions(nothing, "x"),
        lambda: bounded_actions(nothing, "x", "sac"),
    ):
        with pytest.raises(EnvironmentFault, match="x has actions without a number in them"):
            read()


def test_an_observation_that_is_not_finite_has_no_action() -> None:
    layout = observation_layout(B.Box(-1, 1, (2,)), "x")
    for wrong in (np.nan, np.inf):
        with pytest.raises(UserError, match="The observation is not finite"):
            layout.rows_of(np.array([0.0, wrong]))

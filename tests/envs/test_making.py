"""Environments by name: their arguments, and what they are like."""

import math
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from tenfold.core.errors import ConfigError, EnvironmentFault
from tenfold.envs.arguments import join_name, parse_value, split_name
from tenfold.envs.making import make_environments, spec_of
from tenfold.envs.scalar import ScalarEnvironments


class Clock(gym.Env[np.ndarray, int]):
    """Says how long a step takes."""

    observation_space, action_space = gym.spaces.Box(-1, 1, (1,)), gym.spaces.Discrete(2)
    closed = 0

    def __init__(self, dt: Any = None) -> None:
        if dt is not None:
            self.dt = dt

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return np.zeros(1, np.float32), 0.0, False, False, {}

    def close(self) -> None:
        Clock.closed += 1


gym.register("tests/Clock-v0", Clock)


def test_a_spec_says_what_an_environment_is_like_and_leaves_nothing_open() -> None:
    before = Clock.closed
    spec = spec_of("tests/Clock-v0(dt=0.5)")
    assert (spec.name, spec.agents, spec.masked, spec.step_time) == (
        "tests/Clock-v0(dt=0.5)",
        1,
        False,
        0.5,
    )
    assert spec.layout.shape == (1,) and spec.action_space == Clock.action_space
    assert Clock.closed == before + 1 and spec_of("tests/Clock-v0").step_time is None


@pytest.mark.parametrize("policy", [False, True])
def test_masks_are_read_by_those_who_ask_for_them(policy: bool) -> None:
    spec = spec_of("tenfold/JobShop-v0", policy=policy)
    assert (spec.masked, spec.unread_mask) == (policy, not policy)


@pytest.mark.parametrize(
    ("name", "policy", "expected"),
    [
        ("tenfold/TreasureSmall-v0", False, {"agents": 5}),
        ("tenfold/CartPole-v1", False, {"step_time": None}),
        ("CartPole-v1", False, {"step_time": 0.02, "exact_resume": True}),
        ("tenfold/LimitCycle-v0(dt=0.2, every=3)", True, {"step_time": pytest.approx(0.6)}),
    ],
)
def test_every_adapter_has_a_spec(name: str, policy: bool, expected: dict[str, Any]) -> None:
    spec = spec_of(name, policy=policy)
    assert {key: getattr(spec, key) for key in expected} == expected


def test_components_of_rewards_are_named_where_the_adapter_gives_them() -> None:
    assert "goal" in spec_of("tenfold/Durotaxis-v0", policy=True).component_names
    assert spec_of("tenfold/Durotaxis-v0").component_names == ()


@pytest.mark.parametrize("dt", [0, -1, "soon"])
def test_a_time_that_is_none_matters_to_those_alone_who_ask_for_it(dt: Any) -> None:
    name = f"tests/Clock-v0(dt={dt})"
    assert math.isnan(spec_of(name).step_time or 0.0)
    with pytest.raises(ConfigError, match=f"says that a step takes {dt}"):
        _ = make_environments(name, 1, 0).step_time


def test_environments_are_closed_where_they_cannot_be_begun() -> None:
    class Broken(Clock):
        def reset(self, **_: Any) -> Any:
            raise RuntimeError("no power")

    gym.register("tests/Broken-v0", Broken)
    before = Clock.closed
    with pytest.raises(EnvironmentFault, match="reset raised RuntimeError"):
        ScalarEnvironments("tests/Broken-v0", 3, 0)
    assert Clock.closed == before + 3


def test_values_are_read_as_a_person_means_them() -> None:
    said = ["true", "None", "3", "1.5k", "1e-3", "bend", "'3'", "/a/b.npy"]
    assert list(map(parse_value, said)) == [True, None, 3, 1500, 0.001, "bend", "3", "/a/b.npy"]


def test_a_name_is_read_as_it_was_written() -> None:
    arguments = {"size": 8, "slippery": False, "map": "4x4", "soft": 0.25, "seed": None}
    assert split_name(join_name("A-v0", arguments)) == ("A-v0", arguments)
    assert split_name("A-v0(size=8, file=a.npz)", str) == ("A-v0", {"size": "8", "file": "a.npz"})
    with pytest.raises(EnvironmentFault, match=r"name each argument, for example A-v0\(size=8\)"):
        split_name("A-v0(8)")

"""Gymnasium's wrappers in an environment's name."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from tenfold.config.files import modules_in
from tenfold.core.errors import ConfigError, UserError
from tenfold.envs.making import make_env, make_environments

TIME, RESCALE = "gymnasium.wrappers:TimeAwareObservation", "gymnasium.wrappers:RescaleAction"


class Scale(gym.RewardWrapper):  # type: ignore[type-arg]
    """Rewards times and plus numbers."""

    def __init__(self, env: Any, times: float = 1.0, shape: Any = (), plus: float = 0.0) -> None:
        super().__init__(env)
        self.times, self.shape, self.plus = times, shape, plus

    def reward(self, reward: Any) -> float:
        return float(reward) * self.times + self.plus


MINE = f"{__name__}:Scale"


def test_wrappers_stand_around_one_another_in_their_order() -> None:
    env = make_env(f"CartPole-v1(wrappers=[{MINE}(times=2), {MINE}(plus=1, shape=[3, 4])])")
    env.reset(seed=0)
    assert env.step(0)[1] == 3.0  # 2 · 1 + 1
    assert env.shape == (3, 4)  # type: ignore[attr-defined]


def test_wrappers_are_outside_of_repeated_actions_and_limits() -> None:
    name = f"CartPole-v1(wrappers=[{MINE}(plus=1), {TIME}], action_repeat=3, max_episode_steps=5)"
    envs = make_environments(name, 2, 0)
    assert envs.layout.shape == (5,)
    envs.step(np.zeros(2, np.int64))
    assert envs.reward.tolist() == [4.0, 4.0]  # three steps, and one
    assert envs.obs[0, 4] == 1


@pytest.mark.parametrize("name", ["tenfold/CartPole-v1", "HalfCheetah-v5"])
def test_an_environment_in_compiled_form_is_wrapped_as_well(name: str) -> None:
    plain, wrapped = (make_environments(one, 1, 0) for one in (name, f"{name}(wrappers={TIME})"))
    assert wrapped.layout.shape[0] == plain.layout.shape[0] + 1


def test_its_modules_are_asked_about() -> None:
    settings = {"env": "CartPole-v1(wrappers=[my_wrappers:Mine, others.more:Other(a=1)])"}
    assert set(modules_in(settings)) == {"my_wrappers", "others.more"}


@pytest.mark.parametrize(
    ("wrapper", "sentence"),
    [
        ("gymnasium.wrappers:Nope", "has no Nope"),
        ("nobody.has:This", "nobody cannot be imported"),
        (RESCALE, "RescaleAction raised TypeError"),
        ("tenfold.envs.arguments:shorten", "is no wrapper: it made a str"),
        (f"{MINE}(2)", "name each argument"),
        ("Mine", "not written as module:Name"),
    ],
)
def test_what_cannot_be_a_wrapper_is_told_of(wrapper: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        make_env(f"CartPole-v1(wrappers=[{wrapper}])")


def test_environments_of_their_own_stepping_refuse_them() -> None:
    with pytest.raises(ConfigError, match=r"wrappers = .* is not for tenfold/Atari-v0"):
        make_environments(f"tenfold/Atari-v0(wrappers={TIME})", 1, 0)

"""Our own environments keep Gymnasium's rules and their own."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import tenfold.envs  # noqa: F401


@pytest.mark.filterwarnings("ignore:.*render_mode")
def test_catch_passes_gymnasiums_checker() -> None:
    env = gym.make("tenfold/Catch-v0").unwrapped
    check_env(env, skip_render_check=False)
    assert env.observation_space.dtype == np.uint8


def play(policy, episodes: int = 300) -> float:
    env, total = gym.make("tenfold/Catch-v0"), 0.0
    rng = np.random.default_rng(0)
    for episode in range(episodes):
        obs, _ = env.reset(seed=episode)
        done, steps = False, 0
        while not done:
            obs, reward, done, _, _ = env.step(policy(obs, rng))
            total, steps = total + reward, steps + 1
        assert steps == 9
    return total / episodes


def follow(obs: np.ndarray, rng) -> int:
    ball, paddle = int(obs[:9].max(0).argmax()), int((obs[9] == 128).argmax())
    return 1 + int(np.sign(ball - paddle))


def test_following_the_ball_always_catches_it_and_chance_seldom_does() -> None:
    assert play(follow) == 1.0
    assert play(lambda obs, rng: int(rng.integers(3))) == pytest.approx(-0.77, abs=0.15)


def test_catch_draws_itself() -> None:
    env = gym.make("tenfold/Catch-v0", render_mode="rgb_array")
    env.reset(seed=0)
    assert env.render().shape == (160, 160, 3)

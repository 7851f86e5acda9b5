"""What is installed: extras that code needs, pins that agree, and the names a user sees."""

import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

import tenfold as ten
from tenfold.algorithms.ppo import PPOAgent
from tenfold.algorithms.ppo_settings import PPO
from tenfold.config.run import Run
from tenfold.envs.making import make_env
from tenfold.evaluation.video import pictures
from tenfold.training.learners import agent_of

HERE = Path(__file__).parent.parent


def pins(path: str) -> dict[str, str]:
    return dict(re.findall(r"^([\w-]+)==(\S+)$", (HERE / path).read_text(), re.MULTILINE))


TRACKERS = {"wandb", "trackio", "mlflow"}  # make test-track


def test_every_extra_is_installed_for_the_tests() -> None:
    extras = tomllib.loads((HERE / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    installed = re.search(r"^EXTRAS := (.*)$", (HERE / "Makefile").read_text(), re.MULTILINE)
    assert installed and set(installed.group(1).split(",")) == set(extras) - TRACKERS


def test_the_opponents_are_pinned_by_themselves_and_share_what_is_compared() -> None:
    ours, theirs = pins("constraints.txt"), pins("bench/peers/requirements.txt")
    for package in ("torch", "gymnasium", "numpy", "box2d", "mujoco", "imageio"):
        assert theirs[package] == ours[package]
    # tianshou 2.0.1 asks for pandas < 3, ray brings 3
    assert int(theirs["pandas"].split(".")[0]) == 2
    recipe = (HERE / "Makefile").read_text().split("$(PEERS)/.installed:")[1].split("\n\n")[0]
    assert "constraints.txt" not in recipe


def test_dir_shows_the_public_names_only() -> None:
    ten.DQN()  # a name that was used is kept in the module
    assert dir(ten) == sorted(ten.__all__)


def test_the_mujoco_extra_brings_what_its_environments_import() -> None:
    env = make_env("HalfCheetah-v5")
    env.reset(seed=0)
    assert np.isfinite(env.step(np.zeros(6, np.float32))[1])


@pytest.mark.slow  # draws in software, by a library of the system
def test_mujoco_is_filmed_without_a_screen() -> None:
    agent = agent_of(Run(env="Hopper-v5", agent=PPO()))
    assert isinstance(agent, PPOAgent)
    frames, rate = pictures("Hopper-v5", agent, agent.policy("greedy"), seed=0, limit=2)
    assert len(frames) == 3 and frames[0].shape == (480, 480, 3) and rate == 125
    assert np.ptp(frames[0]) > 100

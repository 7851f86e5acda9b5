"""MuJoCo tasks in compiled code: the same as Gymnasium's own in every bit, or Gymnasium's own."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from safetensors.numpy import load_file

from tenfold.config.run import Run
from tenfold.core.errors import CheckpointError, ConfigError, EnvironmentFault
from tenfold.core.random import Purpose
from tenfold.core.threads import set_team_limit
from tenfold.domains.mujoco import TASKS, Mujoco, lanes
from tenfold.domains.mujoco.episodes import MujocoEpisodes
from tenfold.domains.mujoco.lanes import MujocoEnvironments, play_task
from tenfold.envs.making import make_environments
from tenfold.envs.scalar import ScalarEnvironments
from tenfold.evaluation.player import make_chosen, play
from tenfold.training.learners import make_learner
from tenfold.training.loop import resume, train


@pytest.fixture(autouse=True)
def threads(request: pytest.FixtureRequest) -> Any:
    yield
    set_team_limit(0)


def assert_equal(fast: tuple[np.ndarray, ...], plain: tuple[np.ndarray, ...]) -> None:
    for one, other in zip(fast, plain, strict=True):
        np.testing.assert_array_equal(one, other)


CHANGED = (
    "HalfCheetah-v5(forward_reward_weight=2,ctrl_cost_weight=0.3,reset_noise_scale=0.01,frame_skip=2)",
    "HalfCheetah-v5(exclude_current_positions_from_observation=false)",
    "Hopper-v5(healthy_reward=0.3,terminate_when_unhealthy=false)",
    "Walker2d-v5(max_episode_steps=7)",
    "Swimmer-v5(ctrl_cost_weight=0.05)",
    "InvertedPendulum-v5(reset_noise_scale=0.1)",
    "Ant-v5(contact_cost_weight=0.01,include_cfrc_ext_in_observation=false)",
    "Humanoid-v5(contact_cost_weight=0.001,include_cvel_in_observation=false,include_cinert_in_observation=false)",
)


@pytest.mark.parametrize("name", [*TASKS, *CHANGED])
@pytest.mark.parametrize("count", [1, 2])
def test_every_number_is_gymnasiums_whatever_the_threads(name: str, count: int) -> None:
    set_team_limit(count)
    compiled = make_environments(name, 3, 5)
    assert isinstance(compiled, MujocoEnvironments)
    assert compiled.form.endswith("on 1 thread" if count == 1 else "on 2 threads")
    original = ScalarEnvironments(name, 3, 5)
    for attribute in ("time_limit", "step_time", "frame_rate", "exact_resume"):
        assert getattr(compiled, attribute) == getattr(original, attribute)
    np.testing.assert_array_equal(compiled.obs, original.obs)
    assert_equal(play_task(compiled, 1.0, 60), play_task(original, 1.0, 60))


def test_episodes_are_told_as_they_ended() -> None:
    envs = [make_environments("Hopper-v5(max_episode_steps=9)", 2, 1)]
    envs.append(ScalarEnvironments("Hopper-v5(max_episode_steps=9)", 2, 1))
    rng, told = np.random.default_rng(0), [[], []]
    for _ in range(40):
        action = rng.uniform(-1, 1, (2, 3)).astype(np.float32)
        for one, episodes in zip(envs, told, strict=True):
            one.step(action)
            episodes += one.finished
    assert told[0] == told[1] and len(told[0]) == 8


OTHERS: dict[str, tuple[str, str]] = {
    "another file": ("HalfCheetah-v5(xml_file=half_cheetah.xml)", "xml_file makes it another task"),
    "another body": ("Ant-v5(main_body=2)", "main_body makes it another task"),
    "a wrapper": ("Hopper-v5(action_repeat=2)", ""),
    "an endless limit": ("Hopper-v5(max_episode_steps=200000)", "longer than 100,000 steps"),
}


@pytest.mark.parametrize(("name", "reason"), OTHERS.values(), ids=OTHERS)
def test_anything_else_is_gymnasiums_and_says_why(name: str, reason: str) -> None:
    envs = make_environments(name, 1, 0)
    assert isinstance(envs, ScalarEnvironments)
    assert reason in envs.form
    envs.close()


@pytest.mark.parametrize("limit", [60, 25])
@pytest.mark.parametrize("task", ["Hopper-v5", "HalfCheetah-v5(max_episode_steps=40)"])
def test_evaluations_are_those_of_gymnasium(
    task: str, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More episodes than lanes, of different lengths or all at once, and episodes that are cut."""
    weights = np.random.default_rng(2).normal(size=(17, 6)).astype(np.float32)

    def policy(rows: np.ndarray, mask: None, episode: np.ndarray, step: np.ndarray) -> np.ndarray:
        size = 3 if rows.shape[1] < 17 else 6
        return np.tanh(rows.astype(np.float32) @ weights[: rows.shape[1], :size])

    agent: Any = SimpleNamespace(reads_masks=False, frames=1)
    assert isinstance(make_chosen(task, 2, 7, Purpose.SELECT, 3, False), MujocoEpisodes)
    compiled = play(task, agent, policy, 19, 7, Purpose.SELECT, limit)
    monkeypatch.setattr(Mujoco, "episodes", lambda *_: None)
    plain = play(task, agent, policy, 19, 7, Purpose.SELECT, limit)
    assert (plain.returns, plain.lengths) == (compiled.returns, compiled.lengths)
    assert plain.cut == compiled.cut
    assert compiled.cut == (19 if limit == 25 and "Cheetah" in task else 0)


def test_a_mujoco_whose_library_is_elsewhere_is_stepped_by_gymnasium(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lanes, "shared_library", lambda: None)
    envs = make_environments("Hopper-v5", 1, 0)
    assert isinstance(envs, ScalarEnvironments)
    assert "this build of mujoco" in envs.form


class Changed(gym.Env):
    """Somebody's own task under Gymnasium's name."""

    observation_space, action_space = gym.spaces.Box(-1, 1, (2,)), gym.spaces.Box(-1, 1, (1,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        return np.zeros(2, np.float32), 7.0, False, False, {}


def test_a_task_that_was_registered_anew_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = EnvSpec("Hopper-v5", entry_point=Changed, max_episode_steps=50)
    monkeypatch.setitem(gym.registry, "Hopper-v5", spec)
    envs = make_environments("Hopper-v5", 1, 0)
    assert isinstance(envs, ScalarEnvironments) and "registered anew" in envs.form
    envs.step(np.zeros((1, 1), np.float32))
    assert envs.reward[0] == 7


def test_the_form_of_gymnasium_can_be_asked_for() -> None:
    settings = {"env": "Hopper-v5", "agent": {"name": "sac", "capacity": 1000}, "steps": 10}
    forms = ({}, {"env_form": "gymnasium"})
    auto, asked = (cast(Any, make_learner(Run.of(settings | form))) for form in forms)
    assert isinstance(auto.envs, MujocoEnvironments)
    assert isinstance(asked.envs, ScalarEnvironments)
    assert "in compiled code over MuJoCo" in auto.description.where
    for learner in (auto, asked):
        learner.close()


@pytest.mark.parametrize("env", ["CartPole-v1", "tenfold/CartPole-v1", "tenfold/Treasure-v0"])
def test_a_form_is_refused_where_there_is_no_choice(env: str) -> None:
    run = Run.of({"env": env, "env_form": "gymnasium"})
    with pytest.raises(ConfigError, match="env_form is for MuJoCo tasks"):
        make_environments(run.world, 1, 0)


SMALL = {
    "sac": {"name": "sac", "net": {"hidden": [16]}, "batch_size": 8, "learning_starts": 50},
    "ppo": {"name": "ppo", "net": {"hidden": [16]}, "horizon": 32, "minibatches": 2},
}


@pytest.mark.parametrize("agent", SMALL)
def test_a_run_is_the_same_in_either_form_and_resumes_in_the_other(
    agent: str, tmp_path: Path
) -> None:
    """Environments stop in the middle of their episodes."""

    def settings(form: str, steps: int) -> Run:
        quiet = {"eval_every": 0, "checkpoint_every": 0, "num_envs": 2, "env_form": form}
        own = {"env": "Walker2d-v5", "agent": SMALL[agent], "steps": steps}
        return Run.of(own | quiet)

    def saved(folder: Path, step: int) -> dict[str, np.ndarray]:
        files = sorted((folder / "checkpoints").rglob(f"*{step}*.safetensors"))
        assert files
        return {f"{f.name}/{k}": v for f in files for k, v in load_file(f).items()}

    train(settings("gymnasium", 512), out=tmp_path / "whole")
    whole = saved(tmp_path / "whole", 512)
    for first, then in (("auto", "auto"), ("auto", "gymnasium"), ("gymnasium", "auto")):
        folder = tmp_path / f"{first}-{then}"
        train(settings(first, 256), out=folder)
        resume(folder, steps=512, settings={"env_form": then})
        parts = saved(folder, 512)
        assert parts.keys() == whole.keys()
        for name, array in whole.items():
            np.testing.assert_array_equal(parts[name], array, err_msg=name)


def data_of(envs: Any, i: int) -> Any:
    """MuJoCo's state of environment i."""
    return envs.data[i] if hasattr(envs, "data") else envs.envs[i].unwrapped.data


def test_numbers_that_are_not_finite_are_refused_with_their_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # MuJoCo warns in a file, and begins anew far behind
    envs = make_environments("HalfCheetah-v5(forward_reward_weight=1e300)", 2, 0)
    envs.step(np.ones((2, 6), np.float32))
    data_of(envs, 1).qpos[0] = 1e12
    with pytest.raises(EnvironmentFault, match=r"environment 1, episode 0, step 2: the reward"):
        envs.step(np.ones((2, 6), np.float32))
    envs.close()


def test_physics_that_blows_up_does_what_it_does_in_gymnasium(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MuJoCo then resets itself and goes on, and warns in a file."""
    monkeypatch.chdir(tmp_path)
    compiled = make_environments("HalfCheetah-v5", 1, 0)
    original = ScalarEnvironments("HalfCheetah-v5", 1, 0)
    for envs in (compiled, original):
        data_of(envs, 0).qvel[:] = 1e15
        for _ in range(3):
            envs.step(np.ones((1, 6), np.float32))
        envs.close()
    np.testing.assert_array_equal(compiled.obs, original.obs)
    np.testing.assert_array_equal(compiled.reward, original.reward)
    assert "unstable" in (tmp_path / "MUJOCO_LOG.TXT").read_text()


def test_arguments_that_are_no_numbers_meet_gymnasiums_own_complaint() -> None:
    envs = make_environments("Hopper-v5(healthy_reward=much)", 1, 0)
    assert isinstance(envs, ScalarEnvironments)
    assert "healthy_reward is no number" in envs.form


def test_actions_that_no_checkpoint_can_hold_are_refused() -> None:
    envs = make_environments("Hopper-v5", 2, 0)
    for _ in range(4):
        envs.step(np.ones((2, 3), np.float32))
    state = envs.state()
    state["actions"][1, 2, 0] = np.nan
    with pytest.raises(CheckpointError, match="holds action nan"):
        envs.restore(state)


@pytest.mark.parametrize("length", [-1, 5, 9, 10**9])
def test_lengths_that_no_episode_can_have_are_refused(length: int) -> None:
    """Compiled code would repeat actions from beyond its arrays."""
    envs = make_environments("Hopper-v5(max_episode_steps=9)", 2, 0)
    for _ in range(4):
        envs.step(np.zeros((2, 3), np.float32))
    state = envs.state()
    state["length"][1] = length
    with pytest.raises(CheckpointError, match="steps long"):
        envs.restore(state)

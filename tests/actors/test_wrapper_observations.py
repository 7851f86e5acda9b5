"""What agents are shown: several observations together, and normalised ones."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tenfold.algorithms.kernels.dqn_examples import fused_outcome, plain_outcome
from tenfold.config.files import named
from tenfold.config.run import Run
from tenfold.core.errors import ConfigError
from tenfold.core.layout import ObsLayout
from tenfold.evaluation.player import play
from tenfold.training.learners import agent_of, load, make_learner
from tenfold.training.loop import train

COUNT = "wrapping/Count-v0(ends=3)"
DQN = {"learning_starts": 20, "batch_size": 4, "capacity": 90, "net": {"hidden": [8]}}
SAC = DQN | {"name": "sac"}
PPO = {"name": "ppo", "horizon": 8, "minibatches": 2, "epochs": 1, "net": {"hidden": [8]}}


@pytest.mark.parametrize("engine", ["plain", "fused"])
def test_a_policy_sees_the_last_frames_of_its_episode(engine: str) -> None:
    """Observations are 0, 1, 2 and at the end 3; before the first stands the first."""
    learner = make_learner(Run.of({"env": COUNT, "agent": PPO, "frames": 3, "engine": engine}))
    while learner.step < 5:
        learner.round(5)
    seen = learner.rollout.obs[:5, 0, :, 0].tolist()
    assert seen == [[0, 0, 0], [0, 0, 1], [0, 1, 2], [0, 0, 0], [0, 0, 1]]
    assert learner.agent.frames == 3 and learner.agent.online.policy.sizes[0] == 3
    # the last observation of an episode is a stack of its own episode, too
    limited = make_learner(
        Run.of({"env": COUNT, "agent": PPO, "frames": 3, "max_episode_steps": 2, "engine": engine})
    )
    while limited.step < 2:
        limited.round(2)
    assert limited.envs.final_obs[0, :, 0].tolist() == [0, 1, 2]
    value = limited.agent.values(np.array([[[0], [1], [2]]], np.float32))[0]
    assert limited.rollout.next_value[1, 0] == pytest.approx(value, abs=1e-6)


def test_evaluations_and_the_loaded_agent_see_as_many() -> None:
    run = Run.of({"env": COUNT, "agent": PPO, "frames": 2})
    agent, shown = agent_of(run), []

    def watched(rows, mask, episode, step):
        shown.append(rows[0, :, 0].tolist())
        return agent.policy("greedy")(rows, mask, episode, step)

    play(run.world, agent, watched, 1, 0)
    assert shown == [[0, 0], [0, 1], [1, 2]]
    rows = np.array([[[0.0], [1.0]]], np.float32)
    assert agent.act(rows[0]) == agent.act(rows)[0]


def test_frames_of_an_image_are_further_channels() -> None:
    """Two frames of 5 x 4 pixels in 3 colours: six channels, the older frame's first."""
    single = ObsLayout((5, 4, 3), np.dtype(np.uint8), (3, 5, 4), 1 / 255, channels_last=True)
    stacked = single.stacked(2)
    assert (stacked.shape, stacked.net_shape, stacked.frames) == ((2, 5, 4, 3), (6, 5, 4), 2)
    batch = torch.arange(2 * 2 * 5 * 4 * 3).reshape(2, 2, 5, 4, 3)
    net = stacked.to_net(batch)
    assert net.shape == (2, 6, 5, 4)
    assert net[1, 4, 2, 3] == batch[1, 1, 2, 3, 1]  # channel 4 is the second frame's second colour


def test_frames_by_either_name_are_one_setting() -> None:
    assert Run.of({"frames": 4}).agent == Run.of({"agent": {"frames": 4}}).agent
    assert (
        Run.of({"normalize_obs": "yes"}).agent == Run.of({"agent": {"normalize_obs": True}}).agent
    )
    assert Run.of({"frames": 4}).stacked == 1  # the replay memory finds them by index
    assert Run.of({"frames": 4, "agent": {"name": "ppo"}}).stacked == 4
    with pytest.raises(
        ConfigError, match=r"frames = 4 and agent\.frames = 2 contradict each other"
    ):
        Run.of({"frames": 4, "agent": {"frames": 2}})
    # a flag replaces what a file says by the other name
    assert named("lunarlander-ppo").agent.normalize_obs  # by the agent's name
    assert not named("lunarlander-ppo", {"normalize_obs": False}).agent.normalize_obs
    assert named("hopper-ppo").agent.normalize_obs  # by the run's
    assert not named("hopper-ppo", {"agent": {"normalize_obs": False}}).agent.normalize_obs


@pytest.mark.parametrize("name", ["halfcheetah-ppo", "hopper-ppo", "walker2d-ppo", "ant-ppo"])
def test_presets_for_mujoco_learn_from_normalised_observations_and_rewards(name: str) -> None:
    learner = make_learner(named(name, {"agent": {"horizon": 64, "epochs": 1}}))
    while learner.step < 65:
        learner.round(65)
    assert learner.agent.updates and learner.engine_choice.startswith("fused")
    norm, form = learner.agent.norm, learner.rewards
    assert norm.count[0] == 66 and form.norm.count[0] == 65 and form.normalize
    assert np.abs(learner.rollout.reward).max() <= 10
    learner.close()


def test_frames_of_graphs_are_refused() -> None:
    env = "tenfold/Durotaxis-v0(mode=nodes,substrate=bend)"
    agent = {"name": "ppo", "on_empty": "absent", "squash": True}
    with pytest.raises(ConfigError, match="frames = 2 is not for observations that are graphs"):
        make_learner(Run.of({"env": env, "agent": agent, "frames": 2}))
    with pytest.raises(ConfigError, match="frames = 0 is out of range"):
        Run(frames=0)


@pytest.mark.parametrize("agent", [DQN, SAC], ids=["dqn", "sac"])
@pytest.mark.parametrize("engine", ["plain", "fused"])
def test_replay_keeps_observations_as_they_are_and_they_are_normalised_where_they_are_used(
    engine: str, agent: dict[str, Any]
) -> None:
    """After the observations 0, 1, 2, 0 (the end was 3), 1, 2 the mean is 1 and the variance 2/3."""
    run = Run.of({"env": COUNT, "agent": agent, "normalize_obs": True, "engine": engine})
    learner = make_learner(run)
    while learner.step < 5:
        learner.round(5)
    norm = learner.agent.norm
    assert norm.count[0] == 6 and norm.mean[0] == pytest.approx(1)
    assert norm.variance[0] == pytest.approx(2 / 3)
    assert learner.replay.obs[:7, 0].tolist() == [0, 1, 2, 3, 0, 1, 2]
    rows = torch.tensor([[2.0]])
    assert learner.agent.to_net(rows).item() == pytest.approx(1.5**0.5, rel=1e-6)


def test_the_fused_update_normalises_as_the_plain_one_does() -> None:
    options = {"normalize_obs": True, "batch_size": 9, "capacity": 200, "net": {"hidden": [6]}}
    for fast, plain in zip(fused_outcome(options, 3), plain_outcome(options, 3), strict=True):
        np.testing.assert_allclose(fast, plain, rtol=1e-4, atol=1e-5)
    other = plain_outcome(options | {"normalize_obs": False}, 3)
    assert not np.allclose(other[0], plain_outcome(options, 3)[0], atol=1e-4)


def test_statistics_are_loaded_with_the_agent_and_frozen(tmp_path: Path) -> None:
    run = Run.of({"env": COUNT, "agent": DQN, "normalize_obs": True, "steps": 60, "eval_every": 0})
    train(run, tmp_path / "run", quiet=True)
    agent = load(tmp_path / "run")
    assert agent.norm.count[0] == 61
    before = agent.norm.moments.copy()
    agent.act(np.array([9.0], np.float32))
    play(run.world, agent, agent.policy("greedy"), 2, 0)
    assert np.array_equal(agent.norm.moments, before)


def test_what_cannot_be_normalised_is_refused() -> None:
    with pytest.raises(ConfigError, match="normalize_obs = true is for vector observations"):
        make_learner(Run.of({"env": "tenfold/Catch-v0", "normalize_obs": True}))
    with pytest.raises(ConfigError, match="normalize_obs = true is for one network"):
        make_learner(Run.of({"env": "tenfold/TreasureSmall-v0", "normalize_obs": True}))
    with pytest.raises(ConfigError, match="is not for agent explorer"):
        Run.of({"agent": {"name": "explorer"}, "normalize_obs": True})

"""Rewards in the form that is learned from; returns are told as they are."""

import math

import numpy as np
import pytest

from tenfold.config.run import Run, Sign
from tenfold.core.errors import ConfigError
from tenfold.evaluation.player import play
from tenfold.ops.rollouts import RewardForm
from tenfold.training.learners import make_learner

COUNT = "wrapping/Count-v0(ends=3)"
DQN = {"learning_starts": 1000, "batch_size": 4, "capacity": 60, "gamma": 0.9}
PPO = {"name": "ppo", "horizon": 50, "minibatches": 1, "net": {"hidden": [4]}, "gamma": 0.9}


def put(form: RewardForm, reward: float, ended: bool, skipped: bool = False) -> float:
    out = np.zeros(1)
    form.put(np.array([reward]), np.array([ended]), np.array([skipped]), out)
    return float(out[0])


def test_rewards_are_divided_by_the_deviation_of_the_discounted_return() -> None:
    """γ = 0.9; rewards 1, 2 and the end, then 3: the returns are 1, 2.9 and, anew, 3. Their
    deviations so far: 0, 0.95, and √(Σ(x − 2.3)²/3) = √((1.69 + 0.36 + 0.49)/3)."""
    form = RewardForm(1, 0.9, normalize=True)
    assert put(form, 1, False) == 10  # no deviation yet: as far as is allowed
    assert put(form, 2, True) == pytest.approx(2 / 0.95, rel=1e-6)
    assert put(form, 3, False) == pytest.approx(3 / math.sqrt(2.54 / 3), rel=1e-6)
    before = form.state()
    assert put(form, 99, False, skipped=True) == 10  # a row that is no step teaches nothing
    assert all(np.array_equal(before[name], form.state()[name]) for name in before)


def test_rewards_are_clipped_to_a_number_or_to_their_signs() -> None:
    half, sign = RewardForm(1, 0.9, False, 0.5), RewardForm(1, 0.9, False, 0.0)
    assert [put(half, r, False) for r in (-3, 0.2, 7)] == [-0.5, 0.2, 0.5]
    assert [put(sign, r, False) for r in (-3, 0, 0.2)] == [-1, 0, 1]
    both = RewardForm(1, 0.9, True, 1.5)
    assert [put(both, 1, False), put(both, 2, True)] == [1.5, 1.5]  # 2 / 0.95 is more


@pytest.mark.parametrize("engine", ["plain", "fused"])
@pytest.mark.parametrize("agent", [DQN, PPO], ids=["dqn", "ppo"])
def test_the_learner_stores_them_and_episodes_keep_their_returns(agent: dict, engine: str) -> None:
    """Rewards are 1, 2, 3 and the end."""
    run = Run.of({"env": COUNT, "agent": agent, "engine": engine, "clip_reward": 1.5})
    learner = make_learner(run)
    ended = []
    while learner.step < 7:
        ended += learner.round(7)
    stored = learner.rollout.reward[:7, 0] if "name" in agent else learner.replay.reward[:8]
    expected = [1, 1.5, 1.5, 1, 1.5, 1.5, 1]
    if "name" not in agent:  # an episode's last observation has a row of its own
        expected = [1, 1.5, 1.5, 0, 1, 1.5, 1.5, 0]
    assert stored.tolist() == expected
    assert [episode.ret for episode in ended] == [6, 6]
    # evaluations know nothing of it
    score = play(run.world, learner.agent, learner.agent.policy("greedy"), 2, 0)
    assert score.returns == [6, 6]


def test_signs_are_written_so() -> None:
    assert Run.of({"clip_reward": "sign"}).clip_reward == Sign()
    assert Run.of({"clip_reward": "0.5"}).clip_reward == 0.5
    for wrong in (0, -1, "often"):
        with pytest.raises(ConfigError, match="clip_reward"):
            Run.of({"clip_reward": wrong})


def test_rewards_in_components_are_refused() -> None:
    env = "tenfold/Durotaxis-v0(mode=nodes,substrate=bend)"
    agent = {"name": "ppo", "on_empty": "absent", "squash": True}
    with pytest.raises(ConfigError, match="normalize_reward is not for rewards in components"):
        make_learner(Run.of({"env": env, "agent": agent, "normalize_reward": True}))


def test_compiled_environments_bring_them_too_outside_of_their_loop() -> None:
    """CartPole's rewards are all 1."""
    run = {"env": "tenfold/CartPole-v1", "agent": DQN, "clip_reward": 0.25}
    learner = make_learner(Run.of(run))
    while learner.step < 50:
        learner.round(50)
    assert set(learner.replay.reward[:51].tolist()) == {0.25, 0.0}
    assert "steps outside of the compiled loop: rewards are" in learner.engine_choice

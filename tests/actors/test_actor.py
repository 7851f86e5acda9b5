"""What the learner of several actors says about its data before the first update, and what it
refuses."""

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, Tuple

from tenfold.actors.actor import check_first_rollout
from tenfold.algorithms.ppo_learner import PPOLearner
from tenfold.algorithms.ppo_settings import PPO
from tenfold.config.run import Run
from tenfold.core.errors import UserError
from tenfold.core.layout import ObsLayout
from tenfold.core.spaces import policy_actions
from tenfold.memory.rollout import RolloutBuffer

AGENT = {"name": "ppo", "horizon": 4, "epochs": 1, "minibatches": 1, "net": {"hidden": [16]}}


def filled() -> RolloutBuffer:
    """Four steps of one environment: observations 0, 1, 2, 3; the second terminates, the third is
    no transition, the last is cut."""
    actions = policy_actions(Tuple([Discrete(2), Box(-1, 1, (1,))]), "a mixed space")
    rollout = RolloutBuffer(
        PPO(horizon=4), ObsLayout((1,), np.dtype(np.float32), (1,), 1.0), actions, 1, False
    )
    no, yes = np.zeros(1, np.bool_), np.ones(1, np.bool_)
    for t, (terminated, truncated, skipped) in enumerate(
        ((no, no, no), (yes, no, no), (no, no, yes), (no, yes, no))
    ):
        rollout.obs[t], rollout.chosen[t], rollout.real[t] = t, t % 2, 0.5 * t
        rollout.add(np.array([float(t)]), terminated, truncated, skipped)
    return rollout


def test_a_rollout_is_described_without_what_is_no_transition() -> None:
    # left are the observations 0, 1 and 3: mean 4/3, variance (16 + 1 + 25) / 27; the numbers 0,
    # 0.5 and 1.5 are half of them
    assert check_first_rollout(filled()) == (
        "first batch: 3 rows; observations 0 to 3, deviation 1.247; rewards 0 to 3; 33.3% terminal; "
        "2 distinct actions; numbers 0 to 1.5, deviation 0.6236"
    )


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("obs", 7.0, "All observations of the first 3 steps are identical"),
        ("obs", np.nan, "rows that nobody wrote"),
        ("reward", np.nan, "rows that nobody wrote"),
    ],
)
def test_a_rollout_that_cannot_be_right_is_refused(name: str, value: float, words: str) -> None:
    rollout = filled()
    getattr(rollout, name)[...] = value
    with pytest.raises(UserError, match=words):
        check_first_rollout(rollout)


def test_a_policys_learner_looks_once_before_its_first_update(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Run.of(
        {
            "env": "tenfold/CartPole-v1",
            "actors": 2,
            "where": "serial",
            "num_envs": 1,
            "agent": AGENT,
        }
    )
    place = PPOLearner(run)
    for _ in range(8):
        place.round()
    assert place.agent.updates == 2 and len(place.notices) == 1
    assert place.notices[0].startswith("first batch: 8 rows; observations -") and place.notices[
        0
    ].endswith("2 distinct actions")
    blind = PPOLearner(run)
    monkeypatch.setattr(
        type(blind.envs), "write", lambda *given: None
    )  # observations do not arrive
    blind.envs.obs[...] = 0
    with pytest.raises(UserError, match="identical"):
        for _ in range(4):
            blind.round()
    assert blind.agent.updates == 0

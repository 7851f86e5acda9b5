"""Categorical returns: the projection worked out by hand, gradients against autograd in double
precision, acting by the mean, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tenfold.algorithms.dqn import DQNAgent
from tenfold.algorithms.dqn_settings import DQN
from tenfold.algorithms.off_policy import OffPolicyLearner
from tenfold.config.run import Run
from tenfold.core.errors import ConfigError
from tenfold.core.layout import ObsLayout
from tenfold.core.spaces import DiscreteActions
from tenfold.ops.qlearning import categorical_items, project
from tenfold.ops.td import (
    categorical_examples,
    categorical_gradient,
    categorical_gradient_reference,
    project_into,
)
from tenfold.training.loop import train

# probabilities of the atoms 0, 1, 2
SPREAD = [0.2, 0.5, 0.3]


@pytest.mark.parametrize(
    ("reward", "discount", "projected"),
    [
        # 0.5, 1.5 and 2.5: the first two lie half way between atoms, the last is cut to 2
        (0.5, 1.0, [0.1, 0.1 + 0.25, 0.25 + 0.3]),
        # -0.25, 0.25, 0.75: the first is cut to 0, the others give a quarter up and three down
        (-0.25, 0.5, [0.2 + 0.375 + 0.075, 0.125 + 0.225, 0.0]),
        (0.0, 1.0, SPREAD),  # every atom stays where it is
        (-9.0, 1.0, [1.0, 0.0, 0.0]),
        (9.0, 1.0, [0.0, 0.0, 1.0]),
        (1.25, 0.0, [0.0, 0.75, 0.25]),  # the episode terminated: only the reward counts
    ],
)
def test_the_projection_worked_out_by_hand(
    reward: float, discount: float, projected: list[float]
) -> None:
    given = torch.tensor([reward]), torch.tensor([discount]), torch.tensor([SPREAD])
    assert project(*given, 0.0, 2.0)[0].tolist() == pytest.approx(projected, abs=1e-6)
    found = np.zeros(3, np.float32)
    compiled = np.float32(reward), np.float32(discount), np.array(SPREAD, np.float32)
    project_into(*compiled, 3, 0.0, 2.0, found)
    assert found.tolist() == pytest.approx(projected, abs=1e-6)


def test_the_compiled_gradient_is_that_of_autograd_in_double_precision() -> None:
    for inputs in categorical_examples(np.random.default_rng(5), "float32"):
        numbers = [
            x.astype(np.float64) if isinstance(x, np.ndarray) and x.dtype == np.float32 else x
            for x in inputs
        ]
        wanted = categorical_gradient_reference(*numbers)
        found = categorical_gradient(*inputs)
        for own, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(own, other.numpy(), rtol=2e-5, atol=2e-6)


def test_the_gradient_by_logits_is_softmax_less_target() -> None:
    """Two atoms 0 and 1, uniform; a reward of 1 at the end of the episode: the target is (0, 1)."""
    logits = torch.zeros(1, 1, 2, dtype=torch.float64, requires_grad=True)
    batch = {"action": torch.tensor([0])} | {
        name: torch.tensor([value], dtype=torch.float64)
        for name, value in (("reward", 1.0), ("discount", 0.0), ("weight", 3.0))
    }
    weighted, error, q = categorical_items(batch, logits, logits, logits, 0.0, 1.0)
    weighted.sum().backward()
    assert logits.grad is not None
    assert logits.grad.flatten().tolist() == pytest.approx([3 * 0.5, -3 * 0.5])
    assert weighted.item() == pytest.approx(3 * np.log(2))
    assert error.item() == pytest.approx(np.log(2)) and q.item() == pytest.approx(0.5)


def test_the_error_is_zero_where_the_prediction_is_right() -> None:
    """The cross-entropy is not: a priority is the divergence."""
    p = torch.tensor([0.25, 0.75], dtype=torch.float64)
    logits = p.log().view(1, 1, 2)
    batch = {"action": torch.tensor([0])} | {
        name: torch.tensor([value], dtype=torch.float64)
        for name, value in (("reward", 0.75), ("discount", 0.0), ("weight", 1.0))
    }
    loss, error, _ = categorical_items(batch, logits, logits, logits, 0.0, 1.0)
    assert error.item() == pytest.approx(0, abs=1e-12) and loss.item() > 0.5


def test_the_agent_acts_by_the_mean_of_the_distribution() -> None:
    config = DQN.of({"distribution": "categorical(3, -1, 3)", "net": {"hidden": []}})
    layout = ObsLayout((1,), np.dtype(np.float32), (1,), 1.0)
    agent = DQNAgent(config, layout, DiscreteActions(2, 0), 0)
    agent.online.flat.zero_()
    # biases: action 0 is surely 1; action 1 is -1 or 3 with 0.4 and 0.6, so 1.4
    bias = torch.tensor([-50.0, 0.0, -50.0, np.log(0.4), -50.0, np.log(0.6)])
    agent.online.flat[-6:] = bias
    assert agent.values(np.zeros((1, 1), np.float32))[0].tolist() == pytest.approx([1.0, 1.4])
    assert agent.act(np.zeros(1, np.float32)) == 1


def test_ends_the_wrong_way_round_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"low = 10 must be below high = -10"):
        DQN.of({"distribution": "categorical(51, 10, -10)"})
    with pytest.raises(ConfigError, match="atoms"):
        DQN.of({"distribution": "categorical(1)"})


RAINBOW: dict[str, Any] = {
    "learning_starts": 100,
    "batch_size": 16,
    "capacity": 1_000,
    "dueling": True,
    "n_step": 3,
    "replay": "prioritized",
    "distribution": "categorical(21, 0, 20)",
    "explore": "noisy",
    "net": {"hidden": [16, 16]},
}


def test_everything_at_once_is_fused_and_held_to_the_plain_engine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = {"env": "CartPole-v1", "steps": 400, "eval_every": 0, "checkpoint_every": 0}
    train(Run.of(run | {"verify": 3, "agent": RAINBOW}), tmp_path / "run")
    said = capsys.readouterr().err
    assert "engine fused, one compiled call a round" in said and "verified: 100 updates" in said


def test_several_rounds_of_the_compiled_loop_act_as_single_ones() -> None:
    """Noise and random actions before learning starts are addressed by the round."""
    found = []
    for timed in (0, 1):
        learner = OffPolicyLearner(Run.of({"env": "tenfold/CartPole-v1", "agent": RAINBOW}))
        if timed:
            learner.time_every_round()
        while learner.step < 300:
            learner.round(300)
        found.append((learner.agent.online.flat.clone(), learner.replay.action.copy()))
    assert torch.equal(found[0][0], found[1][0]) and np.array_equal(found[0][1], found[1][1])

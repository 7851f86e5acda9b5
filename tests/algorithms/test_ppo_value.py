"""A value that learns at a rate of its own, or whose loss is divided by the variance of its
targets. The fused engine is held to the plain one by the pairs of `ppo_cpu`."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tenfold as ten
from tenfold.algorithms.ppo import PlainPPO, PPOAgent
from tenfold.core.errors import ConfigError
from tenfold.core.system import Clock
from tenfold.envs.making import make_environments
from tenfold.memory.rollout import RolloutBuffer
from tenfold.runs.storage import read_arrays
from tenfold.training.learners import agent_of, make_learner

SETTINGS = {
    "name": "ppo",
    "horizon": 16,
    "epochs": 1,
    "minibatches": 1,
    "lr": 0.001,
    "net": {"hidden": [4]},
}


def run_with(**settings: Any) -> ten.Run:
    agent = SETTINGS | settings
    return ten.Run.of({"env": "CartPole-v1", "num_envs": 2, "steps": 96, "agent": agent})


def one_update(**settings: Any) -> tuple[PPOAgent, torch.Tensor, np.ndarray]:
    """The agent after one gradient step, its parameters before, and the rollout's targets."""
    run = run_with(**settings)
    agent: Any = agent_of(run)
    envs = make_environments(run.env, 2, 0, policy=True)
    rollout = RolloutBuffer(run.agent, envs.layout, agent.actions, 2, False, None, 0)
    engine = PlainPPO(agent, rollout, envs)
    for rounds in range(16):
        envs.step(engine.explore(0, rounds))
        engine.store()
    before = agent.online.flat.detach().clone()
    engine.learn_from_rollout(0, Clock())
    return agent, before, rollout.target


def value_part(agent: Any) -> slice:
    size = sum(parameter.numel() for parameter in agent.online.value.parameters())
    return slice(agent.online.flat.numel() - size, None)


def test_the_first_step_of_adam_is_as_long_as_each_rate() -> None:
    agent, before, _ = one_update(value_lr=0.03, adam_eps=1e-12)
    moved = (agent.online.flat.detach() - before).abs()
    value = value_part(agent)
    assert moved[value].max().item() == pytest.approx(0.03, rel=1e-3)
    assert moved[: value.start].max().item() == pytest.approx(0.001, rel=1e-3)


def test_a_rate_of_the_value_may_be_a_schedule_of_its_own() -> None:
    agent, before, _ = one_update(value_lr="linear(0, 0.01, 100)")
    moved = (agent.online.flat.detach() - before).abs()
    assert moved[value_part(agent)].max() == 0
    assert moved.max() > 0


def test_the_value_loss_is_divided_by_the_variance_of_its_targets() -> None:
    """Without clipping the gradient of the value is that of a run without it, divided; the
    policy's is the same."""
    plain, *_ = one_update(clip_norm=None)
    scaled, _, target = one_update(clip_norm=None, normalize_value=True)
    value = value_part(plain)
    expected = plain.online.flat_grad.clone()
    expected[value] /= float(target.astype(np.float64).var()) + 1e-8
    torch.testing.assert_close(scaled.online.flat_grad, expected, rtol=1e-4, atol=1e-8)
    assert not torch.allclose(expected[value], plain.online.flat_grad[value])


def test_the_variance_is_kept_and_is_of_all_rollouts(tmp_path: Path) -> None:
    run = run_with(normalize_value=True)
    whole = ten.train(run, tmp_path / "whole", quiet=True, engine="plain")
    ten.train(run, tmp_path / "parts", quiet=True, engine="plain", steps=32)
    parts = ten.resume(tmp_path / "parts", steps=96, quiet=True)
    states = [
        read_arrays(result.path / "checkpoints" / "step-000000000096.safetensors")[0]
        for result in (whole, parts)
    ]
    assert states[0].keys() == states[1].keys()
    for name, value in states[0].items():
        assert np.array_equal(value, states[1][name]), name
    (count,) = [value for name, value in states[0].items() if name.endswith("value_count")]
    assert count == 96


@pytest.mark.parametrize("setting", [{"value_lr": 0.01}, {"normalize_value": True}])
def test_a_value_without_a_network_of_its_own_is_refused(setting: dict[str, Any]) -> None:
    run = run_with(**setting, baseline="counterfactual")
    with pytest.raises(ConfigError, match=rf"^agent\.{next(iter(setting))} is for a value with"):
        agent_of(run)


@pytest.mark.parametrize("setting", [{"value_lr": 0.01}, {"normalize_value": True}])
def test_engines_that_make_other_steps_say_why_not(setting: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="the value has a learning rate or a scale of its own"):
        make_learner(ten.Run.of({**ten_settings(setting), "engine": "compiled"}))


def ten_settings(setting: dict[str, Any]) -> dict[str, Any]:
    return {"env": "CartPole-v1", "agent": SETTINGS | setting}

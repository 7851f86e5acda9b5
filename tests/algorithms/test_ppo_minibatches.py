"""PPO's minibatches: how long they are, their advantages, clip ranges, losses of values, early
stops. What is expected is written out in torch."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributions import Categorical, Normal

import tenfold as ten
from tenfold.algorithms.ppo import PlainPPO, PPOAgent
from tenfold.algorithms.ppo_cpu import FusedPPO
from tenfold.algorithms.ppo_learner import PPOLearner
from tenfold.config.run import Run
from tenfold.config.schedules import value_at
from tenfold.core.errors import ConfigError
from tenfold.core.random import Purpose
from tenfold.ops.sampling import shuffle

HORIZON, ENVS, STEP = 13, 2, 100
CARTPOLE, PENDULUM = "tenfold/CartPole-v1", "tenfold/Pendulum-v1"
# of 26 rows
CASES: dict[str, dict[str, Any]] = {
    "a remainder": {"minibatch_size": 7, "normalize_advantage": "minibatch"},
    "a remainder of one row": {"minibatch_size": 5, "normalize_advantage": "minibatch"},
    "larger than the rollout": {"minibatch_size": 99, "normalize_advantage": "minibatch"},
    "equal parts": {"minibatches": 3, "normalize_advantage": "minibatch", "entropy": 0.05},
    "the larger loss": {"minibatch_size": 9, "value_clip": 0.01},
    "the clipped loss": {"minibatch_size": 9, "value_clip": 0.01, "value_clip_kind": "clipped"},
    "schedules": {
        "minibatch_size": 8,
        "clip": "linear(0.2, 0, 100, 50)",
        "value_clip": "table(0:1, 90:0.3, 110:0.01)",
        "lr": "table(80:0.02, 120:0.01)",
    },
    "kl_stop": {"minibatch_size": 4, "target_kl": 1e-4, "kl_stop": "minibatch"},
}


def engine_of(env: str, kind: type[PlainPPO], agent: dict[str, Any]) -> PlainPPO:
    """An engine with a full rollout, played by its first weights."""
    small = {"name": "ppo", "horizon": HORIZON, "epochs": 2, "lr": 0.01, "net": {"hidden": [9, 6]}}
    run = {"env": env, "num_envs": ENVS, "engine": "plain", "seed": 4, "steps": 10_000}
    learner = PPOLearner(Run.of(run | {"agent": small | agent}))
    plain: PlainPPO = learner.engine
    for rounds in range(HORIZON):
        learner.envs.step(plain.explore(0, rounds))
        plain.store()
    plain.finish()
    learner.rollout.value += np.linspace(-0.1, 0.1, ENVS, dtype=np.float32)  # as if it had moved
    return kind(learner.agent, learner.rollout, learner.envs)


def expected_phase(engine: PlainPPO, agent: PPOAgent) -> tuple[torch.Tensor, int]:
    """Parameters after a phase, and how many steps it made: the loop of the published algorithm."""
    config, rollout, online = agent.config, engine.rollout, agent.online
    rows = {
        name: torch.from_numpy(getattr(rollout, name)).flatten(0, 1).clone()
        for name in ("obs", "chosen", "real", "log_p", "value", "advantage", "target")
    }
    count, updates = HORIZON * ENVS, 0
    optimiser = torch.optim.Adam(online.parameters(), value_at(config.lr, STEP), eps=1e-5)
    clip = value_at(config.clip, STEP)
    value_clip = None if config.value_clip is None else value_at(config.value_clip, STEP)
    order = np.zeros(count, np.int64)
    for epoch in range(config.epochs):
        shuffle(agent.keys[Purpose.SHUFFLE], epoch, order)
        size = config.minibatch_size
        parts = (
            [order[first : first + size] for first in range(0, count, size)]
            if size
            else [order[count * k // 3 : count * (k + 1) // 3] for k in range(3)]
        )
        for part in parts:
            batch = {name: values[torch.from_numpy(part)] for name, values in rows.items()}
            output, value = online(batch["obs"])
            if agent.actions.low:
                policy: Any = Normal(output, online.log_std.exp())
                log_p = policy.log_prob(batch["real"]).sum(-1)
                entropy = policy.entropy().sum(-1)
            else:
                policy = Categorical(logits=output)
                log_p, entropy = policy.log_prob(batch["chosen"][:, 0]), policy.entropy()
            advantage = batch["advantage"]
            if config.normalize_advantage == "minibatch" and len(part) > 1:
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            change = log_p - batch["log_p"]
            ratio = change.exp()
            bounded = ratio.clamp(1 - clip, 1 + clip)
            loss = -torch.minimum(ratio * advantage, bounded * advantage).mean()
            error = (value - batch["target"]) ** 2
            if value_clip is not None:
                near = batch["value"] + (value - batch["value"]).clamp(-value_clip, value_clip)
                clipped = (near - batch["target"]) ** 2
                alone = config.value_clip_kind == "clipped"
                error = clipped if alone else torch.maximum(error, clipped)
            loss = loss + config.value_weight * 0.5 * error.mean() - config.entropy * entropy.mean()
            kl = (ratio - 1 - change).mean()
            if config.kl_stop == "minibatch" and config.target_kl and kl > 1.5 * config.target_kl:
                return online.flat.detach(), updates
            optimiser.zero_grad(set_to_none=False)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(online.parameters(), 0.5)
            optimiser.step()
            updates += 1
    return online.flat.detach(), updates


@pytest.mark.parametrize("kind", [PlainPPO, FusedPPO])
@pytest.mark.parametrize("env", [CARTPOLE, PENDULUM])
@pytest.mark.parametrize("case", CASES)
def test_a_phase_is_that_of_the_formulas(case: str, env: str, kind: type[PlainPPO]) -> None:
    engine = engine_of(env, kind, CASES[case])
    expected, updates = expected_phase(engine, copy.deepcopy(engine.agent))
    going = engine.learn(0, engine.per_phase, STEP)
    assert torch.allclose(engine.agent.online.flat, expected, rtol=0, atol=2e-6)
    assert engine.agent.updates == updates == int(engine.sums[-1])
    assert going == (case != "kl_stop") == (updates == engine.per_phase) and updates > 0


def test_minibatches_are_slices_of_their_size_and_what_remains() -> None:
    config = ten.PPO(minibatch_size=64)
    assert config.minibatch_bounds(150, 1) == [0, 64, 128, 150]
    assert config.minibatch_bounds(128, 1) == [0, 64, 128]
    assert config.minibatch_bounds(40, 1) == [0, 40]
    assert config.minibatch_bounds(7, 20) == [0, 3, 6, 7]  # whole sequences
    assert config.minibatch_bounds(3, 100) == [0, 1, 2, 3]
    assert ten.PPO(minibatches=4).minibatch_bounds(10, 1) == [0, 2, 5, 7, 10]
    assert ten.PPO().minibatch_bounds(150, 1) == [0, 75, 150]


@pytest.mark.parametrize(
    ("agent", "words"),
    [
        ({"minibatch_size": 8, "minibatches": 2}, "minibatch_size = 8 says how long minibatches"),
        (
            {"normalize_advantage": "minibatch", "baseline": "counterfactual"},
            "normalize_advantage = minibatch does not go with counterfactual baselines",
        ),
        ({"normalize_advantage": "rollout"}, "normalize_advantage = rollout is not true or false"),
        ({"kl_stop": "update"}, "kl_stop = update is not one of epoch, minibatch"),
        ({"value_clip_kind": "smaller"}, "value_clip_kind = smaller is not one of larger, clipped"),
        ({"clip": 0}, "clip = 0 is out of range"),
    ],
)
def test_what_does_not_go_together_is_refused_by_name(agent: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ten.PPO(**agent)


@pytest.mark.parametrize("text", ["true", "false", "minibatch"])
def test_how_advantages_are_normalised_is_read_as_it_is_written(text: str) -> None:
    config = ten.PPO(normalize_advantage=text)  # type: ignore[arg-type]
    assert config.normalize_advantage == {"true": True, "false": False}.get(text, text)


def test_phases_that_stop_at_a_minibatch_are_verified_update_by_update() -> None:
    agent = {"minibatch_size": 5, "target_kl": 3e-4, "kl_stop": "minibatch", "clip": "table(0:0.2)"}
    base = {"name": "ppo", "horizon": HORIZON, "epochs": 3, "lr": 0.01, "net": {"hidden": [9, 6]}}
    run = {"env": CARTPOLE, "num_envs": ENVS, "engine": "fused", "seed": 4, "steps": 10_000}
    learner = PPOLearner(Run.of(run | {"agent": base | agent, "verify": 1}))
    while learner.step < 10 * HORIZON * ENVS:
        learner.round()
    assert learner.lockstep and 10 <= learner.agent.updates < 10 * 3 * 6  # some phases stopped
    assert learner.lockstep.compared > learner.agent.updates  # and those steps not made, too


def test_the_fused_engine_takes_a_table_of_another_length_while_it_runs() -> None:
    engine = engine_of(CARTPOLE, FusedPPO, {"minibatch_size": 9})
    assert isinstance(engine, FusedPPO)
    for lr in ("table(0:0.03, 90:0.02, 110:0)", "table(0:0.02)", "linear(0.02, 0, 100, 50)"):
        settings = ten.PPO(lr=lr)  # type: ignore[arg-type]
        engine.agent.set_lr(settings.lr)
        engine.set_lr(settings.lr)
        expected, before = copy.deepcopy(engine.agent), engine.agent.updates
        PlainPPO(expected, engine.rollout, engine.envs).learn(0, 3, STEP)
        engine.learn(0, 3, STEP)
        assert engine.agent.updates == before + 3
        assert torch.allclose(engine.agent.online.flat, expected.online.flat, rtol=0, atol=2e-6)

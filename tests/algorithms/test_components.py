"""Rewards in components where observations are vectors, not graphs: each component has a value of
its own, and the advantages are those that NumPy works out one after another."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tenfold as ten
from tenfold.algorithms.ppo_learner import PolicyLockstep
from tenfold.config.run import Run
from tenfold.core import registry
from tenfold.core.errors import ConfigError
from tenfold.envs.control import ControlEnvironments
from tenfold.ops.returns import gae_reference
from tenfold.training.learners import make_learner

WEIGHTS = np.array([1.0, -0.5, 2.0])


class Upright(ControlEnvironments):
    """CartPole for being up, for the cart's distance and for the pole's angle."""

    component_names = ("up", "away", "angle")
    component_weights = WEIGHTS

    def __init__(self, name: str, num_envs: int, seed: int, first: int) -> None:
        super().__init__("tenfold/CartPole-v1", num_envs, seed, first)
        self.name, self.components = name, np.zeros((num_envs, 3), np.float32)

    def step(self, actions: np.ndarray) -> None:
        super().step(actions)
        seen = np.where((self.terminated | self.truncated)[:, None], self.final_obs, self.obs)
        self.components[:] = np.stack([np.ones(len(seen)), abs(seen[:, 0]), -abs(seen[:, 2])], 1)
        self.reward[:] = self.components @ WEIGHTS


class Parts(ten.Domain):
    name = "parts"

    def owns(self, env: str) -> bool:
        return env == "parts/Upright-v0"

    def environments(self, env: str, num_envs: int, seed: int, policy: bool, first: int) -> Any:
        return Upright(env, num_envs, seed, first)


@pytest.fixture(autouse=True)
def domain() -> Iterator[None]:
    registry.ADDED.append(Parts())
    yield
    registry.ADDED.clear()


def made(engine: str = "plain", num_envs: int = 3, actors: int = 1, **agent: Any) -> Any:
    settings = {"horizon": 16, "minibatches": 2, "epochs": 1, "net": {"hidden": [8]}} | agent
    settings |= {"name": "ppo", "normalize_advantage": False}
    run = {"env": "parts/Upright-v0", "num_envs": num_envs, "engine": engine, "agent": settings}
    return make_learner(
        Run.of(run | {"actors": actors, "where": "serial" * (actors > 1) or "auto"})
    )


@pytest.mark.parametrize(
    "more",
    [{}, {"num_envs": 4}, {"num_envs": 2, "actors": 2}, {"net": {"hidden": [8], "memory": "gru(3)"}}],
    ids=["three environments", "as many as columns", "actors", "remembering"],
)  # fmt: skip
def test_each_component_has_a_value_and_an_advantage(more: dict[str, Any]) -> None:
    """As many environments as a value has columns were taken for the columns themselves."""
    p = made(**more)
    finished: list[bool] = []
    p.learn = lambda: (p.engine.finish(), finished.append(True))
    while not finished:
        p.round()
    rollout, lanes = p.rollout, p.envs.num_envs
    assert rollout.value.shape == (16, lanes, 4) and np.ptp(rollout.value, axis=2).all()
    rows = p.agent.normalised(p.envs.obs)
    last = p.agent.values(rows, rollout.hidden)
    assert last.shape == (lanes, 4)
    np.testing.assert_allclose(
        rollout.rewards[..., 1:] @ WEIGHTS, rollout.rewards[..., 0], atol=1e-5
    )
    expected = np.stack(
        [
            gae_reference(
                rollout.rewards[..., c],
                rollout.discount,
                rollout.value[..., c],
                np.where(
                    rollout.boundary > 0,
                    rollout.next_value[..., c],
                    np.concatenate([rollout.value[1:, :, c], last[None, :, c]]),
                ),
                rollout.boundary,
                0.95,
            )
            for c in range(4)
        ],
        -1,
    )
    np.testing.assert_allclose(rollout.advantages, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(rollout.advantage, expected[..., 1:] @ WEIGHTS, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(rollout.target, expected + rollout.value, rtol=1e-4, atol=1e-5)
    # the value's loss is the mean of the columns', each of which learns
    batch, agent = p.engine.minibatch(0), p.agent
    agent.online.flat_grad.zero_()
    loss, statistics = agent.loss(batch)
    loss.backward()
    value = agent.online(batch["obs"])[1]
    by_hand = 0.5 * (value - batch["target"]).square().mean().item()
    assert statistics[1].item() == pytest.approx(by_hand, rel=1e-5)
    network = getattr(agent.online.value, "head", agent.online.value)  # behind a memory
    assert (network.layers[-1].weight.grad.abs().amax(-1) > 0).sum() == 4


def test_a_run_learns_verifies_and_resumes() -> None:
    def started() -> Any:
        settings = {"name": "ppo", "horizon": 16, "minibatches": 2, "epochs": 1}
        run = {"env": "parts/Upright-v0", "num_envs": 3, "agent": settings}
        learner = make_learner(Run.of(run))
        # every update by a twin as well, whose value has as many columns
        learner.lockstep = PolicyLockstep(learner.engine, 1)
        return learner

    p = started()
    assert "rewards come in components" in p.engine_choice
    while p.step < 16 * 3 * 2 + 9:
        p.round()
    assert p.agent.updates == 4 and "reward/angle" in p.engine.statistics()
    other = started()
    assert other.load_state(p.state())
    for one in (p, other):
        while one.agent.updates < 6:
            one.round()
    assert np.array_equal(p.agent.online.flat, other.agent.online.flat)


def test_what_values_one_reward_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"engine = fused does not fit: rewards come in componen"):
        made("fused")
    with pytest.raises(
        ConfigError, match=r"agent.baseline = counterfactual values one reward, and"
    ):
        made(baseline="counterfactual")

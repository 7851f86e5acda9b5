"""One learning phase of PPO from Stable-Baselines3's rollout, weights and order gives its
parameters."""

from typing import Any

import numpy as np
import pytest
import torch

from tenfold.algorithms import ppo
from tenfold.algorithms.ppo import PlainPPO
from tenfold.algorithms.ppo_cpu import FusedPPO
from tenfold.algorithms.ppo_learner import PPOLearner
from tenfold.config.run import Run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:You have specified a mini-batch"),
]
STEPS, ENVS, HIDDEN = 45, 2, [16, 8]
# their arguments and ours
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({"batch_size": 30}, {"minibatch_size": 30}),
    "a remainder": ({"batch_size": 32}, {"minibatch_size": 32}),
    "a remainder of one row": ({"batch_size": 89}, {"minibatch_size": 89}),
    "clip_range_vf": (
        {"batch_size": 32, "clip_range_vf": 0.02, "clip_range": 0.05},
        {"minibatch_size": 32, "value_clip": 0.02, "clip": 0.05, "value_clip_kind": "clipped"},
    ),
    "target_kl": ({"batch_size": 15, "target_kl": 1e-4}, {"minibatch_size": 15, "target_kl": 1e-4}),
    "ent_coef": (
        {"batch_size": 30, "ent_coef": 0.05, "vf_coef": 0.3, "max_grad_norm": 0.1},
        {"minibatch_size": 30, "entropy": 0.05, "value_weight": 0.6, "clip_norm": 0.1},
    ),
    "advantages as they are": (
        {"batch_size": 30, "normalize_advantage": False},
        {"minibatch_size": 30, "normalize_advantage": False},
    ),
    "schedules": (
        {"learning_rate": lambda left: 3e-3 * left, "clip_range": lambda left: 0.3 * left},
        {"lr": "linear(3e-3, 0, 1k)", "clip": "linear(0.3, 0, 1k)", "minibatch_size": 64},
    ),
}
COMMON = {"normalize_advantage": "minibatch", "kl_stop": "minibatch", "value_weight": 1.0}


def theirs(env: str, epochs: int, arguments: dict[str, Any]) -> Any:
    """A model with a rollout that it has not learned from."""
    sb3 = pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.env_util import make_vec_env

    class Waiting(sb3.PPO):
        def train(self) -> None:
            pass

    settings = {"learning_rate": 3e-3, "n_epochs": epochs} | arguments
    model = Waiting(
        "MlpPolicy",
        make_vec_env(env, ENVS, seed=3),
        n_steps=STEPS,
        policy_kwargs={"net_arch": HIDDEN},
        seed=3,
        **settings,
    )
    model.learn(STEPS * ENVS)
    model._update_current_progress_remaining(model.num_timesteps, 1_000)
    return model


def layers_of(model: Any) -> list[tuple[Any, Any]]:
    """Our layers with the names of theirs."""
    policy, value = (
        [f"mlp_extractor.{kind}_net.{2 * k}" for k in range(len(HIDDEN))]
        for kind in ("policy", "value")
    )
    return [*policy, "action_net"], [*value, "value_net"]


def parameters_of(model: Any) -> torch.Tensor:
    """Their parameters in our order."""
    state = model.policy.state_dict()
    names = [name for names in layers_of(model) for name in names]
    rows = [state["log_std"]] if "log_std" in state else []
    rows += [state[f"{name}.{part}"] for name in names for part in ("weight", "bias")]
    return torch.cat([row.flatten() for row in rows])


def ours(model: Any, env: str, engine: type[PlainPPO], agent: dict[str, Any]) -> PlainPPO:
    """An engine with their weights, and a full rollout with the rows of theirs."""
    run = {"env": env, "num_envs": ENVS, "engine": "plain", "steps": 10_000}
    net = {"hidden": HIDDEN, "activation": "tanh"}
    settings = {"name": "ppo", "horizon": STEPS, "lr": 3e-3, "net": net} | COMMON | agent
    learner = PPOLearner(Run.of(run | {"agent": settings}))
    made = engine(learner.agent, learner.rollout, learner.envs)
    buffer, rollout = model.rollout_buffer, learner.rollout
    learner.agent.online.flat.copy_(parameters_of(model))
    rollout.obs[:] = buffer.observations
    (rollout.real if rollout.real.size else rollout.chosen)[:] = buffer.actions
    rollout.log_p[:], rollout.value[:] = buffer.log_probs, buffer.values
    rollout.reward[:], rollout.weight[:] = buffer.rewards, 1
    # a time limit's value is in their reward
    rollout.boundary[:-1] = buffer.episode_starts[1:]
    rollout.boundary[-1] = model._last_episode_starts
    rollout.discount[:] = 0.99 * (1 - rollout.boundary)
    with torch.no_grad():
        last = model.policy.predict_values(torch.as_tensor(model._last_obs)).numpy().ravel()
    rollout.finish(last)
    assert np.abs(rollout.advantage - buffer.advantages).max() < 1e-4
    assert np.abs(rollout.target - buffer.returns).max() < 1e-4
    rollout.advantage[:], rollout.target[:] = buffer.advantages, buffer.returns
    return made


def learned(model: Any) -> list[np.ndarray]:
    """Trains their model; the orders of its epochs, as numbers of our rows."""
    np.random.seed(7)  # noqa: NPY002  # it draws from these
    orders = [np.random.permutation(STEPS * ENVS) for _ in range(model.n_epochs)]  # noqa: NPY002
    np.random.seed(7)  # noqa: NPY002  # it draws from these
    model.__class__ = model.__class__.__base__
    model.train()
    return [order % STEPS * ENVS + order // STEPS for order in orders]


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
@pytest.mark.parametrize("case", CASES)
def test_a_phase_gives_the_parameters_of_stable_baselines3(
    case: str, env: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments, agent = CASES[case]
    model = theirs(env, 4, arguments)
    engine = ours(model, env, PlainPPO, {"epochs": 4} | agent)
    before, orders = parameters_of(model), learned(model)
    epochs = iter(orders)

    def in_their_order(key: Any, number: int, order: np.ndarray) -> None:
        order[:] = next(epochs)

    monkeypatch.setattr(ppo, "shuffle", in_their_order)
    stopped = not engine.learn(0, engine.per_phase, STEPS * ENVS)
    made = model.policy.optimizer.state_dict()["state"][0]["step"]
    assert engine.agent.updates == made and engine.agent.count[1] == model._n_updates
    assert stopped == (case == "target_kl") == bool(made < engine.per_phase)
    assert torch.allclose(engine.agent.online.flat, parameters_of(model), rtol=0, atol=1e-6)
    assert (parameters_of(model) - before).abs().max() > 1e-3


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
@pytest.mark.parametrize("case", CASES)
def test_the_fused_engine_gives_them_too(case: str, env: str) -> None:
    """Its order is its own: their rows are put where it finds them."""
    arguments, agent = CASES[case]
    model = theirs(env, 1, arguments)
    engine = ours(model, env, FusedPPO, {"epochs": 1} | agent)
    rollout = engine.rollout
    (order,) = learned(model)
    names = ("obs", "chosen", "real", "log_p", "value", "advantage", "target")
    rows = {name: getattr(rollout, name).reshape(STEPS * ENVS, -1).copy() for name in names}
    ppo.shuffle(engine.agent.keys[ppo.Purpose.SHUFFLE], 0, rollout.order)
    for name in names:
        getattr(rollout, name).reshape(STEPS * ENVS, -1)[rollout.order] = rows[name][order]
    stopped = not engine.learn(0, engine.per_phase, STEPS * ENVS)
    assert stopped == (case == "target_kl") == (engine.agent.updates < engine.per_phase)
    assert torch.allclose(engine.agent.online.flat, parameters_of(model), rtol=0, atol=1e-5)

"""Updates of dqn, sac and td3 are those of Stable-Baselines3, from its weights, batches and draws;
and the target network of dqn is copied at its steps. Needs stable-baselines3 and sb3-contrib."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from tenfold.config.run import Run
from tenfold.training.learners import make_learner

pytestmark = pytest.mark.slow
sb3 = pytest.importorskip("stable_baselines3")
contrib = pytest.importorskip("sb3_contrib")

UPDATES, BATCH, WIDTHS, QUANTILES = 20, 32, [32, 24], 7
HIDDEN = {"hidden": WIDTHS}
FILLED = {"learning_starts": 10**6, "batch_size": BATCH, "seed": 3}
CONTINUOUS = {"batch_size": BATCH, "net": HIDDEN}
VALUES: dict[str, Any] = {
    "name": "dqn",
    "net": HIDDEN,
    "double": False,
    "lr": 1e-3,
    "batch_size": BATCH,
    "target": "hard(steps=10)",
    "warm_up": "uniform",
}


@contextmanager
def recorded(owner: Any, name: str, keep: list[Any]) -> Iterator[None]:
    """What a method returns, in `keep`."""
    method = getattr(owner, name)

    def call(*arguments: Any, **named: Any) -> Any:
        keep.append(method(*arguments, **named))
        return keep[-1]

    setattr(owner, name, call)
    yield
    setattr(owner, name, method)


def played(kind: Any, env: str, steps: int = 300, **more: Any) -> Any:
    """A model with a filled buffer and no update; its target differs from what is learned."""
    options: dict[str, Any] = FILLED | more
    width: dict[str, Any] = {"net_arch": WIDTHS} | options.pop("policy_kwargs", {})
    torch.manual_seed(0)
    model = kind("MlpPolicy", env, policy_kwargs=width, **options).learn(steps)
    with torch.no_grad():
        for name, value in model.policy.named_parameters():
            if "target" in name:
                value.add_(0.05 * torch.randn_like(value))
    return model


def batch_of(data: Any, gamma: float) -> dict[str, torch.Tensor]:
    """A batch of SB3's as ours."""
    flat = {name: getattr(data, name).reshape(-1) for name in ("rewards", "dones")}
    discounts = gamma if data.discounts is None else data.discounts.reshape(-1)
    discrete = data.actions.dtype == torch.int64
    return {
        "obs": data.observations,
        "next_obs": data.next_observations,
        "action": data.actions.reshape(-1) if discrete else data.actions,
        "reward": flat["rewards"],
        "discount": discounts * (1 - flat["dones"]),
        "weight": torch.ones(len(flat["rewards"])),
    }


def update_by(learner: Any, batches: list[dict[str, torch.Tensor]], lr: float) -> None:
    agent, engine = learner.agent, learner.engine
    for batch in batches:
        number = agent.updates + 1
        inputs = agent.minibatches(batch, lambda rows: rows, True)
        engine.update_from(inputs, number, lr)
        agent.updates = number


def learner_of(env: str, agent: dict[str, Any], **run: Any) -> Any:
    return make_learner(Run.of({"env": env, "agent": agent, "engine": "plain"} | run))


def layers_of(module: Any) -> list[torch.Tensor]:
    return [parameter.data for parameter in module.parameters()]


def by_action(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """The last layer's rows, which are quantile by quantile, action by action."""

    def turned(rows: torch.Tensor) -> torch.Tensor:
        return rows.reshape(QUANTILES, -1, *rows.shape[1:]).transpose(0, 1).reshape(rows.shape)

    return [*tensors[:-2], *map(turned, tensors[-2:])]


def whole(tensors: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


@pytest.mark.parametrize(("double_actions", "n_steps"), [(False, 1), (False, 3), (True, 1)])
def test_q_learning_makes_the_same_updates(double_actions: bool, n_steps: int) -> None:
    """`double_actions`: QR-DQN, with several quantiles of each action's return."""
    more: dict[str, Any] = {"learning_rate": 1e-3, "n_steps": n_steps}
    ours = VALUES | {"loss": "huber", "clip_norm": 10, "n_step": n_steps}
    order: Callable[[list[torch.Tensor]], list[torch.Tensor]] = list
    kind, name = sb3.DQN, "q_net"
    if double_actions:
        kind, name, order = contrib.QRDQN, "quantile_net", by_action
        more["policy_kwargs"] = {"n_quantiles": QUANTILES}
        ours |= {"distribution": f"quantile({QUANTILES})", "clip_norm": None}
        ours["adam_eps"] = 0.01 / BATCH
    model = played(kind, "CartPole-v1", **more)
    learner = learner_of("CartPole-v1", ours)
    networks = [getattr(model, name), getattr(model, f"{name}_target")]
    for flat, network in zip(
        (learner.agent.online.flat, learner.agent.target.flat), networks, strict=True
    ):
        flat.copy_(whole(order(layers_of(network))))
    before, batches = learner.agent.online.flat.clone(), []
    with recorded(model.replay_buffer, "sample", batches):
        model.train(UPDATES, BATCH)
    update_by(learner, [batch_of(data, 0.99) for data in batches], 1e-3)
    expected = whole(order(layers_of(networks[0])))
    assert (expected - before).abs().max() > 9e-4
    assert (learner.agent.online.flat - expected).abs().max() < 1e-6
    assert torch.equal(learner.agent.target.flat, whole(order(layers_of(networks[1]))))


def parameters_of(model: Any, target: bool) -> torch.Tensor:
    """The policy's and the critics' as they lie in our flat buffer."""
    if isinstance(model, sb3.SAC):
        if target:
            return whole(layers_of(model.critic_target))
        actor = model.actor
        heads = [
            torch.cat([getattr(actor.mu, name).data, getattr(actor.log_std, name).data])
            for name in ("weight", "bias")
        ]
        policy = [*layers_of(actor.latent_pi), *heads]
        return whole([*policy, *layers_of(model.critic), model.log_ent_coef.data])
    end = "_target" if target else ""
    return whole([p for n in ("actor", "critic") for p in layers_of(getattr(model, n + end))])


@pytest.mark.parametrize("critics", [2, 1])
def test_soft_actor_critic_makes_the_same_updates(critics: int) -> None:
    model = played(sb3.SAC, "Pendulum-v1", policy_kwargs={"n_critics": critics})
    learner = learner_of("Pendulum-v1", CONTINUOUS | {"name": "sac", "critics": critics})
    agent = learner.agent
    agent.online.flat.copy_(parameters_of(model, False))
    agent.target.flat.copy_(parameters_of(model, True))
    before, batches, draws = agent.online.flat.clone(), [], []
    with (
        recorded(model.replay_buffer, "sample", batches),
        recorded(torch.distributions.normal, "_standard_normal", draws),
    ):
        model.train(UPDATES, BATCH)
    rows = [
        batch_of(data, 0.99) | {"noise": now, "next_noise": later}
        for data, now, later in zip(batches, draws[::2], draws[1::2], strict=True)
    ]
    update_by(learner, rows, 3e-4)
    expected = parameters_of(model, False)
    assert (expected - before).abs().max() > 1e-3
    assert (agent.online.flat - expected).abs().max() < 1e-5
    assert (agent.target.flat - parameters_of(model, True)).abs().max() < 1e-6


@pytest.mark.parametrize("name", ["td3", "ddpg", "td3, one critic"])
def test_deterministic_policies_make_the_same_updates(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their loss of the critics is twice ours, which Adam's offset alone can tell."""
    ours: dict[str, Any] = CONTINUOUS | {"name": "td3", "lr": 1e-3}
    more: dict[str, Any] = {}
    if name == "ddpg":
        ours |= {"critics": 1, "policy_delay": 1, "smoothing": 0}
    if name == "td3, one critic":
        ours["critics"], more = 1, {"policy_kwargs": {"n_critics": 1}}
    model = played(sb3.DDPG if name == "ddpg" else sb3.TD3, "Pendulum-v1", **more)
    learner = learner_of("Pendulum-v1", ours)
    agent = learner.agent
    agent.online.flat.copy_(parameters_of(model, False))
    agent.target.flat.copy_(parameters_of(model, True))
    before, batches, draws = agent.online.flat.clone(), [], []
    draw = torch.Tensor.normal_

    def normal(tensor: torch.Tensor, mean: float, deviation: float) -> torch.Tensor:
        draws.append(draw(torch.empty_like(tensor)))
        return tensor.copy_(deviation * draws[-1])

    with recorded(model.replay_buffer, "sample", batches):
        monkeypatch.setattr(torch.Tensor, "normal_", normal)
        model.train(UPDATES, BATCH)
        monkeypatch.undo()
    rows = [
        batch_of(data, 0.99) | {"next_noise": noise}
        for data, noise in zip(batches, draws, strict=True)
    ]
    update_by(learner, rows, 1e-3)
    expected = parameters_of(model, False)
    assert (expected - before).abs().max() > 9e-4
    assert (agent.online.flat - expected).abs().max() < 1e-5
    assert (agent.target.flat - parameters_of(model, True)).abs().max() < 1e-6


def test_targets_are_copied_at_the_same_steps() -> None:
    """Four environments, an interval of 10 and training every 3 calls: also before learning."""
    copies: list[int] = []

    class Watched(sb3.DQN):
        def _on_step(self) -> None:
            before = whole(layers_of(self.q_net_target))
            super()._on_step()
            if not torch.equal(before, whole(layers_of(self.q_net_target))):
                copies.append(self.num_timesteps)

    env = sb3.common.vec_env.DummyVecEnv([lambda: gym.make("CartPole-v1")] * 4)
    model = Watched(
        "MlpPolicy", env, learning_starts=40, train_freq=3, target_update_interval=10, seed=0
    )
    with torch.no_grad():
        for value in model.q_net_target.parameters():
            value.add_(1)
    model.learn(120)
    learner = learner_of("CartPole-v1", VALUES | {"every": 12, "learning_starts": 40}, num_envs=4)
    learner.agent.target.flat.add_(1)
    ours = []
    while learner.step < 120:
        before = learner.agent.target.flat.clone()
        learner.round(learner.step + 4)
        if not torch.equal(before, learner.agent.target.flat):
            ours.append(learner.step)
    assert ours == copies
    assert copies[0] == 8 and len(copies) > 5


def test_rewards_are_normalised_when_they_are_drawn() -> None:
    """SB3's statistics begin with one ten-thousandth of a return of deviation 1."""
    inside = sb3.common.vec_env.DummyVecEnv([lambda: gym.make("Pendulum-v1")])
    env = sb3.common.vec_env.VecNormalize(inside, norm_obs=False, clip_reward=0.05, gamma=0.99)
    model = sb3.SAC("MlpPolicy", env, **FILLED).learn(400)
    agent = CONTINUOUS | {"name": "sac", "learning_starts": 10**6}
    learner = learner_of("Pendulum-v1", agent, normalize_reward="drawn", clip_reward=0.05)
    rewards = model.replay_buffer.rewards[:400, 0]
    ended = model.replay_buffer.dones[:400, 0] > 0
    no = np.zeros(1, np.bool_)
    for reward, end in zip(rewards, ended, strict=True):
        out = np.zeros(1)
        learner.rewards.put(np.array([reward]), np.array([end]), no, out)
        assert out[0] == reward
        at = np.zeros((1, 3), np.float32)
        learner.replay.add(np.zeros((1, 1)), out, no, np.array([end]), no, at, at)
    batch = learner.replay.sample()
    stored = learner.replay.reward[batch.row]
    assert np.allclose(batch.reward, env.normalize_reward(stored), rtol=1e-5)
    assert batch.reward.min() == np.float32(-0.05) < batch.reward.max()

"""Models' files and policy objects beside Stable-Baselines3 itself, where it is installed."""

import copy
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

stable_baselines3 = pytest.importorskip("stable_baselines3")
sb3_contrib = pytest.importorskip("sb3_contrib")

masked = pytest.importorskip("sb3_contrib.common.wrappers").ActionMasker

from tenfold.integrations.sb3 import classes, persistence  # noqa: E402
from tenfold.integrations.sb3.model import SB3Model  # noqa: E402
from tenfold.integrations.sb3.saved_model import interpret  # noqa: E402
from tenfold.integrations.sb3.zip_file import read_model  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
APART = {"policy_kwargs": {"net_arch": {"pi": [8, 7], "vf": [6]}}}
SMALL: dict[str, Any] = {"policy_kwargs": {"net_arch": [8, 7]}, "seed": 1, "device": "cpu"}
ON_POLICY = {"n_steps": 64, "batch_size": 32, "n_epochs": 2}
OFF_POLICY = {"learning_starts": 40, "buffer_size": 2000, "batch_size": 16}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "PPO": ON_POLICY | APART,
    "RecurrentPPO": ON_POLICY,
    "MaskablePPO": ON_POLICY,
    "DQN": OFF_POLICY,
    "QRDQN": OFF_POLICY | {"policy_kwargs": {"net_arch": [8, 7], "n_quantiles": 5}},
    "SAC": OFF_POLICY,
    "TD3": OFF_POLICY,
    "DDPG": OFF_POLICY,
}
CONTINUOUS = ("SAC", "TD3", "DDPG")
TASKS = [*((name, "") for name in ARGUMENTS), ("PPO", "bits"), ("PPO", "box")]


@pytest.fixture(autouse=True)
def nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files do not depend on the engine, and compiling one takes minutes."""
    make_run = SB3Model.make_run
    plain = lambda *arguments: replace(make_run(*arguments), engine="plain")  # noqa: E731
    monkeypatch.setattr(SB3Model, "make_run", plain)


class Bits(gym.Env[np.ndarray, np.ndarray]):
    """Two bits to be switched on."""

    observation_space = gym.spaces.Box(-1, 1, (3,))
    action_space = gym.spaces.MultiBinary(2)

    def reset(self, **kwargs: Any) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(**kwargs)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return self.observation_space.sample(), float(action.sum()), self.steps > 9, False, {}


def task(name: str, actions: str) -> gym.Env[Any, Any]:
    if actions == "bits":
        return Bits()
    env = gym.make("Pendulum-v1" if name in CONTINUOUS or actions else "CartPole-v1")
    if name == "MaskablePPO":
        return masked(env, lambda _: np.array([True, True]))
    return env


def theirs(name: str) -> Any:
    return getattr(stable_baselines3, name, None) or getattr(sb3_contrib, name)


def made(kind: Any, name: str, actions: str) -> Any:
    # copies: their constructors write into policy_kwargs
    policy = "MlpLstmPolicy" if name == "RecurrentPPO" else "MlpPolicy"
    return kind(policy, task(name, actions), **copy.deepcopy({**SMALL, **ARGUMENTS[name]}))


def load_without_pickles(kind: Any, path: Path, *env: Any) -> Any:
    """Reads the file with pickles forbidden, and loads a model of what was read."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a pickle was opened")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pickle, "loads", refuse)
        patch.setattr(pickle, "load", refuse)
        file = read_model(path)
        interpret(file)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(persistence, "read_model", lambda _: file)
        return kind.load(path, *env, device="cpu")


def require_equal(ours: dict[str, Any], others: dict[str, Any]) -> None:
    """All tensors, moments and counts, bit for bit."""
    assert list(ours) == list(others)
    assert list(ours["policy"]) == list(others["policy"])
    for name, tensor in others["policy"].items():
        assert torch.equal(ours["policy"][name], tensor), name
    for name in set(others) - {"policy"}:
        assert ours[name]["param_groups"][0].keys() >= {"lr", "eps", "betas", "params"}
        assert ours[name]["state"].keys() == others[name]["state"].keys()
        for index, moments in others[name]["state"].items():
            for moment, tensor in moments.items():
                assert torch.equal(ours[name]["state"][index][moment], tensor), (name, moment)


def observations(model: Any) -> np.ndarray:
    shape = (1000, *model.observation_space.shape)
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize(("name", "actions"), TASKS)
def test_their_file_acts_the_same_here_and_goes_on(name: str, actions: str, tmp_path: Path) -> None:
    model = made(theirs(name), name, actions)
    model.learn(128)
    model.save(tmp_path / "theirs")
    ours = load_without_pickles(getattr(classes, name), tmp_path / "theirs", task(name, actions))
    obs = observations(model)
    expected, action = (one.predict(obs, deterministic=True)[0] for one in (model, ours))
    if actions != "bits":  # theirs are floats, and ours of the space's type
        assert action.dtype == expected.dtype
    np.testing.assert_allclose(action, expected, atol=0 if expected.dtype.kind in "iu" else 1e-6)
    require_equal(ours.get_parameters(), model.get_parameters())
    assert (ours.num_timesteps, ours._n_updates) == (128, model._n_updates)
    before = ours.agent.online.flat.clone()
    ours.learn(64, reset_num_timesteps=False)
    assert ours.num_timesteps >= 192 and not torch.equal(ours.agent.online.flat, before)


@pytest.mark.parametrize(("name", "actions"), TASKS)
def test_our_file_acts_the_same_there_and_goes_on(name: str, actions: str, tmp_path: Path) -> None:
    ours = made(getattr(classes, name), name, actions)
    ours.learn(128)
    ours.save(tmp_path / "ours")
    model = theirs(name).load(tmp_path / "ours", env=task(name, actions), device="cpu")
    obs = observations(model)
    expected, action = (one.predict(obs, deterministic=True)[0] for one in (ours, model))
    np.testing.assert_allclose(action, expected, atol=0 if expected.dtype.kind in "iu" else 1e-6)
    require_equal(ours.get_parameters(), model.get_parameters())
    updates = model._n_updates
    model.learn(64, reset_num_timesteps=False)
    assert model._n_updates > updates
    again = load_without_pickles(getattr(classes, name), tmp_path / "ours")
    require_equal(again.get_parameters(), ours.get_parameters())
    if actions != "bits":  # two of ours are one of theirs
        assert torch.equal(again.agent.online.flat, ours.agent.online.flat)


@pytest.mark.parametrize(("name", "actions"), TASKS)
def test_the_policy_object_is_theirs_on_our_weights(name: str, actions: str) -> None:
    ours = made(getattr(classes, name), name, actions)
    policy = ours.policy
    assert isinstance(policy, theirs(name).policy_aliases[ours.policy_name])
    obs = observations(ours)

    def same() -> None:
        expected, action = (one.predict(obs, deterministic=True)[0] for one in (ours, policy))
        tolerance = 0 if expected.dtype.kind in "iu" else 1e-6
        np.testing.assert_allclose(action, expected, atol=tolerance)

    same()
    ours.learn(128)
    assert ours.policy is policy
    same()
    optimizer = policy.critic.optimizer if name in CONTINUOUS else policy.optimizer
    flat = ours.agent.online.flat
    steps = ours.agent.updates
    assert {int(moments["step"]) for moments in optimizer.state_dict()["state"].values()} == {steps}
    policy.load_state_dict({k: v + 0.25 for k, v in policy.state_dict().items()}, assign=True)
    same()
    policy.to("cpu", torch.float64)
    ours.policy.float()
    same()
    assert flat is ours.agent.online.flat
    with torch.no_grad():  # as scripts that search among weights do
        for parameter in policy.parameters():
            parameter.add_(0.1)
    ours.learn(64)
    same()


def test_an_edit_of_quantiles_through_the_policy_object_is_learned_from() -> None:
    ours = made(classes.QRDQN, "QRDQN", "")
    last = ours.policy.quantile_net.quantile_net[-1]
    with torch.no_grad():
        last.bias.copy_(torch.arange(10.0))  # of quantile 0 both actions, of quantile 1, …
    expected = torch.tensor([[0.0, 2, 4, 6, 8], [1, 3, 5, 7, 9]])
    assert torch.equal(ours.policy.quantile_net.quantile_net[-1].bias, torch.arange(10.0))
    assert torch.equal(ours.agent.online.flat[-10:].view(2, 5), expected)


def test_a_compiled_policy_is_the_same_object_and_others_are_refused() -> None:
    ours = made(classes.PPO, "PPO", "")
    compiled = torch.compile(ours.policy)
    ours.policy = compiled
    assert ours.policy is compiled
    assert next(iter(ours.get_parameters()["policy"])) == "mlp_extractor.policy_net.0.weight"
    with pytest.raises(ValueError, match=r"policy is the model's own"):
        ours.policy = torch.nn.Linear(1, 1)


def test_an_optimiser_step_of_a_script_is_a_step_of_ours() -> None:
    ours = made(classes.PPO, "PPO", "")
    ours.learn(64)
    policy, updates = ours.policy, ours.agent.updates
    before = ours.agent.exp_avg.clone()
    values, log_p, entropy = policy.evaluate_actions(torch.ones(4, 4), torch.tensor([0, 1, 0, 1]))
    policy.optimizer.zero_grad()
    (values.mean() - log_p.mean() + entropy.mean()).backward()
    policy.optimizer.step()
    assert ours.agent.updates == updates + 1
    assert not torch.equal(ours.agent.exp_avg, before)


def test_a_replay_memory_comes_back(tmp_path: Path) -> None:
    ours = made(classes.DQN, "DQN", "")
    ours.learn(200)
    ours.save(tmp_path / "model")
    ours.save_replay_buffer(tmp_path / "memory")
    again = classes.DQN.load(tmp_path / "model", task("DQN", ""), device="cpu")
    again.load_replay_buffer(tmp_path / "memory")
    assert again.learner.replay.head >= ours.learner.replay.head
    again.learn(64, reset_num_timesteps=False)
    assert again.num_timesteps == 264

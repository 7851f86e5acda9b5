"""Stable-Baselines3's arguments: each means the same here, or is refused by its name."""

from math import exp
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from torch import nn, optim

from tenfold.config.schedules import Linear, Table, value_at
from tenfold.core.errors import ConfigError
from tenfold.integrations.sb3.settings import settings_of
from tenfold.integrations.sb3.signatures import CONSTRUCTORS, PPO_FAMILY, learn_arguments, signature

TOTAL = 100_000
REFUSED, NOTED, FACES = "refused", "noted", "of the classes themselves"


def policy(name: str) -> str:
    return "MlpLstmPolicy" if name == "RecurrentPPO" else "MlpPolicy"


def converted(name: str, num_envs: int = 1, total: int = TOTAL, **arguments: Any) -> Any:
    return settings_of(name, {"policy": policy(name)} | arguments, num_envs, total)


def agent(name: str, num_envs: int = 1, total: int = TOTAL, **arguments: Any) -> Any:
    return converted(name, num_envs, total, **arguments).check()


def at(config: Any, path: str) -> Any:
    for part in path.split("."):
        config = getattr(config, part)
    return config


def noise(kind: str, **fields: Any) -> Any:
    """An object of a class of that name, as Stable-Baselines3's are."""
    return type(kind, (SimpleNamespace,), {})(**fields)


# argument -> a value that is not the default, and what it is here: settings by their dotted names
PPO_CASES: dict[str, tuple[Any, Any]] = {
    "learning_rate": (1e-2, {"lr": 1e-2}),
    "n_steps": (256, {"horizon": 256}),
    "batch_size": (32, {"minibatch_size": 32}),
    "n_epochs": (3, {"epochs": 3}),
    "gamma": (0.9, {"gamma": 0.9}),
    "gae_lambda": (0.8, {"lam": 0.8}),
    "clip_range": (0.3, {"clip": 0.3}),
    "clip_range_vf": (0.4, {"value_clip": 0.4, "value_clip_kind": "clipped"}),
    "normalize_advantage": (False, {"normalize_advantage": False}),
    "ent_coef": (0.01, {"entropy": 0.01}),
    "vf_coef": (0.25, {"value_weight": 0.5}),
    "max_grad_norm": (2.0, {"clip_norm": 2.0}),
    "use_sde": (True, REFUSED),
    "sde_sample_freq": (4, NOTED),
    "rollout_buffer_class": (object, REFUSED),
    "rollout_buffer_kwargs": ({"a": 1}, REFUSED),
    "target_kl": (0.02, {"target_kl": 0.02, "kl_stop": "minibatch"}),
}
OFF_POLICY_CASES: dict[str, tuple[Any, Any]] = {
    "learning_rate": (1e-2, {"lr": 1e-2}),
    "buffer_size": (5_000, {"capacity": 5_000}),
    "learning_starts": (7, {"learning_starts": 7}),
    "batch_size": (17, {"batch_size": 17}),
    "gamma": (0.9, {"gamma": 0.9}),
    "train_freq": (3, {"every": 3}),
    "gradient_steps": (5, {"updates": 5}),
    "replay_buffer_class": (object, REFUSED),
    "replay_buffer_kwargs": ({"handle_timeout_termination": False}, REFUSED),
    "optimize_memory_usage": (True, REFUSED),
    "n_steps": (3, {"n_step": 3}),
}
Q_CASES = OFF_POLICY_CASES | {
    "tau": (0.5, {"target.tau": 0.5}),
    "target_update_interval": (77, {"target.steps": 77}),
    "exploration_fraction": (0.5, {"explore.schedule.steps": 50_000}),
    "exploration_initial_eps": (0.9, {"explore.schedule.start": 0.9}),
    "exploration_final_eps": (0.02, {"explore.schedule.end": 0.02}),
    "max_grad_norm": (3.0, {"clip_norm": 3.0}),
}
ACTOR_CASES = OFF_POLICY_CASES | {
    "tau": (0.5, {"tau": 0.5}),
    "action_noise": (
        noise("NormalActionNoise", _sigma=np.full(2, 0.3), _mu=np.zeros(2)),
        {"noise.sigma": (0.3,)},
    ),
}
SAC_CASES = ACTOR_CASES | {
    "ent_coef": (0.2, {"temperature": 0.2}),
    "target_update_interval": (2, {"updates": 1}),  # changes nothing there either
    "target_entropy": (-3.0, {"temperature.target": -3.0}),
    "use_sde": (True, REFUSED),
    "sde_sample_freq": (4, NOTED),
    "use_sde_at_warmup": (True, NOTED),
}
TD3_CASES = ACTOR_CASES | {
    "policy_delay": (3, {"policy_delay": 3}),
    "target_policy_noise": (0.1, {"smoothing": 0.1}),
    "target_noise_clip": (0.4, {"smoothing_clip": 0.4}),
}
ALL_CASES: dict[str, tuple[Any, Any]] = {
    "policy": ("NoPolicy", REFUSED),
    "env": (None, FACES),
    "stats_window_size": (3, FACES),
    "tensorboard_log": ("logs", FACES),
    "policy_kwargs": ({"net_arch": [3, 5]}, FACES),  # below
    "verbose": (1, FACES),
    "seed": (5, FACES),  # below
    "device": ("tpu", REFUSED),
    "_init_setup_model": (False, FACES),
}
CASES = {
    "DQN": Q_CASES,
    "QRDQN": Q_CASES,
    "SAC": SAC_CASES,
    "TD3": TD3_CASES,
    "DDPG": ACTOR_CASES,
} | dict.fromkeys(PPO_FAMILY, PPO_CASES)


@pytest.mark.parametrize("name", CONSTRUCTORS)
def test_every_argument_means_the_same_or_is_refused_by_its_name(name: str) -> None:
    defaults, settings = CONSTRUCTORS[name], agent(name)
    for argument in defaults:
        value, expected = (CASES[name] | ALL_CASES)[argument]
        if expected == REFUSED:
            with pytest.raises(ConfigError, match=argument):
                agent(name, **{argument: value})
        elif expected == NOTED:
            assert any(
                argument in line for line in converted(name, **{argument: value}).differences
            )
        elif expected != FACES:
            config = agent(name, **{argument: value})
            assert {path: at(config, path) for path in expected} == expected, argument
            assert argument == "target_update_interval" or config != settings, argument


def test_a_value_loss_without_a_half_weighs_twice() -> None:
    assert agent("PPO").value_weight == 1.0


def test_defaults_of_each_class_are_theirs() -> None:
    ppo, dqn, qrdqn = agent("PPO"), agent("DQN", 4), agent("QRDQN")
    assert (ppo.lr, ppo.horizon, ppo.minibatch_size, ppo.adam_eps) == (3e-4, 2048, 64, 1e-5)
    assert (ppo.normalize_advantage, ppo.net.hidden) == ("minibatch", (64, 64))
    assert (dqn.every, dqn.updates, dqn.double, dqn.loss) == (16, 1, False, "huber")
    assert (dqn.target.steps, dqn.target.tau, dqn.warm_up) == (10_000, 1.0, "uniform")
    assert (dqn.clip_norm, dqn.lr, dqn.learning_starts) == (10, 1e-4, 100)
    assert (qrdqn.distribution.n, qrdqn.adam_eps, qrdqn.clip_norm) == (200, 0.01 / 32, None)
    sac, td3, ddpg = agent("SAC"), agent("TD3"), agent("DDPG")
    assert (sac.temperature.start, sac.temperature.target, sac.noise) == (1.0, None, None)
    assert (sac.net.hidden, td3.net.hidden) == ((256, 256), (400, 300))
    assert (td3.noise, td3.critics, td3.policy_delay, td3.adam_eps) == (0.0, 2, 2, 1e-8)
    assert (ddpg.critics, ddpg.policy_delay, ddpg.smoothing) == (1, 1, 0.0)
    recurrent = agent("RecurrentPPO")
    assert (recurrent.net.memory.size, recurrent.net.hidden) == (256, ())
    assert recurrent.net.after == (64, 64)


@pytest.mark.parametrize(
    ("name", "kwargs", "expected"),
    [
        ("PPO", {"net_arch": [3, 5]}, {"net.hidden": (3, 5), "net.value_hidden": None}),
        (
            "PPO",
            {"net_arch": {"pi": [3], "vf": [5, 7]}},
            {"net.hidden": (3,), "net.value_hidden": (5, 7)},
        ),
        ("PPO", {"net_arch": {"pi": [3]}}, {"net.hidden": (3,), "net.value_hidden": ()}),
        (
            "SAC",
            {"net_arch": {"pi": [3], "qf": [5]}},
            {"net.hidden": (3,), "net.value_hidden": (5,)},
        ),
        ("DQN", {"activation_fn": nn.SiLU}, {"net.activation": "silu"}),
        ("PPO", {"activation_fn": nn.LeakyReLU}, {"net.activation": "leaky_relu"}),
        ("PPO", {"ortho_init": False}, {"net.init": "torch"}),
        ("PPO", {"log_std_init": -1.5}, {"std": exp(-1.5)}),
        ("TD3", {"n_critics": 1}, {"critics": 1}),
        ("SAC", {"n_critics": 1}, {"critics": 1}),
        ("DDPG", {"n_critics": 2}, {"critics": 2}),
        ("QRDQN", {"n_quantiles": 25}, {"distribution.n": 25}),
        ("RecurrentPPO", {"lstm_hidden_size": 32, "net_arch": []}, {"net.memory.size": 32}),
        ("DQN", {"optimizer_kwargs": {"eps": 1e-3}}, {"adam_eps": 1e-3}),
        ("PPO", {"optimizer_kwargs": {}}, {"adam_eps": 1e-8}),
        ("PPO", {"optimizer_class": optim.AdamW}, {"adam_eps": 1e-8, "weight_decay": 0.01}),
        (
            "QRDQN",
            {"optimizer_class": optim.Adam, "optimizer_kwargs": {"eps": 0.1}},
            {"adam_eps": 0.1},
        ),
        ("QRDQN", {"optimizer_kwargs": {"eps": 0.1}}, {"adam_eps": 0.01 / 32}),
    ],
)
def test_networks(name: str, kwargs: dict[str, Any], expected: dict[str, Any]) -> None:
    config = agent(name, policy_kwargs=kwargs)
    assert {path: at(config, path) for path in expected} == expected


@pytest.mark.parametrize(
    ("name", "kwargs", "key"),
    [
        ("PPO", {"net_arc": [3]}, "net_arc"),
        ("DQN", {"net_arch": {"pi": [3], "vf": [3]}}, "net_arch"),
        ("PPO", {"net_arch": {"pi": [3], "qf": [3]}}, "net_arch"),
        ("PPO", {"activation_fn": nn.Softplus}, "activation_fn"),
        ("PPO", {"features_extractor_class": nn.Linear}, "features_extractor_class"),
        ("PPO", {"features_extractor_kwargs": {"cnn": 3}}, "features_extractor_kwargs"),
        ("PPO", {"normalize_images": False}, "normalize_images"),
        ("PPO", {"use_sde": True}, "use_sde"),
        ("SAC", {"n_critics": 3}, "n_critics"),
        ("PPO", {"optimizer_class": optim.SGD}, "optimizer_class"),
        ("PPO", {"optimizer_kwargs": {"weight_decay": 0.1}}, "weight_decay"),
        ("PPO", {"optimizer_kwargs": {"betas": (0.5, 0.9)}}, "betas"),
        ("RecurrentPPO", {"enable_critic_lstm": False}, "enable_critic_lstm"),
        ("RecurrentPPO", {"n_lstm_layers": 2}, "n_lstm_layers"),
        ("RecurrentPPO", {"shared_lstm": True}, "shared_lstm"),
        ("RecurrentPPO", {"lstm_kwargs": {"dropout": 0.1}}, "lstm_kwargs"),
    ],
)
def test_networks_that_are_not_here_are_refused(name: str, kwargs: Any, key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        agent(name, policy_kwargs=kwargs)


def test_images_have_the_convolutions_and_512_numbers() -> None:
    ppo = agent("PPO", policy="CnnPolicy").net
    assert (ppo.encoder, ppo.hidden, ppo.shared_body) == ("nature", (512,), True)
    apart = {"share_features_extractor": False, "features_extractor_kwargs": {"features_dim": 64}}
    apart_net = agent("PPO", policy="CnnPolicy", policy_kwargs=apart).net
    assert (apart_net.hidden, apart_net.shared_body) == ((64,), False)
    sac = agent("SAC", policy="CnnPolicy").net
    assert (sac.encoder, sac.hidden) == ("nature", (512, 256, 256))


def test_assertions_of_theirs_are_assertions_here() -> None:
    for name, arguments in (
        ("PPO", {"batch_size": 1}),
        ("PPO", {"n_steps": 1}),
        ("PPO", {"clip_range_vf": 0}),
        ("PPO", {"policy_kwargs": {"squash_output": True}}),
        ("SAC", {"policy_kwargs": {"net_arch": {"pi": [3]}}}),
    ):
        with pytest.raises(AssertionError):
            agent(name, **arguments)
    with pytest.raises(AssertionError, match="train_freq"):
        agent("DQN", 2, train_freq=(1, "episode"))
    with pytest.raises(ValueError, match="train_freq"):
        agent("DQN", train_freq=(1, "week"))
    with pytest.raises(ValueError, match="ent_coef"):
        agent("SAC", ent_coef="automatic")
    with pytest.raises(TypeError, match="net_archs"):
        agent("SAC", policy_kwargs={"net_archs": [3]})


def test_warnings_of_theirs_are_warnings_here() -> None:
    with pytest.warns(UserWarning, match="truncated mini-batch of size 36"):
        assert agent("PPO", n_steps=100).minibatch_size == 64
    with pytest.warns(UserWarning, match="target_update_interval"):
        agent("DQN", 4, target_update_interval=2)
    with pytest.warns(UserWarning, match="net_arch"):
        net = agent("PPO", policy_kwargs={"net_arch": [{"pi": [3], "vf": [5]}]}).net
    assert (net.hidden, net.value_hidden) == ((3,), (5,))


def test_counts_of_several_environments() -> None:
    dqn = agent("DQN", 4, buffer_size=10, train_freq=3, gradient_steps=-1)
    assert (dqn.capacity, dqn.every, dqn.updates) == (8, 12, -1)
    assert agent("DQN", 4, buffer_size=1).capacity == 4
    assert str(agent("DQN", train_freq=(2, "episode")).every) == "episodes(n=2)"
    assert agent("PPO", 4, n_steps=8, batch_size=64).minibatch_size == 32


def test_steps_are_whole_rollouts() -> None:
    assert converted("PPO", 1, 10_000).run["steps"] == 10_240
    assert converted("DQN", 3, 100, train_freq=4).run["steps"] == 108
    assert converted("SAC", 1, 101).run["steps"] == 101


def test_a_callable_is_asked_where_it_is_asked_there() -> None:
    assert agent("PPO", learning_rate=lambda progress: 1e-3).lr == 1e-3
    lin = agent("DQN", learning_rate=lambda progress: 2e-3 * progress).lr
    assert isinstance(lin, Linear)
    assert value_at(lin, 25_000) == pytest.approx(1.5e-3, abs=1e-12)
    square = agent("PPO", 1, 10_000, learning_rate=lambda progress: 1e-3 * progress**2).lr
    assert isinstance(square, Table)
    for phase in range(1, 6):  # after each rollout, the last of which ends behind the total
        left = max(1 - phase * 2048 / 10_000, 0) if phase < 5 else 1 - 10_240 / 10_000
        assert value_at(square, phase * 2048) == pytest.approx(1e-3 * left**2, abs=1e-12)
    clip = agent("PPO", clip_range=Linear(0.2, 0.0, 1_000), clip_range_vf=lambda p: 0.5 * p)
    assert (clip.clip, clip.value_clip) == (Linear(0.2, 0.0, 1_000), Linear(0.5, 0.0, TOTAL))


def test_noise_objects() -> None:
    uneven = noise("NormalActionNoise", _sigma=np.array([0.1, 0.2]), _mu=np.array([0.0, 1.0]))
    assert str(agent("SAC", action_noise=uneven).noise) == "normal(sigma=[0.1,0.2], mean=[0,1])"
    process = noise(
        "OrnsteinUhlenbeckActionNoise",
        _sigma=np.full(1, 0.5),
        _mu=np.zeros(1),
        _theta=0.3,
        _dt=0.02,
        initial_noise=None,
    )
    vectorized = noise("VectorizedActionNoise", base_noise=process)
    config = agent("TD3", action_noise=vectorized).noise
    assert (config.sigma, config.theta, config.dt) == ((0.5,), 0.3, 0.02)
    with pytest.raises(ConfigError, match="action_noise = Mine"):
        agent("TD3", action_noise=noise("Mine"))


def test_an_error_of_ours_names_their_argument() -> None:
    with pytest.raises(ConfigError, match=r"max_grad_norm = -1 .*agent\.clip_norm"):
        agent("PPO", max_grad_norm=-1)
    with pytest.raises(
        ConfigError, match=r"n_step = 1 is no argument of DQN \(did you mean n_steps"
    ):
        agent("DQN", n_step=1)


def test_seed_device_and_environments_are_the_runs() -> None:
    run = converted("PPO", 4, seed=5, device="cuda:0").run
    assert (run["seed"], run["device"], run["num_envs"]) == (5, "cuda", 4)


def test_a_policy_of_ones_own_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"policy = Linear .*net\.module"):
        agent("PPO", policy=nn.Linear)


def test_arguments_are_bound_by_position() -> None:
    call = signature(CONSTRUCTORS["PPO"]).bind("MlpPolicy", "CartPole-v1", 1e-3, 64)
    assert call.arguments["learning_rate"] == 1e-3
    assert call.arguments["n_steps"] == 64


@pytest.mark.slow
@pytest.mark.parametrize("name", CONSTRUCTORS)
def test_signatures_are_those_of_the_installed_package(name: str) -> None:
    theirs = pytest.importorskip("stable_baselines3")
    contrib = pytest.importorskip("sb3_contrib")
    from inspect import signature as read

    kind = getattr(theirs, name, None) or getattr(contrib, name)
    for method, arguments in (
        (kind.__init__, CONSTRUCTORS[name]),
        (kind.learn, learn_arguments(name)),
    ):
        parameters = list(read(method).parameters.values())[1:]
        assert [(p.name, p.default) for p in parameters] == list(arguments.items())

"""SLM-Lab's specs as settings of runs: what each key means here, and which are refused."""

import math
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from slm_specs import DQN, PPO, SAC, decay, with_keys, written

from tenfold.algorithms.dqn_settings import Epsilon
from tenfold.algorithms.sac_td3_settings import Auto
from tenfold.config.notation import dotted
from tenfold.config.options import Uniform
from tenfold.config.schedules import Linear
from tenfold.core.errors import ConfigError, UserError
from tenfold.integrations.slm_lab import Spec, Translation, read_spec, translate
from tenfold.integrations.slm_lab.keys import Keys
from tenfold.integrations.slm_lab.spaces import search_spaces

NATURE = [[32, 8, 4, 0, 1], [64, 4, 2, 0, 1], [64, 3, 1, 0, 1]]
IMAGES = {
    "agent.net.type": "ConvNet",
    "agent.net.hid_layers": None,
    "agent.net.conv_hid_layers": NATURE,
    "agent.net.fc_hid_layers": [512],
    "agent.net.hid_layers_activation": "relu",
    "env.name": "ALE/SpaceInvaders-v5",
    "env.life_loss_info": True,
}


TWO_OPTIMISERS = {
    "agent.net.use_same_optim": False,
    "agent.net.actor_optim_spec": {"name": "Adam", "lr": 0.001},
    "agent.net.critic_optim_spec": {"name": "Adam", "lr": 0.004},
}
SHARED = {
    "agent.net.shared": True,
    "agent.net.arc": None,
    "env.max_t": None,
    "env.normalize_obs": False,
}
TWO_ARCS = {
    "agent.net.critic_arc": {
        "modules": {"body": {"Sequential": [{"Linear": 30}, {"Tanh": None}]}},
        "graph": {"input": "x", "modules": {"body": ["x"]}, "output": "body"},
    }
}


@pytest.fixture
def translated(tmp_path: Path) -> Any:
    def of(spec: dict[str, Any], **changes: Any) -> Translation:
        return translate(read_spec(written(tmp_path, with_keys(spec, changes))))

    return of


# files


def test_a_variable_of_a_spec_is_replaced_in_its_text(tmp_path: Path) -> None:
    changes = {"env.name": "${env}", "env.max_frame": "${max_frame}"}
    file = written(tmp_path, with_keys(SAC, changes))
    spec = read_spec(file, "mine", {"env": "Pendulum-v1", "max_frame": "4e6"})
    assert spec.values["env"]["max_frame"] == "4000000"  # written out
    assert spec.run_name == "mine_pendulum"
    assert translate(spec).run.steps == 4_000_000
    with pytest.raises(UserError, match=r"variable \$\{env\}: give -s env=… -s max_frame=…"):
        read_spec(file)
    with pytest.raises(UserError, match=r"no variable \$\{envs\} \(did you mean env\?\)"):
        read_spec(file, "mine", {"envs": "1"})


def test_yaml_with_shared_pieces(tmp_path: Path) -> None:
    file = tmp_path / "specs.yaml"
    file.write_text(
        "_env: &env {name: CartPole-v1, max_frame: 5.0e+3}\n"
        "one: {agent: {}, env: *env}\n"
        "two: {agent: {}, env: {<<: *env, num_envs: 3}, meta: {max_session: 1}}\n"
    )
    assert read_spec(file, "two").values["env"]["num_envs"] == 3
    assert read_spec(file, "one").values["meta"] == {}
    with pytest.raises(UserError, match=r"has several specs: one, two are in it"):
        read_spec(file)
    with pytest.raises(UserError, match=r"no spec twoo \(did you mean two\?\): one, two"):
        read_spec(file, "twoo")


def test_lists_of_older_files(tmp_path: Path) -> None:
    old = DQN | {"agent": [DQN["agent"]], "env": [DQN["env"]]}
    old["body"] = {"product": "outer", "num": 1}
    new = translate(read_spec(written(tmp_path, DQN)))
    assert translate(read_spec(written(tmp_path, old))) == new
    with pytest.raises(ConfigError, match=r"^env is a list of 2: one agent in one environment"):
        read_spec(written(tmp_path, DQN | {"env": [DQN["env"]] * 2}))


def test_files_that_are_no_specs(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{")
    (tmp_path / "b.yaml").write_text("agent: dqn\nenv: CartPole-v1\n")
    with pytest.raises(UserError, match=r"a\.json cannot be read as JSON"):
        read_spec(tmp_path / "a.json")
    with pytest.raises(UserError, match=r"b\.yaml holds no spec"):
        read_spec(tmp_path / "b.yaml")
    (tmp_path / "c.yaml").write_text("a: &a {agent: *a, env: {name: CartPole-v1}}\n")
    with pytest.raises(UserError, match=r"c\.yaml cannot be read as YAML: its aliases"):
        read_spec(tmp_path / "c.yaml")


@pytest.mark.parametrize("key", ["1", "2001-01-01"])
@pytest.mark.parametrize("group", ["meta", "agent"])
def test_keys_that_are_no_text_are_refused_by_name(tmp_path: Path, key: str, group: str) -> None:
    text = written(tmp_path, DQN).read_text().replace(f'"{group}": {{', f'"{group}": {{{key}: 5, ')
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(UserError, match=rf"^{group}\.{key} = 5 is not a key that tenfold reads"):
        translate(read_spec(tmp_path / "x.yaml"))


def test_a_module_of_ones_own_is_named_on_the_command_line(tmp_path: Path) -> None:
    path = written(tmp_path, with_keys(DQN, {"env.name": "${env}"}))
    name = "tenfold.envs:tenfold/CartPole-v1"
    assert translate(read_spec(path, variables={"env": name})).run.env == name


# what they mean


def test_dqn(translated: Any) -> None:
    run = translated(DQN).run
    agent = run.agent
    assert agent.explore == Epsilon(Linear(1, 0.1, 3000))
    assert (run.env, run.num_envs, run.steps, run.log_every, run.device) == (
        "CartPole-v1",
        4,
        400,
        100,
        "cpu",
    )
    # trained at most once in a step of all four environments
    assert (agent.every, agent.updates, agent.learning_starts) == (4, 3, 40)
    assert (agent.batch_size, agent.capacity, agent.replay) == (16, 500, Uniform())
    assert agent.double  # DQN and DoubleDQN are the same code there
    assert agent.target.steps == 50
    assert (agent.loss, agent.clip_norm, agent.gamma) == ("huber", 0.5, 0.97)
    assert (agent.lr, agent.adam_eps, agent.weight_decay) == (0.002, 1e-8, 0)
    net = agent.net
    assert (net.encoder, net.hidden, net.activation, net.init) == ("mlp", (12, 6), "selu", "torch")


@pytest.mark.parametrize(
    ("changes", "path", "value"),
    [
        ({"agent.algorithm.name": "VanillaDQN"}, "target", "hard(1)"),
        ({"agent.algorithm.name": "VanillaDQN"}, "double", False),
        ({"agent.net.update_type": "polyak", "agent.net.polyak_coef": 0.02}, "target", "polyak(0.02)"),
        ({"agent.algorithm.action_policy": "boltzmann"}, "explore", "boltzmann(linear(1, 0.1, 3000))"),
        (
            {"agent.algorithm.explore_var_spec": decay(1, 0.1, 900, 300)},
            "explore",
            "epsilon(linear(1, 0.1, 600, after=300))",
        ),
        (
            {"agent.algorithm.explore_var_spec": decay(0.3, 0.1, 900, name="no_decay")},
            "explore",
            "epsilon(0.3)",
        ),
        (
            {"agent.memory": {"name": "PrioritizedReplay", "batch_size": 8, "max_size": 99,
                              "alpha": 0.5, "epsilon": 0.01}},
            "replay",
            "prioritized(0.5, 0, 0.01)",
        ),
        ({"agent.algorithm.training_batch_iter": 2}, "updates", 6),
        ({"agent.algorithm.training_frequency": 8}, "every", 8),
        ({"agent.net.loss_spec": {"name": "MSELoss"}}, "loss", "mse"),
        ({"agent.net.optim_spec": {"name": "AdamW", "lr": 0.1}}, "weight_decay", 0.01),
        ({"agent.net.type": "DuelingMLPNet"}, "dueling", True),
        ({"agent.net.clip_grad_val": None}, "clip_norm", None),
        (IMAGES, "net.encoder", "nature"),
        (IMAGES, "net.hidden", [512]),
    ],
)  # fmt: skip
def test_keys_of_dqn(translated: Any, changes: dict[str, Any], path: str, value: Any) -> None:
    translation = translated(DQN, **changes)
    assert dotted(translation.settings)[f"agent.{path}"] == value
    assert translation.run


def test_atari_games_are_ours(translated: Any) -> None:
    run = translated(DQN, **IMAGES).run
    assert run.env == "tenfold/Atari-v0(game=space_invaders, sticky=0.25, life_ends=true)"
    assert run.agent.frames == 4
    sure = translated(DQN, **IMAGES | {"env.repeat_action_probability": 0.0}).run
    assert "sticky=0," in sure.env


def test_ppo(translated: Any) -> None:
    run = translated(PPO).run
    agent = run.agent
    assert (run.env, run.max_episode_steps) == ("Pendulum-v1", 150)
    assert agent.normalize_obs
    assert run.normalize_reward
    # both are raised to multiples of the four environments
    assert (agent.horizon, agent.minibatch_size, agent.epochs) == (32, 16, 5)
    assert (agent.gamma, agent.lam, agent.entropy) == (0.98, 0.9, 0.02)
    assert agent.clip == Linear(0.3, 0.1, 5000)
    assert agent.value_weight == 0.8  # their loss has no half
    assert agent.value_clip is None
    assert agent.normalize_advantage == "minibatch"
    assert agent.lr == Linear(0.001, 0, 9000)
    assert (agent.adam_eps, agent.weight_decay, agent.clip_norm) == (1e-5, 0.01, 0.7)
    assert (agent.net.hidden, agent.net.activation, agent.net.init) == ((20, 10), "tanh", "default")


@pytest.mark.parametrize(
    ("changes", "path", "value"),
    [
        ({"agent.net.log_std_init": -1.0}, "std", math.exp(-1)),
        ({"agent.net.init_fn": None}, "net.init", "torch"),
        ({"agent.algorithm.minibatch_size": 10_000}, "minibatch_size", 128),
        ({"agent.algorithm.entropy_coef_spec": None}, "entropy", 0.0),
        ({"agent.algorithm.val_loss_coef": None}, "value_weight", 2.0),
        ({"env.reward_scale": 0.5}, "reward_scale", 0.5),
        ({"agent.algorithm.normalize_v_targets": True}, "normalize_value", True),
        (TWO_OPTIMISERS, "lr", "linear(0.001, 0, 9000)"),
        (TWO_OPTIMISERS, "value_lr", "linear(0.004, 0, 9000)"),
        (TWO_ARCS, "net.value_hidden", [30]),
        (IMAGES | SHARED, "net.shared_body", True),
    ],
)
def test_keys_of_ppo(translated: Any, changes: dict[str, Any], path: str, value: Any) -> None:
    translation = translated(PPO, **changes)
    assert dotted(translation.settings)[f"agent.{path}"] == value
    assert translation.run


def test_a_clipped_value_has_the_half_there_too(translated: Any) -> None:
    changes = {
        "agent.algorithm.clip_vloss": True,
        "agent.algorithm.clip_eps_spec": decay(0.1, 0.1, 0, name="no_decay"),
    }
    agent = translated(PPO, **changes).run.agent
    assert (agent.value_weight, agent.value_clip, agent.clip) == (0.4, 0.1, 0.1)


def test_sac(translated: Any) -> None:
    translation = translated(SAC)
    agent = translation.run.agent
    # training_iter is by default the number of environments
    assert (agent.every, agent.updates, agent.learning_starts) == (2, 2, 100)
    assert (agent.tau, agent.gamma, agent.temperature) == (0.01, 0.99, Auto())
    assert (agent.net.hidden, translation.notes) == ((16,), ())
    fixed = translated(SAC, **{"agent.algorithm.fixed_alpha": 0.2}).run.agent
    assert fixed.temperature == 0.2


def test_discrete_sac_is_led_to_their_entropy(translated: Any) -> None:
    translation = translated(SAC, **{"env.name": "CartPole-v1"})
    assert math.isclose(translation.run.agent.temperature.target, 0.6 * math.log(2), rel_tol=1e-5)
    assert any("discrete actions" in note for note in translation.notes)


def test_other_keys_of_env_are_arguments_of_the_environment(translated: Any) -> None:
    run = translated(SAC, **{"env.name": "Pendulum-v1", "env.g": 9.81}).run
    assert run.env == "Pendulum-v1(g=9.81)"


def test_sessions_and_trials(translated: Any) -> None:
    translation = translated(DQN)
    assert (translation.sessions, translation.trials, translation.pruner) == (2, 3, "none")
    searched = {"meta.search_scheduler": {"grace_period": 100, "reduction_factor": 3}}
    assert translated(DQN, **searched).pruner == "hyperband"
    evaluated = translated(DQN, **{"meta.rigorous_eval": 6}).run
    assert (evaluated.eval_every, evaluated.eval_episodes) == (200, 6)


@pytest.mark.parametrize(
    ("spec", "changes", "difference"),
    [
        (DQN, {"agent.memory.use_cer": True}, "agent.memory.use_cer = true: batches do not hold"),
        (DQN, {"agent.algorithm.training_batch_iter": 2}, "draws a batch of its own"),
        (DQN, {"agent.algorithm.training_frequency": 6}, "updates come every 6 frames on average"),
        (DQN, {"agent.net.init_fn": "orthogonal_"}, "layers begin as PyTorch makes them"),
        (DQN, {"meta.distributed": "shared"}, "meta.distributed = shared: sessions are trained"),
        (DQN, {"meta.num_gpus": 2}, "meta.num_gpus = 2: is of the machine"),
        (PPO, {}, "agent.net.clip_grad_val = 0.7: one norm over policy and value"),
        (PPO, {"agent.algorithm.normalize_v_targets": True}, "taken up once a rollout"),
        (PPO, {"agent.net.actor_init_std": 0.5}, "the last layer begins with 0.01"),
        (SAC, {"agent.net.clip_grad_val": 1.0}, "gradients of sac are not cut"),
        (SAC, {"agent.net.loss_spec": {"name": "SmoothL1Loss"}}, "errors of the critics are squared"),
        (SAC, {"agent.algorithm.log_alpha_max": 2.0}, "the temperature has no limits"),
    ],
)  # fmt: skip
def test_differences_are_named(
    translated: Any, spec: dict[str, Any], changes: dict[str, Any], difference: str
) -> None:
    assert any(difference in note for note in translated(spec, **changes).notes)


@pytest.mark.parametrize(
    ("spec", "changes", "sentence"),
    [
        (DQN, {"agent.algorithm.name": "SARSA"}, r"agent\.algorithm\.name = SARSA .* nearest is DQN"),
        (DQN, {"agent.algorithm.gama": 0.9}, r"agent\.algorithm\.gama = 0\.9 is not a key"),
        (DQN, {"agent.memory.name": "SILReplay"}, r"agent\.memory\.name = SILReplay"),
        (DQN, {"agent.net.type": "RecurrentNet"}, r"agent\.net\.type = RecurrentNet"),
        (DQN, {"agent.net.hid_layers_activation": "sigmoid"}, r"hid_layers_activation = sigmoid"),
        (DQN, {"agent.net.batch_norm": True}, r"agent\.net\.batch_norm = true"),
        (DQN, {"agent.net.optim_spec": {"name": "RAdam", "lr": 1}}, r"optim_spec\.name = RAdam"),
        (DQN, {"agent.net.optim_spec.betas": [0.5, 0.9]}, r"optim_spec\.betas"),
        (DQN, {"agent.net.lr_scheduler_spec": {"name": "StepLR"}}, r"lr_scheduler_spec\.name = StepLR"),
        (DQN, {"agent.algorithm.explore_var_spec.name": "rate_decay"}, r"explore_var_spec\.name = rate"),
        (DQN, {"agent.algorithm.action_policy": "random"}, r"action_policy = random"),
        (DQN, {"agent.algorithm.gamma": "high"}, r"agent\.algorithm\.gamma = high is not a number"),
        (DQN, {"agent.algorithm.gamma": None}, r"agent\.algorithm\.gamma is missing"),
        (DQN, {"env.max_frame": 10.5}, r"env\.max_frame = 10\.5 is not a whole number"),
        (DQN, {"env.max_frame": math.inf}, r"env\.max_frame = inf is not finite"),
        (DQN, {"env.num_envs": math.nan}, r"env\.num_envs = nan is not finite"),
        (DQN, {"env.name": "os:Mine-v0"}, r"env = os:Mine-v0 names os, which is not imported"),
        (DQN, {"env.wrappers": "[os:system]"}, r"env = .* names os, which is not imported"),
        (DQN, {"env.life_loss_info": True}, r"env\.life_loss_info = true is for Atari"),
        (DQN, {"env.reward_scale": 2.0}, r"env\.reward_scale = 2 is for PPO"),
        (DQN, {"meta.max_sessions": 2}, r"meta\.max_sessions = 2 is not a key"),
        (DQN, {"other": 1}, r"other = 1 is not a key"),
        (DQN, IMAGES | {"agent.net.conv_hid_layers": NATURE[:2]}, r"agent\.net\.conv_hid_layers"),
        (PPO, {"agent.net.shared": True}, r"agent\.net\.shared = true"),
        (
            PPO,
            TWO_OPTIMISERS | {"agent.net.critic_optim_spec": {"name": "AdamW", "lr": 1}},
            r"agent\.net\.critic_optim_spec = .* in more than lr",
        ),
        (PPO, {"agent.algorithm.entropy_coef_spec": decay(1, 0, 9)}, r"entropy_coef_spec"),
        (PPO, {"agent.algorithm.normalize_advantages": "percentile"}, r"normalize_advantages = perc"),
        (PPO, {"agent.algorithm.symlog": True}, r"agent\.algorithm\.symlog = true"),
        (PPO, {"env.name": "playground/CartpoleBalance"}, r"env\.name = playground/CartpoleBalance"),
        (SAC, {"agent.net.update_type": "replace"}, r"agent\.net\.update_type = replace"),
    ],
)  # fmt: skip
def test_what_cannot_be_honoured_is_refused_by_name(
    translated: Any, spec: dict[str, Any], changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        translated(spec, **changes)


@pytest.mark.parametrize(
    ("layers", "sentence"),
    [
        ([{"LazyLinear": {"out_features": 4}}, {"ReLU": None}, {"LayerNorm": 4}], "has LayerNorm"),
        ([{"LazyLinear": {"out_features": 4}}], "the same activation behind each layer"),
        (
            [{"Linear": 4}, {"ReLU": None}, {"Linear": 4}, {"Tanh": None}],
            "the same activation behind each layer",
        ),
        ([{"Conv2d": {"out_channels": 8, "kernel_size": 3}}, {"ReLU": None}], "convolutions"),
    ],
)
def test_other_arcs_are_refused(translated: Any, layers: list[Any], sentence: str) -> None:
    changes = {"agent.net.arc.modules.body.Sequential": layers}
    with pytest.raises(ConfigError, match=rf"^agent\.net\.arc = .*{sentence}"):
        translated(PPO, **changes)
    fork = {"agent.net.arc.graph": {"input": "x", "modules": {"body": ["y"]}, "output": "body"}}
    with pytest.raises(ConfigError, match=r"not one Sequential from x to the output"):
        translated(PPO, **fork)


def leaves(group: dict[str, Any], prefix: str = "") -> list[str]:
    names = []
    for name, value in group.items():
        names += leaves(value, f"{prefix}{name}.") if isinstance(value, dict) else [prefix + name]
        names += [prefix + name] if isinstance(value, dict) else []
    return names


@pytest.mark.parametrize("spec", [DQN, PPO, SAC], ids=["dqn", "ppo", "sac"])
def test_no_value_of_a_key_raises_anything_else(spec: dict[str, Any]) -> None:
    for path in leaves(spec):
        for value in ("x", -1, 0.5, True, None, [], [[1]], {}, {"name": "x"}):
            changed = Spec("mine", Path("x.json"), with_keys(spec, {path: value}))
            with suppress(UserError):
                assert translate(changed).settings["agent"]["name"]


# searches


def test_spaces_stand_where_the_searched_value_stands(tmp_path: Path) -> None:
    search = {
        "agent.algorithm.gamma__uniform": [0.9, 0.99],
        "agent": {
            "algorithm": {
                "explore_var_spec": {
                    "end_val__uniform": [0.01, 0.2],
                    "end_step__qrandint": [1000, 3000, 1000],
                }
            },
            "net": {
                "optim_spec": {"lr__loguniform": [1e-4, 1e-2]},
                "hid_layers__choice": [[8], [8, 4]],
                "update_frequency__choice": [20, 40],
            },
        },
        "agent.algorithm.training_start_step__randint": [10, 20],
    }
    spec = read_spec(written(tmp_path, DQN | {"search": search}))
    assert search_spaces(spec) == {
        "agent.gamma": "range(0.9, 0.99)",
        "agent.explore": "epsilon(linear(1, range(0.01, 0.2), [1000, 2000, 3000]))",
        "agent.lr": "log(0.0001, 0.01)",
        "agent.net.hidden": ["8", "8,4"],
        "agent.target": "hard(steps=[20, 40])",
        "agent.learning_starts": "int(10, 19)",  # whose upper end is not drawn there
    }
    scaled = PPO | {"search": {"agent.algorithm.val_loss_coef__uniform": [0.25, 1]}}
    spec = read_spec(written(tmp_path, scaled))
    assert search_spaces(spec) == {"agent.value_weight": "range(0.5, 2)"}


@pytest.mark.parametrize(
    ("search", "sentence"),
    [
        ({}, "search is empty"),
        ({"agent.algorithm.gamma__normal": [0, 1]}, r"search\.agent\.algorithm\.gamma__normal is not"),
        ({"agent.algorithm.gamma__uniform": [0]}, "needs 2 numbers"),
        ({"env.num_envs__choice": [2, 8]}, r"search\.env\.num_envs__choice changes .* together"),
        ({"agent.net.gpu__choice": ["auto", "auto"]}, "changes nothing here"),
    ],
)  # fmt: skip
def test_searches_that_cannot_be(tmp_path: Path, search: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        search_spaces(read_spec(written(tmp_path, DQN | {"search": search})))


def test_a_misspelt_key_is_named_where_the_right_one_is_missing() -> None:
    with pytest.raises(ConfigError, match=r"agent\.gamma is missing.*gama"):
        Keys({"gama": 0.9, "lam": 1}, "agent").require("gamma")

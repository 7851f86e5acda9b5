"""RL-Zoo's files: which entry is read, what it means, and what is refused by its key."""

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import tenfold as ten
from tenfold.cli.main import main
from tenfold.config.files import modules_in, named
from tenfold.config.notation import load_yaml
from tenfold.config.run import Run
from tenfold.config.schedules import Linear
from tenfold.core.errors import ConfigError
from tenfold.envs.making import make_env, spec_of
from tenfold.integrations.sb3.literals import parse_literal
from tenfold.integrations.sb3.zoo import CLASSES, run_of

PPO_FILE = """
default:
  n_timesteps: !!float 1e5
  policy: 'MlpPolicy'

atari:
  policy: 'CnnPolicy'
  n_timesteps: !!float 1e6
  env_wrapper:
    - stable_baselines3.common.atari_wrappers.AtariWrapper:
        terminal_on_life_loss: False
  frame_stack: 4

CartPole-v1: &usual
  n_envs: 2
  n_timesteps: !!float 1e3
  policy: 'MlpPolicy'
  n_steps: 32
  batch_size: 64
  n_epochs: 2
  learning_rate: lin_1e-3
  clip_range: lin_0.2
  vf_coef: 0.25
  policy_kwargs: "dict(
                    net_arch=dict(pi=[16], vf=[8]),
                    activation_fn=nn.ReLU, ortho_init=False, log_std_init=-1,
                  )"

Acrobot-v1:
  <<: *usual
  normalize: True
  gamma: 0.9
  learning_rate: !!float 2e-4

MountainCar-v0:
  <<: *usual
  use_sde: True
"""
OFF_FILE = """
Pendulum-v1:
  n_timesteps: 500
  policy: 'MlpPolicy'
  noise_type: 'ornstein-uhlenbeck'
  noise_std: 0.5
  train_freq: [1, "episode"]
  gradient_steps: -1
  learning_starts: 100
  buffer_size: 1000
  normalize: "{'norm_obs': False, 'norm_reward': True}"
  policy_kwargs: "dict(net_arch=[16, 8])"
"""


@pytest.fixture
def ppo_file(tmp_path: Path) -> Path:
    path = tmp_path / "ppo.yml"
    path.write_text(PPO_FILE)
    return path


def read(path: Path, env: str, **change: Any) -> tuple[Run, list[str]]:
    lines: list[str] = []
    return named(str(path), {"env": env, **change}, lines.append), lines


def entry(tmp_path: Path, keys: dict[str, Any], algo: str = "ppo", **change: Any) -> Run:
    """A run of one entry."""
    content = {"CartPole-v1": {"n_timesteps": 1000, "policy": "MlpPolicy"} | keys}
    return run_of(tmp_path / "my.yml", content, {"env": "CartPole-v1", "algo": algo, **change})


def test_an_entry_is_a_run(ppo_file: Path) -> None:
    run, lines = read(ppo_file, "CartPole-v1")
    agent: Any = run.agent
    assert (run.env, run.num_envs, run.steps) == ("CartPole-v1", 2, 1024)
    assert agent.lr == Linear(1e-3, 0.0, 1000)
    assert agent.clip == Linear(0.2, 0.0, 1000)
    assert (agent.horizon, agent.minibatch_size, agent.epochs) == (32, 64, 2)
    assert agent.value_weight == 0.5
    assert (agent.net.hidden, agent.net.value_hidden) == ((16,), (8,))
    assert (agent.net.activation, agent.net.init) == ("relu", "torch")
    assert agent.std == pytest.approx(0.36787944)
    assert "ppo.yml: the entry CartPole-v1 for ppo" in lines[0]
    assert any("steps = 1,024" in line for line in lines)


def test_merges_and_normalisation(ppo_file: Path) -> None:
    run, _ = read(ppo_file, "Acrobot-v1")
    agent: Any = run.agent
    assert (agent.lr, agent.gamma, agent.horizon) == (2e-4, 0.9, 32)
    assert agent.normalize_obs
    assert run.normalize_reward is True


def test_other_settings_go_over_the_file(ppo_file: Path) -> None:
    change = {"steps": "300", "num_envs": "4", "seed": "3", "agent": {"epochs": "5"}}
    run, _ = read(ppo_file, "CartPole-v1", **change)
    agent: Any = run.agent
    assert (run.num_envs, run.steps, run.seed, agent.epochs) == (4, 384, 3, 5)
    assert agent.lr == Linear(1e-3, 0.0, 300)  # a schedule goes with the steps


def test_an_environment_without_an_entry_takes_the_default(ppo_file: Path) -> None:
    run, lines = read(ppo_file, "CartPole-v0")
    assert run.steps == 100_352
    assert "the entry default" in lines[0]
    assert "did you mean CartPole-v1?" in lines[0]
    with pytest.raises(ConfigError, match=r"CartPole-v0 has no entry .*did you mean CartPole-v1"):
        content = {"CartPole-v1": {"policy": "MlpPolicy"}}
        run_of(ppo_file, content, {"env": "CartPole-v0", "algo": "ppo"})


def test_atari_games_are_ours(ppo_file: Path) -> None:
    run, _ = read(ppo_file, "SpaceInvadersNoFrameskip-v4")
    agent: Any = run.agent
    assert run.env == "tenfold/Atari-v0(game=space_invaders, life_ends=false)"
    assert (run.frames, agent.net.encoder, agent.net.shared_body) == (4, "nature", True)


def test_off_policy_keys(tmp_path: Path) -> None:
    path = tmp_path / "td3.yml"
    path.write_text(OFF_FILE)
    run, _ = read(path, "Pendulum-v1")
    agent: Any = run.agent
    assert (agent.noise.sigma, agent.noise.theta, agent.noise.dt) == ((0.5,), 0.15, 0.01)
    assert (agent.every.n, agent.updates) == (1, -1)
    assert (run.normalize_reward, agent.normalize_obs) == ("drawn", False)
    assert agent.net.hidden == (16, 8)


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"n_step": 5}, r"n_step = 5 is no argument of PPO \(did you mean n_steps"),
        ({"use_sde": True}, "use_sde = true: state-dependent"),
        ({"callback": "a.B"}, "callback = a.B"),
        ({"vec_env_wrapper": "a.B"}, "vec_env_wrapper"),
        ({"seed": 3}, "seed = 3: .*--seed"),
        ({"noise_type": "normal", "noise_std": 0.1}, "noise_type = normal: PPO"),
        ({"learning_rate": "exp_0.1"}, "learning_rate = exp_0.1"),
        ({"policy_kwargs": "dict(net_arch=open('x'))"}, r"policy_kwargs holds open\('x'\)"),
        ({"policy_kwargs": "dict(net_arch=["}, "policy_kwargs = .* cannot be read"),
        ({"normalize": {"clip_obs": 5.0}}, "normalize.clip_obs = 5: it is 10 here"),
        ({"env_wrapper": "os.Thing"}, "env_wrapper = os.Thing: os is not imported"),
        ({"n_timesteps": "many"}, "n_timesteps = many"),
        ({"policy": "my.Policy"}, "policy = my.Policy"),
        ({"env_kwargs": {"a": [1]}}, "env_kwargs.a"),
        ({"env_kwargs": {"wrappers": "os:system"}}, "env_kwargs.wrappers = os:system: write env_w"),
        ({"env_kwargs": {"a": "os:system"}}, "env_kwargs = .*: os is not imported"),
        ({"env_kwargs": {"a": "1, wrappers=[os:system]"}}, "env_kwargs.a = .*commas or brackets"),
        ({"env_kwargs": {"a=1, wrappers": "os:system"}}, "env_kwargs.a=1, wrappers = .*: its name"),
        ({"env_wrapper": "gymnasium.wrappers.Autoreset, os:system"}, "env_wrapper = .* is written"),
        (
            {"env_wrapper": {"gymnasium.wrappers.Autoreset": {"a": "1), os:system(b=2"}}},
            "env_wrapper.Autoreset.a = .*commas or brackets",
        ),
        ({"gamma": 2}, "gamma = 2 .*agent.gamma"),
    ],
)
def test_a_key_that_is_not_honoured_is_named(
    tmp_path: Path, keys: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=rf"my\.yml, CartPole-v1\.{sentence}"):
        entry(tmp_path, keys)


def test_an_entrys_name_may_be_a_number(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"env is missing: my\.yml has 1"):
        run_of(tmp_path / "my.yml", {1: {}}, {"algo": "ppo"})  # type: ignore[dict-item]


def test_algorithms_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"algo is missing: .* qrdqn, ppo_lstm"):
        run_of(tmp_path / "my.yml", {"a": {}}, {"env": "a"})
    with pytest.raises(ConfigError, match=r"algo = qrdqm is not one of .*did you mean qrdqn"):
        run_of(tmp_path / "my.yml", {"a": {}}, {"env": "a", "algo": "qrdqm"})
    with pytest.raises(ConfigError, match=r"algo = a2c .*: ppo takes its place"):
        run_of(tmp_path / "my.yml", {"a": {}}, {"env": "a", "algo": "a2c"})
    with pytest.raises(ConfigError, match=r"env is missing: my\.yml has a, b"):
        run_of(tmp_path / "my.yml", {"a": {}, "b": {}}, {"algo": "ppo"})


def test_wrappers_are_settings_or_stand_in_the_environments_name(tmp_path: Path) -> None:
    wrappers = [
        {"rl_zoo3.wrappers.FrameSkip": {"skip": 2}},
        {"gymnasium.wrappers.time_limit.TimeLimit": {"max_episode_steps": 30}},
        "gymnasium.wrappers.TimeAwareObservation",
    ]
    run = entry(tmp_path, {"env_wrapper": wrappers, "env_kwargs": {"sutton_barto_reward": True}})
    assert (run.action_repeat, run.max_episode_steps) == (2, 30)
    assert spec_of(run.world).layout.shape == (5,)
    assert make_env(run.env).unwrapped.spec.kwargs["sutton_barto_reward"] is True  # type: ignore[union-attr]
    own = entry(tmp_path, {"env_wrapper": "my_wrappers.Mine"}, allow_imports="true")
    assert own.env == "CartPole-v1(wrappers=[my_wrappers:Mine])"
    assert list(modules_in({"env": own.env})) == ["my_wrappers"]  # asked about before it is trusted


def test_packages_of_environments_are_imported(tmp_path: Path) -> None:
    keys = {"n_timesteps": 100, "policy": "MlpPolicy", "env_wrapper": "minigrid.wrappers.Flat"}
    env = "MiniGrid-Unlock-v0"
    run = run_of(tmp_path / "ppo.yml", {env: keys}, {"env": env})
    assert run.env == f"minigrid:{env}(wrappers=[minigrid.wrappers:Flat])"


def test_text_is_read_and_never_evaluated() -> None:
    text = "dict(a=[1, -2.5], b=(True, None), c={'d': 'e'}, f=nn.ReLU, g=HerReplayBuffer)"
    assert parse_literal(text, "key") == {
        "a": [1, -2.5],
        "b": (True, None),
        "c": {"d": "e"},
        "f": "nn.ReLU",
        "g": "HerReplayBuffer",
    }
    for dangerous in ("__import__('os')", "[].__class__", "dict(**x)", "1 + 1", "os.system", "x"):
        with pytest.raises(ConfigError, match="key"):
            parse_literal(dangerous, "key")


def test_the_command_line_trains_an_entry(
    ppo_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    words = ["--env", "CartPole-v1", "--steps", "128", "--engine", "plain", "--out", str(out)]
    assert main(["train", str(ppo_file), "--algo", "ppo", *words]) == 0
    shown = capsys.readouterr().out
    assert "the entry CartPole-v1 for ppo" in shown
    assert "steps = 128" not in shown  # two whole rollouts
    assert load_yaml(out / "config.yaml")["steps"] == 128
    assert main(["train", str(ppo_file), "--env", "MountainCar-v0"]) == 2
    assert "MountainCar-v0.use_sde = true" in capsys.readouterr().err
    assert main(["train", "cartpole", "--algo", "ppo"]) == 2
    assert "agent.name" in capsys.readouterr().err


def test_python_trains_an_entry(ppo_file: Path, tmp_path: Path) -> None:
    result = ten.train(
        str(ppo_file),
        tmp_path / "run",
        env="CartPole-v1",
        algo="ppo",
        steps=64,
        engine="plain",
        quiet=True,
    )
    assert result.step == 64


# the files of RL-Zoo itself, where they are: TENFOLD_ZOO names their folder


@pytest.mark.slow
def test_every_entry_trains_or_names_its_key() -> None:
    folder = Path(os.environ.get("TENFOLD_ZOO", ""))
    if not (folder / "ppo.yml").is_file():
        pytest.skip("TENFOLD_ZOO names no folder of RL-Zoo's files")
    examples = dict.fromkeys(("sac", "td3", "ddpg"), "Pendulum-v1")
    runs, refusals = 0, Counter()
    for algo in CLASSES:
        content = load_yaml(folder / f"{algo}.yml")
        for name, keys in content.items():
            usual = {"default": examples.get(algo, "CartPole-v1"), "atari": "PongNoFrameskip-v4"}
            only = {name: keys}
            try:
                run_of(folder / f"{algo}.yml", only, {"env": usual.get(name, name)})
                runs += 1
            except ConfigError as error:
                refusals[error.key.partition(f"{name}.")[2]] += 1
    print(f"{runs} of {runs + refusals.total()}: {dict(refusals)}")
    assert refusals.keys() <= {
        "use_sde",
        "env_wrapper",
        "policy_kwargs.enable_critic_lstm",
        "replay_buffer_class",
        "policy",
    }
    assert runs / (runs + refusals.total()) > 0.83

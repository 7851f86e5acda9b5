"""Habits from other libraries: what can work does, and the rest is answered with what to write."""

import copy
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

import tenfold as ten
from tenfold.cli.flags import settings_given
from tenfold.cli.main import parser
from tenfold.config.agent_config import AgentConfig, field_specs
from tenfold.config.files import named, resolve_run
from tenfold.config.run import engine_names
from tenfold.core.errors import ConfigError, UserError
from tenfold.core.other_libraries import ALGORITHM_ANSWERS, VALUES
from tenfold.training.learners import agent_of
from tenfold.training.session import Result

LITTLE: dict[str, Any] = {
    "steps": 300,
    "eval_every": 0,
    "agent": {"learning_starts": 100, "capacity": 300},
}


def test_a_preset_is_trained_by_its_name_with_settings_on_top(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = ten.train("cartpole", quiet=True, report=False, **LITTLE)
    assert result.path == Path("runs/cartpole") and result.step == 300
    expected = named("cartpole", LITTLE)
    assert result.run == expected and expected.agent.n_step != ten.DQN().n_step
    # what it gives back stands for its folder
    assert ten.load(result).act([0.0] * 4) in (0, 1)
    assert ten.resume(result, steps=400, quiet=True, report=False).step == 400


def test_settings_on_top_are_those_of_a_run() -> None:
    run = ten.Run(env="Acrobot-v1", agent=ten.DQN(n_step=5), steps=700)
    changed = resolve_run(run, {"seed": 3, "agent": {"gamma": 0.5}})
    assert changed == ten.Run(
        env="Acrobot-v1", agent=ten.DQN(n_step=5, gamma=0.5), steps=700, seed=3
    )
    assert resolve_run("dqn", {"env": "Acrobot-v1"}).env == "Acrobot-v1"
    assert resolve_run("cartpole", {"agent": "ppo"}).agent == ten.PPO()
    assert resolve_run("cartpole", {"agent.lr": 0.5}).agent.lr == 0.5
    assert resolve_run(run, {}) is run


@pytest.mark.parametrize(
    ("what", "settings", "sentence"),
    [
        ("cartpole", {"total_timesteps": 5}, "total_timesteps = 5 is not a setting: tenfold calls it steps"),
        ("CartPole-v1", {}, r'CartPole-v1 is an environment: .* ten\.train\("dqn", env="CartPole-v1"\)'),
        (ten.DQN(), {}, r"DQN is no run: give settings, ten\.Run\(…\), or the name of a preset"),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "start", [ten.train, lambda what, **more: ten.train_seeds(what, 2, **more)]
)
def test_what_is_no_run_is_told_so(start: Any, what: Any, settings: dict, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        start(what, quiet=True, **settings)


def test_an_agent_asked_to_predict_says_how_it_acts() -> None:
    for algorithm in ("dqn", "ppo"):
        agent = agent_of(ten.Run(agent=algorithm))
        with pytest.raises(
            UserError, match=r"has no predict: agent\.act\(obs\) gives the greedy action"
        ):
            agent.predict([0.0] * 4, deterministic=True)
        assert not hasattr(agent, "predict") and not hasattr(agent, "qwertz")
        assert copy.deepcopy(agent).act([0.0] * 4) == agent.act([0.0] * 4)


def test_a_result_asked_to_act_names_the_agent() -> None:
    result = Result(Path("runs/x"), ten.Run(), 1, None, None, 1.0)
    with pytest.raises(UserError, match=r"Result has no predict: ten\.load\(run\.path\) gives"):
        result.predict([0.0] * 4)  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="no attribute 'qwertz'"):
        result.qwertz  # type: ignore[attr-defined] # noqa: B018


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["train", "a2c"], "a2c is no agent here: ppo takes its place; with --agent.epochs 1 "),
        (["train", "cartpole", "--agent.name", "ddpg"], "agent.name = ddpg is no agent here: it is td3 with "),
        (["train", "dqn", "--device", "gpu"], "device = gpu is not one of auto, cpu, cuda (did you mean cuda?)"),
        (["train", "ppo", "--eval-policy", "stochastic"], "(did you mean sampled?)"),
        (["train", "ppo", "--agent.net.encoder", "cnn"], "(did you mean nature?)"),
        (["train", "dqn", "--env", "ALE/SpaceInvaders-v5"], 'write --env "tenfold/Atari-v0(game=space_invaders)"'),
        (["train", "dqn", "--env", "PongNoFrameskip-v4"], 'write --env "tenfold/Atari-v0(game=pong)"'),
        (["train", "sac", "--env", "FetchReach-v3"], "write --env gymnasium_robotics:FetchReach-v3, which imports it first"),
        (["train", "ppo", "--env", "MiniGrid-Empty-5x5-v0"], "write --env minigrid:MiniGrid-Empty-5x5-v0, "),
        (["train", "ppo", "--env", "MyMaskedShop-v0"], "is written with its module, my_module:MyMaskedShop-v0."),
        (["train", "ppo", "--env", "CartPol-v1"], "the nearest are CartPole-v1"),
        (["train", "ppo", "--agent.net.hidden", "dict(pi=[64], vf=[64])"], "net.hidden 64,64 of the policy, net.value_hidden of what values."),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)  # fmt: skip
def test_what_is_elsewhere_is_answered_with_what_to_write_here(
    command: list[str], words: str, here: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    import gymnasium

    for ident in ("ALE/SpaceInvaders-v5", "PongNoFrameskip-v4"):  # other tests import ale_py
        monkeypatch.delitem(gymnasium.registry, ident, raising=False)
    done = here(*command, "--steps", "10")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1) and words in done.stderr
    assert "Walker2d" not in done.stderr and "sac?" not in done.stderr


def test_layers_of_both_sides_are_answered_however_they_are_given() -> None:
    for given in (
        lambda: ten.PPO(net={"pi": [64], "vf": [64]}),  # type: ignore[arg-type]
        lambda: ten.PPO(net={"hidden": {"pi": [64], "vf": [64]}}),  # type: ignore[arg-type]
        lambda: ten.PPO(policy_kwargs={"net_arch": {"pi": [64], "vf": [64]}}),  # type: ignore[call-arg]
        lambda: ten.SAC(net_arch="dict(pi=[64], qf=[64])"),  # type: ignore[call-arg]
    ):
        with pytest.raises(ConfigError, match=r"of the policy, net\.value_hidden"):
            given()


def test_names_of_other_packages_are_answered_and_are_no_attributes() -> None:
    for name, words in (
        ("A2C", "ppo takes its place"),
        ("make_vec_env", r'made by their name: ten\.train\("ppo", env="CartPole-v1", num_envs=4\)'),
        ("evaluate_policy", r"ten\.evaluate\(run, episodes=20\)"),
    ):
        with pytest.raises(AttributeError, match=f"tenfold has no {name}: .*{words}"):
            getattr(ten, name)
        assert not hasattr(ten, name)
    with pytest.raises(AttributeError, match="module 'tenfold' has no attribute 'qwertz'"):
        ten.qwertz  # type: ignore[attr-defined] # noqa: B018


def test_every_answer_about_an_algorithm_can_be_typed() -> None:
    known = AgentConfig.kinds()
    for word, answer in ALGORITHM_ANSWERS.items():
        assert word not in known
        if " --agent" in answer:
            flags = answer[answer.index("--agent") :].partition(" it makes")[0]
            agent = next(name for name in known if name in answer.split())
            arguments = parser(["train"]).understand(["train", agent, *shlex.split(flags)])
            assert named(agent, settings_given(arguments)).agent != known[agent]()


def test_every_value_of_another_library_means_one_of_ours() -> None:
    choices = {
        str(one) for leaf in field_specs(ten.Run) for one in (*get_args(leaf.hint), *engine_names())
    }
    assert {*VALUES.values()} <= choices


def test_a_misspelled_word_of_another_library_is_answered_with_our_setting() -> None:
    """Nearer than any flag is what it was meant to be: a learning rate is no reward scale."""
    with pytest.raises(UserError) as error:
        parser(["train"]).understand(["train", "sac", "--agent.learing-rate", "1e-3"])
    assert "(did you mean learning_rate?): tenfold calls it --agent.lr (" in str(error.value)
    with pytest.raises(
        ConfigError, match=r"did you mean learning_rate\?\): tenfold calls it lr \("
    ):
        ten.SAC(learing_rate=1e-3)
    with pytest.raises(UserError, match=r"did you mean --agent\.batch-size"):
        parser(["train"]).understand(["train", "sac", "--agent.batchsize", "9"])

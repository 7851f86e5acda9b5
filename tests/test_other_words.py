"""Habits from other libraries: what can work does, and the rest is answered with what to write."""

import copy
from pathlib import Path
from typing import Any

import pytest

import tenfold as ten
from tenfold.config.run import named, settings_of
from tenfold.core.errors import ConfigError, UserError
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
    changed = settings_of(run, {"seed": 3, "agent": {"gamma": 0.5}})
    assert changed == ten.Run(
        env="Acrobot-v1", agent=ten.DQN(n_step=5, gamma=0.5), steps=700, seed=3
    )
    assert settings_of("dqn", {"env": "Acrobot-v1"}).env == "Acrobot-v1"
    assert settings_of("cartpole", {"agent": "ppo"}).agent == ten.PPO()
    assert settings_of("cartpole", {"agent.lr": 0.5}).agent.lr == 0.5
    assert settings_of(run, {}) is run


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

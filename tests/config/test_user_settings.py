"""Settings of one's own: an algorithm's, a schedule, the name of a network."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import tenfold as ten
from tenfold.cli.flags import settings_given
from tenfold.cli.main import main, parser
from tenfold.config.agent_config import AgentConfig
from tenfold.config.changes import changed_run, changes, cut_short, never_learns
from tenfold.config.files import named
from tenfold.config.notation import read_yaml
from tenfold.config.run import Run
from tenfold.config.schedules import Custom, Exponential, Linear, custom_schedule, value_at
from tenfold.config.schema import to_mapping
from tenfold.core.errors import ConfigError, UserError
from tenfold.core.kernels import as_numbers, schedule_at_reference

MODULE = '''
import math
import tenfold as ten

class Settings(ten.AgentConfig):
    run_defaults = {"steps": 123}

    baseline: float = 0.5
    """what returns are compared with"""
    lr: ten.Schedule = 1e-3
    """learning rate"""

    def check_run(self, run):
        super().check_run(run)
        if run.num_envs > 2:
            raise ten.core.errors.ConfigError("num_envs", "is too large.")

    def first_update(self, run):
        return 500, "an episode"

class Reinforce:
    """One update from each finished episode."""
    name = "reinforce"
    config = Settings

class NoSettings:
    name = "nothing"

def halving(step, start=1.0, every=100.0):
    return start * 0.5 ** (step // every)

def negative(step):
    return -1.0

number = 3
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "my_own_settings.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    yield "my_own_settings"
    sys.modules.pop("my_own_settings", None)


def test_an_algorithm_of_ones_own_is_named_by_its_module(module: str, tmp_path: Path) -> None:
    name = f"{module}:Reinforce"
    run = named(name, {"agent": {"baseline": "0.25"}, "env": "Acrobot-v1"})
    own = sys.modules[module].Settings
    assert type(run.agent) is own and run.agent == own(name=name, baseline=0.25)
    assert (run.agent.name, run.env, run.steps) == (name, "Acrobot-v1", 123)
    assert Run(agent=own(name=name)).steps == 123 and Run(agent=own(name=name), steps=7).steps == 7
    file = tmp_path / "own.yaml"
    file.write_text(yaml.safe_dump(to_mapping(run)))
    assert Run.of(read_yaml(file)) == named(str(file)) == run


def test_rules_of_an_algorithm_of_ones_own_are_asked(module: str) -> None:
    name = f"{module}:Reinforce"
    with pytest.raises(ConfigError, match=r"^num_envs is too large\.$"):
        named(name, {"num_envs": 3})
    with pytest.raises(
        ConfigError, match=r"members = 2 is for algorithms that train several seeds"
    ):
        named(name, {"members": 2})
    with pytest.raises(ConfigError, match=r"sampled is for policies .* \(ppo, sac, dispatcher\)"):
        named(name, {"eval_policy": "sampled"})
    assert never_learns(named(name)).endswith("before it learns: an episode comes first.")
    assert changed_run(named(name), {"steps": 900}).steps == 900


@pytest.mark.parametrize(
    ("agent", "sentence"),
    [
        (
            {"gamma": 0.9},
            "agent.gamma = 0.9 is not a setting of .*Reinforce, .* belongs to dqn, ppo",
        ),
        ({"baselin": 1}, "agent.baselin = 1 is not a setting: the nearest is baseline"),
        ({"baseline": "x"}, "agent.baseline = x is not a number"),
        (
            {"name": "no_such_module:X"},
            "agent.name = .*the module no_such_module cannot be imported",
        ),
        ({"name": "my_own_settings:Nobody"}, "agent.name = .* has no Nobody"),
        ({"name": "my_own_settings:NoSettings"}, "agent.name = .* is no algorithm"),
        ({"name": ":X"}, "agent.name = :X is not written as module:Name"),
        ({"name": ""}, "agent.name is missing"),
    ],
)
def test_a_mistake_about_ones_own_is_one_sentence(
    module: str, agent: dict[str, object], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence) as raised:
        named(f"{module}:Reinforce", {"agent": agent})
    assert "\n" not in str(raised.value)


def test_settings_are_those_of_the_algorithm_that_they_name(module: str) -> None:
    named(f"{module}:Reinforce")
    own = sys.modules[module].Settings
    with pytest.raises(ConfigError, match=r"agent.name = ppo has settings of its own, PPO"):
        Run(agent=own(name="ppo"))
    with pytest.raises(ConfigError, match=r"agent.name is missing"):
        Run(agent=own())
    with pytest.raises(AttributeError):  # frozen, though nobody wrote a decorator
        own(name="x").baseline = 3


def test_flags_and_help_know_settings_of_ones_own(
    module: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["train", f"{module}:Reinforce", "--agent.baseline", "0.75", "--steps", "9"]
    run = named(given[1], settings_given(parser(given).understand(given)))
    assert (run.agent.baseline, run.steps) == (0.75, 9)
    with pytest.raises(SystemExit):
        main([*given, "--help"])
    told = " ".join(capsys.readouterr().out.split())
    assert f"settings of agent {module}:Reinforce" in told
    assert "what returns are compared with [a number such as 0.99 or 1e-3; default 0.5]" in told
    assert "--agent.horizon" not in told and ", here 123]" in told
    assert main([*given[:2], "--agent.baselin", "1"]) == 2
    assert "--agent.baselin is not a flag of this command" in capsys.readouterr().err


def test_every_algorithm_of_the_package_is_found_by_its_settings_name() -> None:
    assert all(kind().name == name for name, kind in AgentConfig.kinds().items())
    assert list(AgentConfig.kinds())[:2] == ["dqn", "ppo"]


def test_a_schedule_of_ones_own_from_text_and_from_python(module: str) -> None:
    run = Run.of({"agent": {"lr": f"{module}:halving(0.1, 10k)"}})
    assert run.agent.lr == Custom(f"{module}:halving", (0.1, 10_000))
    assert module not in sys.modules  # settings that are read import nothing
    assert [value_at(run.agent.lr, step) for step in (0, 9_999, 10_000)] == [0.1, 0.1, 0.05]
    assert Run.of(yaml.safe_load(yaml.safe_dump(to_mapping(run)))) == run
    function = sys.modules[module].halving
    assert ten.DQN(lr=function).lr == Custom(f"{module}:halving")
    explore = ten.DQN(explore=f"epsilon({module}:halving)").explore  # type: ignore[arg-type]
    assert str(explore) == f"epsilon(schedule={module}:halving)"
    assert cut_short(run) == ""


def test_what_cannot_be_a_schedule_is_told_in_a_sentence(module: str) -> None:
    with pytest.raises(ConfigError, match=r"lr = <function .* put the function into a module"):
        ten.DQN(lr=lambda step: 0.1)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"lr, .*:halving.start cannot be given by its name"):
        ten.DQN(lr=f"{module}:halving(start=3)")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"arguments = x is not a number"):
        ten.DQN(lr=f"{module}:halving(x)")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"target = .*is not hard"):
        ten.DQN(target=f"{module}:halving")  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"has no nothing"):
        value_at(Custom(f"{module}:nothing"), 0)
    with pytest.raises(UserError, match=r"is not a function"):
        value_at(Custom(f"{module}:number"), 0)
    with pytest.raises(UserError, match=r"gave -1\.0 at step 5: a schedule gives a number"):
        value_at(Custom(f"{module}:negative"), 5)


def test_schedules_of_ones_own_are_found_among_the_settings(module: str) -> None:
    text = f"{module}:halving"
    assert custom_schedule(ten.DQN()) == custom_schedule(ten.PPO(lr=Linear(1, 0, 5))) == ""
    assert custom_schedule(ten.PPO(lr=text)) == "agent.lr"  # type: ignore[arg-type]
    assert custom_schedule(ten.DQN(explore=f"epsilon({text})")) == "agent.explore.schedule"  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"has no halfing"):  # before a run begins
        custom_schedule(ten.PPO(lr=f"{module}:halfing"))  # type: ignore[arg-type]


@pytest.mark.parametrize("agent", ["dqn", "ppo"])
def test_a_run_follows_a_schedule_of_ones_own(
    agent: str, module: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the plain engine, with the same numbers as the schedule of ours that it equals."""
    small = [
        "--env",
        "CartPole-v1",
        "--steps",
        "80",
        "--agent.net.hidden",
        "4",
        "--eval-every",
        "0",
        "--log-every",
        "40",
    ]
    small += ["--agent.learning-starts", "20"] if agent == "dqn" else ["--agent.horizon", "40"]
    ways = {"own": [f"{module}:halving(0.01, 1M)"], "ours": ["0.01", "--engine", "plain"]}
    for way, lr in ways.items():
        out = str(tmp_path / way)
        assert main(["train", agent, *small, "--agent.lr", *lr, "--out", out]) == 0
        if way == "own":
            assert (
                "plain, not fused: agent.lr is a schedule of one's own" in capsys.readouterr().err
            )
    flats = [ten.load(tmp_path / way).online.flat.tolist() for way in ways]
    assert flats[0] == flats[1]
    refused = [*small, "--agent.lr", f"{module}:halving", "--engine", "fused"]
    assert main(["train", agent, *refused, "--out", str(tmp_path / "fused")]) == 2
    assert "engine = fused does not fit: agent.lr is a schedule" in capsys.readouterr().err


def test_compiled_code_and_settings_mean_the_same_schedule() -> None:
    for schedule in (0.25, Linear(1.0, 0.1, 100), Exponential(1.0, 0.01, 300)):
        for step in (0, 1, 57, 100, 10**9):
            numbers = as_numbers(schedule)
            assert schedule_at_reference(numbers, 0, step) == value_at(schedule, step)


def test_a_network_of_ones_own_is_named_by_its_module() -> None:
    assert ten.PPO(net=ten.PolicyNet(module="my_nets:MyNet")).net.module == "my_nets:MyNet"
    with pytest.raises(
        ConfigError, match=r"agent.net.module = MyNet is not written as module:Class"
    ):
        Run.of({"agent": {"net": {"module": "MyNet"}}})


def test_a_setting_that_a_checkpoint_does_not_know_yet_has_its_default(tmp_path: Path) -> None:
    run = Run(steps=300)
    before = to_mapping(run)
    del before["agent"]["net"]["module"]
    assert changes(before, run, tmp_path) == {}
    assert changes(before | {"steps": 200}, run, tmp_path) == {"steps": ["200", "300"]}

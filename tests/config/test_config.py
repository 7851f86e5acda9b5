"""Settings: one conversion for Python, YAML and flags, and sentences that help."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from tenfold.algorithms.dqn_settings import (
    DQN,
    Epsilon,
    Hard,
    Implicit,
    Polyak,
    Prioritized,
    Quantile,
)
from tenfold.algorithms.ppo_settings import PPO
from tenfold.cli.flags import settings_given
from tenfold.cli.main import parser
from tenfold.config.agent_config import AgentConfig, field_specs
from tenfold.config.files import SECTIONS, named, presets, resolve_run
from tenfold.config.networks import Net
from tenfold.config.notation import parse_call, parse_number, read_yaml
from tenfold.config.run import Run
from tenfold.config.schedules import Linear
from tenfold.config.schema import Config, to_mapping
from tenfold.core.errors import ConfigError
from tenfold.core.other_libraries import ALIASES, EXAMPLE_VALUES, SETTINGS_OF_ALIAS


def test_every_setting_has_help() -> None:
    assert [spec.path for spec in field_specs(Run) if not spec.help] == []


def test_yaml_and_back_gives_the_same_settings() -> None:
    run = Run(
        env="Acrobot-v1",
        steps=7,
        agent=DQN(
            lr=Linear(1 / 3, 1e-5, 10),
            target=Polyak(0.1234567890123),
            replay=Prioritized(beta=0.5),
            distribution=Quantile(7),
            n_step=3,
            explore=Epsilon(0.1),
            clip_norm=0.5,
            net=Net(hidden=(3, 2, 1), activation="tanh"),
        ),
    )
    text = yaml.safe_dump(to_mapping(run))
    assert Run.of(yaml.safe_load(text)) == run


@pytest.mark.parametrize("name", presets())
def test_presets_are_valid_and_are_differences_from_the_defaults(name: str) -> None:
    run = named(name)
    given, default = (
        read_yaml(presets()[name]),
        to_mapping(Run(agent=AgentConfig.kind(run.agent.name)())),
    )
    assert set(given) <= {*default, *SECTIONS}
    assert set(given["agent"]) < set(default["agent"])


def test_sections_of_a_file_hold_for_the_runs_they_are_for_and_flags_stand_above_them(
    tmp_path: Path,
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "steps: 100\nagent: {name: ppo, horizon: 8, epochs: 3}\n"
        "on_cuda: {steps: 200, num_envs: 16}\n"
        "many_envs: {steps: 9000, agent: {horizon: 4}}\n"
    )

    def made(**change: Any) -> tuple[int, int, int, int]:
        run: Any = named(str(file), change)
        return run.steps, run.num_envs, run.agent.horizon, run.agent.epochs

    assert made() == (100, 1, 8, 3)
    assert made(device="cuda") == (200, 16, 8, 3)
    assert made(device="cuda", num_envs="2k") == (9000, 2000, 4, 3)
    assert made(num_envs=1023) == (100, 1023, 8, 3)
    assert made(device="cuda", num_envs=4096, steps="5k", agent={"epochs": 1}) == (5000, 4096, 4, 1)
    file.write_text("steps: 100\nmany_envs: {stepz: 5}\n")
    with pytest.raises(ConfigError, match="stepz"):
        named(str(file))


def test_flags_set_every_setting_there_is() -> None:
    arguments = parser().understand(
        [
            "train",
            "dqn",
            "--env",
            "X-v0",
            "--steps",
            "300k",
            "--agent.batch-size",
            "16",
            "--agent.gamma",
            "0.9",
            "--agent.n-step",
            "3",
            "--agent.double",
            "--agent.net.hidden",
            "8,4",
            "--agent.target",
            "hard(7)",
        ]
    )
    run = named("dqn", settings_given(arguments))
    assert (run.env, run.steps, run.agent.batch_size, run.agent.gamma, run.agent.n_step) == (
        "X-v0",
        300_000,
        16,
        0.9,
        3,
    )
    assert (
        run.agent.double is True and run.agent.net.hidden == (8, 4) and run.agent.target == Hard(7)
    )
    flags = {
        flag for action in parser().deepest(["train"])._actions for flag in action.option_strings
    }
    assert {spec.flag for spec in field_specs(Run)} <= flags


def test_an_argument_of_a_call_that_is_given_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="length is given twice"):
        parse_call("Corridor-v0(length=5, length=7)")


def test_a_setting_that_is_given_in_both_spellings_is_refused() -> None:
    with pytest.raises(ConfigError, match="eval_every is given twice, with - and with _"):
        Run.of({"eval_every": 10, "eval-every": 20})


def test_numbers_of_numpy_and_torch_are_numbers() -> None:
    given = Run(
        steps=np.int64(300),
        agent=DQN(
            lr=np.float32(0.5), batch_size=torch.tensor(8), net=Net(hidden=tuple(np.array([4, 5])))
        ),
    )
    assert (
        given == Run(steps=300, agent=DQN(lr=0.5, batch_size=8, net=Net(hidden=(4, 5))))
        and type(given.steps) is int
    )


def test_dotted_names_stand_for_groups_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    path.write_text("agent.lr: 1e-4\nagent: {gamma: 0.9}\nagent.net.hidden: [8]\n")
    assert Run.of(read_yaml(path)) == Run(agent=DQN(lr=1e-4, gamma=0.9, net=Net(hidden=(8,))))
    for text in (
        "agent: dqn\nagent.lr: 1e-4\n",
        "agent.lr: 1\nagent.lr: {a: 1}\nagent: {lr: {a: 2}}\n",
        "agent.lr: 1\nagent: {lr: {a: 2}}\n",
    ):
        path.write_text(text)
        with pytest.raises(ConfigError):
            Run.of(read_yaml(path))


def test_yaml_numbers_are_read_by_the_fields_type(tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    path.write_text("steps: 1.5M\nagent:\n  lr: 1e-3\n  batch-size: 8\n  capacity: 300k\n")
    run = named(str(path))
    assert (run.steps, run.agent.lr, run.agent.batch_size, run.agent.capacity) == (
        1_500_000,
        1e-3,
        8,
        300_000,
    )


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("300k", 300_000),
        ("1.5M", 1_500_000),
        ("1e-3", 1e-3),
        ("1_000", 1000),
        ("2G", 2 * 10**9),
        ("-3", -3),
        (".5", 0.5),
        ("0.3k", 300),
        ("", None),
        ("k", None),
        ("1kk", None),
        ("abc", None),
        ("1__0", None),
        ("e5", None),
        ("9" * 5000, None),
    ],
)
def test_numbers_as_people_write_them(text: str, number: float | None) -> None:
    assert parse_number(text) == number
    assert type(parse_number(text)) is type(number)


def test_implicit_quantiles_from_flag_and_yaml(tmp_path: Path) -> None:
    flags = parser().understand(["train", "dqn", "--agent.distribution", "implicit"])
    assert named("dqn", settings_given(flags)).agent.distribution == Implicit(12, 12, 64, 32)
    (tmp_path / "my.yaml").write_text("agent: {distribution: 'implicit(8, cosines=16)'}\n")
    run = named(str(tmp_path / "my.yaml"))
    assert run.agent.distribution == Implicit(8, 12, 16, 32) and Run.of(to_mapping(run)) == run


def test_call_notation() -> None:
    assert parse_call("epsilon(linear(1, 0.05, 10k))") == ("epsilon", ["linear(1, 0.05, 10k)"], {})
    assert parse_call("prioritized(0.6, beta=linear(0.4, 1, 5))") == (
        "prioritized",
        ["0.6"],
        {"beta": "linear(0.4, 1, 5)"},
    )
    assert DQN(target="hard(every=5)").target == Hard(5)  # type: ignore[arg-type]


MISTAKES = [
    ({"agent": {"gama": 0.9}}, "agent.gama = 0.9 is not a setting: the nearest is gamma, a number"),
    (
        {"agent": {"lam": 0.9}},
        "agent.lam = 0.9 is not a setting of dqn, which this run trains: it belongs to ppo.",
    ),
    ({"gamma": 0.9}, "gamma = 0.9 is not a setting: the nearest is agent.gamma"),
    ({"zzzzzz": 1}, "zzzzzz = 1 is not a setting."),
    ({"steps": "many"}, "steps = many is not a whole number such as 32, 300k or 1.5M."),
    ({"steps": 2.5}, "steps = 2.5 is not a whole number"),
    ({"steps": True}, "steps = true is not a whole number"),
    ({"steps": None}, "steps = none is not a whole number"),
    ({"steps": [1]}, r"steps = \[1\] is not a whole number"),
    ({"steps": float("inf")}, "steps = inf is not a whole number"),
    ({"env": 3}, "env = 3 is neither a name, an environment, nor a function that makes one."),
    ({"agent": {"gamma": 1.5}}, "agent.gamma = 1.5 is out of range: it must be between 0 and 1."),
    ({"agent": {"gamma": "-0.1"}}, "agent.gamma = -0.1 is out of range"),
    ({"agent": {"gamma": ".nan"}}, "agent.gamma = .nan is not a number"),
    ({"agent": {"n_step": 0}}, "agent.n_step = 0 is out of range: it must be at least 1."),
    (
        {"agent": {"target": "poliak(0.1)"}},
        r"agent.target = poliak\(0.1\) is not hard\(every, steps, tau\) or polyak\(tau\) \(did you mean polyak\?\)",
    ),
    (
        {"agent": {"target": "polyak(3)"}},
        "polyak.tau = 3 is out of range: it must be above 0 and at most 1.",
    ),
    ({"agent": {"target": "polyak(1, 2)"}}, r"takes at most 1 values \(tau\), not 2"),
    (
        {"agent": {"target": "hard(100, steps=9)"}},
        "steps = 9 and every = 100 contradict each other",
    ),
    (
        {"agent": {"every": "episodes(2)"}, "num_envs": 3},
        r"agent.every = episodes\(n=2\) is for one",
    ),
    ({"agent": {"every": "episodes(0)"}}, "episodes.n = 0 is out of range"),
    ({"agent": {"updates": -2}}, "agent.updates = -2 is out of range: it must be at least -1."),
    ({"agent": {"name": "td3", "noise": "ou(-1)"}}, "ou.sigma = -1 is out of range"),
    (
        {"agent": "ppo", "normalize_reward": "drawn"},
        "drawn is for agents with a replay memory: ppo",
    ),
    ({"normalize_reward": "maybe"}, r"normalize_reward = maybe is not true or false or drawn"),
    ({"agent": {"target": "hard(evry=1)"}}, "evry = 1 is not a setting: the nearest is every"),
    ({"agent": {"target": "polyak(("}}, "cannot be read"),
    ({"agent": {"target": 5}}, "agent.target = 5 is not hard"),
    ({"agent": {"explore": "epsilon(linear(1, 0.1))"}}, "linear.steps is missing"),
    ({"agent": {"explore": "epsilon(2)"}}, "a probability lies between 0 and 1"),
    ({"agent": {"replay": "prioritized(beta=2)"}}, "beta = 2 is out of range"),
    (
        {"agent": {"distribution": "implict"}},
        r"agent.distribution = implict is not quantile\(n\) or implicit\(samples, target_samples, cosines, acting\) or categorical\(atoms, low, high\) or none \(did you mean implicit\?\)",
    ),
    (
        {"agent": {"distribution": "implicit(0)"}},
        "implicit.samples = 0 is out of range: it must be between 1 and 4096.",
    ),
    (
        {"agent": {"distribution": "implicit(acting=0.5)"}},
        "implicit.acting = 0.5 is not a whole number",
    ),
    ({"agent": {"distribution": "implicit(n=3)"}}, "n = 3 is not a setting"),
    (
        {"agent": {"loss": "hubr"}},
        r"agent.loss = hubr is not one of mse, huber \(did you mean huber\?\)",
    ),
    ({"agent": {"double": "maybe"}}, "agent.double = maybe is not true or false."),
    ({"agent": {"net": {"hidden": "64,x"}}}, "agent.net.hidden = x is not a whole number"),
    ({"agent": {"net": {"hidden": [0]}}}, "agent.net.hidden = 0 is out of range"),
    ({"agent": {"target": "hard([5)]"}}, r"agent.target = hard\(\[5\)\] cannot be read: write it"),
    *(
        ({"agent": {"net": {"hidden": text}}}, rf"hidden = {re.escape(text)} is not a list such as")
        for text in ("[64, 64", "64, 64]", "(64, 64", "[64, 64)", "[[64, 64]]", "64,,64", ",")
    ),
    ({"agent": {"net": 5}}, "agent.net = 5 is not a group of settings."),
    ({"agent": {"name": "sac", "net": Net()}}, "is no ActorCriticNet: write a dict"),
    ({"agent": None}, "agent = none is not a group of settings."),
    ({"steps": 10**400}, "is out of range: no number here is beyond 9.2e18."),
    ({"agent": {"lr": "1e30"}}, "agent.lr = 1e30 is out of range: no number here is beyond"),
    ({"steps": "1e308G"}, "steps = 1e308G is not a whole number"),
    ({"agent": {"target": "hard(1, every=2)"}}, "every is given twice"),
    ({"agnet": {}}, "the nearest is agent, a group of settings"),
]


@pytest.mark.parametrize(("mapping", "sentence"), MISTAKES, ids=[m[1][:40] for m in MISTAKES])
def test_a_mistake_is_one_sentence_that_names_key_value_and_what_is_allowed(
    mapping: dict[str, object], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence) as raised:
        Run.of(mapping)
    assert "\n" not in str(raised.value)


def test_python_is_judged_by_the_same_rules() -> None:
    with pytest.raises(ValueError, match="gamma = 2 is out of range"):
        DQN(gamma=2)


def test_unknown_preset_names_the_nearest() -> None:
    with pytest.raises(
        ConfigError, match=r"cartpol is no preset, agent or YAML file \(did you mean cartpole, "
    ):
        named("cartpol")


def test_a_name_stands_for_an_agent_with_its_defaults() -> None:
    assert Run(agent="dqn") == Run(agent=DQN()) and Run.of({"agent": "ppo"}).agent.name == "ppo"
    with pytest.raises(ConfigError, match=r"agent.name = dnq is not .*did you mean dqn\?"):
        Run(agent="dnq")
    with pytest.raises(ConfigError, match=r"agent = DQN is a class: write DQN\(\)\."):
        Run(agent=DQN)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("- 1\n- 2\n", "must hold settings"),
        ("a: [1", "cannot be read as YAML"),
        ("just words", "must hold"),
        ("a: 2024-99-99", "cannot be read as YAML"),
        ("a: " + "[" * 3000, "cannot be read"),
        ("a: &a {b: *a}", "its aliases make a value endless"),
        (
            "a0: &a0 {b: 1}\n"
            + "".join(f"a{i}: &a{i} {{b: *a{i - 1}, c: *a{i - 1}}}\n" for i in range(1, 40)),
            "its aliases make a value endless or too large",
        ),
    ],
)
def test_a_file_that_is_no_settings_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(ConfigError, match=sentence):
        named(str(tmp_path / "x.yaml"))


def test_yaml_cannot_run_code(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("env: !!python/object/apply:os.system ['touch owned']\n")
    with pytest.raises(ConfigError, match="cannot be read as YAML"):
        named(str(tmp_path / "x.yaml"))
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(
    ("agent", "word", "ours"),
    [
        (PPO, "n_steps", "horizon"),
        (PPO, "gae_lambda", "lam"),
        (PPO, "ent_coef", "entropy"),
        (PPO, "n_epochs", "epochs"),
        (PPO, "clip_range", "clip"),
        (PPO, "batch_size", "minibatch_size"),
        (DQN, "learning_rate", "lr"),
        (DQN, "buffer_size", "capacity"),
        (DQN, "exploration_fraction", "explore"),
        (DQN, "train_freq", "every"),
        (DQN, "tau", "target"),
        (Run, "total_timesteps", "steps"),
        (Run, "n_envs", "num_envs"),
        (Run, "eval_freq", "eval_every"),
        (Run, "learning_rate", "agent.lr"),
        (Net, "net_arch", "hidden"),
    ],
)
def test_names_of_other_libraries_are_answered_with_ours(
    agent: type[Config], word: str, ours: str
) -> None:
    """As a keyword in Python and as a key in a file."""
    for make in (lambda: agent(**{word: 1}), lambda: agent.of({word.replace("_", "-"): 1})):
        with pytest.raises(
            ConfigError, match=rf"^{word} = 1 is not a setting: tenfold calls it {ours} \("
        ):
            make()


def test_every_name_that_is_answered_is_a_setting_and_every_word_is_none() -> None:
    paths = {spec.path for spec in field_specs(Run)}
    assert set(ALIASES) <= paths and set(EXAMPLE_VALUES) <= set(ALIASES)
    for agent in (*AgentConfig.kinds().values(), Run):
        own = {spec.path for spec in field_specs(agent, "" if agent is Run else "agent.")}
        assert {word for word, ours in SETTINGS_OF_ALIAS.items() if own & set(ours)} & {
            spec.path for spec in field_specs(agent)
        } == set()


def test_a_word_of_another_group_is_told_with_its_place() -> None:
    with pytest.raises(
        ConfigError, match=r"^agent.total_timesteps = 9 is not a setting: tenfold calls it steps\.$"
    ):
        Run.of({"agent": {"name": "ppo", "total_timesteps": 9}})


@pytest.mark.parametrize("change", [{"name": "ppo"}, {"name": "ppo", "lr": 1e-2}])
def test_an_agent_of_another_name_has_none_of_the_presets_settings(change: dict[str, Any]) -> None:
    """In a preset, in a section of it, in a run that is there; what is the run's stays."""
    run: Any = resolve_run("cartpole", {"agent": change})
    assert run.env == "CartPole-v1" and run.steps == named("cartpole").steps
    assert run.agent == PPO.of(change)
    assert resolve_run("cartpole", {"agent.name": "ppo"}).agent == PPO()
    assert resolve_run(named("cartpole"), {"agent": change}).agent == PPO.of(change)
    # of the same name: on top of the preset's
    same: Any = resolve_run("cartpole", {"agent": {"name": "dqn", "n_step": 7}})
    assert same.agent.n_step == 7 and same.agent.capacity == named("cartpole").agent.capacity  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=r"agent\.capacity = 5 is not a setting of ppo"):
        resolve_run("cartpole", {"agent": {"name": "ppo", "capacity": 5}})


def test_a_section_of_a_file_is_not_for_another_agent(tmp_path: Path) -> None:
    file = tmp_path / "my.yaml"
    file.write_text("env: CartPole-v1\nagent: {double: true}\non_cuda: {agent: {double: false}}\n")
    run = named(str(file), {"device": "cuda", "agent": {"name": "ppo"}})
    assert run.agent == PPO()


@pytest.mark.parametrize(
    ("text", "widths"),
    [("64, 32", (64, 32)), ("[64,32]", (64, 32)), (" ( 64 , 32, ) ", (64, 32)), ("8", (8,)), ("[]", ())],
)  # fmt: skip
def test_a_list_is_written_with_brackets_or_without(text: str, widths: tuple[int, ...]) -> None:
    assert Run.of({"agent": {"net": {"hidden": text}}}).agent.net.hidden == widths


def test_a_setting_that_is_gone_is_read_where_it_said_what_there_still_is() -> None:
    """Folders of former versions name every setting."""
    assert Run.of({"learners": 1, "steps": 9}) == Run(steps=9)
    with pytest.raises(ConfigError, match="learners = 2 is no longer offered: one process learns"):
        Run.of({"learners": 2, "engine": "parallel"})
    with pytest.raises(ConfigError, match="engine = parallel is not one of auto, "):
        Run.of({"engine": "parallel"})

"""What docs/coming-from.md says of Stable-Baselines3: fresh, and true of our code."""

import importlib
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import tenfold as ten
from tenfold.core.other_libraries import SETTINGS_OF_ALIAS, UNIT_OF, UNITS
from tenfold.core.protocols import EnvSpec
from tenfold.envs.making import spec_of
from tenfold.training.learners import agent_of

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "coming-from.md").read_text()


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "bench")
        return importlib.import_module("sb3_tables")


@pytest.mark.parametrize("agent", ["ppo", "dqn", "sac", "td3"])
def test_both_defaults_stand_side_by_side_as_they_are_now(agent: str, tables: ModuleType) -> None:
    stands = re.search(rf"<!-- sb3_{agent} -->\n(.*?)\n<!-- /sb3_{agent} -->", PAGE, re.DOTALL)
    assert stands and stands[1] == tables.TABLES[f"sb3_{agent}"]()


@pytest.mark.parametrize("agent", ["ppo", "dqn", "sac", "td3"])
def test_their_defaults_are_those_of_their_constructors(agent: str, tables: ModuleType) -> None:
    sb3 = pytest.importorskip("stable_baselines3")
    if sb3.__version__ != tables.VERSION:
        pytest.skip(f"the table is about {tables.VERSION}")
    theirs = inspect.signature(getattr(sb3, agent.upper())).parameters
    for row in tables.ARGUMENTS[agent]:
        if row.theirs in theirs:
            default = theirs[row.theirs].default
            assert tables.same(str(default).lower(), row.default), row.theirs


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("ppo --vf-coef", "it is 2 x vf_coef"),
        ("ppo --batch-size", "calls it --agent.minibatch-size"),
        ("dqn --train-freq", "it counts environment steps, train_freq x n_envs"),
        ("dqn --target-update-interval", "hard counts gradient updates, target_update_interval x"),
        ("ppo --norm-adv", "true is over the whole rollout, minibatch over each"),
        ("ppo --kl-target", "looked at after each epoch"),
        ("ppo --log-std-init", "it is exp(log_std_init)"),
    ],
)
def test_a_number_that_means_something_else_is_answered_with_its_unit(
    flag: str, words: str, here: Callable[..., Any]
) -> None:
    done = here("train", *flag.split(), "1")
    assert done.returncode == 2 and words in done.stderr


def test_every_unit_is_of_a_word_that_is_answered() -> None:
    for setting, word in UNITS:
        assert setting in SETTINGS_OF_ALIAS[word]
    for word, other in UNIT_OF.items():
        assert {*SETTINGS_OF_ALIAS[word]} & {*SETTINGS_OF_ALIAS[other]}


def test_the_value_counts_half_of_what_vf_coef_says(tables: ModuleType) -> None:
    """value_weight · ½ mean (V − R)² and vf_coef · mean (V − R)² have the same gradient where
    value_weight = 2 vf_coef."""
    run = ten.Run.of({"env": "CartPole-v1", "agent": {"name": "ppo", "value_weight": 1.0}})
    agent = agent_of(run)
    rows, spec = torch.randn(5, 4), spec_of("CartPole-v1", policy=True)
    assert isinstance(spec, EnvSpec)
    value = agent.online(rows)[1].detach()
    batch = {
        "obs": rows,
        "weight": torch.ones(5),
        "advantage": torch.zeros(5, 1),  # the value's loss alone
        "target": value + torch.tensor([1.0, -1.0, 2.0, 0.0, 3.0]),
        "value": value,
        "log_p": torch.zeros(5, 1),
        "chosen": torch.zeros(5, 1, dtype=torch.int64),
        "real": torch.zeros(5, 0),
    }
    batch["said"] = agent.online(rows)[0].detach()
    vf_coef = 0.5
    loss, _ = agent.loss(batch)
    assert loss.item() == pytest.approx(vf_coef * (1 + 1 + 4 + 0 + 9) / 5)

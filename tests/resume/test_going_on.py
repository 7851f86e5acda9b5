"""A run that goes on by so many steps more, and with another entropy, clip, exploration or number
of epochs."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import tenfold as ten
from tenfold.config.changes import changed_run, new_end
from tenfold.config.notation import dotted, show
from tenfold.config.schema import to_mapping
from tenfold.core.errors import ConfigError
from tenfold.training.loop import resume, train
from tenfold.training.run_group import resume_seeds, train_seeds

QUIET: dict[str, Any] = {"quiet": True, "report": False}


def test_more_steps_come_on_top_of_the_end_a_run_was_to_have(
    finished_once: Path, tmp_path: Path, here: Callable[..., Any]
) -> None:
    path = shutil.copytree(finished_once, tmp_path / "run")
    assert here("resume", path, "--more", "0.02k", "--quiet").returncode == 0
    assert ten.resume(path, more=30, **QUIET).step == 650
    for words in (["--more", "10", "--steps", "800"], ["--more", "0"], ["--more", "few"]):
        done = here("resume", path, *words)
        assert done.returncode == 2 and "more" in done.stderr and done.stderr.count("\n") == 1
    assert (
        "says how many steps come on top: leave out steps"
        in here("resume", path, "--more", "10", "--steps", "800").stderr
    )
    with pytest.raises(ConfigError, match=r"more = 5 says how many steps come on top"):
        ten.resume(path, 700, more=5)
    # of a run that was stopped early: beyond its end, never nearer
    assert new_end(ten.Run(steps=1000), None, 10) == {"steps": 1010}


def test_seeds_go_on_by_so_many_steps_more(tmp_path: Path) -> None:
    run = ten.Run.of({"steps": 20, "eval_every": 0})
    train_seeds(run, 2, tmp_path / "many", jobs=1, quiet=True)
    many = resume_seeds(tmp_path / "many", more=15, jobs=1, quiet=True)
    assert many.run.steps == 35
    assert {member["step"] for member in many.summary["seeds"].values()} == {35}


PPO: dict[str, Any] = {"name": "ppo", "horizon": 32, "net": {"hidden": (8,)}}
DQN: dict[str, Any] = {
    "name": "dqn",
    "learning_starts": 20,
    "capacity": 200,
    "batch_size": 8,
    "net": {"hidden": (8,)},
}


@pytest.mark.parametrize(
    ("agent", "change"),
    [
        (PPO, {"agent.entropy": 0.1}),
        (PPO, {"agent.clip": 0.01}),
        (PPO, {"agent.epochs": 3}),
        (DQN, {"agent.explore": "epsilon(schedule=0)"}),
        (DQN, {"agent.explore": "boltzmann(temperature=0.5)"}),
    ],
    ids=lambda value: str(value) if "agent" in str(value) else value["name"],
)
@pytest.mark.parametrize("engine", ["fused", "plain"])
def test_what_is_learned_next_follows_the_new_value(
    agent: dict[str, Any], change: dict[str, Any], engine: str, tmp_path: Path
) -> None:
    """Up to the resume nothing differs, and what comes then is what a learner with the new setting
    makes of the same state."""
    env = {"env": "tenfold/CartPole-v1", "eval_every": 0, "engine": engine}
    run = ten.Run.of({"agent": agent, "steps": 64, **env})
    train(run, tmp_path / "run", **QUIET)
    shutil.copytree(tmp_path / "run", tmp_path / "same")
    before = ten.load(tmp_path / "run").online.flat.clone()
    resume(tmp_path / "same", 128, **QUIET)
    resume(tmp_path / "run", 128, settings=change, **QUIET)
    same, other = (ten.load(tmp_path / name).online.flat for name in ("same", "run"))
    assert not torch.equal(same, before) and not torch.equal(same, other)
    about = json.loads((tmp_path / "run" / "run.json").read_text())
    (name, value), settings = next(iter(change.items())), dotted(to_mapping(run))
    assert about["sessions"][1]["changed"][name] == [show(settings[name]), show(value)]


def test_noise_in_the_weights_neither_comes_nor_goes_on_resume() -> None:
    noisy, usual = (ten.Run.of({"agent": {"explore": how}}) for how in ("noisy", "epsilon(0.1)"))
    for run, how in ((noisy, "epsilon(0.1)"), (noisy, "noisy(0.1)"), (usual, "noisy")):
        with pytest.raises(ConfigError, match=r"agent\.explore = .* cannot be on resume: noise is"):
            changed_run(run, {"agent.explore": how})
    assert changed_run(noisy, {"agent.explore": "noisy(0.5)"}) == noisy

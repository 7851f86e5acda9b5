"""The resident engine as runs have it: asked for on a GPU, refused in one sentence where it
does not fit, saved, resumed and evaluated as every other. Without a GPU in Triton's interpreter, on
networks on the CPU."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tenfold.algorithms.dqn_settings import QLearning
from tenfold.algorithms.kernels.dqn_gpu import ResidentDQN
from tenfold.config.run import Run
from tenfold.core.errors import ConfigError
from tenfold.runs.metrics import read_rows
from tenfold.runs.storage import read_arrays
from tenfold.training.learners import make_learner
from tenfold.training.loop import resume, train

CARTPOLE = "tenfold/CartPole-v1"


def allow_anywhere(patch: pytest.MonkeyPatch) -> None:
    """The engine runs on the CPU as well, in the interpreter."""
    entry = replace(QLearning.engines["resident"], device="")
    patch.setitem(QLearning.engines, "resident", entry)


@pytest.fixture
def anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    allow_anywhere(monkeypatch)


def a_run(agent: dict[str, Any] | None = None, **more: Any) -> Run:
    small = {"name": "dqn", "learning_starts": 6, "batch_size": 16, "capacity": 100}
    given = {"env": CARTPOLE, "steps": 16, "eval_every": 0, "log_every": 8, "checkpoint_every": 8}
    return Run.of(given | {"agent": small | {"net": {"hidden": [16]}} | (agent or {})} | more)


def last(path: Path) -> dict[str, np.ndarray]:
    return read_arrays(sorted((path / "checkpoints").glob("step-*.safetensors"))[-1])[0]


def test_a_run_is_that_of_the_plain_engine_and_a_resumed_one_that_which_never_stopped(
    anywhere: None, tmp_path: Path
) -> None:
    run = a_run(engine="resident", eval_every=16, eval_episodes=1)
    done = train(run, tmp_path / "whole", quiet=True)
    assert done.step == 16 and done.best_evaluation
    train(replace(run, steps=8), tmp_path / "half", quiet=True)
    resume(tmp_path / "half", 16, quiet=True)
    whole, halves = last(tmp_path / "whole"), last(tmp_path / "half")
    assert all(np.array_equal(whole[name], halves[name]) for name in whole if "sums" not in name)
    train(replace(run, engine="plain"), tmp_path / "plain", quiet=True)
    plain = last(tmp_path / "plain")
    assert plain.keys() == whole.keys()
    for name, value in plain.items():
        # the gradient's norm is that of a sample; the other is for actors that may be ahead
        if "sums" not in name and name != "serial.due_from":
            assert np.allclose(value, whole[name], rtol=1e-3, atol=1e-5), name
    rows = [
        row for row in read_rows(tmp_path / "whole" / "metrics.jsonl") if row["kind"] == "train"
    ]
    assert rows[-1]["updates"] == 10 and {"loss", "q", "td_error", "grad_norm"} <= set(rows[-1])


def test_another_learning_rate_counts_from_the_next_update_on(anywhere: None) -> None:
    learner = make_learner(a_run(engine="resident"))
    while learner.step < 8:
        learner.round(8)
    learner.set_lr(0.0)
    before = learner.agent.online.flat.clone()
    assert learner.agent.updates == 2
    assert learner.engine.sums[-1] == 2  # updates behind the statistics of the next row
    while learner.step < 10:
        learner.round(10)
    assert learner.agent.updates == 4 and torch.equal(learner.agent.online.flat, before)
    learner.engine.take_sums()
    assert learner.engine.sums[-1] == 4


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"env": "CartPole-v1"}, "CartPole-v1 does not run on the GPU (tenfold/CartPole-v1,"),
        ({"agent": {"net": {"hidden": [256]}}}, "1 to 3 hidden layers of up to 128"),
        ({"agent": {"net": {"hidden": [8] * 4}}}, "1 to 3 hidden layers of up to 128"),
        ({"agent": {"distribution": "quantile(100)"}}, "and as many outputs"),
        ({"agent": {"net": {"activation": "elu"}}}, "the activation is elu"),
        ({"agent": {"explore": "noisy"}}, "the layers are noisy"),
        ({"agent": {"distribution": "implicit"}}, "the quantiles are implicit"),
        ({"agent": {"frames": 2}}, "several frames"),
        ({"verify": 10}, "verified"),
        ({"actors": 2, "where": "serial"}, "actors act elsewhere"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(
    anywhere: None, change: dict[str, Any], words: str
) -> None:
    settings = dict(change)
    with pytest.raises(ConfigError) as refused:
        make_learner(a_run(settings.pop("agent", {}), engine="resident", **settings))
    assert "engine = resident does not fit" in str(refused.value) and words in str(refused.value)


def test_without_a_gpu_it_is_refused_and_nobody_hears_of_it_unasked() -> None:
    with pytest.raises(
        ConfigError, match="engine = resident is for cuda, and the networks are on cpu"
    ):
        make_learner(a_run(engine="resident"))
    learner = make_learner(a_run())
    assert learner.description.name == "fused" and "resident" not in learner.description.engine


def test_without_triton_it_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = make_learner(a_run(engine="plain"))
    monkeypatch.setattr("tenfold.engines.resident.find_spec", lambda name: None)
    assert ResidentDQN.why_not(learner.agent, a_run()) == "Triton is not installed"


@pytest.mark.cuda
def test_on_a_gpu_it_learns_cartpole(tmp_path: Path) -> None:
    settings = {
        "name": "dqn",
        "learning_starts": 1000,
        "batch_size": 64,
        "capacity": 50_000,
        "n_step": 3,
        "loss": "huber",
        "clip_norm": 10,
        "target": "hard(250)",
        "lr": "linear(1e-3, 0, 50k)",
        "explore": "epsilon(linear(1, 0.04, 8k))",
        "net": {"hidden": [64, 64]},
    }
    given = {"env": CARTPOLE, "steps": 50_000, "device": "cuda", "engine": "resident"}
    run = Run.of(given | {"agent": settings})
    assert make_learner(run).description.name == "resident"
    assert (train(run, tmp_path / "run", quiet=True).best_evaluation or 0) >= 475

"""PPO's device engine as runs have it: saved, resumed and evaluated as every other, alone and with
other seeds. Without a GPU in Triton's interpreter, on networks on the CPU."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_resident_policies import learner

from tenfold.algorithms.kernels.ppo_resident_runs import HostRun, ResidentPPORuns
from tenfold.algorithms.ppo_settings import PolicyOptimisation
from tenfold.config.run import Run
from tenfold.core.errors import ConfigError, UserError
from tenfold.engines.resident import Group
from tenfold.evaluation.evaluator import EpisodeEvaluator
from tenfold.evaluation.player import StepBudget
from tenfold.runs.metrics import read_rows
from tenfold.runs.storage import read_arrays
from tenfold.training.learners import make_learner
from tenfold.training.loop import resume, train
from tenfold.training.run_group import train_seeds

CARTPOLE = "tenfold/CartPole-v1"


@pytest.fixture
def anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine runs on the CPU as well, in the interpreter."""
    entry = replace(PolicyOptimisation.engines["resident"], device="")
    monkeypatch.setitem(PolicyOptimisation.engines, "resident", entry)


def a_run(agent: dict[str, Any] | None = None, **more: Any) -> Run:
    small = {"name": "ppo", "horizon": 4, "epochs": 2, "minibatches": 2, "net": {"hidden": [16]}}
    given = {"env": CARTPOLE, "num_envs": 2, "steps": 20, "eval_every": 0, "log_every": 6}
    return Run.of(given | {"checkpoint_every": 10, "agent": small | (agent or {})} | more)


def last(path: Path) -> dict[str, np.ndarray]:
    return read_arrays(sorted((path / "checkpoints").glob("step-*.safetensors"))[-1])[0]


def test_a_run_is_that_of_the_plain_engine_and_a_resumed_one_that_which_never_stopped(
    anywhere: None, tmp_path: Path
) -> None:
    run = a_run({"normalize_obs": True}, engine="resident", eval_every=20, eval_episodes=1)
    done = train(run, tmp_path / "whole", quiet=True)
    assert done.step == 20 and done.best_evaluation
    train(replace(run, steps=10), tmp_path / "half", quiet=True)
    resume(tmp_path / "half", 20, quiet=True)
    whole, halves = last(tmp_path / "whole"), last(tmp_path / "half")
    unequal = [name for name in whole if not np.array_equal(whole[name], halves[name])]
    assert not [name for name in unequal if "next_value" not in name]
    train(replace(run, engine="plain"), tmp_path / "plain", quiet=True)
    plain = last(tmp_path / "plain")
    assert plain.keys() == whole.keys()
    for name, value in plain.items():
        if "next_value" not in name:  # which is set where an episode was cut, and elsewhere old
            assert np.allclose(value, whole[name], rtol=1e-3, atol=1e-4), name
    rows = [list(read_rows(tmp_path / which / "metrics.jsonl")) for which in ("whole", "plain")]
    for own, other in zip(*rows, strict=True):
        assert own.keys() == other.keys() and own["step"] == other["step"]


def test_seeds_side_by_side_are_what_each_is_alone(anywhere: None, tmp_path: Path) -> None:
    apart = {"net": {"hidden": [16], "value_hidden": [9, 5]}}
    run = a_run(apart, engine="resident", checkpoint_every=0, steps=12)
    train_seeds(run, [3, 8], tmp_path / "seeds", quiet=True)
    for seed in (3, 8):
        train(replace(run, seed=seed), tmp_path / f"alone-{seed}", quiet=True)
        alone, one = last(tmp_path / f"alone-{seed}"), last(tmp_path / "seeds" / f"seed-{seed}")
        apart = [name for name in alone if not np.allclose(alone[name], one[name], atol=1e-6)]
        assert not apart


@pytest.mark.parametrize("how", ["greedy", "sampled"])
@pytest.mark.parametrize("env", [CARTPOLE, "tenfold/Pendulum-v1"])
def test_evaluations_are_those_of_the_host(env: str, how: str) -> None:
    learners = [learner({"env": env, "normalize_obs": True}, seed) for seed in (1, 4)]
    for each in learners:
        each.agent.online.flat.mul_(3)  # so that actions differ from state to state
        each.agent.norm.update(np.random.default_rng(0).normal(size=(9, each.agent.norm.size)))
        each.run = replace(each.run, eval_episodes=3, eval_policy=how, episode_limit=12)
    seeds = [HostRun(each.agent, each.rollout, each.envs) for each in learners]
    group = Group(learners, ResidentPPORuns(seeds, "cpu"))
    for each in learners:
        judge, allowance = EpisodeEvaluator(each.run), StepBudget(10**6, 12)
        host = judge.play(each, 12, allowance, bool)
        device = judge.play_together(group, each, 12, allowance, bool)
        assert host.lengths == device.lengths and device.returns == pytest.approx(
            host.returns, rel=1e-4
        )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"env": "CartPole-v1"}, "CartPole-v1 does not run on the GPU (tenfold/CartPole-v1,"),
        ({"agent": {"net": {"hidden": [256]}}}, "1 to 3 hidden layers of up to 128"),
        ({"agent": {"net": {"activation": "elu"}}}, "the activation is elu"),
        ({"agent": {"baseline": "counterfactual"}}, "the baseline is counterfactual"),
        ({"verify": 10}, "verified"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(
    anywhere: None, change: dict[str, Any], words: str
) -> None:
    settings = dict(change)
    with pytest.raises(ConfigError) as refused:
        make_learner(a_run(settings.pop("agent", {}), engine="resident", **settings))
    assert "engine = resident does not fit" in str(refused.value) and words in str(refused.value)


def broken(*given: Any) -> None:
    raise RuntimeError("first line\nout of registers.")


def test_kernels_that_do_not_compile_leave_their_place_to_another_engine(
    anywhere: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tenfold.core.registry.OBSTACLES", found := {})
    monkeypatch.setattr("tenfold.engines.choose.OBSTACLES", found)
    monkeypatch.setattr("tenfold.training.learners.OBSTACLES", found)
    monkeypatch.setattr(ResidentPPORuns, "warm_up", broken)
    done = train(a_run(), tmp_path / "run", quiet=True)
    assert done.step == 20
    (session,) = json.loads((tmp_path / "run" / "run.json").read_text())["sessions"]
    words = "not resident: its kernels cannot be compiled here (out of registers)"
    assert session["engine"].startswith("fused") and words in session["engine"]
    with pytest.raises(ConfigError, match=r"= resident does not fit: its kernels cannot"):
        train(a_run(engine="resident"), tmp_path / "asked", quiet=True)
    with pytest.raises(UserError, match=r"out of registers"):
        train_seeds(a_run(engine="resident"), (0, 1), tmp_path / "seeds", quiet=True)
    assert not (tmp_path / "asked").exists()

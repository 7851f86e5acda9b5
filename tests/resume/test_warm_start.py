"""A run that begins with the weights of another: of every kind of agent, by every engine, for
seeds, and never of networks that do not fit."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import tenfold as ten
from tenfold.core.errors import ConfigError, UserError
from tenfold.runs.checkpoint import Checkpoints
from tenfold.runs.folder import RunFolder
from tenfold.training.learners import agent_of
from tenfold.training.loop import resume, train
from tenfold.training.run_group import resume_seeds, train_seeds

QUIET: dict[str, Any] = {"quiet": True, "report": False}
SMALL = {"net": {"hidden": (8,)}}
REPLAY = {**SMALL, "learning_starts": 20, "batch_size": 8, "capacity": 300}
RUNS: dict[str, dict[str, Any]] = {
    "dqn fused": {"env": "tenfold/CartPole-v1", "agent": {"name": "dqn", **REPLAY}},
    "dqn plain, normalised": {
        "env": "CartPole-v1",
        "engine": "plain",
        "agent": {"name": "dqn", "normalize_obs": True, **REPLAY},
    },
    "dqn of several agents": {
        "env": "tenfold/TreasureSmall-v0",
        "agent": {"name": "dqn", "frames": 1, **REPLAY},
    },
    "ppo": {
        "env": "tenfold/Pendulum-v1",
        "agent": {"name": "ppo", "normalize_obs": True, "horizon": 32, **SMALL},
    },
    "ppo that remembers": {
        "env": "tenfold/CartPole-v1",
        "agent": {"name": "ppo", "horizon": 32, "net": {"hidden": (8,), "memory": "gru(4)"}},
    },
    "sac": {"env": "tenfold/Pendulum-v1", "agent": {"name": "sac", **REPLAY}},
    "td3": {"env": "tenfold/Pendulum-v1", "agent": {"name": "td3", **REPLAY}},
}


class AtStart:
    """Keeps what the learner's agent and the actors begin with."""

    def on_start(self, training: Any) -> None:
        agent = training.learner.agent
        self.step, self.updates = training.step, agent.updates
        self.state = {name: value.clone() for name, value in agent.state().items()}
        self.obs = torch.from_numpy(training.learner.envs.obs.copy())


def settings(name: str, **more: Any) -> ten.Run:
    run = {"steps": 150, "eval_every": 0, "checkpoint_every": 50, **RUNS[name]}
    return ten.Run.of(run | more)


def saved(path: Path, which: str = "last") -> dict[str, torch.Tensor]:
    folder, run = RunFolder.open(path)
    return Checkpoints(folder, run.keep).policy(which)[0]


@pytest.mark.parametrize("name", RUNS)
def test_a_run_begins_with_all_networks_and_statistics_of_another(
    name: str, tmp_path: Path
) -> None:
    train(settings(name), tmp_path / "first", **QUIET)
    begun = AtStart()
    second = settings(name, seed=7, steps=64)
    train(second, tmp_path / "second", init=tmp_path / "first", callbacks=[begun], **QUIET)
    expected = saved(tmp_path / "first")
    for key in {"online", "target"} & {*expected}:
        assert torch.equal(begun.state[key], expected[key]), key
    if "norm_count" in expected:  # what is seen first counts already
        count, mean = expected["norm_count"], expected["norm_mean"]
        after = count + len(begun.obs)
        assert begun.state["norm_count"] == after
        torch.testing.assert_close(
            begun.state["norm_mean"], (count * mean + begun.obs.sum(0)) / after
        )
    # all else is a new agent's
    assert (begun.step, begun.updates) == (0, 0)
    assert not begun.state["mean"].any() and not begun.state["square"].any()
    # and without a word of it the weights are those of its own seed
    train(second, tmp_path / "third", callbacks=[begun], **QUIET)
    assert torch.equal(begun.state["online"], agent_of(second).online.flat)


def test_actors_in_processes_begin_with_them_as_those_here_do(tmp_path: Path) -> None:
    train(settings("dqn plain, normalised"), tmp_path / "first", **QUIET)
    ends = []
    for where in ("serial", "processes"):
        run = settings("dqn plain, normalised", seed=7, steps=80, actors=2, where=where, ahead=0)
        result = train(run, tmp_path / where, init=tmp_path / "first", **QUIET)
        ends.append(ten.load(result).online.flat)
    assert torch.equal(*ends)


def test_a_temperature_that_is_set_stays_and_one_that_is_learned_goes_on(tmp_path: Path) -> None:
    train(settings("sac"), tmp_path / "first", **QUIET)
    learned = ten.load(tmp_path / "first").alpha.item()
    for temperature, expected in ((0.25, 0.25), ("auto", learned)):
        begun, agent = AtStart(), {**RUNS["sac"]["agent"], "temperature": temperature}
        run = settings("sac", agent=agent, steps=5)
        train(run, tmp_path / "second", overwrite=True, init=tmp_path / "first", callbacks=[begun], **QUIET)  # fmt: skip
        assert ten.load(tmp_path / "second").alpha.item() == pytest.approx(expected, rel=1e-6)


def test_the_best_checkpoint_begins_with_its_policy_as_the_target(
    finished_once: Path, small_run: Callable[..., ten.Run], tmp_path: Path
) -> None:
    begun = AtStart()
    run = small_run(steps=60, seed=5)
    result = train(
        run, tmp_path / "run", init=finished_once, checkpoint="best", callbacks=[begun], **QUIET
    )
    best = saved(finished_once, "best")["online"]
    assert torch.equal(begun.state["online"], best) and torch.equal(begun.state["target"], best)
    about = json.loads((result.path / "run.json").read_text())["init"]
    source = json.loads((finished_once / "run.json").read_text())["id"]
    assert (about["run"], about["path"], about["checkpoint"]) == (
        source,
        str(finished_once),
        "best",
    )
    assert about["step"] in (200, 400, 600)


def test_it_is_resumed_exactly_without_the_other_run(
    finished_once: Path, small_run: Callable[..., ten.Run], tmp_path: Path
) -> None:
    source = shutil.copytree(finished_once, tmp_path / "source")
    whole = train(small_run(seed=5), tmp_path / "whole", init=source, **QUIET)
    half = train(small_run(seed=5, steps=200), tmp_path / "half", init=source, **QUIET)
    shutil.rmtree(source)
    resume(half, 600, **QUIET)
    assert torch.equal(ten.load(whole).online.flat, ten.load(half).online.flat)
    first = [json.loads((r.path / "run.json").read_text())["init"]["run"] for r in (whole, half)]
    assert first[0] == first[1]


def test_every_seed_begins_with_them_also_one_that_begins_later(
    finished_once: Path, small_run: Callable[..., ten.Run], tmp_path: Path
) -> None:
    source = shutil.copytree(finished_once, tmp_path / "source")
    run = small_run(steps=120, eval_every=0, agent={"learning_starts": 200})  # it never learns
    many = train_seeds(run, 2, tmp_path / "many", jobs=1, quiet=True, init=source)
    expected = saved(source)["online"]
    for seed in (0, 1):
        assert torch.equal(ten.load(many.path / f"seed-{seed}").online.flat, expected)
        assert "init" in json.loads((many.path / f"seed-{seed}" / "run.json").read_text())
    shutil.rmtree(source)
    shutil.rmtree(many.path / "seed-1")
    resume_seeds(many.path, quiet=True, jobs=1)
    assert torch.equal(ten.load(many.path / "seed-1").online.flat, expected)


OTHERS: list[tuple[dict[str, Any], str]] = [
    ({"agent": {"net": {"hidden": (16, 16)}}}, r"agent\.net\.hidden = 16,16 does not fit --init .*run, whose networks were trained with 16: "),
    ({"agent": {"net": {"hidden": (16,), "activation": "tanh"}}}, r"agent\.net\.activation = tanh .* trained with relu"),
    ({"agent": {"distribution": "quantile(3)"}}, r"agent\.distribution = quantile\(n=3\) .* trained with none"),
    ({"agent": {"normalize_obs": True}}, r"normalize_obs = true does not fit .* trained with false"),
    ({"env": "Acrobot-v1"}, r"init = .* does not fit: its network's \S+ is 16 x 4, and this run's 16 x 6, since observations, "),
    ({"agent": "ppo"}, r"init = .* was trained by dqn, and this run trains ppo: "),
]  # fmt: skip


@pytest.mark.parametrize(("change", "sentence"), OTHERS, ids=[str(c) for c, _ in OTHERS])
def test_networks_that_do_not_fit_are_refused_before_anything_is_made(
    change: dict[str, Any],
    sentence: str,
    finished_once: Path,
    small_run: Callable[..., ten.Run],
    tmp_path: Path,
) -> None:
    for start in (ten.train, lambda run, *more, **rest: train_seeds(run, 2, *more, **rest)):
        with pytest.raises(ConfigError, match=sentence):
            start(small_run(), tmp_path / "run", init=finished_once, quiet=True, **change)
    assert not (tmp_path / "run").exists()


def test_what_is_no_run_or_needs_none_is_answered(
    finished_once: Path, tmp_path: Path, here: Callable[..., Any]
) -> None:
    train_seeds(ten.Run(steps=5, eval_every=0), 1, tmp_path / "many", quiet=True)
    for given, words in (
        (["--init", "nowhere"], "nowhere does not exist"),
        (["--init", ""], "--init is empty"),
        (["--init", tmp_path / "many"], "holds several seeds, and one run's weights are taken: name a seed's folder, such as "),
        (["--init", finished_once, "--checkpoint", "17"], "--checkpoint 17 is not there: choose best, last or one of"),
        (["--checkpoint", "best"], "--checkpoint is about the run whose weights are taken: give --init as well."),
        (["--trust"], "--trust is about the run whose weights are taken: give --init as well."),
    ):  # fmt: skip
        done = here("train", "dqn", "--agent.net.hidden", "16", "--steps", "9", *given)
        assert (done.returncode, words in done.stderr, done.stderr.count("\n")) == (2, True, 1), done.stderr  # fmt: skip
    assert not (tmp_path / "runs").exists()


def test_an_explorer_takes_no_weights(tmp_path: Path) -> None:
    run = ten.Run.of({"env": "tenfold/LimitCycle-v0", "agent": "explorer", "steps": 3})
    with pytest.raises(ConfigError, match=r"init = other is not for agent explorer: leave it out"):
        train(run, tmp_path / "run", init="other", **QUIET)


def test_an_archive_is_a_run_too_and_goes_through_the_same_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "theirs_warm.py").write_text("def half(step, lr): return lr / 2\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    agent = {"name": "dqn", "lr": "theirs_warm:half(1e-3)", **REPLAY}
    with monkeypatch.context() as patch:  # another person, with a key of their own
        patch.setenv("XDG_STATE_HOME", str(tmp_path / "their-home"))
        run = ten.Run.of({"agent": agent, "steps": 60, "eval_every": 0})
        theirs = train(run, tmp_path / "theirs", **QUIET)
        archive = ten.pack(theirs, tmp_path / "theirs.zip", episodes=0)
        expected = saved(theirs.path)["online"]
    mine = ten.Run.of({"agent": {**agent, "lr": 1e-3}, "steps": 30, "eval_every": 0})
    for given in (archive, theirs):
        with pytest.raises(UserError, match="names theirs_warm, which would be imported"):
            train(mine, tmp_path / "mine", init=given, **QUIET)
    begun = AtStart()
    train(mine, tmp_path / "mine", init=archive, trust=True, callbacks=[begun], **QUIET)
    assert torch.equal(begun.state["online"], expected)

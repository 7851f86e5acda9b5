"""A run's end is evaluated, once."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tenfold as ten
from tenfold.config.run import Run
from tenfold.core.protocols import Evaluated
from tenfold.runs.checkpoint import Checkpoints
from tenfold.runs.folder import RunFolder, last_session
from tenfold.runs.metrics import read_rows
from tenfold.training.loop import resume, train
from tenfold.training.run_group import train_seeds


def evaluated(path: Path) -> list[int]:
    rows = read_rows(path / "metrics.jsonl", episodes=False)
    return [row["step"] for row in rows if row["kind"] == "eval"]


@pytest.mark.parametrize(
    ("steps", "eval_every", "expected"),
    [(250, 100, [100, 200, 250]), (200, 100, [100, 200]), (90, 100, [90]), (90, 0, [])],
)
def test_the_last_evaluation_is_that_of_the_networks_the_run_ends_with(
    small_run: Callable[..., Run],
    tmp_path: Path,
    steps: int,
    eval_every: int,
    expected: list[int],
) -> None:
    run = small_run(steps=steps, eval_every=eval_every, checkpoint_every=0)
    train(run, tmp_path / "run", quiet=True)
    assert evaluated(tmp_path / "run") == expected


class Stop(ten.Callback):
    def on_round(self, training: Any) -> None:
        if training.step >= 130:
            training.stop()


def policies(path: Path) -> dict[str, tuple[int, bytes]]:
    found = Checkpoints(RunFolder.open(path)[0], 2)
    states = {which: found.policy(which) for which in ("best", "last")}
    return {which: (step, own["online"].numpy().tobytes()) for which, (own, step) in states.items()}


def test_a_run_that_a_callback_stops_is_evaluated_and_goes_on_as_if_it_had_not_been(
    small_run: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also its best checkpoint, where the end was the best so far and the run never is that good
    again."""

    def score(self: Any, learner: Any, lengths: list[int], stop: Any) -> Any:
        value = 1.0 if learner.step % 100 == 0 else 9.0
        row = {"kind": "eval", "step": learner.step, "episodes": 1, "std_return": 0.0}
        return Evaluated(row | {"mean_return": value}, value)

    monkeypatch.setattr("tenfold.evaluation.evaluator.EpisodeEvaluator.evaluate", score)
    run = small_run(steps=300, eval_every=100, checkpoint_every=0)
    train(run, tmp_path / "whole", quiet=True)
    assert train(run, tmp_path / "run", quiet=True, callbacks=[Stop()]).step < 300
    stopped = evaluated(tmp_path / "run")
    assert stopped[0] == 100 and len(stopped) == 2 and policies(tmp_path / "run")["best"][0] >= 130
    resume(tmp_path / "run", quiet=True)
    assert evaluated(tmp_path / "run") == [100, 200, 300]
    assert policies(tmp_path / "run") == policies(tmp_path / "whole")


@pytest.mark.parametrize("checkpoint_every", [0, 50])
def test_a_finished_run_that_is_extended_keeps_its_best_policy(
    small_run: Callable[..., Run],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    checkpoint_every: int,
) -> None:
    """Its end, which no interval fell on, was evaluated best, and the run never is that good again:
    the row, the score and the policy stay. Also where the end had its checkpoint already."""

    def score(self: Any, learner: Any, lengths: list[int], stop: Any) -> Any:
        value = 9.0 if learner.step == 150 else 1.0
        row = {"kind": "eval", "step": learner.step, "episodes": 1, "std_return": 0.0}
        return Evaluated(row | {"mean_return": value}, value)

    monkeypatch.setattr("tenfold.evaluation.evaluator.EpisodeEvaluator.evaluate", score)
    run = small_run(steps=150, eval_every=100, checkpoint_every=checkpoint_every)
    train(run, tmp_path / "run", quiet=True)
    before = policies(tmp_path / "run")
    assert before["best"] == before["last"] and before["best"][0] == 150
    for steps in (250, 300):
        found = resume(tmp_path / "run", steps=steps, quiet=True)
        assert found.best_evaluation == 9.0
        assert policies(tmp_path / "run")["best"] == before["best"]
    assert evaluated(tmp_path / "run") == [100, 150, 200, 250, 300]


def test_every_seed_is_evaluated_at_its_end(small_run: Callable[..., Run], tmp_path: Path) -> None:
    run = small_run(steps=120, eval_every=100, checkpoint_every=0)
    found = train_seeds(run, 2, tmp_path / "seeds", jobs=1, quiet=True).summary
    assert evaluated(tmp_path / "seeds" / "seed-1") == [100, 120]
    last = list(read_rows(tmp_path / "seeds" / "seed-1" / "metrics.jsonl"))
    final = next(row for row in last if row["kind"] == "eval" and row["step"] == 120)
    assert found["seeds"][1]["last_evaluation"] == final["mean_return"]


def test_the_time_of_the_last_evaluation_is_on_the_page(finished_once: Path) -> None:
    """Its row of training came before."""
    shares = last_session(finished_once)["shares"]
    assert sum(shares.values()) == pytest.approx(1) and shares["evaluate"] > 0
    assert f"evaluate {shares['evaluate']:.1%}" in (finished_once / "report.html").read_text()

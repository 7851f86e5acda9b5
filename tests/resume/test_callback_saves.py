"""A callback that saves the run: what it reacted to is saved with it, once, and what was due beside
it is done by whoever goes on."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tenfold as ten
from tenfold.config.run import Run
from tenfold.core.errors import UserError
from tenfold.runs import checkpoint, storage
from tenfold.runs.checkpoint import BEST
from tenfold.runs.metrics import read_rows
from tenfold.runs.storage import read_arrays
from tenfold.training.loop import resume, train

STEP = 200  # where a row, an evaluation and, as below, nothing else is due


class Saver:
    """Saves at a moment of a step. The process then ends: at once, or some rounds later."""

    def __init__(self, moment: str, later: int = 0) -> None:
        self.later, self.saved = later, False
        setattr(self, moment, self.save)
        if later:
            self.on_checkpoint = lambda training: training.save()  # which is done already

    def save(self, training: Any, *row: dict[str, Any]) -> None:
        if training.step == STEP and not self.saved:
            self.saved = True
            training.save()
            if not self.later:
                raise SystemExit("killed")

    def on_log(self, training: Any, row: dict[str, Any]) -> None:
        if self.later and training.step > STEP:
            raise SystemExit("killed")


class Adder:
    """Another callback, which adds to rows after the one that saves has seen them."""

    def on_evaluate(self, training: Any, row: dict[str, Any]) -> None:
        row["added"] = training.step

    def on_log(self, training: Any, row: dict[str, Any]) -> None:
        row["added"] = training.step


def rows_of(path: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [{name: own for name, own in row.items() if name != "timing"} for row in rows]


@pytest.mark.parametrize("later", [0, 1])
@pytest.mark.parametrize("moment", ["on_evaluate", "on_log", "on_round"])
def test_a_row_that_a_callback_saved_at_is_there_once(
    moment: str, later: int, small_run: Callable[..., Run], tmp_path: Path
) -> None:
    if later and moment == "on_log":
        return  # the same method
    run = small_run(checkpoint_every=0, log_every=100, eval_every=100, steps=400)
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    train(run, straight, quiet=True, report=False, callbacks=[Adder()])
    with pytest.raises(SystemExit):
        callbacks = [Saver(moment, later), Adder()]
        train(run, broken, quiet=True, report=False, callbacks=callbacks)
    assert sorted(p.name for p in (broken / "checkpoints").glob("step-*"))[-1] == (
        f"step-{STEP:012d}.safetensors"
    )
    resume(broken, quiet=True, report=False, callbacks=[Adder()])
    assert rows_of(broken) == rows_of(straight)
    bests = [read_arrays(path / "checkpoints" / BEST) for path in (broken, straight)]
    (one, about), (other, expected) = bests
    assert (about["step"], about["score"]) == (expected["step"], expected["score"])
    assert one["agent.online"].tolist() == other["agent.online"].tolist()


def test_the_best_that_a_callback_saves_at_is_known_to_the_checkpoint(
    small_run: Callable[..., Run], tmp_path: Path
) -> None:
    run = small_run(checkpoint_every=0, log_every=100, eval_every=100, steps=400)
    with pytest.raises(SystemExit):
        train(run, tmp_path, quiet=True, report=False, callbacks=[Saver("on_evaluate")])
    note = read_arrays(tmp_path / "checkpoints" / f"step-{STEP:012d}.safetensors")[1]
    judged = [row["mean_return"] for row in rows_of(tmp_path) if row["kind"] == "eval"]
    assert len(judged) == 2 and note["best"] == max(judged) and not note["owes_evaluation"]


def test_a_save_does_not_read_the_checkpoints_before_it(
    small_run: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, read, hashed = small_run(checkpoint_every=50, keep=4, eval_every=0), [], []
    original, digest = storage.read_arrays, storage.digest

    def reading(path: Path, *more: Any, **named: Any) -> Any:
        read.append(path.name)
        return original(path, *more, **named)

    def hashing(*given: Any) -> str:
        hashed.append(given)
        return digest(*given)

    monkeypatch.setattr(checkpoint, "read_arrays", reading)
    monkeypatch.setattr(storage, "digest", hashing)
    train(run, tmp_path / "run", quiet=True, report=False)
    written = len(list((tmp_path / "run" / "replay").glob("*")))
    assert read == [] and written >= 4
    # a checkpoint and its rows, of each of 13 saves: nothing twice
    assert len(hashed) <= 2 * 13
    resume(tmp_path / "run", 700, quiet=True, report=False)
    newest = ["step-000000000600.safetensors"]
    assert [name for name in read if name.startswith("step")] == newest  # to go on from, no others
    assert len(list((tmp_path / "run" / "checkpoints").glob("step-*"))) == 4
    needed = {
        link["file"]
        for path in (tmp_path / "run" / "checkpoints").glob("step-*")
        for link in original(path)[1]["rows"]
    }
    assert {path.name for path in (tmp_path / "run" / "replay").glob("rows-*")} == needed


class Spoils(ten.Callback):
    def __init__(self, change: Any) -> None:
        self.change = change

    def on_evaluate(self, training: Any, row: dict[str, Any]) -> None:
        self.change(row)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda row: row.update(note="hello"), "added note = 'hello' to the row"),
        (lambda row: row.update(classes=[1, 2]), r"added classes = \[1, 2\] to the row"),
        (lambda row: row.update(mean_return=1e9), "changed mean_return of the row"),
        (lambda row: row.clear(), "took .* out of the row"),
    ],
)
def test_what_is_no_number_beside_the_runs_own_is_refused(
    small_run: Callable[..., Run], tmp_path: Path, change: Any, words: str
) -> None:
    """Rows of it would be passed over by whoever reads the metrics."""
    with pytest.raises(UserError, match=f"Spoils.on_evaluate {words}"):
        train(small_run(), tmp_path / "run", quiet=True, callbacks=[Spoils(change)])


class EvaluatesToo(ten.Callback):
    def on_log(self, training: Any, row: dict[str, Any]) -> None:
        training.evaluate()


def test_a_step_has_one_row_of_the_same_policy(
    small_run: Callable[..., Run], tmp_path: Path
) -> None:
    run = small_run(log_every=200)
    train(run, tmp_path / "run", quiet=True, callbacks=[EvaluatesToo()])
    rows = read_rows(tmp_path / "run" / "metrics.jsonl", episodes=False)
    assert [row["step"] for row in rows if row["kind"] == "eval"] == [200, 400, 600]

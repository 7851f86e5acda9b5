"""What `tenfold eval` plays, what it leaves out, and what it says about it."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tenfold.cli.main import main
from tenfold.config.run import Run
from tenfold.evaluation.evaluate import EpisodeEvaluation, much_better_checkpoint
from tenfold.runs import checkpoint
from tenfold.runs.checkpoint import Checkpoints
from tenfold.runs.folder import RunFolder
from tenfold.runs.seeds import SeedsFolder
from tenfold.runs.storage import read_arrays, write_arrays
from tenfold.training.loop import train


def test_seeds_that_are_still_to_begin_are_left_out_and_named(
    finished_once: Path,
    tmp_path: Path,
    small_run: Callable[..., Run],
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = SeedsFolder.create(tmp_path / "many", small_run(), (0, 1, 2))
    assert main(["eval", str(folder.path)]) == 2
    assert (
        f"tenfold: No seed of {folder.path} has a checkpoint yet: it comes with the first steps; "
        in capsys.readouterr().err
    )
    shutil.copytree(finished_once, folder.member(1))
    (folder.member(2) / "checkpoints").mkdir(parents=True)  # has begun, and saved nothing yet
    assert main(["eval", str(folder.path), "--episodes", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["played"], found["left_out"], len(found["members"])) == ([1], [0, 2], 1)
    assert main(["eval", str(folder.path), "--episodes", "2"]) == 0
    assert "left out, without such a checkpoint yet: seeds 0, 2" in capsys.readouterr().out
    (folder.member(1) / "checkpoints" / "best.safetensors").unlink()
    assert main(["eval", str(folder.path), "--checkpoint", "best"]) == 2
    assert (
        "has a best checkpoint yet: it comes with the first evaluation (eval_every is 200)"
        in capsys.readouterr().err
    )


def evaluated(path: Path, *rows: dict[str, float]) -> RunFolder:
    """A run whose evaluations were these."""
    lines = [json.dumps({"kind": "eval", "episodes": 10, "std_return": 0.0} | row) for row in rows]
    (path / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return with_best(path, int(max(rows, key=lambda row: row["mean_return"])["step"]))


def with_best(path: Path, step: int) -> RunFolder:
    """A run whose best policy was saved at this step."""
    folder, _ = RunFolder.open(path)
    file = folder.checkpoints / "best.safetensors"
    write_arrays(file, read_arrays(file)[0], {"run": folder.id, "step": step, "score": 0.0})
    return folder


def test_a_best_checkpoint_that_is_clearly_better_is_pointed_to(
    finished_once: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = shutil.copytree(finished_once, tmp_path / "run")
    evaluated(path, {"step": 200, "mean_return": 500.0}, {"step": 600, "mean_return": 20.0})
    assert main(["eval", str(path), "--episodes", "3"]) == 0
    assert (
        "the best checkpoint (step 200) was clearly better when it was evaluated: 500.00. --checkpoint best plays it."
        in capsys.readouterr().out
    )
    assert main(["eval", str(path), "--episodes", "3", "--checkpoint", "best"]) == 0
    assert "Note" not in capsys.readouterr().out


def at(step: int, mean: float, **more: float) -> dict[str, Any]:
    return {"step": step, "mean_return": mean, "std_return": 0.0, "episodes": 20, **more}


def test_clearly_is_more_than_chance_and_more_than_a_trifle(
    finished_once: Path, tmp_path: Path
) -> None:
    path, played = shutil.copytree(finished_once, tmp_path / "run"), at(600, 490.0)
    folder = evaluated(
        path,
        {"step": 100, "mean_return": 10.0},
        {"step": 200, "mean_return": 500.0},
        {"step": 600, "mean_return": 500.0},
    )
    assert much_better_checkpoint(folder, played) is None  # 10 of 490 that the run came
    assert much_better_checkpoint(folder, at(600, 400.0)) == {
        "kind": "eval",
        "episodes": 10,
        "std_return": 0.0,
        "step": 200,
        "mean_return": 500.0,
    }
    assert much_better_checkpoint(folder, at(200, 0.0)) is None  # that very checkpoint was played
    noisy = evaluated(
        path,
        {"step": 200, "mean_return": 500.0, "std_return": 300.0},
        {"step": 600, "mean_return": 10.0},
    )
    assert (
        much_better_checkpoint(noisy, at(600, 400.0)) is None
    )  # 100 by 10 episodes that differ by 300
    goal = {"mean_return": 1.0, "success_rate": 1.0, "merit": 1.0}
    told = evaluated(
        path,
        {"step": 200} | goal,
        {"step": 600, "mean_return": 5.0, "success_rate": 0.0, "merit": 0.0},
    )
    with_best(path, 200)
    # successes count, not returns
    assert much_better_checkpoint(told, at(600, 5.0, success_rate=0.0)) is not None


def test_a_better_policy_that_a_full_disk_refused_is_not_pointed_to(
    finished_once: Path, tmp_path: Path
) -> None:
    path = shutil.copytree(finished_once, tmp_path / "run")
    rows = ((200, 300.0), (400, 500.0), (600, 10.0))
    evaluated(path, *({"step": step, "mean_return": mean} for step, mean in rows))
    better = much_better_checkpoint(with_best(path, 200), at(600, 10.0))
    assert better and better["step"] == 200  # that of step 400 was never saved


def test_the_best_policy_is_saved_as_soon_as_the_disk_lets_it(
    finished_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shutil.copytree(finished_once, tmp_path / "run")
    checkpoints = Checkpoints(RunFolder.open(path)[0], 2)

    def full(*given: Any) -> None:
        raise OSError(28, "No space left on device")

    before = checkpoints.best_step()
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write_arrays", full)
        with pytest.raises(OSError, match="No space"):
            checkpoints.save_best({"online": torch.zeros(3)}, 900, 1.0)
    assert checkpoints.best_step() == before
    checkpoints.close()  # with the next checkpoint
    assert checkpoints.best_step() == 900


def test_a_run_that_ended_names_its_last_evaluation_and_the_best_policy_where_that_is_clearly_better(
    finished_once: Path, tmp_path: Path
) -> None:
    path = shutil.copytree(finished_once, tmp_path / "run")
    run = Run()
    result: Any = SimpleNamespace(
        path=path, run=run, step=600, best_success=None, best_evaluation=500.0, mean_return=None
    )
    evaluated(
        path,
        {"step": 100, "mean_return": 10.0},
        {"step": 200, "mean_return": 500.0},
        {"step": 600, "mean_return": 480.0},
    )
    assert EpisodeEvaluation().conclusion(result) == [
        "evaluations (greedy): last 480.00 (10 episodes), best 500.00"
    ]
    evaluated(path, {"step": 200, "mean_return": 500.0}, {"step": 600, "mean_return": 10.0})
    assert EpisodeEvaluation().conclusion(result) == [
        "evaluations (greedy): last 10.00 (10 episodes), best 500.00",
        "Note: the last policy is clearly worse than the best one: "
        f"tenfold eval {path} --checkpoint best",
    ]


def test_episodes_that_were_cut_are_counted(
    tmp_path: Path, small_run: Callable[..., Run], capsys: pytest.CaptureFixture[str]
) -> None:
    train(small_run(steps=100, episode_limit=5), tmp_path / "run", quiet=True)
    assert main(["eval", str(tmp_path / "run"), "--episodes", "2"]) == 0
    assert (
        "Note: 2 of 2 episodes had not ended after 5 steps and were cut there (episode_limit)."
        in capsys.readouterr().out
    )


def test_an_evaluation_of_an_earlier_policy_says_nothing_of_the_last_one(
    finished_once: Path, tmp_path: Path
) -> None:
    """Where evaluations were turned off on the way: the last is of another step."""
    path = shutil.copytree(finished_once, tmp_path / "run")
    evaluated(path, {"step": 200, "mean_return": 500.0}, {"step": 400, "mean_return": 10.0})
    result: Any = SimpleNamespace(
        path=path, run=Run(), step=600, best_success=None, best_evaluation=500.0, mean_return=400.0
    )
    assert EpisodeEvaluation().conclusion(result) == [
        "evaluations (greedy): last 10.00 (10 episodes at step 400), best 500.00"
    ]

"""What `tenfold eval` plays, what it leaves out, and what it says about it."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tenfold.cli import main
from tenfold.judging import clearly_better
from tenfold.playing import Score
from tenfold.record.folder import RunFolder
from tenfold.record.seeds import SeedsFolder
from tenfold.settings import Run


def test_seeds_that_are_still_to_begin_are_left_out_and_named(finished_once: Path, tmp_path: Path, small_run: Callable[..., Run],
                                                              capsys: pytest.CaptureFixture[str]) -> None:
    folder = SeedsFolder.create(tmp_path / "many", small_run(), (0, 1, 2))
    assert main(["eval", str(folder.path)]) == 2
    assert f"tenfold: No seed of {folder.path} has a checkpoint yet: it comes with the first steps; " in capsys.readouterr().err
    shutil.copytree(finished_once, folder.member(1))
    (folder.member(2) / "checkpoints").mkdir(parents=True)  # has begun, and saved nothing yet
    assert main(["eval", str(folder.path), "--episodes", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["played"], found["left_out"], len(found["members"])) == ([1], [0, 2], 1)
    assert main(["eval", str(folder.path), "--episodes", "2"]) == 0
    assert "left out, without such a checkpoint yet: seeds 0, 2" in capsys.readouterr().out
    (folder.member(1) / "checkpoints" / "best.safetensors").unlink()
    assert main(["eval", str(folder.path), "--checkpoint", "best"]) == 2
    assert "has a best checkpoint yet: it comes with the first evaluation (eval_every is 200)" in capsys.readouterr().err


def evaluated(path: Path, *rows: dict[str, float]) -> RunFolder:
    """A run whose evaluations were these."""
    lines = [json.dumps({"kind": "eval", "episodes": 10, "std_return": 0.0} | row) for row in rows]
    (path / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return RunFolder.open(path)[0]


def test_a_best_checkpoint_that_is_clearly_better_is_pointed_to(finished_once: Path, tmp_path: Path,
                                                                capsys: pytest.CaptureFixture[str]) -> None:
    path = shutil.copytree(finished_once, tmp_path / "run")
    evaluated(path, {"step": 200, "mean_return": 500.0}, {"step": 600, "mean_return": 20.0})
    assert main(["eval", str(path), "--episodes", "3"]) == 0
    assert "the best checkpoint (step 200) was clearly better when it was evaluated: 500.00. --checkpoint best plays it." in \
        capsys.readouterr().out
    assert main(["eval", str(path), "--episodes", "3", "--checkpoint", "best"]) == 0
    assert "Note" not in capsys.readouterr().out


def test_clearly_is_more_than_chance_and_more_than_a_trifle(finished_once: Path, tmp_path: Path) -> None:
    path, played = shutil.copytree(finished_once, tmp_path / "run"), Score([490.0] * 20, [490] * 20)
    folder = evaluated(path, {"step": 100, "mean_return": 10.0}, {"step": 200, "mean_return": 500.0}, {"step": 600, "mean_return": 500.0})
    assert clearly_better(folder, 600, played) is None  # 10 of 490 that the run came
    assert clearly_better(folder, 600, Score([400.0] * 20, [400] * 20)) == {"kind": "eval", "episodes": 10, "std_return": 0.0,
                                                                           "step": 200, "mean_return": 500.0}
    assert clearly_better(folder, 200, Score([0.0], [1])) is None  # that very checkpoint was played
    noisy = evaluated(path, {"step": 200, "mean_return": 500.0, "std_return": 300.0}, {"step": 600, "mean_return": 10.0})
    assert clearly_better(noisy, 600, Score([400.0] * 20, [400] * 20)) is None  # 100 by 10 episodes that differ by 300
    goal = {"mean_return": 1.0, "success_rate": 1.0, "merit": 1.0}
    told = evaluated(path, {"step": 200} | goal, {"step": 600, "mean_return": 5.0, "success_rate": 0.0, "merit": 0.0})
    assert clearly_better(told, 600, Score([5.0] * 20, [9] * 20, [{"success": False}] * 20)) is not None  # successes count, not returns

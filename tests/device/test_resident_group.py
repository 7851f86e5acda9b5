"""Many seeds on one device, in one process: each is the very run it would be alone, stopped,
resumed and told of as seeds in processes are. Without a GPU in Triton's interpreter."""

import json
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_resident_engine import a_run, allow_anywhere, anywhere  # noqa: F401  a fixture

import tenfold as ten
from tenfold.core.errors import UserError
from tenfold.engines.resident import Group
from tenfold.runs.checkpoint import Checkpoints, checkpoint_steps
from tenfold.runs.folder import RunFolder, read_settings, write_settings
from tenfold.runs.metrics import read_rows
from tenfold.training import seed_batch
from tenfold.training.loop import train
from tenfold.training.run_group import resume_seeds, train_seeds

STEPS = 16


def small(**more: Any) -> Any:
    given = {"engine": "resident", "steps": STEPS, "eval_every": 8, "eval_episodes": 1}
    return a_run(**(given | {"eval_steps": 12} | more))


def contents(path: Path) -> dict[str, Any]:
    """The last checkpoint's arrays, and the metrics without their timing."""
    folder, run = RunFolder.open(path)
    arrays, rows, note, complaints = Checkpoints(folder, run.keep).latest()
    assert complaints == [] and note["step"] == run.steps and rows
    # sums of statistics: launches of another length add them up in another order
    found: dict[str, Any] = {
        name: np.ascontiguousarray(array).tobytes()
        for name, array in arrays.items()
        if "sums" not in name
    }
    left_out = ("timing", "loss", "q", "td_error", "grad_norm")
    found["metrics"] = [
        {name: value for name, value in row.items() if name not in left_out}
        for row in read_rows(path / "metrics.jsonl")
    ]
    best = path / "checkpoints" / "best.safetensors"
    found["best"] = Checkpoints(folder, run.keep).policy("best")[1] if best.exists() else None
    return found


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        allow_anywhere(patch)
        path = tmp_path_factory.mktemp("seeds") / "three"
        result = train_seeds(small(), (0, 3, 5), path, quiet=True)
    assert result.seeds == (0, 3, 5) and not result.interrupted and not result.failed
    return result.path


@pytest.fixture
def three(anywhere: None, trained: Path) -> Path:  # noqa: F811
    return trained


def test_every_seed_is_the_run_it_would_be_alone(three: Path, tmp_path: Path) -> None:
    for seed in (3, 5):
        train(small(seed=seed), tmp_path / f"alone-{seed}", quiet=True)
        assert contents(tmp_path / f"alone-{seed}") == contents(three / f"seed-{seed}")
    assert contents(three / "seed-0") != contents(three / "seed-3")
    assert contents(three / "seed-3")["best"] is not None
    assert {row["kind"] for row in contents(three / "seed-3")["metrics"]} == {
        "train",
        "eval",
        "episode",
    }


def test_all_seeds_are_told_of_as_one(three: Path) -> None:
    page = (three / "report.html").read_text()
    assert "interquartile mean of 3 seeds" in page and f"tenfold report {three}/seed-N" in page
    assert not (three / "seed-0" / "report.html").exists()
    summary = json.loads((three / "summary.json").read_text())
    assert {own["step"] for own in summary["seeds"].values()} == {STEPS}
    about = json.loads((three / "seed-5" / "run.json").read_text())
    assert about["sessions"][0]["engine"].startswith("resident")


def test_one_launch_serves_all_seeds(
    anywhere: None,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, sizes = Group.run, []
    monkeypatch.setattr(
        Group, "run", lambda self, most: sizes.append(len(self.learners)) or run(self, most)
    )
    train_seeds(small(steps=8), 3, tmp_path / "all", quiet=True)
    assert set(sizes) == {3}
    sizes.clear()
    train_seeds(small(steps=8), 3, tmp_path / "pairs", jobs=2, quiet=True)
    assert set(sizes) == {2, 1}


def stop_after(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    run = Group.run

    def stopping(self: Group, most: int) -> int:
        done = run(self, min(most, 3))
        if self.learners[0].step >= step:
            signal.raise_signal(signal.SIGINT)
        return done

    monkeypatch.setattr(Group, "run", stopping)


def test_seeds_that_were_stopped_go_on_as_if_they_never_had_been(
    three: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        stop_after(patch, 6)
        result = train_seeds(small(), (0, 3, 5), tmp_path / "cut", quiet=True)
    assert result.interrupted == signal.SIGINT
    assert result.saved == {"seed 0": 6, "seed 3": 6, "seed 5": 6}
    resume_seeds(tmp_path / "cut", quiet=True)
    for seed in (0, 3, 5):
        assert contents(tmp_path / "cut" / f"seed-{seed}") == contents(three / f"seed-{seed}")


def test_seeds_that_were_killed_at_different_steps_go_on_in_groups(
    three: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One was saved, one was saved later, one never was."""
    monkeypatch.setattr(seed_batch, "CHECKPOINT_EVERY", 0.0)
    train_seeds(small(), (0, 3, 5), tmp_path / "cut", quiet=True)
    first, second = (tmp_path / "cut" / f"seed-{seed}" / "checkpoints" for seed in (0, 3))
    assert checkpoint_steps(first.parent) == [8, 16]
    sorted(first.glob("step-*"))[-1].unlink()
    for checkpoint in second.glob("*.safetensors"):
        checkpoint.unlink()
    run, met = Group.run, set()

    def watched(self: Group, most: int) -> int:
        met.add((len(self.learners), self.learners[0].step))
        return run(self, most)

    monkeypatch.setattr(Group, "run", watched)
    resume_seeds(tmp_path / "cut", quiet=True)
    assert {(1, 0), (1, 8)} <= met and all(size == 1 for size, _ in met)
    for seed in (0, 3, 5):
        assert contents(tmp_path / "cut" / f"seed-{seed}") == contents(three / f"seed-{seed}")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, inside the interpreter
def test_a_seed_that_diverges_does_not_take_the_others_along(
    three: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Group.run

    def spoiled(self: Group, most: int) -> int:
        done = run(self, most)
        self.runs.arrays.block[1, 0, :3] = np.nan  # type: ignore[attr-defined]
        return done

    monkeypatch.setattr(Group, "run", spoiled)
    result = train_seeds(small(), (0, 3, 5), tmp_path / "many", quiet=True)
    assert list(result.failed) == ["seed 3"]
    assert "The loss is no longer finite at step" in result.failed["seed 3"]
    assert "seed 3: The loss is no longer finite" in " ".join(capsys.readouterr().err.split())
    for seed in (0, 5):
        assert contents(tmp_path / "many" / f"seed-{seed}") == contents(three / f"seed-{seed}")
    assert (tmp_path / "many" / "report.html").exists()


def test_a_seed_that_has_another_learning_rate_by_now_goes_on_at_its_own(
    anywhere: None,  # noqa: F811
    tmp_path: Path,
) -> None:
    """Its settings were changed between two resumes; a launch has one rate for all its seeds."""
    train_seeds(small(steps=8), (0, 3), tmp_path / "many", quiet=True)
    slower = tmp_path / "many" / "seed-3"
    run = read_settings(slower)
    write_settings(slower, replace(run, agent=replace(run.agent, lr=0.0)))
    before = ten.load(slower).online.flat.clone()
    resume_seeds(tmp_path / "many", STEPS, quiet=True)
    rows = [row for row in read_rows(slower / "metrics.jsonl") if row["kind"] == "train"]
    assert rows[-1]["updates"] == 10
    assert torch.equal(ten.load(slower).online.flat, before)
    train(small(), tmp_path / "alone", quiet=True)
    assert np.array_equal(
        ten.load(tmp_path / "many" / "seed-0").online.flat,
        ten.load(tmp_path / "alone").online.flat,
    )


def test_checkpoints_at_intervals_are_left_out_where_the_last_is_recent(
    three: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert checkpoint_steps(three / "seed-0") == [STEPS]
    monkeypatch.setattr(seed_batch, "CHECKPOINT_EVERY", 0.0)
    train_seeds(small(keep=9), (0,), tmp_path / "often", quiet=True)
    assert checkpoint_steps(tmp_path / "often" / "seed-0") == [8, 16]


def test_more_seeds_than_the_device_has_room_for_are_refused_before_anything_starts(
    anywhere: None,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    here: Callable[..., Any],
) -> None:
    monkeypatch.setattr(seed_batch, "free_bytes", lambda device: 2**20)
    with pytest.raises(UserError) as refused:
        train_seeds(small(), 64, tmp_path / "many", quiet=True)
    words = str(refused.value)
    assert "A seed takes 0.1 MiB on the GPU" in words and "of 64 seeds: train so many" in words
    fitting = int(words.split("--jobs ")[1].rstrip("."))
    assert f"enough for {fitting} of 64" in words and 1 <= fitting < 64
    assert not (tmp_path / "many").exists()
    monkeypatch.setattr(seed_batch, "free_bytes", lambda device: 100)
    with pytest.raises(UserError, match=r"enough for 0 of 2 seeds: lower agent\.capacity"):
        train_seeds(small(), 2, tmp_path / "many", quiet=True)


def test_what_the_engine_does_not_fit_is_refused_and_leaves_nothing(
    anywhere: None,  # noqa: F811
    here: Callable[..., Any],
    tmp_path: Path,
) -> None:
    asked = ["train", "dqn", "--seeds", "3", "--engine", "resident", "--out", "many"]
    done = here(*asked, "--env", "CartPole-v1")
    assert done.returncode == 2 and "engine = resident does not fit" in done.stderr
    done = here(*asked, "--env", "tenfold/CartPole-v1", "--device", "cuda")
    assert done.returncode == 2 and "sees no CUDA device here" in done.stderr
    assert not (tmp_path / "many").exists()


@pytest.mark.usefixtures("anywhere")
def test_kernels_that_do_not_compile_are_told_of_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(seeds: Any) -> None:
        raise RuntimeError("no such instruction")

    monkeypatch.setattr(
        "tenfold.algorithms.kernels.dqn_resident_runs.ResidentDQNRuns.warm_up", refuse
    )
    with pytest.raises(UserError, match=r"resident does not fit.*no such instruction"):
        train_seeds(small(), (0, 1), tmp_path / "seeds", quiet=True)
    assert not (tmp_path / "seeds").exists()


@pytest.mark.cuda
def test_on_a_gpu_seeds_together_are_what_each_is_alone_and_resume_exactly(tmp_path: Path) -> None:
    given = {"device": "cuda", "steps": 3000, "eval_every": 1000, "log_every": 500}
    run = small(**given, eval_steps=None, checkpoint_every=1000)
    train_seeds(run, 4, tmp_path / "four", quiet=True)
    alone = small(**given, eval_steps=None, checkpoint_every=1000, seed=2)
    train(alone, tmp_path / "alone", quiet=True)
    assert contents(tmp_path / "alone") == contents(tmp_path / "four" / "seed-2")
    half = small(**given | {"steps": 1500}, eval_steps=None, checkpoint_every=1000)
    train_seeds(half, 4, tmp_path / "half", quiet=True)
    resume_seeds(tmp_path / "half", 3000, quiet=True)
    halves = contents(tmp_path / "half" / "seed-2")
    whole = contents(tmp_path / "four" / "seed-2")
    assert all(halves[name] == whole[name] for name in whole if name != "metrics")


@pytest.mark.slow
def test_a_sweep_trains_the_seeds_of_a_trial_together(
    anywhere: None,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From rung to rung, and each is the run it would be alone."""
    from tenfold.runs.seeds import SeedsFolder
    from tenfold.training import trials
    from tenfold.training.sweep import sweep

    cohorts, train_together = [], trials.train_together

    def noted(many: Any, *more: Any) -> Any:
        cohorts.append((many.path.name, [member.name for member in many.members]))
        return train_together(many, *more)

    monkeypatch.setattr(trials, "train_together", noted)
    search = {"agent.lr": "log(1e-4, 1e-2)"}
    found = sweep(small(), search, 2, (0, 3), tmp_path / "s", confirm=0, quiet=True)
    assert [row["state"] for row in found.results["trials"]] == ["complete", "complete"]
    both = ["seed 0", "seed 3"]
    assert cohorts == [(f"trial-{number}", both) for number in (0, 0, 1, 1)]
    run = SeedsFolder.open(tmp_path / "s" / "trial-1").run_of(3)
    train(run, tmp_path / "alone", quiet=True)
    assert contents(tmp_path / "alone") == contents(tmp_path / "s" / "trial-1" / "seed-3")


def test_seeds_together_begin_with_the_weights_of_another_run(three: Path, tmp_path: Path) -> None:
    """Alone or together, and never those of their own seeds."""
    source, run = three / "seed-3", small(seed=1, agent={"learning_starts": STEPS})
    many = train_seeds(run, (1, 2), tmp_path / "many", quiet=True, init=source)
    alone = train(run, tmp_path / "alone", quiet=True, init=source)
    given = {path: weights(path) for path in (source, many.path / "seed-2", alone.path)}
    assert (given[source] == given[alone.path]).all()  # it ended before it learned
    assert (given[source] == given[many.path / "seed-2"]).all()
    about = json.loads((many.path / "seed-2" / "run.json").read_text())["init"]
    assert about["path"] == str(source.absolute()) and about["step"] == STEPS


def weights(path: Path) -> np.ndarray:
    folder, run = RunFolder.open(path)
    return Checkpoints(folder, run.keep).policy("last")[0]["online"].numpy()

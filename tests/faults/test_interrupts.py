"""Signals and disks: the state is kept, the previous checkpoint stays, and the resume command is
printed."""

import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from tenfold.cli.main import main
from tenfold.core.errors import CheckpointError
from tenfold.runs.checkpoint import Checkpoints
from tenfold.runs.folder import RunFolder
from tenfold.training.loop import resume, train

LONG = [
    "train",
    "dqn",
    "--steps",
    "1M",
    "--agent.learning-starts",
    "100",
    "--agent.capacity",
    "5k",
    "--eval-every",
    "0",
    "--checkpoint-every",
    "100",
    "--log-every",
    "100",
    "--out",
    "run",
]


def wait_for(condition, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGINT, 130),
        pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow),
        pytest.param(signal.SIGHUP, 129, marks=pytest.mark.slow),
    ],
)
def test_a_signal_saves_and_prints_the_resume_command(
    number: signal.Signals, code: int, begin, tmp_path: Path
) -> None:
    process = begin(*LONG, "--checkpoint-every", "0")
    wait_for(lambda: (tmp_path / "run" / "metrics.jsonl").exists())
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    assert "Go on with: tenfold resume run" in out and "Traceback" not in err
    folder, run = RunFolder.open(tmp_path / "run")
    step = Checkpoints(folder, run.keep).latest()[2]["step"]
    assert step > 0
    assert resume(tmp_path / "run", step + 50, quiet=True).step == step + 50


@pytest.mark.parametrize(
    "delay",
    [pytest.param(0.0, marks=pytest.mark.slow), 0.05, pytest.param(0.2, marks=pytest.mark.slow)],
)
def test_ctrl_c_during_checkpoints_leaves_a_run_that_resumes(
    delay: float, begin, tmp_path: Path
) -> None:
    process = begin(*LONG, "--checkpoint-every", "1")  # it does little else
    wait_for(lambda: list((tmp_path / "run" / "checkpoints").glob("step-*")))
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in err
    folder, run = RunFolder.open(tmp_path / "run")
    _, _, note, complaints = Checkpoints(folder, run.keep).latest()
    assert complaints == []
    assert not list((tmp_path / "run").rglob("*.tmp"))
    assert resume(tmp_path / "run", note["step"] + 20, quiet=True).step == note["step"] + 20


def test_ctrl_c_before_the_first_step_ends_quietly(begin, tmp_path: Path) -> None:
    process = begin(*LONG)
    wait_for(lambda: (tmp_path / "run" / "run.json").exists())
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in err
    assert "tenfold resume run" in out or "stopped" in err


# damaged files


def damage(path: Path, how: str) -> None:
    content = bytearray(path.read_bytes())
    if how == "truncated":
        path.write_bytes(content[: len(content) // 2])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "foreign":
        path.write_bytes(b"not a checkpoint at all")
    elif how == "missing":
        path.unlink()
    else:
        content[
            {
                "first bit": 0,
                "header bit": 40,
                "middle bit": len(content) // 2,
                "last bit": len(content) - 1,
            }[how]
        ] ^= 4
        path.write_bytes(content)


HOW = ["truncated", "empty", "foreign", "first bit", "header bit", "middle bit", "last bit"]


@pytest.mark.parametrize("how", HOW)
def test_a_damaged_checkpoint_is_set_aside_and_the_previous_one_used(
    how: str, finished_once: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(finished_once, tmp_path / "run")
    newest = tmp_path / "run" / "checkpoints" / "step-000000000600.safetensors"
    damage(newest, how)
    result = resume(tmp_path / "run")
    said = capsys.readouterr().err
    assert "Note: " in said and newest.name in said and "set aside" in said
    assert result.step == 600
    folder, _ = RunFolder.open(tmp_path / "run")
    other, _ = RunFolder.open(finished_once)
    repaired, intact = Checkpoints(folder, 2).read(600)[0], Checkpoints(other, 2).read(600)[0]
    assert {k: v.tolist() for k, v in repaired.items()} == {
        k: v.tolist() for k, v in intact.items()
    }


@pytest.mark.parametrize("how", [*HOW, "missing"])
def test_damaged_replay_rows_are_noticed_too(
    how: str, finished_once: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(finished_once, tmp_path / "run")
    damage(tmp_path / "run" / "replay" / "rows-000000000600.safetensors", how)
    assert resume(tmp_path / "run").step == 600
    assert "rows-000000000600.safetensors" in capsys.readouterr().err


def test_when_nothing_is_whole_the_error_says_so(finished_once: Path, tmp_path: Path) -> None:
    shutil.copytree(finished_once, tmp_path / "run")
    for path in (tmp_path / "run" / "checkpoints").glob("step-*"):
        damage(path, "last bit")  # of the arrays; the middle may lie in the header
    with pytest.raises(
        CheckpointError, match=r"No checkpoint of .* is whole: .* do not match their checksum"
    ):
        resume(tmp_path / "run", quiet=True)
    # left for a person to look at
    assert len(list((tmp_path / "run" / "checkpoints").glob("step-*.safetensors"))) == 2


def test_a_checkpoint_of_another_run_is_refused(
    small_run, finished_once: Path, tmp_path: Path
) -> None:
    shutil.copytree(finished_once, tmp_path / "run")
    train(small_run(seed=9), tmp_path / "other", quiet=True)
    for path in (tmp_path / "other" / "checkpoints").glob("step-*"):
        (tmp_path / "run" / "checkpoints" / path.name).write_bytes(path.read_bytes())
    with pytest.raises(CheckpointError, match="belongs to another run or another step"):
        resume(tmp_path / "run", quiet=True)


# full disks


def test_a_full_disk_does_not_end_the_run_and_the_previous_checkpoint_stays(
    begin, tmp_path: Path
) -> None:
    """Files are limited to 24 KB, as if the disk were full: early checkpoints fit, later ones (more
    rows) do not."""
    command = [
        "--steps",
        "3000",
        "--agent.every",
        "50",
        "--agent.net.hidden",
        "4",
        "--agent.capacity",
        "12k",
        "--log-every",
        "500",
        "--checkpoint-every",
        "1000",
    ]
    process = begin(*LONG, *command, largest=24_000)
    _, err = process.communicate(timeout=120)
    assert "Warning: cannot save a checkpoint at step" in err and "training goes on" in err
    assert process.returncode == 2 and "Traceback" not in err
    assert "the end of the run could not be saved" in err and "step 3,000" in err
    assert main(["train", "dqn", "--out", str(tmp_path / "run")]) == 2  # the folder is still a run


def test_a_failed_save_leaves_the_previous_checkpoint_as_it_was(
    small_run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = os.fsync
    saves = []

    def full(descriptor: int) -> None:
        if "step-" in os.readlink(f"/proc/self/fd/{descriptor}"):
            saves.append(descriptor)
            if len(saves) == 3:  # at steps 0, 200 and 400
                raise OSError(28, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    result = train(small_run(), tmp_path / "run")
    said = capsys.readouterr().err
    assert (
        "Warning: cannot save a checkpoint at step 400 (No space left on device); training goes on"
        in said
    )
    assert not result.unsaved and not list((tmp_path / "run").rglob("*.tmp"))
    names = sorted(p.name for p in (tmp_path / "run" / "checkpoints").glob("step-*"))
    assert names == ["step-000000000200.safetensors", "step-000000000600.safetensors"]
    folder, _ = RunFolder.open(tmp_path / "run")
    assert Checkpoints(folder, 2).read(200) and Checkpoints(folder, 2).read(600)


def test_metrics_wait_in_memory_while_the_disk_is_full(small_run, tmp_path: Path) -> None:
    from tenfold.runs.metrics import Metrics

    folder = RunFolder.create(tmp_path / "run", small_run())
    metrics = Metrics(folder)
    metrics.path = Path("/dev/full")
    metrics.add({"kind": "episode", "step": 1, "env": 0, "return": 1.0, "length": 1})
    metrics.flush()
    assert "No space left on device" in metrics.complaint and len(metrics.waiting) == 1
    metrics.path = folder.metrics
    metrics.flush()
    metrics.close()
    assert metrics.waiting == [] and folder.metrics.read_text().count("\n") == 1

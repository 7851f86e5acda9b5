"""Two processes never write into one run's folder."""

import signal
import time
from pathlib import Path

import pytest

from tenfold.cli.main import main
from tenfold.core.errors import UserError
from tenfold.runs.folder import RunFolder
from tenfold.runs.seeds import SeedsFolder
from tenfold.runs.storage import LOCK, FolderLock
from tenfold.training.learners import load
from tenfold.training.loop import resume, train

WORDS = "is being trained by another process"


@pytest.fixture
def finished(tmp_path: Path, small_run) -> Path:
    train(small_run(), tmp_path / "run", quiet=True)
    return tmp_path / "run"


def test_a_run_that_trains_is_neither_resumed_nor_replaced_and_is_free_once_its_process_is_killed(
    begin, tmp_path: Path, small_run
) -> None:
    settings = [
        "--steps",
        "10M",
        "--agent.learning-starts",
        "100",
        "--agent.capacity",
        "5k",
        "--eval-every",
        "0",
        "--log-every",
        "100",
    ]
    process = begin("train", "dqn", *settings, "--out", "run", "--quiet")
    run, deadline = tmp_path / "run", time.monotonic() + 120
    while not (run / "metrics.jsonl").exists():
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.02)
    identity = (run / "run.json").read_text()
    with pytest.raises(UserError, match=WORDS):
        resume(run, quiet=True)
    with pytest.raises(UserError, match=WORDS):
        train(small_run(), run, overwrite=True, quiet=True)
    assert (run / "run.json").read_text() == identity and [p.name for p in tmp_path.iterdir()] == [
        "run"
    ]
    assert main(["report", str(run)]) == 0 and load(run)  # looking is not writing
    assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert train(small_run(), run, overwrite=True, quiet=True).step == 600


def test_a_finished_run_is_free_and_one_claimed_is_refused(finished: Path) -> None:
    assert (finished / LOCK).exists()
    assert resume(finished, 700, quiet=True).step == 700
    with RunFolder.open(finished)[0], pytest.raises(UserError, match=WORDS):
        resume(finished, 800, quiet=True)
    assert resume(finished, 800, quiet=True).step == 800


def test_a_folder_replaced_while_it_was_being_claimed_counts_as_taken(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    real = fcntl.flock

    def replaced(handle: int, how: int) -> None:
        real(handle, how)
        (finished / LOCK).unlink()
        (finished / LOCK).touch()

    monkeypatch.setattr(fcntl, "flock", replaced)
    with pytest.raises(UserError, match=WORDS):
        FolderLock(finished)


def test_many_seeds_are_kept_together_and_each_by_itself(
    finished: Path, small_run, capsys: pytest.CaptureFixture[str]
) -> None:
    many = finished.parent / "many"
    folder = SeedsFolder.create(many, small_run(), (0, 1))
    assert main(["resume", str(many)]) == 2 and WORDS in capsys.readouterr().err
    with pytest.raises(UserError, match=WORDS):
        SeedsFolder.create(many, small_run(), (0, 1), overwrite=True)
    del folder  # its lock goes with it
    finished.rename(many / "seed-0")
    with FolderLock(many / "seed-0"), pytest.raises(UserError, match=f"seed-0 {WORDS}"):
        SeedsFolder.create(many, small_run(), (0, 1), overwrite=True)
    assert (many / "seed-0" / "run.json").exists()
    SeedsFolder.create(many, small_run(), (0, 1), overwrite=True)
    assert not (many / "seed-0").exists()

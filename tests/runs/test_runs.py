"""Where a run goes that was not told where, and which one is the latest."""

import json
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

import pytest

from tenfold.config.files import named
from tenfold.config.run import Run
from tenfold.runs.folder import RunFolder, is_run, runs_below
from tenfold.runs.seeds import SeedsFolder
from tenfold.runs.storage import Numbered, install, latest
from tenfold.training import loop as training
from tenfold.training import run_group

# whose name in the package is its function's
comparing = import_module("tenfold.domains.dynamics.compare")
QUICK = ("--steps", "20", "--eval-every", "0", "--agent.net.hidden", "8", "--quiet")


def test_the_same_command_twice_makes_two_runs_and_the_latest_is_the_second(
    here, tmp_path: Path
) -> None:
    assert here("train", "dqn", *QUICK).returncode == 0
    again = here("train", "dqn", *QUICK, "--seed", "3")
    assert again.returncode == 0 and "results: runs/dqn-CartPole-v1-2 " in again.stdout
    # relative: the folder can be moved
    assert os.readlink(tmp_path / "runs" / "latest") == "dqn-CartPole-v1-2"
    assert RunFolder.open(Path("runs/dqn-CartPole-v1-2"))[1].seed == 3
    # the link is no run
    assert sorted(map(str, runs_below(Path("runs")))) == [
        "runs/dqn-CartPole-v1",
        "runs/dqn-CartPole-v1-2",
    ]
    assert here("report").stdout == "runs/dqn-CartPole-v1-2/report.html\n"
    first = json.loads(Path("runs/dqn-CartPole-v1/run.json").read_text())["id"]
    assert here("train", "dqn", *QUICK, "--overwrite").returncode == 0
    assert (
        json.loads(Path("runs/dqn-CartPole-v1/run.json").read_text())["id"] != first
        and not Path("runs/dqn-CartPole-v1-3").exists()
    )
    assert latest() == Path("runs/dqn-CartPole-v1")
    assert here("resume", "runs/dqn-CartPole-v1-2", "--steps", "30", "--quiet").returncode == 0
    assert latest() == Path("runs/dqn-CartPole-v1-2")  # also a run that goes on


def test_of_two_that_start_at_once_one_gets_the_next_number(tmp_path: Path) -> None:
    def fill(made: Path) -> None:
        (made / "mine").touch()
        if not (tmp_path / "run").exists():  # meanwhile another process was faster
            (tmp_path / "run").mkdir()
            (tmp_path / "run" / "theirs").touch()

    path, lock = install(Numbered(tmp_path / "run"), fill)
    lock.release()
    assert (
        path == tmp_path / "run-2"
        and (path / "mine").exists()
        and not (tmp_path / "run" / "mine").exists()
    )
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run", "run-2"]


def test_many_seeds_are_one_run_for_the_latest(
    tmp_path: Path, small_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folders = [
        SeedsFolder.create(Numbered(Path("runs/many")), small_run(), (0, 1)) for _ in range(2)
    ]
    assert [folder.path for folder in folders] == [Path("runs/many"), Path("runs/many-2")]
    # an earlier experiment's member starts later
    RunFolder.create(folders[0].member(0), small_run()).__exit__()
    assert latest() == Path("runs/many-2")


def test_a_folder_that_is_taken_is_refused_before_anything_is_compiled(
    finished_once: Path,
    tmp_path: Path,
    small_run: Callable[..., Run],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def compiling(*_: object) -> None:
        raise AssertionError("compiled")

    for module in (training, run_group):
        monkeypatch.setattr(module, "open_learner", compiling)
    before = (finished_once / "run.json").read_bytes()
    with pytest.raises(training.UserError, match="holds a run already"):
        training.train(small_run(), finished_once)
    with pytest.raises(training.UserError, match="holds a run already"):
        run_group.train_seeds(small_run(), 2, finished_once)
    with pytest.raises(training.UserError, match="is no comparison"):
        comparing.compare(named("limit-cycle"), ("zero",), 2, finished_once)
    with (
        RunFolder.open(finished_once)[0],
        pytest.raises(training.UserError, match="is being trained by another process"),
    ):
        training.train(small_run(), finished_once, overwrite=True)
    assert (finished_once / "run.json").read_bytes() == before


def test_threads_get_folders_of_their_own(
    tmp_path: Path, small_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    waiting = threading.Barrier(3)

    def make(_: int) -> Path:
        return install(Numbered(Path("runs/one")), lambda made: waiting.wait(10) and None)[0]

    with ThreadPoolExecutor(3) as pool:
        assert sorted(pool.map(make, range(3))) == [
            Path("runs/one"),
            Path("runs/one-2"),
            Path("runs/one-3"),
        ]


def test_where_links_cannot_be_made_there_is_none(
    tmp_path: Path, small_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Path, "symlink_to", refuse)
    RunFolder.create(Numbered(Path("runs/a")), small_run()).__exit__()
    assert (
        is_run(Path("runs/a"))
        and latest() is None
        and sorted(p.name for p in Path("runs").iterdir()) == ["a"]
    )


def test_work_through_the_link_stays_where_it_began(
    tmp_path: Path, small_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    RunFolder.create(Numbered(Path("runs/a")), small_run()).__exit__()
    opened = RunFolder.open(Path("runs/latest"))[0]
    RunFolder.create(Numbered(Path("runs/b")), small_run()).__exit__()  # turns the link
    assert opened.path == Path("runs/a") and RunFolder.open(Path("runs/latest"))[0].path == Path(
        "runs/b"
    )


def test_a_comparison_goes_on_in_its_folder_and_one_of_other_settings_gets_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    target = Numbered(Path("runs/compare"))

    def opened(run: Run) -> Path:
        path, lock = comparing.open_folder(
            comparing.comparison_folder(target, run, False), run, ("zero",), False
        )
        lock.release()
        return path

    usual, other = named("limit-cycle"), named("limit-cycle", {"seed": 3})
    assert [opened(run) for run in (usual, usual, other, usual, other)] == [
        Path("runs/compare"),
        Path("runs/compare"),
        Path("runs/compare-2"),
        Path("runs/compare"),
        Path("runs/compare-2"),
    ]

"""Signals wherever they come: one line and the right exit code; children that end with their parent
and leave nothing behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tenfold.cli.closing import finish, finish_seeds, stopped
from tenfold.cli.main import main
from tenfold.config.run import Run
from tenfold.core import processes
from tenfold.core.processes import Interrupt, enter
from tenfold.domains.dynamics.learner import ExplorerLearner
from tenfold.training import learners, session
from tenfold.training import loop as training
from tenfold.training.worker_pool import Pool

HOME = str(Path(training.__file__).parents[2])


def wait_for(condition: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


def heeds(pid: int) -> bool:
    """Whether a process has a handler for SIGTERM, which the first lines of tenfold install."""
    caught = next(
        line
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith("SigCgt")
    )
    return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)


@pytest.mark.parametrize(
    ("number", "code", "delay"),
    [
        (signal.SIGINT, 130, 0.0),
        (signal.SIGTERM, 143, 0.1),
        pytest.param(signal.SIGINT, 130, 0.5, marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, 143, 1.0, marks=pytest.mark.slow),
        pytest.param(signal.SIGHUP, 129, 0.3, marks=pytest.mark.slow),
    ],
)
def test_a_signal_while_modules_are_imported_is_one_line(
    number: int, code: int, delay: float, tmp_path: Path
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tenfold", "train", "cartpole"],
        cwd=tmp_path,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": HOME},
    )
    wait_for(lambda: heeds(process.pid))
    time.sleep(delay)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (
        code,
        "",
        "tenfold: stopped; what was saved before is untouched.\n",
    )
    assert list(tmp_path.iterdir()) == []


LATE = """
import os, signal, sys
from tenfold.__main__ import main
class Late:
    def __del__(self, kill=os.kill, own=os.getpid(), number=signal.{name}):
        kill(own, number)
late = Late()
sys.argv = ["tenfold", "--version"]
sys.exit(main())
"""


@pytest.mark.parametrize(
    "name", ["SIGINT", "SIGTERM", pytest.param("SIGHUP", marks=pytest.mark.slow)]
)
def test_a_signal_when_all_is_done_changes_no_exit_code(name: str) -> None:
    """While Python takes its modules apart, signals have their default effect again."""
    done = subprocess.run(
        [sys.executable, "-c", LATE.replace("{name}", name)],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"PYTHONPATH": HOME},
    )
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("tenfold")


def test_an_explorer_that_is_stopped_before_its_first_step_has_nothing_to_draw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        ExplorerLearner, "round", lambda place, until: signal.raise_signal(signal.SIGINT) or []
    )
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert (
            main(
                [
                    "train",
                    "limit-cycle",
                    "--steps",
                    "50",
                    "--eval-every",
                    "0",
                    "--out",
                    "run",
                    "--quiet",
                ]
            )
            == 130
        )
    finally:
        signal.signal(signal.SIGINT, before)
    assert (
        capsys.readouterr().out == "Stopped at step 0 and saved. Go on with: tenfold resume run\n"
    )
    assert (tmp_path / "run" / "report.html").exists() and not (
        tmp_path / "run" / "portrait.safetensors"
    ).exists()


def test_a_signal_while_kernels_compile_stops_at_once_and_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """There is nothing to save yet, and compiling takes long."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(learners, "warm_up", lambda *given: signal.raise_signal(signal.SIGINT))
    # ignored in a shell's background
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert (
            main(["train", "dqn", "--agent.net.hidden", "8", "--out", "run", "--steps", "10"])
            == 130
        )
    finally:
        signal.signal(signal.SIGINT, before)
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == (
        "",
        "tenfold: stopped; what was saved before is untouched.\n",
    ) and not Path("run").exists()


@pytest.fixture
def heard() -> Iterator[list[int]]:
    """Signals that somebody outside would have heeded."""
    found: list[int] = []
    before = {
        number: signal.signal(number, lambda number, frame: found.append(number))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    yield found
    for number, handler in before.items():
        signal.signal(number, handler)


def test_the_first_signal_is_noted_and_the_second_is_left_to_whoever_heeded_them_before(
    heard: list[int],
) -> None:
    told = []
    with Interrupt(lambda: told.append(1)) as interrupt:
        signal.raise_signal(signal.SIGTERM)
        assert (interrupt.signal, told, heard) == (signal.SIGTERM, [1], [])
        signal.raise_signal(signal.SIGINT)
        assert (interrupt.signal, told, heard) == (signal.SIGTERM, [1], [signal.SIGINT])
    signal.raise_signal(signal.SIGINT)
    assert heard == [signal.SIGINT] * 2
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # nobody heeded it: the default would end a process that has children
    with pytest.raises(KeyboardInterrupt), Interrupt():
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)


def test_a_closed_terminal_is_a_first_signal_however_often_it_is_told_of(heard: list[int]) -> None:
    """A shell and the kernel both send SIGHUP."""
    with Interrupt() as interrupt:
        signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGHUP)
        assert (interrupt.signal, heard) == (signal.SIGHUP, [])
        signal.raise_signal(signal.SIGINT)
        assert heard == [signal.SIGINT]


def test_what_nohup_starts_outlives_its_terminal(heard: list[int]) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with Interrupt() as interrupt:
        signal.raise_signal(signal.SIGHUP)
    assert (interrupt.signal, heard) == (0, [])
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    handler = signal.getsignal(signal.SIGTERM)
    try:
        enter(signal.SIG_DFL, lambda: None)  # of a child's process
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, handler)


def test_a_stop_that_takes_long_says_that_a_second_one_ends_it(
    heard: list[int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An environment that never comes out of its step."""
    monkeypatch.setattr(processes, "HINT_AFTER", 0.0)
    for number, again in ((signal.SIGINT, "Ctrl-C again"), (signal.SIGTERM, "a second signal")):
        told: list[str] = []
        with Interrupt():
            signal.raise_signal(number)
            wait_for(lambda: told.append(capsys.readouterr().err) or told[-1])  # noqa: B023
        assert told[-1] == (
            f"tenfold: stopping after the step under way, to save; {again} ends it at once, with "
            "what was saved before.\n"
        )


def test_a_signal_while_the_report_is_written_is_told_and_the_run_is_finished(
    small_run: Callable[..., Run],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(session, "write_report", lambda *given: signal.raise_signal(signal.SIGTERM))
    result = training.train(small_run(steps=100), tmp_path / "run", quiet=True)
    assert finish(result) == 143
    assert capsys.readouterr().out == (
        f"Stopped at step 100, the last one, and saved: the run is finished. Results: {tmp_path / 'run'}\n"
    )


def test_many_runs_that_were_stopped_name_the_steps_they_go_on_from(
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = SimpleNamespace(interrupted=2, path="many", saved={"seed 0": 1200, "seed 3": 0})
    assert finish_seeds(result) == 130
    assert (
        capsys.readouterr().out
        == "Stopped and saved: seed 0 at step 1,200, seed 3 at step 0. Go on with: tenfold resume many\n"
    )
    assert stopped({}) == "Stopped before anything was saved."
    assert (
        stopped({f"seed {i}": 100 * i for i in range(9)})
        == "Stopped and saved: 9 runs at steps 0 to 800."
    )


# processes that work through tasks


def deed(what: str, path: str) -> tuple[str, int]:
    """A task in a worker's process."""
    with open(path, "a") as file:
        file.write(f"{what}\n")
    if what == "fails":
        return "the disk is full", 0
    if what in ("is killed", "is stopped", "leaves"):
        # the other worker has begun, however busy the machine is
        while "waits" not in Path(path).read_text():
            time.sleep(0.01)
    if what == "is killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "is stopped":  # by somebody else than its parent, and saves
        return "", signal.SIGTERM
    if what == "leaves":
        os.kill(os.getpid(), signal.SIGTERM)
    if what == "waits":
        with Interrupt() as interrupt:
            while not interrupt.signal:
                time.sleep(0.01)
        return "", interrupt.signal
    if what == "calls its parent":
        os.kill(os.getppid(), signal.SIGINT)
        time.sleep(30)
    return "", 0


def work_through(
    path: Path, *deeds: str, workers: int = 1
) -> tuple[int, dict[int, str], list[str]]:
    """The signal, the errors, and which tasks were begun."""
    pool = Pool(deed, [(what, str(path / "begun")) for what in deeds])
    stopped_by = pool.run(workers, lambda done: None)
    return stopped_by, pool.errors, (path / "begun").read_text().split("\n")[:-1]


def test_workers_do_all_tasks_and_name_the_one_that_failed(tmp_path: Path) -> None:
    assert work_through(tmp_path, "a", "b", "c", "fails", "d") == (
        0,
        {3: "the disk is full"},
        ["a", "b", "c", "fails"],
    )


@pytest.mark.parametrize(
    ("what", "error"),
    [
        ("is killed", "its process was killed by SIGKILL"),
        pytest.param("is stopped", "its process was stopped by SIGTERM", marks=pytest.mark.slow),
        pytest.param("leaves", "its process was stopped by SIGTERM", marks=pytest.mark.slow),
    ],
)
def test_a_worker_that_is_lost_is_named_and_the_others_are_told_to_stop(
    what: str, error: str, tmp_path: Path
) -> None:
    stopped_by, errors, begun = work_through(tmp_path, "waits", what, "d", workers=2)
    assert (stopped_by, errors, sorted(begun)) == (0, {1: error}, sorted(["waits", what]))


@pytest.mark.usefixtures("spawned")  # whoever forks is no parent that could be called
def test_a_signal_stops_all_workers_and_is_no_error(tmp_path: Path) -> None:
    assert work_through(tmp_path, "calls its parent", "d") == (
        signal.SIGINT,
        {},
        ["calls its parent"],
    )


PARENT = """
import os, signal, sys, time
if __name__ == "__mp_main__":  # the child reads this script, as it would one that imports much
    print(os.getpid(), flush=True)
    time.sleep(100)

if __name__ == "__main__":
    from tenfold.training.worker_pool import Worker
    Worker(0, print)
    time.sleep(100)
"""


def test_a_child_that_is_still_importing_dies_with_its_parent_and_leaves_no_name(
    tmp_path: Path,
) -> None:
    (tmp_path / "parent.py").write_text(PARENT)
    process = subprocess.Popen(
        [sys.executable, "parent.py"],
        cwd=tmp_path,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": HOME},
        start_new_session=True,
    )
    assert process.stdout
    child = int(process.stdout.readline())
    named = [
        line
        for pid in (process.pid, child)
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines()
        if "/dev/shm" in line
    ]
    process.kill()
    # returns when the tracker, which holds the pipes too, is gone
    _, err = process.communicate(timeout=60)
    wait_for(lambda: not Path(f"/proc/{child}").exists(), 5)
    assert err == "" and named == []

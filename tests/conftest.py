"""Shared by all tests: one thread, a run that takes a moment, the command line, pictures left out,
processes that start at once, files that nobody waits for, and the slowest files."""

import fcntl
import gc
import multiprocessing
import os
import select
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from multiprocessing import forkserver
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import unsynced  # noqa: F401
from kernels import forget_stale_kernels
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from unpainted import DRAW, STREAMS

from tenfold.algorithms.dqn_settings import DQN
from tenfold.cli.main import main
from tenfold.config.networks import Net
from tenfold.config.run import Run
from tenfold.training.loop import train

torch.set_num_threads(1)
if (
    not torch.cuda.is_available()
):  # Triton's functions are interpreted: here, and in what is started
    os.environ["TRITON_INTERPRET"] = "1"
    import interpreted  # noqa: F401
# what is kept for a user is kept for the tests' own
os.environ["XDG_STATE_HOME"] = str(Path(tempfile.gettempdir()) / f"tenfold-state-{os.getuid()}")
gc.disable()  # until all tests are imported

COLLECTING = ExitStack()
if "PYTEST_XDIST_WORKER" not in os.environ:
    forget_stale_kernels()
else:  # one worker imports all tests, and compiles what was never imported; then the others do
    lock = COLLECTING.enter_context(open(__file__))  # noqa: SIM115
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        fcntl.flock(lock, fcntl.LOCK_SH)


@pytest.fixture
def pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that look at what is drawn."""
    monkeypatch.setattr(Figure, "savefig", DRAW)
    monkeypatch.setattr(Axes, "streamplot", STREAMS)


# Importing torch is most of a short process's time. Processes that the package starts in a test are
# forked from one that has imported everything; they are given memory and pipes and have ids,
# signals and ends as ever. They are spawned where a test asks for `spawned`, and in commands that
# are processes of their own.
CONTEXT, FORKS = multiprocessing.get_context, multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["forked"])


def forked_where_spawned(method: str | None = None) -> Any:
    if method != "spawn":
        return CONTEXT(method)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
        forkserver.ensure_running()
    return FORKS


multiprocessing.get_context = forked_where_spawned


@pytest.fixture
def spawned(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of how processes start."""
    monkeypatch.setattr(multiprocessing, "get_context", CONTEXT)


# The first file compiles nearly all kernels; meanwhile the others run what needs none of them, or
# only their own. Of the rest those that take ten seconds and more come first, so that none is left
# to a single worker at the end.
ORDER = (
    "core/test_pairs",
    "domains/atari",
    "domains/durotaxis/test_durotaxis_arguments",
    "integrations/",
    "engines/test_compiled",
    "runs/",
    "test_architecture",
    "config/test_config",
    "domains/durotaxis",
    "algorithms/test_graph",
    "core/test_graph",
    "faults/test_processes",
    "device/test_cudagraph",
    "device/test_resident_group",
    "docs/test_extending",
    "training/test_sweep",
    "algorithms/test_nested_masks",
    "domains/mujoco",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whole files in this order, and then from the one with most tests to the one with fewest:
    `--no-loadscope-reorder` keeps it."""
    files = Counter(item.path for item in items)
    home = Path(__file__).parent

    def place(item: pytest.Item) -> tuple[int, int, str]:
        name = str(item.path.relative_to(home))
        return (
            next((k for k, start in enumerate(ORDER) if name.startswith(start)), len(ORDER)),
            -files[item.path],
            name,
        )

    items.sort(key=place)


def pytest_collection_finish() -> None:
    """What is imported by now stays, and need not be looked through for garbage again and again."""
    COLLECTING.close()
    gc.freeze()
    gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The ten slowest files of a run of many, over all workers: where the next minute can be
    saved."""
    seconds: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if hasattr(report, "duration"):
                seconds[report.nodeid.partition("::")[0]] += report.duration
    if len(seconds) > 10:
        terminalreporter.section("slowest files")
        for name, total in seconds.most_common(10):
            terminalreporter.line(f"{total:7.1f} s  {name}")


@pytest.fixture(scope="session")
def small_run() -> Callable[..., Run]:
    """CartPole for a moment: every part runs, checkpoints and evaluations included."""

    def make(agent: dict[str, object] | None = None, **changes: object) -> Run:
        settings = {
            "batch_size": 8,
            "learning_starts": 50,
            "every": 4,
            "capacity": 400,
            "net": Net(hidden=(16,)),
        } | (agent or {})
        base = {
            "env": "CartPole-v1",
            "steps": 600,
            "eval_every": 200,
            "eval_episodes": 2,
            "checkpoint_every": 200,
            "log_every": 70,
        }
        return Run(agent=DQN(**settings), **(base | changes))  # type: ignore[arg-type]

    return make


@pytest.fixture(scope="session")
def finished_once(small_run: Callable[..., Run], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of such a run, for tests that copy it."""
    path = tmp_path_factory.mktemp("finished") / "run"
    train(small_run(), path, quiet=True)
    return path


@pytest.fixture
def sleeps(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, bool]]:
    """Each time this process went to sleep over bells and pipes: for how many milliseconds at most,
    and whether it was woken. Who asks again and again would do so without end; this can be counted
    on a busy machine too, where no time can be told."""
    counted: list[tuple[float, bool]] = []

    class Poll:
        def __init__(self) -> None:
            self.poll_object = select.poll()
            self.register = self.poll_object.register

        def poll(self, most: float | None) -> list[tuple[int, int]]:
            ready = self.poll_object.poll(most)
            counted.append((float("inf") if most is None else most, bool(ready)))
            return ready

    monkeypatch.setattr(
        "tenfold.memory.shared.select", SimpleNamespace(poll=Poll, POLLIN=select.POLLIN)
    )
    return counted


@pytest.fixture(name="tenfold")
def command_line(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`tenfold ARGUMENTS…` as a user would type it, in a folder of its own."""

    def run(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [Path(sys.executable).parent / "tenfold", *arguments],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=os.environ | {"COLUMNS": "200"},
            timeout=300,
            **options,
        )  # type: ignore[call-overload]

    return run


class Command:
    """Such a command under way, forked: what the tests need of `subprocess.Popen`."""

    def __init__(self, arguments: tuple[str, ...], folder: Path, words: Path, largest: int) -> None:
        import forked  # which calls a kernel: after the stale ones are gone

        self.words, self.process = (
            words,
            multiprocessing.get_context("spawn").Process(
                target=forked.command, args=(arguments, folder, words, largest)
            ),
        )
        self.process.start()
        self.pid = self.process.pid

    @property
    def returncode(self) -> int | None:
        return self.process.exitcode

    def poll(self) -> int | None:
        return self.process.exitcode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def communicate(self, timeout: float = 120) -> tuple[str, str]:
        self.process.join(timeout)
        assert self.returncode is not None, "it goes on and on"
        return (self.words / "out").read_text(), (self.words / "err").read_text()


@pytest.fixture
def begin(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Command]]:
    """Begins a command in a session of its own and lets the test go on beside it. Where its imports
    are not what is tested."""
    begun: list[Command] = []

    def start(*arguments: str, largest: int = 0) -> Command:
        begun.append(Command(arguments, tmp_path, tmp_path_factory.mktemp("words"), largest))
        return begun[-1]

    yield start
    for command in begun:
        command.process.kill()
        command.process.join()
        command.process.close()


@pytest.fixture
def here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The same in this process, where the seconds of a new one would protect nothing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        capsys.readouterr()
        code = main([str(word) for word in arguments])
        shown = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, code, shown.out, shown.err)

    return run

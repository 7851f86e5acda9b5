"""Actors that die, hang or raise, and learners that are stopped: a sentence or another actor,
nothing left behind, and resume works."""

import contextlib
import gc
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing import forkserver
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import pytest
import torch

from tenfold.actors import actor, process_pool
from tenfold.actors.actor_process import ActorProcess
from tenfold.actors.process_pool import ProcessPool
from tenfold.actors.remote import RESTARTS
from tenfold.cli.main import main
from tenfold.config.run import Run
from tenfold.core import processes as watch
from tenfold.core import system
from tenfold.core.errors import UserError
from tenfold.runs.checkpoint import Checkpoints
from tenfold.runs.folder import RunFolder
from tenfold.runs.metrics import Metrics, read_rows
from tenfold.training import loop as training
from tenfold.training.learners import make_learner
from tenfold.training.recorder import Recorder

COMMON = [
    "--actors",
    "2",
    "--where",
    "processes",
    "--eval-every",
    "0",
    "--log-every",
    "50",
    "--checkpoint-every",
    "100",
    "--out",
    "run",
]
DQN = [
    "train",
    "dqn",
    "--env",
    "CartPole-v1",
    "--agent.learning-starts",
    "60",
    "--agent.capacity",
    "2k",
    "--agent.net.hidden",
    "16",
    "--agent.batch-size",
    "8",
    *COMMON,
]
PPO = [
    "train",
    "ppo",
    "--env",
    "CartPole-v1",
    "--agent.horizon",
    "16",
    "--agent.net.hidden",
    "16",
    "--num-envs",
    "1",
    "--agent.minibatches",
    "2",
    *COMMON,
]
KINDS = {
    "dqn, synchronous": [*DQN, "--ahead", "0"],
    "dqn, asynchronous": [*DQN, "--ahead", "4"],
    "ppo": PPO,
}
LONG, SHORT = ["--steps", "1M"], ["--steps", "400"]

TROUBLE = """
import multiprocessing, os, time
import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv

class Trouble(CartPoleEnv):
    '''CartPole with a flaw that shows only in the process of actor `only`.'''

    def __init__(self, flaw="none", only=1, after=40):
        super().__init__()
        self.here = multiprocessing.current_process().name == f"actor {only}"
        self.flaw, self.after, self.count = flaw, after, 0
        if self.here and flaw == "broken constructor":
            raise RuntimeError("no licence for this simulator")
        if (self.here and flaw == "stuck constructor") or flaw == "stuck everywhere":
            time.sleep(1000)

    def step(self, action):
        self.count += 1
        obs, reward, *rest = super().step(action)
        if self.flaw == "blind":
            obs = obs * 0 + 0
        if self.flaw == "slow":
            time.sleep(0.05)
        if self.here and self.count == self.after:
            if self.flaw == "raises":
                raise ZeroDivisionError("the physics broke")
            if self.flaw == "hangs":
                time.sleep(1000)
            if self.flaw == "nan":
                reward = float("nan")
            if self.flaw == "leaves":
                os._exit(7)
        return obs, reward, *rest

    def reset(self, **options):
        obs, info = super().reset(**options)
        return (obs * 0 + 0 if self.flaw == "blind" else obs), info

gym.register("Trouble-v0", Trouble, max_episode_steps=500)
"""


def open_files() -> dict[str, str]:
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[name] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue  # the listing itself
    return found


def shared_files() -> set[str]:
    """Names in /dev/shm; semaphores of multiprocessing are other people's, since actors have
    none."""
    return {name for name in os.listdir("/dev/shm") if not name.startswith("sem.mp-")}


def processes_of(session: int) -> dict[int, str]:
    """The commands of all living processes of a session, by id."""
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            state, _, _, own = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[:4]
            if int(own) == session and state != "Z":
                found[int(name)] = Path(f"/proc/{name}/cmdline").read_text().replace("\0", " ")
        except OSError:
            continue  # it ended meanwhile
    return found


def actors_of(parent: int, words: str = "spawn_main") -> list[int]:
    """Actors' processes that were started, imported or not."""
    return [
        pid
        for pid, command in processes_of(os.getsid(parent)).items()
        if pid != parent
        and words in command
        and Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1] == str(parent)
    ]


def wait_for(condition: Callable[[], Any], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """After each test: no actor, no shared memory, no open file more than before."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(Path(training.__file__).parents[2]), str(tmp_path)])
    )
    (tmp_path / "trouble.py").write_text(TROUBLE)
    multiprocessing.get_context("spawn")  # what actors are forked from is there before
    before, memory = open_files(), shared_files()
    yield
    sys.modules.pop("trouble", None)
    gymnasium.registry.pop("Trouble-v0", None)
    gc.collect()
    assert (
        actors_of(os.getpid())
        == actors_of(forkserver._forkserver._forkserver_pid, "forkserver")
        == []
    )
    assert shared_files() <= memory
    extra = [target for name, target in open_files().items() if name not in before]
    assert not [
        target
        for target in extra
        if "memfd:" in target or "eventfd" in target or "socket:" in target or "pipe:" in target
    ], extra


def whenever(
    monkeypatch: pytest.MonkeyPatch, what: str, act: Callable[[ProcessPool, int], object]
) -> None:
    """Calls `act` with the crew and a count from 1 before every `log` or `save` of the run."""
    real, calls = getattr(Recorder, what), []

    def hooked(self: Recorder) -> object:
        calls.append(self)
        assert isinstance(self.learner.pool, ProcessPool)
        act(self.learner.pool, len(calls))
        return real(self)

    monkeypatch.setattr(Recorder, what, hooked)


def strike(crew: ProcessPool, index: int) -> None:
    os.kill(crew.children[index].process.pid, signal.SIGKILL)


def last_step(path: Path) -> int:
    folder, run = RunFolder.open(path)
    return Checkpoints(folder, run.keep).latest()[2]["step"]


def goes_on(path: Path) -> None:
    step = last_step(path)
    assert main(["resume", str(path), "--steps", str(step + 60), "--quiet"]) == 0
    assert last_step(path) >= step + 60


# actors that are killed


@pytest.mark.parametrize(
    "kind",
    [
        "dqn, asynchronous",
        pytest.param("dqn, synchronous", marks=pytest.mark.slow),
        pytest.param("ppo", marks=pytest.mark.slow),
    ],
)
def test_a_killed_actor_ends_the_run_with_its_name_and_the_way_on(
    kind: str,
    sleeps: list[tuple[float, bool]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with monkeypatch.context() as patch:
        whenever(patch, "log", lambda crew, count: count == 3 and strike(crew, 1))
        assert main([*KINDS[kind], *LONG, "--quiet"]) == 2
    # never waited until the patience with one that is silent was over
    assert sleeps and all(woken for most, woken in sleeps if most > 2000)
    said = capsys.readouterr().err
    assert said == (
        "tenfold: Actor 1 was killed by SIGKILL: the run stops. `tenfold resume run` goes on from the last "
        "checkpoint.\n"
    )
    goes_on(tmp_path / "run")


@pytest.mark.parametrize(
    "kind",
    [
        "dqn, asynchronous",
        pytest.param("dqn, synchronous", marks=pytest.mark.slow),
        pytest.param("ppo", marks=pytest.mark.slow),
    ],
)
def test_a_killed_actor_is_replaced_and_the_run_reaches_its_end(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One dies at work; then one dies while a checkpoint is made, and of Q-learning's its successor
    while it starts."""
    started = []
    real = ActorProcess.start

    def start(self: ActorProcess, *given: Any) -> None:
        real(self, *given)
        started.append(self.channel.index)
        if kind != "ppo" and self.channel.index == 0 and started.count(0) == 2:
            os.kill(self.process.pid, signal.SIGKILL)

    monkeypatch.setattr(ActorProcess, "start", start)
    whenever(monkeypatch, "log", lambda crew, count: count == 2 and strike(crew, 1))
    whenever(monkeypatch, "save", lambda crew, count: count == 3 and strike(crew, 0))
    assert main([*KINDS[kind], *SHORT, "--on-death", "restart"]) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if "SIGKILL" in line]
    again = 1 if kind == "ppo" else 2
    assert [("actor 1" in line, "actor 0" in line) for line in said] == [(True, False)] + [
        (False, True)
    ] * again
    assert all(
        line.startswith("Warning: at step ")
        and line.endswith("was killed by SIGKILL; another takes its place; training goes on.")
        for line in said
    )
    assert started.count(1) == 2 and started.count(0) == 1 + again
    assert last_step(tmp_path / "run") >= 400


def test_an_actor_that_dies_again_and_again_ends_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real, started = ActorProcess.start, []

    def start(self: ActorProcess, *given: Any) -> None:
        real(self, *given)
        started.append(self.channel.index)
        if self.channel.index == 0:
            os.kill(self.process.pid, signal.SIGKILL)

    monkeypatch.setattr(ActorProcess, "start", start)
    assert main([*DQN, *LONG, "--actors", "1", "--on-death", "restart", "--quiet"]) == 2
    assert (
        capsys.readouterr().err
        == "tenfold: Actor 0 was killed by SIGKILL, the 4th time without a step: the run stops.\n"
    )
    assert len(started) == RESTARTS + 1 and not Path("run").exists()


# environments that fail


@pytest.mark.parametrize(
    ("flaw", "sentence"),
    [
        (
            "raises",
            "Actor 1 stopped: trouble:Trouble-v0(flaw=raises), environment 1, episode 1, step 10: step raised ZeroDivisionError",
        ),
        pytest.param(
            "nan",
            "Actor 0 stopped: trouble:Trouble-v0(flaw=nan, only=0), environment 0, episode",
            marks=pytest.mark.slow,
        ),
        (
            "hangs",
            "Actor 0 has not finished a step of trouble:Trouble-v0(flaw=hangs, only=0) in 1 s (the environment hangs, or needs a larger",
        ),
        (
            "broken constructor",
            "Actor 0 stopped: trouble:Trouble-v0(flaw=broken constructor, only=0) cannot be made: RuntimeError: no licence for",
        ),
        (
            "stuck constructor",
            "Actor 0 has not made trouble:Trouble-v0(flaw=stuck constructor, only=0) in 1 s",
        ),
        pytest.param(
            "leaves", "Actor 0 ended with exit code 7: the run stops.", marks=pytest.mark.slow
        ),
    ],
)
def test_an_environment_that_fails_in_one_actor_is_named(
    flaw: str,
    sentence: str,
    sleeps: list[tuple[float, bool]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of two in the first case; where it changes nothing there is one, and half as much to
    start."""
    crowd = [] if flaw == "raises" else ["--actors", "1"]
    if flaw in ("hangs", "stuck constructor"):
        monkeypatch.setattr(
            process_pool, "MAKING", 1.0 if flaw == "stuck constructor" else process_pool.MAKING
        )
        crowd += ["--patience", "1"]
    env = f"trouble:Trouble-v0(flaw={flaw}{', only=0' * bool(crowd)})"
    assert main([*DQN, *LONG, *crowd, "--env", env, "--quiet"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"tenfold: {sentence}"), said
    assert (
        ".:" not in said
        and said.count("\n") == 1
        and ("in trouble.py, line" in said) == (flaw == "raises")
    )
    # nobody waited for the end of the 120 s that actors are given to start
    assert sleeps and all(woken for most, woken in sleeps if most > 2000)
    if flaw == "nan":
        assert "the reward is not finite" in said


@pytest.mark.parametrize("where", ["processes", "auto"])
def test_an_environment_that_hangs_before_any_actor_starts_is_named(
    where: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(actor, "MAKING", 0.5)
    monkeypatch.setattr(ActorProcess, "start", lambda *given: pytest.fail("a child was started"))
    assert (
        main(
            [
                *DQN,
                *LONG,
                "--env",
                "trouble:Trouble-v0(flaw=stuck everywhere)",
                "--patience",
                "1.5",
                "--where",
                where,
                "--quiet",
            ]
        )
        == 2
    )
    assert capsys.readouterr().err == (
        "tenfold: trouble:Trouble-v0(flaw=stuck everywhere) was not made in 1.5 s (the environment hangs, "
        "or needs a larger --patience).\n"
    )
    assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL and not Path("run").exists()


def test_a_time_limit_holds_where_everything_is_caught() -> None:
    slept = []
    with (
        pytest.raises(UserError, match=r"it was not made in 0.1 s"),
        watch.within(0.1, "it was not made"),
    ):
        for _ in range(2):
            with contextlib.suppress(BaseException):
                time.sleep(30)
                slept.append("to its end")
        time.sleep(30)
    assert not slept
    with watch.within(0.05, "too late"):
        pass
    time.sleep(0.1)  # what ended in time is left alone


@pytest.mark.parametrize("what", ["save", pytest.param("log", marks=pytest.mark.slow)])
def test_an_actor_that_hangs_while_a_checkpoint_is_made_is_named(
    what: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whenever(
        monkeypatch,
        what,
        lambda crew, count: count == 2 and os.kill(crew.children[0].process.pid, signal.SIGSTOP),
    )
    assert main([*DQN, *LONG, "--actors", "1", "--patience", "1", "--quiet"]) == 2
    assert "Actor 0 has not finished a step of CartPole-v1 in 1 s" in capsys.readouterr().err


def test_an_actors_first_step_has_time_to_load_kernels() -> None:
    crew = ProcessPool.__new__(ProcessPool)
    crew.run = Run(patience=4.0)
    crew.children = [SimpleNamespace(warm=warm) for warm in (False, True)]  # type: ignore[list-item]
    assert [crew.patience(SimpleNamespace(index=index)) for index in (0, 1)] == [actor.MAKING, 4.0]  # type: ignore[arg-type]


def test_a_learner_busy_for_longer_than_the_patience_blames_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whenever(monkeypatch, "log", lambda crew, count: count == 2 and time.sleep(5))
    assert (
        main(
            [*DQN, "--actors", "1", "--steps", "120", "--ahead", "0", "--patience", "4", "--quiet"]
        )
        == 0
    )


def test_observations_that_are_all_identical_are_refused_before_the_first_update(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert (
        main([*DQN, *LONG, "--actors", "1", "--env", "trouble:Trouble-v0(flaw=blind)", "--quiet"])
        == 2
    )
    said = capsys.readouterr().err
    assert (
        "All observations of the first" in said
        and "observations 0 to 0, deviation 0; rewards 1 to 1" in said
    )


def test_too_little_shared_memory_is_said_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(system, "room", lambda: (30_000_000, "in this container"))
    monkeypatch.setattr(ActorProcess, "start", lambda *given: pytest.fail("a child was started"))
    assert main([*DQN, *LONG, "--ahead", "200k", "--quiet"]) == 2
    said = capsys.readouterr().err
    assert re.search(
        r"needs 1[78]\d,\d{3},\d{3} bytes and 30,000,000 are free in this container", said
    )
    assert not Path("run").exists()


def test_a_full_disk_for_metrics_does_not_stop_actors(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real, calls = Metrics.flush, []

    def flush(self: Metrics) -> int:
        calls.append(self)
        path = self.path
        if 2 <= len(calls) <= 4:
            self.path = Path("/dev/full")
        try:
            return real(self)
        finally:
            self.path = path

    monkeypatch.setattr(Metrics, "flush", flush)
    assert main([*DQN, "--actors", "1", "--steps", "300", "--quiet"]) == 0
    assert (
        "Warning: metrics cannot be written (No space left on device); training goes on."
        in capsys.readouterr().err
    )
    assert last_step(Path("run")) >= 300
    # none was lost
    assert sum(row["kind"] == "train" for row in read_rows(Path("run/metrics.jsonl"))) == 6


def test_whoever_waits_is_asleep(sleeps: list[tuple[float, bool]]) -> None:
    place = make_learner(
        Run.of(
            {
                "env": "trouble:Trouble-v0(flaw=slow)",
                "where": "processes",
                "steps": 1000,
                "ahead": 2,
                "num_envs": 1,
                "agent": {"name": "dqn", "learning_starts": 900, "net": {"hidden": [16]}},
            }
        )
    )
    try:
        assert isinstance(place.pool, ProcessPool)
        for _ in range(10):
            place.round()
        sleeps.clear()
        for _ in range(20):  # the environment takes 50 ms a step
            place.round()
        assert 5 <= len(sleeps) <= 40 and all(woken for _, woken in sleeps)
        (link,), (child,) = place.pool.remotes, place.pool.children
        wait_for(lambda: link.ring.available() == 2)  # as far ahead as the actor may be
        status = Path(f"/proc/{child.process.pid}/status")

        def told(what: str) -> str:
            return re.search(rf"^{what}:\s*(\S+)", status.read_text(), re.MULTILINE)[1]

        wait_for(lambda: told("State") == "S")
        before = int(told("voluntary_ctxt_switches"))
        for _ in range(20):
            time.sleep(0.02)
            assert told("State") == "S"
        # who looks every hundredth of a second would have woken forty times
        assert int(told("voluntary_ctxt_switches")) - before <= 5
    finally:
        place.close()


# the whole run is stopped


@pytest.fixture
def begin_anew(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Runs as users begin them, in a session of their own; afterwards no process of it may be
    there."""
    begun: list[subprocess.Popen[str]] = []

    def start(*command: str, program: tuple[str, ...] = ("-m", "tenfold")) -> subprocess.Popen[str]:
        begun.append(
            subprocess.Popen(
                [sys.executable, *program, *command],
                cwd=tmp_path,
                text=True,
                start_new_session=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        )
        return begun[-1]

    yield start
    for process in begun:
        left = processes_of(process.pid)
        if left:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        assert left == {}


def trained(path: Path) -> dict[str, Any]:
    folder, run = RunFolder.open(path)
    return Checkpoints(folder, run.keep).latest()[0]


def test_a_killed_learner_takes_its_actors_along(
    begin_anew: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    process = begin_anew(*DQN, *LONG)
    wait_for(lambda: len(list((tmp_path / "run" / "checkpoints").glob("step-*"))) > 1)
    assert len(actors_of(process.pid)) == 2
    process.kill()
    wait_for(lambda: not processes_of(process.pid), 2)
    goes_on(tmp_path / "run")


@pytest.mark.slow
def test_a_learner_killed_while_actors_import_takes_them_along(
    begin_anew: Callable[..., subprocess.Popen[str]],
) -> None:
    process = begin_anew(*DQN, *LONG)
    wait_for(lambda: len(actors_of(process.pid)) == 2)
    time.sleep(0.5)  # in which a child becomes Python, and no more
    process.kill()
    wait_for(lambda: not processes_of(process.pid), 1)


@pytest.mark.parametrize(
    ("number", "code", "when"),
    [
        pytest.param(signal.SIGINT, 130, "at work", marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, 130, "starting", marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, 143, "at work", marks=pytest.mark.slow),
        (signal.SIGTERM, 143, "saving"),
        pytest.param(signal.SIGINT, 130, "saving", marks=pytest.mark.slow),
    ],
)
def test_a_signal_to_the_whole_group_saves_and_the_run_goes_on_bit_for_bit(
    number: signal.Signals, code: int, when: str, begin: Callable[..., Any], tmp_path: Path
) -> None:
    command = [*DQN, "--ahead", "0", *(["--checkpoint-every", "2"] if when == "saving" else [])]
    process = begin(*command, *LONG)
    if when == "starting":
        wait_for(lambda: len(actors_of(process.pid)) == 2)
    else:
        wait_for(lambda: (tmp_path / "run" / "metrics.jsonl").exists())
    os.killpg(process.pid, number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code and "Traceback" not in err, err
    wait_for(lambda: not processes_of(process.pid), 10)
    if when == "starting":  # nothing to save yet
        assert (
            out == ""
            and err == "tenfold: stopped; what was saved before is untouched.\n"
            and not (tmp_path / "run").exists()
        )
        return
    step = last_step(tmp_path / "run")
    assert out == f"Stopped at step {step:,} and saved. Go on with: tenfold resume run\n"
    assert step > 0 and not list((tmp_path / "run").rglob("*.tmp"))
    end = str(step + 100)
    assert main(["resume", "run", "--steps", end, "--quiet"]) == 0
    assert (
        main(
            [
                *command,
                "--steps",
                end,
                "--where",
                "serial",
                "--out",
                "straight",
                "--checkpoint-every",
                "0",
                "--quiet",
            ]
        )
        == 0
    )
    found, expected = trained(tmp_path / "run"), trained(tmp_path / "straight")
    for name in expected:
        assert torch.equal(torch.as_tensor(found[name]), torch.as_tensor(expected[name])), name


@pytest.mark.slow  # that a second one is not waited for is in test_signals.py
def test_a_second_ctrl_c_stops_at_once(
    begin_anew: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    """Also where an actor hangs, so that the first would wait for it."""
    process = begin_anew(
        *DQN, *LONG, "--env", "trouble:Trouble-v0(flaw=hangs, only=0, after=70)", "--actors", "1"
    )
    wait_for(lambda: (tmp_path / "run" / "metrics.jsonl").exists())
    time.sleep(0.5)
    os.killpg(process.pid, signal.SIGINT)
    time.sleep(0.3)
    assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=50)  # less than the patience with an actor that is silent
    assert (
        process.returncode == 130
        and "stopped; what was saved before is untouched" in err
        and "Traceback" not in err
    )


def test_a_script_without_a_guard_gets_a_sentence_and_no_endless_spawn(
    begin_anew: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    (tmp_path / "script.py").write_text(
        "import tenfold as ten\n"
        "open('read', 'a').write('x')\n"
        "ten.train(ten.Run(env='CartPole-v1', where='processes', actors=2, steps=1000), out='run', quiet=True)\n"
    )
    process = begin_anew(program=("script.py",))
    _, err = process.communicate(timeout=100)
    assert process.returncode == 1 and not (tmp_path / "run").exists()
    assert (
        err.strip()
        .splitlines()[-1]
        .endswith(
            'every one of them reads the script: put what it does below `if __name__ == "__main__":`.'
        )
    )
    assert (tmp_path / "read").read_text() == "x", "a process was started, and read the script"

"""Processes that step environments and die, hang or raise, and a run that is killed with them: a
sentence, nothing left behind, and it goes on in one process bit for bit."""

import gc
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing import spawn
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from test_processes import open_files, processes_of, wait_for

from tenfold.actors import split_envs
from tenfold.actors.child_process import ActorLost, ChildProcess
from tenfold.actors.split_envs import SplitEnvironments
from tenfold.cli.main import main
from tenfold.core import processes
from tenfold.runs.checkpoint import checkpoint_steps
from tenfold.runs.storage import read_arrays
from tenfold.training.recorder import Recorder

FLAWED = """
import multiprocessing, os, time
import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv

class Flawed(CartPoleEnv):
    '''CartPole with a flaw in its 330th step, later than a try lasts, which shows in worker 1 alone
    unless it raises.'''

    def __init__(self, flaw=""):
        super().__init__()
        self.here = multiprocessing.current_process().name == "worker 1"
        self.flaw, self.count = flaw, 0

    def step(self, action):
        self.count += 1
        if self.flaw == "raises" and self.count == 330:
            raise ZeroDivisionError("the physics broke")
        if self.here and self.count == 330:
            if self.flaw == "hangs":
                time.sleep(1000)
            if self.flaw == "leaves":
                os._exit(7)
        return super().step(action)

gym.register("Flawed-v0", Flawed, max_episode_steps=200)
"""
LONG, SPLIT, SERIAL = ("--steps", "100k"), ("--env-threads", "2"), ("--env-threads", "1")


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "flawed.py").write_text(FLAWED)
    multiprocessing.get_context("spawn")
    before = open_files()
    yield
    sys.modules.pop("flawed", None)
    gymnasium.registry.pop("Flawed-v0", None)
    gc.collect()
    left = [target for name, target in open_files().items() if name not in before]
    assert not [one for one in left if re.search(r"memfd:|eventfd|socket:|pipe:", one)]


def command(*more: str, flaw: str = "", out: str = "run") -> list[str]:
    env = f"flawed:Flawed-v0(flaw={flaw})" if flaw else "CartPole-v1"
    usual = "--num-envs 4 --agent.horizon 16 --agent.net.hidden 8 --eval-every 0 --log-every 64"
    every = "--checkpoint-every 64 --quiet"
    return ["train", "ppo", "--env", env, *usual.split(), *every.split(), "--out", out, *more]


def last_arrays(path: Path) -> dict[str, np.ndarray]:
    step = checkpoint_steps(path)[-1]
    return read_arrays(path / "checkpoints" / f"step-{step:012d}.safetensors")[0]


def goes_on_like_one_process(steps: int) -> None:
    """The run goes on in one process, to what such a run comes to that was never split."""
    end = ["--steps", str(steps)]
    assert main(["resume", "run", *end, *SERIAL, "--quiet"]) == 0
    assert main(command(*end, *SERIAL, out="straight")) == 0
    arrays, expected = last_arrays(Path("run")), last_arrays(Path("straight"))
    assert arrays.keys() == expected.keys()
    for name, array in expected.items():
        assert array.tobytes() == arrays[name].tobytes(), name


def test_a_killed_process_ends_the_run_with_the_way_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real, logs = Recorder.log, []

    def log(self: Recorder) -> Any:
        logs.append(self)
        envs: Any = self.learner
        envs = envs.envs
        assert isinstance(envs, SplitEnvironments)
        if len(logs) == 3:
            os.kill(envs.children[1].process.pid, signal.SIGKILL)
        return real(self)

    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "log", log)
        assert main(command(*LONG, *SPLIT)) == 2
    assert capsys.readouterr().err == (
        "tenfold: The process that steps environments 2 to 3 was killed by SIGKILL: the run stops. "
        "`tenfold resume run` goes on from the last checkpoint.\n"
    )
    goes_on_like_one_process(checkpoint_steps(Path("run"))[-1] + 128)


@pytest.mark.parametrize(
    ("flaw", "sentence"),
    [
        ("leaves", "ended with exit code 7"),
        (
            "hangs",
            r"has not finished a step of flawed:Flawed-v0\(flaw=hangs\) in 1 s \(the environment "
            r"hangs, or needs a larger --patience\)",
        ),
    ],
)
def test_a_process_that_ends_or_hangs_is_told_in_one_sentence(
    flaw: str, sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(split_envs, "MAKING", 0.5)
    assert main(command(*LONG, *SPLIT, "--patience", "0.5", flaw=flaw)) == 2
    expected = f"tenfold: The process that steps environments 2 to 3 {sentence}: the run stops. "
    assert re.fullmatch(expected + "`tenfold resume run` .*\n", capsys.readouterr().err)


def test_an_environment_that_raises_ends_the_run_as_in_one_process(
    capsys: pytest.CaptureFixture[str],
) -> None:
    told = []
    for out, where in (("serial", SERIAL), ("split", SPLIT)):
        assert main(command(*LONG, *where, flaw="raises", out=out)) == 2
        about = json.loads((Path(out) / "run.json").read_text())["sessions"][-1]
        assert ("by 2 processes" in about["where"]) == (out == "split")
        told.append((capsys.readouterr().err, about["failed"], checkpoint_steps(Path(out))))
    assert told[0] == told[1]
    assert re.fullmatch(
        r"tenfold: .*, environment 0, episode \d+, step \d+: step raised ZeroDivisionError: the physics "
        r"broke in flawed.py, line \d+\.\n",
        told[0][0],
    ), told


def test_a_killed_run_takes_its_processes_along_and_goes_on_in_one(
    begin: Callable[..., Any],
) -> None:
    process = begin(*command(*LONG, *SPLIT))
    wait_for(lambda: len(checkpoint_steps(Path("run"))) > 1)
    assert sum("spawn_main" in words for words in processes_of(process.pid).values()) >= 2
    process.send_signal(signal.SIGKILL)
    wait_for(lambda: not processes_of(process.pid), 5)
    time.sleep(0.1)
    goes_on_like_one_process(checkpoint_steps(Path("run"))[-1] + 64)


SCRIPT = """
import tenfold as ten
open("read", "a").write("x")
run = ten.Run(env="CartPole-v1", num_envs=2, env_threads=2, steps=64, eval_every=0, agent=ten.PPO(horizon=16))
ten.train(run, out="run", quiet=True)
"""


@pytest.mark.parametrize(
    ("script", "guard"),
    [
        (SCRIPT, False),
        ("import logging\nlog = logging.getLogger(__name__)", False),
        ("def f():\n    if __name__ == '__main__':\n        pass", False),
        ("x = 1\nif __name__ == '__main__':\n    print(x)", True),
        ('if x and "__main__" == __name__:\n    f()', True),
        ("this is no Python", False),
        ("PK\0", False),
        (None, True),
    ],
)
def test_processes_read_a_program_only_behind_its_guard(
    script: str | None, guard: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without one they do without it: it would train in each of them."""
    program, starts = SimpleNamespace(__spec__=None), list[bool]()
    if script is not None:
        program.__file__ = str(tmp_path / "program.py")
        (tmp_path / "program.py").write_text(script)
    monkeypatch.setitem(sys.modules, "__main__", program)

    def start(self: ChildProcess, *arguments: Any, reads_script: bool) -> None:
        starts.append(reads_script)
        with processes.spawning(reads_script):
            read = "init_main_from_path" in spawn.get_preparation_data("child")
        assert read == (guard and script is not None)
        raise ActorLost("was not started")

    with monkeypatch.context() as patch:
        patch.setattr(ChildProcess, "start", start)
        assert main(command("--steps", "64", *SPLIT)) == 0
    assert starts == [guard]


@pytest.mark.slow
def test_a_program_without_a_guard_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    place = os.environ | {"PYTHONPATH": str(Path(split_envs.__file__).parents[2])}
    subprocess.run([sys.executable, "script.py"], check=True, env=place)
    assert (tmp_path / "read").read_text() == "x"
    (about,) = json.loads((tmp_path / "run" / "run.json").read_text())["sessions"]
    assert about["where"] == "environments stepped by 2 processes: as asked"

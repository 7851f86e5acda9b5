"""Updates of wide networks are shared by threads, and no number depends on how many: odd widths and
batches, more threads than cores."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tenfold as ten
from tenfold.config.networks import ActorCriticNet
from tenfold.config.run import Run
from tenfold.core import threads as module
from tenfold.core.system import set_threads
from tenfold.core.threads import NUMBER, UPDATES, set_team_limit
from tenfold.core.work import ALL, DONE, NO_TEAM, THREADS
from tenfold.engines import fused
from tenfold.ops.split_mlp import are_wide
from tenfold.runs.checkpoint import checkpoint_steps
from tenfold.runs.storage import read_arrays
from tenfold.training.learners import make_learner

PENDULUM, CARTPOLE = "tenfold/Pendulum-v1", "tenfold/CartPole-v1"
BATCH = {"batch_size": 101, "learning_starts": 110, "capacity": 400}
# an environment, an agent's options, its hidden layers
CASES: dict[str, tuple[str, dict[str, Any], tuple[int, ...]]] = {
    "sac": (PENDULUM, {"name": "sac", **BATCH, "batch_size": 96}, (256, 256)),
    "sac, tanh": (PENDULUM, {"name": "sac", **BATCH}, (150, 193, 7, 40)),
    "sac, discrete": (CARTPOLE, {"name": "sac", **BATCH, "replay": "prioritized"}, (193, 193)),
    "td3": (PENDULUM, {"name": "td3", **BATCH, "normalize_obs": True}, (193, 193)),
    "dqn": (CARTPOLE, {"name": "dqn", **BATCH, "distribution": "none"}, (256, 193)),
    "dqn, everything": (
        CARTPOLE,
        {"name": "dqn", **BATCH, "double": True, "dueling": True, "clip_norm": 0.01}
        | {"distribution": "quantile(5)", "target": "polyak(0.01)", "replay": "prioritized"},
        (193, 193),
    ),
    "ppo": (
        PENDULUM,
        {"name": "ppo", "horizon": 55, "minibatches": 2, "epochs": 3, "clip_norm": 0.01},
        (193, 193),
    ),
}


@pytest.fixture(autouse=True)
def usual_limit() -> Iterator[None]:
    yield
    set_team_limit(0, UPDATES)
    set_threads(1)


def learner_of(case: str, **run: Any) -> Any:
    env, agent, hidden = CASES[case]
    net = {"hidden": list(hidden)} | ({"activation": "tanh"} if "tanh" in case else {})
    lanes = 4 if case == "ppo" else 1
    settings = {"env": env, "num_envs": lanes, "agent": agent | {"net": net}, "engine": "fused"}
    return make_learner(Run.of(settings | run))


def played(case: str, threads: int, **run: Any) -> Any:
    set_team_limit(threads, UPDATES)
    learner = learner_of(case, **run)
    steps = 500 if case == "ppo" else 117
    while learner.step < steps:
        learner.round(steps)
    assert learner.agent.updates >= 7
    return learner


def state_of(learner: Any) -> list[np.ndarray]:
    sums = learner.engine.table.arrays["sums"]
    return [learner.agent.block.numpy(), sums, learner.engine.explore(200, 200)]


@pytest.mark.parametrize("case", CASES)
def test_no_number_depends_on_the_threads_or_on_the_split(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    learners = [played(case, threads) for threads in (1, 2, 5)]
    assert [int(one.engine.table.arrays["team"][THREADS]) for one in learners[:2]] == [1, 2]
    assert "updates on 2 threads" in learners[1].engine.description
    monkeypatch.setattr(fused, "are_wide", lambda *arguments: False)
    whole = played(case, 2)
    assert whole.engine.table.arrays["team"].tolist() == NO_TEAM.tolist()
    expected = state_of(whole)
    for learner in learners:
        for one, other in zip(expected, state_of(learner), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("case", ["sac", "td3", "dqn, everything"])
def test_updates_on_two_threads_equal_the_plain_engines(case: str) -> None:
    learner = played(case, 2, verify=1)
    assert learner.lockstep is not None and learner.lockstep.compared >= 7
    assert learner.lockstep.largest < 1e-5


def work_done() -> int:
    """How many pieces of work the team was woken for."""
    if not module.TEAMS:
        return 0
    team = module.TEAMS[0]
    return int(team.room[(team.address + NUMBER - team.room.ctypes.data) // 8])


def test_small_networks_wake_nobody_and_wide_ones_wake_the_team(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = work_done()
    monkeypatch.setitem(CASES, "small", (PENDULUM, {"name": "sac", **BATCH}, (64, 64)))
    small = played("small", 2)
    assert work_done() == before and "thread" not in small.engine.description
    wide = played("sac", 2)
    assert work_done() > before + 10 * wide.agent.updates
    before = work_done()
    played("sac", 1)
    assert work_done() == before


def test_without_a_number_threads_help_while_that_is_quicker() -> None:
    """Which changes no number, only times."""
    learners = [played("sac", threads) for threads in (0, 1)]
    team = learners[0].engine.table.arrays["team"]
    if team[ALL]:  # there are cores
        assert "updates on up to" in learners[0].engine.description and team[DONE] >= 7
    for one, other in zip(*map(state_of, learners), strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_is_wide_follows_from_sizes_alone() -> None:
    assert are_wide(256, (17, 256, 256, 6)) and are_wide(64, (4, 256, 256, 2))
    assert not are_wide(32, (4, 256, 256, 2))  # items of one block
    assert not are_wide(256, (4, 64, 64, 2))
    assert are_wide(256, (4, 64, 64, 2), (4, 256, 256, 1))
    assert not are_wide(256, (4, 8192, 8192, 2)) and not are_wide(8192, (4, 256, 256, 2))


def last_arrays(path: Path) -> dict[str, np.ndarray]:
    return dict(read_arrays(path / "checkpoints" / name(path))[0])


def name(path: Path) -> str:
    return f"step-{checkpoint_steps(path)[-1]:012d}.safetensors"


def test_a_resume_on_other_threads_equals_a_run_that_never_stopped(
    tmp_path: Path, here: Callable[..., Any]
) -> None:
    """By commands; from Python the same."""
    settings = "--env tenfold/Pendulum-v1 --agent.net.hidden 193,193 --agent.batch-size 101"
    usual = f"{settings} --agent.learning-starts 110 --agent.capacity 300 --eval-every 0".split()
    whole = here("train", "sac", *usual, "--steps", "130", "--threads", "1", "--out", "whole")
    assert "one compiled call a round, updates on 1 thread;" in whole.stderr
    half = here("train", "sac", *usual, "--steps", "120", "--threads", "2", "--out", "half")
    assert "updates on 2 threads;" in half.stderr
    resumed = here("resume", "half", "--steps", "130", "--threads", "3")
    assert resumed.returncode == 0 and "threads 2 → 3" in resumed.stderr
    agent = ten.SAC(
        batch_size=101, learning_starts=110, capacity=300, net=ActorCriticNet(hidden=(193, 193))
    )
    run = Run(env="tenfold/Pendulum-v1", agent=agent, steps=130, threads=2, eval_every=0)
    python = ten.train(run, "python", quiet=True)
    expected = last_arrays(tmp_path / "whole")
    for path in (tmp_path / "half", tmp_path / python.path):
        for key, array in last_arrays(path).items():
            np.testing.assert_array_equal(expected[key], array, err_msg=key)


def test_too_many_threads_are_one_sentence(here: Callable[..., Any]) -> None:
    for count in ("-1", "1025"):
        done = here("train", "sac", "--env", "tenfold/Pendulum-v1", "--threads", count)
        assert done.returncode == 2 and "threads" in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1


def test_a_new_process_whose_threads_are_the_first_to_call_blas_goes_on(tmp_path: Path) -> None:
    """A first call takes Python's lock, which the thread that waits for the others holds."""
    net = ["--agent.net.hidden", "256,256", "--agent.batch-size", "64", "--threads", "2"]
    short = ["--agent.learning-starts", "100", "--agent.capacity", "2k", "--steps", "130"]
    command = [sys.executable, "-m", "tenfold", "train", "sac", "--env", PENDULUM, *net, *short]
    done = subprocess.run(
        [*command, "--eval-every", "0", "--out", str(tmp_path / "run"), "--quiet"],
        timeout=300,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert checkpoint_steps(tmp_path / "run")[-1] == 130

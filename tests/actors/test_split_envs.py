"""Environments in several processes show, save and restore what those of one process do, in every
bit; and stay in one process where they must."""

import json
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import worker_envs

import tenfold as ten
from tenfold.actors import lane_workers
from tenfold.actors.env_worker import LaneJob
from tenfold.actors.pool import InProcessPool
from tenfold.actors.split_envs import SplitEnvironments
from tenfold.config.run import Run
from tenfold.core.errors import EnvironmentFault, UserError
from tenfold.core.random import Purpose, key
from tenfold.core.spaces import policy_actions
from tenfold.envs.adapter import Environments
from tenfold.envs.making import make_environments
from tenfold.runs.storage import read_arrays

BENCH = Path(__file__).parent.parent.parent / "bench"
ARRAYS = (
    *("obs", "final_obs", "reward", "terminated", "truncated", "skipped"),
    *("mask", "final_mask", "episode", "length", "ret"),
)
MANY = "worker_envs:Many-v0"


@pytest.fixture(autouse=True)
def strict_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCH)


def split(name: str, worlds: int, policy: bool, workers: int, first: int = 0) -> SplitEnvironments:
    job = LaneJob(name, worlds, 5, policy, first, 1, 60.0)
    with closing(make_environments(name, 1, 5, policy, first)) as sample:
        return SplitEnvironments(sample, job, workers)


def require_equal(serial: Environments, several: Environments) -> None:
    for name in ARRAYS:
        one, other = getattr(serial, name), getattr(several, name)
        assert (one is None) == (other is None), name
        if one is not None:
            one = np.asarray(one)
            assert one.dtype == other.dtype and one.tobytes() == other.tobytes(), name
    assert serial.finished == several.finished
    assert (serial.dead_end, serial.spec) == (several.dead_end, several.spec)
    assert serial.location(serial.num_envs - 1) == several.location(serial.num_envs - 1)
    states = serial.state(), several.state()
    assert states[0].keys() == states[1].keys()
    for name, array in states[0].items():
        assert array.dtype == states[1][name].dtype and array.shape == states[1][name].shape
        assert array.tobytes() == states[1][name].tobytes(), name


def play_both(envs: list[Environments], steps: int, seed: int = 0) -> list[Any]:
    """Plays the same random actions in all; the episodes that ended in the first."""
    actions, ended = policy_actions(envs[0].action_space, envs[0].name), []
    lanes = envs[0].num_envs
    for step in range(steps):
        address = step * lanes + np.arange(lanes)
        action = actions.random(key(seed, Purpose.RANDOM_POLICY), address, envs[0].mask)
        for one in envs:
            one.step(action)
        ended += envs[0].finished
        require_equal(*envs)
    return ended


KINDS = {
    "CartPole": ("CartPole-v1", 3, False, 2),
    "a number seen, masks unread, one each": (f"{MANY}(obs=number)", 2, False, 2),
    "image, several choices": (f"{MANY}(obs=image,action=choices)", 5, True, 3),
    "nested, real numbers": (f"{MANY}(obs=nested,action=reals)", 4, False, 3),
    "nested, mixed actions": (f"{MANY}(obs=nested,action=mixed)", 3, True, 2),
    "masked": (f"{MANY}(masked=true)", 3, True, 2),
    "time limit and masks": ("worker_envs:Limited-v0(masked=true)", 3, True, 2),
    "repeated actions": (f"{MANY}(action_repeat=2,max_episode_steps=5)", 3, False, 2),
    "nested masks": ("strict_environment:Nested-v0", 3, True, 2),
    "two agents": ("pettingzoo/strict_environment:Robots", 3, True, 2),
    "MuJoCo by Gymnasium": ("Hopper-v5(env_form=gymnasium)", 2, False, 2),
    "LunarLander": ("LunarLander-v3", 2, False, 2),
}


SLOW = ("LunarLander", "ppo, masked")


def slow_ones_marked(cases: Any) -> list[Any]:
    return [pytest.param(case, marks=pytest.mark.slow) if case in SLOW else case for case in cases]


@pytest.mark.parametrize("kind", slow_ones_marked(KINDS))
def test_split_environments_equal_one_process_bit_for_bit(kind: str) -> None:
    name, worlds, policy, workers = KINDS[kind]
    with ExitStack() as stack:
        serial = make_environments(name, worlds, 5, policy, 2)
        several = split(name, worlds, policy, workers, 2)
        for envs in (serial, several):
            stack.callback(envs.close)
        require_equal(serial, several)
        ended = play_both([serial, several], 90)
        assert ended
        # each goes on from the other's state, which is not the latest
        states = serial.state(), several.state()
        play_both([serial, several], 7, seed=1)
        assert serial.restore(states[1]) and several.restore(states[0])
        for name in ("obs", "mask", "episode", "length", "ret"):
            one, other = getattr(serial, name), getattr(several, name)
            assert one is other is None or np.asarray(one).tobytes() == other.tobytes()
        play_both([serial, several], 30, seed=2)


def test_actions_may_change_their_form() -> None:
    """Whoever acts hands over numbers of another type, or of more than one shape in memory."""
    name = f"{MANY}(action=reals)"
    with closing(make_environments(name, 2, 5)) as serial, closing(split(name, 2, 0, 2)) as several:
        rng = np.random.default_rng(0)
        for dtype in (np.float32, np.float64, np.float32):
            actions = rng.normal(size=(2, 2, 2)).astype(dtype)
            for envs in (serial, several):
                envs.step(actions)
            for envs in (serial, several):
                envs.step(np.asfortranarray(actions))
            require_equal(serial, several)


# faults


@pytest.mark.parametrize("fails", ["raises", "talks", "nan", "nothing", "infinite"])
def test_a_fault_is_told_as_in_one_process(fails: str) -> None:
    name = f"{MANY}(fails={fails})"
    sentences = []
    with closing(make_environments(name, 6, 5)) as serial, closing(split(name, 6, 0, 2)) as several:
        for envs in (serial, several):
            with pytest.raises(EnvironmentFault, match=r"environment \d, episode \d+, step 4") as e:
                for _ in range(60):
                    envs.step(np.ones(6, np.int64))
            sentences.append((type(e.value), str(e.value)))
    assert sentences[0] == sentences[1]
    if fails == "raises":
        assert "raised ZeroDivisionError: the physics broke in worker_envs.py, line" in str(e.value)


def test_an_episode_cut_where_nothing_is_allowed_is_told_as_in_one_process() -> None:
    name, ends = f"{MANY}(masked=true,fails=dead end)", []
    with (
        closing(make_environments(name, 4, 5, True)) as serial,
        closing(split(name, 4, True, 2)) as several,
    ):
        for envs in (serial, several):
            for _ in range(30):
                envs.step(np.where(envs.mask.any(1), envs.mask.argmax(1), 0) + 1)
            ends.append(envs.dead_end)
    assert ends[0] == ends[1] and ", step 4" in ends[0]


def test_environments_elsewhere_cannot_be_reached() -> None:
    with (
        closing(split("CartPole-v1", 2, False, 2)) as envs,
        pytest.raises(UserError, match=r"are in 2 processes .* set env_threads to 1"),
    ):
        envs.envs[0].unwrapped  # noqa: B018


# the choice


def cores(monkeypatch: pytest.MonkeyPatch, count: int = 2) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(count)))


def run_of(env: Any, num_envs: int = 8, **more: Any) -> Run:
    agent = {"name": "ppo", "horizon": 8, "net": {"hidden": [8]}}
    return Run.of({"env": env, "num_envs": num_envs, "steps": 10**6, "agent": agent} | more)


@contextmanager
def pool_of(*arguments: Any, **more: Any) -> Iterator[InProcessPool]:
    with closing(InProcessPool(run_of(*arguments, **more))) as pool:
        yield pool


def tried_in(monkeypatch: pytest.MonkeyPatch, seconds: float, busy: float = 1.0) -> None:
    """A step takes so long from now on, for a share of which a core is busy, and cores are free."""
    monkeypatch.setattr(lane_workers, "LEAST", 0.0)
    real = lane_workers.play_sample

    def timed(*arguments: Any) -> Any:
        times, digest, _ = real(*arguments)
        return [seconds] * len(times), digest, busy

    monkeypatch.setattr(lane_workers, "play_sample", timed)


def test_a_core_serves_several_environments_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    cores(monkeypatch, 2)
    tried_in(monkeypatch, 5e-3, busy=0.1)
    with pool_of(MANY, 4, steps=10**6) as pool:
        assert len(pool.envs.slices) == 4
        assert pool.envs.form.endswith("from 150 us on, 90% of which it waits")


@pytest.mark.parametrize(
    ("seconds", "num_envs", "count", "workers", "steps"),
    [
        (32e-6, 8, 16, 0, 10**6),
        (74e-6, 8, 16, 0, 10**6),
        (80e-6, 8, 16, 3, 10**6),
        (150e-6, 3, 2, 0, 10**6),
        (5e-3, 3, 2, 2, 10**6),
        (5e-3, 3, 16, 3, 10**6),
        (5e-3, 3, 16, 0, 500),
        (5e-3, 3, 1, 0, 10**6),
        (1.0, 1, 16, 0, 10**6),
    ],
)
def test_a_measured_step_decides(
    monkeypatch: pytest.MonkeyPatch,
    seconds: float,
    num_envs: int,
    count: int,
    workers: int,
    steps: int,
) -> None:
    cores(monkeypatch, count)
    tried_in(monkeypatch, seconds)
    with pool_of(MANY, num_envs, steps=steps) as pool:
        assert isinstance(pool.envs, SplitEnvironments) == bool(workers)
        form = pool.envs.form
    if num_envs == 1:
        assert form == ""
        return
    limit = 600e-6 / num_envs
    reason = f"a step of one takes {1e6 * seconds:,.0f} us, and processes pay from {1e6 * limit:,.0f} us on"
    if count == 1:
        reason = "there is one core"
    if steps == 500:
        reason = "others would save 1.7 s of the run, and take as long to start"
    here = "one after another in this process"
    assert (
        form == f"environments stepped {f'by {workers} processes' if workers else here}: {reason}"
    )


def test_processes_that_are_no_faster_when_they_are_tried_are_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cores(monkeypatch)
    tried_in(monkeypatch, 5e-3)
    monkeypatch.setattr(lane_workers, "LEAST", 1e9)
    with pool_of(MANY, 2) as pool:
        words = r".* this process: 2 at once were [\d.]+ times as fast, so other work has the cores"
        assert re.fullmatch(words, pool.envs.form)


def test_the_number_of_processes_may_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    cores(monkeypatch, 16)
    tried_in(monkeypatch, 5e-3)
    with pool_of(MANY, 4, env_threads=1) as pool:
        assert pool.envs.form.endswith("one after another in this process: as asked")
    cores(monkeypatch, 1)
    for asked, workers in ((2, 2), (9, 3)):
        with pool_of("CartPole-v1", 3, env_threads=asked, steps=100) as pool:
            assert pool.envs.form == f"environments stepped by {workers} processes: as asked"


def stays(env: Any, why: str, **more: Any) -> None:
    """Such environments stay in this process, which says why."""
    with pool_of(env, 2, env_threads=2, **more) as pool:
        assert not isinstance(pool.envs, SplitEnvironments)
        assert re.fullmatch(
            f"environments stepped one after another in this process: {why}", pool.envs.form
        )


def test_what_cannot_be_in_another_process_stays_here(monkeypatch: pytest.MonkeyPatch) -> None:
    stays(lambda: worker_envs.Many(), "their function cannot be sent to another one")
    stays(
        f"{MANY}(alone=true)", r"worker_envs:Many-v0\(alone=true\) asks for it \(one_process .*\)"
    )
    monkeypatch.setattr(worker_envs.Fixed, "level", 3)
    stays("worker_envs:Fixed-v0", "another one saw something else by the same actions")
    registered = worker_envs.gym.registry
    monkeypatch.setitem(registered, "Here-v0", registered["Many-v0"])
    stays("Here-v0", "another one stopped: There is no environment Here-v0: .*")
    monkeypatch.setenv(worker_envs.DIFFERENT, str(os.getpid()))
    stays(f"{MANY}(fails=raises,after=1)", r"a first try failed \(worker_envs.*physics broke.*\)")


def test_functions_that_can_be_sent_and_compiled_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    with pool_of(worker_envs.make_many, 2, env_threads=2) as pool:
        assert isinstance(pool.envs, SplitEnvironments) and pool.envs.layout.size == 9
        pool.envs.step(np.zeros((2, 2), np.int64))
    with pool_of("tenfold/CartPole-v1", 2, env_threads=2) as pool:
        assert pool.envs.form == "" and not isinstance(pool.envs, SplitEnvironments)
    cores(monkeypatch)
    monkeypatch.setattr("multiprocessing.parent_process", lambda: 1)
    with pool_of(MANY, 2) as pool:
        assert pool.envs.form.endswith("in this process: other runs share its cores")


# whole runs

SMALL = {"learning_starts": 30, "batch_size": 8, "capacity": 400, "net": {"hidden": [16]}}
PPO = {"name": "ppo", "horizon": 16, "epochs": 2, "minibatches": 2, "net": {"hidden": [16]}}
RUNS: dict[str, dict[str, Any]] = {
    "dqn, fused": {"env": "CartPole-v1", "agent": {"name": "dqn", "every": 2, **SMALL}},
    "dqn, frames": {
        "env": MANY,
        "engine": "plain",
        "frames": 2,
        "agent": {"name": "dqn", "every": 2, **SMALL},
    },
    "sac": {
        "env": "Pendulum-v1",
        "normalize_obs": True,
        "agent": {"name": "sac", "every": 4, **SMALL},
    },
    "ppo, fused": {"env": "CartPole-v1", "normalize_reward": True, "agent": PPO},
    "ppo, masked": {"env": f"{MANY}(masked=true)", "engine": "plain", "agent": PPO},
    "ppo, agents": {"env": "pettingzoo/strict_environment:Robots", "agent": PPO},
}


class Pause(ten.Callback):
    """Ends a session at its first checkpoint after the start."""

    def on_checkpoint(self, training: Any) -> None:
        if training.step:
            training.stop()


def last_arrays(path: Path) -> dict[str, np.ndarray]:
    """Of the last checkpoint, which is at the run's end."""
    files = sorted((path / "checkpoints").glob("step-*.safetensors"))
    assert files[-1].stem == "step-000000000240"
    return read_arrays(files[-1])[0]


@pytest.mark.parametrize("case", slow_ones_marked(RUNS))
def test_runs_go_on_from_one_process_to_several_and_back(case: str, tmp_path: Path) -> None:
    """All that a checkpoint holds is the same, and so is what a run comes to that changes in
    between."""
    base = {"num_envs": 3, "steps": 240, "eval_every": 0, "checkpoint_every": 80} | RUNS[case]
    for where, threads in (("serial", 1), ("split", 2)):
        ten.train(Run.of(base | {"env_threads": threads}), out=tmp_path / where, quiet=True)
    pause, path = [Pause()], tmp_path / "moved"
    ten.train(Run.of(base | {"env_threads": 2}), out=path, quiet=True, callbacks=pause)
    ten.resume(path, settings={"env_threads": 1}, quiet=True, callbacks=pause)
    ten.resume(path, settings={"env_threads": 3}, quiet=True)
    sessions = json.loads((path / "run.json").read_text())["sessions"]
    expected = ["by 2 processes", "one after another in this process", "by 3 processes"]
    assert [about["where"] for about in sessions] == [
        f"environments stepped {words}: as asked" for words in expected
    ]
    serial = last_arrays(tmp_path / "serial")
    for where in ("split", "moved"):
        arrays = last_arrays(tmp_path / where)
        assert arrays.keys() == serial.keys()
        for name, array in serial.items():
            assert array.tobytes() == arrays[name].tobytes(), (where, name)

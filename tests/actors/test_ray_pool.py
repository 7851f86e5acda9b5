"""Actors on a Ray cluster of two nodes on one host: with nobody ahead the run is the serial one, bit
for bit; whoever is lost is replaced and counted, or ends the run with a sentence."""

import contextlib
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
import torch
from ray.cluster_utils import Cluster
from test_process_pool import CASES, play, playing

from tenfold.actors import ray_pool as pool_of_ray
from tenfold.actors.ray_pool import RayPool
from tenfold.cli.main import main
from tenfold.config.run import Run
from tenfold.core import ray_cluster
from tenfold.core.errors import UserError
from tenfold.runs.checkpoint import Checkpoints
from tenfold.runs.folder import RunFolder
from tenfold.training.learners import make_learner

NODE = {"include_dashboard": False, "object_store_memory": 100 * 2**20}
FLAWED = """
import os, pathlib
import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv

class Flawed(CartPoleEnv):
    '''CartPole that breaks in the actor that finds the file `flaw`, and only there.'''

    def step(self, action):
        flaw = pathlib.Path(__file__).parent / "flaw"
        if os.getpid() != int(os.environ.get("DRIVER", "0")) and flaw.exists():
            flaw.unlink()
            raise ZeroDivisionError("the physics broke")
        return super().step(action)

gym.register("Flawed-v0", Flawed, max_episode_steps=500)
"""

pytestmark = pytest.mark.slow  # a cluster takes half a minute of two cores


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Two nodes with a processor each, on loopback; nothing of it is left afterwards."""
    logging.getLogger("ray").setLevel(logging.ERROR)
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    with ray_cluster.on_loopback():
        made = Cluster(initialize_head=True, head_node_args=NODE | {"num_cpus": 1})
        made.add_node(num_cpus=1, object_store_memory=NODE["object_store_memory"])
    yield made
    made.shutdown()


def add_node(cluster: Cluster, cpus: int) -> Any:
    with ray_cluster.on_loopback():
        return cluster.add_node(num_cpus=cpus, object_store_memory=NODE["object_store_memory"])


def strike(pool: RayPool, index: int) -> None:
    """Kills an actor's process as the kernel would."""
    handle = pool.remotes[index].handle
    pid = ray.get(handle.__ray_call__.remote(lambda self: os.getpid()))
    os.kill(pid, signal.SIGKILL)


def pool_of(place: Any) -> RayPool:
    assert isinstance(place.pool, RayPool)
    return place.pool


# what is learned


@pytest.mark.parametrize(
    "case",
    [
        case if case == "five agents" else pytest.param(case, marks=pytest.mark.slow)
        for case in CASES
    ],
)
def test_synchronous_actors_on_two_nodes_equal_the_serial_run_bit_for_bit(
    case: str, cluster: Cluster
) -> None:
    ahead = 3 if "policy" in case else 0  # a policy waits for its learner anyway
    ends = {"steps": 260, "checkpoint_every": 200}
    there = {"where": "ray", "address": cluster.address, "ahead": ahead}
    with (
        playing(CASES[case], where="serial", **ends) as serial,
        playing(CASES[case], **there, **ends) as remote,
    ):
        assert len({seat.node_id for seat in pool_of(remote).remotes}) == 2
        for place in (serial, remote):
            play(place, 200)
            place.settle()
            play(place, 260)
            place.settle()  # as before checkpoints: nobody is ahead there
        assert serial.step == remote.step == 260
        assert serial.agent.updates == remote.agent.updates > 10
        for name, value in serial.agent.state().items():
            assert torch.equal(value, remote.agent.state()[name]), name
        assert np.array_equal(serial.envs.obs, remote.envs.obs)
        if serial.rows and remote.rows:
            for name, value in serial.rows.state().items():
                assert np.array_equal(value, remote.rows.state()[name]), name


@pytest.mark.slow
def test_a_run_moves_from_one_process_to_a_cluster_and_back(cluster: Cluster) -> None:
    with playing(CASES["dqn"], where="serial") as whole:
        play(whole, 300)
        expected = whole.agent.block.clone()
    state, rows = None, None
    for where, until in (("serial", 120), ("ray", 200), ("serial", 300)):
        with playing(CASES["dqn"], where=where, ahead=0, address=cluster.address) as place:
            if state:
                assert place.rows and rows
                place.rows.load_rows(rows)
                assert place.load_state(state)
            play(place, until)
            place.settle()
            state = {
                part: {
                    k: torch.as_tensor(v).clone() if part in ("agent", "engine") else np.array(v)
                    for k, v in values.items()
                }
                for part, values in place.state().items()
            }
            assert place.rows
            rows = place.rows.written(np.zeros_like(place.rows.head))
    assert torch.equal(place.agent.block, expected)


@pytest.mark.slow
def test_asynchronous_actors_deliver_every_row_once_and_a_killed_one_is_replaced(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps, updates and episodes add up, policies that acted are not older than allowed, nobody has
    more rows in flight than allowed; and what a killed actor owed is counted."""
    monkeypatch.setattr(pool_of_ray, "INLINE", 100)  # weights go through the object store
    there = {"where": "ray", "address": cluster.address, "ahead": 4, "steps": 800}
    with playing(CASES["dqn"], **there, on_death="restart") as place:
        pool, finished = pool_of(place), []
        while place.step < 300:
            finished += place.round()
            assert all(
                seat.requested - min(s.rounds_taken for s in pool.remotes) <= 4 + 1
                for seat in pool.remotes
            )
        assert isinstance(pool.weights, ray.ObjectRef) or pool.weights is None
        report = pool.report()
        assert 0 <= report["policy_age_most"] <= 2 * (4 + 1) + 4
        assert 0 <= report["policy_age_seconds"] < 60 and "actors_lost" not in report
        finished += place.settle()
        state = place.state()
        assert int(state["envs"]["0.rounds"]) + int(state["envs"]["1.rounds"]) == place.step / 2

        strike(pool, 1)
        while place.step < 800:
            finished += place.round()
        finished += place.settle()
        assert place.step == 800 and sum(episode.length for episode in finished) <= 800
        assert {episode.env for episode in finished} == {0, 1, 2, 3}
        (notice,) = pool.notices
        owed = pool.rows_lost
        assert 0 < owed <= 5
        assert notice == (
            f"actor 1 was lost: its process on 127.0.0.1 died ({owed} rows asked of it are lost); "
            "another takes its place"
        )
        report = pool.report()
        assert report["actors_lost"] == 1 and report["actors_rows_lost"] == owed


@pytest.mark.slow
def test_a_killed_actor_ends_the_run_where_that_is_asked_and_the_run_goes_on_with_resume(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """A policy, whose first rollout is thrown away where an actor is replaced."""
    from tenfold.training.recorder import Recorder

    monkeypatch.chdir(tmp_path)
    real, calls = Recorder.log, []

    def log(self: Recorder) -> None:
        calls.append(self)
        if len(calls) == 2:
            strike(pool_of(self.learner), 0)
        real(self)

    command = ["train", "ppo", "--env", "tenfold/CartPole-v1", "--agent.horizon", "16"]
    command += ["--agent.net.hidden", "16", "--num-envs", "1", "--agent.minibatches", "2"]
    command += ["--actors", "2", "--where", "ray", "--address", cluster.address, "--quiet"]
    command += ["--eval-every", "0", "--log-every", "50", "--checkpoint-every", "100"]
    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "log", log)
        assert main([*command, "--steps", "1M", "--out", "run"]) == 2
    assert capsys.readouterr().err == (
        "tenfold: Actor 0 was lost: its process on 127.0.0.1 died: the run stops. `tenfold resume "
        "run` goes on from the last checkpoint.\n"
    )
    assert not ray.is_initialized()
    calls.clear()
    monkeypatch.setattr(Recorder, "log", log)  # which strikes again
    assert main(["resume", "run", "--steps", "400", "--on-death", "restart"]) == 0
    said = capsys.readouterr().err
    assert "actor 0 was lost: its process on 127.0.0.1 died" in said
    assert "; another takes its place; training goes on." in said
    folder, run = RunFolder.open(Path("run"))
    assert Checkpoints(folder, run.keep).latest()[2]["step"] >= 400


# nodes that come and go


@pytest.mark.slow
def test_actors_wait_for_a_node_and_outlive_one(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Three actors and two processors: it is said what is waited for, and a node that comes is used;
    then one of the first nodes is removed."""
    monkeypatch.setattr(pool_of_ray, "SAY", 0.5)
    came: list[Any] = []
    real = ray_cluster.is_placed

    def is_placed(handle: Any) -> bool:
        found = real(handle)
        if not found and not came and "waits" in told():
            came.append(add_node(cluster, 1))
        return found

    said: list[str] = []

    def told() -> str:
        said.append(capsys.readouterr().err)
        return "".join(said)

    monkeypatch.setattr(pool_of_ray, "is_placed", is_placed)
    agent = {"name": "dqn", "learning_starts": 50, "batch_size": 8, "net": {"hidden": [16]}}
    run = {"env": "tenfold/CartPole-v1", "agent": agent, "actors": 3, "steps": 100_000}
    run |= {"where": "ray", "address": cluster.address, "on_death": "restart", "ahead": 4}
    place = make_learner(Run.of(run))
    try:
        assert "of 3 waits for a free CPU: each needs one, and the cluster has 2 (Ctrl-C" in told()
        pool = pool_of(place)
        assert len({seat.node_id for seat in pool.remotes}) == 3
        play(place, 300)
        gone = came[0]
        struck = [seat.index for seat in pool.remotes if seat.node_id == gone.node_id]
        assert len(struck) == 1
        spare = add_node(cluster, 1)
        cluster.remove_node(gone, allow_graceful=False)

        def noticed() -> bool:
            """The others' rows are learned from until Ray has seen that the node is gone."""
            play(place, place.step + 100)
            return any("was lost with its node" in word or "died" in word for word in pool.notices)

        wait_for(noticed, 120)
        end = place.step + 500
        play(place, end)
        assert pool.actors_lost >= 1 and pool.rows_lost <= 5 * pool.actors_lost
        assert pool.remotes[struck[0]].node_id == spare.node_id
        rows = sum(seat.rounds_taken for seat in pool.remotes)
        assert rows == place.step == end or place.step > end  # every row that was taken is a step
    finally:
        place.close()
        cluster.remove_node(spare)


# environments and clusters that are wrong


def test_what_an_environment_raises_over_there_is_told_here(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("DRIVER", str(os.getpid()))
    (tmp_path / "flawed.py").write_text(FLAWED)
    (tmp_path / "flaw").write_text("")
    command = ["train", "dqn", "--env", "flawed:Flawed-v0", "--where", "ray", "--quiet"]
    assert main([*command, "--address", cluster.address, "--steps", "500"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("tenfold: Actor 0 stopped: flawed:Flawed-v0, environment 0, episode 0")
    assert "step raised ZeroDivisionError: the physics broke in flawed.py, line" in said
    sys.modules.pop("flawed", None)


def test_a_node_with_another_ray_is_named(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray, "__version__", "2.1.0")
    with pytest.raises(UserError, match=r"and this process has Ray 2\.1\.0 and Python"):
        ray_cluster.connect(cluster.address)
    assert not ray.is_initialized()


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["driver", "head"])
def test_a_lost_driver_leaves_no_actor_and_a_lost_head_ends_with_a_sentence(
    loss: str, tmp_path: Path
) -> None:
    """In a cluster of its own; either way the run can be resumed."""
    with ray_cluster.on_loopback():
        own = Cluster(initialize_head=True, head_node_args=NODE | {"num_cpus": 0})
        own.add_node(num_cpus=2, object_store_memory=NODE["object_store_memory"])
    command = ["-m", "tenfold", "train", "dqn", "--env", "CartPole-v1", "--steps", "1M"]
    command += ["--where", "ray", "--actors", "2", "--address", own.address, "--out", "run"]
    process = subprocess.Popen(
        [sys.executable, *command, "--checkpoint-every", "500", "--quiet"],
        cwd=tmp_path,
        text=True,
        stderr=subprocess.PIPE,
    )
    try:
        wait_for(lambda: len(list((tmp_path / "run" / "checkpoints").glob("step-*"))) > 1, 90)
        assert len(acting()) == 2
        if loss == "driver":
            process.kill()
        else:
            own.remove_node(own.head_node, allow_graceful=False)
        _, said = process.communicate(timeout=90)
        if loss == "head":
            assert process.returncode == 2 and "Traceback" not in said
            assert "has not answered for" in said.splitlines()[-1]
            assert "`tenfold resume run` goes on from the last checkpoint." in said
        wait_for(lambda: not acting(), 20)
    finally:
        process.kill()
        process.communicate()
        own.shutdown()
    folder, run = RunFolder.open(tmp_path / "run")
    assert Checkpoints(folder, run.keep).latest()[2]["step"] > 0


def acting() -> list[str]:
    """Ids of actors' processes."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            found += [path.parent.name] if b"ray::RemoteActor" in path.read_bytes() else []
    return found


def wait_for(condition: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.1)

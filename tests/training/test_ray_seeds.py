"""Seeds and sweeps on a Ray cluster of three machines on one host: each run is what it is here, bit
for bit, also where its machine is lost; what cannot be is one sentence."""

import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ray.cluster_utils import Cluster
from test_seeds import contents

from tenfold.config.run import Run
from tenfold.core import ray_cluster
from tenfold.core.errors import UserError
from tenfold.runs.checkpoint import checkpoint_steps
from tenfold.runs.folder import read_settings
from tenfold.training import remote_pool as cluster_module
from tenfold.training.remote_pool import ATTEMPTS, ClusterPool, needs
from tenfold.training.remote_run import DeltaPacker, FileSyncer, FolderDelta, unpack
from tenfold.training.run_group import resume_seeds, train_seeds
from tenfold.training.sweep import sweep
from tenfold.training.worker_pool import Tasks

NODE = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
# a machine that is gone is noticed in a second, not in half a minute
SOON = {"health_check_period_ms": 500, "health_check_failure_threshold": 2}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three machines with a core each, and a head with none; nothing of it is left afterwards."""
    logging.getLogger("ray").setLevel(logging.ERROR)
    head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": 80 * 2**20}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        with ray_cluster.on_loopback():
            made = Cluster(initialize_head=True, head_node_args=head | {"_system_config": SOON})
            for _ in range(3):
                made.add_node(**NODE)
        yield made
        made.shutdown()


def on_ray(run: Run, cluster: Cluster) -> Run:
    from dataclasses import replace

    return replace(run, where="ray", address=cluster.address)


@pytest.mark.slow
@pytest.mark.parametrize("count", [8])
def test_seeds_over_three_machines_are_those_of_here(
    cluster: Cluster, small_run: Callable[..., Run], tmp_path: Path, count: int
) -> None:
    here = train_seeds(small_run(), count, tmp_path / "here", quiet=True)
    remote = train_seeds(on_ray(small_run(), cluster), count, tmp_path / "there", quiet=True)
    for seed in range(count):
        one, other = (path / f"seed-{seed}" for path in (here.path, remote.path))
        assert contents(one) == contents(other)
        names = [sorted(p.name for p in run.iterdir() if p.name != ".lock") for run in (one, other)]
        assert names[0] == names[1]
    assert here.summary == remote.summary and remote.saved == here.saved
    assert read_settings(remote.path / "seed-0").where == "auto"  # an ordinary run from here on


@pytest.mark.slow
def test_runs_on_a_machine_that_is_lost_end_as_if_it_were_not(
    cluster: Cluster,
    small_run: Callable[..., Run],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """It goes when a checkpoint has come, and another one joins the cluster."""
    run = small_run({"every": 1}, steps=3000, engine="plain", checkpoint_every=250, eval_every=1500)
    here = train_seeds(run, 4, tmp_path / "here", quiet=True)
    apply, machines, resumed = ClusterPool.apply, [*cluster.worker_nodes], []
    used: set[str] = set()

    def take_and_strike(self: ClusterPool, running: Any, delta: FolderDelta) -> None:
        apply(self, running, delta)
        used.add(running.where)
        steps = [checkpoint_steps(tmp_path / "there" / f"seed-{seed}") for seed in range(4)]
        if sum(saved[-1:] > [0] for saved in steps) == 3 and len(machines) == 3:  # all are at work
            cluster.remove_node(machines.pop(), allow_graceful=False)
            with ray_cluster.on_loopback():
                cluster.add_node(**NODE)

    send = ClusterPool.send

    def send_and_note(self: ClusterPool, running: Any) -> None:
        resumed.extend([checkpoint_steps(Path(running.task[1]))] if running.attempts > 1 else [])
        send(self, running)

    monkeypatch.setattr(ClusterPool, "apply", take_and_strike)
    monkeypatch.setattr(ClusterPool, "send", send_and_note)
    remote = train_seeds(on_ray(run, cluster), 4, tmp_path / "there", quiet=True)
    assert len(machines) == 2 and len(resumed) == 1 and resumed[0][-1] > 0
    assert len(used) == 4  # the one that joined, too
    assert "was lost" in capfd.readouterr().err
    for seed in range(4):
        assert contents(here.path / f"seed-{seed}") == contents(remote.path / f"seed-{seed}")


@pytest.mark.slow
def test_a_sweep_on_the_cluster(
    cluster: Cluster, small_run: Callable[..., Run], tmp_path: Path
) -> None:
    run, search = small_run({"lr": 1e-3}), {"agent.lr": "log(1e-4, 1e-2)"}
    found = sweep(on_ray(run, cluster), search, 2, 2, tmp_path / "s", confirm=1, quiet=True)
    assert [row["state"] for row in found.results["trials"]] == ["complete", "complete"]
    assert found.best is not None and found.best.where == "auto"
    alone = train_seeds(run, 2, tmp_path / "alone", quiet=True)  # as trial 0 has it
    for seed in range(2):
        assert contents(tmp_path / "s" / "trial-0" / f"seed-{seed}") == contents(
            alone.path / f"seed-{seed}"
        )


@pytest.mark.slow
def test_with_a_shared_disk_machines_write_into_the_folder_itself(
    cluster: Cluster, small_run: Callable[..., Run], tmp_path: Path
) -> None:
    remote = train_seeds(
        on_ray(small_run(), cluster), 2, storage=tmp_path / "shared", name="two", quiet=True
    )
    assert remote.path == tmp_path / "shared" / "two"
    assert (remote.path / "seed-0" / ".lock").exists()  # a run was trained right there
    longer = resume_seeds(remote.path, 800, quiet=True)
    assert longer.saved == {"seed 0": 800, "seed 1": 800}


@pytest.mark.slow
def test_ctrl_c_saves_the_runs_on_all_machines(
    cluster: Cluster, small_run: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = small_run(steps=10**8, checkpoint_every=10**7, eval_every=10**7)
    apply, began = ClusterPool.apply, []

    def take_and_call(self: ClusterPool, running: Any, delta: FolderDelta) -> None:
        apply(self, running, delta)
        rows = any(name == "metrics.jsonl" for name, _, _ in delta.files)
        if rows and running.name not in began:
            began.append(running.name)
            if len(began) == 2:
                os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(ClusterPool, "apply", take_and_call)
    found = train_seeds(on_ray(run, cluster), 4, tmp_path / "s", quiet=True)
    assert found.interrupted == signal.SIGINT
    assert all(found.saved[f"seed {seed}"] > 0 for seed in began) and len(found.saved) <= 3


@pytest.mark.slow
def test_a_cluster_whose_head_is_gone_ends_with_a_sentence(
    small_run: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ray_cluster.on_loopback():
        head = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": 80 * 2**20}
        made = Cluster(initialize_head=True, head_node_args=head)
    apply, killed = ClusterPool.apply, []

    def take_and_strike(self: ClusterPool, running: Any, delta: FolderDelta) -> None:
        apply(self, running, delta)
        if not killed and checkpoint_steps(tmp_path / "s" / "seed-0")[-1:] > [0]:
            killed.append(made.head_node.kill_gcs_server(check_alive=False))

    monkeypatch.setattr(ClusterPool, "apply", take_and_strike)
    run = small_run(steps=10**8, checkpoint_every=1000, eval_every=10**7)
    try:
        with pytest.raises(UserError, match=r"The head of the Ray cluster .*`tenfold resume .*/s`"):
            train_seeds(on_ray(run, made), 2, tmp_path / "s", quiet=True)
    finally:
        made.shutdown()


# without a cluster


def test_an_address_where_nobody_is_is_a_sentence_soon(
    here: Callable[..., Any], tmp_path: Path
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        found = here("train", "cartpole", "--seeds", "2", "--where", "ray", "--address", address)
    assert found.returncode == 2 and f"No Ray cluster answers at {address}" in found.stderr


def test_without_ray_the_extra_is_named(
    here: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    found = here("train", "cartpole", "--seeds", "2", "--where", "ray")
    assert found.returncode == 2 and "pip install 'tenfold[ray]'" in found.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--storage", "shared"], "--storage is for seeds on a Ray cluster: give --seeds and --where ray."),
        (["--seeds", "2", "--storage", "shared"], "--storage is for runs on a Ray cluster: give --where ray as well."),
        (["--seeds", "2", "--where", "ray", "--storage", "shared", "--out", "elsewhere"], "elsewhere is not in shared"),
    ],
)  # fmt: skip
def test_flags_that_do_not_fit_are_one_sentence(
    arguments: list[str], words: str, here: Callable[..., Any]
) -> None:
    found = here("train", "cartpole", *arguments)
    assert found.returncode == 2 and words in found.stderr


class Nothing:
    """Stands for Ray where a pool is only told things."""

    def __init__(self) -> None:
        self.sent: list[Any] = []


def pool_without_ray(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(cluster_module, "require_ray", Nothing)
    pool: Any = ClusterPool(print, Tasks(), say=lambda words: None)
    monkeypatch.setattr(pool, "send", lambda running: pool.ray.sent.append(running))
    return pool


def test_another_tenfold_on_a_machine_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pool = pool_without_ray(monkeypatch)
    running = cluster_module.RemoteTask("seed 0", ({}, str(tmp_path / "seed-0")), None)
    remote = ray_cluster.versions() | {"tenfold": "0.0.1"}
    with pytest.raises(UserError, match=r"The node 10\.0\.0\.9 has tenfold 0\.0\.1, and this"):
        pool.apply(running, FolderDelta(started=("10.0.0.9", remote)))


def test_a_run_that_never_comes_further_is_given_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pool = pool_without_ray(monkeypatch)
    running = cluster_module.RemoteTask("seed 0", ({}, str(tmp_path / "seed-0")), None)
    pool.running_tasks = [running]
    further = FolderDelta((("checkpoints/step-000000000100.safetensors", 0, b"weights"),))
    for _ in range(ATTEMPTS - 1):
        pool.retry(running, "lost")
    pool.apply(running, further)  # and then it has all its attempts again
    for _ in range(ATTEMPTS):
        assert not pool.errors
        pool.retry(running, "lost")
    assert pool.errors == {"seed 0": "its machine was lost 4 times in a row (lost)."}
    assert len(pool.ray.sent) == 2 * (ATTEMPTS - 1) and pool.running_tasks == []


def test_a_bell_that_is_gone_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    def lost(*given: Any, **more: Any) -> Any:
        raise ray.exceptions.ActorDiedError

    reported: list[Callable[[], bool]] = []
    monkeypatch.setattr(
        cluster_module, "run_remotely", lambda *given: reported.append(given[-1]) or iter(())
    )
    monkeypatch.setattr(ray, "wait", lambda refs, **more: (refs, []))
    list(cluster_module.remote_task(print, (), FolderDelta(), False, ["signal"]))
    monkeypatch.setattr(ray, "get", lambda *given, **more: True)
    assert reported[0]()
    monkeypatch.setattr(ray, "get", lost)
    assert not reported[0]()


def test_what_a_run_needs_of_a_machine(small_run: Callable[..., Run]) -> None:
    from tenfold.config.schema import to_mapping

    assert needs(to_mapping(small_run(threads=2))) == (2, 0)
    assert needs(to_mapping(small_run(actors=3, where="processes"))) == (4, 0)
    assert needs(to_mapping(small_run(device="cuda"))) == (1, 1)


def test_parcels_bring_what_changed_and_nothing_else(tmp_path: Path) -> None:
    remote, here = tmp_path / "there", tmp_path / "here"
    (remote / "checkpoints").mkdir(parents=True)
    (remote / "metrics.jsonl").write_text("one\n")
    (remote / "checkpoints" / "a").write_bytes(b"first")
    (remote / ".lock").write_text("")
    packer = DeltaPacker(remote)
    unpack(here, packer.pack())
    assert packer.pack() == FolderDelta()
    with (remote / "metrics.jsonl").open("a") as file:
        file.write("two\n")
    (remote / "checkpoints" / "a").unlink()
    (remote / "checkpoints" / "b").write_bytes(b"second")
    delta = packer.pack(("", 0))
    assert delta == FolderDelta(
        (("checkpoints/b", 0, b"second"), ("metrics.jsonl", 4, b"two\n")),
        ("checkpoints/a",),
        ("", 0),
    )
    unpack(here, delta)
    assert (here / "metrics.jsonl").read_text() == "one\ntwo\n"
    assert [path.name for path in (here / "checkpoints").iterdir()] == ["b"]
    assert not (here / ".lock").exists()


def test_a_run_that_is_told_to_stop_before_it_begins_stops_when_it_does() -> None:
    import queue

    class Training:
        stopped = False

        def stop(self, evaluate: bool = True) -> None:
            self.stopped = True

    syncer, training = FileSyncer(None, queue.Queue()), Training()
    syncer.stop()
    syncer.on_start(training)
    assert training.stopped

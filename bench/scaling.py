"""What to expect of 10, 100 and 1,000 actors or seeds on a Ray cluster: computed from what is
measured here of one driver, the only process that all of them share.

Measured: bytes of rows and weights; processor time of the driver for a call, for a row in it and
for a look at many calls under way; rows and calls a second that it takes at most; for seeds its
processor time and the bytes for each. Not measured: networks between machines.

    python bench/scaling.py        or        python bench/all.py scaling --peers
"""

import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from actors import begun
from ray_actors import run_of

from tenfold.actors.actor import sample_actor
from tenfold.actors.ray_actor import packed
from tenfold.algorithms.off_policy import OffPolicyLearner
from tenfold.config.run import AHEAD_ON_RAY, Run
from tenfold.core import ray_cluster
from tenfold.core.registry import algorithm
from tenfold.core.system import set_threads
from tenfold.training.remote_pool import ClusterPool
from tenfold.training.run_group import train_seeds

COUNTS = (10, 100, 1_000)
STEP = 1e-3  # seconds of an environment's step that expectations are for
LENGTH = 600.0  # seconds that a seed trains, that expectations are for
BUSY = 0.5  # share of a core that calls may take of a driver that learns besides
WIRE = 125e6  # bytes a second of a network of 1 Gbit/s
SECONDS, TURNS = 1.5, 5
SEEDS, SEED_STEPS = 6, 20_000
RUNS = {
    "tenfold/CartPole-v1, 64-64": {"env": "tenfold/CartPole-v1"},
    "treasure-small, five agents": {"env": "tenfold/TreasureSmall-v0"},
    "84 x 84 pixels, convolutions": {
        "env": "heavy_environment:Pixels-v0",
        "agent": {"frames": 4, "net": {"encoder": "nature"}},
    },
}


def sizes() -> list[dict[str, Any]]:
    """Bytes of one step of one environment, and of the weights."""
    found = []
    for name, settings in RUNS.items():
        actor = sample_actor(run := Run.of(settings))
        agent: Any = algorithm("dqn").make_agent(run, actor.envs.spec)
        row, weights = packed(actor.schema()).itemsize, agent.published().nbytes
        found.append({"what": name, "row_bytes": row, "weight_bytes": weights})
        actor.envs.close()
    return found


def calls(ahead: int, num_envs: int) -> dict[str, Any]:
    """Of two actors whose environments cost nothing, and a learner that only stores rows: what the
    driver does all day."""
    place = OffPolicyLearner(run_of(0, "ray", ahead, num_envs, learns=False))
    pool: Any = place.pool
    taken, take_in = [0], pool.take_in

    def counting(seat: Any) -> None:
        taken[0] += 1
        take_in(seat)

    pool.take_in = counting
    try:
        begun(place, 400 * num_envs)
        found = []
        for _ in range(TURNS):
            start, used, step, taken[0] = time.perf_counter(), time.process_time(), place.step, 0
            while time.perf_counter() - start < SECONDS:
                place.round()
            wall, cpu = time.perf_counter() - start, time.process_time() - used
            rows = (place.step - step) / num_envs
            found.append((1e6 * cpu / taken[0], rows / taken[0], taken[0] / wall, rows / wall))
    finally:
        place.close()
    call_us, rows, per_second, rows_per_second = map(
        statistics.median, zip(*found[1:], strict=True)
    )
    return {
        "ahead": ahead,
        "num_envs": num_envs,
        "rows_in_a_call": round(rows, 2),
        "driver_us_a_call": round(call_us),
        "calls_per_second": round(per_second),
        "rows_per_second": round(rows_per_second),
    }


def looks(ray: Any) -> list[dict[str, Any]]:
    """Processor time of one look at so many calls under way, one of which is done."""

    class Slow:
        def wait(self, seconds: float) -> None:
            time.sleep(seconds)

    slow, quick = (ray.remote(num_cpus=0)(Slow).remote() for _ in range(2))
    found = []
    for count in COUNTS:
        pending = [slow.wait.remote(600) for _ in range(count - 1)]
        done = quick.wait.remote(0)
        ray.get(done)
        used = time.process_time()
        for _ in range(TURNS):
            ray.wait([*pending, done], num_returns=1)
        found.append({"calls": count, "us": round(1e6 * (time.process_time() - used) / TURNS)})
    ray.kill(slow)
    ray.kill(quick)
    return found


def seeds() -> dict[str, Any]:
    """The driver's processor time for a seed, and the bytes that come from it."""
    came, spent, take, work = [0], [0.0, 0.0], ClusterPool.take, ClusterPool.run

    def weighed(self: ClusterPool, errand: Any, parcel: Any) -> None:
        came[0] += sum(len(content) for _, _, content in parcel.files)
        take(self, errand, parcel)

    def timed(self: ClusterPool, *given: Any) -> int:
        used, start = time.process_time(), time.perf_counter()
        try:
            return work(self, *given)
        finally:
            spent[:] = time.process_time() - used, time.perf_counter() - start

    run = Run.of({"env": "tenfold/CartPole-v1", "steps": SEED_STEPS, "where": "ray"})
    ClusterPool.take, ClusterPool.run = weighed, timed  # type: ignore[method-assign]
    try:
        with tempfile.TemporaryDirectory() as folder:
            train_seeds(run, SEEDS, Path(folder) / "seeds", quiet=True)
    finally:
        ClusterPool.take, ClusterPool.run = take, work  # type: ignore[method-assign]
    cpu, wall = spent
    return {
        "seeds": SEEDS,
        "steps": SEED_STEPS,
        "driver_seconds_a_seed": round(cpu / SEEDS, 3),
        "bytes_a_seed": came[0] // SEEDS,
        "seconds": round(wall, 1),
    }


def costs(measured: list[dict[str, Any]]) -> tuple[float, float]:
    """Microseconds of the driver for a call, and for a row in it: the line through two measured
    points."""
    few, many = measured[:2]
    row = (many["driver_us_a_call"] - few["driver_us_a_call"]) / (
        many["rows_in_a_call"] - few["rows_in_a_call"]
    )
    return few["driver_us_a_call"] - row * few["rows_in_a_call"], row


def expected_actors(
    count: int, call_us: float, row_us: float, look_us: float, row_bytes: int
) -> dict[str, Any]:
    """With the fewest environments an actor that leave the driver room, by powers of two; and what
    becomes of the default, one."""
    rows = (AHEAD_ON_RAY + 1) / 2

    def load(num_envs: int) -> tuple[float, float]:
        """Calls a second, and the driver's share of a core for them and their rows."""
        each = 1 / (STEP * num_envs * rows)
        return count * each, count * each * (call_us + look_us + rows * row_us) * 1e-6

    num_envs = 1
    while load(num_envs)[1] > BUSY and num_envs < 1024:
        num_envs *= 2
    (per_second, share), alone = load(num_envs), load(1)[1]
    steps = count / STEP
    wire = per_second * rows * row_bytes * num_envs
    limits = {"the driver's calls": share / BUSY, "a network of 1 Gbit/s": wire / WIRE}
    return {
        "actors": count,
        "share_with_one_environment": round(alone, 2),
        "num_envs": num_envs,
        "calls_per_second": round(per_second),
        "driver_share": round(share, 2),
        "steps_per_second": round(steps),
        "bytes_per_second": round(wire),
        "bottleneck": max(limits, key=lambda name: limits[name])
        if alone > BUSY
        else "the environments",
    }


def expected_seeds(count: int, of_seeds: dict[str, Any]) -> dict[str, Any]:
    share = count * of_seeds["driver_seconds_a_seed"] / LENGTH
    wire = count * of_seeds["bytes_a_seed"] / LENGTH
    return {
        "seeds": count,
        "driver_share": round(share, 3),
        "bytes_per_second": round(wire),
        "bottleneck": "the cores"
        if share < BUSY and wire < WIRE / 2
        else "the driver"
        if share >= BUSY
        else "the network",
    }


def scaling() -> list[dict[str, Any]]:
    set_threads(1)
    ray_cluster.connect("", 2)
    try:
        ray = ray_cluster.require_ray()
        measured = [calls(8, 1), calls(64, 1), calls(AHEAD_ON_RAY, 64)]
        looked, of_seeds, of_sizes = looks(ray), seeds(), sizes()
    finally:
        ray_cluster.disconnect()
    call_us, row_us = costs(measured)
    look_us = {row["calls"]: row["us"] for row in looked}
    row_bytes = of_sizes[0]["row_bytes"]
    return [
        {"name": "sizes", "rows": of_sizes},
        {"name": "calls", "call_us": round(call_us), "row_us": round(row_us, 1), "rows": measured},
        {"name": "looks", "rows": looked},
        {"name": "seeds", **of_seeds},
        {
            "name": "actors expected",
            "step": STEP,
            "rows": [
                expected_actors(count, call_us, row_us, look_us[count], row_bytes)
                for count in COUNTS
            ],
        },
        {
            "name": "seeds expected",
            "length": LENGTH,
            "rows": [expected_seeds(count, of_seeds) for count in COUNTS],
        },
    ]


NAMES = {}  # only with --peers
PEERS = {"scaling": scaling}

if __name__ == "__main__":
    for row in scaling():
        print(json.dumps(row), flush=True)

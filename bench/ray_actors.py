"""Actors on Ray against actors in processes, on one machine: what Ray itself costs.

DQN, 64-64, batch 32, an update every 4 environment steps, fused engine, two actors, one thread a
process, in turns, at the end of which actors come to rest: nobody plays while the others are
measured. An environment burns 1 ms of processor time a step; another costs next to nothing and
shows how many rows and calls a second one driver can take. Of the driver (the learner's process)
the share of one core is told, with learning in it and without.

    python bench/ray_actors.py        or        python bench/all.py ray-actors --peers
"""

import json
import time
from collections.abc import Iterator
from typing import Any

from actors import begun, going, per_second
from heavy_environment import spins_for
from measure import interleave

from tenfold.algorithms.off_policy import OffPolicyLearner
from tenfold.config.run import Run
from tenfold.core import ray_cluster
from tenfold.core.system import set_threads

COST, TURN, TURNS = 1_000, 2.0, 7  # microseconds of a step, seconds of a turn, turns of each
NEVER = 10**9


def run_of(spins: int, where: str, ahead: int, num_envs: int = 1, learns: bool = True) -> Run:
    return Run.of(
        {
            "env": f"heavy_environment:Heavy-v0(spins={spins})",
            "actors": 2,
            "where": where,
            "ahead": ahead,
            "num_envs": num_envs,
            "steps": NEVER,
            "agent": {
                "batch_size": 32,
                "learning_starts": 100 if learns else NEVER,
                "every": 4,
                "net": {"hidden": [64, 64]},
            },
        }
    )


class Watched:
    """A turn, with the share of a core that this process took for it."""

    def __init__(self, place: OffPolicyLearner, steps: int) -> None:
        self.place, self.turn, self.shares = place, going(place, steps), []

    def __call__(self) -> int:
        start, used = time.perf_counter(), time.process_time()
        steps = self.turn()
        self.place.pool.pause()
        self.shares.append((time.process_time() - used) / (time.perf_counter() - start))
        return steps

    @property
    def share(self) -> float:
        return round(sorted(self.shares[1:])[len(self.shares[1:]) // 2], 3)


def compare(cost: float, ahead: int, num_envs: int = 1, learns: bool = True) -> dict[str, Any]:
    spins = spins_for(cost * 1e-6) if cost else 0
    ours = {
        where: OffPolicyLearner(run_of(spins, where, ahead, num_envs, learns))
        for where in ("processes", "ray")
    }
    try:
        for place in ours.values():
            begun(place, 400 * num_envs)
        steps = round(TURN / max((cost * 1e-6), 2e-4 / num_envs))
        turns = {where: Watched(place, steps) for where, place in ours.items()}
        found = interleave(dict(turns), TURNS)
        pool: Any = ours["ray"].pool
        report = pool.report()
        size = {"row_bytes": pool.row.itemsize, "rows_in_a_call": (pool.most + pool.least) / 2}
    finally:
        for place in ours.values():
            place.close()
    share = {f"{where}_driver_share": turn.share for where, turn in turns.items()}
    calls = 1e6 / found["ray"] / (num_envs * size["rows_in_a_call"])
    return per_second(
        "ray-actors",
        {
            "work": f"a step burns {cost:g} µs, {num_envs} environments an actor",
            "ahead": ahead,
            "updates": learns,
        },
        ("2 actor processes", found["processes"]),
        ("2 actors on Ray", found["ray"]),
        **size,
        **share,
        calls_per_second=round(calls),
        policy_age=round(report.get("policy_age", 0), 2),
        policy_age_most=report.get("policy_age_most", 0),
    )


def each_row() -> Iterator[dict[str, Any]]:
    set_threads(1)
    ray_cluster.connect("", 2)
    try:
        yield compare(COST, 8)
        yield compare(COST, 32)
        yield compare(COST, 32, learns=False)
        yield compare(COST, 8, num_envs=8)
        yield compare(COST, 32, num_envs=8)
        yield compare(0, 32, learns=False)
        yield compare(0, 32, num_envs=64, learns=False)
    finally:
        ray_cluster.disconnect()


def ray_actors() -> list[dict[str, Any]]:
    return list(each_row())


NAMES = {}
PEERS = {"ray-actors": ray_actors}

if __name__ == "__main__":
    for row in each_row():
        print(json.dumps(row), flush=True)

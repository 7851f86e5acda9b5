"""One update of wide networks on 1, 2, 4, … threads, interleaved; parameters are compared to the
last bit.

    python bench/threads.py --json OUT      # these rows alone, on as many cores as there are
"""

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from measure import as_json, interleave, timed_row

from tenfold.config.run import Run
from tenfold.core.system import Clock, set_threads
from tenfold.core.threads import ThreadTeam
from tenfold.core.work import ADDRESS, ALL, THREADS
from tenfold.training.learners import make_learner

ROUNDS, COMPARED, FILLED = 15, 5, 300
HALF_CHEETAH, CARTPOLE = "HalfCheetah-v5", "tenfold/CartPole-v1"
WIDE = {"net": {"hidden": [256, 256]}}
REPLAY = {"capacity": 10_000, "learning_starts": FILLED, **WIDE}
# an environment, its settings, an agent's settings, items of an update
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any], int]] = {
    "sac": (HALF_CHEETAH, {}, REPLAY | {"batch_size": 256}, 256),
    "td3": (HALF_CHEETAH, {}, REPLAY | {"batch_size": 256}, 256),
    "dqn": (CARTPOLE, {}, REPLAY | {"batch_size": 128}, 128),
    "ppo": (HALF_CHEETAH, {"num_envs": 8}, WIDE | {"horizon": 128, "minibatches": 4}, 256),
}
UPDATES_A_TURN = 20


def ready(case: str) -> Any:
    """A learner whose memory or rollout has rows."""
    env, settings, agent, _ = CASES[case]
    run = {"env": env, "engine": "fused", "agent": {"name": case} | agent, **settings}
    learner = make_learner(Run.of(run))
    learner.warm_up()
    rows = FILLED if case != "ppo" else 1024
    while learner.step < rows:
        learner.round(rows)
    return learner


def updates(case: str, learner: Any, count: int) -> None:
    if case != "ppo":
        learner.engine.update(count, FILLED, Clock())
    for _ in range(count if case == "ppo" else 0):
        learner.engine.learn(0, 1, 1024)


def by_team(work: Callable[[], None], learner: Any, team: ThreadTeam, threads: int) -> Any:
    """The work on so many threads. Each count has a team of its own, which sleeps while others are
    measured."""
    column = learner.engine.table.arrays["team"]

    def turn() -> int:
        column[ADDRESS], column[THREADS] = team.address if threads > 1 else 0, threads
        column[ALL] = 0  # nothing else is measured
        work()
        return UPDATES_A_TURN

    return turn


def compare(name: str, case: str, counts: list[int]) -> list[dict[str, Any]]:
    """A row for each number of threads above 1; without another core its one row is for 1."""
    teams = {threads: ThreadTeam() for threads in counts}
    learners = {threads: ready(case) for threads in counts}
    for threads, team in teams.items():
        team.grow(threads - 1)
        learner = learners[threads]
        by_team(lambda own=learner: updates(case, own, COMPARED), learner, team, threads)()
    results = {threads: learner.agent.block.numpy().copy() for threads, learner in learners.items()}
    one = learners[1]
    work = lambda: updates(case, one, UPDATES_A_TURN)  # noqa: E731
    times = interleave({str(n): by_team(work, one, teams[n], n) for n in counts}, ROUNDS)
    for threads in counts:
        teams[threads].close()
        learners[threads].close()
    env, _, agent, batch = CASES[case]
    setting = {"agent": case, "env": env, "batch": batch, "hidden": agent["net"]["hidden"]}
    return [
        timed_row(
            name,
            setting | {"threads": n},
            ("1 thread", times["1"]),
            (f"{n} threads", times[str(n)]),
            equal=bool(np.array_equal(results[1], results[n])),
            max_diff=float(np.abs(results[1] - results[n]).max()),
        )
        for n in counts[1:] or counts
    ]


def rows_of(name: str) -> list[dict[str, Any]]:
    set_threads(1)
    cores = len(os.sched_getaffinity(0))
    counts = [1 << k for k in range(cores.bit_length())]
    return [row for case in CASES for row in compare(name, case, counts)]


NAMES = {"update-threads": lambda: rows_of("update-threads")}
CUDA = {"cuda-update-threads": lambda: rows_of("cuda-update-threads")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, required=True, help="the file to write")
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    rows = rows_of("update-threads")
    arguments.json.write_text(as_json([row | {"load": round(load, 1)} for row in rows]) + "\n")
    for row in rows:
        print(
            f"{row['setting']['agent']} on {row['candidate']}: {row['candidate_us']:,.0f} µs, on 1 "
            f"{row['baseline_us']:,.0f}, ratio {row['ratio']}, equal {row['equal']}"
        )


if __name__ == "__main__":
    main()

"""Where processes of their own pay: an environment that burns processor time, one actor in this
process or two in their own.

DQN, 64-64, batch 32, an update every 4 environment steps, fused engine, actors up to 8 steps ahead
of the learner, one thread a process, in turns. Where two cores do all the work, actors' processes
share them with the learner's.
"""

from typing import Any

from actors import begun, meters, per_second
from heavy_environment import spins_for
from measure import interleave

from tenfold.algorithms.off_policy import OffPolicyLearner
from tenfold.config.run import Run
from tenfold.core.system import set_threads

HEAVY, COSTS = 1_000, (50, 100, 200, 300, 500, 1_000, 2_000)  # microseconds of a step
TURN, TURNS = 0.7, 7  # seconds of steps, turns of each


def run_of(spins: int, actors: int, where: str, every: int = 4) -> Run:
    return Run.of(
        {
            "env": f"heavy_environment:Heavy-v0(spins={spins})",
            "actors": actors,
            "where": where,
            "agent": {
                "batch_size": 32,
                "learning_starts": 100,
                "every": every,
                "net": {"hidden": [64, 64]},
            },
        }
    )


def compare(name: str, cost: float, every: int = 4, **more: Any) -> dict[str, Any]:
    """One actor here against two in processes, in environment steps a second."""
    set_threads(1)
    spins = spins_for(cost * 1e-6)
    ours = {
        "serial": OffPolicyLearner(run_of(spins, 1, "serial", every)),
        "processes": OffPolicyLearner(run_of(spins, 2, "processes", every)),
    }
    try:
        for place in ours.values():
            begun(place, 300)
        turns = meters(ours, round(TURN / (cost * 1e-6 + 50e-6)))
        found = interleave(dict(turns), TURNS)
    finally:
        for place in ours.values():
            place.close()
    return per_second(
        name,
        {
            "work": f"a step burns {cost:g} µs, an update every {every} steps",
            "hidden": [64, 64],
            "batch": 32,
        },
        ("1 actor, serial", found["serial"]),
        ("2 actor processes", found["processes"]),
        baseline_processor=turns["serial"].row(),
        candidate_processor=turns["processes"].row(),
        **more,
    )


def heavy() -> list[dict[str, Any]]:
    return [compare("heavy-environment", HEAVY, bar=1.7)]


def where_processes_pay() -> list[dict[str, Any]]:
    return [compare("processes-pay", cost) for cost in COSTS]


NAMES = {"heavy-environment": heavy, "processes-pay": where_processes_pay}

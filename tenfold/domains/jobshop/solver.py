"""CP-SAT of OR-Tools as a player: what a solver finds in given seconds (extra `schedule`)."""

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from tenfold.core.errors import UserError
from tenfold.domains.jobshop.instances import Instance
from tenfold.domains.jobshop.orders import orders_of_starts

MODULE = "ortools.sat.python.cp_model"
INSTALL = 'pip install "tenfold[schedule]"'


def is_installed() -> bool:
    return find_spec("ortools") is not None


def solver_player(seconds: float, workers: int = 1) -> Any:
    """A `Player` that gives each instance so many seconds of wall clock, on so many threads. An
    instance for which it finds nothing in that time has no order."""
    if not is_installed():
        raise UserError(f"CP-SAT is part of OR-Tools, which is not installed: {INSTALL}")
    import_module(MODULE)  # now, before anybody's clock runs

    def play(instances: Sequence[Instance], samples: int, seed: int) -> list[list[np.ndarray]]:
        found = [solve(each, seconds, workers, seed)[0] for each in instances]
        return [
            [] if start is None else list(orders_of_starts(each, start[None]))
            for each, start in zip(instances, found, strict=True)
        ]

    return play


def solve(
    instance: Instance, seconds: float, workers: int = 1, seed: int = 0
) -> tuple[np.ndarray | None, int]:
    """When operations start [jobs, K] in the best schedule that CP-SAT finds (None: it found none),
    and the lower bound that it proves."""
    cp_model: Any = import_module(MODULE)
    model, horizon = cp_model.CpModel(), int(instance.duration.sum())
    end = model.new_int_var(0, horizon, "makespan")
    begun: dict[tuple[int, int], Any] = {}
    on_machine: list[list[Any]] = [[] for _ in range(instance.machines)]
    for j in range(instance.jobs):
        for k, (machine, duration) in enumerate(instance.job(j)):
            begun[j, k] = start = model.new_int_var(0, horizon - duration, f"{j} {k}")
            on_machine[machine].append(
                model.new_fixed_size_interval_var(start, duration, f"i{j} {k}")
            )
            if k:
                model.add(start >= begun[j, k - 1] + int(instance.duration[j, k - 1]))
        last = int(instance.lengths[j]) - 1
        model.add(end >= begun[j, last] + int(instance.duration[j, last]))
    for intervals in on_machine:
        model.add_no_overlap(intervals)
    model.minimize(end)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = max(seconds, 1e-3)
    solver.parameters.num_workers = workers
    solver.parameters.random_seed = seed % 2**31
    status = solver.solve(model)
    bound = int(np.ceil(solver.best_objective_bound - 1e-6))
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None, max(bound, 0)
    start = np.full(instance.machine.shape, -1)
    for (j, k), variable in begun.items():
        start[j, k] = solver.value(variable)
    return start, bound

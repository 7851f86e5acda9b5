"""Durotaxis: steps of E colonies compiled for one core against torch, on the CPU (one thread) and,
where there is one, on CUDA.

Colonies of 40 nodes that keep their size and creep, so that every step is like the others; a step
is all of it, with what is seen, the endings and the beginnings. All forms take turns. On CUDA steps
are launched one by one, or recorded as one graph; a turn ends when the device is done. Equality is
checked after a few steps from the start: trees exactly, rows to 1e-5.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tenfold.cli import measure
from tenfold.cli.measure import interleave, timed_row
from tenfold.domains.durotaxis.colonies import DurotaxisEnvironments
from tenfold.domains.durotaxis.torch_colonies import TorchColonies

COLONIES, NODES, CHECKED = (64, 1024, 4096), 40, 3
WORLD = f"tenfold/Durotaxis-v0(substrate=bend, init_nodes={NODES}, rounding=floor, soft=0.001)"
# straight on: lines at any other angle leave the corners of a hull to rounding
ACTION = [0.5, 0.5, 4.0, 0.05, 0.0]


def forms(number: int) -> dict[str, TorchColonies]:
    """On the CPU, and on CUDA in both ways."""
    found = {"torch, CPU": TorchColonies(WORLD, number, 0)}
    if torch.cuda.is_available():
        found |= {
            "torch, CUDA": TorchColonies(WORLD, number, 0, "cuda"),
            "torch, CUDA graph": TorchColonies(WORLD, number, 0, "cuda", graph=True),
        }
    return found


def difference(envs: DurotaxisEnvironments, colonies: TorchColonies) -> float:
    """The largest of what is seen; infinite where a tree is another."""
    there = np.arange(envs.colonies.x.shape[1]) < envs.colonies.nodes[:, None]
    same = all(
        np.array_equal(found.cpu().numpy()[there], expected[there])
        for found, expected in (
            (colonies.ids, envs.colonies.ident),
            (colonies.parents, envs.colonies.parent),
        )
    )
    return float(np.abs(colonies.obs.cpu().numpy() - envs.obs).max()) if same else np.inf


def turn_of(step: Callable[[], None], device: str) -> Callable[[], int]:
    """So many steps that a turn lasts a moment, and then the wait for the device."""

    def steps(count: int) -> int:
        for _ in range(count):
            step()
        if device == "cuda":
            torch.cuda.synchronize()
        return count

    steps(2)
    microseconds = interleave({"": lambda: steps(1)}, rounds=3)[""]
    count = max(1, int(measure.TURN_SECONDS * 1e6 / microseconds))
    return lambda: steps(count)


def steps() -> list[dict[str, Any]]:
    rows = []
    for number in COLONIES:
        envs, others = DurotaxisEnvironments(WORLD, number, 0), forms(number)
        actions = np.tile(ACTION, (number, 1))
        given = {
            name: torch.from_numpy(actions).to(colonies.device) for name, colonies in others.items()
        }
        for _ in range(CHECKED):
            envs.step(actions)
            for name, colonies in others.items():
                colonies.step(given[name])
        apart = {name: difference(envs, colonies) for name, colonies in others.items()}
        works = {"Numba": turn_of(lambda envs=envs, actions=actions: envs.step(actions), "cpu")}
        works |= {
            name: turn_of(
                lambda colonies=colonies, told=given[name]: colonies.step(told),
                colonies.device.type,
            )
            for name, colonies in others.items()
        }
        times = interleave(works, rounds=7)
        setting = {
            "substrate": "bend",
            "colonies": number,
            "nodes": round(float(envs.colonies.nodes.mean())),
        }
        rates = {name: round(number / time * 1e6) for name, time in times.items()}
        for name, colonies in others.items():
            where = {"gpu": torch.cuda.get_device_name()} if colonies.device.type == "cuda" else {}
            rows.append(
                timed_row(
                    "colony-torch",
                    setting | where,
                    ("Numba, one core", times["Numba"]),
                    (name, times[name]),
                    equal=apart[name] < 1e-5,
                    max_diff=apart[name],
                    baseline_per_second=rates["Numba"],
                    candidate_per_second=rates[name],
                )
            )
    return rows


NAMES = {"colony-torch": steps}

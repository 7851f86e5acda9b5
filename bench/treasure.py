"""Treasure Hunt: 64 worlds of 5 agents, one compiled call for all of them against a loop over worlds, agents and cells.

The windows alone, and whole turns (moves, new treasures, windows). The loops are the references of the registered pairs; a turn is
timed on copies of the same worlds, copied anew on both sides. Equality is checked on the inputs timed.
"""

from typing import Any

import numpy as np

from tenfold.envs.treasure import observe_all, observe_once, observe_reference, step_once, step_reference
from tenfold.envs.worlds import TreasureWorlds
from tenfold.measure import row

WORLDS, PLAYED = 64, 25  # turns played before, so that treasures lie about
SIZES = ("tenfold/TreasureSmall-v0", "tenfold/Treasure-v0(agents=5)")


def played(name: str) -> TreasureWorlds:
    worlds, rng = TreasureWorlds(name, WORLDS, 0), np.random.default_rng(0)
    for _ in range(PLAYED):
        worlds.step(rng.integers(4, size=worlds.num_envs))
    return worlds


def differ(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(np.subtract(found, expected, dtype=np.float64)).max(initial=0))


def windows() -> list[dict[str, Any]]:
    rows = []
    for name in SIZES:
        worlds = played(name)
        given = worlds.rules, worlds.boards, worlds.at
        worst = differ(observe_once(*given), observe_reference(*given))
        rows.append(row("treasure-windows", {"env": name, "worlds": WORLDS, "agents": worlds.agents},
                        ("cell by cell", lambda given=given: observe_reference(*given)),
                        ("tenfold", lambda w=worlds: observe_all(w.rules.radius, w.boards, w.at, w.obs)), worst == 0, worst,
                        rounds=11))
    return rows


def turns() -> list[dict[str, Any]]:
    rows = []
    for name in SIZES:
        worlds = played(name)
        action = np.random.default_rng(1).integers(4, size=worlds.num_envs)
        kept = worlds.boards, worlds.at, worlds.length, worlds.episode

        def turn(step: Any, w: TreasureWorlds = worlds, kept: tuple[np.ndarray, ...] = kept, action: np.ndarray = action) -> Any:
            return step(w.rules, *(part.copy() for part in kept), w.streams, action)
        worst = max(differ(f, e) for f, e in zip(turn(step_once), turn(step_reference), strict=True))
        rows.append(row("treasure-turns", {"env": name, "worlds": WORLDS, "agents": worlds.agents},
                        ("cell by cell", lambda turn=turn: turn(step_reference)), ("tenfold", lambda turn=turn: turn(step_once)),
                        worst == 0, worst, rounds=5))
    return rows


NAMES = {"treasure-windows": windows, "treasure-turns": turns}

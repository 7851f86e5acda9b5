"""Treasure Hunt: 64 worlds of 5 agents, one compiled call for all of them against a loop over
worlds, agents and cells.

The windows alone: against a loop that reads the padded map cell by cell from Python lists, the
fastest way to read single cells, and against NumPy's windows of all agents at once. Whole turns
(moves, new treasures, windows): against the registered pair's reference, which is written to be
read; both sides copy the worlds anew each time. Equality is checked on the inputs timed.
"""

from typing import Any

import numpy as np
from measure import row

from tenfold.domains.treasure.kernels import observe_all, step_once, step_reference
from tenfold.domains.treasure.play import TreasureWorlds
from tenfold.domains.treasure.rules import AGENT

WORLDS, PLAYED = 64, 25  # turns played before, so that treasures lie about
SIZES = ("tenfold/TreasureSmall-v0", "tenfold/Treasure-v0(agents=5)")


def played(name: str) -> TreasureWorlds:
    worlds, rng = TreasureWorlds(name, WORLDS, 0), np.random.default_rng(0)
    for _ in range(PLAYED):
        worlds.step(rng.integers(4, size=worlds.num_envs))
    return worlds


def differ(actual: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(np.subtract(actual, expected, dtype=np.float64)).max(initial=0))


def cell_by_cell(worlds: TreasureWorlds) -> np.ndarray:
    side, obs = (
        worlds.rules.side,
        np.zeros((worlds.num_envs, worlds.rules.channels, worlds.rules.side**2), np.uint8),
    )
    centre = side**2 // 2
    for w, (board, at) in enumerate(zip(worlds.boards.tolist(), worlds.at.tolist(), strict=True)):
        for a, (y, x) in enumerate(at):
            row, cell = obs[a * WORLDS + w], 0
            for i in range(y, y + side):
                for j in range(x, x + side):
                    code = board[i][j]
                    if code and cell != centre:
                        row[code - 1, cell] = 1
                    cell += 1
    return obs.reshape(worlds.num_envs, -1)


def by_numpy(worlds: TreasureWorlds) -> np.ndarray:
    rules, at = worlds.rules, worlds.at
    every = np.lib.stride_tricks.sliding_window_view(
        worlds.boards, (rules.side, rules.side), axis=(1, 2)
    )
    codes = (
        every[np.arange(WORLDS)[:, None], at[..., 0], at[..., 1]]
        .swapaxes(0, 1)
        .reshape(worlds.num_envs, 1, -1)
    )
    obs = (codes == np.arange(1, rules.channels + 1)[:, None]).view(np.uint8)
    obs[:, AGENT - 1, rules.side**2 // 2] = 0
    return obs.reshape(worlds.num_envs, -1)


def windows() -> list[dict[str, Any]]:
    rows = []
    for name in SIZES:
        worlds = played(name)
        for label, other in (("cell by cell", cell_by_cell), ("NumPy", by_numpy)):
            worst = differ(worlds.obs, other(worlds))
            rows.append(
                row(
                    "treasure-windows",
                    {"env": name, "worlds": WORLDS, "agents": worlds.agents},
                    (label, lambda w=worlds, other=other: other(w)),
                    (
                        "tenfold",
                        lambda w=worlds: observe_all(w.rules.radius, w.boards, w.at, w.obs),
                    ),
                    worst == 0,
                    worst,
                    rounds=11,
                )
            )
    return rows


def turns() -> list[dict[str, Any]]:
    rows = []
    for name in SIZES:
        worlds = played(name)
        action = np.random.default_rng(1).integers(4, size=worlds.num_envs)
        kept = worlds.boards, worlds.at, worlds.length, worlds.episode

        def turn(
            step: Any,
            w: TreasureWorlds = worlds,
            kept: tuple[np.ndarray, ...] = kept,
            action: np.ndarray = action,
        ) -> Any:
            return step(w.rules, *(part.copy() for part in kept), w.streams, action)

        worst = max(
            differ(f, e) for f, e in zip(turn(step_once), turn(step_reference), strict=True)
        )
        rows.append(
            row(
                "treasure-turns",
                {"env": name, "worlds": WORLDS, "agents": worlds.agents},
                ("cell by cell", lambda turn=turn: turn(step_reference)),
                ("tenfold", lambda turn=turn: turn(step_once)),
                worst == 0,
                worst,
                rounds=5,
            )
        )
    return rows


NAMES = {"treasure-windows": windows, "treasure-turns": turns}

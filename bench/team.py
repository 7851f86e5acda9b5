"""The agents of a world: updated together or one after another, and their batches of stacked
frames.

Five agents, 75 numbers seen, 4 actions, batch 32, one thread. Plain engine: one call for all with a
member dimension against a call each; the fused engine, a compiled call each, beside them where it
can be used. Parameters are compared after equal updates. Frames: 5 frames of 75 numbers into the
batch's own arrays, against fancy indexing and reshape of the same rows, for s and s'.
"""

from types import SimpleNamespace
from typing import Any

import numpy as np
from measure import interleave, repeated, row, timed_row

from tenfold.algorithms.dqn_settings import DQN
from tenfold.algorithms.dqn_team import SequentialAgents, Team, TeamReplay
from tenfold.algorithms.dqn_team_engines import products
from tenfold.algorithms.kernels.dqn import FusedDQN
from tenfold.core.layout import ObsLayout
from tenfold.core.spaces import DiscreteActions
from tenfold.core.system import Clock, set_threads
from tenfold.engines.plain import OffPolicyEngine
from tenfold.memory.replay import Replay
from tenfold.memory.replay_rows import FINAL, PENDING, STEP

AGENTS, SIZE, ACTIONS, TURNS = 5, 75, 4, 50  # turns of an epoch
CAPACITY, FILLED = 4_000, 1_000
LAYOUT = ObsLayout((SIZE,), np.dtype(np.uint8), (SIZE,), 1.0)
IQN = {
    "distribution": "implicit(12, 12, 64, 32)",
    "dueling": True,
    "double": True,
    "explore": "noisy(0.5)",
    "n_step": 3,
    "frames": 5,
    "clip_norm": 1,
}
# words, options, widths of the hidden layers, the bar
CASES = (
    ("DQN", {}, 64, 3.0),
    ("DQN", {}, 256, None),
    ("DQN", {}, 512, None),
    ("DQN", {}, 1024, None),
    ("IQN", IQN, 64, None),
    ("IQN", IQN, 128, None),
    ("IQN", IQN, 256, None),
    ("IQN", IQN, 512, None),
)


def filled(config: DQN) -> tuple[Team, TeamReplay, Any]:
    rng = np.random.default_rng(0)
    team, replay = (
        Team(config, LAYOUT, DiscreteActions(ACTIONS, 0), 0, AGENTS),
        TeamReplay(config, LAYOUT, 1, 0, AGENTS),
    )
    seen = rng.integers(0, 2, (FILLED + 1, AGENTS, SIZE)).astype(np.uint8)
    no = np.zeros(AGENTS, np.bool_)
    replay.begin(seen[0])
    for turn in range(FILLED):
        replay.add(
            rng.integers(0, ACTIONS, AGENTS),
            rng.normal(size=AGENTS),
            no,
            no | (turn % TURNS == TURNS - 1),
            no,
            seen[turn + 1],
            seen[turn + 1],
        )
    none = np.zeros(AGENTS)
    return (
        team,
        replay,
        SimpleNamespace(
            num_envs=AGENTS,
            worlds=1,
            obs=seen[-1],
            final_obs=seen[-1],
            reward=none,
            terminated=no,
            truncated=no,
            skipped=no,
        ),
    )


def engines_of(config: DQN) -> dict[str, OffPolicyEngine | SequentialAgents]:
    """The same agents with the same memories, thrice."""
    made = {
        "together": OffPolicyEngine(*filled(config)),
        "apart": SequentialAgents(*filled(config), OffPolicyEngine),
    }  # type: ignore[arg-type]
    if config.frames > 1:
        return made
    return made | {"fused": SequentialAgents(*filled(config), FusedDQN)}


def team_update() -> list[dict[str, Any]]:
    set_threads(1)
    return [found for case in CASES for found in updates_of(*case)]


CALLED = {
    "apart": "plain, one after another",
    "together": "plain, all in one call",
    "fused": "fused, one after another",
}


def updates_of(
    words: str, options: dict[str, Any], width: int, bar: float | None
) -> list[dict[str, Any]]:
    config = DQN.of(
        {"batch_size": 32, "capacity": CAPACITY, "net": {"hidden": [width, width]}, **options}
    )
    engines, clock = engines_of(config), Clock()
    for engine in engines.values():
        engine.update(3, FILLED, clock)
    flat = {name: engine.agent.block[:, 0].numpy().copy() for name, engine in engines.items()}
    times = interleave(
        {
            name: repeated(lambda e=engine: e.update(1, FILLED, clock))
            for name, engine in engines.items()
        },
        11,
    )
    rows = []
    for baseline, candidate in (("apart", "together"), ("together", "fused")):
        if candidate in engines:
            worst = float(np.abs(flat[baseline] - flat[candidate]).max())
            own = {"bar": bar} if bar and candidate == "together" else {}
            rows.append(
                timed_row(
                    "team-update",
                    {
                        "work": f"{words}, {AGENTS} agents",
                        "hidden": [width, width],
                        "batch": 32,
                        "products": products(engines["together"].agent),
                    },
                    (CALLED[baseline], times[baseline]),
                    (CALLED[candidate], times[candidate]),
                    **own,
                )
                | {"equal": worst < 1e-4, "max_diff": worst}
            )
    return rows


def stacked(memory: Replay, lane_place: np.ndarray, turn: np.ndarray) -> np.ndarray:
    """By fancy indexing: the places of all frames, none of them before the episode's first, then
    one copy and a reshape."""
    back = np.minimum(np.arange(memory.frames - 1, -1, -1), turn[:, None])
    return memory.obs[lane_place[:, None] - back].reshape(len(lane_place), -1)


def frames() -> list[dict[str, Any]]:
    set_threads(1)
    config = DQN.of({"batch_size": 32, "capacity": CAPACITY, "frames": 5, "n_step": 3})
    memory = filled(config)[1].memories[0]
    # of every row in its episode, as programs of this kind store it
    turn = np.zeros(CAPACITY, np.int64)
    for place in range(1, memory.head[0] + 1):
        turn[place] = 0 if memory.kind[place - 1] == FINAL else turn[place - 1] + 1
    ended, final = (memory.kind != STEP) & (memory.kind != PENDING), memory.kind == FINAL
    rng, last = np.random.default_rng(0), int(memory.head[0]) - config.n_step

    def drawn() -> np.ndarray:
        rows = rng.integers(config.frames, last, 32)
        while (wrong := final[rows]).any():
            rows[wrong] = rng.integers(config.frames, last, int(wrong.sum()))
        return rows

    def usual(rows: np.ndarray | None = None) -> tuple[np.ndarray, ...]:
        """The whole batch as the opponent in bench/peers/usual_actors.py takes it."""
        rows = drawn() if rows is None else rows
        reward, going, steps = (
            np.zeros(32, np.float32),
            np.ones(32, np.bool_),
            np.zeros(32, np.int64),
        )
        for j in range(config.n_step):
            reward += np.float32(config.gamma**j) * going * memory.reward[rows + j]
            steps += going
            going &= ~ended[rows + j]
        return (
            stacked(memory, rows, turn[rows]),
            stacked(memory, rows + steps, turn[rows + steps]),
            memory.action[rows],
            reward,
            (config.gamma**steps).astype(np.float32),
        )

    batch = memory.sample()
    ours = memory.flat_obs, memory.flat_next_obs, batch.action, batch.reward, batch.discount
    worst = max(
        float(np.abs(a - b.astype(a.dtype)).max())
        for a, b in zip(usual(batch.row), ours, strict=True)
    )
    return [
        row(
            "frames",
            {
                "work": "a batch of 32, 5 frames of 75 numbers, s and s', 3-step returns",
                "batch": 32,
            },
            ("fancy indexing and reshape", usual),
            ("tenfold", memory.sample),
            worst < 1e-5,
            worst,
            bar=3,
        ),
        row(
            "frames",
            {"work": "the same, frames alone (ours: the whole batch)", "batch": 32},
            (
                "fancy indexing and reshape",
                lambda: (
                    stacked(memory, batch.row, turn[batch.row]),
                    stacked(memory, batch.row + 3, turn[batch.row + 3]),
                ),
            ),
            ("tenfold", memory.sample),
            None,
            None,
        ),
    ]


NAMES = {"team-update": team_update, "frames": frames}

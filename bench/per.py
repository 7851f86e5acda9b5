"""Prioritised replay: add one transition, draw a batch of 32, write its new priorities, on a full
memory of 100,000.

Ours against cpprb, in turns of processes; and against the plain reference (cumulative sums), on the
same draws.
"""

import json
import statistics
import subprocess
from typing import Any

import numpy as np
from measure import interleave, repeated, row, timed_row
from rates import HERE, THEIRS, TURNS

from tenfold.algorithms.dqn_settings import DQN, Prioritized
from tenfold.core.layout import ObsLayout
from tenfold.memory.replay import Replay
from tenfold.memory.replay_rows import (
    draw_prioritized,
    draw_prioritized_reference,
    set_priorities,
    set_priorities_reference,
)

SIZE, BATCH = 100_000, 32


def filled() -> Replay:
    rng = np.random.default_rng(0)
    layout = ObsLayout((4,), np.dtype(np.float32), (4,), 1.0)
    replay = Replay(DQN(capacity=SIZE, batch_size=BATCH, replay=Prioritized()), layout, 1, 0)
    replay.begin(np.zeros((1, 4), np.float32))
    quiet = np.zeros(1, np.bool_)
    for i in range(SIZE + 500):
        replay.add(
            np.zeros(1, np.int64),
            np.ones(1),
            quiet,
            np.array([i % 200 == 199]),
            quiet,
            np.zeros((1, 4), np.float32),
            np.zeros((1, 4), np.float32),
        )
        if i > BATCH and i % 4 == 0:
            replay.sample(0.4)
            replay.prioritise(rng.uniform(0.01, 2, BATCH).astype(np.float32))
    return replay


def cycle(replay: Replay) -> Any:
    obs, action, reward, quiet = (
        np.zeros((1, 4), np.float32),
        np.zeros(1, np.int64),
        np.ones(1),
        np.zeros(1, np.bool_),
    )
    errors = np.random.default_rng(1).uniform(0.01, 2, BATCH).astype(np.float32)

    def once() -> None:
        replay.add(action, reward, quiet, quiet, quiet, obs, obs)
        replay.sample(0.4)
        replay.prioritise(errors)

    return once


def against_reference() -> list[dict[str, Any]]:
    replay = filled()
    errors = np.random.default_rng(1).uniform(0.01, 2, BATCH).astype(np.float32)

    def work(draw: Any, put: Any) -> tuple[Any, dict[str, np.ndarray]]:
        state = {name: getattr(replay, name).copy() for name in ("count", "tree", "top")}
        state |= {
            "row": np.zeros(BATCH, np.int64),
            "draw": np.zeros(BATCH),
            "weight": np.zeros(BATCH, np.float32),
        }

        def once() -> None:
            draw(
                replay.stream,
                state["count"],
                state["tree"],
                0.4,
                state["row"],
                state["draw"],
                state["weight"],
            )
            put(state["tree"], state["top"], state["row"], errors, 0.6, 1e-6)

        return once, state

    fast, fast_state = work(draw_prioritized, set_priorities)
    plain, plain_state = work(draw_prioritized_reference, set_priorities_reference)
    for _ in range(3):
        fast()
        plain()
    difference = max(
        float(np.abs(fast_state[n] - plain_state[n]).max()) for n in ("row", "weight", "tree")
    )
    return [
        row(
            "per",
            {"size": SIZE, "batch": BATCH, "work": "sample and update priorities"},
            ("cumulative sums", plain),
            ("sum tree", fast),
            difference < 1e-6,
            difference,
            rounds=7,
        )
    ]


def against_cpprb() -> list[dict[str, Any]]:
    """Turns of both, A/B/A/B: a process of cpprb's, then ours."""
    work = repeated(cycle(filled()))
    ours, theirs = [], []
    for _ in range(TURNS):
        done = subprocess.run(
            [THEIRS, str(HERE / "peers" / "cpprb.py")], check=True, capture_output=True, text=True
        )
        theirs.append(json.loads(done.stdout.splitlines()[-1])["us_per_cycle"])
        ours.append(interleave({"ours": work}, 41)["ours"])
    return [
        timed_row(
            "per",
            {"size": SIZE, "batch": BATCH, "work": "add 1, sample and update priorities"},
            ("cpprb", statistics.median(theirs)),
            ("tenfold", statistics.median(ours)),
        )
    ]


NAMES = {"per": against_reference}
PEERS = {"per": lambda: against_reference() + against_cpprb()}

"""A whole Q-learning update: eager PyTorch (bench/eager_dqn.py, frozen), our plain engine and the
fused one.

The eager side is handed batches that lie ready; ours also draw and gather them from the replay
memory. Before timing both do twenty updates from the same parameters on the same batches, and their
parameters are compared.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from eager_dqn import EagerDQN
from measure import row

from tenfold.algorithms.kernels.dqn import FusedDQN
from tenfold.algorithms.off_policy import OffPolicyLearner
from tenfold.config.run import Run
from tenfold.core.system import Clock, set_threads
from tenfold.engines.fused import WEIGHT

FULL = {
    "double": True,
    "dueling": True,
    "replay": "prioritized",
    "n_step": 3,
    "loss": "huber",
    "clip_norm": 10.0,
}
FILLED, LR = 10_000, 1e-3
# updates compared; largest difference of a parameter, a tenth of ONE step of Adam
CHECKED, TOLERANCE = 20, 1e-4


def ready(
    engine: str, batch: int, hidden: tuple[int, ...], options: dict[str, Any]
) -> OffPolicyLearner:
    """A place whose memory holds transitions of random play."""
    agent = {
        "lr": LR,
        "gamma": 0.99,
        "target": "hard(500)",
        "adam_eps": 1e-8,
        "loss": "mse",
        "double": False,
        "batch_size": batch,
        "net": {"hidden": list(hidden)},
        "capacity": 50_000,
        "learning_starts": FILLED,
        **options,
    }
    place = OffPolicyLearner(
        Run.of({"env": "tenfold/CartPole-v1", "engine": engine, "agent": agent})
    )
    while place.step < FILLED:
        place.round(FILLED)
    return place


def batch_of(place: OffPolicyLearner) -> dict[str, np.ndarray]:
    """The batch drawn last, as arrays of its own."""
    b = place.replay.gather()
    fused = isinstance(place.engine, FusedDQN)
    weight = place.engine.table.arrays["items"][WEIGHT] if fused else b.weight
    return {
        "obs": b.obs.copy(),
        "action": b.action.copy(),
        "reward": b.reward.copy(),
        "discount": b.discount.copy(),
        "next_obs": b.next_obs.copy(),
        "weight": weight.copy(),
    }


def eager_like(place: OffPolicyLearner) -> EagerDQN:
    config = place.agent.config
    eager = EagerDQN(
        place.envs.layout.size,
        config.net.hidden,
        place.agent.actions.n,
        LR,
        config.gamma,
        config.double,
        config.dueling,
        config.loss == "huber",
        config.clip_norm,
    )
    for net, ours in ((eager.online, place.agent.online), (eager.target, place.agent.target)):
        with torch.no_grad():
            for parameter, own in zip(net.parameters(), ours.parameters(), strict=True):
                parameter.copy_(own)
    return eager


def compare_and_time(
    name: str, engine: str, batch: int, hidden: tuple[int, ...], options: dict[str, Any]
) -> dict[str, Any]:
    set_threads(1)
    place = ready(engine, batch, hidden, options)
    eager = eager_like(place)
    batches = []
    for _ in range(CHECKED):
        place.engine.update(1, FILLED, Clock())
        batches.append(batch_of(place))
        eager.update(batches[-1])
    difference = max(
        float((p - o).detach().abs().max())
        for p, o in zip(eager.online.parameters(), place.agent.online.parameters(), strict=True)
    )
    turn = iter(range(10**12))
    clock = Clock()
    setting = {"batch": batch, "hidden": list(hidden), **options}
    return row(
        name,
        setting,
        ("eager PyTorch", lambda: eager.update(batches[next(turn) % CHECKED])),
        (f"{engine} engine", lambda: place.engine.update(1, FILLED, clock)),
        difference <= TOLERANCE,
        difference,
    )


def updates_in_one_call() -> list[dict[str, Any]]:
    """K updates a call against K calls; equal bit for bit."""
    set_threads(1)
    rows, clock = [], Clock()
    for count in (2, 4, 8, 64):
        together, singly = ready("fused", 32, (64, 64), {}), ready("fused", 32, (64, 64), {})

        def calls(place: OffPolicyLearner = singly, count: int = count) -> None:
            for _ in range(count):
                place.engine.update(1, FILLED, clock)

        together.engine.update(count, FILLED, clock)
        calls()
        difference = float((together.agent.block - singly.agent.block).abs().max())
        rows.append(
            row(
                "updates-in-one-call",
                {"updates": count, "batch": 32, "hidden": [64, 64]},
                (f"{count} calls", calls),
                (
                    "one call",
                    lambda place=together, count=count: place.engine.update(count, FILLED, clock),
                ),
                difference == 0,
                difference,
            )
        )
    return rows


def table(
    name: str, cases: list[tuple[str, int, tuple[int, ...], dict[str, Any]]]
) -> Callable[[], list[dict[str, Any]]]:
    return lambda: [compare_and_time(name, *case) for case in cases]


NAMES = {
    "dqn-update": table(
        "dqn-update",
        [
            (engine, batch, (64, 64), {})
            for engine in ("fused", "plain")
            for batch in (32, 128, 512)
        ],
    ),
    "dqn-update-full": table(
        "dqn-update-full", [(engine, 32, (64, 64), FULL) for engine in ("fused", "plain")]
    ),
    "dqn-update-wide": table(
        "dqn-update-wide", [("fused", batch, (256, 256), {}) for batch in (32, 64, 128)]
    ),
    "updates-in-one-call": updates_in_one_call,
}

"""Soft actor-critic: a whole update beside eager PyTorch (bench/eager_sac.py, frozen) and beside
its bare matrix products, and training on Pendulum beside other people's.

The eager side is handed batches that lie ready; ours also draws and gathers them from the replay
memory. Before timing both do twenty updates from the same parameters on the same batches with the
same noise, and their parameters are compared.
"""

import statistics
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import rates
import torch
from eager_sac import EagerSAC
from measure import row, timed_row

from tenfold.algorithms.off_policy import OffPolicyLearner
from tenfold.config.run import Run
from tenfold.core.system import Clock, set_threads

FILLED, LR, TAU = 5_000, 3e-4, 0.005
# updates compared; largest difference of a parameter, a tenth of ONE step of Adam
CHECKED, TOLERANCE = 20, 3e-5
SIZES = ((64, (64, 64)), (256, (256, 256)))  # items of a batch, widths
TURNS = 5
# what each does in turns: whom rates.py knows, with which flags
RIVALS = {"Stable-Baselines3's SAC": [], "SBX's SAC": ["--package", "sbx"]}


def ready(engine: str, batch: int, hidden: tuple[int, ...]) -> OffPolicyLearner:
    """A place whose memory holds transitions of random play."""
    agent = {
        "name": "sac",
        "lr": LR,
        "tau": TAU,
        "batch_size": batch,
        "net": {"hidden": list(hidden)},
        "capacity": 50_000,
        "learning_starts": FILLED,
    }
    run = Run.of({"env": "tenfold/Pendulum-v1", "engine": engine, "agent": agent})
    place = OffPolicyLearner(run)
    place.warm_up()
    while place.step < FILLED:
        place.round(FILLED)
    return place


def batch_of(place: OffPolicyLearner) -> dict[str, np.ndarray]:
    """The batch drawn last, as arrays of its own."""
    b = place.replay.gather()
    names = ("obs", "action", "reward", "discount", "next_obs")
    return {name: getattr(b, name).copy() for name in names}


def pairs_of(place: OffPolicyLearner, eager: EagerSAC) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Parameters of the eager program, each with our own of the same place: means and deviations
    are one layer here, two there."""
    actor, critics = eager.actor, [*eager.critics, *eager.targets]
    *ours, weight, bias = place.agent.online.actor.parameters()
    found = list(zip(actor.trunk.parameters(), ours, strict=True))
    heads = actor.mean, actor.log_std
    for theirs, own in zip(heads, zip(weight.chunk(2), bias.chunk(2), strict=True), strict=True):
        found += list(zip((theirs.weight, theirs.bias), own, strict=True))
    own_critics = [*place.agent.online.critics, *place.agent.target.critics]
    for theirs, own in zip(critics, own_critics, strict=True):
        found += list(zip(theirs.parameters(), own.parameters(), strict=True))
    return [*found, (eager.log_alpha, place.agent.online.temperature.log)]


def eager_like(place: OffPolicyLearner) -> EagerSAC:
    agent = place.agent
    eager = EagerSAC(place.envs.layout.size, agent.actions.reals, agent.config.net.hidden, LR, TAU)
    with torch.no_grad():
        for theirs, own in pairs_of(place, eager):
            theirs.copy_(own)
    return eager


def compared(place: OffPolicyLearner, eager: EagerSAC) -> tuple[list[dict[str, np.ndarray]], float]:
    """The batches of twenty updates by both, and the largest difference of a parameter after
    them."""
    batches = []
    for _ in range(CHECKED):
        noise = place.agent.draw_for(len(place.replay.batch.row))
        place.engine.update(1, FILLED, Clock())
        batches.append(batch_of(place))
        eager.update(batches[-1], noise["noise"], noise["next_noise"])
    apart = (float((t - o).detach().abs().max()) for t, o in pairs_of(place, eager))
    return batches, max(apart)


def compare_and_time(name: str, engine: str, batch: int, hidden: tuple[int, ...]) -> dict[str, Any]:
    set_threads(1)
    place = ready(engine, batch, hidden)
    eager = eager_like(place)
    batches, difference = compared(place, eager)
    turn, clock = iter(range(10**12)), Clock()
    return row(
        name,
        {"batch": batch, "hidden": list(hidden)},
        ("eager PyTorch", lambda: eager.update(batches[next(turn) % CHECKED])),
        (f"{engine} engine", lambda: place.engine.update(1, FILLED, clock)),
        difference <= TOLERANCE,
        difference,
    )


def bare_products(features: int, reals: int, hidden: tuple[int, ...], batch: int) -> Callable:
    """The matrix products of an update by torch.mm into arrays made once, and nothing else: of the
    actor on s and s', of two critics on [s' | a'], [s | a] and [s | a of the policy]; back through
    critics and actor by weights, and through the critics once more by inputs alone."""
    done = []

    def layers(inputs: int, outputs: int, forward: int, back: int, through: int) -> None:
        sizes = (inputs, *hidden, outputs)
        for k, (into, out) in enumerate(pairwise(sizes)):
            x, y = torch.randn(batch, into), torch.randn(batch, out)
            weight, by_weight = torch.randn(out, into), torch.empty(out, into)
            by_x = torch.empty(batch, into)
            done.extend([(x, weight.T, torch.empty(batch, out))] * forward)
            done.extend([(y.T, x, by_weight)] * back)
            inner = back if k else 0  # nobody asks for the derivative by a batch's observations
            done.extend([(y, weight, by_x)] * (inner + through))

    layers(features, 2 * reals, forward=2, back=1, through=0)
    layers(features + reals, 1, forward=6, back=2, through=2)

    def products() -> None:
        for a, b, out in done:
            torch.mm(a, b, out=out)

    return products


def against_products() -> list[dict[str, Any]]:
    """A whole update beside the bare products of one: above 1 the products alone take longer in
    torch than the whole update here."""
    set_threads(1)
    rows, clock = [], Clock()
    for batch, hidden in SIZES:
        place = ready("fused", batch, hidden)
        features, reals = place.envs.layout.size, place.agent.actions.reals
        rows.append(
            row(
                "sac-products",
                {"batch": batch, "hidden": list(hidden)},
                ("its products alone, torch.mm", bare_products(features, reals, hidden, batch)),
                ("whole update", lambda p=place: p.engine.update(1, FILLED, clock)),
                None,
                None,
            )
        )
    return rows


def race(name: str, env: str) -> list[dict[str, Any]]:
    """Training on Pendulum, 64-64, batch 64, an update a step: A/B/C/A/B/C, medians."""
    flags = {"tenfold's SAC": ["--env", env], **RIVALS}
    found: dict[str, list[float]] = {who: [] for who in flags}
    for _ in range(TURNS):
        for who, own in flags.items():
            found[who].append(rates.rate(who, "--batch", "64", *own))
    ours, *theirs = ((who, statistics.median(measured)) for who, measured in found.items())
    setting = {"env": env, "batch": 64, "updates": "1 every 1 steps", "hidden": [64, 64]}
    return [
        timed_row(
            name,
            setting,
            (who, 1e6 / median),
            ("tenfold", 1e6 / ours[1]),
            baseline_per_second=round(median),
            candidate_per_second=round(ours[1]),
        )
        for who, median in theirs
    ]


NAMES = {
    "sac-update": lambda: [
        compare_and_time("sac-update", engine, *size)
        for engine in ("fused", "plain")
        for size in SIZES
    ],
    "sac-products": against_products,
}
PEERS = {
    "pendulum-sac": lambda: race("pendulum-sac", "Pendulum-v1"),
    "pendulum-compiled-sac": lambda: race("pendulum-compiled-sac", "tenfold/Pendulum-v1"),
}

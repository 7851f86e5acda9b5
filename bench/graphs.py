"""Policies on graphs: a batch of packed graphs against one graph at a time, advantages by component
in one call, and training end to end against PPO as it is commonly written for graphs
(bench/usual_colony.py). Equality is checked on what is timed."""

import importlib.util
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from measure import row, timed_row

from tenfold.algorithms.ppo_learner import PPOLearner
from tenfold.config.files import named
from tenfold.config.networks import PolicyNet
from tenfold.core.graph_spaces import GraphSize
from tenfold.core.random import Purpose
from tenfold.nets.graph import GraphNetwork, GraphOutputs
from tenfold.ops.advantages import gae_components, gae_components_reference
from tenfold.ops.sampling import shuffle
from tenfold.ops.segments import pack

BATCH, COMPONENTS = 64, 10
TURNS = 3  # of each side of the end-to-end measurement, one after another


def trees(nodes: int) -> tuple[torch.Tensor, GraphSize]:
    size, rng = GraphSize(100, 100, 12, 3, 14), np.random.default_rng(0)
    rows = np.zeros((BATCH, size.starts[-1]), np.float32)
    start, links, edges, _ = size.starts
    for own in rows:
        own[:2] = nodes, nodes - 1
        own[2:start] = rng.normal(size=size.whole)
        own[start : start + nodes * size.node] = rng.normal(size=nodes * size.node)
        own[links : links + 2 * (nodes - 1)] = np.array(
            [(int(rng.integers(j)), j) for j in range(1, nodes)]
        ).ravel()
        own[edges : edges + (nodes - 1) * size.edge] = rng.normal(size=(nodes - 1) * size.edge)
    return torch.from_numpy(rows), size


def forwards() -> list[dict[str, Any]]:
    found = []
    for nodes in (6, 50):
        rows, size = trees(nodes)
        net = GraphNetwork(
            size,
            GraphOutputs((), ((5, False),)),
            PolicyNet(hidden=(64, 64), activation="relu"),
            11,
            0.05,
        )
        net.initialise(0, 0.5)

        def together(
            net: GraphNetwork = net, rows: torch.Tensor = rows, size: GraphSize = size
        ) -> torch.Tensor:
            with torch.no_grad():
                return net(pack(rows, size))[0]

        def one_by_one(
            net: GraphNetwork = net, rows: torch.Tensor = rows, size: GraphSize = size
        ) -> torch.Tensor:
            with torch.no_grad():
                return torch.cat([net(pack(rows[b : b + 1], size))[0] for b in range(BATCH)])

        worst = float((together() - one_by_one()).abs().max())
        found.append(
            row(
                "graph-forward",
                {"batch": BATCH, "nodes": nodes},
                ("one graph at a time", one_by_one),
                ("packed batch", together),
                worst < 1e-5,
                worst,
            )
        )
    return found


def advantages() -> list[dict[str, Any]]:
    rng, t, b = np.random.default_rng(0), 32, BATCH
    reward, value, next_value = (
        rng.normal(size=(t, b, 1 + COMPONENTS)).astype(np.float32) for _ in range(3)
    )
    boundary = (rng.random((t, b)) < 0.03).astype(np.float32)
    discount = np.where(boundary > 0, 0, 0.99).astype(np.float32)
    last, out, other = (
        rng.normal(size=(b, 1 + COMPONENTS)).astype(np.float32),
        np.zeros_like(reward),
        np.zeros_like(reward),
    )

    def loop() -> np.ndarray:
        """One component, one colony and one step after another."""
        for c in range(1 + COMPONENTS):
            for i in range(b):
                running, following = 0.0, last[i, c]
                for s in reversed(range(t)):
                    after = next_value[s, i, c] if boundary[s, i] else following
                    delta = reward[s, i, c] + discount[s, i] * after - value[s, i, c]
                    running = delta + 0.95 * discount[s, i] * (1 - boundary[s, i]) * running
                    other[s, i, c], following = running, value[s, i, c]
        return other

    def by_component() -> Any:
        return gae_components_reference(
            reward, discount, value, next_value.copy(), boundary, last, 0.95, other
        )

    def together() -> Any:
        return gae_components(reward, discount, value, next_value, boundary, last, 0.95, out)

    together()
    setting = {"batch": b, "horizon": t, "components": COMPONENTS}
    rows = []
    for label, opponent in (
        ("a loop over components and time", loop),
        ("NumPy over colonies, a loop over both", by_component),
    ):
        opponent()
        worst = float(np.abs(out - other).max())
        rows.append(
            row(
                "component-gae",
                setting,
                (label, opponent),
                ("one call", together),
                worst < 1e-4,
                worst,
                rounds=7,
            )
        )
    return rows


def place(seed: int = 0) -> PPOLearner:
    return PPOLearner(named("durotaxis-bend", {"seed": seed, "agent": {"epochs": 1}}))


def end_to_end() -> list[dict[str, Any]]:
    """A whole learning phase: 32 x 64 steps, one epoch. The rollouts are compared, and the
    parameters after one update of both from the same state; later ones drift apart by rounding, as
    any two runs do."""
    spec = importlib.util.spec_from_file_location(
        "usual_colony", Path(__file__).with_name("usual_colony.py")
    )
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    worst, seconds = 0.0, {"usual": [], "tenfold": []}
    for turn in range(TURNS):
        ours, theirs = place(turn), module.UsualColonies(place(turn))
        engine, horizon = ours.engine, ours.agent.config.horizon
        start = perf_counter()
        while ours.rollout.left > 1:
            ours.round()
        ours.envs.step(engine.explore(0, ours.rounds))
        engine.store()
        engine.finish()
        spent = perf_counter() - start
        start = perf_counter()
        for _ in range(horizon):
            theirs.round()
        steps = theirs.advantages()
        other = perf_counter() - start
        same = sum(
            np.allclose(ours.rollout.obs[t, i], own["obs"], atol=1e-3)
            for t in range(horizon)
            for i, own in enumerate(steps[t])
        )
        # a rounding may tip a deletion, and that colony goes its own way
        assert same > 0.9 * horizon * BATCH, same
        pairs = [(ours.rollout.advantage[0, i], steps[0][i]["advantage"]) for i in range(BATCH)]
        assert np.median([abs(a - b) for a, b in pairs]) < 1e-2
        for t in range(horizon):  # from here on the same data, whatever rounding did
            for i, own in enumerate(steps[t]):
                own |= {
                    "obs": ours.rollout.obs[t, i].copy(),
                    "real": ours.rollout.real[t, i].copy(),
                    "log_p": float(ours.rollout.log_p[t, i]),
                    "value": ours.rollout.value[t, i].copy(),
                    "target": ours.rollout.target[t, i].astype(np.float64),
                    "advantage": float(ours.rollout.advantage[t, i]),
                }
        shuffle(ours.agent.keys[Purpose.SHUFFLE], 0, ours.rollout.order)
        parts = ours.agent.config.minibatches
        for part in range(parts):
            start = perf_counter()
            engine.update_once(part, 0)
            spent += perf_counter() - start
            start = perf_counter()
            theirs.update(ours.rollout.order, engine.bounds, part, 0)
            other += perf_counter() - start
            if part == 0:
                apart = (ours.agent.online.flat - theirs.agent.online.flat).abs().max()
                # in units of the learning rate, Adam's step
                worst = max(worst, float(apart) / 1e-3)
        seconds["tenfold"].append(spent)
        seconds["usual"].append(other)
    steps = place().agent.config.horizon * BATCH
    each = {name: float(np.median(times)) / steps * 1e6 for name, times in seconds.items()}
    return [
        timed_row(
            "colony-training",
            {"env": "durotaxis-bend, one epoch", "batch": BATCH},
            ("one graph at a time", each["usual"]),
            ("tenfold", each["tenfold"]),
            equal=worst < 0.05,
            max_diff=worst,
            baseline_per_second=round(1e6 / each["usual"]),
            candidate_per_second=round(1e6 / each["tenfold"]),
        )
    ]


NAMES = {"graph-forward": forwards, "component-gae": advantages, "colony-training": end_to_end}

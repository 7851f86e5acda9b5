"""Durotaxis: 64 colonies of about 50 nodes in one compiled call against one node at a time, as
objects and dictionaries.

The step (spawning, deleting, mending the tree, rewards) and what is seen are timed apart; both
sides of a step begin with a copy of the colonies. The k smallest by (x, id) are marked in arrays
made before, against NumPy's stable sort of x: nodes lie in the order of their ids. The record of a
reward is timed alone: components that are there already into named parts and their weighted sum, in
one array against a dictionary a colony. Equality is checked on the inputs timed.
"""

from typing import Any

import numpy as np
from measure import row
from numba import njit

from tenfold.domains.durotaxis.colonies import DurotaxisEnvironments, observe_all
from tenfold.domains.durotaxis.features import observe_reference
from tenfold.domains.durotaxis.geometry import k_smallest_reference, mark_smallest
from tenfold.domains.durotaxis.reference import Colony, Node
from tenfold.domains.durotaxis.rules import advance
from tenfold.domains.durotaxis.setting import COMPONENTS

COLONIES, NODES = 64, 50
SUBSTRATES = ("linear", "bend")
CHANGING = (
    "x",
    "y",
    "stiff",
    "gx",
    "gy",
    "ident",
    "parent",
    "age",
    "born",
    "nodes",
    "following",
    "step",
    "passed",
    "retreat",
    "centre",
)


@njit(error_model="numpy")  # no cache: this file is no module of a package
def advance_all(rules, c, scratch, action, components, ending):
    for i in range(len(ending)):
        ending[i] = advance(rules, c, i, action[i], scratch, components[i])


@njit(error_model="numpy")  # no cache: this file is no module of a package
def record_all(values, weights, components, reward):
    for i in range(len(reward)):
        total = 0.0
        for k in range(len(weights)):
            components[i, k] = values[i, k]
            total += weights[k] * values[i, k]
        reward[i] = total


def grown(substrate: str) -> DurotaxisEnvironments:
    """Colonies of about NODES nodes, on their way."""
    envs = DurotaxisEnvironments(
        f"tenfold/Durotaxis-v0(substrate={substrate}, soft=0)", COLONIES, 0
    )
    for _ in range(12):
        ratio = np.clip(1 - NODES / (2 * envs.obs[:, :1]), 0, 1)
        envs.step(np.concatenate([ratio, np.tile([15.0, 0.5, 0.5, 0.05], (COLONIES, 1))], 1))
    envs.action[:] = [0.5, 9.0, 1.0, 0.2, -0.1]
    return envs


def as_objects(envs: DurotaxisEnvironments) -> list[Colony]:
    """The same colonies as the reference has them."""
    c, objects = envs.colonies, []
    for i in range(COLONIES):
        colony = Colony(envs.setting, envs.episode_seed(i))
        colony.nodes = [
            Node(
                int(c.ident[i, j]),
                int(c.parent[i, j]),
                float(c.x[i, j]),
                float(c.y[i, j]),
                float(c.stiff[i, j]),
                (float(c.gx[i, j]), float(c.gy[i, j])),
                int(c.age[i, j]),
            )
            for j in range(c.nodes[i])
        ]
        colony.following, colony.step_count, colony.passed = (
            int(c.following[i]),
            int(c.step[i]),
            int(c.passed[i]),
        )
        colony.retreat, colony.centre = int(c.retreat[i]), float(c.centre[i])
        objects.append(colony)
    return objects


def copied(colony: Colony) -> Colony:
    other = object.__new__(Colony)
    other.__dict__.update(colony.__dict__)
    other.nodes = [
        Node(n.ident, n.parent, n.x, n.y, n.stiff, n.gradient, n.age, n.born) for n in colony.nodes
    ]
    return other


def steps() -> list[dict[str, Any]]:
    rows = []
    for substrate in SUBSTRATES:
        envs = grown(substrate)
        objects, action = as_objects(envs), envs.action[0].tolist()
        mean = float(envs.colonies.nodes.mean())
        kept = [
            (getattr(envs.colonies, name), getattr(envs.colonies, name).copy()) for name in CHANGING
        ]

        def together(envs: DurotaxisEnvironments = envs, kept: Any = kept) -> None:
            for array, value in kept:
                array[...] = value
            advance_all(
                envs.rules,
                envs.colonies,
                envs.scratch,
                envs.action,
                envs.component_values,
                envs.ending,
            )

        def one_by_one(
            objects: list[Colony] = objects, action: list[float] = action
        ) -> list[tuple[list[float], Colony]]:
            return [
                (list(colony.step(action)[0].values()), colony) for colony in map(copied, objects)
            ]

        together()
        after = one_by_one()
        worst = float(np.abs(envs.component_values - [components for components, _ in after]).max())
        same = all(
            envs.colonies.ident[i, : len(colony.nodes)].tolist() == [n.ident for n in colony.nodes]
            and envs.colonies.parent[i, : len(colony.nodes)].tolist()
            == [n.parent for n in colony.nodes]
            for i, (_, colony) in enumerate(after)
        )
        rows.append(
            row(
                "colony-step",
                {"substrate": substrate, "colonies": COLONIES, "nodes": round(mean)},
                ("one node at a time", one_by_one),
                ("tenfold", together),
                same and worst < 1e-5,
                worst,
                rounds=7,
            )
        )
    return rows


def features() -> list[dict[str, Any]]:
    envs = grown("bend")
    objects = as_objects(envs)

    def together() -> None:
        observe_all(envs.rules, envs.colonies, envs.scratch, envs.obs, envs.options)

    def naive() -> list[np.ndarray]:
        return [observe_reference(envs.setting, colony.extent, colony.nodes) for colony in objects]

    together()
    worst = float(np.abs(envs.obs - naive()).max())
    setting = {
        "substrate": "bend",
        "colonies": COLONIES,
        "nodes": round(float(envs.colonies.nodes.mean())),
    }
    return [
        row(
            "colony-features",
            setting,
            ("naive loops", naive),
            ("tenfold", together),
            worst < 1e-5,
            worst,
            rounds=7,
        )
    ]


def smallest() -> list[dict[str, Any]]:
    rows, rng = [], np.random.default_rng(0)
    for size in (50, 100, 1_000, 100_000):
        x, k = rng.uniform(0, 600, size), size // 2
        marked, values = np.zeros(size, np.bool_), np.empty(size)

        def sort(x: np.ndarray = x, marked: np.ndarray = marked, k: int = k) -> None:
            marked[:] = False
            marked[np.argsort(x, kind="stable")[:k]] = True

        def select(
            x: np.ndarray = x, marked: np.ndarray = marked, values: np.ndarray = values, k: int = k
        ) -> None:
            mark_smallest(x, len(x), k, marked, values)

        select()
        equal = np.array_equal(marked, k_smallest_reference(x, k))
        sort()
        equal &= np.array_equal(marked, k_smallest_reference(x, k))
        rows.append(
            row(
                "k-smallest",
                {"nodes": size, "k": k},
                ("stable sort", sort),
                ("partial selection", select),
                bool(equal),
                float(not equal),
            )
        )
    return rows


def records() -> list[dict[str, Any]]:
    envs = grown("bend")
    values = np.random.default_rng(0).uniform(-1, 1, (COLONIES, len(COMPONENTS))).astype(np.float32)
    weights, numbers = (
        dict(zip(COMPONENTS, envs.component_weights.tolist(), strict=True)),
        values.tolist(),
    )

    def dictionaries() -> list[dict[str, float]]:
        made = []
        for numbers_of_colony in numbers:
            record = {}
            for name, value in zip(COMPONENTS, numbers_of_colony, strict=True):
                record[name] = value
            record["total"] = sum(weights[name] * value for name, value in record.items())
            made.append(record)
        return made

    def array() -> None:
        record_all(values, envs.component_weights, envs.component_values, envs.reward)

    array()
    worst = float(np.abs(envs.reward - [record["total"] for record in dictionaries()]).max())
    return [
        row(
            "reward-record",
            {"colonies": COLONIES, "components": len(COMPONENTS)},
            ("a dictionary each", dictionaries),
            ("one array", array),
            worst < 1e-6,
            worst,
        )
    ]


NAMES = {
    "colony-step": steps,
    "colony-features": features,
    "k-smallest": smallest,
    "reward-record": records,
}

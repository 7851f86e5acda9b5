"""Settings, reward components, actions and arrays of a colony's world."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from tenfold.core.errors import EnvironmentFault
from tenfold.domains.durotaxis.arguments import MAX_NODES, Range, check_margin, read_range
from tenfold.domains.durotaxis.substrate import Substrate, make_substrate
from tenfold.envs.arguments import (
    is_truth,
    read_real,
    read_whole,
    shorten,
)

ACTIONS = ("delete_ratio", "gamma", "alpha", "noise", "theta")
LOW = np.array([0.0, 0.5, 0.5, 0.05, -math.pi / 6], np.float32)
HIGH = np.array([1.0, 15.0, 4.0, 0.5, math.pi / 6], np.float32)
SPAWN, REST, DELETE = range(3)  # what a node can choose
LEFT_PART, MIDDLE_PART = 0.1, 0.2  # where colonies begin: of the width, of the height
RETREAT = 30  # steps to the left in a row that end an episode
MILESTONES = (0.25, 0.5, 0.75, 0.9)
REACH = 15.0  # the longest spawn distance, the unit of lengths
SOFT_DEATH = 0.5  # a step's probability on soft ground
MAX_STEPS = 10**9  # an episode's draws are numbered by 2³³ · step, in 64 bits
MAX_WEIGHT = 1e6  # a component's weight: returns stay numbers that a network can be fitted to


class EndReason(IntEnum):
    """Why an episode ended; 0 while it goes on."""

    NONE = 0
    GOAL = 1
    EXTINCT = 2
    OVERGROWN = 3
    RETREAT = 4
    TIME = 5


# The components of a reward, each about [−1, 1], in the order of their indices, and their default
# weights. The reward is Σ weight·component. With these weights a colony that is kept at its target
# and goes nowhere earns about 0.01 a step: 1 in all under a discount of 0.99, 11 in 1,000 steps
# without one. Reaching the goal in 40 steps earns 12 and 16, and 0.1 less for each step that it
# comes later: hurrying pays more than staying.
WEIGHTS = {
    # change of the centroid's x in units of REACH: the difference of a potential, so that going
    # back gives it back
    "distance": 0.1,
    "goal": 10.0,  # 1 when a node reaches the goal line
    # 1 for each of 25, 50, 75 and 90 % of the width that the right-most node passes for the first
    # time
    "milestones": 0.5,
    "population": 0.005,  # exp(−½((N − target) / (target / 2))²)
    "spawn_quality": 0.005,  # mean over children of Δ / (1 + |Δ|), Δ = I(child) − I(parent)
    # (chosen deletions below the colony's mean intensity − those above) / deletions
    "delete_quality": 0.005,
    "edge_alignment": 0.001,  # mean cosine of the edges: 1 where all point right
    # −mean over nodes of (2y/H − 1)⁴: −1 at the top and bottom, next to 0 in the middle
    "boundary": 0.01,
    "survival": 0.002,  # 1 while the colony lives
    "termination": 5.0,  # −1 when it dies out, outgrows max_nodes or retreats
}
COMPONENTS = tuple(WEIGHTS)


class ColonyParams(NamedTuple):
    """The settings for compiled code; sides and init_nodes are the largest that an episode
    draws."""

    kind: int
    slope: float
    intercept: float
    width: int
    height: int
    least_width: int
    least_height: int
    margin: float  # −1: the usual
    least_nodes: int
    init_nodes: int
    max_nodes: int
    target: float
    max_steps: int
    soft: float
    stochastic: bool
    by_node: bool
    grid: np.ndarray


class Colonies(NamedTuple):
    """The state of E colonies of up to S = 2·max_nodes nodes each, in the order of their ids."""

    x: np.ndarray  # [E, S]
    y: np.ndarray
    stiff: np.ndarray  # I at the node
    gx: np.ndarray  # relative gradient of I
    gy: np.ndarray
    ident: np.ndarray  # rises within an episode
    parent: np.ndarray  # its id, −1 at the root
    age: np.ndarray
    # [E, S, 4]: gamma, alpha, noise and theta of its spawning, zeros for the first nodes
    born: np.ndarray
    nodes: np.ndarray  # [E], how many
    following: np.ndarray  # the next id
    step: np.ndarray
    passed: np.ndarray  # milestones
    retreat: np.ndarray  # steps to the left in a row
    centre: np.ndarray  # the centroid's x
    streams: np.ndarray  # [E, 4]: start, rounding, spawn, soft ground
    ground: np.ndarray  # [E, 6]
    extent: np.ndarray  # [E, 5]
    level: np.ndarray  # [E, W]
    ridge: np.ndarray


class Scratch(NamedTuple):
    """Working memory for one colony at a time."""

    removed: np.ndarray
    values: np.ndarray
    up: np.ndarray
    down: np.ndarray
    order: np.ndarray
    hull: np.ndarray
    size: np.ndarray
    total: np.ndarray


def make_colonies(number: int, max_nodes: int, width: int) -> Colonies:
    slots = 2 * max_nodes
    shapes = {"born": (slots, 4), "streams": (4,), "ground": (6,), "extent": (5,)}
    shapes |= {"level": (width,), "ridge": (width,)}
    by_node = ("x", "y", "stiff", "gx", "gy", "ident", "parent", "age")
    shapes |= dict.fromkeys(by_node, (slots,))
    whole = ("ident", "parent", "age", "nodes", "following", "step", "passed", "retreat")
    dtypes = dict.fromkeys(whole, np.int64) | {"streams": np.uint64}
    return Colonies(
        *(
            np.zeros((number, *shapes.get(name, ())), dtypes.get(name, np.float64))
            for name in Colonies._fields
        )
    )


def make_scratch(max_nodes: int) -> Scratch:
    slots = 2 * max_nodes + 2
    return Scratch(
        np.zeros(slots, np.bool_),
        np.zeros(slots),
        *(np.zeros(slots, np.int64) for _ in Scratch._fields[2:]),
    )


@dataclass(frozen=True)
class Setting:
    """A world's settings, read from the arguments of its name; impossible ones are refused with the
    reason."""

    mode: str = "ratio"  # or nodes
    substrate: Any = "linear"
    slope: float | None = None
    intercept: float | None = None
    size: Any = None
    init_nodes: Any = 5
    max_nodes: int = 100
    target: float = 20  # population
    rounding: str = "stochastic"  # or floor
    learn: str = "all"  # or delete_ratio, the other numbers as below
    gamma: float = 15.0
    alpha: float = 0.5
    noise: float = 0.5
    theta: float = 0.0
    max_steps: int = 1000
    soft: float = 0.3
    margin: float | None = None
    weights: Mapping[str, float] = field(default_factory=dict)
    ground: Substrate = field(init=False)
    starts: Range = field(init=False)  # of init_nodes

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "ground", make_substrate(self.substrate, self.size, self.slope, self.intercept)
        )
        known = {
            "mode": ("ratio", "nodes"),
            "rounding": ("stochastic", "floor"),
            "learn": ("all", "delete_ratio"),
        }
        for name, allowed in known.items():
            value = getattr(self, name)
            if not isinstance(value, str) or value not in allowed:
                raise EnvironmentFault(
                    f"Durotaxis knows no {name}={shorten(value)}: take {' or '.join(allowed)}."
                )
        # as Python's own numbers: compiled code is compiled anew for every other type
        for name, most in (
            ("max_nodes", MAX_NODES),
            ("max_steps", MAX_STEPS),
        ):
            object.__setattr__(self, name, read_whole(name, getattr(self, name), 1, most))
        object.__setattr__(self, "starts", read_range("init_nodes", self.init_nodes, 1, MAX_NODES))
        for name in ("target", "soft", *ACTIONS[1:], *(() if self.margin is None else ("margin",))):
            object.__setattr__(self, name, read_real(name, getattr(self, name)))
        if self.starts[1] > self.max_nodes:
            raise EnvironmentFault(
                f"A colony of init_nodes={shorten(self.init_nodes)} begins with more than "
                f"max_nodes={self.max_nodes}."
            )
        if self.target <= 0 or self.soft < 0:
            raise EnvironmentFault(
                f"target={self.target:g} must be positive and soft={self.soft:g} not negative."
            )
        if self.mode == "nodes" and self.learn != "all":
            raise EnvironmentFault(
                "learn=delete_ratio is for mode=ratio: in mode=nodes there is no such number."
            )
        for index, name in enumerate(ACTIONS[1:], 1):
            if not LOW[index] - 1e-6 <= getattr(self, name) <= HIGH[index] + 1e-6:
                raise EnvironmentFault(
                    f"{name}={getattr(self, name):g} is not within {LOW[index]:g} and "
                    f"{HIGH[index]:g}."
                )
        check_margin(self.margin, *self.ground.least)

    @property
    def rules(self) -> ColonyParams:
        ground = self.ground
        return ColonyParams(
            int(ground.kind),
            ground.slope,
            ground.intercept,
            ground.width,
            ground.height,
            *ground.least,
            -1.0 if self.margin is None else float(self.margin),
            *self.starts,
            self.max_nodes,
            float(self.target),
            self.max_steps,
            float(self.soft),
            self.rounding == "stochastic",
            self.mode == "nodes",
            ground.grid,
        )

    @property
    def fixed(self) -> np.ndarray:
        """The action whose numbers are used where only delete_ratio is learned."""
        return np.array([0.5, self.gamma, self.alpha, self.noise, self.theta])

    @property
    def component_weights(self) -> np.ndarray:
        return np.array([{**WEIGHTS, **self.weights}[name] for name in COMPONENTS])


def read_weights(weights: Any, overrides: Mapping[str, Any]) -> dict[str, float]:
    """The components' weights from `weights` and from arguments such as w_goal=2; true is the
    default weight, false none."""
    if weights is not None and not isinstance(weights, Mapping):
        raise EnvironmentFault(
            "weights must be a dict of the components' weights, such as {'goal': 2}, and not "
            f"{shorten(weights)}."
        )
    result = {}
    for name, value in {
        **(weights or {}),
        **{name.removeprefix("w_"): value for name, value in overrides.items()},
    }.items():
        if name not in WEIGHTS:
            near = (get_close_matches(str(name), WEIGHTS, 1, 0.0) or [""])[0]
            raise EnvironmentFault(
                f"Durotaxis has no reward component {shorten(name)}, the nearest is {near}: there "
                f"are {', '.join(WEIGHTS)}."
            )
        result[name] = value = (
            WEIGHTS[name] * value if is_truth(value) else read_real(f"The weight w_{name}", value)
        )
        if abs(value) > MAX_WEIGHT:
            raise EnvironmentFault(
                f"The weight w_{name} = {value:g} is too large: take one between {-MAX_WEIGHT:g} "
                f"and {MAX_WEIGHT:g}."
            )
    return result


def read_setting(**arguments: Any) -> Setting:
    """The settings of arguments such as mode=nodes, size=900x300 and w_goal=2 (0 or false turns a
    component off)."""
    known = [f.name for f in fields(Setting) if f.init and f.name != "weights"]
    weights = read_weights(
        arguments.pop("weights", None),
        {name: arguments.pop(name) for name in [*arguments] if name.startswith("w_")},
    )
    for name in arguments:
        if name not in known:
            near = (
                get_close_matches(name, [*known, *(f"w_{w}" for w in WEIGHTS)], 1, 0.0) or [""]
            )[0]
            raise EnvironmentFault(f"Durotaxis has no setting {name}: the nearest is {near}.")
    return Setting(**arguments, weights=weights)

"""Hidden systems by their settings: a planar vector field or a cart-pole on a ring, and how it is
seen."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from tenfold.config.notation import show
from tenfold.config.schema import Config, Count, Positive, Whole
from tenfold.core.errors import ConfigError
from tenfold.core.random import Purpose, fill_normal, key
from tenfold.domains.dynamics import IDS, SYSTEMS
from tenfold.domains.dynamics import field_rules as rules
from tenfold.envs.arguments import split_name

MODELS, NOISES = ("identity", "linear", "loglinear", "mlp"), ("none", "gaussian", "poisson")
HIDDEN = 32  # units of the mlp that observes
# which of the equations' constants each field has
CONSTANTS_OF = {
    "limit-cycle": ("alpha", "w", "d"),
    "double-limit-cycle": ("alpha", "w", "d"),
    "van-der-pol": ("alpha", "w", "mu"),
    "duffing": ("alpha", "a", "b", "c"),
    "snowman": ("alpha", "w", "d"),
    "multi-attractor": ("alpha", "w"),
    "ring-cart-pole": (),
}


@dataclass(frozen=True)
class Field(Config):
    """A hidden system and how it is seen."""

    field: Literal[SYSTEMS] = "limit-cycle"  # pyright: ignore[reportInvalidTypeForm]
    observe: Literal[MODELS] = "linear"  # pyright: ignore[reportInvalidTypeForm]
    """identity, linear, loglinear or mlp"""
    size: Count | None = None
    """numbers of an observation (20; of identity those of the state)"""
    noise: Literal[NOISES] = "gaussian"  # pyright: ignore[reportInvalidTypeForm]
    """of the observation: none, gaussian or poisson"""
    scale: Positive = 0.1
    """deviation of gaussian noise"""
    process_noise: Positive | None = 0.01
    """Q: the state's variance grows by Q in a unit of time; none for a system without noise"""
    dt: Positive = 0.1
    """length of an inner step"""
    every: Count = 1
    """inner steps of a step of the agent, whose own dt is therefore every times dt"""
    limit: Count = 1_000
    """steps of an episode"""
    start: Positive = 0.5
    """an episode starts uniformly within ± this in each coordinate"""
    bound: Positive = 1.0
    """actions lie between - and + this"""
    edge: Positive = 10.0
    """an episode is over as soon as a planar state is beyond ± this: Duffing's gains energy without
    end"""
    world: Whole = 0
    """draws the observation's weights and the multi-attractor"""
    rate: Positive = 1.0
    """mean of a loglinear observation at the origin"""
    alpha: float | None = None
    w: float | None = None
    d: float | None = None
    mu: float | None = None
    a: float | None = None
    b: float | None = None
    c: float | None = None

    def __post_init__(self) -> None:
        if self.noise is None:  # as an id's none is read
            object.__setattr__(self, "noise", "none")
        super().__post_init__()

    def check(self) -> None:
        for name in rules.CONSTANTS:
            value = getattr(self, name)
            if value is not None and name not in CONSTANTS_OF[self.field]:
                own = ", ".join(CONSTANTS_OF[self.field]) or "none"
                raise ConfigError(
                    name, f"= {show(value)} is no constant of {self.field}, which has {own}."
                )
        if self.noise == "poisson" and self.observe != "loglinear":
            raise ConfigError(
                "noise",
                f"= poisson needs means above 0, and observe = {self.observe} gives none: use "
                "loglinear.",
            )
        if self.observe == "identity" and self.size not in (None, self.seen):
            raise ConfigError(
                "size",
                f"= {self.size} does not fit: observe = identity shows the {self.seen} numbers of "
                f"{self.field} themselves.",
            )
        if self.start > self.edge and not self.ring:
            raise ConfigError(
                "start",
                f"= {show(self.start)} does not fit: episodes end beyond edge = {show(self.edge)}.",
            )

    @property
    def number(self) -> int:
        return SYSTEMS.index(self.field)

    @property
    def ring(self) -> bool:
        return self.field == "ring-cart-pole"

    @property
    def latent(self) -> int:
        """Numbers of the hidden state."""
        return 4 if self.ring else 2

    @property
    def actions(self) -> int:
        return 1 if self.ring else 2

    @property
    def seen(self) -> int:
        """Numbers that observations are made of: of angles cosine and sine."""
        return 6 if self.ring else 2

    @property
    def width(self) -> int:
        """Numbers of an observation."""
        return self.seen if self.observe == "identity" else self.size or 20

    @property
    def counts(self) -> bool:
        """Whether observations are never below 0."""
        return self.observe == "loglinear" and self.noise != "gaussian"

    @property
    def reach(self) -> float:
        """Where recordings for validation begin: within ± this, which actions can reach against the
        drift."""
        return np.pi if self.ring else min(1.2 if "cycle" in self.field else 1.5, self.edge)

    @property
    def step_time(self) -> float:
        """What dt is for the agent."""
        return self.dt * self.every

    def constants(self) -> np.ndarray:
        usual = rules.CONSTANTS | ({"w": rules.PULL} if self.field == "multi-attractor" else {})
        return np.array(
            [usual[name] if getattr(self, name) is None else getattr(self, name) for name in usual],
            np.float64,
        )

    def weights(self) -> tuple[np.ndarray, ...]:
        """Of the observation model: the same for every seed of a world."""
        shapes: list[tuple[int, ...]] = [(self.width, self.seen), (self.width,)]
        if self.observe == "mlp":
            shapes = [(HIDDEN, self.seen), (HIDDEN,), (self.width, HIDDEN), (self.width,)]
        found = []
        for place, shape in enumerate(shapes if self.observe != "identity" else ()):
            stream = key(self.world, Purpose.WORLD, 100 + place)
            flat = fill_normal(stream, 0, np.empty(int(np.prod(shape))))
            found.append(flat.reshape(shape) / np.sqrt(shape[-1] if len(shape) > 1 else 1))
        if self.observe == "loglinear":
            found[1] = np.full(self.width, np.log(self.rate))
        return tuple(found)

    @classmethod
    def named(cls, name: str) -> "Field":
        """From an id with its arguments."""
        ident, arguments = split_name(name)
        return cls.of(arguments | ({"field": IDS[ident]} if ident in IDS else {}))

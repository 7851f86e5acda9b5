"""Hidden systems by their settings: a planar vector field or a cart-pole on a ring, and how it is
seen."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from tenfold.config.notation import nearest
from tenfold.core.errors import ConfigError
from tenfold.core.random import Purpose, fill_normal, key
from tenfold.domains.dynamics import IDS, SYSTEMS
from tenfold.domains.dynamics import field_rules as rules
from tenfold.envs.arguments import as_float, as_whole, split_name

MODELS, NOISES = ("identity", "linear", "loglinear", "mlp"), ("none", "gaussian", "poisson")
HIDDEN = 32  # units of the mlp that observes
# numbers that must be above 0, and what is said besides
POSITIVE = {
    **dict.fromkeys(("dt", "every", "limit", "start", "bound", "rate", "edge"), ""),
    "scale": ", and noise=none leaves observations exact",
    "process_noise": ", or none for a system without noise",
}
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


def show(value: Any) -> str:
    return "none" if value is None else str(value)


@dataclass(frozen=True)
class Field:
    """A hidden system and how it is seen."""

    field: str = "limit-cycle"
    observe: str = "linear"
    """identity, linear, loglinear or mlp"""
    size: int | None = None
    """numbers of an observation (20; of identity those of the state)"""
    noise: str = "gaussian"
    """of the observation: none, gaussian or poisson"""
    scale: float = 0.1
    """deviation of gaussian noise"""
    process_noise: float | None = 0.01
    """Q: the state's variance grows by Q in a unit of time; none for a system without noise"""
    dt: float = 0.1
    """length of an inner step"""
    every: int = 1
    """inner steps of a step of the agent, whose own dt is therefore every times dt"""
    limit: int = 1_000
    """steps of an episode"""
    start: float = 0.5
    """an episode starts uniformly within ± this in each coordinate"""
    bound: float = 1.0
    """actions lie between - and + this"""
    edge: float = 10.0
    """an episode is over as soon as a planar state is beyond ± this: Duffing's gains energy without
    end"""
    world: int = 0
    """draws the observation's weights and the multi-attractor"""
    rate: float = 1.0
    """mean of a loglinear observation at the origin"""
    alpha: float | None = None
    w: float | None = None
    d: float | None = None
    mu: float | None = None
    a: float | None = None
    b: float | None = None
    c: float | None = None

    def __post_init__(self) -> None:
        for name, known in (("field", SYSTEMS), ("observe", MODELS), ("noise", NOISES)):
            # an id's none is no text
            value = getattr(self, name) if name != "noise" else getattr(self, name) or "none"
            object.__setattr__(self, name, value)
            if value not in known:
                raise ConfigError(
                    name, f"= {value} is not one of {', '.join(known)}{nearest(value, known)}."
                )
        self.check_ranges()
        self.check_constants()
        self.check_observations()

    def check_ranges(self) -> None:
        """Numbers that a system cannot have."""
        for name, besides in POSITIVE.items():
            value = getattr(self, name)
            none = name == "process_noise" and value is None
            if not none and not 0 < as_float(value) < np.inf:
                raise ConfigError(
                    name, f"= {show(value)} is out of range: it must be above 0{besides}."
                )
        for name in ("every", "limit", "world", "size"):
            value = getattr(self, name)
            if name == "size" and value is None:
                continue
            whole = as_whole(value)
            if whole is None or not 0 <= whole < 2**63:
                raise ConfigError(name, f"= {show(value)} is not a whole number from 0 on.")
            object.__setattr__(self, name, whole)

    def check_constants(self) -> None:
        """Constants that its equations do not have."""
        for name in rules.CONSTANTS:
            value = getattr(self, name)
            if value is not None and name not in CONSTANTS_OF[self.field]:
                own = ", ".join(CONSTANTS_OF[self.field]) or "none"
                raise ConfigError(
                    name, f"= {show(value)} is no constant of {self.field}, which has {own}."
                )
            if value is not None and not np.isfinite(as_float(value)):
                raise ConfigError(name, f"= {show(value)} is not a number.")

    def check_observations(self) -> None:
        """Settings that do not fit together."""
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
        if self.size is not None and self.size < 1:
            raise ConfigError("size", f"= {self.size} is out of range: it must be at least 1.")

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
        return cls.of(ident, arguments | ({"field": IDS[ident]} if ident in IDS else {}))

    @classmethod
    def of(cls, name: str, arguments: dict[str, Any]) -> "Field":
        """From arguments; `name` is for the sentence about one that there is not."""
        known = list(cls.__dataclass_fields__)
        for word in arguments:
            if word not in known:
                raise ConfigError("", f"{name} has no argument {word}{nearest(word, known)}.")
        return cls(**arguments)

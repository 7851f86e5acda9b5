"""Hidden dynamics to be identified: six planar vector fields and a cart-pole on a ring, seen
through an observation model.

There is no reward, an episode is truncated at its limit and never terminated, and `info["latent"]`
is the true hidden state. `tenfold/LimitCycle-v0(size=50, observe=loglinear, noise=poisson)`:
arguments stand in the id.
"""

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from tenfold.config.schema import nearest
from tenfold.core.errors import ConfigError, EnvironmentFault
from tenfold.core.random import Purpose, fill_normal, key, uniform
from tenfold.domains.dynamics import FIELD, IDS
from tenfold.domains.dynamics import field_rules as rules
from tenfold.envs.adapter import Environments
from tenfold.envs.arguments import split_name

MODELS, NOISES = ("identity", "linear", "loglinear", "mlp"), ("none", "gaussian", "poisson")
HIDDEN = 32  # units of the mlp that observes
STATES, ACTIONS = {True: 4, False: 2}, {True: 1, False: 2}  # by whether it is the cart-pole


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


def is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def show(value: Any) -> str:
    return "none" if value is None else str(value)


def is_field(name: str) -> bool:
    return name.partition("(")[0].strip() in (*IDS, FIELD)


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
        for name, known in (("field", rules.FIELDS), ("observe", MODELS), ("noise", NOISES)):
            # an id's none is no text
            value = getattr(self, name) if name != "noise" else getattr(self, name) or "none"
            object.__setattr__(self, name, value)
            if value not in known:
                raise ConfigError(
                    name, f"= {value} is not one of {', '.join(known)}{nearest(value, known)}."
                )
        for name in (
            "scale",
            "dt",
            "every",
            "limit",
            "start",
            "bound",
            "rate",
            "edge",
            "process_noise",
        ):
            value = getattr(self, name)
            if name == "process_noise" and value is None:
                continue
            if not is_number(value) or not 0 < value < np.inf:
                words = (
                    ", or none for a system without noise"
                    if name == "process_noise"
                    else ", and noise=none leaves observations exact"
                    if name == "scale"
                    else ""
                )
                raise ConfigError(
                    name, f"= {show(value)} is out of range: it must be above 0{words}."
                )
        for name in ("every", "limit", "world", "size"):
            value = getattr(self, name)
            if not (name == "size" and value is None) and (
                not is_number(value) or value % 1 or not 0 <= value < 2**63
            ):
                raise ConfigError(name, f"= {show(value)} is not a whole number from 0 on.")
            object.__setattr__(self, name, None if value is None else int(value))
        for name in rules.CONSTANTS:
            value = getattr(self, name)
            if value is not None and name not in CONSTANTS_OF[self.field]:
                own = ", ".join(CONSTANTS_OF[self.field]) or "none"
                raise ConfigError(
                    name, f"= {show(value)} is no constant of {self.field}, which has {own}."
                )
            if value is not None and not (is_number(value) and np.isfinite(value)):
                raise ConfigError(name, f"= {show(value)} is not a number.")
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
        return rules.FIELDS.index(self.field)

    @property
    def ring(self) -> bool:
        return self.field == "ring-cart-pole"

    @property
    def latent(self) -> int:
        """Numbers of the hidden state."""
        return STATES[self.ring]

    @property
    def actions(self) -> int:
        return ACTIONS[self.ring]

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
        shapes: tuple[tuple[int, ...], ...] = ()
        if self.observe == "mlp":
            shapes = (HIDDEN, self.seen), (HIDDEN,), (self.width, HIDDEN), (self.width,)
        elif self.observe != "identity":
            shapes = (self.width, self.seen), (self.width,)
        found = []
        for place, shape in enumerate(shapes):
            flat = np.empty(int(np.prod(shape)))
            fill_normal(key(self.world, Purpose.WORLD, 100 + place), 0, flat)
            found.append(flat.reshape(shape) / np.sqrt(shape[-1] if len(shape) > 1 else 1))
        if self.observe == "loglinear":
            found[1] = np.full(self.width, np.log(self.rate))
        return tuple(found)

    @classmethod
    def named(cls, name: str) -> "Field":
        """From an id with its arguments."""
        ident, arguments = split_name(name)
        if ident in IDS:
            arguments["field"] = IDS[ident]
        unknown = [k for k in arguments if k not in cls.__dataclass_fields__]
        if unknown:
            raise ConfigError(
                "",
                f"{ident} has no argument "
                f"{unknown[0]}{nearest(unknown[0], list(cls.__dataclass_fields__))}.",
            )
        return cls(**arguments)


class Lanes:
    """Hidden states [B, D] side by side, each with a stream of its own."""

    def __init__(self, system: Field, keys: "list[tuple[int, int]]") -> None:
        """`keys`: seed and member of each lane."""
        self.system, self.count = system, len(keys)
        self.z = np.zeros((self.count, system.latent))
        self.episode, self.length = np.zeros(self.count, np.int64), np.zeros(self.count, np.int64)
        self.table = (
            rules.random_vectors(system.world)
            if system.field == "multi-attractor"
            else np.zeros((0, 0, 2))
        )
        self.constants, self.weights, self.model = (
            system.constants(),
            system.weights(),
            MODELS.index(system.observe),
        )
        self.timing = np.array([system.dt, system.every, system.process_noise or 0.0])
        self.noise = NOISES.index(system.noise)
        self.rekey(keys)

    def rekey(self, keys: "list[tuple[int, int]]") -> None:
        streams = [
            [key(seed, purpose, member) for seed, member in keys]
            for purpose in (Purpose.START, Purpose.PROCESS, Purpose.MEASURE)
        ]
        self.starts, self.process, self.measuring = (np.array(s, np.uint64) for s in streams)

    def begin(self, i: int) -> None:
        """Puts lane i at the start of its current episode."""
        size = self.system.latent
        u = uniform(self.starts[i], self.episode[i] * size + np.arange(size))
        self.z[i] = self.system.start * (2 * u - 1)
        self.length[i] = 0

    def advance(self, actions: np.ndarray) -> None:
        """One step with actions [B, A], cut at their bounds."""
        bound = self.system.bound
        held = np.clip(
            np.asarray(actions, np.float64).reshape(self.count, self.system.actions), -bound, bound
        )
        rules.advance(
            self.system.number,
            self.constants,
            self.table,
            self.timing,
            self.z,
            held,
            self.process,
            self.episode * rules.EPISODE + self.length,
        )
        self.length += 1

    def over(self) -> np.ndarray:
        """Whose episode is truncated, [B]: at the limit, or because the state has left the region.
        It is not held back at the edge: a step that ends at a wall would say nothing about the
        field."""
        left = np.abs(self.z).max(1) > self.system.edge
        return (self.length >= self.system.limit) | (left & (not self.system.ring))

    def observe(self, out: np.ndarray) -> None:
        """Observations of all lanes into `out` [B, size]."""
        mean = rules.mean_of(self.model, self.weights, rules.features(self.system.number, self.z))
        address = self.episode * rules.EPISODE + self.length
        out[...] = rules.measure(
            mean if self.weights else mean.copy(),
            self.noise,
            self.system.scale,
            self.measuring,
            address,
        )

    def velocity(self, z: np.ndarray, actions: np.ndarray | None = None) -> np.ndarray:
        """The true dz/dt at states [B, D], without action if none is given."""
        held = (
            np.zeros((len(z), self.system.actions))
            if actions is None
            else np.asarray(actions, np.float64)
        )
        return rules.velocity(
            self.system.number,
            self.constants,
            self.table,
            np.ascontiguousarray(z, np.float64),
            held,
        )


def observation_space(system: Field) -> gym.spaces.Box:
    return gym.spaces.Box(
        0.0 if system.noise == "poisson" else -np.inf, np.inf, (system.width,), np.float32
    )


def action_space(system: Field) -> gym.spaces.Box:
    return gym.spaces.Box(-system.bound, system.bound, (system.actions,), np.float32)


class FieldEnvironments(Environments):
    """All lanes at once. Lane i plays the episodes of (seed, first + i), or of the seeds given,
    each as its lane 0."""

    def __init__(
        self, name: str, num_envs: int, seed: int, first: int = 0, seeds: tuple[int, ...] = ()
    ) -> None:
        self.system = system = Field.named(name)
        super().__init__(
            name, num_envs, seed, observation_space(system), action_space(system), first
        )
        self.lanes_of = Lanes(
            system, [(own, 0) for own in seeds] or [(seed, first + i) for i in range(num_envs)]
        )
        for i in range(num_envs):
            self.lanes_of.begin(i)
        self.lanes_of.observe(self.obs)

    @property
    def step_time(self) -> float:
        return self.system.step_time

    @property
    def latent(self) -> np.ndarray:
        """The true hidden states [B, D]."""
        return self.lanes_of.z

    def step(self, actions: np.ndarray) -> None:
        self.begin_rounds()
        lanes = self.lanes_of
        if np.size(actions) != lanes.count * self.system.actions:
            raise EnvironmentFault(
                f"{self.name} takes {self.system.actions} numbers as an action, not "
                f"{np.size(actions) // lanes.count}."
            )
        lanes.advance(actions)
        if not np.isfinite(lanes.z).all():
            if not np.isfinite(actions).all():
                raise EnvironmentFault(f"{self.name} was given an action that is not finite.")
            raise EnvironmentFault(
                f"{self.place(int(np.argmin(np.isfinite(lanes.z).all(1))))}: the hidden state grew "
                "beyond all bounds; make limit, dt or bound smaller."
            )
        lanes.observe(self.obs)
        self.truncated[:] = lanes.over()
        if self.truncated.any():
            self.final_obs[self.truncated] = self.obs[self.truncated]
            over = np.flatnonzero(self.truncated).tolist()
            self.note_ended(np.array([[i, 0.0, lanes.length[i]] for i in over]))
            lanes.episode[over] += 1
            for i in over:
                lanes.begin(i)
            lanes.observe(self.obs)
        self.episode, self.length = lanes.episode.tolist(), lanes.length.tolist()

    def state(self) -> dict[str, np.ndarray]:
        lanes = self.lanes_of
        return {
            "latent": lanes.z.copy(),
            "episode": lanes.episode.copy(),
            "length": lanes.length.copy(),
            "obs": self.obs.copy(),
        }

    def restore(self, state: dict[str, np.ndarray]) -> bool:
        """False where the restored states do not show the same observations: not an exact
        resume."""
        lanes = self.lanes_of
        lanes.z[:], lanes.episode[:], lanes.length[:] = (
            state["latent"],
            state["episode"],
            state["length"],
        )
        self.episode, self.length = lanes.episode.tolist(), lanes.length.tolist()
        lanes.observe(self.obs)
        return bool(np.array_equal(self.obs, state["obs"]))


class FieldEnv(gym.Env[np.ndarray, np.ndarray]):
    """One hidden system as an ordinary environment. After `reset(seed=s)` it plays the episodes of
    lane 0 of seed s, one with each further `reset()`."""

    metadata = {"render_modes": []}

    def __init__(
        self, field: str = "limit-cycle", render_mode: str | None = None, **arguments: Any
    ) -> None:
        unknown = [k for k in arguments if k not in Field.__dataclass_fields__]
        if unknown:
            raise ConfigError(
                "",
                f"{field} has no argument "
                f"{unknown[0]}{nearest(unknown[0], list(Field.__dataclass_fields__))}.",
            )
        self.system = Field(field, **arguments)
        self.observation_space, self.action_space = (
            observation_space(self.system),
            action_space(self.system),
        )
        self.render_mode = render_mode
        self.lanes = Lanes(self.system, [(0, 0)])
        self.seeded = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.lanes.episode += 1
        if seed is not None or not self.seeded:
            self.lanes.rekey([(int(self.np_random.integers(2**62)) if seed is None else seed, 0)])
            self.lanes.episode[:] = 0
            self.seeded = True
        self.lanes.begin(0)
        return self.look()

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if np.size(action) != self.system.actions:
            raise EnvironmentFault(
                f"{self.system.field} takes {self.system.actions} numbers as an action, not "
                f"{np.size(action)}."
            )
        if not np.isfinite(action).all():
            raise EnvironmentFault(
                f"{self.system.field} was given an action that is not finite: "
                f"{np.asarray(action).tolist()}."
            )
        self.lanes.advance(np.asarray(action)[None])
        obs, info = self.look()
        return obs, 0.0, False, bool(self.lanes.over()[0]), info

    def look(self) -> tuple[np.ndarray, dict[str, Any]]:
        obs = np.zeros((1, self.system.width), np.float32)
        self.lanes.observe(obs)
        return obs[0], {"latent": self.lanes.z[0].copy()}

"""Hidden systems to be identified, their settings and environments: six planar vector fields and a
cart-pole on a ring, seen through an observation model.

There is no reward, an episode is truncated at its limit and never terminated, and `info["latent"]`
is the true hidden state. `tenfold/LimitCycle-v0(size=50, observe=loglinear, noise=poisson)`:
arguments stand in the id.
"""

from dataclasses import dataclass
from typing import Any, Literal

import gymnasium as gym
import numpy as np

from tenfold.config.notation import show
from tenfold.config.schema import Config, Count, Positive, Whole
from tenfold.core.errors import ConfigError, EnvironmentFault
from tenfold.core.random import Purpose, fill_normal, key, uniform
from tenfold.domains.dynamics import IDS, SYSTEMS
from tenfold.domains.dynamics import field_rules as rules
from tenfold.envs.adapter import Environments
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
    """an episode is over where a planar state is beyond ± this: Duffing's gains energy for ever"""
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
                names = ", ".join(CONSTANTS_OF[self.field]) or "none"
                raise ConfigError(
                    name, f"= {show(value)} is no constant of {self.field}, which has {names}."
                )
        if self.noise == "poisson" and self.observe != "loglinear":
            raise ConfigError(
                "noise",
                f"= poisson needs means above 0, and observe = {self.observe} gives none: use "
                "loglinear.",
            )
        if self.observe == "identity" and self.size not in (None, self.inputs):
            raise ConfigError(
                "size",
                f"= {self.size} does not fit: observe = identity shows the {self.inputs} numbers "
                f"of {self.field} themselves.",
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
    def inputs(self) -> int:
        """Numbers that observations are made of: of angles cosine and sine."""
        return 6 if self.ring else 2

    @property
    def width(self) -> int:
        """Numbers of an observation."""
        return self.inputs if self.observe == "identity" else self.size or 20

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
        shapes: list[tuple[int, ...]] = [(self.width, self.inputs), (self.width,)]
        if self.observe == "mlp":
            shapes = [(HIDDEN, self.inputs), (HIDDEN,), (self.width, HIDDEN), (self.width,)]
        arrays = []
        for number, shape in enumerate(shapes if self.observe != "identity" else ()):
            stream = key(self.world, Purpose.WORLD, 100 + number)
            flat = fill_normal(stream, 0, np.empty(int(np.prod(shape))))
            arrays.append(flat.reshape(shape) / np.sqrt(shape[-1] if len(shape) > 1 else 1))
        if self.observe == "loglinear":
            arrays[1] = np.full(self.width, np.log(self.rate))
        return tuple(arrays)

    @classmethod
    def named(cls, name: str) -> "Field":
        """From an id with its arguments."""
        ident, arguments = split_name(name)
        return cls.of(arguments | ({"field": IDS[ident]} if ident in IDS else {}))


class FieldState:
    """Hidden states [B, D] of several environments, each with its own random stream."""

    def __init__(self, system: Field, keys: "list[tuple[int, int]]", name: str = "") -> None:
        """`keys`: seed and member of each lane. `name` is for errors."""
        self.system, self.count, self.name = system, len(keys), name or system.field
        least = 0.0 if system.noise == "poisson" else -np.inf
        self.observation_space = gym.spaces.Box(least, np.inf, (system.width,), np.float32)
        self.action_space = gym.spaces.Box(
            -system.bound, system.bound, (system.actions,), np.float32
        )
        self.z = np.zeros((self.count, system.latent))
        self.episode, self.length = (np.zeros(self.count, np.int64) for _ in range(2))
        several = system.field == "multi-attractor"
        self.table = rules.random_vectors(system.world) if several else np.zeros((0, 0, 2))
        self.constants, self.weights = system.constants(), system.weights()
        self.model, self.noise = MODELS.index(system.observe), NOISES.index(system.noise)
        self.timing = np.array([system.dt, system.every, system.process_noise or 0.0])
        self.rekey(keys)

    def rekey(self, keys: "list[tuple[int, int]]") -> None:
        streams = [
            [key(seed, purpose, member) for seed, member in keys]
            for purpose in (Purpose.START, Purpose.PROCESS, Purpose.MEASURE)
        ]
        self.starts, self.process, self.measuring = (np.array(s, np.uint64) for s in streams)

    def begin(self, *which: int) -> None:
        """Puts these lanes at the start of their current episodes."""
        size = self.system.latent
        for i in which:
            u = uniform(self.starts[i], self.episode[i] * size + np.arange(size))
            self.z[i] = self.system.start * (2 * u - 1)
            self.length[i] = 0

    def advance(self, actions: Any) -> None:
        """One step with actions [B, A], cut at their bounds."""
        size, bound = self.system.actions, self.system.bound
        if np.size(actions) != self.count * size:
            raise EnvironmentFault(
                f"{self.name} takes {size} numbers as an action, not "
                f"{np.size(actions) // self.count}."
            )
        clipped = np.clip(np.asarray(actions, np.float64).reshape(self.count, size), -bound, bound)
        rules.advance(
            self.system.number,
            self.constants,
            self.table,
            self.timing,
            self.z,
            clipped,
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
        push = np.zeros((len(z), self.system.actions)) if actions is None else actions
        field = self.system.number, self.constants, self.table
        return rules.velocity(
            *field, np.ascontiguousarray(z, np.float64), np.asarray(push, np.float64)
        )


class FieldEnvironments(Environments):
    """All lanes at once. Lane i plays the episodes of (seed, first + i), or of the seeds given,
    each as its lane 0."""

    def __init__(
        self, name: str, num_envs: int, seed: int, first: int = 0, seeds: tuple[int, ...] = ()
    ) -> None:
        self.system = Field.named(name)
        keys = [(one, 0) for one in seeds] or [(seed, first + i) for i in range(num_envs)]
        self.lanes = lanes = FieldState(self.system, keys, name)
        super().__init__(name, num_envs, seed, lanes.observation_space, lanes.action_space, first)
        self.state_arrays = {"latent": lanes.z, "episode": lanes.episode, "length": lanes.length}
        lanes.begin(*range(num_envs))
        self.see_again()

    @property
    def step_time(self) -> float:
        return self.system.step_time

    @property
    def latent(self) -> np.ndarray:
        """The true hidden states [B, D]."""
        return self.lanes.z

    def step(self, actions: np.ndarray) -> None:
        self.begin_rounds()
        lanes = self.lanes
        lanes.advance(actions)
        if not np.isfinite(lanes.z).all():
            if not np.isfinite(actions).all():
                raise EnvironmentFault(f"{self.name} was given an action that is not finite.")
            raise EnvironmentFault(
                f"{self.location(int(np.argmin(np.isfinite(lanes.z).all(1))))}: the hidden state "
                "grew beyond all bounds; make limit, dt or bound smaller."
            )
        lanes.observe(self.obs)
        self.truncated[:] = lanes.over()
        if self.truncated.any():
            self.final_obs[self.truncated] = self.obs[self.truncated]
            over = np.flatnonzero(self.truncated).tolist()
            self.note_ended(np.array([[i, 0.0, lanes.length[i]] for i in over]))
            lanes.episode[over] += 1
            lanes.begin(*over)
            lanes.observe(self.obs)
        self.episode, self.length = lanes.episode.tolist(), lanes.length.tolist()

    def see_again(self) -> None:
        lanes = self.lanes
        self.episode, self.length = lanes.episode.tolist(), lanes.length.tolist()
        lanes.observe(self.obs)


class FieldEnv(gym.Env[np.ndarray, np.ndarray]):
    """One hidden system as an ordinary environment. After `reset(seed=s)` it plays the episodes of
    lane 0 of seed s, one with each further `reset()`."""

    metadata = {"render_modes": []}

    def __init__(
        self, field: str = "limit-cycle", render_mode: str | None = None, **arguments: Any
    ) -> None:
        self.system = Field(field, **arguments)  # type: ignore[arg-type]
        self.lanes = FieldState(self.system, [(0, 0)])
        self.observation_space = self.lanes.observation_space
        self.action_space = self.lanes.action_space
        self.render_mode, self.seeded = render_mode, False

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
        if not np.isfinite(action).all():
            raise EnvironmentFault(
                f"{self.system.field} was given an action that is not finite: "
                f"{np.asarray(action).tolist()}."
            )
        self.lanes.advance(action)
        obs, info = self.look()
        return obs, 0.0, False, bool(self.lanes.over()[0]), info

    def look(self) -> tuple[np.ndarray, dict[str, Any]]:
        obs = np.zeros((1, self.system.width), np.float32)
        self.lanes.observe(obs)
        return obs[0], {"latent": self.lanes.z[0].copy()}

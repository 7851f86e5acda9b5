"""One or many environments behind one adapter, SAME_STEP by construction.

After `step` the arrays hold, for each environment: `obs` to act on next (the first one of a new
episode where one ended), `reward`, `terminated`, `truncated` of the step taken, and, where the
episode ended, its TRUE last observation in `final_obs`. The arrays are allocated once and
overwritten by the next step.

Episode e of environment i is seeded by f(seed, i, e). An environment is therefore restored by
seeding its current episode again and repeating the actions taken in it, without pickling anything.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from tenfold.core.errors import EnvironmentFault
from tenfold.core.layout import observation_layout
from tenfold.core.masks import MaskError, MaskReader, unusable
from tenfold.core.protocols import EnvSpec
from tenfold.core.random import Purpose, bits, draw_bits, key
from tenfold.envs.faults import fault_of, is_flag

SEED_BITS = 31  # Gymnasium hands seeds to libraries that take 32-bit signed numbers


class Episode(NamedTuple):
    """A finished episode."""

    env: int
    ret: float  # with several agents the mean of theirs
    length: int
    agent_returns: tuple[float, ...] = ()  # with several agents every one's own return
    success: bool | None = None  # whether the goal was reached, where there is one
    step: int | None = None  # of the run at its end, where that is not the latest one


def episode_seeds(seed: int, purpose: Purpose, episodes: int) -> list[int]:
    """Of the episodes that are played for a purpose, one after another."""
    return (bits(key(seed, purpose), np.arange(episodes)) >> np.uint64(64 - SEED_BITS)).tolist()


class Environments:
    """The adapter. Subclasses differ only in where a step comes from; the learner sees no
    difference.

    Worlds with several agents are lanes as well, agent by agent: lane = agent · worlds + world,
    `num_envs` = agents · worlds. Episodes, their seeds and lengths are the worlds'. `first` is the
    index of the first of these worlds among all of a run, so that several processes can each hold a
    part.
    """

    exact_resume = True
    multiagent = False  # whether an episode is a world's, with several agents in it
    autoreset = True  # whether a step that ends an episode begins the next one
    # whether a step calls one environment after another, in Python and on one core
    one_by_one = False
    form = ""  # how they are stepped, in words, where there is a choice
    unread_mask = False  # whether an action mask is offered that nobody asked for
    # where an episode was cut at an observation whose mask allows nothing, or is missing
    dead_end = ""
    component_names: tuple[str, ...] = ()
    # of the action's numbers, where somebody wants to see them over training
    action_names: tuple[str, ...] = ()
    component_weights: np.ndarray | None = None  # with these the components add up to the reward

    def __init__(
        self,
        name: str,
        worlds: int,
        seed: int,
        observation_space: Any,
        action_space: Any,
        first: int = 0,
        agents: int = 1,
    ) -> None:
        self.name, self.action_space, self.first = name, action_space, first
        self.observation_space = observation_space  # without a mask, where that is a key of it
        self.worlds, self.agents, self.num_envs = worlds, agents, worlds * agents
        self.layout, num_envs = observation_layout(observation_space, name), self.num_envs
        if not self.layout.size:
            raise EnvironmentFault(
                f"{name} has observations without a number in them: {observation_space}."
            )
        self.keys = [key(seed, Purpose.EPISODE, first + i) for i in range(worlds)]
        self.obs = np.zeros((num_envs, *self.layout.shape), self.layout.dtype)
        self.final_obs = np.zeros_like(self.obs)
        self.reward = np.zeros(num_envs)
        self.terminated = np.zeros(num_envs, np.bool_)
        self.truncated = np.zeros(num_envs, np.bool_)
        # rows that are no transition (the reset step of NEXT_STEP classes)
        self.skipped = np.zeros(num_envs, np.bool_)
        # of the current episodes; lists, since Python reads and writes their items in a third of an
        # array's time
        self.episode, self.length, self.ret = [0] * worlds, [0] * worlds, [0.0] * num_envs
        self.finished: list[Episode] = []
        # [B, K] of the rewards, where they come in named components
        self.components: np.ndarray | None = None
        # [B, options], True where allowed, of the observations acted on next
        self.mask: np.ndarray | None = None
        # of the true last observations, where an episode was cut; what terminated needs none
        self.final_mask: np.ndarray | None = None
        # whether observations come with a mask; the very first one decides
        self.masked: bool | None = None
        # what decides the steps to come, where that is arrays: written to, never replaced
        self.state_arrays: dict[str, np.ndarray] = {}
        self.fallible = self.layout.dtype.kind == "f"  # whole numbers are always finite
        self.playing = list(range(num_envs))  # lanes that a step moves
        self.info: list[dict[str, Any]] = []  # of each lane's last step, where there is one

    @property
    def step_time(self) -> float | None:
        """The time of a step, where the environment says it; what is none is refused."""
        return None

    @property
    def time_limit(self) -> int | None:
        """Steps after which an episode ends by itself, as wrappers say; None where none does."""
        return None

    @property
    def spec(self) -> EnvSpec:
        """What these environments are like."""
        try:
            step_time = self.step_time
        except Exception:  # of interest to those alone who ask for `step_time`
            step_time = math.nan
        return EnvSpec(
            self.name,
            self.layout,
            self.action_space,
            self.agents,
            self.mask is not None,
            self.unread_mask,
            self.component_names,
            step_time,
            self.exact_resume,
        )

    @property
    def frame_rate(self) -> int:
        """Pictures a second of a film."""
        return 30

    def picture(self) -> Any:
        """The first world as it is now, RGB [H, W, 3]."""
        raise NotImplementedError(f"{self.name} has no picture")

    def step(self, actions: np.ndarray) -> None:
        """One step of every environment with actions [B], in the environment's own numbers."""
        raise NotImplementedError

    def state(self) -> dict[str, np.ndarray]:
        """What `restore` needs: `state_arrays`, and the observations to check them by."""
        return {
            name: array.copy() for name, array in (self.state_arrays | {"obs": self.obs}).items()
        }

    def restore(self, state: dict[str, np.ndarray]) -> bool:
        """False where what was restored does not show the same observations: the resume is not
        exact."""
        for name, array in self.state_arrays.items():
            array[:] = state[name]
        self.see_again()
        return bool(np.array_equal(self.obs, state["obs"]))

    def see_again(self) -> None:
        """Writes the observations, and masks, of the current state."""
        raise NotImplementedError

    def can_begin(self, w: int) -> bool:
        """Whether world w can begin an episode when one of it was played, or cut."""
        return True

    def close(self) -> None:
        """Nothing is held open, unless a subclass says so."""

    def mask_given(self, reader: MaskReader, i: int, obs: Any, info: dict[str, Any]) -> Any:
        """The mask of lane i as booleans [options], or None; what does not fit is refused with its
        place."""
        try:
            return reader.read(obs, info)
        except MaskError as error:
            raise EnvironmentFault(f"{self.location(i)}: {error}") from None

    def refuse_late_mask(self, i: int) -> None:
        """A mask that an environment offers only after it was made, and that nobody reads."""
        raise unusable(self.location(i), "this agent", self.action_space)

    def note_mask(self, i: int, mask: np.ndarray | None, options: int, who: str) -> None:
        """The mask of lane i's observation. All observations have one, or none."""
        if self.masked is None:
            self.masked = mask is not None
            if self.masked:
                self.make_masks(options)
        if self.masked != (mask is not None):
            raise EnvironmentFault(
                f"{who} gives an action mask with some observations and none with others: give it "
                "in the info of every reset and every step, or in the observation."
            )
        if self.mask is not None:
            self.mask[i] = mask

    def make_masks(self, options: int) -> None:
        self.mask, self.final_mask = np.ones((2, self.num_envs, options), np.bool_)

    def note_final_mask(self, i: int, mask: np.ndarray | None) -> None:
        """The mask of the last observation of lane i, whose episode was cut there. Who needs an
        action in it asks `dead_end`."""
        assert self.final_mask is not None
        self.final_mask[i] = False if mask is None else mask
        if not self.final_mask[i].any():
            self.dead_end = self.location(i)

    # for tasks whose steps are compiled

    def begin_rounds(self) -> None:
        if self.finished:
            self.finished = []

    def note_ended(self, rows: np.ndarray) -> None:
        """Episodes that ended in the last step: rows of lane, return, length."""
        self.finished = [Episode(int(i), ret, int(length)) for i, ret, length in rows.tolist()]

    def episode_seed(self, i: int) -> int:
        return int(draw_bits(self.keys[i], self.episode[i])) >> (64 - SEED_BITS)

    def not_finite(self, i: int) -> EnvironmentFault:
        what = "reward" if not math.isfinite(self.reward[i]) else "observation"
        key = (
            self.layout.key_at(int(np.argmin(np.isfinite(self.obs[i].ravel()))))
            if what == "observation"
            else ""
        )
        what = f"{what}'s {key}" if key else what
        return EnvironmentFault(
            f"{self.location(i)}: the {what} is not finite; mend the environment, or clip what it "
            "returns."
        )

    def require_flags(self, i: int, terminated: Any, truncated: Any) -> None:
        """Refuses ends of an episode that are neither true nor false."""
        for name, value in (("terminated", terminated), ("truncated", truncated)):
            if not is_flag(value):
                raise EnvironmentFault(
                    f"{self.location(i)}: {name} is {value!r}, and must be True or False."
                )

    def raised(self, i: int, what: str, error: BaseException) -> EnvironmentFault:
        return fault_of(self.location(i), what, error)

    def check_shape(self, i: int, obs: Any, shape: tuple[int, ...]) -> None:
        """Refuses an observation of another shape than its space's: NumPy would fill a row with it
        all the same."""
        if np.shape(obs) != shape:
            raise EnvironmentFault(
                f"{self.location(i)}: the observation has shape {np.shape(obs)}, and its space "
                f"says {shape}."
            )

    def location(self, i: int, later: int = 0) -> str:
        """Where lane i is, for errors; `later` steps from now."""
        w = i % self.worlds
        which = (
            f"world {self.first + w}, agent {i // self.worlds}"
            if self.agents > 1
            else f"environment {self.first + w}"
        )
        return f"{self.name}, {which}, episode {self.episode[w]}, step {self.length[w] + later}"


class Worlds(Environments):
    """What worlds of any kind can do."""

    multiagent = True

    @property
    def frame_rate(self) -> int:
        return 7

    def begin(self, w: int) -> None:
        """Resets world w to the start of its current episode."""
        raise NotImplementedError

    def cut(self, w: int) -> None:
        """After a step: ends world w's episode there, as a time limit of its own would."""
        lanes = slice(w, None, self.worlds)
        self.final_obs[lanes] = self.obs[lanes]
        self.truncated[lanes] = ~self.skipped[lanes]
        self.episode[w] += 1
        self.begin(w)

    def raised(self, i: int, what: str, error: BaseException) -> EnvironmentFault:
        """Of world i as a whole, whoever of its agents it was."""
        return fault_of(
            f"{self.name}, world {self.first + i}, episode {self.episode[i]}, step "
            f"{self.length[i]}",
            what,
            error,
        )


class EnvViews(NamedTuple):
    """Views of some environments' arrays."""

    obs: np.ndarray
    final_obs: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    skipped: np.ndarray
    mask: np.ndarray | None = None
    final_mask: np.ndarray | None = None

    @property
    def num_envs(self) -> int:
        return len(self.obs)

    @classmethod
    def showing(cls, obs: np.ndarray) -> "EnvViews":
        """Of environments in which nothing has happened."""
        no = np.zeros(len(obs), np.bool_)
        return cls(obs, obs, np.zeros(len(obs)), no, no, no)

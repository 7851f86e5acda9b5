"""An actor: some of a run's environments, stepped by the run's policy. The same code runs in the
learner's process and in others. Also the batches that actors deliver, and a check of the first
rows before the first update, for mistakes that no loss would show."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from tenfold.actors.wrappers import environments_of
from tenfold.config.run import Run
from tenfold.core.errors import UserError
from tenfold.core.processes import within
from tenfold.core.registry import algorithm
from tenfold.envs.adapter import Environments, Episode
from tenfold.memory.replay import Replay
from tenfold.memory.replay_rows import TERMINATED
from tenfold.memory.rollout import RolloutBuffer

if TYPE_CHECKING:
    from tenfold.memory.ring import Row, Schema


# what a step leaves in an adapter's arrays
STEP_FIELDS = ("reward", "terminated", "truncated", "skipped", "obs", "final_obs")
MASK_FIELDS = ("mask", "final_mask")  # where there are any
# what the environments of all actors have in common
SHARED_ATTRIBUTES = (
    "name",
    "action_space",
    "layout",
    "agents",
    "exact_resume",
    "one_by_one",
    "fallible",
    "unread_mask",
    "component_names",
    "component_weights",
    "action_names",
)
ACT, ENV, WAIT = range(3)  # places in `seconds`
# seconds at least to make environments, however little patience: much is imported then
MAKING = 15.0


class Actor:
    """Actor number `index`: `num_envs` environments, and how the run's algorithm acts in them."""

    def __init__(self, run: Run, index: int) -> None:
        self.run, self.index, self.first = run, index, index * run.num_envs
        self.algorithm = algorithm(run.agent.name)
        self.envs = environments_of(run, index)
        self.rounds = 0
        self.seconds = np.zeros(3)

    def bind_agent(self, agent: Any) -> None:
        """Uses this agent's networks from now on, with random draws of its own."""
        self.agent = agent.for_actor(self.index)
        self.acting = self.algorithm.make_acting(self.run, self.agent, self.envs)

    def schema(self) -> "Schema":
        """A row: one step of all its environments."""
        envs, lanes = self.envs, self.envs.num_envs
        fields: dict[str, Any] = {
            name: (getattr(envs, name).shape, getattr(envs, name).dtype) for name in STEP_FIELDS
        }
        fields |= self.algorithm.row_fields(self.run, envs)
        # version acted by; seconds spent so far
        return (
            fields
            | episode_fields(envs.worlds, lanes)
            | {
                "version": ((), np.int64),
                "acted": ((), np.float64),
                "seconds": ((3,), np.float64),
            }
        )

    def advance(self, step: int, row: "Row", version: int = 0) -> None:
        """Chooses actions, steps the environments and fills `row`. `step` sets the schedules."""
        start, envs = perf_counter(), self.envs
        action = self.acting.act(row, step, self.rounds)
        act_end = perf_counter()
        envs.step(action)
        for name in STEP_FIELDS:
            row[name][...] = getattr(envs, name)
        for name in MASK_FIELDS:
            if name in row:
                row[name][...] = getattr(envs, name)
        if envs.components is not None and "components" in row:
            row["components"][...] = envs.components
        note_episodes(row, envs)
        self.acting.stepped()
        self.rounds += 1
        end = perf_counter()
        self.seconds[ACT] += act_end - start
        self.seconds[ENV] += end - act_end
        row["version"][...], row["acted"][...], row["seconds"][...] = version, end, self.seconds

    def state(self) -> dict[str, np.ndarray]:
        """The arrays that `restore` needs."""
        return (
            {f"envs.{name}": value for name, value in self.envs.state().items()}
            | {f"frames.{name}": value for name, value in self.acting.state().items()}
            | {"rounds": np.array(self.rounds)}
        )

    def restore(self, state: dict[str, np.ndarray]) -> bool:
        """False where the environments could not be restored exactly."""
        self.rounds = int(state["rounds"])
        exact = self.envs.restore(with_prefix(state, "envs."))
        self.acting.restore(with_prefix(state, "frames."), exact)
        return exact


def episode_fields(worlds: int, lanes: int) -> dict[str, Any]:
    """Of a row: returns of lanes and lengths of worlds whose episode ended, else 0; whether it was
    a success, -1 where nobody says."""
    return {
        "ret": ((lanes,), np.float64),
        "length": ((worlds,), np.int64),
        "success": ((worlds,), np.int8),
    }


def note_episodes(row: "Row", envs: Environments) -> None:
    """Fills these fields with the episodes that ended in the last step; `episodes` reads them."""
    row["ret"].fill(0)
    row["length"].fill(0)
    for episode in envs.finished:
        row["ret"][episode.env :: envs.worlds] = episode.agent_returns or episode.ret
        row["length"][episode.env] = episode.length
        row["success"][episode.env] = -1 if episode.success is None else episode.success


class SimpleActing:
    """Acting on the environments' observations as they are, without a state."""

    def __init__(self, agent: Any, envs: Environments) -> None:
        self.agent, self.envs = agent, envs

    def stepped(self) -> None:
        """After a step of the environments."""

    def state(self) -> dict[str, np.ndarray]:
        return {}

    def restore(self, state: dict[str, np.ndarray], exact: bool) -> None:
        """There is nothing to restore."""


def sample_actor(run: Run) -> Actor:
    """The first actor, made to learn what its environments are like. Environments that hang while
    they are made are an error."""
    with within(max(run.patience, MAKING), f"{run.env} was not made"):
        return Actor(run, 0)


def with_prefix(state: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """The entries whose names begin with this prefix, without it."""
    return {
        name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)
    }


@dataclass
class TransitionBatch:
    """What an actor delivered: a row; an empty one where the learner's engine has stored it; or,
    with `is_reset`, the first observations of an actor that was started again."""

    actor: int
    first: int  # of its worlds, among all of the run
    row: "Row"
    is_reset: bool = False
    finished: list[Episode] = field(default_factory=list)  # where there is no row to tell of them


def episodes(part: TransitionBatch, agents: int) -> Iterator[Episode]:
    """The episodes that ended in a batch."""
    yield from part.finished
    if part.is_reset or not part.row:
        return
    row, worlds = part.row, len(part.row["length"])
    for w in row["length"].nonzero()[0].tolist():
        returns, success = row["ret"][w::worlds].tolist(), int(row["success"][w])
        yield Episode(
            part.first + w,
            sum(returns) / agents,
            int(row["length"][w]),
            tuple(returns) if agents > 1 else (),
            None if success < 0 else bool(success),
        )


class StackedEnvs(Environments):
    """The latest step of all actors' environments in one set of arrays; lanes agent by agent, as
    one adapter would have them."""

    def __init__(self, like: Environments, actors: int) -> None:
        for name in SHARED_ATTRIBUTES:
            setattr(self, name, getattr(like, name))
        self.first, self.finished = 0, []
        self.worlds, self.num_envs = like.worlds * actors, like.num_envs * actors
        for name in STEP_FIELDS:
            array = getattr(like, name)
            setattr(self, name, np.zeros((self.num_envs, *array.shape[1:]), array.dtype))
        self.mask = self.final_mask = self.components = None
        if like.mask is not None:
            self.make_masks(like.mask.shape[1])
        if like.component_names:
            self.components = np.zeros((self.num_envs, len(like.component_names)), np.float32)

    def write(self, first: int, name: str, value: np.ndarray) -> None:
        """An actor's array into its lanes."""
        self.lanes(getattr(self, name), first, len(value) // self.agents)[...] = value.reshape(
            self.agents, -1, *value.shape[1:]
        )

    def lanes(self, array: np.ndarray, first: int, worlds: int) -> np.ndarray:
        """The lanes of some worlds in an array of all, [agents, worlds, …]."""
        return array.reshape(self.agents, self.worlds, *array.shape[1:])[:, first : first + worlds]


ROWS = 10_000  # looked at, at most


def check_first_rows(replays: Sequence[Replay]) -> str:
    """One sentence about the rows that can be drawn; rows that cannot be right are an error."""
    indices = [np.flatnonzero(replay.ready)[: ROWS // len(replays)] for replay in replays]
    obs, reward, action, kind = (
        np.concatenate(
            [getattr(replay, name)[rows] for replay, rows in zip(replays, indices, strict=True)]
        )
        for name in ("obs", "reward", "action", "kind")
    )
    actions = (
        describe_reals(action) if action.ndim > 1 else f"{len(np.unique(action))} distinct actions"
    )
    return check_rows(obs, reward, kind == TERMINATED, actions)


def check_first_rollout(rollout: RolloutBuffer) -> str:
    """The same about a full rollout, with its observations as the policy saw them."""
    steps = rollout.weight > 0
    obs, reward, discrete, real = (
        getattr(rollout, name)[steps][:ROWS] for name in ("obs", "reward", "chosen", "real")
    )
    terminal = (rollout.discount[steps] == 0) & (rollout.boundary[steps] == 1)
    actions = []
    if discrete.size:
        actions.append(f"{len(np.unique(discrete, axis=0))} distinct actions")
    if real.size:
        actions.append(describe_reals(real))
    return check_rows(obs.reshape(len(obs), -1), reward, terminal, "; ".join(actions))


def describe_reals(real: np.ndarray) -> str:
    """Of actions, in words."""
    return f"numbers {real.min():.4g} to {real.max():.4g}, deviation {real.std():.4g}"


def check_rows(obs: np.ndarray, reward: np.ndarray, terminal: np.ndarray, actions: str) -> str:
    """The sentence about rows [N, F] of observations and what came of them, or the error."""
    if not len(obs):
        return "first batch: no rows"
    summary = (
        f"first batch: {len(obs):,} rows; observations {obs.min():.4g} to {obs.max():.4g}, "
        f"deviation {obs.std():.4g}; rewards {reward.min():.4g} to {reward.max():.4g}; "
        f"{np.mean(terminal):.1%} terminal; {actions}"
    )
    if not np.isfinite(obs).all() or not np.isfinite(reward).all():
        raise UserError(
            f"The learner was given rows that nobody wrote ({summary}): please report this."
        )
    if len(obs) > 1 and (obs == obs[0]).all():
        raise UserError(
            f"All observations of the first {len(obs):,} steps are identical ({summary}): the "
            "environment shows nothing to learn from, or its observations do not arrive."
        )
    return summary

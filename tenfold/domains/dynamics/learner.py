"""Experiment and model in one process: plan, act, correct the belief, train."""

from dataclasses import replace
from typing import Any

import numpy as np

from tenfold.config.run import Run
from tenfold.core.errors import ConfigError, UserError
from tenfold.core.protocols import Description, State
from tenfold.core.random import Purpose, key
from tenfold.core.timing import Clock
from tenfold.domains.dynamics import is_field
from tenfold.domains.dynamics.agent import ExplorerAgent
from tenfold.domains.dynamics.config import Explorer
from tenfold.domains.dynamics.fields import FieldEnvironments
from tenfold.envs.adapter import Environments, Episode
from tenfold.envs.scalar import ScalarEnvironments


def make_members(run: Run) -> Environments:
    """One environment for each member, member i's being what seed + i plays alone."""
    seeds = run.seeds
    if is_field(run.env):
        return FieldEnvironments(run.env, len(seeds), run.seed, seeds=seeds)
    envs = ScalarEnvironments(run.env, len(seeds), run.seed, True)
    space: Any = envs.action_space
    if (
        type(space).__name__ != "Box"
        or len(envs.layout.shape) != 1
        or envs.layout.dtype.kind != "f"
        or envs.mask is not None
    ):
        raise ConfigError(
            "env",
            f"= {run.env} does not fit agent explorer, which takes observations and actions of "
            "real numbers (Box, one dimension).",
        )
    envs.keys = [key(seed, Purpose.EPISODE) for seed in seeds]
    for i in range(len(seeds)):
        envs.begin(i)
    return envs


def time_of(envs: Environments) -> float | None:
    """The time of a step, where the environment says it."""
    if isinstance(envs, FieldEnvironments):
        return envs.system.step_time
    inner: Any = envs.envs[0].unwrapped if isinstance(envs, ScalarEnvironments) else None
    said = getattr(inner, "dt", getattr(inner, "tau", None))
    try:
        dt = None if said is None else float(said)
    except (TypeError, ValueError):
        dt = np.nan
    if dt is not None and not 0 < dt < np.inf:
        raise ConfigError(
            "env",
            f"= {envs.name} says that a step takes {said}: its attribute dt or tau must be above "
            "0.",
        )
    return dt


def make_explorer(run: Run, envs: Environments) -> ExplorerAgent:
    """The agent of a run, untrained."""
    assert isinstance(run.agent, Explorer)
    space: Any = envs.action_space
    low, high = (np.asarray(bound, np.float32).ravel() for bound in (space.low, space.high))
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise ConfigError("env", f"= {run.env} has actions without bounds, and a plan needs them.")
    dt = time_of(envs) or 1.0
    device = "cpu" if run.device == "auto" else run.device
    return ExplorerAgent(run.agent, envs.layout.shape[0], low, high, dt, run.seeds, device)


class ExplorerLearner:
    """Environments and agent of one run, and the counters that make it go on where it stopped."""

    rows = None  # the window is part of the agent's state
    lockstep = None
    tells_episodes = False

    def __init__(self, run: Run) -> None:
        assert isinstance(run.agent, Explorer)
        self.run, self.config = run, run.agent
        self.envs = make_members(run)
        if isinstance(self.envs, FieldEnvironments) and self.envs.system.limit <= run.agent.length:
            raise ConfigError(
                "agent.length",
                f"= {run.agent.length} does not fit: episodes of {run.env} have "
                f"{self.envs.system.limit} steps, and a sequence lies within one.",
            )
        if (
            run.agent.model.noise == "poisson"
            and isinstance(self.envs, FieldEnvironments)
            and not self.envs.system.counts
        ):
            raise ConfigError(
                "agent.model.noise",
                f"= poisson is for counts, and observations of {run.env} can be below 0: use "
                "gaussian, or an environment with observe=loglinear, noise=poisson.",
            )
        self.agent = make_explorer(run, self.envs)
        # the agent's actions are flat
        self.action_shape = (self.agent.members, *(self.envs.action_space.shape or ()))
        self.clock = Clock()
        self.step = 0
        # by when there should be something to train on
        self.late = max(run.agent.learning_starts, 5 * run.agent.length)
        self.notices: list[str] = []
        self.warnings: list[str] = []
        if time_of(self.envs) is None:
            self.notices.append(
                f"{run.env} has no attribute dt or tau: the time of a step counts as 1"
            )
        self.agent.observe(self.envs.obs, np.ones(self.agent.members, np.bool_))

    @property
    def description(self) -> Description:
        together = f"; {self.agent.members} seeds together" if self.agent.members > 1 else ""
        memory = f"a window of {self.config.window:,} steps{together}"
        return Description("plain autograd; plans compiled", str(self.agent.device), memory)

    @property
    def exact_resume(self) -> bool:
        return self.envs.exact_resume

    def set_lr(self, lr: Any) -> None:
        raise UserError("The learning rate of an explorer is fixed: set agent.lr beforehand.")

    def time_every_round(self) -> None:
        """Every round is timed as it is."""

    def warm_up(self) -> None:
        """Compiles what a round needs: one round of a copy with the shortest start."""
        early = replace(self.config, learning_starts=0)
        agent = ExplorerAgent(
            early, len(self.agent.seen[0]), self.agent.low, self.agent.high, self.agent.dt, (0,)
        )
        agent.observe(agent.seen, agent.begins)
        agent.remember(agent.no_action() if agent.planning.idle else agent.planned())
        if agent.refit_due(0):
            agent.observe(agent.seen, ~agent.begins)
            agent.remember(agent.no_action())
            agent.refit()

    def statistics(self) -> dict[str, float]:
        return self.agent.statistics()

    def round(self, until: int | None = None) -> list[Episode]:
        """One step of every member, and training where it is due."""
        agent, envs, clock = self.agent, self.envs, self.clock
        clock.start()
        action = agent.choose(self.step)
        clock.lap("act")
        envs.step(action.reshape(self.action_shape))
        clock.lap("env")
        agent.observe(envs.obs, envs.terminated | envs.truncated)
        clock.lap("act")
        self.step += 1
        agent.learn_units(self.step)
        for _ in range(agent.due(self.step)):
            agent.train_step()
        if agent.refit_due(self.step):
            agent.refit()
        if self.step == self.late and not agent.ready and not agent.updates:
            self.notices.append(
                "nothing was trained yet: no episode has lasted agent.length = "
                f"{self.config.length} steps; make it shorter"
            )
        clock.lap("update")
        return []  # without reward there is nothing to tell of an episode

    def settle(self) -> list[Episode]:
        return []

    def state(self) -> State:
        """Everything that decides what comes next, by part."""
        return {
            "agent": self.agent.state(),
            "envs": self.envs.state(),
            "serial": {"step": np.array(self.step)},
        }

    def load_rows(self, rows: dict[str, np.ndarray]) -> None:
        """It has none."""

    def load_state(self, state: State, with_rows: bool = True) -> bool:
        """Restores `state`. False where the environments could not be restored exactly."""
        self.agent.load_state(state["agent"])
        self.step = int(state["serial"]["step"])
        exact = self.envs.restore(state["envs"])
        if not exact:
            self.agent.observe(self.envs.obs, np.ones(self.agent.members, np.bool_))
        return exact

    def close(self) -> None:
        self.envs.close()

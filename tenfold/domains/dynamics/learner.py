"""Runs under way: experiments (plan, act, correct the belief, train) and training on recordings."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tenfold.algorithms.learner import BareLearner
from tenfold.config.run import Run
from tenfold.core.errors import ConfigError, UserError
from tenfold.core.masks import refuse_unread
from tenfold.core.protocols import Description, State
from tenfold.core.random import Purpose, key
from tenfold.domains.dynamics import is_field, is_recording
from tenfold.domains.dynamics.agent import ExplorerAgent
from tenfold.domains.dynamics.config import Explorer
from tenfold.domains.dynamics.fields import FieldEnvironments
from tenfold.domains.dynamics.recording import (
    Recording,
    load_recording,
    parse_recording_id,
    require_counts,
)
from tenfold.envs.adapter import Environments, Episode
from tenfold.envs.scalar import ScalarEnvironments


def untrained(run: Run) -> ExplorerAgent:
    """The agent of a run. Of a run on recordings the file is not read, and actions have no
    bounds."""
    if not is_recording(run.env):
        return agent_in(run, make_members(run))
    source = parse_recording_id(run.env)
    if source.sessions and isinstance(run.agent, Explorer) and run.agent.model.decoder == "mlp":
        raise ConfigError(
            "agent.model.decoder",
            "= mlp has layers that sessions would share, and these have readouts of their own: use "
            "linear or loglinear.",
        )
    bound = np.ones(source.actions, np.float32)
    return make_agent(run, source.observations, -bound, bound, source.dt, source.sessions)


def make_agent(
    run: Run,
    observations: int,
    low: np.ndarray,
    high: np.ndarray,
    dt: float,
    sessions: tuple[int, ...] = (),
) -> ExplorerAgent:
    assert isinstance(run.agent, Explorer)
    device = "cpu" if run.device == "auto" else run.device
    return ExplorerAgent(run.agent, observations, low, high, dt, run.seeds, device, sessions)


def agent_in(run: Run, envs: Environments) -> ExplorerAgent:
    """The agent of experiments in these environments."""
    space: Any = envs.action_space
    low, high = (np.asarray(bound, np.float32).ravel() for bound in (space.low, space.high))
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise ConfigError("env", f"= {run.env} has actions without bounds, and a plan needs them.")
    return make_agent(run, envs.layout.shape[0], low, high, envs.step_time or 1.0)


def make_members(run: Run) -> Environments:
    """One environment for each member, member i's being what seed + i plays alone."""
    seeds = run.seeds
    if is_field(run.env):
        return FieldEnvironments(run.env, len(seeds), run.seed, seeds=seeds)
    envs = ScalarEnvironments(run.env, len(seeds), run.seed, True)
    refuse_unread(envs.spec, "agent explorer", reads_masks=False)
    space: Any = envs.action_space
    if (
        type(space).__name__ != "Box"
        or len(envs.layout.shape) != 1
        or envs.layout.dtype.kind != "f"
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


def require_fit(run: Run, envs: Environments) -> None:
    """Refuses settings that do not fit one of the built-in systems."""
    config: Any = run.agent
    if not isinstance(envs, FieldEnvironments):
        return
    if envs.system.limit <= config.length:
        raise ConfigError(
            "agent.length",
            f"= {config.length} does not fit: episodes of {run.env} have {envs.system.limit} "
            "steps, and a sequence lies within one.",
        )
    counts = envs.system.observe == "loglinear" and envs.system.noise != "gaussian"
    if config.model.noise == "poisson" and not counts:
        raise ConfigError(
            "agent.model.noise",
            f"= poisson is for counts, and observations of {run.env} can be below 0: use gaussian, "
            "or an environment with observe=loglinear, noise=poisson.",
        )


class ModelLearner(BareLearner):
    """The window is part of the agent's state; without reward there are no episode statistics."""

    agent: ExplorerAgent

    def set_lr(self, lr: Any) -> None:
        raise UserError("The learning rate of an explorer is fixed: set agent.lr beforehand.")

    def statistics(self) -> dict[str, float]:
        return self.agent.statistics()

    def state(self) -> State:
        """Everything that decides what comes next, by part."""
        return {"agent": self.agent.state(), "serial": {"step": np.array(self.step)}}

    def load_state(self, state: State, with_rows: bool = True) -> bool:
        self.agent.load_state(state["agent"])
        self.step = int(state["serial"]["step"])
        return True


class ExplorerLearner(ModelLearner):
    """Experiments: environments of all members, and training every few steps."""

    def __init__(self, run: Run) -> None:
        self.envs = make_members(run)
        require_fit(run, self.envs)
        super().__init__(run, agent_in(run, self.envs))
        # the agent's actions are flat
        self.action_shape = (self.agent.members, *(self.envs.action_space.shape or ()))
        # by when there should be something to train on
        self.late = max(self.config.learning_starts, 5 * self.config.length)
        if self.envs.step_time is None:
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

    def warm_up(self) -> None:
        """Compiles what a round needs: one round of a copy with the shortest start."""
        early = replace(self.config, learning_starts=0)
        agent = ExplorerAgent(
            early, len(self.agent.last_obs[0]), self.agent.low, self.agent.high, self.agent.dt, (0,)
        )
        agent.observe(agent.last_obs, agent.begins)
        agent.record_step(agent.no_action() if agent.planning.idle else agent.plan_action())
        if agent.refit_due(0):
            agent.observe(agent.last_obs, ~agent.begins)
            agent.record_step(agent.no_action())
            agent.refit()

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
        return []

    def state(self) -> State:
        return super().state() | {"envs": self.envs.state()}

    def load_state(self, state: State, with_rows: bool = True) -> bool:
        """False where the environments could not be restored exactly."""
        super().load_state(state)
        exact = self.envs.restore(state["envs"])
        if not exact:
            self.agent.observe(self.envs.obs, np.ones(self.agent.members, np.bool_))
        return exact

    def close(self) -> None:
        self.envs.close()


class RecordingLearner(ModelLearner):
    """The recordings in the agent's window, and gradient steps on them: there is no environment."""

    exact_resume = True

    def __init__(self, run: Run) -> None:
        super().__init__(run, untrained(run))
        agent, config, recording = self.agent, self.config, load_recording(run.env)
        if config.model.noise == "poisson":
            require_counts(Path(parse_recording_id(run.env).file), recording)
        if recording.missing and not config.model.missing:
            raise ConfigError(
                "agent.model.missing",
                f"= false does not fit: {recording.missing:,} values of the recording are not "
                "observed; leave it out.",
            )
        self.division = recording.divided()
        kept = self.division.kept
        if kept.steps > config.window:
            raise ConfigError(
                "agent.window",
                f"= {config.window} is less than the {kept.steps:,} steps of the recordings.",
            )
        fill_window(agent, kept)

    @property
    def description(self) -> Description:
        return Description("plain autograd", str(self.agent.device), self.division.sentence)

    def round(self, until: int | None = None) -> list[Episode]:
        """One gradient step, and dynamics in closed form where that is due."""
        self.clock.start()
        self.agent.train_step()
        self.step += 1
        if self.agent.refit_due(self.step):
            self.agent.refit()
        self.clock.lap("update")
        return []


def fill_window(agent: ExplorerAgent, kept: Recording) -> None:
    """Recordings into the agent's window, and units from there."""
    agent.bound(*action_range(kept))
    for y, a in kept.episodes:
        for t in range(len(y)):
            row, action = (np.repeat(part[t][None], agent.members, 0) for part in (y, a))
            agent.window.append(row, action, np.full(agent.members, t == 0))
    if not agent.window.ready:
        longest = max(len(y) for y, _ in kept.episodes)
        raise ConfigError(
            "agent.length",
            f"= {agent.config.length} is more than the {longest} steps that the longest episode "
            "has left for training: make it shorter.",
        )
    agent.fit_units(kept.steps)


def action_range(recording: Recording) -> tuple[np.ndarray, np.ndarray]:
    """The least and the largest of each action. One that is always the same could have been twice
    as large, or 0."""
    every = np.concatenate([a for _, a in recording.episodes])
    low, high = every.min(0), every.max(0)
    size = np.where(low == high, np.where(low == 0, 1.0, np.abs(low)), 0.0)
    return low - size, high + size

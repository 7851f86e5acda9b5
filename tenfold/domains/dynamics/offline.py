"""Training a model on recordings: a step is a gradient step, and there is no environment."""

from pathlib import Path
from typing import Any

import numpy as np

from tenfold.config.run import Run
from tenfold.core.errors import ConfigError, UserError
from tenfold.core.protocols import Description, State
from tenfold.core.timing import Clock
from tenfold.domains.dynamics import is_recording
from tenfold.domains.dynamics.agent import ExplorerAgent
from tenfold.domains.dynamics.config import Explorer
from tenfold.domains.dynamics.recording import (
    DIGEST,
    SAME,
    Recording,
    described,
    read_recording,
    require_counts,
)
from tenfold.domains.dynamics.recording_files import USUAL, Columns
from tenfold.envs.adapter import Episode
from tenfold.runs.checkpoint import Checkpoints, nested_state
from tenfold.runs.folder import RunFolder, is_run


def recorded(path: Path, dt: float | None = None, columns: Columns = USUAL) -> Recording:
    """From a file, or from what an explorer's run still has in its window."""
    if not is_run(path):
        below = (
            next((run for run in sorted(path.iterdir()) if is_run(run)), None)
            if path.is_dir()
            else None
        )
        if below:
            raise UserError(
                f"{path} holds runs and is none itself: give one of them, such as {below}."
            )
        return read_recording(path, dt, columns)
    if any(columns):
        raise UserError(
            f"{path} is a run, whose observations and actions are known: --observations and "
            "--actions are for files."
        )
    recording = of_run(path)
    if dt is not None and abs(dt - recording.dt) > SAME * recording.dt:
        raise UserError(
            f"{path} was recorded with {recording.dt:.9g} for a step, and --dt says {dt:.9g}: "
            "leave --dt out."
        )
    return recording


def recalled(name: str) -> Recording:
    """The recording of a run, which must be what it was when the run began."""
    source = described(name)
    if source.digest and not source.digest.startswith(DIGEST):
        raise UserError(
            f"A run on {source.file} by an earlier version of tenfold cannot go on in this one: "
            f"start it anew with `tenfold fit {source.file}`."
        )
    recording = recorded(Path(source.file), source.dt, source.columns)
    if recording.sizes != (source.observations, source.actions) or source.digest not in (
        "",
        recording.digest,
    ):
        raise UserError(
            f"{source.file} is no longer what this run was trained on: put it back as it was, or "
            f"start a run of its own with `tenfold fit {source.file}`."
        )
    return recording


def held_back(name: str, judging: bool) -> tuple[np.ndarray, np.ndarray]:
    """Pieces y [E, T, Y] and a [E, T, A] of a run's recording that no training sees: those that
    choose, or those that judge."""
    division = recalled(name).divided()
    return division.judging if judging else division.choosing


def of_run(path: Path) -> Recording:
    folder, run = RunFolder.open(path)
    if not isinstance(run.agent, Explorer):
        raise UserError(
            f"{path} is a run of {run.agent.name}, which keeps no recordings of a hidden system."
        )
    if is_recording(run.env):
        return recalled(run.env)
    from tenfold.domains.dynamics.learner import make_explorer, make_members

    agent = make_explorer(run, make_members(run))
    agent.load_state(nested_state(Checkpoints(folder, run.keep).latest()[0])["agent"])
    episodes = []
    for m in range(agent.members):
        window, rows = agent.window, agent.window.places()
        first = [k for k, row in enumerate(rows) if k == 0 or window.first[m, row]]
        episodes += [
            (window.obs[m, rows[s:e]], window.action[m, rows[s:e]])
            for s, e in zip(first, [*first[1:], len(rows)], strict=True)
        ]
    episodes = [(y, a) for y, a in episodes if len(y) > 1]
    if not episodes:
        raise UserError(f"{path} has recorded nothing yet: go on with `tenfold resume {path}`.")
    return Recording(tuple(episodes), agent.dt)


class OfflineAgent(ExplorerAgent):
    """Has no belief to speak of: nothing comes one by one."""

    def exploring(self, step: int) -> dict[str, float]:
        return {}


def offline_agent(run: Run) -> ExplorerAgent:
    """The agent of a run on recordings, untrained; the file itself is not looked at. A plan is none
    of its business."""
    assert isinstance(run.agent, Explorer)
    source = described(run.env)
    bound = np.ones(source.actions, np.float32)
    device = "cpu" if run.device == "auto" else run.device
    return OfflineAgent(run.agent, source.observations, -bound, bound, source.dt, run.seeds, device)


def reached(recording: Recording) -> tuple[np.ndarray, np.ndarray]:
    """The least and the largest of each action. One that is always the same could have been twice
    as large, or 0."""
    every = np.concatenate([a for _, a in recording.episodes])
    low, high = every.min(0), every.max(0)
    size = np.where(low == high, np.where(low == 0, 1.0, np.abs(low)), 0.0)
    return low - size, high + size


class RecordingLearner:
    """The recordings in the agent's window, and gradient steps on them."""

    rows = None
    lockstep = None
    tells_episodes = False
    exact_resume = True

    def __init__(self, run: Run) -> None:
        assert isinstance(run.agent, Explorer)
        self.run = run
        recording = recalled(run.env)
        if run.agent.model.noise == "poisson":
            require_counts(Path(described(run.env).file), recording)
        self.division = recording.divided()
        kept = self.division.kept
        if kept.steps > run.agent.window:
            raise ConfigError(
                "agent.window",
                f"= {run.agent.window} is less than the {kept.steps:,} steps of the recordings.",
            )
        self.agent = offline_agent(run)
        self.agent.bound(*reached(kept))
        ones = np.ones(self.agent.members, np.bool_)
        for y, a in kept.episodes:
            for t in range(len(y)):
                seen, done = (np.repeat(part[t][None], self.agent.members, 0) for part in (y, a))
                self.agent.window.append(seen, done, ones if t == 0 else ~ones)
        if not self.agent.window.ready:
            longest = max(len(y) for y, _ in kept.episodes)
            raise ConfigError(
                "agent.length",
                f"= {run.agent.length} is more than the {longest} steps that the longest episode "
                "has left for training: make it shorter.",
            )
        self.agent.take_units(kept.steps)
        self.clock = Clock()
        self.step = 0
        self.notices: list[str] = []
        self.warnings: list[str] = []

    @property
    def description(self) -> Description:
        return Description("plain autograd", str(self.agent.device), self.division.sentence)

    def set_lr(self, lr: Any) -> None:
        raise UserError("The learning rate of an explorer is fixed: set agent.lr beforehand.")

    def time_every_round(self) -> None:
        """Every round is timed as it is."""

    def warm_up(self) -> None:
        """There is nothing to compile."""

    def statistics(self) -> dict[str, float]:
        return self.agent.statistics()

    def round(self, until: int | None = None) -> list[Episode]:
        """One gradient step, and dynamics in closed form where that is due."""
        self.clock.start()
        self.agent.train_step()
        self.step += 1
        if self.agent.refit_due(self.step):
            self.agent.refit()
        self.clock.lap("update")
        return []

    def settle(self) -> list[Episode]:
        return []

    def state(self) -> State:
        return {"agent": self.agent.state(), "serial": {"step": np.array(self.step)}}

    def load_rows(self, rows: dict[str, np.ndarray]) -> None:
        """It has none."""

    def load_state(self, state: State, with_rows: bool = True) -> bool:
        self.agent.load_state(state["agent"])
        self.step = int(state["serial"]["step"])
        return True

    def close(self) -> None:
        """Nothing is open."""

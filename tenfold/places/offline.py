"""Training a model on recordings: a step is a gradient step, and there is no environment."""

from pathlib import Path
from typing import Any

import numpy as np

from tenfold.agents.explorer import ExplorerAgent
from tenfold.envs.recording import HELD, Recording, described, read_recording
from tenfold.envs.vector import Episode
from tenfold.errors import ConfigError, UserError
from tenfold.explorer_settings import Explorer
from tenfold.memory.replay import Replay
from tenfold.places.crew import Crew
from tenfold.record.checkpoint import Checkpoints, nested_state
from tenfold.record.clock import Clock
from tenfold.record.folder import RunFolder, is_run
from tenfold.settings import Run


def recorded(path: Path, dt: float | None = None) -> Recording:
    """From a file, or from what an explorer's run still has in its window."""
    return of_run(path) if is_run(path) else read_recording(path, dt)


def of_run(path: Path) -> Recording:
    folder, run = RunFolder.open(path)
    if not isinstance(run.agent, Explorer):
        raise UserError(f"{path} is a run of {run.agent.name}, which keeps no recordings of a hidden system.")
    from tenfold.places.exploring import make_explorer, make_members
    agent = make_explorer(run, make_members(run))
    agent.load_state(nested_state(Checkpoints(folder, run.keep).latest()[0])["agent"])
    episodes = []
    for m in range(agent.members):
        written, window = int(agent.window.counters[m, 0]), agent.window
        rows = np.arange(max(written - window.capacity, 0), written) % window.capacity
        first = [k for k, row in enumerate(rows) if k == 0 or window.first[m, row]]
        episodes += [(window.obs[m, rows[s:e]], window.action[m, rows[s:e]])
                     for s, e in zip(first, [*first[1:], len(rows)], strict=True)]
    return Recording(tuple((y, a) for y, a in episodes if len(y) > 1), agent.dt)


def offline_agent(run: Run) -> ExplorerAgent:
    """The agent of a run on recordings, untrained; the file itself is not looked at. A plan is none of its business."""
    assert isinstance(run.agent, Explorer)
    _, observations, actions, dt = described(run.env)
    bound = np.ones(actions, np.float32)
    device = "cpu" if run.device == "auto" else run.device
    return ExplorerAgent(run.agent, observations, -bound, bound, dt, run.seeds, device)


class NoEnvironments:
    """Where there is nothing to step."""

    exact_resume = True

    def close(self) -> None:
        """Nothing is open."""


class Offline:
    """The recordings in the agent's window, and gradient steps on them."""

    replay: Replay | None = None
    crew: Crew | None = None
    lockstep = None
    where = ""

    def __init__(self, run: Run) -> None:
        assert isinstance(run.agent, Explorer)
        self.run, self.envs = run, NoEnvironments()
        recording = recorded(Path(described(run.env)[0]), described(run.env)[3])
        if recording.sizes != described(run.env)[1:3]:
            raise ConfigError("env", f"= {run.env} does not fit its file, whose observations have {recording.sizes[0]} numbers "
                              f"and actions {recording.sizes[1]}.")
        kept, _, _ = recording.divided(HELD)
        if kept.steps > run.agent.window:
            raise ConfigError("agent.window", f"= {run.agent.window} is less than the {kept.steps:,} steps of the recordings.")
        self.agent = offline_agent(run)
        ones = np.ones(self.agent.members, np.bool_)
        for y, a in kept.episodes:
            for t in range(len(y)):
                seen, done = (np.repeat(part[t][None], self.agent.members, 0) for part in (y, a))
                self.agent.window.append(seen, done, ones if t == 0 else ~ones)
        if not self.agent.window.ready:
            raise ConfigError("agent.length", f"= {run.agent.length} is more than the longest episode has left for training: "
                              "make it shorter.")
        self.engine, self.engine_choice = self, "plain autograd"
        self.clock = Clock()
        self.step = 0
        self.remarks: list[str] = []

    @property
    def engine_name(self) -> str:
        return "plain"

    @property
    def device(self) -> str:
        return str(self.agent.device)

    @property
    def memory(self) -> str:
        return f"recordings of {int(self.agent.window.counters[0, 0]):,} steps"

    def time_every_round(self) -> None:
        """Every round is timed as it is."""

    def warm_up(self) -> None:
        """There is nothing to compile."""

    def statistics(self) -> dict[str, float]:
        return self.agent.statistics()

    def round(self, until: int | None = None) -> list[Episode]:
        """One gradient step."""
        self.clock.start()
        self.agent.train_step()
        self.step += 1
        self.clock.lap("update")
        return []

    def settle(self) -> list[Episode]:
        return []

    def state(self) -> dict[str, dict[str, Any]]:
        return {"agent": self.agent.state(), "serial": {"step": np.array(self.step)}}

    def load_state(self, state: dict[str, dict[str, Any]], with_replay: bool = True) -> bool:
        self.agent.load_state(state["agent"])
        self.step = int(state["serial"]["step"])
        return True

    def close(self) -> None:
        """Nothing is open."""

"""Actor and learner in one process, one after another: the reference of every other arrangement."""

from typing import Any

import numpy as np

from tenfold.agents.dqn import DQNAgent
from tenfold.engines.plain import PlainEngine
from tenfold.envs.vector import Episode, make_environments
from tenfold.memory.replay import Replay
from tenfold.record.clock import EVERY, Clock
from tenfold.settings import Run
from tenfold.spaces import discrete_actions


class Serial:
    """Environments, agent, memory and engine of one run, and the counters that make it go on where it stopped."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.envs = make_environments(run.env, run.num_envs, run.seed, run.vectorize)
        actions = discrete_actions(self.envs.action_space, run.env)
        self.agent = DQNAgent(run.agent, self.envs.layout, actions, run.seed, "cpu" if run.device == "auto" else run.device)
        self.replay = Replay(run.agent, self.envs.layout, run.num_envs, run.seed)
        self.engine = PlainEngine(self.agent, self.replay)
        self.replay.begin(self.envs.obs)
        self.clock = Clock()
        self.step = self.rounds = 0

    def round(self) -> list[Episode]:
        """Act, step, store, and run the updates that are due. Returns the episodes that ended."""
        envs, clock, settings = self.envs, self.clock, self.run.agent
        timed = self.rounds % EVERY == EVERY - 1  # not the first round, which may compile kernels
        if timed:
            clock.start()
        action = self.agent.explore(envs.obs, self.step, self.rounds)
        if timed:
            clock.lap("act", EVERY)
        envs.step(action + self.agent.actions.start)
        if timed:
            clock.lap("env", EVERY)
        self.replay.add(action, envs.reward, envs.terminated, envs.truncated, envs.skipped, envs.obs, envs.final_obs)
        if timed:
            clock.lap("store", EVERY)
        before = self.step
        self.step += envs.num_envs - int(np.count_nonzero(envs.skipped))
        self.rounds += 1
        due = (self.step // settings.every - before // settings.every) * settings.updates
        if due and self.step > settings.learning_starts and self.replay.rows:
            self.engine.update(due, self.step, clock)
        return envs.finished

    def state(self) -> dict[str, dict[str, Any]]:
        """Everything that decides what comes next, by part; replay rows aside."""
        counters = {"step": np.array(self.step), "rounds": np.array(self.rounds)}
        return {"agent": self.agent.state(), "engine": self.engine.state(), "replay": self.replay.state(),
                "envs": self.envs.state(), "serial": counters}

    def load_state(self, state: dict[str, dict[str, Any]], with_replay: bool = True) -> bool:
        """Restores `state` (replay rows must have been loaded). False where the environments could not be restored exactly.

        Without the replay's state its memory stays empty and begins with the next step.
        """
        self.agent.load_state(state["agent"])
        self.engine.load_state(state["engine"])
        self.step, self.rounds = int(state["serial"]["step"]), int(state["serial"]["rounds"])
        exact = self.envs.restore(state["envs"])
        if not with_replay:
            self.replay.begin(self.envs.obs)
            return exact
        self.replay.load_state(state["replay"])
        if not exact:
            self.replay.cut(self.envs.obs)
        return exact

    def close(self) -> None:
        self.envs.close()

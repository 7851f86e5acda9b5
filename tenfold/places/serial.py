"""Actor and learner in one process, one after another: the reference of every other arrangement."""

from typing import Any

import numpy as np

from tenfold.agents.dqn import DQNAgent
from tenfold.engines.choose import choose_engine
from tenfold.engines.fused import FusedEngine
from tenfold.engines.verify import Lockstep
from tenfold.envs.vector import Episode, make_environments
from tenfold.memory.frames import Frames
from tenfold.memory.replay import Replay, replay_bytes
from tenfold.record.clock import EVERY, Clock
from tenfold.settings import DQN, Run
from tenfold.spaces import discrete_actions

RARELY = (499, 251, 127)  # rounds between timed ones where an update comes every, every second, every third or fourth round


class Serial:
    """Environments, agent, memory and engine of one run, and the counters that make it go on where it stopped."""

    def __init__(self, run: Run) -> None:
        assert isinstance(run.agent, DQN)
        self.run, self.settings = run, run.agent
        self.envs = make_environments(run.env, run.num_envs, run.seed, run.vectorize)
        actions = discrete_actions(self.envs.action_space, run.env)
        self.agent = DQNAgent(run.agent, self.envs.layout, actions, run.seed, "cpu" if run.device == "auto" else run.device)
        self.replay = Replay(run.agent, self.envs.layout, self.envs.num_envs, run.seed)
        self.engine, self.engine_choice = choose_engine(run, self.agent, self.replay, self.envs)
        self.fused = self.engine if isinstance(self.engine, FusedEngine) and not run.verify else None
        self.timed_every = EVERY
        if self.fused:  # a timed round costs several times a whole one: the more rounds there are to an update, the rarer
            self.timed_every = next((prime for prime in RARELY if prime * run.agent.every <= RARELY[0]), EVERY)
            self.fused.scale = self.timed_every
        self.lockstep = Lockstep(self.engine, run.verify) if run.verify else None
        self.replay.begin(self.envs.obs)
        self.frames: Frames | None = None
        if run.agent.frames > 1:
            self.frames = Frames(run.agent.frames, self.envs.layout, self.envs.num_envs)
            self.frames.begin(self.envs.obs)
            self.engine.seen = self.frames.seen
        self.clock = Clock()
        self.step = self.rounds = 0

    @property
    def engine_name(self) -> str:
        return self.engine_choice.split(",")[0]

    @property
    def memory(self) -> str:
        size = replay_bytes(self.settings, self.envs.layout, self.envs.num_envs)
        return f"replay of {self.settings.capacity:,} rows takes {size / 2**20:,.1f} MiB"

    def time_every_round(self) -> None:
        """For a profile: by stages, one call after another, each timed."""
        self.timed_every = 1
        if isinstance(self.engine, FusedEngine):
            self.engine.scale = 1

    def round(self, until: int | None = None) -> list[Episode]:
        """Act, step, store, and run the updates that are due. Returns the episodes that ended.

        The fused engine goes on to the next end of an episode or timed round, not beyond step `until`.
        """
        envs, clock, settings = self.envs, self.clock, self.settings
        every = self.timed_every
        wait = (EVERY - 1 - self.rounds) % every  # rounds until the next timed one; the first may compile kernels
        timed = wait == 0
        if self.fused and not timed:
            most = wait if until is None else min(wait, -((self.step - until) // envs.num_envs))
            self.step, self.rounds = self.fused.run(self.step, self.rounds, most)
            return envs.finished
        if timed:
            clock.start()
        action = self.engine.explore(self.step, self.rounds)
        if timed:
            clock.lap("act", every)
        envs.step(action + self.agent.actions.start if self.agent.actions.start else action)
        if timed:
            clock.lap("env", every)
        self.replay.add(action, envs.reward, envs.terminated, envs.truncated, envs.skipped, envs.obs, envs.final_obs)
        if self.frames:
            self.frames.push(envs.terminated | envs.truncated, envs.skipped, envs.obs, envs.final_obs)
        if timed:
            clock.lap("store", every)
        before = self.step
        self.step += envs.num_envs - int(np.count_nonzero(envs.skipped))
        self.rounds += 1
        due = (self.step // settings.every - before // settings.every) * settings.updates
        if due and self.step > settings.learning_starts and self.replay.rows:
            (self.lockstep or self.engine).update(due, self.step, clock)
        return envs.finished

    def state(self) -> dict[str, dict[str, Any]]:
        """Everything that decides what comes next, by part; replay rows aside."""
        counters = {"step": np.array(self.step), "rounds": np.array(self.rounds)}
        frames = {"frames": self.frames.state()} if self.frames else {}
        return {"agent": self.agent.state(), "engine": self.engine.state(), "replay": self.replay.state(),
                "envs": self.envs.state(), "serial": counters, **frames}

    def load_state(self, state: dict[str, dict[str, Any]], with_replay: bool = True) -> bool:
        """Restores `state` (replay rows must have been loaded). False where the environments could not be restored exactly.

        Without the replay's state its memory stays empty and begins with the next step.
        """
        self.agent.load_state(state["agent"])
        self.engine.load_state(state["engine"])
        self.step, self.rounds = int(state["serial"]["step"]), int(state["serial"]["rounds"])
        exact = self.envs.restore(state["envs"])
        if self.frames and exact:
            self.frames.load_state(state["frames"])
        elif self.frames:
            self.frames.begin(self.envs.obs)
        if not with_replay:
            self.replay.begin(self.envs.obs)
            return exact
        self.replay.load_state(state["replay"])
        if not exact:
            self.replay.cut(self.envs.obs)
        return exact

    def close(self) -> None:
        self.envs.close()

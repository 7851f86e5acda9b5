"""Actors and learner one after another, the reference of every other arrangement; or the learner of
actors elsewhere."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from tenfold.actors.actor import Part, episodes, make_agent
from tenfold.actors.choose import make_crew
from tenfold.actors.data_check import first_look
from tenfold.actors.inline import Crew
from tenfold.algorithms.dqn.agent import DQNAgent
from tenfold.algorithms.dqn.fused import FusedEngine
from tenfold.algorithms.dqn.lockstep import Lockstep
from tenfold.algorithms.dqn.placed import Placed, several_devices
from tenfold.algorithms.dqn.plain import PlainEngine
from tenfold.algorithms.dqn.team import Team
from tenfold.algorithms.dqn.team_replay import TeamReplay
from tenfold.config.run import DQN, Run
from tenfold.core.errors import CheckpointError
from tenfold.core.timing import EVERY, Clock
from tenfold.engines.choose import choose_engine, choose_team_engine
from tenfold.envs.adapter import Episode
from tenfold.envs.making import make_environments
from tenfold.memory.frames import Seen
from tenfold.memory.replay import Replay, replay_bytes

# rounds between timed ones where an update comes every, every second, every third or fourth round
RARELY = (499, 251, 127)


class Serial:
    """Environments, agent, memory and engine of one run, and the counters that make it go on where
    it stopped."""

    def __init__(self, run: Run) -> None:
        assert isinstance(run.agent, DQN)
        self.run, self.settings = run, run.agent
        self.crew, self.where = make_crew(run)
        self.envs = (
            self.crew.envs
            if self.crew
            else make_environments(run.env, run.num_envs, run.seed, run.vectorize)
        )
        agent = make_agent(run, self.envs)
        assert isinstance(agent, DQNAgent)
        self.agent = agent
        if isinstance(agent, Team):
            self.replay = TeamReplay(
                run.agent, self.envs.layout, self.envs.worlds, run.seed, agent.members
            )
            devices = several_devices() if run.device == "auto" else []
            self.engine, self.engine_choice = choose_team_engine(
                run, agent, self.replay, self.envs, devices
            )
        else:
            self.replay = Replay(run.agent, self.envs.layout, self.envs.num_envs, run.seed)
            self.engine, self.engine_choice = choose_engine(run, agent, self.replay, self.envs)
        alone = self.envs.agents == 1 and not self.crew
        self.fused = (
            self.engine
            if isinstance(self.engine, FusedEngine) and alone and not run.verify
            else None
        )
        self.timed_every = EVERY
        # a timed round costs several times a whole one: the more rounds there are to an update, the
        # rarer
        if self.fused:
            self.timed_every = next(
                (prime for prime in RARELY if prime * run.agent.every <= RARELY[0]), EVERY
            )
            self.fused.scale = self.timed_every
        self.lockstep = (
            Lockstep(self.engine, run.verify)
            if run.verify and isinstance(self.engine, PlainEngine)
            else None
        )
        self.seen = Seen(1 if self.crew else run.agent.frames, self.envs)
        if self.crew:
            self.crew.follow(agent)
        else:
            self.engine.look(self.seen.rows)
        self.replay.begin(self.envs.obs)
        self.clock = Clock()
        self.step = self.rounds = 0
        self.due_from = 0  # the step up to which updates were run, where actors may be ahead
        self.remarks: list[str] = []  # for the person, about what happened

    @property
    def engine_name(self) -> str:
        return self.engine_choice.split(",")[0]

    @property
    def device(self) -> str:
        """Where learning happens."""
        return (
            ", ".join(dict.fromkeys(self.engine.devices))
            if isinstance(self.engine, Placed)
            else str(self.agent.device)
        )

    @property
    def memory(self) -> str:
        members = self.agent.members
        size = members * replay_bytes(
            self.settings, self.envs.layout, self.envs.num_envs // members
        )
        return (
            f"replay of {self.settings.capacity:,} rows{' for each agent' * (members > 1)} takes "
            f"{size / 2**20:,.1f} MiB"
        )

    def time_every_round(self) -> None:
        """For a profile: by stages, one call after another, each timed."""
        self.timed_every = 1
        if isinstance(self.engine, FusedEngine):
            self.engine.scale = 1

    def round(self, until: int | None = None) -> list[Episode]:
        """Act, step, store, and run the updates that are due. Returns the episodes that ended.

        The fused engine goes on to the next end of an episode or timed round, not beyond step
        `until`.
        """
        if self.crew:
            return self.crew_round(self.crew)
        envs, clock = self.envs, self.clock
        every = self.timed_every
        # rounds until the next timed one; the first may compile kernels
        wait = (EVERY - 1 - self.rounds) % every
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
        self.replay.add(
            action,
            envs.reward,
            envs.terminated,
            envs.truncated,
            envs.skipped,
            envs.obs,
            envs.final_obs,
        )
        self.seen.step()
        if timed:
            clock.lap("store", every)
        self.due_from = self.step
        self.step += (
            envs.worlds if envs.agents > 1 else envs.num_envs - int(np.count_nonzero(envs.skipped))
        )
        self.rounds += 1
        self.learn()
        return envs.finished

    def crew_round(self, crew: Crew) -> list[Episode]:
        """Takes the rows that actors brought, runs the updates due for them, and lets actors
        know."""
        finished: list[Episode] = []
        self.clock.start()
        left = crew.rounds_until(self.step, self.run.steps) if self.run.ahead else 1
        for part in crew.collect(self.step, left):
            finished += self.take(part)
        self.rounds += 1
        if self.learn():
            self.clock.start()
            crew.publish(self.agent, self.step)
            self.clock.lap("publish")
        return finished

    def take(self, part: Part) -> Iterable[Episode]:
        """Stores what an actor brought. Returns the episodes that ended."""
        self.clock.lap("wait")
        row = part.row
        if part.begins:
            self.replay.cut(row["obs"], part.first)
            return ()
        self.replay.add(
            row["action"],
            row["reward"],
            row["terminated"],
            row["truncated"],
            row["skipped"],
            row["obs"],
            row["final_obs"],
            part.first,
        )
        skipped = 0 if self.envs.agents > 1 else int(np.count_nonzero(row["skipped"]))
        self.step += len(row["length"]) - skipped
        self.clock.lap("store")
        return episodes(part, self.envs.agents)

    def learn(self) -> bool:
        """Runs the updates that are due since step `due_from`; whether there were any."""
        settings, step = self.settings, self.step
        due = (step // settings.every - self.due_from // settings.every) * settings.updates
        self.due_from = step
        if not due or step <= settings.learning_starts or not self.replay.rows:
            return False
        if self.crew and not self.agent.updates:
            self.remarks.append(first_look(self.replay))
        (self.lockstep or self.engine).update(due, step, self.clock)
        return True

    def settle(self) -> list[Episode]:
        """Before the state is saved: takes what actors are ahead by. Updates that are due for it
        come with the next round."""
        return (
            [episode for part in self.crew.settle() for episode in self.take(part)]
            if self.crew
            else []
        )

    def state(self) -> dict[str, dict[str, Any]]:
        """Everything that decides what comes next, by part; replay rows aside."""
        counters = {
            "step": np.array(self.step),
            "rounds": np.array(self.rounds),
            "due_from": np.array(self.due_from),
        }
        return {
            "agent": self.agent.state(),
            "engine": self.engine.state(),
            "replay": self.replay.state(),
            "envs": (self.crew or self.envs).state(),
            "serial": counters,
            "frames": self.seen.state(),
        }

    def load_rows(self, rows: dict[str, np.ndarray]) -> None:
        """Replay rows of a checkpoint."""
        action, options = rows["action"], self.agent.actions.n
        if (wrong := (action < 0) | (action >= options)).any():
            raise CheckpointError(
                f"the replay memory holds action {action[wrong][0]}, and there are {options}, from "
                "0 on."
            )
        self.replay.load_rows(rows)

    def load_state(self, state: dict[str, dict[str, Any]], with_replay: bool = True) -> bool:
        """Restores `state` (replay rows must have been loaded). False where the environments could
        not be restored exactly.

        Without the replay's state its memory stays empty and begins with the next step.
        """
        self.agent.load_state(state["agent"])
        self.engine.load_state(state["engine"])
        self.step, self.rounds = int(state["serial"]["step"]), int(state["serial"]["rounds"])
        # earlier checkpoints do not say it
        self.due_from = int(state["serial"].get("due_from", self.step))
        crew, saved = self.crew, state["envs"]
        exact = crew.restore(saved, self.agent, self.step) if crew else self.envs.restore(saved)
        self.seen.restore(state.get("frames", {}), exact)
        if not with_replay:
            self.replay.begin(self.envs.obs)
            return exact
        self.replay.load_state(state["replay"])
        if not exact:
            self.replay.cut(self.envs.obs)
        return exact

    def close(self) -> None:
        (self.crew or self.envs).close()

"""Q-learning as an actor acts by it, and its rounds: take what the actors bring, store it, run the
updates that are due."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from tenfold.actors.actor import MASKS, STEP, Part, episodes, first_look
from tenfold.algorithms.dqn.agent import DQNAgent
from tenfold.algorithms.dqn.fused import FusedEngine
from tenfold.algorithms.dqn.fused_acting import FusedActing
from tenfold.algorithms.dqn.masks import refuse_dead_end, refuse_stuck, require_final_masks
from tenfold.algorithms.dqn.plain import QLockstep
from tenfold.algorithms.learner import ActorLearner
from tenfold.config.run import Run
from tenfold.core.errors import CheckpointError
from tenfold.core.protocols import State
from tenfold.core.timing import EVERY
from tenfold.envs.adapter import Environments, Episode
from tenfold.memory.frames import Seen
from tenfold.memory.replay import replay_bytes


class QActing:
    """Explores by the agent's networks, in one compiled call where that can be."""

    def __init__(self, run: Run, agent: DQNAgent, envs: Environments) -> None:
        require_final_masks(envs)
        self.agent, self.envs, self.seen = agent, envs, Seen(agent.frames, envs)
        compiled = agent.members == 1 and run.engine != "plain" and not FusedEngine.why_not(agent)
        self.explore = FusedActing(agent, envs.num_envs) if compiled else agent.explore

    def act(self, row: dict[str, np.ndarray], step: int, rounds: int) -> np.ndarray:
        """Actions for the environments; those of the agent go into the row."""
        refuse_stuck(self.envs)
        row["action"][:] = self.explore(self.seen.rows, step, rounds, self.envs.mask)
        return row["action"] + self.agent.actions.start

    def stepped(self) -> None:
        """After a step of the environments."""
        refuse_dead_end(self.envs)
        self.seen.step()

    def state(self) -> dict[str, np.ndarray]:
        return self.seen.state()

    def restore(self, state: dict[str, np.ndarray], exact: bool) -> None:
        self.seen.restore(state, exact)


# rounds between timed ones where an update comes every, every second, every third or fourth round
RARELY = (499, 251, 127)


class QLearner(ActorLearner):
    """Actors, agent, replay memory and engine of one run."""

    agent: DQNAgent

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.settings: Any = run.agent
        require_final_masks(self.envs)
        self.rows = self.replay = self.agent.make_replay(self.envs)
        self.engine, self.engine_choice = self.agent.make_engine(run, self.replay, self.envs)
        alone = self.envs.agents == 1 and self.pool.direct
        if self.engine.whole_rounds and alone and not run.verify:
            # a timed round costs several times a whole one: the more rounds there are to an
            # update, the rarer
            every = self.settings.every
            self.timed_every = next((p for p in RARELY if p * every <= RARELY[0]), EVERY)
            self.fused, self.engine.scale = self.engine, self.timed_every
        if run.verify:
            self.lockstep = QLockstep(self.engine, run.verify)
        seen = self.pool.follow(self.agent, self.explore)
        if seen is not None:
            self.engine.look(seen)
        self.replay.begin(*self.shown())
        self.due_from = 0  # the step up to which updates were run, where actors may be ahead

    @property
    def device(self) -> str:
        return ", ".join(dict.fromkeys(self.engine.devices))

    @property
    def memory(self) -> str:
        settings, members = self.settings, self.agent.members
        lanes, options = self.envs.num_envs // members, self.agent.mask_size(self.envs)
        each = replay_bytes(settings, self.envs.layout, lanes, options)
        whose = " for each agent" * (members > 1)
        size = f"{members * each / 2**20:,.1f}"
        return f"replay of {settings.capacity:,} rows{whose} takes {size} MiB"

    def time_every_round(self) -> None:
        if self.fused:
            self.fused.scale = 1
        super().time_every_round()

    def explore(self, step: int, rounds: int) -> np.ndarray:
        """Actions for the environments, where the learner's own engine acts."""
        refuse_stuck(self.envs)
        self.action = self.engine.explore(step, rounds)
        start = self.agent.actions.start
        return self.action + start if start else self.action

    def round(self, until: int | None = None) -> list[Episode]:
        """Act, step, store, and run the updates that are due. Returns the episodes that ended.

        The fused engine goes on to the next end of an episode or timed round, not beyond step
        `until`.
        """
        wait = self.until_timed()
        if self.fused and wait:
            return self.run_fused(wait, until)
        if self.pool.direct:
            self.due_from = self.step
        finished: list[Episode] = []
        scale = 0 if wait else self.timed_every
        if scale:
            self.clock.start()
        left = self.pool.rounds_until(self.step, self.run.steps) if self.run.steps_ahead else 1
        for part in self.pool.collect(self.step, self.rounds, left, self.clock, scale):
            finished += self.take(part)
            if scale:
                self.clock.lap("store", scale)
        self.rounds += 1
        if self.learn():
            self.pool.publish(self.agent, self.step, self.clock)
        return finished

    def take(self, part: Part) -> Iterable[Episode]:
        """Stores what an actor brought. Returns the episodes that ended."""
        row, envs = part.row, self.envs
        if part.begins:
            self.replay.cut(*row.values(), first=part.first)
            return ()
        names = STEP if envs.mask is None else STEP + MASKS
        if not row:  # it is where the environments and the engine left it
            refuse_dead_end(envs)
            self.replay.add(self.action, *(getattr(envs, name) for name in names))
            self.step += self.steps_of(envs.skipped, envs.worlds)
            return part.finished
        self.replay.add(row["action"], *(row[name] for name in names), first=part.first)
        self.step += self.steps_of(row["skipped"], len(row["length"]))
        return episodes(part, envs.agents)

    def learn(self) -> bool:
        """Runs the updates that are due since step `due_from`; whether there were any."""
        settings, step = self.settings, self.step
        due = (step // settings.every - self.due_from // settings.every) * settings.updates
        self.due_from = step
        if not due or step <= settings.learning_starts or not self.replay.rows:
            return False
        if not self.pool.direct and not self.agent.updates:
            self.notices.append(first_look(self.replay.each))
        (self.lockstep or self.engine).update(due, step, self.clock)
        return True

    def settle(self) -> list[Episode]:
        """Before the state is saved: takes what actors are ahead by. Updates that are due for it
        come with the next round."""
        self.engine.settle()
        return [episode for part in self.pool.settle() for episode in self.take(part)]

    def counters(self) -> dict[str, np.ndarray]:
        return super().counters() | {"due_from": np.array(self.due_from)}

    def memory_state(self) -> State:
        return {"replay": self.replay.state()}

    def forget(self) -> None:
        self.replay.cut(*self.shown())

    def shown(self) -> tuple[np.ndarray, ...]:
        """The observations acted on next, and their masks where there are any."""
        envs = self.envs
        return (envs.obs,) if envs.mask is None else (envs.obs, envs.mask)

    def load_rows(self, rows: dict[str, np.ndarray]) -> None:
        """Replay rows of a checkpoint."""
        action, options = rows["action"], self.agent.actions.n
        if (wrong := (action < 0) | (action >= options)).any():
            raise CheckpointError(
                f"the replay memory holds action {action[wrong][0]}, and there are {options}, from "
                "0 on."
            )
        self.replay.load_rows(rows)

    def load_memory(self, state: State, with_rows: bool) -> None:
        """Without its rows the memory stays empty and begins with the next step."""
        # earlier checkpoints do not say it
        self.due_from = int(state["serial"].get("due_from", np.array(self.step)))
        if with_rows:
            self.replay.load_state(state["replay"])
        else:
            self.replay.begin(*self.shown())

"""What learners that are fed by actors share: the pool of actors, the agent, the counters that make
a run go on where it stopped. They know nothing of processes."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from tenfold.actors.actor import TransitionBatch
from tenfold.actors.pool import InProcessPool, make_pool
from tenfold.actors.wrappers import reward_form
from tenfold.config.run import Run
from tenfold.core.protocols import Description, RoundDriver, State
from tenfold.core.registry import algorithm
from tenfold.core.system import Clock
from tenfold.envs.adapter import Episode

MANY = 1 << 30  # rounds


class ActorLearner:
    """Actors, agent, memory and engine of one run. A subclass makes memory and engine, and says
    what becomes of a row."""

    agent: Any
    engine: Any = None  # of one's own algorithm: none
    engine_choice: str  # its name, then why it was chosen
    rounds_by: RoundDriver = "learner"
    tells_episodes = True  # they have returns
    lockstep: Any = None  # repeats updates by the plain engine, where a run asks for it
    rows: Any = None  # a replay memory whose rows a checkpoint appends to

    def __init__(self, run: Run) -> None:
        self.run = run
        self.pool, self.where = make_pool(run)
        self.rewards = reward_form(run, self.pool.envs)  # None: as they are
        if self.rewards and isinstance(self.pool, InProcessPool):
            self.pool.reward_by(self.rewards)
        self.envs = self.pool.envs
        self.agent = algorithm(run.agent.name).make_agent(run, self.envs.spec)
        self.clock = Clock()
        self.step = self.rounds = 0
        self.notices: list[str] = []  # for the person, about what happened

    @property
    def device(self) -> str:
        """Where learning happens."""
        return str(self.agent.device)

    @property
    def memory_text(self) -> str:
        """What the memory takes, in words."""
        raise NotImplementedError

    @property
    def description(self) -> Description:
        inexact = (
            f"actors go on by up to {self.run.steps_ahead} steps while the learner learns (--ahead "
            "0: none)"
        )
        return Description(
            self.engine_choice,
            self.device,
            self.memory_text,
            self.where,
            inexact if self.pool.asynchronous else "",
        )

    @property
    def exact_resume(self) -> bool:
        return self.envs.exact_resume and not self.pool.asynchronous

    def warm_up(self) -> None:
        if self.rounds_by == "device":
            self.engine.make_group([self]).warm_up()
        elif self.engine:
            self.engine.warm_up()

    def statistics(self) -> dict[str, float]:
        return self.engine.statistics() | self.pool.report()

    @property
    def warnings(self) -> list[str]:
        """About actors that were lost and replaced."""
        return self.pool.notices

    def set_lr(self, lr: Any) -> None:
        """Another learning rate, a number or a schedule, from the next update on."""
        self.agent.set_lr(lr)
        if self.engine:
            self.engine.set_lr(lr)

    def begin_with(self, state: dict[str, Any]) -> None:
        """Before the first round: the agent begins with weights of another run. Whoever has a copy
        of its own, as engines on other devices and actors elsewhere do, is sent them."""
        self.agent.begin_with(state)
        if self.engine:
            self.engine.load_state(self.engine.state())
        # the statistics are the other run's too: what is seen first counts again
        self.note_first()
        self.pool.publish(self.agent, self.step, self.clock)

    def time_every_round(self) -> None:
        """For a profile: by stages, one call after another."""
        if self.rounds_by == "engine":
            self.rounds_by = "learner"

    def steps_of(self, skipped: np.ndarray, worlds: int) -> int:
        """Environment steps of a row: one of each world, or of each lane that moved."""
        return worlds if self.envs.agents > 1 else worlds - int(np.count_nonzero(skipped))

    def counters(self) -> dict[str, np.ndarray]:
        return {"step": np.array(self.step), "rounds": np.array(self.rounds)}

    def rewarded(self, batches: Iterable[TransitionBatch]) -> Iterator[TransitionBatch]:
        """What actors elsewhere brought, with rewards as they are learned from: the statistics
        behind them are the learner's, not an actor's."""
        form = None if self.pool.direct else self.rewards
        for part in batches:
            if form and part.row:
                worlds, agents = self.envs.worlds, self.envs.agents
                here = part.first + np.arange(len(part.row["obs"]) // agents)
                lanes = (np.arange(agents)[:, None] * worlds + here).ravel()
                if part.is_reset:
                    form.begin(lanes)
                else:
                    row, reward = part.row, np.empty(len(lanes))
                    ended = row["terminated"] | row["truncated"]
                    form.put(row["reward"], ended, row["skipped"], reward, lanes)
                    part = replace(part, row=row | {"reward": reward})
            yield part

    def note_seen(self, obs: np.ndarray) -> None:
        """Observations that will be acted on next, for the running statistics of an agent that has
        them."""
        norm = self.agent.norm
        if norm:
            norm.update(obs.reshape(-1, norm.size))

    def note_first(self) -> None:
        """The observations that environments begin with are counted before anybody acts on them, as
        all later ones are: a step brings those, and no step brought these."""
        if self.agent.norm:
            self.note_seen(self.envs.obs)
            self.pool.publish(self.agent, self.step, self.clock)

    def memory_state(self) -> State:
        """What is to be learned from; replay rows aside."""
        raise NotImplementedError

    def load_memory(self, state: State, with_rows: bool) -> None:
        raise NotImplementedError

    def forget(self) -> None:
        """Episodes that were running go on nowhere: environments were not restored exactly, or an
        actor was replaced."""
        raise NotImplementedError

    def state(self) -> State:
        """Everything that decides what comes next, by part; replay rows aside."""
        engine = {"engine": self.engine.state()} if self.engine else {}
        form = {"rewards": self.rewards.state()} if self.rewards else {}
        state = {"agent": self.agent.state(), "serial": self.counters(), **engine, **form}
        return state | self.memory_state() | self.pool.state()

    def load_state(self, state: State, with_rows: bool = True) -> bool:
        """Restores `state` (replay rows must have been loaded). False where the environments could
        not be restored exactly."""
        self.agent.load_state(state["agent"])
        if self.engine:
            self.engine.load_state(state["engine"])
        self.step, self.rounds = (int(state["serial"][name]) for name in ("step", "rounds"))
        exact = self.pool.restore(state, self.agent, self.step)
        self.load_memory(state, with_rows)
        if self.rewards and "rewards" in state:
            self.rewards.load_state(state["rewards"])
        if self.rewards and not exact:
            self.rewards.begin()
        if with_rows and not exact:
            self.forget()
        if not exact:
            self.note_first()
        return exact

    def load_rows(self, rows: dict[str, np.ndarray]) -> None:
        """Rows of a replay memory, where the algorithm has one."""
        raise NotImplementedError

    def close(self) -> None:
        self.pool.close()
        if hasattr(self.engine, "close"):  # it has processes of its own
            self.engine.close()


class BareLearner:
    """A learner without actors elsewhere, replay memory, lockstep or returns of episodes: the agent
    of one run and the counter of its steps. A subclass has the rounds, their metrics and the
    state."""

    rows = None
    lockstep = None
    tells_episodes = False

    def __init__(self, run: Run, agent: Any) -> None:
        self.run, self.agent, self.config = run, agent, agent.config
        self.clock, self.step = Clock(), 0
        self.notices: list[str] = []
        self.warnings: list[str] = []

    def warm_up(self) -> None:
        """There is nothing to compile."""

    def settle(self) -> list[Episode]:
        return []

    def begin_with(self, state: dict[str, Any]) -> None:
        """Weights of another run, where the agent can take them (`training.loop` asks)."""
        self.agent.begin_with(state)

    def time_every_round(self) -> None:
        """Every round is timed as it is."""

    def load_rows(self, rows: dict[str, np.ndarray]) -> None:
        """It has none."""

    def close(self) -> None:
        """Nothing is open."""

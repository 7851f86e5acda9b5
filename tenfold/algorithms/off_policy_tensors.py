"""sac and td3 where environments are tensors: rows stay in a replay memory on their device."""

from typing import Any

from tenfold.algorithms.tensor_learner import TensorLearner
from tenfold.config.options import Episodes
from tenfold.core.errors import ConfigError
from tenfold.core.protocols import State
from tenfold.envs.adapter import Episode
from tenfold.memory.tensor_replay import TensorReplay

ROUND = 64  # steps of all worlds between two readings of their episodes, at most


class TensorOffPolicyLearner(TensorLearner):
    """Worlds, agent, replay memory and engine of one run."""

    read_every = ROUND

    def make_parts(self) -> None:
        envs, settings, reals = self.envs, self.agent.config, self.agent.actions.reals
        if settings.priorities:
            raise ConfigError(
                "agent.replay",
                "= prioritized is not for environments of tensors: use uniform.",
            )
        if isinstance(settings.every, Episodes):
            raise ConfigError(
                "agent.every",
                f"= {settings.every} is not for environments of tensors: count steps.",
            )
        if self.agent.make_noise(self.envs):
            raise ConfigError(
                "agent.noise",
                f"= {settings.noise} is not for environments of tensors: use a number for td3, "
                "none for sac.",
            )
        size = envs.spec.layout.size
        self.memory: TensorReplay = TensorReplay(
            settings, size, envs.num_envs, reals, self.run.seed, envs.device
        )
        self.rows: Any = self.memory

    def forget(self) -> None:
        self.memory.cut()

    def round(self, until: int | None = None) -> list[Episode]:
        """Steps and the updates that are due, not beyond step `until`; one step without it."""
        self.follow_resets()
        clock, first = self.clock, self.step
        clock.start()
        for _ in range(ROUND):
            self.play()
            self.learn()
            if self.step >= (until or self.step):
                break
        return self.read_episodes(first)

    def play(self) -> None:
        """One step of all worlds."""
        engine, clock = self.engine, self.clock
        action = engine.explore(self.step, self.rounds)
        clock.lap("act")
        step = self.envs.step(action)
        clock.lap("env")
        self.memory.add(engine.obs, engine.action, step)
        engine.begin(step.obs)
        self.episodes.add(step)
        clock.lap("store")
        self.rounds += 1
        self.step += self.envs.num_envs

    def learn(self) -> None:
        """Runs the updates that are due since the step before."""
        settings, step = self.agent.config, self.step
        before = step - self.envs.num_envs
        due = settings.updates_due(before, step, ())
        if due and step > settings.learning_starts and self.memory.rows:
            self.engine.update(due, step, self.clock)

    def state(self) -> State:
        return super().state() | {"replay": self.memory.state()}

    def load_rows(self, rows: dict[str, Any]) -> None:
        self.memory.load_rows(rows)

    def load_memory(self, state: State, with_rows: bool) -> None:
        if with_rows:
            self.memory.load_state(state["replay"])

"""A model's learner: made for a training, with the weights, moments and memory of the one before
it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tenfold.config.run import Run
from tenfold.core.protocols import Learner
from tenfold.training.learners import check_resources, open_learner


@dataclass(frozen=True)
class MovedState:
    """What goes on in a new learner."""

    agent: dict[str, Any]
    trained: bool = False
    rounds: int = 0
    replay: dict[str, np.ndarray] = field(default_factory=dict)
    rows: dict[str, np.ndarray] = field(default_factory=dict)
    rewards: dict[str, np.ndarray] = field(default_factory=dict)
    envs: dict[str, np.ndarray] = field(default_factory=dict)  # of the environments' episodes

    def give(self, learner: Any) -> None:
        """Before the first round."""
        learner.agent.load_state(self.agent)
        learner.rounds = self.rounds
        if self.rows:
            learner.load_rows(self.rows)
            learner.replay.load_state(self.replay)
        if self.rewards:
            learner.rewards.load_state(self.rewards)
        if self.envs:
            learner.envs.restore(self.envs)
        learner.engine.load_state(learner.engine.state())
        if self.trained:
            learner.forget()
        else:
            learner.note_first()


def moved_state(owner: Any) -> MovedState:
    """Of a learner, or of an agent that has none."""
    if not hasattr(owner, "agent"):
        return MovedState(copied(owner.state()))
    replay = getattr(owner, "replay", None)
    return MovedState(
        copied(owner.agent.state()),
        True,
        owner.rounds,
        replay.state() if replay else {},
        replay.written(0 * replay.head) if replay else {},
        owner.rewards.state() if owner.rewards else {},
        owner.envs.state() if owner.envs.exact_resume else {},
    )


def copied(state: dict[str, Any]) -> dict[str, Any]:
    return {name: value.clone() for name, value in state.items()}


@contextmanager
def open_model_learner(run: Run, state: MovedState) -> Iterator[Learner]:
    """The learner of a run, with its kernels compiled."""
    check_resources(run)
    with open_learner(run, quiet=True, initial=state) as learner:
        yield learner


def begin_anew(learner: Any) -> None:
    """New episodes in all environments; what is learned goes on."""
    envs = getattr(learner.envs, "inner", learner.envs)
    for i in range(envs.worlds):
        envs.episode[i] += 1
    envs.begin_all()
    if learner.rewards:
        learner.rewards.begin()
    if hasattr(learner, "rollout"):
        learner.rollout.hidden[:] = 0
    if hasattr(learner.engine, "has_actions"):
        learner.engine.has_actions = False
    learner.forget()
    learner.note_first()

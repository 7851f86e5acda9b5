"""The fused engines of agents with an actor and critics: everything between two environment steps
is ONE compiled call on the agent's and the memory's own arrays.

What `sac` and `td3` share is here; each brings the kernels of its round (`fused_round`) and its
settings as numbers. It does what the plain engine does, from the same random numbers in the same
order. For fully connected networks on the CPU, in float32.
"""

from time import monotonic
from typing import Any, ClassVar

import numpy as np

from tenfold.algorithms.actor_critic import ActorCriticAgent
from tenfold.algorithms.fused_arrays import (
    DRAWS,
    Arrays,
    acting_arrays,
    batch_arrays,
    memory_arrays,
    no_memory,
)
from tenfold.algorithms.fused_replay import LR
from tenfold.core.kernels import as_numbers
from tenfold.core.spaces import BoundedActions
from tenfold.core.tables import table_of
from tenfold.engines.actor_critic import ActorCriticEngine
from tenfold.engines.choose import why_not_fused
from tenfold.engines.fused_rounds import FusedRounds
from tenfold.engines.fusing import ACT, PATIENCE, WHOLE
from tenfold.engines.plain import Lanes
from tenfold.envs.adapter import Environments
from tenfold.memory.replay import Replay


class FusedActorCritic(FusedRounds, ActorCriticEngine):
    """Runs rounds by one call each."""

    choose: ClassVar[Any]  # compiled: the exploring policy's actions

    @classmethod
    def why_not(cls, agent: ActorCriticAgent, run: Any = None) -> str:
        if found := why_not_fused(agent):
            return found
        kind = agent.actions.space.dtype if isinstance(agent.actions, BoundedActions) else None
        known = kind is None or kind in (np.float32, np.float64)
        return "" if known else f"the environment takes actions of {kind}"

    @classmethod
    def rules(cls, agent: Any) -> np.ndarray:
        """The settings as numbers."""
        raise NotImplementedError

    def __init__(self, agent: ActorCriticAgent, replay: Replay, envs: Environments) -> None:
        super().__init__(agent, replay, envs)
        count = envs.num_envs
        # the agent's next actions, and the same in the environments' own numbers
        self.action = next_actions(agent, count)
        self.scaled = self.for_envs(agent, count)
        self.arrays = Arrays(
            counter=self.counter,
            updates=agent.count,
            rule=self.rules(agent),
            streams=np.array([agent.keys[purpose] for purpose in DRAWS]),
            sums=self.sums.numpy(),
            **batch_arrays(agent, self.batch_items),
            **memory_arrays(replay),
            **acting_arrays(agent, envs, count, self.scaled),
        )
        self.given = (
            table_of(self.arrays),
            replay.obs,
            replay.action,
            self.action,
            envs.obs.reshape(count, -1),
            envs.final_obs.reshape(count, -1),
        )

    def for_envs(self, agent: ActorCriticAgent, count: int) -> np.ndarray:
        if self.compiled:
            return self.compiled.action
        if isinstance(agent.actions, BoundedActions):
            space = agent.actions.space
            return np.zeros((count, *space.shape), space.dtype)
        return np.zeros(count, np.int64)

    def explore(self, step: int, rounds: int) -> np.ndarray:
        """Actions for the current observations."""
        self.at(step, rounds)
        self.one_round(ACT, *self.given)
        self.chosen = False
        return self.action

    def play(self, most: int) -> None:
        envs, given, scaled, one_round = self.envs, self.given, self.scaled, self.one_round
        enough = monotonic() + PATIENCE
        for _ in range(most):
            envs.step(scaled)
            one_round(WHOLE, *given)
            if envs.finished or monotonic() > enough:
                break

    def set_lr(self, lr: Any) -> None:
        self.arrays.rule[LR : LR + 4] = as_numbers(lr)


class FusedActing:
    """`explore` of an agent as one compiled call, for an actor that does nothing else; `kind` is
    the agent's fused engine."""

    def __init__(self, kind: type[FusedActorCritic], agent: Any, lanes: int) -> None:
        self.counter, self.choose = np.zeros(3, np.int64), kind.choose
        self.action = next_actions(agent, lanes)
        nobody = Lanes.showing(np.zeros((0, agent.layout.size), np.float32))
        self.arrays = Arrays(
            counter=self.counter,
            updates=agent.count,
            rule=kind.rules(agent),
            streams=np.array([agent.keys[purpose] for purpose in DRAWS]),
            sums=np.zeros(1, np.float32),
            **batch_arrays(agent, 1),
            **no_memory(),
            **acting_arrays(agent, nobody, lanes),
        )
        self.table = table_of(self.arrays)

    def __call__(self, rows: np.ndarray, step: int, rounds: int) -> np.ndarray:
        """Actions for rows [B, …], valid until the next call."""
        self.counter[:] = step, rounds, 0
        self.choose(self.table, self.action, rows.reshape(len(rows), -1))
        return self.action


def next_actions(agent: ActorCriticAgent, count: int) -> np.ndarray:
    """Room for the agent's actions in `count` environments."""
    reals = agent.actions.reals
    return np.zeros((count, reals), np.float32) if reals else np.zeros(count, np.int64)

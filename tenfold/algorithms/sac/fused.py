"""The fused engine of soft actor-critic: see `algorithms.fused_actor_critic`; its kernels are in
`fused_round`."""

from typing import Any

import numpy as np

from tenfold.algorithms.fused_actor_critic import FusedActorCritic
from tenfold.algorithms.fused_arrays import shared_rules
from tenfold.algorithms.fused_examples import acting_outcome, engine_examples, outcome
from tenfold.algorithms.sac.agent import SACAgent
from tenfold.algorithms.sac.config import SAC, Auto
from tenfold.algorithms.sac.fused_round import (
    AUTOMATIC,
    RULES,
    TARGET_ENTROPY,
    choose_actions,
    fused_round,
    fused_rounds,
)
from tenfold.core.pairs import pair
from tenfold.engines.actor_critic import ActorCriticEngine


class FusedSAC(FusedActorCritic):
    """The temperature's logarithm is the last of the parameters."""

    agent: SACAgent
    choose = staticmethod(choose_actions)
    one_round, many_rounds = staticmethod(fused_round), staticmethod(fused_rounds)

    @classmethod
    def rules(cls, agent: SACAgent) -> np.ndarray:
        rule = shared_rules(agent, RULES)
        rule[AUTOMATIC] = isinstance(agent.config.temperature, Auto)
        rule[TARGET_ENTROPY] = agent.target_entropy
        return rule


OWN_OPTIONS = (
    (3, 1, {"temperature": 0.2}),
    (3, 2, {"temperature": "auto(-0.5, 0.1)"}),
    (4, 0, {}),
    (4, 0, {"normalize_obs": True}),
    (3, 0, {"n_step": 3, "replay": "prioritized", "temperature": 0.2}),
    (2, 0, {"batch_size": 1, "net": {"hidden": [5], "activation": "elu"}}),
)


def plain_outcome(features: int, reals: int, options: dict[str, Any], seed: int) -> Any:
    return outcome(ActorCriticEngine, SACAgent, SAC, (features, reals, options), seed)


@pair(
    plain_outcome,
    engine_examples(*OWN_OPTIONS),
    rtol=1e-4,
    atol=1e-5,
    name="engines.fused.sac's update and act",
)
def fused_outcome(features: int, reals: int, options: dict[str, Any], seed: int) -> Any:
    return outcome(FusedSAC, SACAgent, SAC, (features, reals, options), seed)


def plain_acting(features: int, reals: int, options: dict[str, Any], seed: int) -> Any:
    return acting_outcome(FusedSAC, SACAgent, SAC, (features, reals, options), seed, fused=False)


@pair(
    plain_acting,
    engine_examples(*OWN_OPTIONS),
    rtol=1e-5,
    atol=1e-6,
    name="engines.fused.sac's act alone",
)
def fused_acting(features: int, reals: int, options: dict[str, Any], seed: int) -> Any:
    return acting_outcome(FusedSAC, SACAgent, SAC, (features, reals, options), seed, fused=True)

"""The fused engine of the twin delayed deterministic policy gradient: see
`algorithms.fused_actor_critic`; its kernels are in `fused_round`."""

from typing import Any

import numpy as np

from tenfold.algorithms.fused_actor_critic import FusedActorCritic
from tenfold.algorithms.fused_arrays import shared_rules
from tenfold.algorithms.fused_examples import acting_outcome, engine_examples, outcome
from tenfold.algorithms.td3.agent import TD3Agent
from tenfold.algorithms.td3.config import TD3
from tenfold.algorithms.td3.fused_round import (
    DELAY,
    NOISE,
    RULES,
    SMOOTHING,
    SMOOTHING_CLIP,
    choose_actions,
    fused_round,
    fused_rounds,
)
from tenfold.core.kernels import as_numbers
from tenfold.core.pairs import pair
from tenfold.engines.actor_critic import ActorCriticEngine


class FusedTD3(FusedActorCritic):
    """The target networks are those of the actor too."""

    agent: TD3Agent
    choose = staticmethod(choose_actions)
    one_round, many_rounds = staticmethod(fused_round), staticmethod(fused_rounds)

    @classmethod
    def rules(cls, agent: TD3Agent) -> np.ndarray:
        rule, config = shared_rules(agent, RULES), agent.config
        rule[DELAY], rule[SMOOTHING] = config.policy_delay, config.smoothing
        rule[SMOOTHING_CLIP] = config.smoothing_clip
        rule[NOISE : NOISE + 4] = as_numbers(config.noise)
        return rule


OWN_OPTIONS = (
    (3, 2, {"critics": 1, "policy_delay": 1, "smoothing": 0.0}),
    (3, 1, {"policy_delay": 3, "noise": "linear(1, 0.1, 100)"}),
    (2, 2, {"smoothing": 1.0, "smoothing_clip": 0.1, "noise": 0.0}),
)


def plain_outcome(features: int, reals: int, options: dict[str, Any], seed: int) -> Any:
    return outcome(ActorCriticEngine, TD3Agent, TD3, (features, reals, options), seed)


@pair(
    plain_outcome,
    engine_examples(*OWN_OPTIONS),
    rtol=1e-4,
    atol=1e-5,
    name="engines.fused.td3's update and act",
)
def fused_outcome(features: int, reals: int, options: dict[str, Any], seed: int) -> Any:
    return outcome(FusedTD3, TD3Agent, TD3, (features, reals, options), seed)


def plain_acting(features: int, reals: int, options: dict[str, Any], seed: int) -> Any:
    return acting_outcome(FusedTD3, TD3Agent, TD3, (features, reals, options), seed, fused=False)


@pair(
    plain_acting,
    engine_examples(*OWN_OPTIONS),
    rtol=1e-5,
    atol=1e-6,
    name="engines.fused.td3's act alone",
)
def fused_acting(features: int, reals: int, options: dict[str, Any], seed: int) -> Any:
    return acting_outcome(FusedTD3, TD3Agent, TD3, (features, reals, options), seed, fused=True)

"""The fused engine of soft actor-critic: see `algorithms.fused_actor_critic`; its kernels are in
`fused_round`."""

import numpy as np

from tenfold.algorithms.fused_actor_critic import FusedActorCritic, shared_rules
from tenfold.algorithms.sac.agent import SACAgent
from tenfold.algorithms.sac.config import Auto
from tenfold.algorithms.sac.fused_round import (
    AUTOMATIC,
    RULES,
    TARGET_ENTROPY,
    fused_round,
    fused_rounds,
)


class FusedSAC(FusedActorCritic):
    """The temperature's logarithm is the last of the parameters."""

    agent: SACAgent
    one_round, many_rounds = staticmethod(fused_round), staticmethod(fused_rounds)

    def rules(self) -> np.ndarray:
        rule = shared_rules(self.agent, RULES)
        rule[AUTOMATIC] = isinstance(self.agent.config.temperature, Auto)
        rule[TARGET_ENTROPY] = self.agent.target_entropy
        return rule

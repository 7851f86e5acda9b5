"""Soft actor-critic: continuous actions within bounds, or one discrete action.

Read `config` (what can be set), `agent` (the policy and the losses); `algorithms.actor_critic`
(acting), `algorithms.replay_learner` (one round) and `engines.actor_critic` (one update) are td3's
too.
"""

from tenfold.algorithms.family import ActorCriticAlgorithm
from tenfold.algorithms.sac.config import SAC
from tenfold.engines.choose import engine_table


class SoftActorCritic(ActorCriticAlgorithm):
    """SAC, in environments with continuous actions within bounds or one discrete action."""

    name = "sac"
    config = SAC
    home = "tenfold.algorithms.sac.agent:SACAgent"
    discrete = True
    engines = engine_table(
        fused="tenfold.algorithms.kernels.sac:FusedSAC",
        compiled="tenfold.engines.actor_critic:CompiledActorCritic",
        plain="tenfold.engines.actor_critic:ActorCriticEngine",
        cudagraph="tenfold.engines.actor_critic_graph:ActorCriticGraph",
    )


ALGORITHMS = (SoftActorCritic(),)

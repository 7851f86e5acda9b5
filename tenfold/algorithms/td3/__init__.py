"""Twin delayed deterministic policy gradient, and DDPG as its settings: continuous actions within
bounds.

Read `config` (what can be set), `agent` (the policy and the losses); `algorithms.actor_critic`
(acting), `algorithms.replay_learner` (one round) and `engines.actor_critic` (one update) are sac's
too.
"""

from tenfold.algorithms.family import ActorCriticAlgorithm
from tenfold.algorithms.td3.config import TD3
from tenfold.engines.choose import engine_table


class TwinDelayed(ActorCriticAlgorithm):
    """TD3, in environments with continuous actions within bounds."""

    name = "td3"
    config = TD3
    home = "tenfold.algorithms.td3.agent:TD3Agent"
    engines = engine_table(
        fused="tenfold.algorithms.kernels.td3:FusedTD3",
        compiled="tenfold.engines.actor_critic:CompiledActorCritic",
        plain="tenfold.engines.actor_critic:ActorCriticEngine",
        cudagraph="tenfold.engines.actor_critic_graph:ActorCriticGraph",
    )


ALGORITHMS = (TwinDelayed(),)

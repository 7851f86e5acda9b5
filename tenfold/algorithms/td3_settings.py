"""Settings of the twin delayed deterministic policy gradient, and the algorithm as the registry
lists it.

No torch here, so that help and errors appear at once.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from tenfold.algorithms.off_policy_settings import ActorCriticAlgorithm
from tenfold.config.agent_config import AgentConfig
from tenfold.config.options import ActorCriticConfig, Schedule
from tenfold.config.schema import Count, Limits, NotNegative


@dataclass(frozen=True)
class TD3(ActorCriticConfig, AgentConfig):
    """Twin delayed deterministic policy gradient, for continuous actions within bounds. DDPG is
    critics = 1, policy_delay = 1, smoothing = 0."""

    name: Literal["td3"] = "td3"
    """which agent"""
    lr: Schedule = 1e-3
    """learning rate of Adam, for the policy and the critics: a number, linear(start, end, steps),
    exponential(start, end, steps) or a function of one's own"""
    noise: Schedule = 0.1
    """deviation of the noise on actions in training, which lie between -1 and 1 before they are
    brought to their bounds: a number or a schedule"""
    policy_delay: Count = 2
    """updates of the critics to one of the policy and of the target networks"""
    smoothing: NotNegative = 0.2
    """deviation of the noise on the target policy's action, by which critics are smoothed"""
    smoothing_clip: NotNegative = 0.5
    """the largest of such noise"""
    critics: Annotated[int, Limits(1, 2)] = 2
    """of two the smaller value counts"""


ALGORITHMS = (
    ActorCriticAlgorithm(
        TD3,
        agent="tenfold.algorithms.td3:TD3Agent",
        fused="tenfold.algorithms.kernels.td3:FusedTD3",
    ),
)

"""Settings of soft actor-critic, and the algorithm as the registry lists it.

No torch here, so that help and errors appear at once.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from tenfold.algorithms.off_policy_settings import ActorCriticAlgorithm
from tenfold.config.agent_config import AgentConfig
from tenfold.config.options import ActorCriticConfig
from tenfold.config.schema import Option, Positive


@dataclass(frozen=True)
class Auto(Option):
    """The temperature is learned, from `start` on, so that the policy's entropy is near `target`;
    none: minus the numbers of an action, of discrete actions 0.98 log(how many)."""

    target: float | None = None
    start: Positive = 1.0


@dataclass(frozen=True)
class SAC(ActorCriticConfig, AgentConfig):
    """Soft actor-critic: continuous actions within bounds, or one discrete action; twin critics,
    n-step, prioritised, the temperature learned or given."""

    can_sample: ClassVar[bool] = True

    name: Literal["sac"] = "sac"
    """which agent"""
    temperature: Auto | Positive = Auto()
    """what entropy is worth beside reward: learned, auto(target, start), or a number"""


ALGORITHMS = (
    ActorCriticAlgorithm(
        SAC,
        agent="tenfold.algorithms.sac:SACAgent",
        fused="tenfold.algorithms.kernels.sac:FusedSAC",
        discrete=True,
    ),
)

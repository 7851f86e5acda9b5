"""Settings of the agent that learns to schedule any shop.

No torch here, so that help and errors appear at once.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from tenfold.config.agent import AgentConfig
from tenfold.config.options import Linear, Schedule
from tenfold.config.schema import Count, Limits, Positive
from tenfold.core.errors import ConfigError

if TYPE_CHECKING:
    from tenfold.config.run import Run


@dataclass(frozen=True)
class Dispatcher(AgentConfig):
    """One policy for job shops of any size. It learns from its own best schedules: of every random
    shop it draws `samples`, and the shortest becomes more likely (self-labelling)."""

    run_defaults: ClassVar[Mapping[str, Any]] = MappingProxyType({"eval_every": 10_000})
    can_sample: ClassVar[bool] = True
    wrappable: ClassVar[bool] = False

    name: Literal["dispatcher"] = "dispatcher"
    """which agent"""
    lr: Schedule = Linear(1e-3, 1e-5, 100_000)
    """learning rate of Adam; a step is a shop"""
    shops: Count = 16
    """random shops of one size that an update learns from"""
    samples: Annotated[int, Limits(2, 2**16)] = 64
    """schedules drawn of each, of which the shortest is learned from"""
    width: Annotated[int, Limits(1, 2**12)] = 64
    """numbers that stand for an operation, and width of the hidden layers"""
    layers: Annotated[int, Limits(0, 16)] = 2
    """rounds in which operations hear of their neighbours: before and after them in the job, and
    on the same machine"""
    clip_norm: Positive | None = 1.0
    """longest gradient (Euclidean norm over all parameters), or none"""

    def check_run(self, run: "Run") -> None:
        super().check_run(run)
        for setting, usual in (("num_envs", 1), ("actors", 1), ("verify", False)):
            if getattr(run, setting) != usual:
                raise ConfigError(
                    setting,
                    f"= {getattr(run, setting)} is not for the dispatcher, which draws its shops "
                    "itself (agent.shops, agent.samples): leave it out.",
                )
        if run.engine not in ("auto", "plain"):
            raise ConfigError(
                "engine", f"= {run.engine} is not one of the dispatcher's: leave it out."
            )

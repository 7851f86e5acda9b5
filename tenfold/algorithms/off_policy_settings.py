"""The algorithms that learn from a replay memory: how their parts are made.

No torch here: it is imported when an agent is made.
"""

from typing import TYPE_CHECKING, Any

from tenfold.core.errors import ConfigError, EnvironmentFault
from tenfold.core.protocols import AlgorithmSpec
from tenfold.core.registry import deferred, import_by_name

if TYPE_CHECKING:
    from tenfold.algorithms.off_policy import OffPolicyActing
    from tenfold.config.run import Run
    from tenfold.core.protocols import EnvSpec
    from tenfold.envs.adapter import Environments


class OffPolicyAlgorithm(AlgorithmSpec):
    """Those that learn from a replay memory: dqn, sac, td3."""

    make_learner = deferred("tenfold.algorithms.off_policy:OffPolicyLearner")
    overlaps = True

    def make_acting(self, run: "Run", agent: Any, envs: "Environments") -> "OffPolicyActing":
        """In one compiled call where that can be."""
        from tenfold.algorithms.off_policy import OffPolicyActing

        fused = import_by_name(self.engines["fused"].home)
        if agent.members > 1 or run.engine == "plain" or fused.why_not(agent):
            return OffPolicyActing(agent, envs)
        options = 0 if envs.mask is None else envs.mask.shape[1]
        return OffPolicyActing(agent, envs, fused.acting(agent, envs.num_envs, options))


def check_spec(run: "Run", spec: "EnvSpec") -> None:
    """Refuses what these agents cannot read, whatever their actions."""
    agent: Any = run.agent
    if spec.layout.graph:
        raise EnvironmentFault(
            f"{run.env} has graphs as observations, which agent {agent.name} cannot read: train "
            "ppo."
        )
    if agent.net.module:
        raise ConfigError(
            "agent.net.module", f"= {agent.net.module} is for dqn and ppo: {agent.name} has none."
        )
    if run.share and spec.agents == 1:
        raise ConfigError(
            "share",
            f"= true is for worlds of several agents, and {run.env} has one: leave it out.",
        )
    if spec.agents > 1 and not run.share:
        raise ConfigError(
            "share",
            f"= false means a network for each of the {spec.agents} agents of {run.env}, which "
            f"{agent.name} does not have: set --share, one for all.",
        )

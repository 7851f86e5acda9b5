"""The algorithms that learn from a replay memory: how their parts are made.

No torch here: it is imported when an agent is made.
"""

from typing import TYPE_CHECKING, Any

from tenfold.core.errors import ConfigError, EnvironmentFault
from tenfold.core.protocols import AlgorithmSpec
from tenfold.core.registry import deferred, import_by_name
from tenfold.engines.choose import engine_table

if TYPE_CHECKING:
    from tenfold.algorithms.off_policy import OffPolicyActing
    from tenfold.config.run import Run
    from tenfold.core.protocols import EnvSpec
    from tenfold.envs.adapter import Environments


class OffPolicyAlgorithm(AlgorithmSpec):
    """dqn, and those with a policy and critics."""

    make_learner = deferred("tenfold.algorithms.off_policy:OffPolicyLearner")

    def make_acting(self, run: "Run", agent: Any, envs: "Environments") -> "OffPolicyActing":
        """In one compiled call where that can be."""
        from tenfold.algorithms.off_policy import OffPolicyActing

        fused = import_by_name(self.engines["fused"].home)
        if agent.members > 1 or run.engine == "plain" or fused.why_not(agent):
            return OffPolicyActing(agent, envs)
        options = 0 if envs.mask is None else envs.mask.shape[1]
        return OffPolicyActing(agent, envs, fused.acting(agent, envs.num_envs, options))


class ActorCriticAlgorithm(OffPolicyAlgorithm):
    """sac and td3: a policy and critics."""

    def __init__(self, config: Any, agent: str, fused: str, discrete: bool = False) -> None:
        """`agent` and `fused`, its fused engine, are written as module:Class. `discrete`: whether
        one discrete action will do as well."""
        self.name, self.config, self.agent, self.discrete = config.name, config, agent, discrete
        self.engines = engine_table(
            fused=fused,
            compiled="tenfold.engines.compiled:CompiledOffPolicy",
            plain="tenfold.engines.plain:OffPolicyEngine",
            cudagraph="tenfold.engines.replay_graph:ActorCriticGraph",
        )

    def actions(self, run: "Run", space: Any) -> Any:
        """Its actions in such a space."""
        from gymnasium.spaces import Discrete

        from tenfold.core.spaces import bounded_actions, discrete_actions

        if not self.discrete:
            return bounded_actions(space, run.env, self.name)
        if isinstance(space, Discrete):
            return discrete_actions(space, run.env)
        needed = "continuous ones (a Box) or one Discrete action"
        return bounded_actions(space, run.env, self.name, needed)

    def make_agent(self, run: "Run", spec: "EnvSpec") -> Any:
        actions = self.actions(run, spec.action_space)
        check_spec(run, spec)
        device = "cpu" if run.device == "auto" else run.device
        return import_by_name(self.agent)(run.agent, spec.layout, actions, run.seed, device)

    def row_fields(self, run: "Run", envs: "Environments") -> dict[str, Any]:
        """What an actor adds to a row."""
        reals, lanes = self.actions(run, envs.action_space).reals, envs.num_envs
        return {"action": ((lanes, reals), "float32") if reals else ((lanes,), "int64")}

    def exported(self, agent: Any, sample: bool) -> Any:
        from tenfold.algorithms.off_policy_export import DrawnPolicy, GreedyPolicy

        if sample and not self.config.can_sample:
            raise ConfigError(
                "--sample", f"is for policies that can be drawn from: {self.name} is greedy."
            )
        return DrawnPolicy(agent) if sample else GreedyPolicy(agent)

    def networks(self, settings: Any) -> int:
        """Networks of the settings' size that an agent has."""
        return 1 + getattr(settings, "critics", 2)


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

"""The algorithms with a policy, critics and a replay memory: how their parts are made.

No torch here: it is imported when an agent is made.
"""

from typing import TYPE_CHECKING, Any

from tenfold.core.errors import ConfigError
from tenfold.core.protocols import Algorithm
from tenfold.core.registry import own

if TYPE_CHECKING:
    from tenfold.algorithms.replay_learner import ReplayActing
    from tenfold.config.run import Run
    from tenfold.core.protocols import EnvSpec, Learner
    from tenfold.envs.adapter import Environments


class ActorCriticAlgorithm(Algorithm):
    """sac and td3."""

    home = ""  # of the agent: module:Class
    discrete = False  # whether one discrete action will do as well

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
        from tenfold.algorithms.actor_critic import check_spec

        actions = self.actions(run, spec.action_space)
        check_spec(run, spec)
        device = "cpu" if run.device == "auto" else run.device
        return own(self.home)(run.agent, spec.layout, actions, run.seed, device)

    def make_learner(self, run: "Run") -> "Learner":
        from tenfold.algorithms.actor_critic import ActorCriticLearner

        return ActorCriticLearner(run)

    def row_fields(self, run: "Run", envs: "Environments") -> dict[str, Any]:
        """What an actor adds to a row."""
        reals, lanes = self.actions(run, envs.action_space).reals, envs.num_envs
        return {"action": ((lanes, reals), "float32") if reals else ((lanes,), "int64")}

    def make_acting(self, run: "Run", agent: Any, envs: "Environments") -> "ReplayActing":
        """In one compiled call where that can be."""
        from tenfold.algorithms.replay_learner import ReplayActing

        kind = own(self.engines["fused"].home)
        compiled = run.engine != "plain" and not kind.why_not(agent)
        return ReplayActing(agent, envs, kind.acting(agent, envs.num_envs) if compiled else None)

    def exported(self, agent: Any, sample: bool) -> Any:
        from tenfold.algorithms.actor_critic_exported import DrawnPolicy, GreedyPolicy

        if sample and not self.config.can_sample:
            raise ConfigError(
                "--sample", f"is for policies that can be drawn from: {self.name} is greedy."
            )
        return DrawnPolicy(agent) if sample else GreedyPolicy(agent)

    def networks(self, settings: Any) -> int:
        """Networks of the settings' size that an agent has."""
        return 1 + getattr(settings, "critics", 2)

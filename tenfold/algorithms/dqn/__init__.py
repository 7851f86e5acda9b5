"""Q-learning: DQN, double, dueling, n-step, prioritised, quantile, implicit, categorical, noisy.

Read `config` (what can be set), `agent` (acting and the loss), `learner` (one round), `plain` (one
update), `fused` (a whole round in one compiled call), `team` (a network for each agent of a world).
"""

from typing import TYPE_CHECKING, Any

from tenfold.algorithms.dqn.config import DQN
from tenfold.core.errors import ConfigError
from tenfold.core.protocols import Algorithm
from tenfold.engines.choose import engine_table

if TYPE_CHECKING:
    from tenfold.algorithms.dqn.agent import DQNAgent
    from tenfold.algorithms.dqn.learner import QActing
    from tenfold.config.run import Run
    from tenfold.core.protocols import EnvSpec, Learner
    from tenfold.envs.adapter import Environments


class QLearning(Algorithm):
    """DQN and its relatives, in environments with one discrete action."""

    name = "dqn"
    config, reads_masks = DQN, True
    engines = engine_table(
        fused="tenfold.algorithms.kernels.dqn:FusedDQN",
        compiled="tenfold.algorithms.dqn.plain:CompiledEngine",
        plain="tenfold.algorithms.dqn.plain:PlainEngine",
        cudagraph="tenfold.algorithms.dqn.cudagraph:GraphEngine",
        resident="tenfold.algorithms.dqn.resident:ResidentEngine",
    )

    def make_agent(self, run: "Run", spec: "EnvSpec") -> "DQNAgent":
        """One, or one for each agent of a world."""
        from tenfold.algorithms.dqn.agent import DQNAgent
        from tenfold.algorithms.dqn.team import Team
        from tenfold.core.spaces import discrete_actions

        settings: Any = run.agent
        device = "cpu" if run.device == "auto" else run.device
        actions = discrete_actions(spec.action_space, run.env)
        if run.share and spec.agents == 1:
            raise ConfigError(
                "share",
                f"= true is for worlds of several agents, and {run.env} has one: leave it out.",
            )
        if spec.agents > 1 and not run.share:
            if settings.normalize_obs:
                raise ConfigError(
                    "normalize_obs",
                    "= true is for one network, and each agent has its own here: set --share, or "
                    "leave it out.",
                )
            agent: DQNAgent = Team(settings, spec.layout, actions, run.seed, spec.agents, device)
        else:
            agent = DQNAgent(settings, spec.layout, actions, run.seed, device)
        for each in (agent, *getattr(agent, "agents", ())):
            each.masked = spec.masked
        return agent

    def make_learner(self, run: "Run") -> "Learner":
        from tenfold.algorithms.dqn.learner import QLearner

        return QLearner(run)

    def row_fields(self, run: "Run", envs: "Environments") -> dict[str, Any]:
        """What an actor adds to a row."""
        fields: dict[str, Any] = {"action": ((envs.num_envs,), "int64")}
        if envs.mask is not None:
            fields |= dict.fromkeys(("mask", "final_mask"), (envs.mask.shape, "bool"))
        return fields

    def make_acting(self, run: "Run", agent: Any, envs: "Environments") -> "QActing":
        from tenfold.algorithms.dqn.learner import QActing

        return QActing(run, agent, envs)

    def exported(self, agent: Any, sample: bool) -> Any:
        from tenfold.algorithms.dqn.exported import QPolicy

        if sample:
            raise ConfigError("--sample", "is for policies that can be drawn from: dqn is greedy.")
        return QPolicy(agent)

    def networks(self, settings: Any) -> int:
        """Networks of the settings' size that an agent has, noise on their weights included."""
        return 1 + (type(settings.explore).__name__ == "Noisy")


ALGORITHMS = (QLearning(),)

"""Proximal policy optimisation: discrete, masked, continuous and mixed actions, graphs.

Read `config` (what can be set), `agent` (acting), `learner` (one round), `plain` (a learning
phase), `fused` (the same in one compiled call).
"""

from typing import TYPE_CHECKING, Any

from tenfold.algorithms.ppo.config import PPO
from tenfold.core.protocols import Algorithm
from tenfold.engines.choose import engine_table

if TYPE_CHECKING:
    from tenfold.algorithms.ppo.agent import PPOAgent
    from tenfold.algorithms.ppo.learner import PPOActing
    from tenfold.config.run import Run
    from tenfold.core.protocols import EnvSpec, Learner
    from tenfold.envs.adapter import Environments


class PolicyOptimisation(Algorithm):
    """PPO, in environments with any kind of action."""

    name = "ppo"
    config = PPO
    engines = engine_table(
        fused="tenfold.algorithms.ppo.fused:FusedPPO",
        compiled="tenfold.algorithms.ppo.plain:CompiledPPO",
        plain="tenfold.algorithms.ppo.plain:PlainPPO",
        cudagraph="tenfold.algorithms.ppo.cudagraph:GraphPPO",
        resident="tenfold.algorithms.ppo.resident:ResidentPPO",
    )
    reads_masks = True
    on_policy = True

    def make_agent(self, run: "Run", spec: "EnvSpec") -> "PPOAgent":
        from tenfold.algorithms.ppo.recurrent import agent_kind
        from tenfold.core.spaces import policy_actions

        settings: Any = run.agent
        actions = policy_actions(spec.action_space, run.env)
        device = "cpu" if run.device == "auto" else run.device
        parts = len(spec.component_names)
        agent = agent_kind(settings)(settings, spec.layout, actions, run.seed, device, parts)
        agent.masked = spec.masked
        return agent

    def make_learner(self, run: "Run") -> "Learner":
        from tenfold.algorithms.ppo.learner import PPOLearner

        return PPOLearner(run)

    def row_fields(self, run: "Run", envs: "Environments") -> dict[str, Any]:
        """What an actor adds to a row."""
        from tenfold.core.spaces import policy_actions

        settings: Any = run.agent
        actions, lanes = policy_actions(envs.action_space, run.env), envs.num_envs
        parts = len(envs.component_names)
        fields: dict[str, Any] = {
            "chosen": ((lanes, len(actions.sizes)), "int64"),
            "real": ((lanes, len(actions.low)), "float32"),
            "log_p": ((lanes,), "float32"),
            "value": ((lanes, 1 + parts) if parts else (lanes,), "float32"),
        }
        if parts:
            fields["components"] = ((lanes, parts), "float32")
        if envs.mask is not None:
            fields["mask"] = (envs.mask.shape, "bool")
        if memory := settings.net.memory:  # before the row, and behind it
            held = 2 * memory.size * memory.kinds
            fields |= dict.fromkeys(("memory", "following"), ((lanes, held), "float32"))
        return fields

    def make_acting(self, run: "Run", agent: Any, envs: "Environments") -> "PPOActing":
        from tenfold.algorithms.ppo.learner import PPOActing, RecurrentActing

        return (RecurrentActing if agent.held else PPOActing)(agent, envs)

    def exported(self, agent: Any, sample: bool) -> Any:
        from tenfold.algorithms.ppo.exported import DrawnPolicy, GreedyPolicy, RememberedPolicy

        if agent.held:
            return RememberedPolicy(agent, sample)
        return DrawnPolicy(agent) if sample else GreedyPolicy(agent)

    def networks(self, settings: Any) -> int:
        """Networks of the settings' size that an agent has."""
        return 2 + (settings.baseline == "counterfactual")


ALGORITHMS = (PolicyOptimisation(),)

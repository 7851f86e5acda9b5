"""Which engine runs PPO, and why not another."""

from tenfold.algorithms.ppo.agent import PPOAgent
from tenfold.algorithms.ppo.fused import FusedPPO
from tenfold.algorithms.ppo.plain import PlainPPO
from tenfold.config.run import Run
from tenfold.core.errors import ConfigError
from tenfold.engines import choose
from tenfold.envs.adapter import Environments
from tenfold.memory.rollout import Rollout


def why_not_fused(agent: PPOAgent) -> str:
    """What keeps the fused engine from this agent; empty if nothing does."""
    if found := choose.why_not_fused(agent):
        return found
    if agent.config.baseline == "counterfactual":
        return "the baseline is counterfactual"
    unknown = agent.config.squash and agent.config.entropy
    return "the entropy of squashed actions has no closed form" if unknown else ""


def choose_engine(
    run: Run, agent: PPOAgent, rollout: Rollout, envs: Environments
) -> tuple[PlainPPO, str]:
    """The engine of a policy, and one sentence about the choice."""
    obstacle = why_not_fused(agent)
    choose.require_engine(run, obstacle)
    graphs = agent.layout.graph is not None
    if run.engine == "compiled" and graphs:
        raise ConfigError(
            "engine",
            "= compiled does not fit: every batch of graphs has another number of nodes, and "
            "would be compiled anew; use plain or auto.",
        )
    if run.engine == "compiled":
        # here: it loads much of torch that no other engine needs
        from tenfold.algorithms.ppo.compiled import CompiledPPO

        return CompiledPPO(
            agent, rollout, envs
        ), "compiled, as asked: the update as one graph through torch.compile"
    if run.engine == "plain":
        return PlainPPO(agent, rollout, envs), "plain, as asked"
    if obstacle:
        other = "" if graphs else "; compiled (torch.compile) only when asked for"
        return PlainPPO(agent, rollout, envs), f"plain, not fused: {obstacle}{other}"
    return FusedPPO(
        agent, rollout, envs
    ), "fused, a learning phase in one compiled call; plain would be slower, compiled too"

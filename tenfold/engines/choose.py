"""Which engine runs, and why not another."""

from tenfold.algorithms.dqn.agent import DQNAgent
from tenfold.algorithms.dqn.config import Implicit, Noisy
from tenfold.algorithms.dqn.fused import FusedEngine
from tenfold.algorithms.dqn.placed import Placed, place_agents
from tenfold.algorithms.dqn.plain import PlainEngine
from tenfold.algorithms.dqn.team import STACKED_PRODUCTS, Apart, Team, products
from tenfold.algorithms.dqn.team_replay import TeamReplay
from tenfold.algorithms.ppo.agent import PPOAgent
from tenfold.algorithms.ppo.fused import FusedPPO
from tenfold.algorithms.ppo.plain import PlainPPO
from tenfold.config.run import Run
from tenfold.config.schedules import custom_schedule
from tenfold.core.errors import ConfigError
from tenfold.envs.adapter import Environments
from tenfold.memory.replay import Replay
from tenfold.memory.rollout import Rollout


def why_not_fused(agent: DQNAgent | PPOAgent) -> str:
    """What keeps the fused engine from this agent; empty if nothing does."""
    if agent.device.type != "cpu":
        return f"the networks are on {agent.device.type}"
    if agent.config.net.encoder == "graph":
        return "the network reads graphs"
    if agent.config.net.encoder != "mlp":
        return f"the network has convolutions ({agent.config.net.encoder})"
    if setting := custom_schedule(agent.config):
        return f"{setting} is a schedule of one's own"
    if isinstance(agent, PPOAgent):
        if agent.config.baseline == "counterfactual":
            return "the baseline is counterfactual"
        if agent.config.squash and agent.config.entropy:
            return "the entropy of squashed actions has no closed form"
    elif isinstance(agent.config.explore, Noisy):
        return "the layers are noisy"
    elif agent.config.frames > 1:
        return "the network sees several frames"
    elif isinstance(agent.config.distribution, Implicit):
        return "the quantiles are implicit"
    return ""


def check_wish(run: Run, obstacle: str) -> None:
    """Refuses what cannot be had."""
    if run.engine == "fused" and obstacle:
        raise ConfigError("engine", f"= fused does not fit: {obstacle}; use plain or auto.")
    if run.verify and (run.engine == "plain" or (obstacle and run.engine == "auto")):
        raise ConfigError(
            "verify",
            f"= {run.verify} has nothing to compare: the engine is plain, the reference "
            f"itself{', since ' + obstacle if obstacle else ''}; leave verify at 0.",
        )


def choose_policy_engine(
    run: Run, agent: PPOAgent, rollout: Rollout, envs: Environments
) -> tuple[PlainPPO, str]:
    """The engine of a policy, and one sentence about the choice."""
    obstacle = why_not_fused(agent)
    check_wish(run, obstacle)
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


def choose_engine(
    run: Run, agent: DQNAgent, replay: Replay, envs: Environments
) -> tuple[PlainEngine, str]:
    """The engine, and one sentence about the choice."""
    wanted, obstacle = run.engine, why_not_fused(agent)
    check_wish(run, obstacle)
    if wanted == "compiled":
        if agent.device.type != "cpu":
            raise ConfigError(
                "engine",
                f"= compiled runs on the CPU, and the networks are on {agent.device.type}: use "
                "plain.",
            )
        # here: it loads much of torch that no other engine needs
        from tenfold.algorithms.dqn.compiled import CompiledEngine

        return CompiledEngine(
            agent, replay, envs
        ), "compiled, as asked: the update as one graph through torch.compile"
    if wanted == "plain":
        return PlainEngine(agent, replay, envs), "plain, as asked"
    if obstacle:
        return PlainEngine(
            agent, replay, envs
        ), f"plain, not fused: {obstacle}; compiled (torch.compile) only when asked for"
    return FusedEngine(
        agent, replay, envs
    ), "fused, one compiled call a round; plain would be slower, compiled too"


def choose_team_engine(
    run: Run, team: Team, replay: TeamReplay, envs: Environments, devices: list[str]
) -> tuple[PlainEngine | Apart, str]:
    """The engine of a world's agents, and one sentence about it; over `devices` if there are any
    and it pays."""
    if run.engine == "compiled":
        raise ConfigError(
            "engine",
            f"= compiled is for a single agent, and {run.env} has {team.members}: use auto or "
            "plain.",
        )
    if run.verify:
        raise ConfigError(
            "verify",
            f"= {run.verify} is for a single agent, and {run.env} has {team.members}: leave it at "
            "0.",
        )
    obstacle = why_not_fused(team)
    if not devices or run.stack == "together" or run.engine == "fused":
        return team_engine_here(run, team, replay, envs, obstacle)
    places, words = place_agents(team, devices, fused=run.engine == "auto" and not obstacle)
    if places:
        return Placed(team, replay, envs, places), f"plain, {words}"
    engine, choice = team_engine_here(run, team, replay, envs, obstacle)
    return engine, f"{choice}; {words}"


def team_engine_here(
    run: Run, team: Team, replay: TeamReplay, envs: Environments, obstacle: str
) -> tuple[PlainEngine | Apart, str]:
    """The same where the team is. The choice follows from the shapes alone, so that a run can be
    repeated."""
    if run.stack != "together" and run.engine != "plain" and not obstacle:
        return Apart(
            team, replay, envs, FusedEngine
        ), f"fused, {team.members} agents one after another: a compiled call each"
    why = f"not fused: {obstacle}" if obstacle and run.engine == "auto" else "as asked"
    small = products(team) <= STACKED_PRODUCTS
    if run.stack == "together" or (run.stack == "auto" and small):
        reason = (
            "faster than one after another while layers are small"
            if run.stack == "auto"
            else "as asked"
        )
        engine = PlainEngine(team, replay, envs)  # type: ignore[arg-type]
        return engine, f"plain, {why}; {team.members} agents in one call, {reason}"
    reason = "faster than together when layers are large" if run.stack == "auto" else "as asked"
    return Apart(
        team, replay, envs, PlainEngine
    ), f"plain, {why}; {team.members} agents one after another, {reason}"

"""Which engine runs Q-learning, and why not another."""

from tenfold.algorithms.dqn.agent import DQNAgent
from tenfold.algorithms.dqn.config import Implicit, Noisy
from tenfold.algorithms.dqn.fused import FusedEngine
from tenfold.algorithms.dqn.placed import Placed, place_agents
from tenfold.algorithms.dqn.plain import PlainEngine
from tenfold.algorithms.dqn.team import STACKED_PRODUCTS, Apart, Team, products
from tenfold.algorithms.dqn.team_replay import TeamReplay
from tenfold.config.run import Run
from tenfold.core.errors import ConfigError
from tenfold.engines import choose
from tenfold.envs.adapter import Environments
from tenfold.memory.replay import Replay


def why_not_fused(agent: DQNAgent) -> str:
    """What keeps the fused engine from this agent; empty if nothing does."""
    if found := choose.why_not_fused(agent):
        return found
    if isinstance(agent.config.explore, Noisy):
        return "the layers are noisy"
    if agent.config.frames > 1:
        return "the network sees several frames"
    return "the quantiles are implicit" if isinstance(agent.config.distribution, Implicit) else ""


def choose_engine(
    run: Run, agent: DQNAgent, replay: Replay, envs: Environments
) -> tuple[PlainEngine, str]:
    """The engine, and one sentence about the choice."""
    wanted, obstacle = run.engine, why_not_fused(agent)
    choose.require_engine(run, obstacle)
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

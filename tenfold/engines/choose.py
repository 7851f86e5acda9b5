"""Which engine runs, and why not another."""

from tenfold.agents.dqn import DQNAgent
from tenfold.engines.fused import FusedEngine
from tenfold.engines.plain import PlainEngine
from tenfold.envs.vector import Environments
from tenfold.errors import ConfigError
from tenfold.memory.replay import Replay
from tenfold.settings import Noisy, Run


def why_not_fused(agent: DQNAgent) -> str:
    """What keeps the fused engine from this agent; empty if nothing does."""
    if agent.device.type != "cpu":
        return f"the networks are on {agent.device.type}"
    if agent.config.net.encoder != "mlp":
        return f"the network has convolutions ({agent.config.net.encoder})"
    if isinstance(agent.config.explore, Noisy):
        return "the layers are noisy"
    return ""


def choose_engine(run: Run, agent: DQNAgent, replay: Replay, envs: Environments) -> tuple[PlainEngine, str]:
    """The engine, and one sentence about the choice."""
    wanted, verify, obstacle = run.engine, run.verify, why_not_fused(agent)
    if wanted == "fused" and obstacle:
        raise ConfigError("engine", f"= fused does not fit: {obstacle}; use plain or auto.")
    if verify and (wanted == "plain" or (obstacle and wanted == "auto")):
        raise ConfigError("verify", f"= {verify} has nothing to compare: the engine is plain, the reference itself"
                          f"{', since ' + obstacle if obstacle else ''}; leave verify at 0.")
    if wanted == "compiled":
        if agent.device.type != "cpu":
            raise ConfigError("engine", f"= compiled runs on the CPU, and the networks are on {agent.device.type}: use plain.")
        from tenfold.engines.compiled import CompiledEngine  # here: it loads much of torch that no other engine needs
        return CompiledEngine(agent, replay, envs), "compiled, as asked: the update as one graph through torch.compile"
    if wanted == "plain":
        return PlainEngine(agent, replay, envs), "plain, as asked"
    if obstacle:
        return PlainEngine(agent, replay, envs), f"plain, not fused: {obstacle}; compiled (torch.compile) only when asked for"
    return FusedEngine(agent, replay, envs), "fused, one compiled call a round; plain would be slower, compiled too"

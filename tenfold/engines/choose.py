"""Which engine runs, and why not another: what all algorithms say alike."""

from typing import Any

from tenfold.config.run import Run
from tenfold.config.schedules import custom_schedule
from tenfold.core.errors import ConfigError


def why_not_fused(agent: Any) -> str:
    """What keeps a fused engine from an agent's networks; empty if nothing does. An algorithm may
    have more reasons."""
    encoder = agent.config.net.encoder
    if agent.device.type != "cpu":
        return f"the networks are on {agent.device.type}"
    if encoder == "graph":
        return "the network reads graphs"
    if encoder != "mlp":
        return f"the network has convolutions ({encoder})"
    if agent.config.net.module:
        return f"the network is one's own ({agent.config.net.module})"
    setting = custom_schedule(agent.config)
    return f"{setting} is a schedule of one's own" if setting else ""


def require_engine(run: Run, obstacle: str) -> None:
    """Refuses what cannot be had."""
    if run.engine == "fused" and obstacle:
        raise ConfigError("engine", f"= fused does not fit: {obstacle}; use plain or auto.")
    if run.verify and (run.engine == "plain" or (obstacle and run.engine == "auto")):
        raise ConfigError(
            "verify",
            f"= {run.verify} has nothing to compare: the engine is plain, the reference "
            f"itself{', since ' + obstacle if obstacle else ''}; leave verify at 0.",
        )

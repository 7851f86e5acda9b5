"""Which engine runs, and why not another. An algorithm's table `engines` names those it has, in the
order of preference.

An engine is a class, made of an agent, its memory and its environments, with what `Engine` in
`core.protocols` promises; `why_not(agent, run)` says in words what keeps it from an agent, and
`description` what is special about it. No torch here: an engine is imported when it may run.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tenfold.config.schedules import custom_schedule
from tenfold.core.errors import ConfigError, Obstacle
from tenfold.core.registry import OBSTACLES, algorithm, import_by_name

if TYPE_CHECKING:
    from tenfold.config.run import Run


NO_OBSTACLES: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class EngineEntry:
    """An engine as an algorithm's table has it."""

    home: str  # module:Class
    about: str  # for `tenfold list`
    automatic: bool = True  # chosen where it fits; else only when asked for
    device: str = ""  # the only one that it is for


RESIDENT = (
    "environments and learning on the GPU, without the host: small fully connected networks, "
    "--device cuda"
)


CUDAGRAPH = (
    "updates as CUDA graphs, replay memory and rollouts on the GPU: any network but those on "
    "graphs, --device cuda"
)


def tensor_table(plain: str, cudagraph: str) -> dict[str, EngineEntry]:
    """The engines of an algorithm where environments are tensors."""
    return {
        "cudagraph": EngineEntry(cudagraph, CUDAGRAPH, device="cuda"),
        "plain": EngineEntry(plain, "eager PyTorch autograd, any device: the reference"),
    }


def engine_table(
    plain: str,
    compiled: str,
    cudagraph: str,
    fused: str = "",
    resident: str = "",
) -> dict[str, EngineEntry]:
    """The usual engines of an algorithm, by where they are; one that it does not have is empty."""
    usual = {
        "resident": EngineEntry(resident, RESIDENT, device="cuda"),
        "cudagraph": EngineEntry(cudagraph, CUDAGRAPH, device="cuda"),
        "fused": EngineEntry(
            fused, "a whole round in one compiled call: fully connected networks on the CPU"
        ),
        "compiled": EngineEntry(
            compiled,
            "the update as one graph through torch.compile: on the CPU, not for graphs; half a "
            "minute to compile",
            automatic=False,
        ),
        "plain": EngineEntry(
            plain, "eager PyTorch autograd, any network, any device: the reference"
        ),
    }
    return {name: entry for name, entry in usual.items() if entry.home}


def choose_engine(
    run: "Run", agent: Any, *rest: Any, table: Mapping[str, EngineEntry] | None = None
) -> tuple[Any, str]:
    """The engine of a run, made of its agent and `rest`, and one sentence about the choice. One
    that turns out not to fit when it is made leaves its place to the next. `table`: of which, where
    not of all that the algorithm has."""
    obstacles = dict(OBSTACLES)
    while True:
        name, kind, reasons = fitting_engine(run, agent, obstacles, table)
        refuse_idle_verify(run, name, reasons)
        engine = kind(agent, *rest)
        try:
            engine.prepare(run)
        except Obstacle as obstacle:
            obstacles[name] = str(obstacle)
            continue
        about = [*reasons, engine.description, outside_loop(run) if name == "fused" else ""]
        return engine, f"{name}, {'; '.join(filter(None, about))}"


def outside_loop(run: "Run") -> str:
    """Why a compiled environment is not stepped inside of the fused engine's loop."""
    from tenfold.envs.control_dynamics import KINDS  # here: help and errors do without it

    reasons = {
        "its steps or episodes are of another length": run.world != run.env,
        "several frames are put together": run.stacked > 1,
        "rewards are normalised or clipped": run.shapes_rewards,
    }
    sentence = " and ".join(reason for reason, holds in reasons.items() if holds)
    if run.env not in KINDS or not sentence:
        return ""
    return f"{run.env} steps outside of the compiled loop: {sentence}"


def refuse_idle_verify(run: "Run", name: str, reasons: list[str]) -> None:
    """Updates of the plain engine cannot be held to the plain engine's."""
    if run.verify and name == "plain":
        raise ConfigError(
            "verify",
            f"= {run.verify} has nothing to compare: the engine is the reference itself, plain, "
            f"{'; '.join(reasons)}; set verify to 0.",
        )


def fitting_engine(
    run: "Run",
    agent: Any,
    obstacles: Mapping[str, str] = NO_OBSTACLES,
    table: Mapping[str, EngineEntry] | None = None,
) -> tuple[str, Any, list[str]]:
    """Name and class of the engine that was asked for, or of the first that fits; and the reasons.
    `obstacles`: what keeps engines from it that were tried."""
    whose = f"{run.agent.name}'s" + (" for environments of tensors" if table else "")
    requested = run.engine != "auto"
    entries: Mapping[str, EngineEntry] = table or algorithm(run.agent.name).engines
    if requested and run.engine not in entries:
        names = ", ".join(entries)
        raise ConfigError(
            "engine", f"= {run.engine} is none of {whose}: there are {names} and auto."
        )
    reasons = ["as asked"] if requested else []
    for name in [run.engine] if requested else entries:
        entry = entries[name]
        if entry.device not in ("", agent.device.type):
            if requested:
                raise ConfigError(
                    "engine",
                    f"= {name} is for {entry.device}, and the networks are on "
                    f"{agent.device.type}: set device, or use plain or auto.",
                )
            continue
        kind, automatic = import_by_name(entry.home), entry.automatic
        obstacle = obstacles.get(name) or kind.why_not(agent, run)
        if not obstacle and (requested or automatic):
            return name, kind, reasons
        if requested:
            raise ConfigError("engine", f"= {name} does not fit: {obstacle}; use plain or auto.")
        if automatic:
            reasons.append(f"not {name}: {obstacle}")
        elif reasons and not obstacle:
            reasons.append(f"{name} only when asked for")
    raise AssertionError("the plain engine fits every agent")


def why_not_fused(agent: Any, remembers: bool = False) -> str:
    """What keeps a fused engine from an agent; an algorithm may have more reasons. `remembers`: a
    memory is none."""
    if agent.device.type != "cpu":
        return f"the networks are on {agent.device.type}"
    return why_not_layers(agent, remembers)


def why_not_layers(agent: Any, remembers: bool = False) -> str:
    """What keeps an engine from an agent's networks that takes them as fully connected layers and
    numbers."""
    encoder = agent.config.net.encoder
    if encoder == "graph":
        return "the network reads graphs"
    if encoder != "mlp":
        return f"the network has convolutions ({encoder})"
    if agent.config.net.module:
        return f"the network is one's own ({agent.config.net.module})"
    if not remembers and (obstacle := why_not_memory(agent)):
        return obstacle
    setting = custom_schedule(agent.config)
    return f"{setting} is a schedule of one's own" if setting else ""


def why_not_memory(agent: Any) -> str:
    """What keeps an engine from an agent that learns from rows in any order."""
    memory = getattr(agent.config.net, "memory", None)
    return (
        f"the policy remembers ({memory}), and sequences are learned from whole" if memory else ""
    )

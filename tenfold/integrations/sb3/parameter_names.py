"""Names and order of Stable-Baselines3's parameters, and where each of them lies in the flat
buffers of an agent of ours. One table serves files, `get_parameters`, optimisers and the policy.

Both sides keep weights as (out, in). Most entries are views; two are other numbers: quantiles,
whose rows Stable-Baselines3 sorts by quantile and we by action, and binary actions, which it gives
one logit each and we two.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from gymnasium import spaces

from tenfold.core.errors import ConfigError

POLICY, ACTOR, CRITIC, ENTROPY = (
    "policy.optimizer",
    "actor.optimizer",
    "critic.optimizer",
    "ent_coef_optimizer",
)


class SameRows:
    """The same numbers in the same order: a view."""

    is_view = True

    def read(self, ours: torch.Tensor, buffer: str) -> torch.Tensor:
        return ours

    def write(self, ours: torch.Tensor, theirs: torch.Tensor, buffer: str) -> None:
        ours.copy_(theirs)


@dataclass(frozen=True)
class QuantileRows:
    """Their rows are [quantile, action], ours [action, quantile]."""

    actions: int
    is_view = False

    def read(self, ours: torch.Tensor, buffer: str) -> torch.Tensor:
        return ours.unflatten(0, (self.actions, -1)).transpose(0, 1).flatten(0, 1)

    def write(self, ours: torch.Tensor, theirs: torch.Tensor, buffer: str) -> None:
        ours.copy_(theirs.unflatten(0, (-1, self.actions)).transpose(0, 1).flatten(0, 1))


class BinaryRows:
    """Their row is the logit of 1, ours are those of 0 and of 1: they stand for the difference. The
    gradients of the two are opposite, so their moments differ in the sign at most."""

    is_view = False

    def read(self, ours: torch.Tensor, buffer: str) -> torch.Tensor:
        off, on = ours.unflatten(0, (-1, 2)).unbind(1)
        return on - off if buffer == "value" else on.clone()

    def write(self, ours: torch.Tensor, theirs: torch.Tensor, buffer: str) -> None:
        off = {"value": torch.zeros_like, "mean": torch.neg, "square": torch.clone}[buffer](theirs)
        ours.copy_(torch.stack([off, theirs], 1).flatten(0, 1))


# of the gradient, in what a buffer holds
POWERS = {"value": 0, "mean": 1, "square": 2}
Rows = SameRows | QuantileRows | BinaryRows
SAME = SameRows()
MEMORY_PARTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")  # of an LSTM


@dataclass(frozen=True)
class ParameterEntry:
    """One of their parameters: its name in `policy.state_dict()`, the optimiser that has it (none:
    a target network's), and where it lies in ours."""

    name: str
    optimizer: str
    start: int
    shape: tuple[int, ...]
    rows: Rows = SAME
    gain: float = 1.0  # their gradient over ours

    @property
    def is_view(self) -> bool:
        return self.rows.is_view

    def lies_in(self, flat: torch.Tensor) -> torch.Tensor:
        """Our numbers."""
        return flat[self.start : self.start + math.prod(self.shape)].view(self.shape)

    def read(self, flat: torch.Tensor, buffer: str = "value") -> torch.Tensor:
        """Their tensor, of parameters (`value`) or of a moment of Adam (`mean`, `square`)."""
        theirs = self.rows.read(self.lies_in(flat), buffer)
        return theirs if self.gain == 1 else theirs * self.gain ** POWERS[buffer]

    def write(self, flat: torch.Tensor, theirs: torch.Tensor, buffer: str = "value") -> None:
        self.rows.write(self.lies_in(flat), theirs / self.gain ** POWERS[buffer], buffer)


def class_of(agent: Any) -> str:
    """Stable-Baselines3's class for an agent of ours, as far as parameters' names go."""
    config = agent.config
    if config.name == "dqn":
        return "QRDQN" if config.atoms > 1 else "DQN"
    if config.name == "td3":
        return "TD3" if config.critics == 2 else "DDPG"
    recurrent = config.name == "ppo" and config.net.memory
    return "RecurrentPPO" if recurrent else config.name.upper()


def require_named(agent: Any) -> None:
    """Refuses agents whose networks Stable-Baselines3 does not have."""
    config, net = agent.config, agent.config.net
    recurrent = getattr(net, "memory", None)
    refusals = (
        (config.name not in ("dqn", "ppo", "sac", "td3"), "agent", f"= {config.name}"),
        (net.module, "agent.net.module", f"= {net.module}"),
        (net.encoder != "mlp", "agent.net.encoder", f"= {net.encoder}"),
        (getattr(config, "dueling", False), "agent.dueling", "= true"),
        (getattr(config, "sigma", 0), "agent.explore", "= noisy"),
        (getattr(config, "implicit", None), "agent.distribution", "= implicit"),
        (getattr(config, "categorical", None), "agent.distribution", "= categorical"),
        (getattr(agent, "discrete", False), "agent", "= sac with discrete actions"),
        (
            recurrent and (net.hidden or type(net.memory).__name__ != "LSTM"),
            "agent.net.memory",
            f"= {recurrent}",
        ),
        (agent.members > 1, "agent", "with several members"),
    )
    for refused, key, value in refusals:
        if refused:
            raise ConfigError(
                key,
                f"{value} has no counterpart among Stable-Baselines3's MLP policies: its "
                "parameters have no names there.",
            )


class OurPlaces:
    """Where our parameters lie in a network's flat buffer, by name."""

    def __init__(self, network: Any) -> None:
        self.network, start = network, 0
        self.places: dict[str, tuple[int, tuple[int, ...]]] = {}
        for name, parameter in network.named_parameters():
            self.places[name] = start, tuple(parameter.shape)
            start += parameter.numel()

    def entry(
        self,
        theirs: str,
        ours: str,
        optimizer: str,
        rows: Rows = SAME,
        only: slice | None = None,
    ) -> ParameterEntry:
        """`only`: some of our rows."""
        start, shape = self.places[ours]
        if only is not None:
            row_size = math.prod(shape[1:])
            start, shape = start + only.start * row_size, (only.stop - only.start, *shape[1:])
        return ParameterEntry(theirs, optimizer, start, shape, rows)

    def layers(
        self, theirs: str, ours: str, optimizer: str, names: Callable[[int], str], **last: Any
    ) -> Iterator[ParameterEntry]:
        """Fully connected layers; `names` of each behind `theirs`. `last` is about the last one."""
        count = sum(name.startswith(f"{ours}layers.") for name in self.places) // 2
        for index in range(count):
            more = last if index == count - 1 else {}
            for part in ("weight", "bias"):
                name = f"{theirs}{names(index)}.{part}"
                yield self.entry(name, f"{ours}layers.{index}.{part}", optimizer, **more)


def sequential(index: int) -> str:
    """Of torch.nn.Sequential, where activations stand between layers."""
    return str(2 * index)


def policy_entries(agent: Any) -> dict[str, list[ParameterEntry]]:
    """Their parameters in the order of `policy.state_dict()`, by network of ours, `online` and
    `target`."""
    require_named(agent)
    return {"dqn": q_entries, "ppo": ppo_entries, "sac": sac_entries, "td3": td3_entries}[
        agent.config.name
    ](agent)


def q_entries(agent: Any) -> dict[str, list[ParameterEntry]]:
    name = "quantile_net" if class_of(agent) == "QRDQN" else "q_net"
    rows = QuantileRows(agent.actions.n) if name == "quantile_net" else SAME

    def named(network: Any, first: str, optimizer: str) -> list[ParameterEntry]:
        places = OurPlaces(network)
        return list(places.layers(f"{first}.{name}.", "", optimizer, sequential, rows=rows))

    return {
        "online": named(agent.online, name, POLICY),
        "target": named(agent.target, f"{name}_target", ""),
    }


def ppo_entries(agent: Any) -> dict[str, list[ParameterEntry]]:
    places = OurPlaces(agent.online)
    binary = isinstance(agent.actions.space, spaces.MultiBinary)
    rows = BinaryRows() if binary else SAME
    entries = [places.entry("log_std", "log_std", POLICY)] if agent.actions.low else []
    heads: list[ParameterEntry] = []
    memories: list[ParameterEntry] = []
    memory = agent.config.net.memory
    for tower, head, side, head_rows in (
        ("policy", "action", "actor", rows),
        ("value", "value", "critic", SAME),
    ):
        extractor, ours = f"mlp_extractor.{tower}_net.", f"{tower}.{'head.' if memory else ''}"
        *hidden, weight, bias = places.layers(extractor, ours, POLICY, sequential, rows=head_rows)
        entries += hidden
        heads += [
            replace(entry, name=f"{head}_net.{part}")
            for part, entry in (("weight", weight), ("bias", bias))
        ]
        memories += [
            places.entry(f"lstm_{side}.{part}_l0", f"{tower}.memory.{part}", POLICY)
            for part in (MEMORY_PARTS if memory else ())
        ]
    return {"online": entries + heads + memories, "target": []}


def critic_entries(
    places: OurPlaces, critics: int, theirs: str, optimizer: str, gain: float = 1.0
) -> list[ParameterEntry]:
    return [
        replace(entry, gain=gain)
        for j in range(critics)
        for entry in places.layers(f"{theirs}.qf{j}.", f"critics.{j}.", optimizer, sequential)
    ]


def sac_entries(agent: Any) -> dict[str, list[ParameterEntry]]:
    places, reals = OurPlaces(agent.online), agent.actions.reals
    *hidden, _, _ = places.layers("actor.latent_pi.", "actor.", ACTOR, sequential)
    last = f"actor.layers.{len(hidden) // 2}"
    heads = [
        places.entry(f"actor.{head}.{part}", f"{last}.{part}", ACTOR, only=rows)
        for head, rows in (("mu", slice(0, reals)), ("log_std", slice(reals, 2 * reals)))
        for part in ("weight", "bias")
    ]
    critics = len(agent.online.critics)
    return {
        "online": [*hidden, *heads, *critic_entries(places, critics, "critic", CRITIC)],
        "target": critic_entries(OurPlaces(agent.target), critics, "critic_target", ""),
    }


def td3_entries(agent: Any) -> dict[str, list[ParameterEntry]]:
    """Its loss of the critics has no ½, so that their gradient is twice ours."""
    critics = len(agent.online.critics)

    def named(network: Any, suffix: str, actor: str, critic: str) -> list[ParameterEntry]:
        places = OurPlaces(network)
        policy = places.layers(f"actor{suffix}.mu.", "actor.", actor, sequential)
        return [*policy, *critic_entries(places, critics, f"critic{suffix}", critic, 2)]

    return {
        "online": named(agent.online, "", ACTOR, CRITIC),
        "target": named(agent.target, "_target", "", ""),
    }


def temperature_entry(agent: Any) -> ParameterEntry | None:
    """The logarithm of SAC's temperature; none of others."""
    if agent.config.name != "sac":
        return None
    return OurPlaces(agent.online).entry("log_ent_coef", "temperature.log", ENTROPY)

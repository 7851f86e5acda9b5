"""Which network a policy has for an environment's spaces, which settings do not fit them, and masks
of allowed options as a person gives them."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from tenfold.algorithms.ppo_settings import PPO
from tenfold.config.notation import show
from tenfold.core.errors import ConfigError, UserError
from tenfold.core.layout import ObsLayout
from tenfold.core.spaces import PolicyActions
from tenfold.nets.graph import GraphNetwork, GraphOutputs
from tenfold.nets.policy import PolicyNetwork
from tenfold.nets.recurrent import RecurrentNetwork
from tenfold.ops.segments import NodeChoices


@contextmanager
def told_to_user() -> Iterator[None]:
    """What the heads refuse is a person's affair: a mask without an option, or a network that
    diverged."""
    try:
        yield
    except ValueError as error:
        way_out = " (in a run: --agent.on-empty absent)" if "on_empty" in str(error) else ""
        raise UserError(f"The policy cannot act: {error}{way_out}.") from None


def check_settings(
    config: PPO, layout: ObsLayout, actions: PolicyActions, components: int = 0
) -> None:
    """Refuses settings that do not fit the spaces, or rewards in components."""
    hidden, flat_input = config.net.hidden, config.net.encoder == "mlp"
    if layout.graph and (not hidden or len(set(hidden)) > 1 or hidden[0] % config.net.attention):
        raise ConfigError(
            "agent.net.hidden",
            f"= {show(hidden)} does not fit a graph encoder: its layers have one width, a "
            f"multiple of net.attention = {config.net.attention}.",
        )
    if config.net.memory and layout.graph:
        raise ConfigError(
            "agent.net.memory",
            f"= {config.net.memory} does not fit: the observations are graphs, whose nodes come "
            "and go; leave it out.",
        )
    if config.net.memory and config.baseline == "counterfactual":
        raise ConfigError(
            "agent.net.memory",
            f"= {config.net.memory} does not go with counterfactual baselines, whose critic "
            "remembers nothing: set agent.baseline to value.",
        )
    if actions.gates and config.on_empty != "absent":
        raise ConfigError(
            "agent.on_empty",
            "= raise does not fit: this environment has choices that may be absent; set it to "
            "absent.",
        )
    if config.squash and not actions.low:
        raise ConfigError(
            "agent.squash",
            "= true is for continuous actions, and this environment has none: leave it out.",
        )
    if config.squash and not np.isfinite([*actions.low, *actions.high]).all():
        raise ConfigError(
            "agent.squash",
            "= true needs bounded actions, and this environment's have no bounds.",
        )
    if config.squash and not np.less(actions.low, actions.high).all():
        raise ConfigError(
            "agent.squash", "= true needs room between the bounds, and one action has none."
        )
    if config.baseline == "counterfactual" and (actions.low or not actions.sizes):
        raise ConfigError(
            "agent.baseline",
            "= counterfactual compares discrete alternatives, and this environment has "
            "continuous actions: use value.",
        )
    if config.baseline == "counterfactual" and components:
        raise ConfigError(
            "agent.baseline",
            "= counterfactual values one reward, and this environment's come in components: use "
            "value.",
        )
    if config.baseline == "counterfactual" and not flat_input:
        raise ConfigError(
            "agent.baseline", "= counterfactual needs vector observations: use value."
        )


def make_network(
    config: PPO, layout: ObsLayout, actions: PolicyActions, scale: float, components: int
) -> PolicyNetwork | GraphNetwork:
    """`scale` of observations; `components` of the rewards, where they come in some: the value has
    a column for the total and one for each of them."""
    columns = components and 1 + components
    if layout.graph:
        return GraphNetwork(
            layout.graph,
            graph_outputs(actions, layout.graph.nodes),
            config.net,
            columns,
            config.least_std,
        )
    kind = RecurrentNetwork if config.net.memory else PolicyNetwork
    return kind(
        (layout.size,) if config.net.encoder == "mlp" else layout.net_shape,
        actions.options,
        len(actions.low),
        config.net,
        scale,
        config.baseline == "counterfactual",
        columns,
    )


def graph_outputs(actions: PolicyActions, nodes: int) -> GraphOutputs:
    """Parts with a row for every node have an output at every node: components of one size, numbers
    of shape (nodes, D)."""
    options, numbers = [], []
    for leaf in actions.leaves:
        per_node = len(leaf.sizes) == nodes and len(set(leaf.sizes)) == 1
        options += [(leaf.sizes[0], True)] if per_node else [(n, False) for n in leaf.sizes]
        if leaf.low:
            shape = leaf.space.shape or ()
            rows = len(shape) == 2 and shape[0] == nodes
            numbers.append((len(leaf.low) // (nodes if rows else 1), rows))
    return GraphOutputs(tuple(options), tuple(numbers))


def node_choices(
    online: PolicyNetwork | GraphNetwork,
    config: PPO,
    low: torch.Tensor,
    high: torch.Tensor,
    gates: torch.Tensor | None,
) -> NodeChoices | None:
    """Where all parts of the action have a row for every node, what one node chooses; else
    nothing."""
    if (
        not isinstance(online, GraphNetwork)
        or online.graph_width
        or len(online.outputs.options) != 1
    ):
        return None
    numbers = sum(n for n, _ in online.outputs.numbers)
    if gates is None:
        gates = torch.full((numbers,), -1, device=low.device)
    bounds = (low[:numbers], high[:numbers]) if config.squash else None
    per_node = online.outputs.options[0][0]
    return NodeChoices(per_node, gates[:numbers], bounds, config.entropy > 0)

"""The distribution of actions that a policy network's output stands for: masked categorical
components and Gaussian numbers with one joint log-probability. In environments whose observations
are graphs every node may have an action of its own (`NodeDistribution`)."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from tenfold.core.errors import UserError
from tenfold.core.layout import ObsLayout
from tenfold.core.spaces import PolicyActions
from tenfold.nets.graph import GraphNetwork, GraphOutputs
from tenfold.nets.policy import PolicyNetwork
from tenfold.nets.recurrent import RecurrentNetwork
from tenfold.ops import gaussian
from tenfold.ops.heads import MaskedHeads
from tenfold.ops.segments import NodeChoices, NodeOutputs, segment_sum

if TYPE_CHECKING:  # a type alone
    from tenfold.algorithms.ppo_settings import PPO

Tensors = dict[str, torch.Tensor]


@contextmanager
def refusals_to_user() -> Iterator[None]:
    """What the heads refuse is the user's to mend: a mask without an option, or a network that
    diverged."""
    try:
        yield
    except ValueError as error:
        way_out = " (in a run: --agent.on-empty absent)" if "on_empty" in str(error) else ""
        raise UserError(f"The policy cannot act: {error}{way_out}.") from None


def make_network(
    config: "PPO", layout: ObsLayout, actions: PolicyActions, scale: float, components: int
) -> PolicyNetwork | GraphNetwork:
    """The policy's and the value's network for these spaces. `scale` of observations; `components`
    of the rewards, where they come in some: the value has a column for the total and one for each
    of them."""
    columns = components and 1 + components
    if layout.graph:
        outputs = graph_outputs(actions, layout.graph.nodes)
        return GraphNetwork(layout.graph, outputs, config.net, columns, config.least_std)
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


def make_distribution(online: Any, config: "PPO", actions: PolicyActions) -> "ActionDistribution":
    """`NodeDistribution` where all parts of the action have a row for every node."""
    per_node = (
        isinstance(online, GraphNetwork)
        and not online.graph_width
        and len(online.outputs.options) == 1
    )
    return (NodeDistribution if per_node else ActionDistribution)(online, config, actions)


class ActionDistribution:
    """Of an action with C categorical components (`discrete` [B, C], masks [B, options]) and D
    Gaussian numbers (`real` [B, D])."""

    def __init__(self, online: Any, config: "PPO", actions: PolicyActions) -> None:
        self.online, self.config, self.actions = online, config, actions
        device = online.flat.device
        self.heads = (
            MaskedHeads(actions.sizes, config.on_empty).to(device) if actions.sizes else None
        )
        self.low = torch.tensor(actions.low, device=device)
        self.high = torch.tensor(actions.high, device=device)
        # for each number the option that it counts with, −1: it always counts
        self.gates = torch.tensor(actions.gates, device=device) if actions.gates else None

    def unchecked(self, online: Any) -> "ActionDistribution":
        """The same of another network, without errors about masks and numbers, which neither a
        recorded graph nor an exported file can raise: an empty component takes its first option."""
        other = copy.copy(self)
        other.online = online
        if self.heads:
            other.heads = self.unchecked_heads(self.heads)
        return other

    def unchecked_heads(self, heads: MaskedHeads) -> MaskedHeads:
        return MaskedHeads(heads.sizes, "absent", check=False).to(self.low.device)

    # acting; `obs` is what the network takes, `state` [B, S] what it remembers, S = 0 without a
    # memory; by uniform draws [B, C] and normal ones [B, D]

    def act(
        self, obs: Any, state: torch.Tensor, mask: Any, uniform: torch.Tensor, normal: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """(chosen [B, C], real [B, D], joint log-probability [B], value, next state)."""
        output, value, next_state = self.online.step(obs, state)
        return *self.sample(output, mask, uniform, normal), value, next_state

    def sampled(
        self, obs: Any, state: torch.Tensor, mask: Any, uniform: torch.Tensor, normal: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(chosen, real, next state), the policy alone; the state is the policy's part."""
        output, next_state = self.online.policy_step(obs, state)
        discrete, real, _ = self.sample(output, mask, uniform, normal)
        return discrete, real, next_state

    def greedy(
        self, obs: Any, state: torch.Tensor, mask: Any
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """As `sampled`: the most probable components and the means."""
        output, next_state = self.online.policy_step(obs, state)
        logits, means, _ = self.split(output)
        return self.heads.mode(logits, mask) if self.heads else logits.long(), means, next_state

    def sample(
        self,
        output: torch.Tensor,
        mask: torch.Tensor | None,
        uniform: torch.Tensor,
        normal: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(components, numbers, joint log-probability) by the network's output."""
        logits, means, log_std = self.split(output)
        log_p = torch.zeros(uniform.shape[0], device=output.device)
        discrete = torch.zeros(uniform.shape, dtype=torch.int64, device=output.device)
        if self.heads:
            discrete, per_head = self.heads.act(logits, mask, uniform)
            log_p = log_p + self.heads.joint(per_head)
        real = means + log_std.exp() * normal
        log_p = log_p + self.gated(gaussian.log_prob(means, log_std, real), discrete, mask).sum(-1)
        return discrete, real, log_p

    # learning

    def compare(self, batch: Tensors) -> tuple[torch.Tensor, ...]:
        """Of a minibatch (joint log-probability [B, 1], or that of each component [B, C] where each
        has an advantage, entropy [B], value); and the KL divergence [B] from the acting policy
        where the minibatch has its output."""
        output, value = self.online(batch["obs"])
        log_p, entropy = self.evaluate(output, batch)
        if "old_output" not in batch:
            return log_p, entropy, value
        with torch.no_grad():
            return log_p, entropy, value, self.kl(batch["old_output"], output, batch.get("mask"))

    def evaluate(self, output: torch.Tensor, batch: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
        """(log-probability of the joint action [B, 1] or of each component [B, C], entropy [B])."""
        logits, means, log_std = self.split(output)
        log_std, discrete, mask = log_std.expand_as(means), batch["chosen"], batch.get("mask")
        log_p = self.gated(gaussian.log_prob(means, log_std, batch["real"]), discrete, mask)
        learned = self.config.entropy > 0
        squashes = self.config.squash and (learned or isinstance(self.online, GraphNetwork))
        bounds = (self.low, self.high) if squashes else None
        entropy = gaussian.policy_entropy(means, log_std, bounds, learned)
        entropy = self.gated(entropy, discrete, mask).sum(-1)
        if self.heads:
            per_head, head_entropy = self.heads.evaluate(logits, discrete, mask)
            log_p = torch.cat([per_head, log_p], -1)
            entropy = entropy + head_entropy.sum(-1)
        return log_p if self.online.critic is not None else log_p.sum(-1, keepdim=True), entropy

    def kl(
        self, old: torch.Tensor, output: torch.Tensor, mask: torch.Tensor | None
    ) -> torch.Tensor:
        """KL(old ‖ new) [B] of two outputs in closed form; numbers count as often as the old policy
        takes their option."""
        logits, means, log_std = self.split(old)
        new_logits, new_means, new_log_std = self.split(output)
        of_numbers = gaussian.kl(
            means, log_std.expand_as(means), new_means, new_log_std.expand_as(means)
        )
        if self.heads is None:
            return of_numbers.sum(-1)
        if self.gates is not None:
            often = self.heads.log_softmax(logits, mask).exp()
            # an absent choice is never taken
            often = (often if mask is None else often * mask)[:, self.gates.clamp(min=0)]
            of_numbers = torch.where(self.gates < 0, 1.0, often) * of_numbers
        return self.heads.kl(logits, new_logits, mask).sum(-1) + of_numbers.sum(-1)

    def split(self, output: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(logits, means, log-deviations) of a network's output; deviations are parameters of their
        own, or depend on the observation."""
        options, d = self.actions.options, len(self.actions.low)
        if output.shape[-1] == options + d:
            return output[..., :options], output[..., options:], self.online.log_std
        logits, means, log_std = output.split([options, d, d], dim=-1)
        return logits, means, log_std

    def gated(
        self, of_numbers: torch.Tensor, discrete: torch.Tensor, mask: torch.Tensor | None
    ) -> torch.Tensor:
        """What stands for numbers [B, D], 0 where the component that a number counts with chose
        another option, or is absent."""
        if self.gates is None or self.heads is None:
            return of_numbers
        counts = self.heads.one_hot(discrete).bool()
        counts = counts if mask is None else counts & mask
        return torch.where(counts[:, self.gates.clamp(min=0)] | (self.gates < 0), of_numbers, 0.0)


class NodeDistribution(ActionDistribution):
    """The same where every node of a graph chooses for itself: only nodes that are there are worked
    on."""

    def __init__(self, online: GraphNetwork, config: "PPO", actions: PolicyActions) -> None:
        super().__init__(online, config, actions)
        numbers = sum(n for n, _ in online.outputs.numbers)
        gates = self.gates
        if gates is None:
            gates = torch.full((numbers,), -1, device=self.low.device)
        bounds = (self.low[:numbers], self.high[:numbers]) if config.squash else None
        options = online.outputs.options[0][0]
        self.nodes = NodeChoices(options, gates[:numbers], bounds, config.entropy > 0)
        self.room = online.size.nodes

    def unchecked(self, online: Any) -> "NodeDistribution":
        other: Any = super().unchecked(online)
        other.nodes = copy.copy(self.nodes)
        other.nodes.heads = self.unchecked_heads(self.nodes.heads)
        return other

    def allowed(self, graphs: Any, mask: torch.Tensor | None) -> torch.Tensor:
        if mask is not None:
            return mask
        shape = (graphs.batch, self.actions.options)
        return torch.ones(shape, dtype=torch.bool, device=self.low.device)

    def act(
        self, obs: Any, state: torch.Tensor, mask: Any, uniform: torch.Tensor, normal: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        output, value = self.online.packed(obs)
        draws = (self.allowed(obs, mask), uniform, normal)
        return *self.nodes.act(output, obs, self.room, *draws), value, state

    def sampled(
        self, obs: Any, state: torch.Tensor, mask: Any, uniform: torch.Tensor, normal: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        output, _ = self.online.packed(obs)
        draws = (self.allowed(obs, mask), uniform, normal)
        _, discrete, real = self.nodes.draw_packed(output, obs, self.room, *draws)
        return *self.nodes.padded(obs, self.room, discrete, real), state

    def compare(self, batch: Tensors) -> tuple[torch.Tensor, ...]:
        graphs: Any = batch["obs"]
        output, value = self.online.packed(graphs)

        def packed(padded: torch.Tensor) -> torch.Tensor:
            return self.nodes.packed(padded, graphs, self.room)

        mask = torch.ones_like(output.logits, dtype=torch.bool)
        mask = packed(batch["mask"]) if "mask" in batch else mask
        log_p, entropy = self.nodes.evaluate(
            output, packed(batch["chosen"]), mask, packed(batch["real"])
        )
        with torch.no_grad():
            old = NodeOutputs(*map(packed, self.split(batch["old_output"])))
            kl = self.nodes.kl(old, output, mask)
        log_p, entropy, kl = segment_sum(
            torch.stack([log_p, entropy, kl], 1), graphs.owner, graphs.batch
        ).unbind(1)
        return log_p[:, None], entropy, value, kl

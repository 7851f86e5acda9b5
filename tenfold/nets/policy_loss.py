"""What a policy learns from a minibatch: its loss, and how far it has moved from the policy that
acted. Any mixture of discrete, masked and continuous actions has one joint log-probability."""

from typing import TYPE_CHECKING, Any

import torch

from tenfold.core.layout import ObsLayout
from tenfold.core.spaces import PolicyActions
from tenfold.nets.graph import GraphNetwork
from tenfold.nets.policy import PolicyNetwork
from tenfold.ops import counterfactual, gaussian
from tenfold.ops.heads import MaskedHeads
from tenfold.ops.segments import NodeChoices, NodeOutputs, segment_sum

if TYPE_CHECKING:  # a type alone
    from tenfold.algorithms.ppo_settings import PPO

Tensors = dict[str, torch.Tensor]


class PolicyLearning:
    """The half of an agent that learns; `PPOAgent` makes what it works with."""

    config: "PPO"
    layout: ObsLayout
    actions: PolicyActions
    online: PolicyNetwork | GraphNetwork
    heads: MaskedHeads | None
    gates: torch.Tensor | None
    by_node: NodeChoices | None
    low: torch.Tensor
    high: torch.Tensor

    def loss(self, batch: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
        """(loss of a minibatch, [policy loss, value loss, entropy, KL divergence, share of clipped
        ratios]), weighted means."""
        config = self.config
        weight = batch["weight"] / batch["weight"].sum().clamp(min=1)
        change, entropy, kl, value = (
            self.compare_nodes(self.by_node, batch) if self.by_node else self.compare(batch)
        )
        ratio, gain = change.exp(), batch["advantage"]
        surrogate = torch.minimum(
            ratio * gain, ratio.clamp(1 - config.clip, 1 + config.clip) * gain
        ).sum(-1)
        policy_loss = -(weight * surrogate).sum()
        target, old = batch["target"], batch["value"]
        error = (value - target).square()
        if config.value_clip:
            error = torch.maximum(
                error,
                (
                    old + (value - old).clamp(-config.value_clip, config.value_clip) - target
                ).square(),
            )
        value_loss = 0.5 * (weight * (error if error.dim() == 1 else error.mean(-1))).sum()
        mean_entropy = (weight * entropy).sum()
        loss = policy_loss + config.value_weight * value_loss - config.entropy * mean_entropy
        if self.online.critic is not None:
            q = self.online.critic(self.with_action(batch)).squeeze(-1)
            loss = loss + config.value_weight * 0.5 * (weight * (q - target).square()).sum()
        with torch.no_grad():
            clipped = (weight * ((ratio - 1).abs() > config.clip).float().mean(-1)).sum()
            statistics = torch.stack(
                [policy_loss, value_loss, mean_entropy, (weight * kl).sum(), clipped]
            )
        return loss, statistics

    def compare(self, batch: Tensors) -> tuple[torch.Tensor, ...]:
        """(log of the ratio to the acting policy [B, 1], or [B, C] with an advantage for each
        component, entropy [B], KL divergence from it [B], value)."""
        output, value = self.online(batch["obs"])
        each, entropy = self.evaluate(output, batch)
        change = each - batch["log_p"]
        with torch.no_grad():
            joint = change.sum(-1)
            kl = (
                self.divergence(batch["said"], output, batch.get("mask"))
                if "said" in batch
                else joint.exp() - 1 - joint
            )
        return change, entropy, kl, value

    def compare_nodes(self, choices: NodeChoices, batch: Tensors) -> tuple[torch.Tensor, ...]:
        """The same where every node chooses for itself."""
        assert isinstance(self.online, GraphNetwork)
        graphs: Any = batch["obs"]
        room = self.online.size.nodes
        said, value = self.online.packed(graphs)
        chosen, real = (choices.packed(batch[name], graphs, room) for name in ("chosen", "real"))
        mask = (
            choices.packed(batch["mask"], graphs, room)
            if "mask" in batch
            else torch.ones_like(said.logits, dtype=torch.bool)
        )
        log_p, entropy = choices.evaluate(said, chosen, mask, real)
        with torch.no_grad():
            before = NodeOutputs(
                *(choices.packed(part, graphs, room) for part in self.parts_of(batch["said"]))
            )
            kl = choices.kl(before, said, mask)
        joint, entropy, kl = segment_sum(
            torch.stack([log_p, entropy, kl], 1), graphs.owner, graphs.batch
        ).unbind(1)
        return joint[:, None] - batch["log_p"], entropy, kl, value

    def divergence(
        self, before: torch.Tensor, output: torch.Tensor, mask: torch.Tensor | None
    ) -> torch.Tensor:
        """KL(old ‖ new) [B] of two outputs in closed form; numbers count as often as the old policy
        takes their option."""
        logits, means, log_std = self.parts_of(before)
        new_logits, new_means, new_log_std = self.parts_of(output)
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

    def evaluate(self, output: torch.Tensor, batch: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
        """(log-probability of the joint action [B, 1] or of each component [B, C], entropy [B])."""
        logits, means, log_std = self.parts_of(output)
        log_std, chosen, mask = log_std.expand_as(means), batch["chosen"], batch.get("mask")
        each = self.counted(gaussian.log_prob(means, log_std, batch["real"]), chosen, mask)
        learned = self.config.entropy > 0
        bounds = (
            (self.low, self.high) if self.config.squash and (learned or self.layout.graph) else None
        )
        entropy = self.counted(
            gaussian.policy_entropy(means, log_std, bounds, learned), chosen, mask
        ).sum(-1)
        if self.heads:
            log_p, more = self.heads.evaluate(logits, chosen, mask)
            each, entropy = torch.cat([log_p, each], -1), entropy + more.sum(-1)
        return each if self.online.critic is not None else each.sum(-1, keepdim=True), entropy

    def with_action(self, batch: Tensors) -> torch.Tensor:
        """What the critic sees: observation and one-hot action side by side."""
        assert self.heads and isinstance(self.online, PolicyNetwork)
        return torch.cat(
            [self.online.scaled(batch["obs"]), self.heads.one_hot(batch["chosen"])], -1
        )

    @torch.no_grad()
    def counterfactual(self, batch: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
        """(advantage Q(s, a) − bᵢ, log-probability) of each component [B, C] under the acting
        policy."""
        assert self.heads and isinstance(self.online, PolicyNetwork) and self.online.critic
        first = self.online.critic.layers[0]
        hidden = first(self.with_action(batch))
        logits = self.online.policy(self.online.scaled(batch["obs"]))
        weight = first.weight[:, batch["obs"].shape[1] :]  # type: ignore[union-attr,index]
        values = counterfactual.counterfactual_values(
            self.heads, hidden, weight, batch["chosen"], self.online.critic.rest
        )
        baselines = counterfactual.baselines(self.heads, logits, values, batch.get("mask"))
        advantage = counterfactual.advantages(
            self.online.critic.rest(hidden).squeeze(-1), baselines
        )
        return advantage, self.heads.log_prob(logits, batch["chosen"], batch.get("mask"))

    def parts_of(self, output: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(logits, means, log-deviations) of a network's output; deviations are its own, or depend
        on what it sees."""
        options, d = self.actions.options, len(self.actions.low)
        if output.shape[-1] == options + d:
            return output[..., :options], output[..., options:], self.online.log_std
        logits, means, log_std = output.split([options, d, d], dim=-1)
        return logits, means, log_std

    def counted(
        self, each: torch.Tensor, chosen: torch.Tensor, mask: torch.Tensor | None
    ) -> torch.Tensor:
        """What stands for numbers [B, D], 0 where the choice that a number hangs on was another, or
        is absent."""
        if self.gates is None or self.heads is None:
            return each
        taken = (
            self.heads.one_hot(chosen).bool()
            if mask is None
            else self.heads.one_hot(chosen).bool() & mask
        )
        return torch.where(taken[:, self.gates.clamp(min=0)] | (self.gates < 0), each, 0.0)

"""Actions of which every node of a graph chooses its own: an option, and numbers that count where their option was taken.

Actions lie in padded arrays, a place for every node a graph can have; what a network says lies in packed rows, one for every
node that is there. Only those rows are worked on.
"""

from typing import NamedTuple

import torch

from tenfold.ops import gaussian
from tenfold.ops.heads import MaskedHeads
from tenfold.ops.segments import Graphs, segment_sum


class NodeOutputs(NamedTuple):
    """What a network says of the nodes that are there."""

    logits: torch.Tensor  # [N, M]
    means: torch.Tensor  # [N, D]
    log_std: torch.Tensor


class NodeChoices:
    """The choice of one node among `options`; `gates` [D] are the options its numbers hang on, −1 for none. With bounds the
    entropy is that of the numbers squashed into them."""

    def __init__(self, options: int, gates: torch.Tensor, low: torch.Tensor | None, high: torch.Tensor | None) -> None:
        self.heads = MaskedHeads((options,), "absent").to(gates.device)
        self.gates, self.low, self.high = gates, low, high

    def evaluate(self, said: NodeOutputs, graphs: Graphs, room: int, chosen: torch.Tensor, mask: torch.Tensor,
                 real: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(joint log-probability [B], entropy [B]) of padded actions: chosen [B, room], mask [B, room·M], real [B, room·D]."""
        places = graphs.places(room)
        own = (value.reshape(graphs.batch * room, -1)[places] for value in (chosen, mask, real))
        return self.joint(said, graphs, *own)

    def joint(self, said: NodeOutputs, graphs: Graphs, chosen: torch.Tensor, mask: torch.Tensor,
              real: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The same of packed actions: chosen [N, 1], mask [N, M], real [N, D]."""
        each, entropy = gaussian.log_prob(said.means, said.log_std, real), gaussian.entropy(said.log_std)
        if self.low is not None and self.high is not None:
            entropy = gaussian.squashed_entropy(said.means, said.log_std, self.low, self.high)
        taken = (self.heads.one_hot(chosen).bool() & mask)[:, self.gates.clamp(min=0)] | (self.gates < 0)
        log_p, more = self.heads.evaluate(said.logits, chosen, mask)
        both = torch.stack([log_p.sum(1) + torch.where(taken, each, 0.0).sum(1),
                            more.sum(1) + torch.where(taken, entropy, 0.0).sum(1)], 1)
        log_p, entropy = segment_sum(both, graphs.owner, graphs.batch).unbind(1)
        return log_p, entropy

    def act(self, said: NodeOutputs, graphs: Graphs, room: int, mask: torch.Tensor, uniform: torch.Tensor,
            normal: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(chosen [B, room], real [B, room·D], joint log-probability [B]) from padded draws, zeros where no node is."""
        places, rows = graphs.places(room), graphs.batch * room
        allowed, u, z = (value.reshape(rows, -1)[places] for value in (mask, uniform, normal))
        chosen = self.heads.sample(said.logits, allowed, u)
        real = gaussian.draw(said.means, said.log_std, z)
        log_p, _ = self.joint(said, graphs, chosen, allowed, real)
        all_chosen, all_real = chosen.new_zeros(rows, 1), real.new_zeros(rows, real.shape[1])
        all_chosen[places], all_real[places] = chosen, real
        return all_chosen.view(graphs.batch, -1), all_real.view(graphs.batch, -1), log_p

"""Actions of which every node of a graph chooses its own: an option, and numbers that count where
their option was taken.

Actions lie in padded arrays, a place for every node a graph can have; what a network says lies in
packed rows, one for every node that is there. Only those rows are worked on.
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
    """The choice of one node among `options`; `gates` [D] are the options its numbers hang on, −1
    for none. With bounds the entropy is that of the numbers squashed into them; `learned` says
    whether it is part of the loss."""

    def __init__(
        self,
        options: int,
        gates: torch.Tensor,
        bounds: tuple[torch.Tensor, torch.Tensor] | None,
        learned: bool,
    ) -> None:
        self.heads = MaskedHeads((options,), "absent").to(gates.device)
        self.gates, self.bounds, self.learned = gates, bounds, learned

    @staticmethod
    def packed(padded: torch.Tensor, graphs: Graphs, room: int) -> torch.Tensor:
        """[B, room·K] -> [N, K], the rows of nodes that are there."""
        return padded.reshape(graphs.batch * room, -1)[graphs.places(room)]

    def evaluate(
        self, said: NodeOutputs, chosen: torch.Tensor, mask: torch.Tensor, real: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(log-probability [N], entropy [N]) of what each node chose: chosen [N, 1], mask [N, M],
        real [N, D]. The joint ones are the sums over a graph."""
        each = gaussian.log_prob(said.means, said.log_std, real)
        entropy = gaussian.policy_entropy(said.means, said.log_std, self.bounds, self.learned)
        taken = (self.heads.one_hot(chosen).bool() & mask)[:, self.gates.clamp(min=0)] | (
            self.gates < 0
        )
        log_p, more = self.heads.evaluate(said.logits, chosen, mask)
        return log_p.sum(1) + torch.where(taken, each, 0.0).sum(1), more.sum(1) + torch.where(
            taken, entropy, 0.0
        ).sum(1)

    def kl(self, old: NodeOutputs, said: NodeOutputs, mask: torch.Tensor) -> torch.Tensor:
        """KL(old ‖ new) [N] in closed form: the option's, and the numbers' as often as the old
        policy takes their option."""
        often = (self.heads.log_softmax(old.logits, mask).exp() * mask)[:, self.gates.clamp(min=0)]
        often = torch.where(self.gates < 0, 1.0, often)
        of_numbers = gaussian.kl(old.means, old.log_std, said.means, said.log_std)
        return self.heads.kl(old.logits, said.logits, mask).sum(1) + (often * of_numbers).sum(1)

    def act(
        self,
        said: NodeOutputs,
        graphs: Graphs,
        room: int,
        mask: torch.Tensor,
        uniform: torch.Tensor,
        normal: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(chosen [B, room], real [B, room·D], joint log-probability [B]) from padded draws, zeros
        where no node is."""
        allowed, chosen, real = self.drawn(said, graphs, room, mask, uniform, normal)
        each, _ = self.evaluate(said, chosen, allowed, real)
        log_p = segment_sum(each[:, None], graphs.owner, graphs.batch).squeeze(1)
        return *self.padded(graphs, room, chosen, real), log_p

    def drawn(
        self,
        said: NodeOutputs,
        graphs: Graphs,
        room: int,
        mask: torch.Tensor,
        uniform: torch.Tensor,
        normal: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(mask [N, M], chosen [N, 1], real [N, D]) of the nodes that are there."""
        places, rows = graphs.places(room), graphs.batch * room
        allowed, u, z = (value.reshape(rows, -1)[places] for value in (mask, uniform, normal))
        chosen = self.heads.sample(said.logits, allowed, u)
        return allowed, chosen, gaussian.draw(said.means, said.log_std, z)

    @staticmethod
    def padded(
        graphs: Graphs, room: int, chosen: torch.Tensor, real: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """What nodes chose in padded arrays, [B, room] and [B, room·D]."""
        places, rows = graphs.places(room), graphs.batch * room
        all_chosen, all_real = chosen.new_zeros(rows, 1), real.new_zeros(rows, real.shape[1])
        all_chosen[places], all_real[places] = chosen, real
        return all_chosen.view(graphs.batch, -1), all_real.view(graphs.batch, -1)

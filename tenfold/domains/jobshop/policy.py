"""The network that chooses the next dispatch of any shop.

An encoder reads the shop once: operations are nodes, joined to those before and after them in their
job, and to all that need the same machine. A decoder scores the jobs at every dispatch, from what
their next operations look like now and what the encoder said of them.
"""

import torch
from torch import Tensor, nn

from tenfold.domains.jobshop.dispatch import (
    FEATURES,
    STATIC,
    Seen,
    Shops,
    described,
    dispatched,
    opened,
    seen,
)
from tenfold.nets.flat import FlatModule


class Layer(nn.Module):
    """Each operation hears of its neighbours: the one before, the one after, the mean and the
    largest of its machine's, the mean of its job's."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix = nn.Sequential(nn.Linear(6 * width, width), nn.ReLU(), nn.Linear(width, width))
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, machine: Tensor, machines: int, there: Tensor) -> Tensor:
        I, J, K, D = x.shape
        none = x.new_zeros(I, J, 1, D)
        before, after = torch.cat([none, x[:, :, :-1]], 2), torch.cat([x[:, :, 1:], none], 2)
        job = x.sum(2, keepdim=True) / there.sum(2, keepdim=True).clamp(min=1)
        where = machine.reshape(I, J * K, 1).expand(-1, -1, D)
        flat = x.reshape(I, J * K, D)
        room = x.new_zeros(I, machines + 1, D)
        mean = room.scatter_reduce(1, where, flat, "mean", include_self=False).gather(1, where)
        most = room.scatter_reduce(1, where, flat, "amax", include_self=False).gather(1, where)
        heard = (x, before, after, mean.view_as(x), most.view_as(x), job.expand_as(x))
        return self.norm(x + self.mix(torch.cat(heard, 3))) * there


class DispatchNet(FlatModule):
    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.width = width
        self.enter = nn.Linear(STATIC, width)
        self.layers = nn.ModuleList(Layer(width) for _ in range(layers))
        self.look = nn.Linear(FEATURES, width)
        self.recall = nn.Linear(width, width, bias=False)
        self.second = nn.Linear(width, width)
        self.compare = nn.Linear(5 * width, width)
        self.score = nn.Sequential(nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))

    def encode(self, shops: Shops) -> Tensor:
        """[I, J, K + 1, width]: what the decoder recalls of each operation; of none behind the
        last."""
        x = described(shops)
        there = x[..., -1:]
        x = torch.relu(self.enter(x)) * there
        machine = shops.machine[..., :-1]
        for layer in self.layers:
            x = layer(x, machine, shops.load.shape[1] - 1, there)
        return nn.functional.pad(self.recall(x), (0, 0, 0, 1))

    def decode(self, seen: Seen, recalled: Tensor) -> Tensor:
        """Scores [I, S, J] of jobs whose next operations are recalled as [I, S, J, width]; minus
        infinity where they may not be chosen."""
        x = torch.relu(self.look(seen.features) + recalled)
        x = torch.relu(self.second(x))
        waiting, allowed = (part[..., None].float() for part in (seen.waiting, seen.allowed))
        together = [
            part
            for those in (allowed, waiting)
            for part in (
                (x * those).sum(2, keepdim=True) / those.sum(2, keepdim=True).clamp(min=1),
                (x * those).amax(2, keepdim=True),
            )
        ]
        own, *others = self.compare.weight.split(self.width, 1)
        context = sum(nn.functional.linear(part, weight) for part, weight in zip(together, others, strict=True))
        scores = self.score(nn.functional.linear(x, own, self.compare.bias) + context).squeeze(3)
        return scores.masked_fill(~seen.allowed, -torch.inf)


def recalled(memory: Tensor, following: Tensor) -> Tensor:
    """[I, S, J, width]: of each job's next operation."""
    wide = memory[:, None].expand(-1, following.shape[1], -1, -1, -1)
    index = following[..., None, None].expand(-1, -1, -1, 1, memory.shape[3])
    return wide.gather(3, index).squeeze(3)


# whole schedules


@torch.no_grad()
def played(
    net: DispatchNet, shops: Shops, schedules: int, source: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """Makespans [I, S] and the jobs that were dispatched [dispatches, I, S]: drawn by random
    numbers of `source`, or without it the best. In a shop that has fewer operations than the
    largest, job 0 is named when all is done."""
    memory, floor, order = net.encode(shops), opened(shops, schedules), []
    for _ in range(shops.dispatches):
        now = seen(shops, floor)
        scores = net.decode(now, recalled(memory, floor.following))
        if source is not None:  # Gumbel's trick: the largest of score - log(exponential) is a draw
            scores = scores - torch.empty_like(scores).exponential_(generator=source).log()
        order.append(scores.argmax(2))
        floor = dispatched(shops, floor, order[-1])
    return floor.ready.amax(2), torch.stack(order)


def likelihood_reference(net: DispatchNet, shops: Shops, order: Tensor) -> Tensor:
    """Mean log-probability of the choices in orders [dispatches, I], step by step, where there was
    more than one option."""
    memory, floor = net.encode(shops), opened(shops, 1)
    total, choices = torch.zeros(()), 0
    for job in order:
        now = seen(shops, floor)
        scores = net.decode(now, recalled(memory, floor.following))
        for i in range(len(job)):
            if now.allowed[i, 0].sum() > 1:
                total = total + scores[i, 0].log_softmax(0)[job[i]]
                choices += 1
        floor = dispatched(shops, floor, job[:, None])
    return total / max(choices, 1)


def likelihood(net: DispatchNet, shops: Shops, order: Tensor) -> Tensor:
    """The same with all steps in one forward pass: what is seen does not depend on parameters."""
    floor, moments = opened(shops, 1), []
    with torch.no_grad():
        for job in order:
            moments.append((*seen(shops, floor), floor.following))
            floor = dispatched(shops, floor, job[:, None])
    *parts, following = (torch.cat(part, 1) for part in zip(*moments, strict=True))
    now = Seen(*parts)
    scores = net.decode(now, recalled(net.encode(shops), following))
    choice = now.allowed.sum(2) > 1
    scores = torch.where(choice[..., None], scores, 0.0)  # no -inf - -inf where all is done
    chosen = scores.log_softmax(2).gather(2, order.T[..., None]).squeeze(2)
    return torch.where(choice, chosen, 0.0).sum() / choice.sum().clamp(min=1)

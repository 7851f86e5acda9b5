"""The network that chooses the next dispatch of any shop.

An encoder reads the shop once: operations are nodes, joined to those before and after them in their
job, and to all that need the same machine. A decoder scores the jobs at every dispatch, from what
their next operations look like now and what the encoder said of them.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tenfold.core.pairs import pair
from tenfold.domains.jobshop.dispatch import (
    FEATURES,
    STATIC,
    FloorState,
    FloorView,
    ShopBatch,
    apply_dispatch,
    batch,
    empty_floor,
    operation_features,
    view_floor,
)
from tenfold.domains.jobshop.instances import random_shop
from tenfold.nets.flat import FlatModule


class OperationLayer(nn.Module):
    """Each operation receives its neighbours: the one before, the one after, the mean and the
    largest of its machine's, the mean of its job's."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix = nn.Sequential(nn.Linear(6 * width, width), nn.ReLU(), nn.Linear(width, width))
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, machine: Tensor, machines: int, exists: Tensor) -> Tensor:
        N, J, K, D = x.shape
        none = x.new_zeros(N, J, 1, D)
        before, after = torch.cat([none, x[:, :, :-1]], 2), torch.cat([x[:, :, 1:], none], 2)
        job = x.sum(2, keepdim=True) / exists.sum(2, keepdim=True).clamp(min=1)
        where = machine.reshape(N, J * K, 1).expand(-1, -1, D)
        flat = x.reshape(N, J * K, D)
        room = x.new_zeros(N, machines + 1, D)
        mean = room.scatter_reduce(1, where, flat, "mean", include_self=False).gather(1, where)
        most = room.scatter_reduce(1, where, flat, "amax", include_self=False).gather(1, where)
        heard = (x, before, after, mean.view_as(x), most.view_as(x), job.expand_as(x))
        return self.norm(x + self.mix(torch.cat(heard, 3))) * exists


class DispatchNet(FlatModule):
    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.width = width
        self.enter = nn.Linear(STATIC, width)
        self.layers = nn.ModuleList(OperationLayer(width) for _ in range(layers))
        self.look = nn.Linear(FEATURES, width)
        self.recall = nn.Linear(width, width, bias=False)
        self.second = nn.Linear(width, width)
        self.query = nn.Linear(width, width)
        self.gather = nn.Linear(4 * width, width, bias=False)
        self.score = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))

    def encode(self, shops: ShopBatch) -> Tensor:
        """[N, J, K + 1, width]: what the decoder recalls of each operation; of none behind the
        last."""
        x = operation_features(shops)
        exists = x[..., -1:]
        x = torch.relu(self.enter(x)) * exists
        machine = shops.machine[..., :-1]
        for layer in self.layers:
            x = layer(x, machine, shops.load.shape[1] - 1, exists)
        return nn.functional.pad(self.recall(x), (0, 0, 0, 1))

    def decode(self, view: FloorView, gather_next: Tensor) -> Tensor:
        """Scores [N, S, J] of jobs whose next operations are recalled as [N, S, J, width]; minus
        infinity where they may not be chosen."""
        x = self.read(view.features, gather_next)
        scores = self.compared(x, self.context(x, view.allowed, view.waiting)[..., None, :])
        return scores.masked_fill(~view.allowed, -torch.inf)

    def read(self, features: Tensor, gather_next: Tensor) -> Tensor:
        """[..., J, width]: each job by itself."""
        return torch.relu(self.second(torch.relu(self.look(features) + gather_next)))

    def context(self, x: Tensor, allowed: Tensor, waiting: Tensor) -> Tensor:
        """[..., width]: the mean and the largest of the jobs that may be chosen, and of all that
        wait."""
        pooled = []
        for those in (allowed[..., None].to(x.dtype), waiting[..., None].to(x.dtype)):
            theirs = x * those
            pooled += [theirs.sum(-2) / those.sum(-2).clamp(min=1), theirs.amax(-2)]
        return self.gather(torch.cat(pooled, -1))

    def compared(self, x: Tensor, context: Tensor) -> Tensor:
        """[...]: the score of a job among the others."""
        return self.score(torch.relu(self.query(x) + context)).squeeze(-1)


def gather_next(memory: Tensor, following: Tensor) -> Tensor:
    """[N, S, J, width]: of each job's next operation."""
    wide = memory[:, None].expand(-1, following.shape[1], -1, -1, -1)
    index = following[..., None, None].expand(-1, -1, -1, 1, memory.shape[3])
    return wide.gather(3, index).squeeze(3)


def log_probabilities(now: FloorView, scores: Tensor) -> Tensor:
    """log π [N, S, J] of what may be chosen; 0 where there is no choice, and for other jobs."""
    choice = (now.allowed.sum(2) > 1)[..., None]
    log_prob = torch.where(choice, scores, 0.0).log_softmax(2)  # no -inf - -inf where all is done
    return torch.where(choice & now.allowed, log_prob, 0.0)


def choices_reference(net: DispatchNet, shops: ShopBatch, floor: FloorState) -> Tensor:
    """log π [N, S, J] of every job."""
    now = view_floor(shops, floor)
    scores = net.decode(now, gather_next(net.encode(shops), floor.following))
    return log_probabilities(now, scores)


def moments(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """Shops of one size and of several, from their first dispatch to beyond the last of some."""
    kind = getattr(torch, dtype)
    for sizes, schedules in ((((1, 1),), 1), (((5, 4), (5, 4)), 3), (((2, 3), (6, 2)), 2)):
        shops = batch([random_shop(rng, *size) for size in sizes])
        shops = ShopBatch(*(t.to(kind) if t.is_floating_point() else t for t in shops))
        net = DispatchNet(int(rng.integers(1, 9)), 2).to(kind).flatten()
        floor = empty_floor(shops, schedules)
        for t in range(shops.dispatches + 1):
            if t % 3 == 0:
                yield net, shops, floor
            draw = torch.from_numpy(rng.random(floor.ready.shape))
            floor = apply_dispatch(
                shops, floor, (draw * view_floor(shops, floor).allowed).argmax(2)
            )


@pair(
    choices_reference,
    moments,
    dtypes=("float32", "float64"),
    rtol=1e-5,
    atol=1e-6,
    name="envs.jobshop.choices",
)
def choices(net: DispatchNet, shops: ShopBatch, floor: FloorState) -> Tensor:
    """The same by `scores`."""
    now = view_floor(shops, floor)
    job_scores = scores(net, net.encode(shops), now, floor.following)
    return log_probabilities(now, job_scores)


def scores(net: DispatchNet, memory: Tensor, now: FloorView, following: Tensor) -> Tensor:
    """What `decode` gives [N, S, J], but only where there is a choice, which is at about half of
    all dispatches, and only of jobs that may be chosen, two or three of them; else 0 for the only
    option."""
    i, s = (now.allowed.sum(2) > 1).nonzero(as_tuple=True)
    allowed, waiting, k = now.allowed[i, s], now.waiting[i, s], following[i, s]
    jobs = torch.arange(k.shape[1], device=k.device)
    x = net.read(now.features[i, s], memory[i[:, None], jobs, k])
    n, j = allowed.nonzero(as_tuple=True)
    scored = net.compared(x[n, j], net.context(x, allowed, waiting)[n])
    none = x.new_zeros(now.allowed.shape).masked_fill(~now.allowed, -torch.inf)
    return none.index_put((i[n], s[n], j), scored)


# whole schedules


@torch.no_grad()
def play_schedules(
    net: DispatchNet, shops: ShopBatch, schedules: int, source: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """Makespans [N, S] and the jobs that were dispatched [dispatches, N, S]: drawn by random
    numbers of `source`, or without it the best. In a shop that has fewer operations than the
    largest, job 0 is named when all is done."""
    memory, floor, order = net.encode(shops), empty_floor(shops, schedules), []
    for _ in range(shops.dispatches):
        job_scores = scores(net, memory, view_floor(shops, floor), floor.following)
        if source is not None:  # Gumbel's trick: the largest of score - log(exponential) is a draw
            job_scores = (
                job_scores - torch.empty_like(job_scores).exponential_(generator=source).log()
            )
        order.append(job_scores.argmax(2))
        floor = apply_dispatch(shops, floor, order[-1])
    return floor.ready.amax(2), torch.stack(order)


def likelihood_reference(net: DispatchNet, shops: ShopBatch, order: Tensor) -> Tensor:
    """Mean log-probability of the choices in orders [dispatches, N], step by step, where there was
    more than one option."""
    memory, floor = net.encode(shops), empty_floor(shops, 1)
    total, count = memory.new_zeros(()), 0
    for job in order:
        now = view_floor(shops, floor)
        job_scores = net.decode(now, gather_next(memory, floor.following))
        for i in range(len(job)):
            if now.allowed[i, 0].sum() > 1:
                total = total + job_scores[i, 0].log_softmax(0)[job[i]]
                count += 1
        floor = apply_dispatch(shops, floor, job[:, None])
    return total / max(count, 1)


def likelihood(net: DispatchNet, shops: ShopBatch, order: Tensor) -> Tensor:
    """The same with all steps in one forward pass: observations do not depend on parameters."""
    floor, moments = empty_floor(shops, 1), []
    with torch.no_grad():
        for job in order:
            moments.append((*view_floor(shops, floor), floor.following))
            floor = apply_dispatch(shops, floor, job[:, None])
    *columns, following = (torch.cat(part, 1) for part in zip(*moments, strict=True))
    now = FloorView(*columns)
    choice = now.allowed.sum(2) > 1
    log_prob = log_probabilities(now, scores(net, net.encode(shops), now, following))
    return log_prob.gather(2, order.T[..., None]).sum() / choice.sum().clamp(min=1)

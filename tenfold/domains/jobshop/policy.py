"""The network that chooses the next dispatch of any shop.

An encoder reads the shop once: operations are nodes, joined to those before and after them in their
job, and to all that need the same machine. A decoder scores the jobs at every dispatch, from the
features of their next operations and the encoder's embeddings of these.
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
from tenfold.nets.layers import FlatModule


class OperationLayer(nn.Module):
    """Message passing between operations: each receives the one before and after it in the job, the
    mean and the maximum of its machine's, the mean of its job's."""

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
        zeros = x.new_zeros(N, machines + 1, D)
        mean = zeros.scatter_reduce(1, where, flat, "mean", include_self=False).gather(1, where)
        most = zeros.scatter_reduce(1, where, flat, "amax", include_self=False).gather(1, where)
        neighbours = (x, before, after, mean.view_as(x), most.view_as(x), job.expand_as(x))
        return self.norm(x + self.mix(torch.cat(neighbours, 3))) * exists


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
        """Embeddings [N, J, K + 1, width] of the operations; 0 behind the last."""
        x = operation_features(shops)
        exists = x[..., -1:]
        x = torch.relu(self.enter(x)) * exists
        machine = shops.machine[..., :-1]
        for layer in self.layers:
            x = layer(x, machine, shops.load.shape[1] - 1, exists)
        return nn.functional.pad(self.recall(x), (0, 0, 0, 1))

    def decode(self, view: FloorView, gather_next: Tensor) -> Tensor:
        """Scores [N, S, J] from the embeddings of next operations [N, S, J, width]; minus infinity
        for jobs that may not be dispatched."""
        x = self.read(view.features, gather_next)
        scores = self.score_jobs(x, self.context(x, view.allowed, view.waiting)[..., None, :])
        return scores.masked_fill(~view.allowed, -torch.inf)

    def read(self, features: Tensor, gather_next: Tensor) -> Tensor:
        """[..., J, width]: each job by itself."""
        return torch.relu(self.second(torch.relu(self.look(features) + gather_next)))

    def context(self, x: Tensor, allowed: Tensor, waiting: Tensor) -> Tensor:
        """[..., width]: the mean and the maximum over the candidates, and over all jobs that have
        an operation left."""
        pooled = []
        for mask in (allowed[..., None].to(x.dtype), waiting[..., None].to(x.dtype)):
            masked = x * mask
            pooled += [masked.sum(-2) / mask.sum(-2).clamp(min=1), masked.amax(-2)]
        return self.gather(torch.cat(pooled, -1))

    def score_jobs(self, x: Tensor, context: Tensor) -> Tensor:
        """[...]: the score of a job among the others."""
        return self.score(torch.relu(self.query(x) + context)).squeeze(-1)


def gather_next(memory: Tensor, next_op: Tensor) -> Tensor:
    """[N, S, J, width]: the embedding of each job's next operation."""
    wide = memory[:, None].expand(-1, next_op.shape[1], -1, -1, -1)
    index = next_op[..., None, None].expand(-1, -1, -1, 1, memory.shape[3])
    return wide.gather(3, index).squeeze(3)


def log_probabilities(now: FloorView, scores: Tensor) -> Tensor:
    """log π [N, S, J] of the candidates; 0 where there is no choice, and for other jobs."""
    choice = (now.allowed.sum(2) > 1)[..., None]
    log_prob = torch.where(choice, scores, 0.0).log_softmax(2)  # no -inf - -inf where all is done
    return torch.where(choice & now.allowed, log_prob, 0.0)


def choices_reference(net: DispatchNet, shops: ShopBatch, floor: FloorState) -> Tensor:
    """log π [N, S, J] of every job."""
    now = view_floor(shops, floor)
    scores = net.decode(now, gather_next(net.encode(shops), floor.next_op))
    return log_probabilities(now, scores)


def random_floors(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
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
    random_floors,
    dtypes=("float32", "float64"),
    rtol=1e-5,
    atol=1e-6,
    name="envs.jobshop.choices",
)
def choices(net: DispatchNet, shops: ShopBatch, floor: FloorState) -> Tensor:
    """`choices_reference` by `scores`."""
    now = view_floor(shops, floor)
    job_scores = scores(net, net.encode(shops), now, floor.next_op)
    return log_probabilities(now, job_scores)


def scores(net: DispatchNet, memory: Tensor, now: FloorView, next_op: Tensor) -> Tensor:
    """The scores of `decode` [N, S, J], computed only where there is a choice (at about half of all
    dispatches) and only for its candidates (two or three jobs); 0 for an only candidate."""
    i, s = (now.allowed.sum(2) > 1).nonzero(as_tuple=True)
    allowed, waiting, k = now.allowed[i, s], now.waiting[i, s], next_op[i, s]
    jobs = torch.arange(k.shape[1], device=k.device)
    x = net.read(now.features[i, s], memory[i[:, None], jobs, k])
    n, j = allowed.nonzero(as_tuple=True)
    scored = net.score_jobs(x[n, j], net.context(x, allowed, waiting)[n])
    none = x.new_zeros(now.allowed.shape).masked_fill(~now.allowed, -torch.inf)
    return none.index_put((i[n], s[n], j), scored)


# whole schedules


@torch.no_grad()
def play_schedules(
    net: DispatchNet, shops: ShopBatch, schedules: int, source: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """Makespans [N, S] and the dispatched jobs [dispatches, N, S]: sampled with `source`, greedy
    without it. Shops with fewer operations than the largest name job 0 after their last
    dispatch."""
    memory, floor, order = net.encode(shops), empty_floor(shops, schedules), []
    for _ in range(shops.dispatches):
        job_scores = scores(net, memory, view_floor(shops, floor), floor.next_op)
        if source is not None:  # Gumbel's trick: the largest of score - log(exponential) is a draw
            job_scores = (
                job_scores - torch.empty_like(job_scores).exponential_(generator=source).log()
            )
        order.append(job_scores.argmax(2))
        floor = apply_dispatch(shops, floor, order[-1])
    return floor.ready.amax(2), torch.stack(order)


def likelihood_reference(net: DispatchNet, shops: ShopBatch, order: Tensor) -> Tensor:
    """Mean log-probability of the choices in orders [dispatches, N], step by step, where there was
    more than one candidate."""
    memory, floor = net.encode(shops), empty_floor(shops, 1)
    total, count = memory.new_zeros(()), 0
    for job in order:
        now = view_floor(shops, floor)
        job_scores = net.decode(now, gather_next(memory, floor.next_op))
        for i in range(len(job)):
            if now.allowed[i, 0].sum() > 1:
                total = total + job_scores[i, 0].log_softmax(0)[job[i]]
                count += 1
        floor = apply_dispatch(shops, floor, job[:, None])
    return total / max(count, 1)


def likelihood(net: DispatchNet, shops: ShopBatch, order: Tensor) -> Tensor:
    """`likelihood_reference` with all steps in one forward pass: observations do not depend on
    parameters."""
    floor, views = empty_floor(shops, 1), []
    with torch.no_grad():
        for job in order:
            views.append((*view_floor(shops, floor), floor.next_op))
            floor = apply_dispatch(shops, floor, job[:, None])
    *columns, next_op = (torch.cat(part, 1) for part in zip(*views, strict=True))
    now = FloorView(*columns)
    choice = now.allowed.sum(2) > 1
    log_prob = log_probabilities(now, scores(net, net.encode(shops), now, next_op))
    return log_prob.gather(2, order.T[..., None]).sum() / choice.sum().clamp(min=1)

"""Rows that belong together by an index: sum, mean, maximum and softmax of every segment in one
pass; packed graphs, also from padded rows; and actions of which every node chooses its own.

`index[i]` says which of `count` segments row i belongs to, in any order; a segment may be empty
(sum, mean and maximum are 0).
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from tenfold.core.graph_spaces import GraphSize
from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.ops import gaussian
from tenfold.ops.heads import MaskedHeads

EQUAL: Any = {"rtol": 1e-5, "atol": 1e-6, "dtypes": ("float32", "float64"), "gradients": (0,)}


class Graphs(NamedTuple):
    """A batch of graphs of different sizes: the rows of all nodes, then of all edges, one graph
    after another.

    Graph b has the nodes ptr[b] … ptr[b + 1] − 1. Links are pairs of such rows, (source, target)
    [2, E].
    """

    nodes: torch.Tensor  # [N, F]
    ptr: torch.Tensor  # [B + 1]
    owner: torch.Tensor  # [N]: the graph of each node
    links: torch.Tensor  # [2, E]
    edges: torch.Tensor  # [E, F']
    whole: torch.Tensor  # [B, G]

    @property
    def batch(self) -> int:
        return self.ptr.shape[0] - 1  # len() would be one number to whoever traces it

    def places(self, room: int) -> torch.Tensor:
        """Where each node lies in an array with `room` places for every graph."""
        return torch.arange(self.owner.shape[0], device=self.owner.device) + (
            self.owner * room - self.ptr[self.owner]
        )


def rows(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """x[index]; its gradient is one index_add, a fifth of what brackets cost."""
    return x.index_select(0, index)


def segment_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for size, width, count in (
        (1, (1,), 1),
        (7, (3,), 4),
        (5, (2,), 9),
        (40, (4, 3), 6),
        (200, (8,), 64),
    ):
        index = torch.from_numpy(rng.integers(0, count, size))
        yield torch.from_numpy(rng.normal(size=(size, *width)).astype(dtype)), index, count


def members(x, index, count):
    return [x[index == s] for s in range(count)]


def segment_sum_reference(x, index, count):
    return torch.stack([segment.sum(0) for segment in members(x, index, count)])


@pair(segment_sum_reference, segment_examples, **EQUAL)
def segment_sum(x: torch.Tensor, index: torch.Tensor, count: int) -> torch.Tensor:
    if torch.compiler.is_compiling() and not torch.compiler.is_dynamo_compiling():
        # traced for a file: ONNX Runtime adds in several threads what `index_add` becomes there
        # (ScatterND), without a lock, and in one what this becomes (ScatterElements)
        wide = index.view(-1, *(1,) * (x.dim() - 1)).expand_as(x)
        return x.new_zeros(count, *x.shape[1:]).scatter_add(0, wide, x)
    return x.new_zeros(count, *x.shape[1:]).index_add_(0, index, x)


def segment_max_reference(x, index, count):
    return torch.stack(
        [
            segment.amax(0) if len(segment) else segment.sum(0)
            for segment in members(x, index, count)
        ]
    )


@pair(segment_max_reference, segment_examples, **EQUAL)
def segment_max(x: torch.Tensor, index: torch.Tensor, count: int) -> torch.Tensor:
    wide = index.view(-1, *(1,) * (x.dim() - 1)).expand_as(x)
    return x.new_zeros(count, *x.shape[1:]).scatter_reduce(0, wide, x, "amax", include_self=False)


def segment_softmax_reference(x, index, count):
    softmax = torch.zeros_like(x)
    for s in range(count):
        if (index == s).any():
            softmax = softmax.index_put((torch.where(index == s)[0],), x[index == s].softmax(0))
    return softmax


@pair(segment_softmax_reference, segment_examples, **EQUAL)
def segment_softmax(x: torch.Tensor, index: torch.Tensor, count: int) -> torch.Tensor:
    """exp(x) / Σ exp(x) within each segment, in every column. The largest is taken out first, so
    that no exponent overflows."""
    high = segment_max(x.detach(), index, count)
    scaled = (x - rows(high, index)).exp()
    return scaled / rows(segment_sum(scaled, index, count), index)


# choices of nodes: an option, and numbers that count where their option is chosen. Actions lie in
# padded arrays with room for every node a graph can have; outputs of a network lie in packed rows,
# one for every node that exists, and only those rows are worked on.


class NodeOutputs(NamedTuple):
    """A network's outputs for the nodes that exist."""

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
        self, output: NodeOutputs, discrete: torch.Tensor, mask: torch.Tensor, real: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(log-probability [N], entropy [N]) of what each node chose: chosen [N, 1], mask [N, M],
        real [N, D]. The joint ones are the sums over a graph."""
        number_log_p = gaussian.log_prob(output.means, output.log_std, real)
        entropy = gaussian.policy_entropy(output.means, output.log_std, self.bounds, self.learned)
        counts = (self.heads.one_hot(discrete).bool() & mask)[:, self.gates.clamp(min=0)] | (
            self.gates < 0
        )
        log_p, more = self.heads.evaluate(output.logits, discrete, mask)
        return log_p.sum(1) + torch.where(counts, number_log_p, 0.0).sum(1), more.sum(
            1
        ) + torch.where(counts, entropy, 0.0).sum(1)

    def kl(self, old: NodeOutputs, output: NodeOutputs, mask: torch.Tensor) -> torch.Tensor:
        """KL(old ‖ new) [N] in closed form: the option's, and the numbers' as often as the old
        policy takes their option."""
        often = (self.heads.log_softmax(old.logits, mask).exp() * mask)[:, self.gates.clamp(min=0)]
        often = torch.where(self.gates < 0, 1.0, often)
        of_numbers = gaussian.kl(old.means, old.log_std, output.means, output.log_std)
        return self.heads.kl(old.logits, output.logits, mask).sum(1) + (often * of_numbers).sum(1)

    def act(
        self,
        output: NodeOutputs,
        graphs: Graphs,
        room: int,
        mask: torch.Tensor,
        uniform: torch.Tensor,
        normal: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(chosen [B, room], real [B, room·D], joint log-probability [B]) from padded draws, zeros
        where no node is."""
        allowed, discrete, real = self.draw_packed(output, graphs, room, mask, uniform, normal)
        per_node, _ = self.evaluate(output, discrete, allowed, real)
        log_p = segment_sum(per_node[:, None], graphs.owner, graphs.batch).squeeze(1)
        return *self.padded(graphs, room, discrete, real), log_p

    def draw_packed(
        self,
        output: NodeOutputs,
        graphs: Graphs,
        room: int,
        mask: torch.Tensor,
        uniform: torch.Tensor,
        normal: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(mask [N, M], chosen [N, 1], real [N, D]) of the nodes that are there."""
        places, rows = graphs.places(room), graphs.batch * room
        allowed, u, z = (value.reshape(rows, -1)[places] for value in (mask, uniform, normal))
        discrete = self.heads.sample(output.logits, allowed, u)
        return allowed, discrete, gaussian.draw(output.means, output.log_std, z)

    @staticmethod
    def padded(
        graphs: Graphs, room: int, discrete: torch.Tensor, real: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """What nodes chose in padded arrays, [B, room] and [B, room·D]."""
        places, rows = graphs.places(room), graphs.batch * room
        all_discrete, all_real = discrete.new_zeros(rows, 1), real.new_zeros(rows, real.shape[1])
        all_discrete[places], all_real[places] = discrete, real
        return all_discrete.view(graphs.batch, -1), all_real.view(graphs.batch, -1)


# rows of graphs (`GraphSize` says how one lies in a row) as packed batches


Parts = tuple[np.ndarray, ...]


def pack(rows: torch.Tensor, size: GraphSize) -> Graphs:
    """The graphs of rows [B, size]; nodes and edges that are not there take no room."""
    if rows.device.type != "cpu" or torch.compiler.is_compiling():
        return pack_anywhere(rows, size)
    arrays = pack_rows(
        rows.numpy(), np.array([size.nodes, size.edges, size.node, size.edge, size.whole])
    )
    return Graphs(*map(torch.from_numpy, arrays))


def row_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for batch, size in (
        (1, GraphSize(4, 3, 2, 1)),
        (5, GraphSize(7, 9, 3, 2, 4)),
        (33, GraphSize(20, 20, 12, 3, 9)),
    ):
        rows = np.zeros((batch, size.starts[-1]), np.float32)
        for row in rows:
            n, e = int(rng.integers(0, size.nodes + 1)), int(rng.integers(0, size.edges + 1))
            e = e if n else 0
            start, links, edges, _ = size.starts
            row[:2] = n, e
            row[2:start] = rng.normal(size=size.whole)
            row[start : start + n * size.node] = rng.normal(size=n * size.node)
            row[links : links + 2 * e] = rng.integers(0, max(n, 1), 2 * e)
            row[edges : edges + e * size.edge] = rng.normal(size=e * size.edge)
        yield rows, np.array([size.nodes, size.edges, size.node, size.edge, size.whole])


def pack_rows_reference(rows, size):
    """One graph, one node, one edge at a time."""
    shape = GraphSize(*map(int, size))
    start, first_link, first_edge, _ = shape.starts
    nodes, ptr, owner, links, edges, whole = [], [0], [], [], [], []
    for b, row in enumerate(rows):
        n, e = int(row[0]), int(row[1])
        for i in range(n):
            nodes.append(row[start + i * shape.node : start + (i + 1) * shape.node])
            owner.append(b)
        for j in range(e):
            links.append(
                row[first_link + 2 * j : first_link + 2 * j + 2].astype(np.int64) + ptr[-1]
            )
            edges.append(row[first_edge + j * shape.edge : first_edge + (j + 1) * shape.edge])
        whole.append(row[2:start])
        ptr.append(ptr[-1] + n)
    return (
        np.array(nodes, np.float32).reshape(-1, shape.node),
        np.array(ptr),
        np.array(owner, np.int64),
        np.array(links, np.int64).reshape(-1, 2).T,
        np.array(edges, np.float32).reshape(-1, shape.edge),
        np.array(whole, np.float32),
    )


@pair(pack_rows_reference, row_examples)
@kernel
def pack_rows(rows, size):
    room, room_edges, width, edge_width, whole_width = size
    start = 2 + whole_width
    first_link = start + room * width
    first_edge = first_link + 2 * room_edges
    batch = rows.shape[0]
    ptr = np.zeros(batch + 1, np.int64)
    total = 0
    for b in range(batch):
        ptr[b + 1] = ptr[b] + np.int64(rows[b, 0])
        total += np.int64(rows[b, 1])
    nodes, owner = np.empty((ptr[batch], width), np.float32), np.empty(ptr[batch], np.int64)
    links, edges = np.empty((2, total), np.int64), np.empty((total, edge_width), np.float32)
    whole = np.empty((batch, whole_width), np.float32)
    at = 0
    for b in range(batch):
        for f in range(whole_width):
            whole[b, f] = rows[b, 2 + f]
        for i in range(ptr[b + 1] - ptr[b]):
            owner[ptr[b] + i] = b
            for f in range(width):
                nodes[ptr[b] + i, f] = rows[b, start + i * width + f]
        for j in range(np.int64(rows[b, 1])):
            for end in range(2):
                links[end, at] = ptr[b] + np.int64(rows[b, first_link + 2 * j + end])
            for f in range(edge_width):
                edges[at, f] = rows[b, first_edge + j * edge_width + f]
            at += 1
    return nodes, ptr, owner, links, edges, whole


def anywhere_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for rows, size in row_examples(rng, dtype):
        yield torch.from_numpy(rows), GraphSize(*map(int, size))


def pack_anywhere_reference(rows, size):
    return pack_rows_reference(
        rows.numpy(), (size.nodes, size.edges, size.node, size.edge, size.whole)
    )


@pair(pack_anywhere_reference, anywhere_examples)
def pack_anywhere(rows: torch.Tensor, size: GraphSize) -> Graphs:
    """The same by masks, on any device."""
    start, first_link, first_edge, end = size.starts
    batch, device = rows.shape[0], rows.device
    counts = rows[:, :2].long()
    node_there = torch.arange(size.nodes, device=device) < counts[:, :1]
    edge_there = torch.arange(size.edges, device=device) < counts[:, 1:]
    ptr = torch.nn.functional.pad(counts[:, 0].cumsum(0), (1, 0))
    owner = torch.arange(batch, device=device).repeat_interleave(counts[:, 0])
    links = (
        rows[:, first_link:first_edge].view(batch, size.edges, 2).long() + ptr[:-1, None, None]
    )[edge_there]
    return Graphs(
        rows[:, start:first_link].view(batch, size.nodes, size.node)[node_there],
        ptr,
        owner,
        links.T,
        rows[:, first_edge:end].view(batch, size.edges, size.edge)[edge_there],
        rows[:, 2:start],
    )

"""Rows of graphs (`GraphSize` says how one lies in a row) as packed batches, `Graphs`."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from tenfold.core.graph_spaces import GraphSize
from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.ops.segments import Graphs

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

"""Graphs as observations, and numbers that hang on a choice: Gymnasium spaces, and how a graph lies
in a row."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from tenfold.core.errors import ObservationError


class BoundedGraph(spaces.Graph):
    """Graphs of at most `max_nodes` nodes and `max_edges` edges, so that one fits into a row of
    known size. Without `edge_space` edges have no numbers: a graph is then its nodes and
    `edge_links`."""

    def __init__(
        self,
        node_space: spaces.Box,
        edge_space: spaces.Box | None,
        max_nodes: int,
        max_edges: int,
        seed: Any = None,
    ) -> None:
        super().__init__(node_space, edge_space, seed)
        self.max_nodes, self.max_edges = max_nodes, max_edges

    def contains(self, x: Any) -> bool:
        if not isinstance(x, spaces.GraphInstance):
            return False
        links = x.edge_links
        # Gymnasium knows no such graph
        if self.edge_space is None and x.edges is None and isinstance(links, np.ndarray):
            x = spaces.GraphInstance(x.nodes, None, None)
            if links.ndim != 2 or links.shape[1] != 2 or links.dtype.kind not in "iu":
                return False
            if len(links) and not (links.min() >= 0 and links.max() < len(x.nodes)):
                return False
        return (
            super().contains(x)
            and len(x.nodes) <= self.max_nodes
            and (links is None or len(links) <= self.max_edges)
        )

    def sample(
        self,
        mask: Any = None,
        probability: Any = None,
        num_nodes: int | None = None,
        num_edges: int | None = None,
    ) -> spaces.GraphInstance:
        nodes = (
            int(self.np_random.integers(1, self.max_nodes + 1)) if num_nodes is None else num_nodes
        )
        edges = (
            int(self.np_random.integers(0, self.max_edges + 1)) if num_edges is None else num_edges
        )
        edges = edges if nodes > 1 else 0
        if self.edge_space is not None:
            return super().sample(mask, probability, nodes, edges)
        bare = super().sample(mask, probability, nodes)
        return spaces.GraphInstance(
            bare.nodes, None, self.np_random.integers(0, nodes, (edges, 2), np.int32)
        )

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, BoundedGraph)
            and super().__eq__(other)
            and (self.max_nodes, self.max_edges) == (other.max_nodes, other.max_edges)
        )


class Gated(spaces.Box):
    """Numbers of shape (C, D) beside a MultiDiscrete of C components: row i counts only where
    component i chose `option`."""

    def __init__(
        self, low: Any, high: Any, option: int, dtype: Any = np.float32, seed: Any = None
    ) -> None:
        super().__init__(low, high, dtype=dtype, seed=seed)
        self.option = option


@dataclass(frozen=True)
class GraphSize:
    """A graph in a row: [n, e | numbers of the whole | of each node | links (source, target) |
    numbers of each edge], room for `nodes` and `edges` of them, zeros where there are none."""

    nodes: int
    edges: int
    node: int  # numbers of each
    edge: int
    whole: int = 0

    @property
    def starts(self) -> tuple[int, int, int, int]:
        """Where nodes, links and edges begin, and the row's size."""
        nodes = 2 + self.whole
        links = nodes + self.nodes * self.node
        edges = links + 2 * self.edges
        return nodes, links, edges, edges + self.edges * self.edge


def write_graph(size: GraphSize, graph: Any, row: np.ndarray) -> None:
    """A graph into its row; what was there before is gone, but for the numbers of the whole."""
    sections = parts_of(graph)
    check_parts(size, *sections)
    row[:2] = len(sections[0]), len(sections[1])
    row[2 + size.whole :] = 0
    for start, values in zip(size.starts, sections, strict=False):
        row[start : start + values.size] = values.ravel()


def parts_of(graph: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nodes, links and edges."""
    if not all(hasattr(graph, name) for name in ("nodes", "edges", "edge_links")):
        raise ObservationError(
            "",
            f"is of type {type(graph).__name__}: its space promises a graph, Gymnasium's "
            "GraphInstance.",
        )
    try:
        nodes = np.asarray(graph.nodes, np.float32)
        links = (
            np.zeros((0, 2))
            if graph.edge_links is None
            else np.asarray(graph.edge_links, np.float64)
        )
        edges = (
            np.zeros((len(links), 0))
            if graph.edges is None
            else np.asarray(graph.edges, np.float32)
        )
    except (TypeError, ValueError):
        raise ObservationError(
            "", "is a graph whose nodes, edges and edge_links are not all arrays of numbers."
        ) from None
    return nodes, links, edges


def check_parts(size: GraphSize, nodes: np.ndarray, links: np.ndarray, edges: np.ndarray) -> None:
    """Refuses what the space does not promise, and what would be written over something else."""
    n, e = (len(part) if part.ndim else 0 for part in (nodes, edges))
    if n > size.nodes or e > size.edges:
        raise ObservationError(
            "",
            f"is a graph of {n} nodes and {e} edges: its space promises at most {size.nodes} and "
            f"{size.edges}.",
        )
    for what, count, values, width in (
        ("nodes", n, nodes, size.node),
        ("edges", e, edges, size.edge),
    ):
        if values.size != count * width:
            raise ObservationError(
                "",
                f"is a graph whose {what} are an array of shape {values.shape}: its space promises "
                f"{width} numbers for each.",
            )
    if links.shape != (e, 2) and links.size + e:
        raise ObservationError(
            "",
            f"is a graph of {e} edges whose edge_links have the shape {links.shape}: each edge "
            "needs a source and a target.",
        )
    links = links.reshape(e, 2)
    astray = ((links < 0) | (links >= n) | (links != np.floor(links))).any(1)
    if astray.any():
        source, target = links[astray][0]
        raise ObservationError(
            "",
            f"is a graph of {n} nodes with a link from {source:g} to {target:g}: nodes are "
            "numbered from 0.",
        )

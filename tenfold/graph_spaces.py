"""Graphs as observations, and numbers that hang on a choice: Gymnasium spaces, and how a graph lies in a row."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from tenfold.errors import EnvironmentFault


class BoundedGraph(spaces.Graph):
    """Graphs of at most `max_nodes` nodes and `max_edges` edges, so that one fits into a row of known size."""

    def __init__(self, node_space: spaces.Box, edge_space: spaces.Box, max_nodes: int, max_edges: int, seed: Any = None) -> None:
        super().__init__(node_space, edge_space, seed)
        self.max_nodes, self.max_edges = max_nodes, max_edges

    def contains(self, x: Any) -> bool:
        return super().contains(x) and len(x.nodes) <= self.max_nodes and (x.edges is None or len(x.edges) <= self.max_edges)

    def sample(self, mask: Any = None, probability: Any = None, num_nodes: int | None = None,
               num_edges: int | None = None) -> spaces.GraphInstance:
        nodes = int(self.np_random.integers(1, self.max_nodes + 1)) if num_nodes is None else num_nodes
        edges = int(self.np_random.integers(0, self.max_edges + 1)) if num_edges is None else num_edges
        return super().sample(mask, probability, nodes, edges if nodes > 1 else 0)

    def __eq__(self, other: object) -> bool:
        return (isinstance(other, BoundedGraph) and super().__eq__(other)
                and (self.max_nodes, self.max_edges) == (other.max_nodes, other.max_edges))


class Gated(spaces.Box):
    """Numbers of shape (C, D) beside a MultiDiscrete of C components: row i counts only where component i chose `option`."""

    def __init__(self, low: Any, high: Any, option: int, dtype: Any = np.float32, seed: Any = None) -> None:
        super().__init__(low, high, dtype=dtype, seed=seed)
        self.option = option


@dataclass(frozen=True)
class GraphSize:
    """A graph in a row: [n, e | numbers of the whole | of each node | links (source, target) | numbers of each edge], room for
    `nodes` and `edges` of them, zeros where there are none."""

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
    nodes, edges = np.asarray(graph.nodes), np.zeros((0, size.edge)) if graph.edges is None else np.asarray(graph.edges)
    if len(nodes) > size.nodes or len(edges) > size.edges:
        raise EnvironmentFault(f"The observation is a graph of {len(nodes)} nodes and {len(edges)} edges: its space promises at "
                               f"most {size.nodes} and {size.edges}.")
    row[:2] = len(nodes), len(edges)
    row[2 + size.whole:] = 0
    for start, values in zip(size.starts, (nodes, graph.edge_links if len(edges) else edges[:, :0], edges), strict=False):
        row[start:start + values.size] = values.ravel()

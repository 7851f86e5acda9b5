"""The network of a policy on graphs: attention along edges, and one token a graph that attends to
all of its nodes.

A batch of graphs is one packed set of rows; each graph gets what it would get alone. There is no
dropout, and no statistic of the batch: acting and evaluating see the same function.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from tenfold.config.networks import PolicyNet
from tenfold.core.graph_spaces import GraphSize
from tenfold.core.random import Purpose, fill_normal, key
from tenfold.nets.layers import FlatModule
from tenfold.nets.policy import OUTER_GAIN, POLICY_GAIN, VALUE_GAIN, orthogonal
from tenfold.ops.activations import activation_of
from tenfold.ops.segments import Graphs, NodeOutputs, rows, segment_softmax, segment_sum

LOG_STD_LIMIT = 2.0  # of a learned deviation, above; below it is the setting `least_std`


@dataclass(frozen=True)
class GraphOutputs:
    """What the heads give, by parts of the action in their order: (options or numbers of each row,
    whether there is a row for every node or one for the graph)."""

    options: tuple[tuple[int, bool], ...]
    numbers: tuple[tuple[int, bool], ...]

    def width(self, of_nodes: bool) -> int:
        """Outputs of one head: a mean and a deviation for every number."""
        return sum(n for n, nodes in self.options if nodes == of_nodes) + 2 * sum(
            n for n, nodes in self.numbers if nodes == of_nodes
        )


class Attention(nn.Module):
    """One layer: nodes attend to their neighbours by what lies between them, the token to all nodes
    of its graph, and nodes hear the token. Where nobody asks for the nodes afterwards (`nodes`
    False) only the token moves."""

    def __init__(self, width: int, edge: int, net: PolicyNet, nodes: bool) -> None:
        super().__init__()
        self.heads, self.activation = net.attention, activation_of(net.activation)
        self.norm, self.token_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.ask, self.hear = nn.Linear(width, width), nn.Linear(width, width)
        self.lift, self.sink = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        # key and value for the token; query, key and value
        self.tell = nn.Linear(width, (5 if nodes else 2) * width)
        self.nodes = nodes
        if nodes:
            # key and value, along the edge and against it
            self.between = nn.Linear(max(edge, 1), 4 * width)
            self.gather, self.from_token = nn.Linear(width, width), nn.Linear(width, width)
            self.node_norm = nn.LayerNorm(width)
            self.node_lift, self.node_sink = (
                nn.Linear(width, 2 * width),
                nn.Linear(2 * width, width),
            )

    def forward(
        self, h: torch.Tensor, token: torch.Tensor, graphs: Graphs, links: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """`links` are those of the graphs, and then the same the other way round."""
        n, width = h.shape
        heads, part = self.heads, width // self.heads
        projected = self.tell(self.norm(h)).view(n, 5 if self.nodes else 2, heads, part).unbind(1)
        query = self.ask(self.token_norm(token)).view(-1, heads, part)
        score = (rows(query, graphs.owner) * projected[0]).sum(-1) / math.sqrt(part)
        weight = segment_softmax(score, graphs.owner, graphs.batch)
        heard = segment_sum(weight[..., None] * projected[1], graphs.owner, graphs.batch).flatten(1)
        old, token = token, token + self.hear(heard)
        token = token + self.sink(self.activation(self.lift(token)))
        if self.nodes:
            source, target = links
            along, against = self.between(graphs.edges).view(-1, 2, 2, heads, part).unbind(1)
            key_between, value_between = torch.cat([along, against]).unbind(1)
            score = (rows(projected[2], target) * (rows(projected[3], source) + key_between)).sum(
                -1
            ) / math.sqrt(part)
            weight = segment_softmax(score, target, n)
            message = segment_sum(
                weight[..., None] * (rows(projected[4], source) + value_between), target, n
            ).flatten(1)
            h = h + self.gather(message) + rows(self.from_token(old), graphs.owner)
            h = h + self.node_sink(self.activation(self.node_lift(self.node_norm(h))))
        return h, token


class GraphNetwork(FlatModule):
    """Graphs -> (logits, means, log-deviations [B, M + 2D], values [B] or [B, C]). Per-node outputs
    lie in `size.nodes` places for every graph, those of nodes that are not there are 0."""

    critic = None  # of state and action, as other policies may have one
    state_size = hidden_size = 0  # it has no memory

    def __init__(
        self, size: GraphSize, outputs: GraphOutputs, net: PolicyNet, columns: int, least_std: float
    ) -> None:
        super().__init__()
        width = net.hidden[0]
        self.size, self.outputs, self.columns, self.least = (
            size,
            outputs,
            columns,
            math.log(least_std),
        )
        self.node_width, self.graph_width = outputs.width(True), outputs.width(False)
        self.read_node, self.read_whole = (
            nn.Linear(size.node, width),
            nn.Linear(max(size.whole, 1), width),
        )
        updates_nodes = [
            index < len(net.hidden) - 1 or self.node_width > 0 for index in range(len(net.hidden))
        ]
        self.layers = nn.ModuleList(
            Attention(width, size.edge, net, nodes) for nodes in updates_nodes
        )
        self.token_norm = nn.LayerNorm(width)
        self.value_head = nn.Linear(width, max(columns, 1))
        self.graph_head = nn.Linear(width, self.graph_width) if self.graph_width else None
        if self.node_width:
            self.node_norm, self.node_head = nn.LayerNorm(width), nn.Linear(width, self.node_width)
        numbers = sum(n for n, _ in outputs.numbers)
        self.log_std = nn.Parameter(torch.zeros(numbers))  # where deviations start; heads add to it
        self.flatten()

    def initialise(self, seed: int, std: float) -> "GraphNetwork":
        """Orthogonal weights and zero biases; small last layers, so that the first policy is nearly
        the same everywhere."""
        used, stream = 0, key(seed, Purpose.INIT)
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                if parameter.dim() == 1:
                    parameter.fill_(
                        math.log(std)
                        if name == "log_std"
                        else float("norm" in name and name.endswith("weight"))
                    )
                    continue
                gain = (
                    POLICY_GAIN
                    if name.startswith(("node_head", "graph_head"))
                    else VALUE_GAIN
                    if name.startswith("value_head")
                    or "hear" in name
                    or "gather" in name
                    or "sink" in name
                    else OUTER_GAIN
                )
                noise = fill_normal(stream, used, np.zeros(parameter.numel()))
                used += noise.size
                parameter.copy_(torch.from_numpy(orthogonal(noise.reshape(parameter.shape)) * gain))
        return self

    def encode(self, graphs: Graphs) -> tuple[torch.Tensor, torch.Tensor]:
        """What is known of every node [N, W] and every graph [B, W]."""
        links = torch.cat([graphs.links, graphs.links.flip(0)], 1)
        whole = graphs.whole if graphs.whole.shape[1] else graphs.whole.new_ones(graphs.batch, 1)
        if not self.size.edge:
            graphs = graphs._replace(edges=graphs.edges.new_ones(graphs.edges.shape[0], 1))
        h, token = self.read_node(graphs.nodes), self.read_whole(whole)
        for layer in self.layers:
            h, token = layer(h, token, graphs, links)
        return h, self.token_norm(token)

    def values_of(self, token: torch.Tensor) -> torch.Tensor:
        value = self.value_head(token)
        return value if self.columns else value.squeeze(-1)

    def values(self, graphs: Graphs, state: torch.Tensor) -> torch.Tensor:
        return self.values_of(self.encode(graphs)[1])

    def step(
        self, graphs: Graphs, state: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """As `PolicyNetwork` has it."""
        return *self(graphs), state

    def policy_step(self, graphs: Graphs, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self(graphs)[0], state

    def forward(self, graphs: Graphs) -> tuple[torch.Tensor, torch.Tensor]:
        h, token = self.encode(graphs)
        of_graph = self.graph_head(token)[:, None] if self.graph_head else None
        of_nodes = None
        if self.node_width:
            room = graphs.batch * self.size.nodes
            node_output = self.node_head(self.node_norm(h))
            padded = node_output.new_zeros(room, self.node_width).index_copy(
                0, graphs.places(self.size.nodes), node_output
            )
            of_nodes = padded.view(graphs.batch, self.size.nodes, self.node_width)
        return torch.cat(self.arranged(of_graph, of_nodes), 1), self.values_of(token)

    def packed(self, graphs: Graphs) -> tuple[NodeOutputs, torch.Tensor]:
        """(outputs of the nodes that are there, values), where all parts of the action have a row
        for every node."""
        h, token = self.encode(graphs)
        options, numbers = (
            sum(n for n, _ in heads) for heads in (self.outputs.options, self.outputs.numbers)
        )
        logits, means, spread = self.node_head(self.node_norm(h)).split(
            [options, numbers, numbers], 1
        )
        return NodeOutputs(
            logits, means, (spread + self.log_std).clamp(self.least, LOG_STD_LIMIT)
        ), self.values_of(token)

    def arranged(
        self, of_graph: torch.Tensor | None, of_nodes: torch.Tensor | None
    ) -> list[torch.Tensor]:
        """The heads' outputs in the order of the action's parts: options, means, log-deviations."""
        used = {True: 0, False: 0}

        def take(width: int, nodes: bool) -> torch.Tensor:
            source = of_nodes if nodes else of_graph
            assert source is not None
            used[nodes] += width
            return source[..., used[nodes] - width : used[nodes]]

        options = [take(*part).flatten(1) for part in self.outputs.options]
        means = [take(*part).flatten(1) for part in self.outputs.numbers]
        spreads, at = [], 0
        for width, nodes in self.outputs.numbers:
            spread = (take(width, nodes) + self.log_std[at : at + width]).clamp(
                self.least, LOG_STD_LIMIT
            )
            spreads.append(spread.flatten(1))
            at += width
        return [*options, *means, *spreads]

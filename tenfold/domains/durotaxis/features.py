"""Observations of a colony: features of its nodes, of its edges and of the whole, scaled to order
one.

A row is [n, e | whole | nodes | links | edges] (`graph_spaces.GraphSize`), nodes in the order of
their ids, edges from parent to child in the order of the children. A colony above max_nodes, which
has ended, shows its first max_nodes nodes. The references are loops over nodes.
"""

import math
from enum import IntEnum
from typing import Any

import numpy as np

from tenfold.core.graph_spaces import GraphSize
from tenfold.core.kernels import kernel
from tenfold.domains.durotaxis.geometry import (
    find_hull,
    hops_reference,
    hull_reference,
    sum_hops,
    truncate_tree,
)
from tenfold.domains.durotaxis.rules import find_parents
from tenfold.domains.durotaxis.setting import REACH, Setting

LENGTH_UNIT = 50.0  # the unit of a colony's own lengths
DEGREE_UNIT, AGE_UNIT = 4.0, 10.0  # units of out-degrees and of ages
INTENSITY_UNIT = 2.0  # the unit of log(1 + I)


class NodeFeature(IntEnum):
    X = 0  # of the width
    Y = 1  # −1 bottom, 1 top
    INTENSITY = 2  # log(1 + I) / INTENSITY_UNIT
    IN_DEGREE = 3  # 0 for the root, else 1
    OUT_DEGREE = 4  # children / DEGREE_UNIT
    GX = 5  # relative gradient, −1 … 1
    GY = 6
    CLOSENESS = 7  # 1 / mean number of edges to the other nodes
    CENTROID_DISTANCE = 8  # / LENGTH_UNIT
    HULL = 9  # 1 for a corner of the convex hull
    NEW = 10  # 1 for nodes born in the last step
    AGE = 11  # age / (age + AGE_UNIT)


class EdgeFeature(IntEnum):
    LENGTH = 0  # / REACH
    COSINE = 1  # of its direction, parent to child; both 0 where it has no length
    SINE = 2


class GraphFeature(IntEnum):
    COUNT = 0  # / max_nodes
    CENTROID_X = 1
    CENTROID_Y = 2
    LEFT = 3  # the box around the nodes
    RIGHT = 4
    BOTTOM = 5
    TOP = 6
    HULL_AREA = 7  # / SPREAD²
    MEAN_INTENSITY = 8  # of the nodes' numbers
    MAX_INTENSITY = 9
    MEAN_OUT_DEGREE = 10  # of nodes with children
    MAX_OUT_DEGREE = 11
    LEAVES = 12  # share of nodes without children
    GOAL_DISTANCE = 13  # from the right-most node, of the width


NODE, EDGE, GRAPH = len(NodeFeature), len(EdgeFeature), len(GraphFeature)


def graph_size(max_nodes: int) -> GraphSize:
    return GraphSize(max_nodes, max_nodes, NODE, EDGE, GRAPH)


# compiled


@kernel
def observe(rules, c, i, scratch, row):
    """Writes the observation of colony i."""
    row[:] = 0.0
    n = min(c.nodes[i], rules.max_nodes)
    if n == 0:
        return
    x, y = c.x[i], c.y[i]
    up, down, hull = scratch.up, scratch.down, scratch.hull
    find_parents(c.ident[i], c.parent[i], c.nodes[i], up)
    if c.nodes[i] > n:
        truncate_tree(n, up)
    width, height = c.extent[i, 0], c.extent[i, 1]
    sx = sy = 0.0
    left, right, bottom, top = x[0], x[0], y[0], y[0]
    for j in range(n):
        sx += x[j]
        sy += y[j]
        left, right = min(left, x[j]), max(right, x[j])
        bottom, top = min(bottom, y[j]), max(top, y[j])
        down[j] = 0
    for j in range(n):
        if up[j] >= 0:
            down[up[j]] += 1
    cx, cy = sx / n, sy / n
    hulls = find_hull(x, y, n, scratch.order, hull)
    sum_hops(n, up, scratch.size, scratch.total)
    intensity_sum, intensity_max, parents, most = show_nodes(rules, c, i, n, cx, cy, scratch, row)
    row[0], row[1] = n, show_edges(rules, x, y, up, n, row)
    area = 0.0
    for k in range(hulls):
        a, b = hull[k], hull[(k + 1) % hulls]
        row[2 + GRAPH + a * NODE + 9] = 1.0
        area += x[a] * y[b] - x[b] * y[a]
    row[2], row[3], row[4] = n / rules.max_nodes, cx / width, 2 * cy / height - 1
    row[5], row[6] = left / width, right / width
    row[7], row[8] = 2 * bottom / height - 1, 2 * top / height - 1
    row[9] = 0.5 * abs(area) / (LENGTH_UNIT * LENGTH_UNIT)
    row[10], row[11] = intensity_sum / n, intensity_max
    row[12] = (n - 1) / parents / DEGREE_UNIT if parents else 0.0
    row[13] = most / DEGREE_UNIT
    row[14] = (n - parents) / n
    row[15] = (c.extent[i, 4] - right) / width


@kernel
def show_nodes(rules, c, i, n, cx, cy, scratch, row):
    """Writes the features of nodes except the hull's. Returns the sum and the maximum of the
    intensities, the number of nodes with children, and the most children of a node."""
    x, y, stiff, age, gx, gy = c.x[i], c.y[i], c.stiff[i], c.age[i], c.gx[i], c.gy[i]
    up, down, total = scratch.up, scratch.down, scratch.total
    width, height = c.extent[i, 0], c.extent[i, 1]
    intensity_sum = intensity_max = 0.0
    parents = most = 0
    for j in range(n):
        at = 2 + GRAPH + j * NODE
        intensity = np.log1p(stiff[j]) / INTENSITY_UNIT
        dx, dy = x[j] - cx, y[j] - cy
        row[at] = x[j] / width
        row[at + 1] = 2 * y[j] / height - 1
        row[at + 2] = intensity
        row[at + 3] = 1.0 if up[j] >= 0 else 0.0
        row[at + 4] = down[j] / DEGREE_UNIT
        row[at + 5] = gx[j]
        row[at + 6] = gy[j]
        row[at + 7] = (n - 1) / total[j] if n > 1 else 0.0
        row[at + 8] = np.sqrt(dx * dx + dy * dy) / LENGTH_UNIT
        row[at + 10] = 1.0 if age[j] == 0 else 0.0
        row[at + 11] = age[j] / (age[j] + AGE_UNIT)
        intensity_sum += intensity
        intensity_max = max(intensity_max, intensity)
        parents += down[j] > 0
        most = max(most, down[j])
    return intensity_sum, intensity_max, parents, most


@kernel
def show_edges(rules, x, y, up, n, row):
    """Writes the edges and their features; returns the number of edges."""
    links = 2 + GRAPH + rules.max_nodes * NODE
    edges = links + 2 * rules.max_nodes
    e = 0
    for j in range(n):
        if up[j] >= 0:
            row[links + 2 * e], row[links + 2 * e + 1] = up[j], j
            dx, dy = x[j] - x[up[j]], y[j] - y[up[j]]
            length = np.sqrt(dx * dx + dy * dy)
            row[edges + EDGE * e] = length / REACH
            if length > 0:
                row[edges + EDGE * e + 1], row[edges + EDGE * e + 2] = dx / length, dy / length
            e += 1
    return e


# naive loops


def observe_reference(setting: Setting, extent: list[float], nodes: list[Any]) -> np.ndarray:
    """The row of a colony of `reference.Node`s, node by node."""
    (width, height, _, _, goal), size = extent, graph_size(setting.max_nodes)
    row = np.zeros(size.starts[-1], np.float32)
    if not nodes:
        return row
    up = parents_reference(nodes, setting.max_nodes)
    n, nodes = len(up), nodes[: setting.max_nodes]
    children = [[k for k in range(n) if up[k] == j] for j in range(n)]
    cx, cy = sum(node.x for node in nodes) / n, sum(node.y for node in nodes) / n
    hull = hull_reference(nodes)
    intensity = [math.log1p(node.stiff) / INTENSITY_UNIT for node in nodes]
    table = [
        [
            node.x / width,
            2 * node.y / height - 1,
            intensity[j],
            up[j] >= 0,
            len(children[j]) / DEGREE_UNIT,
            *node.gradient,
            (n - 1) / sum(hops_reference(j, up, children)) if n > 1 else 0.0,
            math.hypot(node.x - cx, node.y - cy) / LENGTH_UNIT,
            j in hull,
            node.age == 0,
            node.age / (node.age + AGE_UNIT),
        ]
        for j, node in enumerate(nodes)
    ]
    links, edges = edges_reference(nodes, up)
    degrees = [len(below) for below in children]
    having = [degree for degree in degrees if degree]
    around = zip(hull, [*hull[1:], hull[0]], strict=True)
    area = sum(nodes[a].x * nodes[b].y - nodes[b].x * nodes[a].y for a, b in around) / 2
    xs, ys = [node.x for node in nodes], [node.y for node in nodes]
    row[:2] = n, len(links)
    row[2 : 2 + GRAPH] = [
        n / setting.max_nodes,
        cx / width,
        2 * cy / height - 1,
        min(xs) / width,
        max(xs) / width,
        2 * min(ys) / height - 1,
        2 * max(ys) / height - 1,
        abs(area) / LENGTH_UNIT**2,
        sum(intensity) / n,
        max(intensity),
        sum(having) / len(having) / DEGREE_UNIT if having else 0.0,
        max(degrees) / DEGREE_UNIT,
        (n - len(having)) / n,
        (goal - max(xs)) / width,
    ]
    for start, values in zip(size.starts, (table, links, edges), strict=False):
        row[start : start + np.size(values)] = np.ravel(values)
    return row


def parents_reference(nodes: list[Any], most: int) -> list[int]:
    """The index of each node's parent among the first `most`, −1 for the root: a node whose parent
    is cut off hangs on the next ancestor that is not, or on the first node that has none."""
    parent_of = {node.ident: node.parent for node in nodes}
    places = {node.ident: j for j, node in enumerate(nodes[:most])}
    parents = []
    for node in nodes[:most]:
        above = node.parent
        while above >= 0 and above not in places:
            above = parent_of[above]
        parents.append(above)
    root = next(j for j, above in enumerate(parents) if above < 0)
    return [
        root if above < 0 and j != root else places.get(above, -1)
        for j, above in enumerate(parents)
    ]


def edges_reference(
    nodes: list[Any], up: list[int]
) -> tuple[list[tuple[int, int]], list[tuple[float, ...]]]:
    """(parent, child) and the features of each edge, in the order of the children."""
    links, edges = [], []
    for j, above in enumerate(up):
        if above >= 0:
            dx, dy = nodes[j].x - nodes[above].x, nodes[j].y - nodes[above].y
            length = math.hypot(dx, dy)
            links.append((above, j))
            edges.append(
                (length / REACH, dx / length, dy / length) if length > 0 else (0.0, 0.0, 0.0)
            )
    return links, edges

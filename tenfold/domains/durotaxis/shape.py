"""The shape of a colony: its convex hull, and its tree. Compiled, with the naive loops that say the
same."""

from typing import Any

from tenfold.core.kernels import kernel

# the hull


@kernel
def turn(x, y, a, b, c):
    """Positive where the way from a over b to c turns left."""
    return (x[b] - x[a]) * (y[c] - y[a]) - (y[b] - y[a]) * (x[c] - x[a])


@kernel
def find_hull(x, y, n, order, hull):
    """Corners of the convex hull, counter-clockwise, into hull; returns how many. Andrew's monotone
    chain over nodes sorted by (x, y, id)."""
    for j in range(n):
        place = j
        while place > 0 and (
            x[order[place - 1]] > x[j]
            or (x[order[place - 1]] == x[j] and y[order[place - 1]] > y[j])
        ):
            order[place] = order[place - 1]
            place -= 1
        order[place] = j
    if n < 3:
        for j in range(n):
            hull[j] = order[j]
        return n
    size = 0
    for j in range(n):
        while size >= 2 and turn(x, y, hull[size - 2], hull[size - 1], order[j]) <= 0:
            size -= 1
        hull[size] = order[j]
        size += 1
    lower = size + 1
    for j in range(n - 2, -1, -1):
        while size >= lower and turn(x, y, hull[size - 2], hull[size - 1], order[j]) <= 0:
            size -= 1
        hull[size] = order[j]
        size += 1
    return size - 1


def hull_reference(nodes: list[Any]) -> list[int]:
    """Corners of the convex hull as places in the list, counter-clockwise."""
    order = sorted(range(len(nodes)), key=lambda j: (nodes[j].x, nodes[j].y, j))
    if len(order) < 3:
        return order

    def half(way: list[int]) -> list[int]:
        corners: list[int] = []
        for c in way:
            while len(corners) >= 2:
                a, b = nodes[corners[-2]], nodes[corners[-1]]
                if (b.x - a.x) * (nodes[c].y - a.y) - (b.y - a.y) * (nodes[c].x - a.x) > 0:
                    break
                corners.pop()
            corners.append(c)
        return corners

    return half(order)[:-1] + half(order[::-1])[:-1]


# the tree


@kernel
def sum_hops(n, up, order, size, total):
    """Into total: the number of edges from each node to all others together, by a pass up the tree
    and one down."""
    root = 0
    for j in range(n):
        size[j] = -1  # unknown depth
        total[j] = 0
        if up[j] < 0:
            root = j
    size[root] = 0
    for j in range(n):  # depths, each walk ending at a known one
        steps, above = 0, j
        while size[above] < 0:
            steps += 1
            above = up[above]
        depth, walked = size[above] + steps, j
        while size[walked] < 0:
            size[walked], walked, depth = depth, up[walked], depth - 1
    deepest = 0
    for j in range(n):
        deepest = max(deepest, size[j])
    first = total  # counts of each depth, then where it begins
    for j in range(n):
        first[size[j]] += 1
    begin = 0
    for depth in range(deepest + 1):
        begin, first[depth] = begin + first[depth], begin
    for j in range(n):
        order[first[size[j]]] = j
        first[size[j]] += 1
    depths = 0
    for j in range(n):
        depths += size[j]
    for j in range(n):
        size[j] = 1
    for j in range(n - 1, 0, -1):
        size[up[order[j]]] += size[order[j]]
    total[root] = depths
    for j in range(1, n):
        node = order[j]
        total[node] = total[up[node]] + n - 2 * size[node]


def hops_reference(start: int, up: list[int], children: list[list[int]]) -> list[int]:
    """Edges from one node to each other, breadth first."""
    hops, seen = {start: 0}, [start]
    for j in seen:
        for other in (*children[j], *([up[j]] if up[j] >= 0 else [])):
            if other not in hops:
                hops[other] = hops[j] + 1
                seen.append(other)
    return list(hops.values())


@kernel
def cut(n, up):
    """The first n nodes as one tree: those whose ancestors are cut off hang on the first that has
    none."""
    root = -1
    for j in range(n):
        above = up[j]
        while above >= n:
            above = up[above]
        up[j] = above
        if above < 0:
            root = j if root < 0 else root
    for j in range(n):
        if up[j] < 0 and j != root:
            up[j] = root

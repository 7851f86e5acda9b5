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
    size, least = 0, 2
    for k in range(2 * n - 1):  # to the right along the lower side, back along the upper one
        if k == n:
            least = size + 1
        j = order[k] if k < n else order[2 * n - 2 - k]
        while size >= least and turn(x, y, hull[size - 2], hull[size - 1], j) <= 0:
            size -= 1
        hull[size] = j
        size += 1
    return size - 1 if n > 1 else n


def hull_reference(nodes: list[Any]) -> list[int]:
    """Corners of the convex hull as places in the list, counter-clockwise."""
    order = sorted(range(len(nodes)), key=lambda j: (nodes[j].x, nodes[j].y, j))
    if len(order) < 3:
        return order

    def half(order: list[int]) -> list[int]:
        corners: list[int] = []
        for c in order:
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
def sum_hops(n, up, size, total):
    """Into total: the number of edges from each node to all others together. Parents lie before
    their children, all but the root: a pass backwards counts the nodes below each, one forwards
    goes down the tree."""
    root = depths = 0
    for j in range(n):
        size[j] = 1
    for j in range(n - 1, -1, -1):
        if up[j] < 0:
            root = j
        else:
            size[up[j]] += size[j]
            depths += size[j]
    total[root] = depths
    for j in range(n):
        if j != root:
            total[j] = total[up[j]] + n - 2 * size[j]


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
        if not 0 <= up[j] < n:  # parents lie before their children, all but the root
            up[j] = root
            root = j if root < 0 else root

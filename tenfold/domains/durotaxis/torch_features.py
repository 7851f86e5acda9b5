"""What colonies in torch show: `features` for all of them at once, the same rows.

The hull has no loop: of nodes in the order (x, y, id) one is a corner of the lower side where every
slope from the left is below every slope to the right, and of the upper side the other way round;
all pairs are looked at. Sums over paths and subtrees are pointer doublings.
"""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch.nn.functional import pad

from tenfold.core.pairs import pair
from tenfold.domains.durotaxis.features import AGE_UNIT, DEGREE_UNIT, INTENSITY_UNIT, LENGTH_UNIT
from tenfold.domains.durotaxis.setting import REACH, Rules
from tenfold.domains.durotaxis.shape import hull_reference
from tenfold.domains.durotaxis.torch_rules import AGE, GY, UP, State, reattach, slots_of, sums

# numbers of a temporary: near its caches on a CPU, 128 MiB elsewhere
PAIRS_AT_ONCE = {"cpu": 1 << 20, "cuda": 1 << 24}


# the hull


def hulls_reference(
    x: np.ndarray, y: np.ndarray, nodes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Which of the first `nodes` places of each row are corners, and the hull's area; row by
    row."""
    corner, area = np.zeros(x.shape, np.bool_), np.zeros(len(x))
    for i, n in enumerate(nodes):
        hull = hull_reference([SimpleNamespace(x=x[i, j], y=y[i, j]) for j in range(n)])
        for a, b in zip(hull, [*hull[1:], *hull[:1]], strict=True):
            corner[i, a] = True
            area[i] += (x[i, a] * y[i, b] - x[i, b] * y[i, a]) / 2
    return corner, np.abs(area)


def scattered_places(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """Everywhere, on a coarse lattice (many in one line, many in one place), in one row, in one
    column, in one place."""
    for width in (1, 2, 3, 4, 7, 30, 100):
        rows = [
            rng.uniform(0, 600, (2, 8, width)),
            *(rng.integers(1, side, (2, 8, width)) * 1.0 for side in (3, 4, 12)),
        ]
        x, y = np.concatenate(rows, 1)
        y[2], x[3], x[4], y[4] = 7.0, 7.0, 7.0, 7.0
        nodes = rng.integers(0, width + 1, len(x))
        nodes[::2] = width
        yield x, y, nodes


@pair(
    hulls_reference,
    scattered_places,
    atol=1e-8,
    dtypes=("float64",),
    name="envs.durotaxis.hulls (torch)",
)
def hulls_of_arrays(
    x: np.ndarray, y: np.ndarray, nodes: np.ndarray, device: str = "cpu"
) -> tuple[np.ndarray, np.ndarray]:
    corner, area = find_hulls(*(torch.from_numpy(values).to(device) for values in (x, y, nodes)))
    return corner.cpu().numpy(), area.cpu().numpy()


def find_hulls(
    x: torch.Tensor, y: torch.Tensor, nodes: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Corners [E, W] of the convex hulls of the first `nodes` places of each row, and their areas
    [E]."""
    colonies = max(1, PAIRS_AT_ONCE.get(x.device.type, 1 << 24) // x.shape[1] ** 2)
    found = [
        hulls_at_once(*part)
        for part in zip(x.split(colonies), y.split(colonies), nodes.split(colonies), strict=True)
    ]
    return torch.cat([corner for corner, _ in found]), torch.cat([area for _, area in found])


def hulls_at_once(
    x: torch.Tensor, y: torch.Tensor, nodes: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    slot, n = slots_of(x), nodes[:, None]
    x = x.masked_fill(slot >= n, torch.inf)  # to the end
    by_y = y.sort(dim=1, stable=True).indices
    order = by_y.gather(1, x.gather(1, by_y).sort(dim=1, stable=True).indices)
    there = slot < n
    x, y = (place.gather(1, order).masked_fill(~there, torch.nan) for place in (x, y))
    # from the row's place to one that comes later; straight up is +∞, and no number where both are
    # the same place or none
    slope = (y[:, None] - y[:, :, None]).div_(x[:, None] - x[:, :, None])
    none = (slope != slope).logical_or_(slot <= slot[:, None])
    least_left, least_right = slope.masked_fill_(none, torch.inf).amin(1), slope.amin(2)
    most_left, most_right = slope.masked_fill_(none, -torch.inf).amax(1), slope.amax(2)
    last = (n - 1).clamp(min=0)
    begins, ends = (
        (x == x.gather(1, at)) & (y == y.gather(1, at)) for at in (torch.zeros_like(last), last)
    )
    between = there & ~begins & ~ends
    # of nodes in one place the lower side has the last, the upper side and the left end the first
    same = (x[:, 1:] == x[:, :-1]) & (y[:, 1:] == y[:, :-1])
    tips = (there & (slot == 0)) | (slot == n - 1)
    lower = tips | (between & (most_left < least_right) & ~pad(same, (0, 1)))
    upper = tips | (between & (least_left > most_right) & ~pad(same, (1, 0)))
    x, y = x.nan_to_num(0.0), y.nan_to_num(0.0)
    area = (under(x, y, lower) - under(x, y, upper)).abs() / 2
    return torch.zeros_like(lower).scatter_(1, order, lower | upper), area


def under(x: torch.Tensor, y: torch.Tensor, corner: torch.Tensor) -> torch.Tensor:
    """Σ of x_a·y_b − x_b·y_a over the chain of the corners."""
    slot = slots_of(x)
    before = pad(torch.where(corner, slot, -1).cummax(1).values, (1, 0), value=-1)[:, :-1]
    at = before.clamp(min=0)
    return (
        (x.gather(1, at) * y - x * y.gather(1, at)).masked_fill(~corner | (before < 0), 0.0).sum(1)
    )


# the tree


def sum_hops(up: torch.Tensor, there: torch.Tensor) -> torch.Tensor:
    """The number of edges from each node to all others together: of the root the sum of all depths,
    and n − 2·(nodes below and at it) more with every step down."""
    nobody, count = up.shape[1], there.sum(1, keepdim=True)
    linked = pad(there & (up >= 0), (0, 1))
    jump = torch.where(linked, pad(up, (0, 1)), nobody)
    depth, size, jumps = linked.long(), pad(there.long(), (0, 1)), []
    for _ in range((nobody - 1).bit_length()):
        jumps.append(jump)
        depth = depth + depth.gather(1, jump)
        size = size.scatter_add(1, jump, size)
        jump = jump.gather(1, jump)
    more = (count - 2 * size).masked_fill(~linked, 0)
    for jump in jumps:
        more = more + more.gather(1, jump)
    return (depth.masked_fill(~linked, 0).sum(1, keepdim=True) + more)[:, :nobody]


# the rows


def observe(rules: Rules, s: State) -> torch.Tensor:
    """What every colony shows, [E, size] of float32; none has more than max_nodes."""
    n, width = s.nodes[:, None], rules.max_nodes
    (x, y, stiff, gx, gy), age, up = (
        s.numbers[: GY + 1, :, :width],
        s.whole[AGE, :, :width],
        s.whole[UP, :, :width],
    )
    side, height = s.extent[:, 0, None], s.extent[:, 1, None]
    slot = slots_of(x)
    there, absent, some = slot < n, slot >= n, n.clamp(min=1)
    linked = there & (up >= 0)
    above = torch.where(linked, up, 0)
    children = torch.zeros_like(pad(up, (0, 1))).scatter_add_(
        1, torch.where(linked, up, width), torch.ones_like(up)
    )[:, :width]
    intensity = torch.log1p(stiff) / INTENSITY_UNIT
    sx, sy, intensity_sum = (
        total[:, None]
        for total in sums(*(value.masked_fill(absent, 0.0) for value in (x, y, intensity)))
    )
    cx, cy = sx / some, sy / some
    corner, area = find_hulls(x, y, n[:, 0])
    to_all = sum_hops(up, there)
    nodes = torch.stack(
        [
            value.to(x.dtype)
            for value in (
                x / side,
                2 * y / height - 1,
                intensity,
                linked,
                children / DEGREE_UNIT,
                gx,
                gy,
                ((n - 1) / to_all).masked_fill(to_all <= 0, 0.0),
                distance(x - cx, y - cy) / LENGTH_UNIT,
                corner,
                age == 0,
                age / (age + AGE_UNIT),
            )
        ],
        -1,
    ).masked_fill(absent[..., None], 0.0)
    links, edges = edges_of(
        x, y, above, torch.where(linked, 0, slot).masked_fill(absent, 0).amax(1, keepdim=True), n
    )

    whole = whole_of(rules, s, x, y, (cx, cy, intensity_sum), area, intensity, children)
    counts = torch.cat((n, (n - 1).clamp(min=0)), 1)
    return torch.cat([part.float().flatten(1) for part in (counts, whole, nodes, links, edges)], 1)


def whole_of(
    rules: Rules,
    s: State,
    x: torch.Tensor,
    y: torch.Tensor,
    sums_of: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    area: torch.Tensor,
    intensity: torch.Tensor,
    children: torch.Tensor,
) -> torch.Tensor:
    """The numbers of each colony as a whole, [E, GRAPH]; `sums_of` are the centroid's two and the
    sum of the intensities."""
    n, (width, height, _, _, goal) = s.nodes[:, None], s.extent[..., None].unbind(1)
    (cx, cy, intensity_sum), absent, some = sums_of, slots_of(x) >= n, n.clamp(min=1)
    left, bottom = (value.masked_fill(absent, torch.inf).amin(1, keepdim=True) for value in (x, y))
    right, top = (value.masked_fill(absent, 0.0).amax(1, keepdim=True) for value in (x, y))
    parents, most = (children > 0).sum(1, keepdim=True), children.amax(1, keepdim=True)
    return torch.cat(
        [
            value.to(x.dtype)
            for value in (
                n / rules.max_nodes,
                cx / width,
                2 * cy / height - 1,
                left / width,
                right / width,
                2 * bottom / height - 1,
                2 * top / height - 1,
                area[:, None] / LENGTH_UNIT**2,
                intensity_sum / some,
                intensity.masked_fill(absent, 0.0).amax(1, keepdim=True),
                (n - 1) / parents.clamp(min=1) / DEGREE_UNIT,
                most / DEGREE_UNIT,
                (n - parents) / some,
                (goal - right) / width,
            )
        ],
        1,
    ).masked_fill(n == 0, 0.0)


def cut(rules: Rules, s: State) -> State:
    """The first max_nodes nodes of each colony as one tree: those whose ancestors are cut off hang
    on the first that has none."""
    n, (ident, age, up) = s.nodes.clamp(max=rules.max_nodes), s.whole
    slot = slots_of(up)
    up = reattach(up, slot < n[:, None], slot.to(s.numbers.dtype).expand(up.shape))
    return s._replace(whole=torch.stack((ident, age, up)), nodes=n)


def edges_of(
    x: torch.Tensor, y: torch.Tensor, above: torch.Tensor, root: torch.Tensor, n: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Links [E, W, 2] and numbers [E, W, 3] of the edges, in the order of the children: every node
    but the root has one."""
    slot = slots_of(x)
    child = (slot + (slot >= root)).clamp(max=x.shape[1] - 1)
    parent, absent = above.gather(1, child), (slot >= n - 1)[..., None]
    dx, dy = (place.gather(1, child) - place.gather(1, parent) for place in (x, y))
    length = distance(dx, dy)
    cosine, sine = ((d / length).masked_fill(length == 0, 0.0) for d in (dx, dy))
    return (
        torch.stack((parent, child), -1).masked_fill(absent, 0),
        torch.stack((length / REACH, cosine, sine), -1).masked_fill(absent, 0.0),
    )


def distance(dx: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    """Not `hypot`, whose last bit is another."""
    return (dx * dx + dy * dy).sqrt()

"""A step of E colonies in torch, on any device: `rules` without a loop over colonies or
nodes.

Nothing here waits for the device: shapes never hang on the data, walks up the tree are a fixed
number of pointer doublings, and what is taken out is closed up by a running count. Old nodes lie in
the first max_nodes slots, their children behind them.

Sums over nodes are running sums along a dimension that is not the last, which the CPU and CUDA both
add one after another: they are the compiled form's to the last bit, so that a comparison with a
mean or with an earlier centroid does not flip.
"""

from typing import NamedTuple

import torch
from torch.nn.functional import pad

from tenfold.core.random import GOLDEN, Purpose, mix_torch, signed, uniform_torch
from tenfold.domains.durotaxis.extent import HEIGHT_DRAW, NODES_DRAW, WIDTH_DRAW
from tenfold.domains.durotaxis.rules import (
    CHILD,
    EXTINCT,
    FIRST_DRAW,
    GOAL_ENDING,
    OVERGROWN,
    RETREATED,
    ROUNDING,
    SOFT,
    START,
    STRIDE,
    TIME,
)
from tenfold.domains.durotaxis.setting import (
    DELETE,
    LEFT_PART,
    MIDDLE_PART,
    MILESTONES,
    REACH,
    RETREAT,
    SOFT_DEATH,
    SPAWN,
    Rules,
)
from tenfold.domains.durotaxis.torch_ground import (
    FULL_TURN,
    World,
    draw_extent,
    draw_ground,
    draw_nodes,
    sense,
)

# rows of `State.numbers`; the last begins the four of its spawning
X, Y, STIFF, GX, GY, BORN = range(6)
IDENT, AGE, UP = range(3)  # rows of `State.whole`


class State(NamedTuple):
    """E colonies of up to S nodes each, in the order of their ids: `Colonies`, but with the numbers
    of a node in one tensor, so that all of them are moved at once."""

    numbers: torch.Tensor  # [9, E, S]
    whole: torch.Tensor  # [3, E, S]: id, age, and the parent's slot, −1 at the root
    nodes: torch.Tensor  # [E], how many
    following: torch.Tensor
    step: torch.Tensor
    passed: torch.Tensor
    retreat: torch.Tensor
    centre: torch.Tensor
    streams: torch.Tensor  # [E, 4]
    ground: torch.Tensor  # [E, 6]
    extent: torch.Tensor  # [E, 5]


def slots_of(like: torch.Tensor) -> torch.Tensor:
    return torch.arange(like.shape[-1], device=like.device)


def sums(*values: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Σ over the nodes of each of several [E, S], added in the order of the nodes."""
    return torch.stack(values, -1).cumsum(1)[:, -1].unbind(-1)


# an episode's start


def open_streams(seed: torch.Tensor) -> torch.Tensor:
    """The four streams of each episode seed, [E, 4]."""
    own = mix_torch(
        mix_torch(seed + signed(GOLDEN)) + signed(int(Purpose.EPISODE) * GOLDEN % 2**64)
    )
    return mix_torch(own[:, None] + torch.arange(4, device=seed.device) * signed(GOLDEN))


def begin(world: World, seed: torch.Tensor) -> State:
    """The colonies of these episode seeds at their start, with room for their first nodes only."""
    rules, most = world.rules, world.rules.init_nodes
    streams = open_streams(seed)
    draws = uniform_torch(
        streams[:, START, None], torch.arange(FIRST_DRAW + 2 * most, device=seed.device)
    )
    extent = draw_extent(rules, (draws[:, WIDTH_DRAW], draws[:, HEIGHT_DRAW]))
    ground = draw_ground(rules, extent, draws[:, :3].unbind(1))
    nodes, zero = draw_nodes(rules, draws[:, NODES_DRAW]), torch.zeros_like(seed)
    width, height, margin_x, margin_y, _ = extent[..., None].unbind(1)
    u, v = draws[:, FIRST_DRAW::2], draws[:, FIRST_DRAW + 1 :: 2]
    absent = slots_of(u) >= nodes[:, None]
    right = torch.maximum(LEFT_PART * width, margin_x)
    x = (margin_x + (right - margin_x) * u).masked_fill(absent, torch.inf).sort(1).values
    x = x.masked_fill(absent, 0.0)
    y = ((0.5 + MIDDLE_PART * (v - 0.5)) * height).clamp(margin_y, height - margin_y)
    none = torch.zeros_like(x)
    numbers = torch.stack((x, y, *sense(world, extent, ground, x, y), none, none, none, none))
    ident = slots_of(x).expand(x.shape)
    return State(
        numbers,
        torch.stack((ident, torch.zeros_like(ident), ident - 1)),
        nodes,
        nodes,
        zero,
        count_milestones(extent, x.amax(1)),
        zero,
        sums(x, y)[0] / nodes,
        streams,
        ground,
        extent,
    )


def count_milestones(extent: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return torch.stack([right >= part * extent[:, 0] for part in MILESTONES]).sum(0)


def begin_where(which: torch.Tensor, fresh: State, state: State) -> State:
    """The fresh colony in place of those that are chosen."""
    first, own = fresh.numbers.shape[-1], which[:, None]

    def nodes(new: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
        return torch.cat((torch.where(own, new, old[..., :first]), old[..., first:]), -1)

    rest = (
        torch.where(which.view(-1, *[1] * (old.dim() - 1)), new, old)
        for new, old in zip(fresh[2:], state[2:], strict=True)
    )
    return State(nodes(fresh.numbers, state.numbers), nodes(fresh.whole, state.whole), *rest)


# the step


def left_most(x: torch.Tensor, there: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """The k [E, 1] smallest nodes by (x, id): nodes lie in the order of their ids, so that a stable
    sort by x ranks them."""
    order = x.masked_fill(~there, torch.inf).sort(dim=1, stable=True).indices
    rank = torch.zeros_like(order).scatter_(1, order, slots_of(order).expand(order.shape))
    return there & (rank < k)


def reattach(up: torch.Tensor, alive: torch.Tensor, lead: torch.Tensor) -> torch.Tensor:
    """The slot of each living node's nearest living ancestor. Of those left without one the first
    by (lead, slot) is the root, −1, and the others hang on it."""
    slot, slots = slots_of(up), up.shape[1]
    # the root is its own: where a walk ends at the dead there was nobody
    parent = torch.where(up < 0, slot, up)
    nearest = torch.where(alive, slot, parent)
    for _ in range((slots - 1).bit_length()):
        nearest = nearest.gather(1, nearest)
    above = nearest.gather(1, parent)
    lost = alive & ((up < 0) | ~alive.gather(1, above))
    first = torch.where(lost, lead, torch.inf).amin(1, keepdim=True)
    root = torch.where(lost & (lead == first), slot, slots).amin(1, keepdim=True)
    return torch.where(lost, root, above).masked_fill(~alive | (slot == root), -1)


def spawn_all(world: World, s: State, told: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """The child of every old node, [9, E, max_nodes]; `told` are gamma, alpha, noise and theta, of
    a colony or of each node."""
    rules = world.rules
    x, y, stiff = s.numbers[: STIFF + 1, :, : rules.max_nodes]
    counter = 2 * (s.step[:, None] * STRIDE + s.whole[IDENT, :, : rules.max_nodes])
    u, v = uniform_torch(s.streams[:, CHILD, None], torch.stack((counter, counter + 1)))
    normal = (-2 * torch.log1p(-u)).sqrt() * (FULL_TURN * v).cos()
    gamma, alpha, noise, theta = told
    ratio = alpha / stiff
    r = gamma / (1 + ratio * ratio) + noise * normal.abs()
    width, height, margin_x, margin_y, _ = s.extent[..., None].unbind(1)
    x = (x + r * theta.cos()).clamp(margin_x, width - margin_x)
    y = (y + r * theta.sin()).clamp(margin_y, height - margin_y)
    return torch.stack(
        (
            x,
            y,
            *sense(world, s.extent, s.ground, x, y),
            *(number.expand(x.shape) for number in told),
        )
    )


def advance(
    world: World, s: State, action: torch.Tensor
) -> tuple[State, torch.Tensor, torch.Tensor]:
    """One step of every colony with actions as `rules.advance` has them: how they are
    now, the components of the rewards [E, K] and the endings [E], 0 while an episode goes on."""
    rules, nodes, n = world.rules, world.rules.max_nodes, s.nodes[:, None]
    old, (ident, age, up) = s.numbers[..., :nodes], s.whole[..., :nodes]
    slot, stiff = slots_of(ident), old[STIFF]
    there = slot < n
    if rules.by_node:
        removed, spawning = (
            there & (action[:, :nodes] == DELETE),
            there & (action[:, :nodes] == SPAWN),
        )
        told = action[:, nodes:].view(len(action), nodes, 4).unbind(-1)
    else:
        share = action[:, :1] * n
        if rules.stochastic:
            share = share + uniform_torch(s.streams[:, ROUNDING], s.step)[:, None]
        removed = left_most(old[X], there, share.floor().long())
        spawning, told = there & ~removed, action[:, 1:, None].unbind(1)
    child = spawn_all(world, s, told)
    gain = child[STIFF] - stiff
    total, gained = sums(
        stiff.masked_fill(~there, 0.0), (gain / (1 + gain.abs())).masked_fill(~spawning, 0.0)
    )
    least, most = (
        torch.where(there, stiff, torch.inf).amin(1),
        torch.where(there, stiff, -torch.inf).amax(1),
    )
    mean = (total / s.nodes).clamp(least, most)[:, None]
    judged = (removed & (stiff < mean)).sum(1) - (removed & (stiff > mean)).sum(1)
    spawned, deleted = spawning.sum(1), removed.sum(1)
    # an overgrown colony has left parents behind that are beyond these slots
    up = up.masked_fill(~there, -1)
    # children's parents live: only old nodes can be left without one
    up = reattach(up, there & ~removed, old[X])

    numbers, alive = torch.cat((old, child), -1), torch.cat((there & ~removed, spawning), 1)
    ident = torch.cat((ident, s.following[:, None] + spawning.cumsum(1) - 1), 1)
    age, up = (
        torch.cat((age + 1, torch.zeros_like(age)), 1),
        torch.cat((up, slot.expand(up.shape)), 1),
    )
    if world.soft:
        fate = uniform_torch(s.streams[:, SOFT, None], s.step[:, None] * STRIDE + ident)
        alive = alive & ~((numbers[STIFF] < rules.soft) & (fate < SOFT_DEATH))
        up = reattach(up, alive, numbers[X])
    numbers, whole = compact(numbers, torch.stack((ident, age, up)), alive)
    s = s._replace(
        numbers=numbers,
        whole=whole,
        nodes=alive.sum(1),
        following=s.following + spawned,
        step=s.step + 1,
    )
    qualities = gained / spawned.clamp(min=1), judged / deleted.clamp(min=1)
    return judge(rules, s, qualities)


def compact(
    numbers: torch.Tensor, whole: torch.Tensor, alive: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Only the living, in their order; what lies behind them has no meaning."""
    slot, place = slots_of(alive), alive.cumsum(1) - 1
    nowhere = alive.shape[1]
    source = torch.zeros_like(pad(place, (0, 1))).scatter_(
        1, place.masked_fill(~alive, nowhere), slot.expand(place.shape)
    )
    up = whole[UP]
    whole[UP] = place.gather(1, up.clamp(min=0)).masked_fill(up < 0, -1)
    source = source[:, :nowhere]
    return numbers.gather(2, source.expand(numbers.shape)), whole.gather(
        2, source.expand(whole.shape)
    )


def judge(
    rules: Rules, s: State, qualities: tuple[torch.Tensor, torch.Tensor]
) -> tuple[State, torch.Tensor, torch.Tensor]:
    """The endings of the step taken, and the components of its reward; `qualities` are those of
    spawning and deleting."""
    n, (x, y), up = s.nodes, s.numbers[: Y + 1], s.whole[UP]
    absent, lives, some = slots_of(x) >= n[:, None], n > 0, n.clamp(min=1)
    right = x.masked_fill(absent, 0.0).amax(1)
    off = 2 * y / s.extent[:, 1, None] - 1
    above = up.clamp(min=0)
    dx, dy = x - x.gather(1, above), y - y.gather(1, above)
    length = (dx * dx + dy * dy).sqrt()
    aligned = (dx / length).masked_fill(absent | (up < 0) | (length == 0), 0.0)
    total, edge, aligned = sums(
        x.masked_fill(absent, 0.0), (off * off * off * off).masked_fill(absent, 0.0), aligned
    )
    centre = total / some
    crowd = (n - rules.target) / (0.5 * rules.target)
    passed = torch.maximum(s.passed, count_milestones(s.extent, right))
    retreat = (s.retreat + 1).masked_fill(centre >= s.centre, 0)
    ending = torch.where(s.step >= rules.max_steps, TIME, 0)
    for found, why in (
        (retreat >= RETREAT, RETREATED),
        (right >= s.extent[:, 4], GOAL_ENDING),
        (n > rules.max_nodes, OVERGROWN),
        (~lives, EXTINCT),
    ):
        ending = ending.masked_fill(found, why)
    lost = (ending == OVERGROWN) | (ending == RETREATED) | ~lives
    now = (
        (centre - s.centre) / REACH,
        ending == GOAL_ENDING,
        passed - s.passed,
        (-0.5 * crowd * crowd).exp(),
        *qualities,
        aligned / (n - 1).clamp(min=1),
        -edge / some,
        ~lost,
        -lost.to(x.dtype),
    )
    kept = (4, 5, 9)  # what an extinct colony is still judged by: its choices, and that it is gone
    parts = [
        part.to(x.dtype) if k in kept else part.to(x.dtype).masked_fill(~lives, 0.0)
        for k, part in enumerate(now)
    ]
    return s._replace(passed=passed, retreat=retreat, centre=centre), torch.stack(parts, 1), ending

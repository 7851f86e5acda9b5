"""A step of a colony, and of E colonies at once, compiled. `reference` has the same one
node at a time.

Order of a step: survivors spawn, the chosen nodes are deleted, nodes on soft ground die, the step
is rewarded. In mode `ratio` the k = ⌊delete_ratio·N + u⌋ nodes smallest by (x, id) are deleted and
every other one spawns; in mode `nodes` each node has chosen. A child lies at parent + r·(cos θ, sin
θ), r = gamma / (1 + (alpha/I)²) + noise·|n|.

Draws belong to (episode seed, purpose, step, node id), so that a colony alone and one of many see
the same. Where nodes are removed, survivors attach to their nearest surviving ancestor; where the
root goes too, the left-most of those left without an ancestor becomes the root and the others
attach to it: one tree before, one tree after.
"""

import numpy as np

from tenfold.core.kernels import kernel
from tenfold.core.random import G, Purpose, draw_uniform, mix
from tenfold.domains.durotaxis.geometry import mark_smallest
from tenfold.domains.durotaxis.setting import (
    DELETE,
    LEFT_PART,
    MIDDLE_PART,
    MILESTONES,
    REACH,
    RETREAT,
    SOFT_DEATH,
    SPAWN,
)
from tenfold.domains.durotaxis.substrate import (
    BEND,
    GRID,
    NODES_DRAW,
    draw_extent,
    draw_ground,
    draw_nodes,
    ridge_factor,
    tabulate_ground,
)

EPISODE = np.uint64(int(Purpose.EPISODE))
START, ROUNDING, CHILD, SOFT = range(4)  # members of an episode's stream, one for each purpose
DRAWS_PER_STEP = 1 << 32  # more than ids of an episode
GRADIENT_DISTANCE = 10.0  # how far from a node its gradient is taken
FIRST_DRAW = 8  # of an episode's start: those before are its substrate's and its extent's
# `EndReason` for compiled code
GOAL_REACHED, EXTINCT, OVERGROWN, RETREATED, TIME = 1, 2, 3, 4, 5


@kernel
def open_streams(seed, streams):
    """The streams `key(seed, EPISODE, 0 … 3)`."""
    k = mix(mix(np.uint64(seed) + G) + EPISODE * G)
    for member in range(len(streams)):
        streams[member] = mix(k + np.uint64(member) * G)


@kernel
def draw_normal(stream, counter):
    radius = np.sqrt(-2 * np.log1p(-draw_uniform(stream, 2 * counter)))
    return radius * np.cos(2 * np.pi * draw_uniform(stream, 2 * counter + 1))


@kernel
def sense(kind, level, ridge, grid, height, x, y):
    """Intensity and its relative gradient at a position: (I⁺ − I⁻) / (I⁺ + I⁻) over
    GRADIENT_DISTANCE to either side."""
    last, top = len(level) - 1, height - 1
    column, row = min(max(int(x), 0), last), min(max(int(y), 0), top)
    east, west = (
        min(max(int(x + GRADIENT_DISTANCE), 0), last),
        min(max(int(x - GRADIENT_DISTANCE), 0), last),
    )
    north, south = (
        min(max(int(y + GRADIENT_DISTANCE), 0), top),
        min(max(int(y - GRADIENT_DISTANCE), 0), top),
    )
    if kind == GRID:
        here, right, left = grid[row, column], grid[row, east], grid[row, west]
        above, below = grid[north, column], grid[south, column]
    else:
        here, right, left = level[column], level[east], level[west]
        above = below = here
        if kind == BEND:
            above, below = (
                here * ridge_factor(north, ridge[column]),
                here * ridge_factor(south, ridge[column]),
            )
            here *= ridge_factor(row, ridge[column])
            right *= ridge_factor(row, ridge[east])
            left *= ridge_factor(row, ridge[west])
    gx = (right - left) / (right + left) if right + left > 0 else 0.0
    gy = (above - below) / (above + below) if above + below > 0 else 0.0
    return here, gx, gy


@kernel
def begin(rules, c, i, seed):
    """Resets colony i to the start of the episode of this seed: a chain from left to right."""
    open_streams(seed, c.streams[i])
    start = c.streams[i, START]
    draw_extent(rules, start, c.extent[i])
    width, height, margin_x, margin_y = (
        c.extent[i, 0],
        c.extent[i, 1],
        c.extent[i, 2],
        c.extent[i, 3],
    )
    columns = int(width)
    level, ridge = c.level[i, :columns], c.ridge[i, :columns]
    draw_ground(rules.kind, rules.slope, rules.intercept, width, height, start, c.ground[i])
    tabulate_ground(c.ground[i], columns, height, level, ridge)
    n, x, y = (
        draw_nodes(rules.least_nodes, rules.init_nodes, draw_uniform(start, NODES_DRAW)),
        c.x[i],
        c.y[i],
    )
    for j in range(n):
        right = max(LEFT_PART * width, margin_x)
        at = margin_x + (right - margin_x) * draw_uniform(start, FIRST_DRAW + 2 * j)
        slot = j
        while slot > 0 and x[slot - 1] > at:
            x[slot] = x[slot - 1]
            slot -= 1
        x[slot] = at
    total = 0.0
    for j in range(n):
        part = 0.5 + MIDDLE_PART * (draw_uniform(start, FIRST_DRAW + 2 * j + 1) - 0.5)
        y[j] = min(max(part * height, margin_y), height - margin_y)
        c.ident[i, j], c.parent[i, j], c.age[i, j] = j, j - 1, 0
        c.born[i, j] = 0.0
        c.stiff[i, j], c.gx[i, j], c.gy[i, j] = sense(
            int(c.ground[i, 0]), level, ridge, rules.grid, int(height), x[j], y[j]
        )
        total += x[j]
    c.nodes[i] = c.following[i] = n
    c.step[i] = c.retreat[i] = c.passed[i] = 0
    c.centre[i] = total / n
    while c.passed[i] < len(MILESTONES) and x[n - 1] >= MILESTONES[c.passed[i]] * width:
        c.passed[i] += 1


@kernel(inline="always")
def node_rows(c, i):
    """Colony i's rows. Looking them up once is faster: each access to the tuple costs more than the
    arithmetic."""
    x, y, stiff, gx, gy = c.x[i], c.y[i], c.stiff[i], c.gx[i], c.gy[i]
    return x, y, stiff, gx, gy, c.ident[i], c.parent[i], c.age[i], c.born[i]


@kernel
def spawn_all(rules, c, i, action, removed):
    """Appends the children of the nodes that spawn. Returns the number of nodes now, and the sum of
    the children's gains in intensity."""
    x, y, stiff, gx, gy, ident, parent, age, born = node_rows(c, i)
    kind, level, ridge, grid, height = (
        int(c.ground[i, 0]),
        c.level[i, : int(c.extent[i, 0])],
        c.ridge[i, : int(c.extent[i, 0])],
        rules.grid,
        int(c.extent[i, 1]),
    )
    margin_x, margin_y = c.extent[i, 2], c.extent[i, 3]
    stream, first, following = c.streams[i, CHILD], c.step[i] * DRAWS_PER_STEP, c.following[i]
    right, top = c.extent[i, 0] - margin_x, height - margin_y
    n, gain_total = c.nodes[i], 0.0
    size = n
    for j in range(n):
        if removed[j] or (rules.by_node and action[j] != SPAWN):
            continue
        at = rules.max_nodes + 4 * j if rules.by_node else 1
        gamma, alpha, noise, theta = action[at], action[at + 1], action[at + 2], action[at + 3]
        ratio = alpha / stiff[j]
        r = gamma / (1 + ratio * ratio) + noise * abs(draw_normal(stream, first + ident[j]))
        x[size] = min(max(x[j] + r * np.cos(theta), margin_x), right)
        y[size] = min(max(y[j] + r * np.sin(theta), margin_y), top)
        stiff[size], gx[size], gy[size] = sense(kind, level, ridge, grid, height, x[size], y[size])
        ident[size], parent[size], age[size], removed[size] = following, ident[j], 0, False
        born[size, 0], born[size, 1], born[size, 2], born[size, 3] = gamma, alpha, noise, theta
        gain = stiff[size] - stiff[j]
        gain_total += gain / (1 + abs(gain))
        following += 1
        size += 1
    c.following[i] = following
    return size, gain_total


@kernel
def find_parents(ident, parent, size, up):
    """The slot of each node's parent, −1 for the root's: ids rise from slot to slot."""
    for j in range(size):
        target, low, high = parent[j], 0, size
        while low < high:
            middle = (low + high) >> 1
            if ident[middle] < target:
                low = middle + 1
            else:
                high = middle
        up[j] = low if target >= 0 else -1


@kernel
def delete_nodes(c, i, size, removed, up):
    """Deletes the marked ones of the first `size` nodes and reattaches the others. Returns the
    number of nodes left."""
    x, y, stiff, gx, gy, ident, parent, age, born = node_rows(c, i)
    find_parents(ident, parent, size, up)
    root = -1
    for j in range(size):
        # parents lie before their children, all but the root, which has none: theirs are settled
        if up[j] >= 0 and removed[up[j]]:
            up[j] = up[up[j]]
        # of equal ones the first has the smallest id
        if not removed[j] and up[j] < 0 and (root < 0 or x[j] < x[root]):
            root = j
    for j in range(size):
        if not removed[j]:
            parent[j] = ident[up[j]] if up[j] >= 0 else -1 if j == root else ident[root]
    kept = 0
    for j in range(size):
        if removed[j]:
            continue
        if kept < j:
            x[kept], y[kept], stiff[kept], gx[kept], gy[kept] = x[j], y[j], stiff[j], gx[j], gy[j]
            ident[kept], parent[kept], age[kept] = ident[j], parent[j], age[j]
            for number in range(4):
                born[kept, number] = born[j, number]
        kept += 1
    return kept


@kernel
def advance(rules, c, i, action, scratch, component):
    """One step of colony i with its action: five numbers, or [choices | four numbers each]. Writes
    the components of its reward and returns the ending, 0 while the episode goes on."""
    n, removed, stiff, age = c.nodes[i], scratch.removed, c.stiff[i], c.age[i]
    component[:] = 0.0
    mean, least, most = 0.0, stiff[0], stiff[0]
    for j in range(n):
        mean += stiff[j]
        least, most = min(least, stiff[j]), max(most, stiff[j])
        age[j] += 1
    # where all intensities are equal, rounding would put the mean beside them
    mean = min(max(mean / n, least), most)
    if rules.by_node:
        for j in range(n):
            removed[j] = action[j] == DELETE
    else:
        u = draw_uniform(c.streams[i, ROUNDING], c.step[i]) if rules.stochastic else 0.0
        k = min(int(np.floor(action[0] * n + u)), n)
        mark_smallest(c.x[i], n, k, removed, scratch.values)
    deleted, judged = 0, 0
    for j in range(n):
        if removed[j]:
            deleted += 1
            judged += (stiff[j] < mean) - (stiff[j] > mean)
    size, gain_total = spawn_all(rules, c, i, action, removed)
    component[4] = gain_total / (size - n) if size > n else 0.0
    component[5] = judged / deleted if deleted else 0.0
    if deleted:
        size = delete_nodes(c, i, size, removed, scratch.up)
    dying, ident, stream, first = 0, c.ident[i], c.streams[i, SOFT], c.step[i] * DRAWS_PER_STEP
    for j in range(size):
        removed[j] = stiff[j] < rules.soft and draw_uniform(stream, first + ident[j]) < SOFT_DEATH
        dying += removed[j]
    if dying:
        size = delete_nodes(c, i, size, removed, scratch.up)
    c.nodes[i] = size
    c.step[i] += 1
    return finish_step(rules, c, i, scratch.up, component)


@kernel
def finish_step(rules, c, i, up, component):
    """Returns the ending of this step, and writes those components of its reward that depend on the
    colony after it."""
    n, x, y = c.nodes[i], c.x[i], c.y[i]
    if n == 0:
        component[9] = -1.0
        return EXTINCT
    width, height, goal = c.extent[i, 0], c.extent[i, 1], c.extent[i, 4]
    total, right, edge = 0.0, 0.0, 0.0
    for j in range(n):
        total += x[j]
        right = max(right, x[j])
        off = 2 * y[j] / height - 1
        edge += off * off * off * off
    centre = total / n
    find_parents(c.ident[i], c.parent[i], n, up)
    aligned = 0.0
    for j in range(n):
        above = up[j]
        if above >= 0:
            dx, dy = x[j] - x[above], y[j] - y[above]
            length = np.sqrt(dx * dx + dy * dy)
            aligned += dx / length if length > 0 else 0.0
    crowd = (n - rules.target) / (0.5 * rules.target)
    component[0] = (centre - c.centre[i]) / REACH
    component[3] = np.exp(-0.5 * crowd * crowd)
    component[6] = aligned / (n - 1) if n > 1 else 0.0
    component[7] = -edge / n
    while c.passed[i] < len(MILESTONES) and right >= MILESTONES[c.passed[i]] * width:
        c.passed[i] += 1
        component[2] += 1.0
    c.retreat[i] = c.retreat[i] + 1 if centre < c.centre[i] else 0
    c.centre[i] = centre
    ending = 0
    if n > rules.max_nodes:
        ending = OVERGROWN
    elif right >= goal:
        ending = GOAL_REACHED
    elif c.retreat[i] >= RETREAT:
        ending = RETREATED
    elif c.step[i] >= rules.max_steps:
        ending = TIME
    lost = ending in (OVERGROWN, RETREATED)
    component[1] = ending == GOAL_REACHED
    component[8] = not lost
    component[9] = -1.0 if lost else 0.0
    return ending

"""A step of a colony, and of E colonies at once, compiled. `durotaxis_reference` has the same one node at a time.

Order of a step: survivors spawn, the chosen nodes are deleted, nodes on soft ground die, the step is rewarded.
In mode `ratio` the k = ⌊delete_ratio·N + u⌋ nodes smallest by (x, id) are deleted and every other one spawns; in mode `nodes`
each node has chosen. A child lies at parent + r·(cos θ, sin θ), r = gamma / (1 + (alpha/I)²) + noise·|n|.

Draws belong to (episode seed, purpose, step, node id), so that a colony alone and one of many see the same.
Where nodes are removed, survivors attach to their nearest surviving ancestor; where the root goes too, the left-most of those
left without an ancestor becomes the root and the others attach to it: one tree before, one tree after.
"""

import numpy as np
from numba import njit

from tenfold.envs.durotaxis_setting import DELETE, LEFT_PART, MIDDLE_PART, MILESTONES, REACH, RETREAT, SOFT_DEATH, SPAWN
from tenfold.envs.substrate import draw_ground, intensity, lay_ground
from tenfold.ops.random import G, Purpose, draw_uniform, mix
from tenfold.ops.select import mark_smallest

EPISODE = np.uint64(int(Purpose.EPISODE))
START, ROUNDING, CHILD, SOFT = range(4)  # members of an episode's stream, one for each purpose
STRIDE = 1 << 32  # more than ids of an episode
LOOK = 10.0  # how far from a node its gradient is taken
FIRST_DRAW = 8  # of an episode's start: those before are its substrate's
GOAL_ENDING, EXTINCT, OVERGROWN, RETREATED, TIME = 1, 2, 3, 4, 5  # durotaxis_setting.Ending, for compiled code


@njit(cache=True, error_model="numpy")
def open_streams(seed, streams):
    """The streams `key(seed, EPISODE, 0 … 3)`."""
    k = mix(mix(np.uint64(seed) + G) + EPISODE * G)
    for member in range(len(streams)):
        streams[member] = mix(k + np.uint64(member) * G)


@njit(cache=True, error_model="numpy")
def draw_normal(stream, counter):
    radius = np.sqrt(-2 * np.log1p(-draw_uniform(stream, 2 * counter)))
    return radius * np.cos(2 * np.pi * draw_uniform(stream, 2 * counter + 1))


@njit(cache=True, error_model="numpy")
def look(rules, c, i, j):
    """Intensity and its relative gradient at node j, which never changes: (I⁺ − I⁻) / (I⁺ + I⁻) over LOOK to either side."""
    x, y, ground, level, ridge = c.x[i, j], c.y[i, j], c.ground[i], c.level[i], c.ridge[i]
    w, h = rules.width, rules.height
    c.stiff[i, j] = intensity(ground, level, ridge, rules.grid, w, h, x, y)
    right = intensity(ground, level, ridge, rules.grid, w, h, x + LOOK, y)
    left = intensity(ground, level, ridge, rules.grid, w, h, x - LOOK, y)
    above = intensity(ground, level, ridge, rules.grid, w, h, x, y + LOOK)
    below = intensity(ground, level, ridge, rules.grid, w, h, x, y - LOOK)
    c.gx[i, j] = (right - left) / (right + left) if right + left > 0 else 0.0
    c.gy[i, j] = (above - below) / (above + below) if above + below > 0 else 0.0


@njit(cache=True, error_model="numpy")
def begin(rules, c, i, seed):
    """Colony i at the start of the episode of this seed: a chain from left to right."""
    open_streams(seed, c.streams[i])
    start = c.streams[i, START]
    draw_ground(rules.kind, rules.slope, rules.intercept, rules.width, rules.height, start, c.ground[i])
    lay_ground(c.ground[i], rules.width, rules.height, c.level[i], c.ridge[i])
    n, x, y = rules.init_nodes, c.x[i], c.y[i]
    for j in range(n):
        right = max(LEFT_PART * rules.width, rules.margin_x)
        at = rules.margin_x + (right - rules.margin_x) * draw_uniform(start, FIRST_DRAW + 2 * j)
        place = j
        while place > 0 and x[place - 1] > at:
            x[place] = x[place - 1]
            place -= 1
        x[place] = at
    total = 0.0
    for j in range(n):
        part = 0.5 + MIDDLE_PART * (draw_uniform(start, FIRST_DRAW + 2 * j + 1) - 0.5)
        y[j] = min(max(part * rules.height, rules.margin_y), rules.height - rules.margin_y)
        c.ident[i, j], c.parent[i, j], c.age[i, j] = j, j - 1, 0
        c.born[i, j] = 0.0
        look(rules, c, i, j)
        total += x[j]
    c.nodes[i] = c.following[i] = n
    c.step[i] = c.retreat[i] = c.passed[i] = 0
    c.centre[i] = total / n
    while c.passed[i] < len(MILESTONES) and x[n - 1] >= MILESTONES[c.passed[i]] * rules.width:
        c.passed[i] += 1


@njit(cache=True, error_model="numpy")
def spawn(rules, c, i, j, at, gamma, alpha, noise, theta):
    """A child of node j into slot `at`."""
    ratio = alpha / c.stiff[i, j]
    n = draw_normal(c.streams[i, CHILD], c.step[i] * STRIDE + c.ident[i, j])
    r = gamma / (1 + ratio * ratio) + noise * abs(n)
    c.x[i, at] = min(max(c.x[i, j] + r * np.cos(theta), rules.margin_x), rules.width - rules.margin_x)
    c.y[i, at] = min(max(c.y[i, j] + r * np.sin(theta), rules.margin_y), rules.height - rules.margin_y)
    c.ident[i, at], c.parent[i, at], c.age[i, at] = c.following[i], c.ident[i, j], 0
    c.born[i, at, 0], c.born[i, at, 1], c.born[i, at, 2], c.born[i, at, 3] = gamma, alpha, noise, theta
    c.following[i] += 1
    look(rules, c, i, at)


@njit(cache=True, error_model="numpy")
def find_parents(c, i, size, up):
    """The slot of each node's parent, −1 for the root's: ids rise from slot to slot."""
    ident = c.ident[i]
    for j in range(size):
        wanted, low, high = c.parent[i, j], 0, size
        while low < high:
            middle = (low + high) >> 1
            if ident[middle] < wanted:
                low = middle + 1
            else:
                high = middle
        up[j] = low if wanted >= 0 else -1


@njit(cache=True, error_model="numpy")
def remove(c, i, size, doomed, up):
    """Takes the doomed ones of the first `size` nodes out, and mends the tree. Returns how many are left."""
    find_parents(c, i, size, up)
    root = -1
    for j in range(size):
        if doomed[j]:
            continue
        above = up[j]
        while above >= 0 and doomed[above]:
            above = up[above]
        walked = up[j]
        while walked >= 0 and doomed[walked]:  # the next walk through here is short
            up[walked], walked = above, up[walked]
        up[j] = above
        if above < 0 and (root < 0 or c.x[i, j] < c.x[i, root]):  # of equal ones the first has the smallest id
            root = j
    for j in range(size):
        if not doomed[j]:
            c.parent[i, j] = c.ident[i, up[j]] if up[j] >= 0 else -1 if j == root else c.ident[i, root]
    kept = 0
    for j in range(size):
        if doomed[j]:
            continue
        if kept < j:
            c.x[i, kept], c.y[i, kept], c.stiff[i, kept] = c.x[i, j], c.y[i, j], c.stiff[i, j]
            c.gx[i, kept], c.gy[i, kept], c.ident[i, kept] = c.gx[i, j], c.gy[i, j], c.ident[i, j]
            c.parent[i, kept], c.age[i, kept] = c.parent[i, j], c.age[i, j]
            for number in range(4):
                c.born[i, kept, number] = c.born[i, j, number]
        kept += 1
    return kept


@njit(cache=True, error_model="numpy")
def advance(rules, c, i, action, scratch, component):
    """One step of colony i with its action: five numbers, or [choices | four numbers each]. Writes the components of its reward
    and returns the ending, 0 while the episode goes on."""
    n, doomed = c.nodes[i], scratch.doomed
    component[:] = 0.0
    mean = 0.0
    for j in range(n):
        mean += c.stiff[i, j]
        c.age[i, j] += 1
    mean /= n
    if rules.by_node:
        for j in range(n):
            doomed[j] = action[j] == DELETE
    else:
        u = draw_uniform(c.streams[i, ROUNDING], c.step[i]) if rules.stochastic else 0.0
        k = min(int(np.floor(action[0] * n + u)), n)
        mark_smallest(c.x[i], c.ident[i], n, k, doomed, scratch.values, scratch.whole)
    size, deleted, judged, gained = n, 0, 0, 0.0
    for j in range(n):
        if doomed[j]:
            deleted += 1
            judged += (c.stiff[i, j] < mean) - (c.stiff[i, j] > mean)
            continue
        if not rules.by_node:
            spawn(rules, c, i, j, size, action[1], action[2], action[3], action[4])
        elif action[j] == SPAWN:
            at = rules.max_nodes + 4 * j
            spawn(rules, c, i, j, size, action[at], action[at + 1], action[at + 2], action[at + 3])
        else:
            continue
        gain = c.stiff[i, size] - c.stiff[i, j]
        gained += gain / (1 + abs(gain))
        doomed[size] = False
        size += 1
    component[4] = gained / (size - n) if size > n else 0.0
    component[5] = judged / deleted if deleted else 0.0
    if deleted:
        size = remove(c, i, size, doomed, scratch.up)
    dying = 0
    for j in range(size):
        doomed[j] = (c.stiff[i, j] < rules.soft
                     and draw_uniform(c.streams[i, SOFT], c.step[i] * STRIDE + c.ident[i, j]) < SOFT_DEATH)
        dying += doomed[j]
    if dying:
        size = remove(c, i, size, doomed, scratch.up)
    c.nodes[i] = size
    c.step[i] += 1
    return judge(rules, c, i, scratch, component)


@njit(cache=True, error_model="numpy")
def judge(rules, c, i, scratch, component):
    """The ending of the step taken, and the components of its reward that hang on the colony as it is now."""
    n, x, y = c.nodes[i], c.x[i], c.y[i]
    if n == 0:
        component[9] = -1.0
        return EXTINCT
    total, right, edge = 0.0, 0.0, 0.0
    for j in range(n):
        total += x[j]
        right = max(right, x[j])
        off = 2 * y[j] / rules.height - 1
        edge += off * off * off * off
    centre = total / n
    find_parents(c, i, n, scratch.up)
    aligned = 0.0
    for j in range(n):
        above = scratch.up[j]
        if above >= 0:
            dx, dy = x[j] - x[above], y[j] - y[above]
            length = np.sqrt(dx * dx + dy * dy)
            aligned += dx / length if length > 0 else 0.0
    crowd = (n - rules.target) / (0.5 * rules.target)
    component[0] = (centre - c.centre[i]) / REACH
    component[3] = np.exp(-0.5 * crowd * crowd)
    component[6] = aligned / (n - 1) if n > 1 else 0.0
    component[7] = -edge / n
    while c.passed[i] < len(MILESTONES) and right >= MILESTONES[c.passed[i]] * rules.width:
        c.passed[i] += 1
        component[2] += 1.0
    c.retreat[i] = c.retreat[i] + 1 if centre < c.centre[i] else 0
    c.centre[i] = centre
    ending = 0
    if n > rules.max_nodes:
        ending = OVERGROWN
    elif right >= rules.goal:
        ending = GOAL_ENDING
    elif c.retreat[i] >= RETREAT:
        ending = RETREATED
    elif c.step[i] >= rules.max_steps:
        ending = TIME
    lost = ending in (OVERGROWN, RETREATED)
    component[1] = ending == GOAL_ENDING
    component[8] = not lost
    component[9] = -1.0 if lost else 0.0
    return ending

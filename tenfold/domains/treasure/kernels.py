"""Treasure Hunt: agents in a walled grid take what they enter.

A turn: the agents move one after another (`order`: always the same, or drawn anew each turn), up,
down, left or right. A wall stops the move and costs `bump`; another agent stops it and costs
nothing; a treasure is taken and earns its kind's value. Then each empty cell becomes a treasure
with probability `spawn`, its kind drawn by the kinds' shares. An epoch begins with the agents on
cells drawn at random and one such round of treasures, and is cut after `turns` turns: a truncation,
never a termination.

An agent sees the (2r + 1)² cells around itself, as one flat row of 0 and 1: channel, row, column.
The channels are wall, other agents, then one for each kind; an empty cell is 0 in all of them, and
everything outside the grid is wall.

All worlds live in one array of whole numbers, padded by r cells of wall, so that a window is a
slice that never leaves it; an agent is a code in that map as well. Each random number is a function
of its address (stream of the world, epoch, turn, place). `lanes` plays many worlds at once.
"""

import numpy as np

from tenfold.core.kernels import kernel
from tenfold.core.random import draw_uniform
from tenfold.domains.treasure.rules import AGENT, EMPTY, FIRST, WALL

MOVES = np.array([[-1, 0], [1, 0], [0, -1], [0, 1]])  # up, down, left, right
RADIUS, TURNS, SHUFFLED = range(3)  # places in the rules' whole numbers


# one world


@kernel
def first_draw(rule, cells, agents, episode, turn):
    """The address of a turn's first draw: one for each agent, then two for each cell that is hit,
    and one that hits none."""
    return (episode * (rule[TURNS] + 1) + turn) * (agents + 2 * cells + 1)


@kernel
def spawn(radius, gaps, shares, board, stream, counter):
    """Each cell is hit with the same probability, and becomes a treasure if it is empty. One draw
    for each hit instead of one for each cell: how many cells are passed over before the next one
    has a known distribution."""
    width, cell = board.shape[1] - 2 * radius, -1
    while True:
        drawn = draw_uniform(stream, counter)
        cell += np.searchsorted(gaps, drawn, side="right") + 1
        if cell >= gaps.size:
            return
        y, x = cell // width + radius, cell % width + radius
        if board[y, x] == EMPTY:
            drawn = draw_uniform(stream, counter + 1)
            board[y, x] = FIRST + np.searchsorted(shares, drawn, side="right")
        counter += 2


@kernel
def begin(rule, template, gaps, shares, board, at, stream, episode):
    """The agents on empty cells at random, then the first treasures."""
    radius, agents = rule[RADIUS], at.shape[0]
    counter, width, free = (
        first_draw(rule, gaps.size, agents, episode, 0),
        board.shape[1] - 2 * radius,
        0,
    )
    for i in range(board.shape[0]):
        for j in range(board.shape[1]):
            board[i, j] = template[i, j]
            free += template[i, j] == EMPTY
    for a in range(agents):
        left = int(draw_uniform(stream, counter + a) * (free - a))
        for cell in range(gaps.size):
            y, x = cell // width, cell % width
            if board[y + radius, x + radius] == EMPTY:
                if left == 0:
                    board[y + radius, x + radius] = AGENT
                    at[a, 0], at[a, 1] = y, x
                    break
                left -= 1
    spawn(radius, gaps, shares, board, stream, counter + agents)


@kernel
def observe(radius, board, y, x, row):
    """The window of an agent at (y, x): rows y … y + 2r of the padded map."""
    side = 2 * radius + 1
    area = side * side
    for f in range(row.size):
        row[f] = 0
    place = 0
    for i in range(y, y + side):
        for j in range(x, x + side):
            code = board[i, j]
            if code != EMPTY:
                row[(code - 1) * area + place] = 1
            place += 1
    row[(AGENT - 1) * area + area // 2] = 0  # itself


@kernel
def move(radius, value, board, at, a, action):
    """Moves agent a and returns what that earned."""
    y, x = at[a, 0] + MOVES[action, 0], at[a, 1] + MOVES[action, 1]
    code = board[y + radius, x + radius]
    if code != WALL and code != AGENT:
        board[at[a, 0] + radius, at[a, 1] + radius] = EMPTY
        board[y + radius, x + radius] = AGENT
        at[a, 0], at[a, 1] = y, x
    return value[code]


@kernel
def turn(rule, value, gaps, shares, board, at, stream, episode, length, action, reward, order):
    """The agents' moves in turn number `length`, then new treasures."""
    agents = len(at)
    counter = first_draw(rule, gaps.size, agents, episode, length)
    for a in range(agents):
        order[a] = a
    if rule[SHUFFLED]:
        for a in range(agents - 1, 0, -1):
            other = int(draw_uniform(stream, counter + a) * (a + 1))
            order[a], order[other] = order[other], order[a]
    for a in order:
        reward[a] = move(rule[RADIUS], value, board, at, a, action[a])
    spawn(rule[RADIUS], gaps, shares, board, stream, counter + agents)

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

All worlds lie in one array of whole numbers, padded by r cells of wall, so that a window is a slice
that never leaves it; an agent is a code in that map as well. Each random number is a function of
its address (stream of the world, epoch, turn, place). The pair's reference knows neither codes for
agents nor padding: it looks at one cell of one agent's world at a time.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.core.random import Purpose, draw_uniform, key, uniform_reference
from tenfold.domains.treasure.rules import AGENT, EMPTY, FIRST, WALL, CellKind, Rules

MOVES = np.array([[-1, 0], [1, 0], [0, -1], [0, 1]])  # up, down, left, right
RADIUS, TURNS, SHUFFLED = range(3)  # columns of the rules' whole numbers


# one world


@kernel
def first_draw_of_turn(rule, cells, agents, episode, turn):
    """The counter of a turn's first draw: a turn has one draw for each agent, two for each cell
    that is hit, and one that hits none."""
    return (episode * (rule[TURNS] + 1) + turn) * (agents + 2 * cells + 1)


@kernel
def spawn(radius, gaps, shares, board, stream, counter):
    """Each cell is hit with the same probability, and becomes a treasure if it is empty. There is
    one draw for each hit instead of one for each cell: the number of cells before the next hit has
    a known distribution."""
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
def begin(tables, board, at, stream, episode):
    """Places the agents on random empty cells, then the first treasures."""
    rule, template, _, gaps, shares = tables
    radius, agents, free = rule[RADIUS], at.shape[0], 0
    counter = first_draw_of_turn(rule, gaps.size, agents, episode, 0)
    width = board.shape[1] - 2 * radius
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
    """Writes the window of an agent at (y, x): rows y … y + 2r of the padded map."""
    side = 2 * radius + 1
    area = side * side
    for f in range(row.size):
        row[f] = 0
    cell = 0
    for i in range(y, y + side):
        for j in range(x, x + side):
            code = board[i, j]
            if code != EMPTY:
                row[(code - 1) * area + cell] = 1
            cell += 1
    row[(AGENT - 1) * area + area // 2] = 0  # itself


@kernel
def move(radius, value, board, at, a, action):
    """Moves agent a; returns its reward."""
    y, x = at[a, 0] + MOVES[action, 0], at[a, 1] + MOVES[action, 1]
    code = board[y + radius, x + radius]
    if code != WALL and code != AGENT:
        board[at[a, 0] + radius, at[a, 1] + radius] = EMPTY
        board[y + radius, x + radius] = AGENT
        at[a, 0], at[a, 1] = y, x
    return value[code]


@kernel
def turn(tables, board, at, stream, episode, length, action, reward, order):
    """The agents' moves of turn `length`, then new treasures. `order` is scratch."""
    rule, _, value, gaps, shares = tables
    agents = len(at)
    counter = first_draw_of_turn(rule, gaps.size, agents, episode, length)
    for a in range(agents):
        order[a] = a
    if rule[SHUFFLED]:
        for a in range(agents - 1, 0, -1):
            other = int(draw_uniform(stream, counter + a) * (a + 1))
            order[a], order[other] = order[other], order[a]
    for a in order:
        reward[a] = move(rule[RADIUS], value, board, at, a, action[a])
    spawn(rule[RADIUS], gaps, shares, board, stream, counter + agents)


# many worlds; lane = agent · worlds + world


@kernel
def observe_all(radius, boards, at, obs):
    """Writes every agent's window in every world."""
    for a in range(at.shape[1]):
        for w in range(len(boards)):
            observe(radius, boards[w], at[w, a, 0], at[w, a, 1], obs[a * len(boards) + w])


@kernel
def play_all(action, tables, state, obs, final_obs, reward, truncated, ret, last_ret, order):
    """One turn of every world, SAME_STEP: where an epoch ended, final_obs has its last windows,
    last_ret its returns, and obs are the next one's first. Returns the number of worlds that ended;
    an action that is none of the four is refused before anything moves: the result is then −1 −
    lane."""
    boards, at, length, episode, streams = state
    rule = tables[0]
    worlds, agents, ended = len(boards), at.shape[1], 0
    for lane in range(len(action)):
        if not 0 <= action[lane] < len(MOVES):
            return -1 - lane
    for w in range(worlds):
        length[w] += 1
        earned = reward[w::worlds]
        stream, epoch = streams[w], episode[w]
        turn(tables, boards[w], at[w], stream, epoch, length[w], action[w::worlds], earned, order)
        over = length[w] == rule[TURNS]
        for a in range(agents):
            lane = a * worlds + w
            truncated[lane] = over
            ret[lane] += reward[lane]
            if over:
                observe(rule[RADIUS], boards[w], at[w, a, 0], at[w, a, 1], final_obs[lane])
                last_ret[lane], ret[lane] = ret[lane], 0.0
        if over:
            ended += 1
            episode[w] += 1
            length[w] = 0
            begin(tables, boards[w], at[w], streams[w], episode[w])
    observe_all(rule[RADIUS], boards, at, obs)
    return ended


# the pairs: cell by cell, one world and one agent at a time


def cell_reference(rules: Rules, board: np.ndarray, at: np.ndarray, y: int, x: int) -> int:
    """The code at (y, x), without the padding and the codes of agents in `board`."""
    if not (0 < y < rules.height - 1 and 0 < x < rules.width - 1) or (y, x) in rules.walls:
        return WALL
    if [y, x] in at.tolist():
        return AGENT
    return int(board[y + rules.radius, x + rules.radius])


def observe_reference(rules: Rules, boards: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Windows [agents · worlds, channels · side²]."""
    obs = np.zeros((rules.agents, len(boards), rules.channels, rules.side, rules.side), np.uint8)
    for w, board in enumerate(boards):
        for a, (y, x) in enumerate(at[w].tolist()):
            for i in range(rules.side):
                for j in range(rules.side):
                    code = cell_reference(
                        rules, board, at[w], y - rules.radius + i, x - rules.radius + j
                    )
                    if code != EMPTY and (i, j) != (rules.radius, rules.radius):
                        obs[a, w, code - 1, i, j] = 1
    return obs.reshape(rules.agents * len(boards), -1)


def first_reference(rules: Rules, episode: int, turn: int) -> int:
    return (episode * (rules.turns + 1) + turn) * (
        rules.agents + 2 * rules.height * rules.width + 1
    )


def spawn_reference(
    rules: Rules, board: np.ndarray, at: np.ndarray, stream: np.uint64, first: int
) -> None:
    """A draw u passes over as many cells as there are k with P(at most k) ≤ u; the next is hit, and
    its kind is the first k with u' < P(one of the kinds up to k)."""
    cell = -1
    for counter in itertools.count(first, 2):
        passed, which = uniform_reference(stream, np.array([counter, counter + 1]))
        cell += 1 + int(np.count_nonzero(rules.gaps() <= passed))
        if cell >= rules.height * rules.width:
            return
        y, x = divmod(cell, rules.width)
        if cell_reference(rules, board, at, y, x) == EMPTY:
            board[y + rules.radius, x + rules.radius] = FIRST + np.count_nonzero(
                rules.shares() <= which
            )


def begin_reference(rules: Rules, stream: np.uint64, episode: int) -> tuple[np.ndarray, np.ndarray]:
    board, at = rules.board(), np.zeros((0, 2), np.int64)
    first, cells = first_reference(rules, episode, 0), list(np.ndindex(rules.height, rules.width))
    for drawn in uniform_reference(stream, first + np.arange(rules.agents)):
        free = [cell for cell in cells if cell_reference(rules, board, at, *cell) == EMPTY]
        at = np.concatenate([at, [free[int(drawn * len(free))]]])
    spawn_reference(rules, board, at, stream, first + rules.agents)
    return board, at


def turn_reference(
    rules: Rules, board: np.ndarray, at: np.ndarray, drawn: np.ndarray, action: np.ndarray
) -> np.ndarray:
    """The agents' moves, one after another."""
    reward, order = np.zeros(rules.agents), list(range(rules.agents))
    if rules.order == "shuffled":
        for a in reversed(range(1, rules.agents)):
            other = int(drawn[a] * (a + 1))
            order[a], order[other] = order[other], order[a]
    for a in order:
        y, x = (at[a] + MOVES[action[a]]).tolist()
        code = cell_reference(rules, board, at, y, x)
        if code == WALL:
            reward[a] = rules.bump
        elif code != AGENT:
            reward[a] = rules.kinds[code - FIRST].value if code >= FIRST else 0
            board[y + rules.radius, x + rules.radius] = EMPTY
            at[a] = y, x
    return reward


def step_reference(rules: Rules, *state_and_action: np.ndarray) -> tuple[np.ndarray, ...]:
    """One turn, world by world. Boards are returned with the agents marked, as the kernel has
    them."""
    boards, at, length, episode, streams, action = state_and_action
    worlds = len(boards)
    final = np.zeros((rules.agents * worlds, rules.channels * rules.side**2), np.uint8)
    reward, over = np.zeros((rules.agents, worlds)), length + 1 == rules.turns
    for w, board in enumerate(boards):
        board[board == AGENT] = EMPTY
        length[w] += 1
        first = first_reference(rules, episode[w], length[w])
        drawn = uniform_reference(streams[w], first + np.arange(rules.agents))
        reward[:, w] = turn_reference(
            rules, board, at[w], drawn, action.reshape(rules.agents, worlds)[:, w]
        )
        spawn_reference(rules, board, at[w], streams[w], first + rules.agents)
        if over[w]:
            final[w::worlds] = observe_reference(rules, board[None], at[w][None])
            length[w], episode[w] = 0, episode[w] + 1
            boards[w], at[w] = begin_reference(rules, streams[w], episode[w])
    obs = observe_reference(rules, boards, at)
    for board, cells in zip(boards, at, strict=True):
        for y, x in cells:
            board[y + rules.radius, x + rules.radius] = AGENT
    return boards, at, length, episode, obs, final, reward.ravel(), np.tile(over, rules.agents)


def random_worlds(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """Worlds in the middle of an epoch and at its last turn: crowded, empty, odd shapes, inner
    walls, both orders."""
    gem, bone = CellKind("gem", 10, 2.0), CellKind("bone", -10, 0.5)
    for rules, worlds in (
        (Rules(), 2),
        (Rules(10, 10, kinds=(gem,), spawn=0.02, agents=5, turns=50), 5),
        (Rules(4, 7, kinds=(gem, bone), spawn=0.4, agents=6, turns=3, radius=3, order="fixed"), 3),
        (Rules(5, 5, spawn=1.0, agents=9, turns=2, radius=1), 1),
        (
            Rules(9, 6, kinds=(gem,), spawn=0.0, agents=1, turns=9, walls=((2, 2), (3, 2), (0, 0))),
            4,
        ),
    ):
        streams = np.array(
            [key(int(rng.integers(2**62)), Purpose.EPISODE, w) for w in range(worlds)]
        )
        episode, length = rng.integers(1000, size=worlds), rng.choice([0, rules.turns - 1], worlds)
        began = [begin_reference(rules, *address) for address in zip(streams, episode, strict=True)]
        boards, at = np.stack([b for b, _ in began]), np.stack([a for _, a in began])
        for board, cells in zip(boards, at + rules.radius, strict=True):
            board[cells[:, 0], cells[:, 1]] = AGENT
        yield (
            rules,
            boards,
            at,
            length,
            episode,
            streams,
            rng.integers(4, size=rules.agents * worlds),
        )


@pair(step_reference, random_worlds, dtypes=("int64",), name="envs.treasure.play_all")
def step_once(rules: Rules, *state_and_action: np.ndarray) -> tuple[np.ndarray, ...]:
    """`play_all` with fresh arrays for its results."""
    *state, action = state_and_action
    lanes = rules.agents * len(state[0])
    obs, final = np.zeros((2, lanes, rules.channels * rules.side**2), np.uint8)
    reward, ret, last_ret = np.zeros((3, lanes))
    truncated, order = np.zeros(lanes, np.bool_), np.zeros(rules.agents, np.int64)
    results = obs, final, reward, truncated
    play_all(action, rules.tables(), tuple(state), *results, ret, last_ret, order)
    return *state[:4], *results


def boards_only(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    yield from (inputs[:3] for inputs in random_worlds(rng, dtype))


@pair(observe_reference, boards_only, dtypes=("int64",), name="envs.treasure.observe_all")
def observe_once(rules: Rules, boards: np.ndarray, at: np.ndarray) -> np.ndarray:
    """`observe_all` with a fresh array for its result."""
    obs = np.zeros((rules.agents * len(boards), rules.channels * rules.side**2), np.uint8)
    observe_all(rules.radius, boards, at, obs)
    return obs

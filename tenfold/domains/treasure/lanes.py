"""Many worlds of Treasure Hunt side by side, compiled; lane = agent · worlds + world.

The pair's reference knows neither codes for agents nor padding: it looks at one cell of one agent's
world at a time.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.core.random import Purpose, key, uniform_reference
from tenfold.domains.treasure.kernels import MOVES, RADIUS, TURNS, begin, observe, turn
from tenfold.domains.treasure.rules import AGENT, EMPTY, FIRST, WALL, Kind, Rules


@kernel
def observe_all(radius, boards, at, obs):
    """Every agent's window in every world; lane = agent · worlds + world."""
    for a in range(at.shape[1]):
        for w in range(len(boards)):
            observe(radius, boards[w], at[w, a, 0], at[w, a, 1], obs[a * len(boards) + w])


@kernel
def play_all(
    action,
    rule,
    template,
    value,
    gaps,
    shares,
    boards,
    at,
    length,
    episode,
    streams,
    obs,
    final_obs,
    reward,
    truncated,
    ret,
    last_ret,
    order,
):
    """One turn of every world, SAME_STEP: where an epoch ended, final_obs has its last windows,
    last_ret its returns, and obs are the next one's first. Returns the number of worlds that ended;
    an action that is none of the four is refused before anything moves: the result is then −1 −
    lane."""
    worlds, agents, ended = len(boards), at.shape[1], 0
    for lane in range(len(action)):
        if not 0 <= action[lane] < len(MOVES):
            return -1 - lane
    for w in range(worlds):
        length[w] += 1
        turn(
            rule,
            value,
            gaps,
            shares,
            boards[w],
            at[w],
            streams[w],
            episode[w],
            length[w],
            action[w::worlds],
            reward[w::worlds],
            order,
        )
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
            begin(rule, template, gaps, shares, boards[w], at[w], streams[w], episode[w])
    observe_all(rule[RADIUS], boards, at, obs)
    return ended


# the pairs: cell by cell, one world and one agent at a time


def cell_reference(rules: Rules, board: np.ndarray, at: np.ndarray, y: int, x: int) -> int:
    """What is at (y, x): the padding and the codes of agents in `board` are not looked at."""
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
    """The agents' moves, each after the one before it."""
    reward, order = np.zeros(rules.agents), list(range(rules.agents))
    if rules.order == "shuffled":
        for a in reversed(range(1, rules.agents)):
            other = int(drawn[a] * (a + 1))
            order[a], order[other] = order[other], order[a]
    for a in order:
        y, x = (at[a] + MOVES[action[a]]).tolist()
        found = cell_reference(rules, board, at, y, x)
        if found == WALL:
            reward[a] = rules.bump
        elif found != AGENT:
            reward[a] = rules.kinds[found - FIRST].value if found >= FIRST else 0
            board[y + rules.radius, x + rules.radius] = EMPTY
            at[a] = y, x
    return reward


def step_reference(
    rules: Rules,
    boards: np.ndarray,
    at: np.ndarray,
    length: np.ndarray,
    episode: np.ndarray,
    streams: np.ndarray,
    action: np.ndarray,
) -> tuple[np.ndarray, ...]:
    """One turn, world by world. Boards come back as the kernel has them, with the agents marked."""
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
    for board, places in zip(boards, at, strict=True):
        for y, x in places:
            board[y + rules.radius, x + rules.radius] = AGENT
    return boards, at, length, episode, obs, final, reward.ravel(), np.tile(over, rules.agents)


def random_worlds(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """Worlds in the middle of an epoch and at its last turn: crowded, empty, odd shapes, inner
    walls, both orders."""
    gem, bone = Kind("gem", 10, 2.0), Kind("bone", -10, 0.5)
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
        began = [begin_reference(rules, *each) for each in zip(streams, episode, strict=True)]
        boards, at = np.stack([b for b, _ in began]), np.stack([a for _, a in began])
        for board, places in zip(boards, at + rules.radius, strict=True):
            board[places[:, 0], places[:, 1]] = AGENT
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
def step_once(
    rules: Rules,
    boards: np.ndarray,
    at: np.ndarray,
    length: np.ndarray,
    episode: np.ndarray,
    streams: np.ndarray,
    action: np.ndarray,
) -> tuple[np.ndarray, ...]:
    """`play_all` with fresh arrays for its results."""
    lanes = rules.agents * len(boards)
    obs, final = np.zeros((2, lanes, rules.channels * rules.side**2), np.uint8)
    reward, ret, last_ret = np.zeros((3, lanes))
    truncated = np.zeros(lanes, np.bool_)
    play_all(
        action,
        *rules.tables(),
        boards,
        at,
        length,
        episode,
        streams,
        obs,
        final,
        reward,
        truncated,
        ret,
        last_ret,
        np.zeros(rules.agents, np.int64),
    )
    return boards, at, length, episode, obs, final, reward, truncated


def only_seen(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    yield from (inputs[:3] for inputs in random_worlds(rng, dtype))


@pair(observe_reference, only_seen, dtypes=("int64",), name="envs.treasure.observe_all")
def observe_once(rules: Rules, boards: np.ndarray, at: np.ndarray) -> np.ndarray:
    """`observe_all` with a fresh array for its result."""
    obs = np.zeros((rules.agents * len(boards), rules.channels * rules.side**2), np.uint8)
    observe_all(rules.radius, boards, at, obs)
    return obs

"""Many gridworlds at once, and two yardsticks that play them: moving at random, and a script that
sees what a learner sees.

The script finds the shortest path to every treasure in its window that is worth something, around
walls, bones and other agents, and takes the first step to the one with the most value per step.
Where another agent in sight is nearer to a treasure, that one counts less. Where it sees none it
walks straight on, and turns to a side before a wall fills its window.

    python -m tenfold.domains.treasure.play [WORLD ...]
"""

from typing import Any

import numpy as np

from tenfold.core.errors import EnvironmentFault
from tenfold.core.kernels import kernel
from tenfold.core.random import Purpose, below, draw_uniform, key
from tenfold.domains.treasure.kernels import MOVES, begin, observe, observe_all, play_all, turn
from tenfold.domains.treasure.rules import (
    ACTIONS,
    AGENT,
    FIRST,
    RULES,
    WALL,
    Rules,
    picture,
    rules_of,
)
from tenfold.envs.adapter import Episode, Worlds

CONTESTED = 0.3  # what a treasure counts for that another agent reaches first
RESTLESS = 0.05  # how often a wanderer turns without need
WORLDS_AT_ONCE = 256  # worlds stepped at once


class TreasureWorlds(Worlds):
    """All agents of all gridworlds in one kernel call a turn. World i plays the epochs of the
    stream (seed, EPISODE, first + i)."""

    def __init__(
        self, name: str, worlds: int, seed: int, first: int = 0, rules: Rules | None = None
    ) -> None:
        self.rules = rules = rules or rules_of(name)
        super().__init__(
            name, worlds, seed, rules.observation_space(), rules.action_space(), first, rules.agents
        )
        self.tables = rules.tables()
        self.boards = np.zeros((worlds, *rules.board().shape), np.int8)
        self.at = np.zeros((worlds, rules.agents, 2), np.int64)  # row and column of each agent
        self.length, self.episode = np.zeros(worlds, np.int64), np.zeros(worlds, np.int64)
        self.ret, self.last_ret = np.zeros((2, self.num_envs))
        self.action = np.zeros(self.num_envs, np.int64)
        self.order = np.zeros(rules.agents, np.int64)  # room for that of a turn
        self.state_arrays = {
            "boards": self.boards,
            "at": self.at,
            "length": self.length,
            "episode": self.episode,
            "ret": self.ret,
        }
        self.streams = np.array(self.keys, np.uint64)
        state = self.boards, self.at, self.length, self.episode, self.streams
        results = self.obs, self.final_obs, self.reward, self.truncated, self.ret, self.last_ret
        # what every step hands to the kernel; these arrays are written to, never replaced
        self.step_arrays = (self.action, self.tables, state, *results, self.order)
        for w in range(worlds):
            self.begin(w)

    def address(self, w: int) -> tuple[Any, ...]:
        """World w's board and agents, and the address of its draws."""
        return self.boards[w], self.at[w], self.streams[w], self.episode[w]

    def begin(self, w: int) -> None:
        begin(self.tables, *self.address(w))
        self.ret[w :: self.worlds], self.length[w] = 0.0, 0
        for lane, (y, x) in zip(range(w, self.num_envs, self.worlds), self.at[w], strict=True):
            observe(self.rules.radius, self.boards[w], y, x, self.obs[lane])

    def turn(self, w: int) -> None:
        """World w's turn `length`, without the reset at an epoch's end."""
        lanes = slice(w, None, self.worlds)
        action, reward = self.action[lanes], self.reward[lanes]
        turn(self.tables, *self.address(w), self.length[w], action, reward, self.order)

    def step(self, actions: np.ndarray) -> None:
        """One turn of every world with actions [B]."""
        self.begin_rounds()
        self.action[:] = actions
        ended = play_all(*self.step_arrays)
        if ended < 0:
            lane = -1 - ended
            raise EnvironmentFault(
                f"{self.location(lane, later=1)}: {self.action[lane]} is no action; they are "
                f"{', '.join(f'{i} {what}' for i, what in enumerate(ACTIONS))}."
            )
        if ended:
            returns = self.last_ret.reshape(self.agents, -1)
            self.finished = [
                Episode(
                    w, float(returns[:, w].mean()), self.rules.turns, tuple(returns[:, w].tolist())
                )
                for w in np.flatnonzero(self.truncated[: self.worlds]).tolist()
            ]

    def see_again(self) -> None:
        """Writes the observations of the present boards."""
        observe_all(self.rules.radius, self.boards, self.at, self.obs)

    def picture(self) -> np.ndarray:
        return picture(self.rules, self.boards[0], self.at[0])


# the yardsticks


@kernel
def find_paths(codes, side, value, distance, step, queue):
    """Shortest paths from the centre over cells without a penalty: their lengths (0: none) and
    their first steps."""
    area = side * side
    for c in range(area):
        distance[c], step[c] = 0, -1
    queue[0] = area // 2
    head, tail = 0, 1
    while head < tail:
        c = queue[head]
        head += 1
        for m in range(4):
            y, x = c // side + MOVES[m, 0], c % side + MOVES[m, 1]
            n = y * side + x
            if not (0 <= y < side and 0 <= x < side) or n == area // 2 or distance[n]:
                continue
            if codes[n] == WALL or codes[n] == AGENT or value[codes[n]] < 0:
                continue
            distance[n] = distance[c] + 1
            step[n] = m if c == area // 2 else step[c]
            queue[tail] = n
            tail += 1


@kernel
def best_treasure(codes, side, value, distance):
    """The cell with the most value per step, or −1."""
    area, best, target = side * side, 0.0, -1
    for c in range(area):
        if codes[c] < FIRST or not distance[c]:
            continue
        worth = value[codes[c]] / distance[c]
        for other in range(area):
            away = abs(other // side - c // side) + abs(other % side - c % side)
            if codes[other] == AGENT and away < distance[c]:
                worth *= CONTESTED
                break
        if worth > best:
            best, target = worth, c
    return target


@kernel
def wander(codes, side, value, heading, draw):
    """The move with the least penalty and the farthest view: straight on where all are alike, else
    the side that `draw` picks."""
    centre, best, action = side // 2, -np.inf, 0
    for m in range(4):
        ahead = codes[(centre + MOVES[m, 0]) * side + centre + MOVES[m, 1]]
        # standing before somebody gains nothing
        worth = value[ahead] - (1.0 if ahead == AGENT else 0.0)
        if side > 3 and codes[(centre + 2 * MOVES[m, 0]) * side + centre + 2 * MOVES[m, 1]] == WALL:
            worth -= 0.5  # half of what comes into view there is wall
        if m // 2 != heading // 2:
            worth -= 0.1 if (m % 2 == 1) == (draw < 0.5) else 0.2
            if draw < RESTLESS or draw > 1 - RESTLESS:
                worth += 0.3
        elif m != heading:
            worth -= 0.4  # back where it came from
        if worth > best:
            best, action = worth, m
    return action


@kernel
def script_all(windows, side, value, heading, stream, counter, action):
    """An action for every lane from the codes [B, side²] of its window; `heading` [B] is its last
    move."""
    distance, step, queue = np.zeros((3, side * side), np.int64)
    for lane in range(len(windows)):
        codes = windows[lane]
        find_paths(codes, side, value, distance, step, queue)
        goal = best_treasure(codes, side, value, distance)
        if goal >= 0:
            action[lane] = step[goal]
        else:
            action[lane] = wander(
                codes,
                side,
                value,
                heading[lane],
                draw_uniform(stream, counter * len(windows) + lane),
            )
        heading[lane] = action[lane]


class RandomWalk:
    """Uniformly random moves."""

    def __init__(self, rules: Rules, lanes: int, seed: int) -> None:
        self.lanes, self.stream, self.turn = np.arange(lanes), key(seed, Purpose.RANDOM_POLICY), 0

    def act(self, obs: np.ndarray) -> np.ndarray:
        self.turn += 1
        return below(self.stream, self.turn * len(self.lanes) + self.lanes, len(MOVES))


class Scripted:
    """The scripted player, for rows [B, channels · side²] of observations."""

    def __init__(self, rules: Rules, lanes: int, seed: int) -> None:
        self.side, self.value = rules.side, rules.tables()[2]
        self.stream, self.turn = key(seed, Purpose.RANDOM_POLICY), 0
        self.heading = below(self.stream, np.arange(lanes), len(MOVES))
        self.action = np.zeros(lanes, np.int64)

    def act(self, obs: np.ndarray) -> np.ndarray:
        self.turn += 1
        channels = obs.reshape(len(obs), -1, self.side**2).astype(np.int64)
        codes = (channels * np.arange(1, channels.shape[1] + 1)[:, None]).sum(1)
        script_all(codes, self.side, self.value, self.heading, self.stream, self.turn, self.action)
        return self.action


def mean_return(
    policy: type[RandomWalk] | type[Scripted], world: str | Rules, epochs: int, seed: int = 0
) -> float:
    """Mean return of an agent in an epoch, over exactly `epochs` epochs."""
    rules = world if isinstance(world, Rules) else rules_of(world)
    total = done = 0
    while done < epochs:
        worlds = TreasureWorlds(
            str(world), min(WORLDS_AT_ONCE, epochs - done), seed, first=done, rules=rules
        )
        player = policy(rules, worlds.num_envs, seed + done)
        for _ in range(rules.turns):
            worlds.step(player.act(worlds.obs))
        total += sum(episode.ret for episode in worlds.finished)
        done += worlds.worlds
    return total / epochs


def yardsticks(world: str | Rules, epochs: int = 1000, seed: int = 0) -> dict[str, float]:
    """Mean return of an agent in an epoch, of both players."""
    return {
        "random": mean_return(RandomWalk, world, epochs, seed),
        "scripted": mean_return(Scripted, world, epochs, seed),
    }


if __name__ == "__main__":
    import sys

    for name in sys.argv[1:] or RULES:
        print(name, {player: round(mean, 1) for player, mean in yardsticks(name).items()})

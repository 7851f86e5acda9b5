"""Two yardsticks for gridworlds: moving at random, and a script that sees what a learner sees.

The script finds the shortest path to every treasure in its window that is worth something, around
walls, bones and other agents, and takes the first step to the one with the most value per step.
Where another agent in sight is nearer to a treasure, that one counts less. Where it sees none it
walks straight on, and turns to a side before a wall fills its window.
"""

import numpy as np

from tenfold.core.kernels import kernel
from tenfold.core.random import Purpose, below, draw_uniform, key
from tenfold.domains.treasure.kernels import MOVES
from tenfold.domains.treasure.rules import AGENT, FIRST, RULES, WALL, Rules, rules_of
from tenfold.domains.treasure.worlds import TreasureWorlds

CONTESTED = 0.3  # what a treasure counts for that another agent reaches first
RESTLESS = 0.05  # how often a wanderer turns without need
TOGETHER = 256  # worlds stepped at once


@kernel
def find_paths(codes, side, value, distance, step, queue):
    """Shortest ways from the centre over cells that cost nothing: their lengths (0: none) and their
    first steps."""
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
    """The cell worth most per step, or −1."""
    area, best, chosen = side * side, 0.0, -1
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
            best, chosen = worth, c
    return chosen


@kernel
def wander(codes, side, value, heading, draw):
    """The move with the least to lose and the farthest view: straight on where all are alike, else
    the side that `draw` picks."""
    centre, best, chosen = side // 2, -np.inf, 0
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
            best, chosen = worth, m
    return chosen


@kernel
def script_all(windows, side, value, heading, stream, counter, action):
    """An action for every lane, by the codes [B, side²] of what it sees; `heading` [B] is where
    each went last."""
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
    """Every move with the same probability."""

    def __init__(self, rules: Rules, lanes: int, seed: int) -> None:
        self.lanes, self.stream, self.turn = np.arange(lanes), key(seed, Purpose.RANDOM_POLICY), 0

    def act(self, obs: np.ndarray) -> np.ndarray:
        self.turn += 1
        return below(self.stream, self.turn * len(self.lanes) + self.lanes, len(MOVES))


class Scripted:
    """The script, for rows [B, channels · side²] of observations."""

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
            str(world), min(TOGETHER, epochs - done), seed, first=done, rules=rules
        )
        player = policy(rules, worlds.num_envs, seed + done)
        for _ in range(rules.turns):
            worlds.step(player.act(worlds.obs))
        total += sum(episode.ret for episode in worlds.finished)
        done += worlds.worlds
    return total / epochs


def yardsticks(world: str | Rules, epochs: int = 1000, seed: int = 0) -> dict[str, float]:
    """Mean return of an agent in an epoch of both."""
    return {
        "random": mean_return(RandomWalk, world, epochs, seed),
        "scripted": mean_return(Scripted, world, epochs, seed),
    }


if __name__ == "__main__":
    import sys

    for name in sys.argv[1:] or RULES:
        print(name, {player: round(mean, 1) for player, mean in yardsticks(name).items()})

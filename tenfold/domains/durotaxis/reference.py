"""The rules of `rules` in plain Python, one node at a time."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tenfold.core.pairs import pair
from tenfold.core.random import GOLDEN, UNIT, WORD, Purpose, key, mix_reference
from tenfold.domains.durotaxis.colonies import CHOICES, DurotaxisEnvironments, flat_limits
from tenfold.domains.durotaxis.features import observe_reference
from tenfold.domains.durotaxis.rules import (
    CHILD,
    DRAWS_PER_STEP,
    FIRST_DRAW,
    GRADIENT_DISTANCE,
    ROUNDING,
    SOFT,
    START,
)
from tenfold.domains.durotaxis.setting import (
    COMPONENTS,
    DELETE,
    LEFT_PART,
    MIDDLE_PART,
    MILESTONES,
    REACH,
    REST,
    RETREAT,
    SOFT_DEATH,
    SPAWN,
    EndReason,
    Setting,
    read_setting,
)
from tenfold.domains.durotaxis.substrate import (
    NODES_DRAW,
    draw_extent_reference,
    draw_ground_reference,
    draw_nodes_reference,
    intensity_reference,
)
from tenfold.envs.arguments import split_name


def uniform(stream: int, counter: int) -> float:
    """`core.random.uniform_reference` of one counter."""
    return (mix_reference((stream + mix_reference((counter * GOLDEN) & WORD)) & WORD) >> 11) * UNIT


def normal(stream: int, counter: int) -> float:
    u1, u2 = uniform(stream, 2 * counter), uniform(stream, 2 * counter + 1)
    return math.sqrt(-2 * math.log1p(-u1)) * math.cos(2 * math.pi * u2)


@dataclass
class Node:
    ident: int
    parent: int
    x: float
    y: float
    stiff: float
    gradient: tuple[float, float]
    age: int = 0
    born: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0)


class Colony:
    """One episode. `nodes` are in the order of their ids."""

    def __init__(self, setting: Setting, seed: int) -> None:
        self.setting, self.rules = setting, setting.rules
        self.streams = [int(key(seed, Purpose.EPISODE, member)) for member in range(4)]
        ground, start = setting.ground, self.streams[START]
        sides = (ground.least[0], ground.width), (ground.least[1], ground.height)
        self.extent = draw_extent_reference(
            sides, setting.margin, lambda draw: uniform(start, draw)
        )
        self.ground = draw_ground_reference(ground, self.extent, lambda draw: uniform(start, draw))
        width, height, margin_x, margin_y, _ = self.extent
        right = max(LEFT_PART * width, margin_x)
        number = draw_nodes_reference(setting.starts, uniform(start, NODES_DRAW))
        draws = [FIRST_DRAW + 2 * j for j in range(number)]
        xs = sorted(margin_x + (right - margin_x) * uniform(start, draw) for draw in draws)
        ys = [(0.5 + MIDDLE_PART * (uniform(start, draw + 1) - 0.5)) * height for draw in draws]
        self.nodes: list[Node] = []
        self.following = 0  # the next id
        for j, (x, y) in enumerate(zip(xs, ys, strict=True)):
            self.add(j - 1, x, min(max(y, margin_y), height - margin_y))
        self.step_count = self.retreat = 0
        self.centre = sum(xs) / len(xs)
        self.passed = sum(xs[-1] >= part * width for part in MILESTONES)

    def intensity(self, x: float, y: float) -> float:
        return intensity_reference(self.setting.ground, self.extent, self.ground, x, y)

    def add(
        self, parent: int, x: float, y: float, born: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0)
    ) -> Node:
        right, left, above, below = (
            self.intensity(x + a, y + b)
            for a, b in (
                (GRADIENT_DISTANCE, 0),
                (-GRADIENT_DISTANCE, 0),
                (0, GRADIENT_DISTANCE),
                (0, -GRADIENT_DISTANCE),
            )
        )
        gx = (right - left) / (right + left) if right + left > 0 else 0.0
        gy = (above - below) / (above + below) if above + below > 0 else 0.0
        node = Node(self.following, parent, x, y, self.intensity(x, y), (gx, gy), 0, born)
        self.following += 1
        self.nodes.append(node)
        return node

    def spawn(self, parent: Node, gamma: float, alpha: float, noise: float, theta: float) -> Node:
        width, height, margin_x, margin_y, _ = self.extent
        hill = gamma / (1 + (alpha / parent.stiff) ** 2) if parent.stiff > 0 else 0.0
        r = hill + noise * abs(
            normal(self.streams[CHILD], self.step_count * DRAWS_PER_STEP + parent.ident)
        )
        x = min(max(parent.x + r * math.cos(theta), margin_x), width - margin_x)
        y = min(max(parent.y + r * math.sin(theta), margin_y), height - margin_y)
        return self.add(parent.ident, x, y, (gamma, alpha, noise, theta))

    def delete_nodes(self, removed: list[Node]) -> None:
        """One after another, the root last: children attach to the parent; the left-most child of a
        deleted root takes its place."""
        for node in sorted(removed, key=lambda node: node.parent < 0):
            children = [other for other in self.nodes if other.parent == node.ident]
            self.nodes.remove(node)
            heir = node.parent
            if heir < 0 and children:
                first = min(children, key=lambda child: (child.x, child.ident))
                heir, first.parent = first.ident, -1
                children.remove(first)
            for child in children:
                child.parent = heir

    def step(self, action: list[float]) -> tuple[dict[str, float], EndReason]:
        """Returns the components of the reward, and the ending."""
        rules, old = self.rules, list(self.nodes)
        stiff = [node.stiff for node in old]
        mean = min(max(sum(stiff) / len(old), min(stiff)), max(stiff))
        for node in old:
            node.age += 1
        if rules.by_node:
            removed = [node for j, node in enumerate(old) if action[j] == DELETE]
            spawning = {
                node.ident: action[rules.max_nodes + 4 * j : rules.max_nodes + 4 * j + 4]
                for j, node in enumerate(old)
                if action[j] == SPAWN
            }
        else:
            u = uniform(self.streams[ROUNDING], self.step_count) if rules.stochastic else 0.0
            k = min(math.floor(action[0] * len(old) + u), len(old))
            removed = sorted(old, key=lambda node: (node.x, node.ident))[:k]
            gone = {node.ident for node in removed}
            spawning = {node.ident: action[1:] for node in old if node.ident not in gone}
        gains = []
        for node in old:
            if node.ident in spawning:
                gain = self.spawn(node, *spawning[node.ident]).stiff - node.stiff
                gains.append(gain / (1 + abs(gain)))
        judged = [(node.stiff < mean) - (node.stiff > mean) for node in removed]
        self.delete_nodes(removed)
        self.delete_nodes(
            [
                node
                for node in self.nodes
                if node.stiff < rules.soft
                and uniform(self.streams[SOFT], self.step_count * DRAWS_PER_STEP + node.ident)
                < SOFT_DEATH
            ]
        )
        self.step_count += 1
        component = dict.fromkeys(COMPONENTS, 0.0)
        component["spawn_quality"] = sum(gains) / len(gains) if gains else 0.0
        component["delete_quality"] = sum(judged) / len(judged) if judged else 0.0
        return component, self.finish_step(component)

    def finish_step(self, component: dict[str, float]) -> EndReason:
        rules, n = self.rules, len(self.nodes)
        width, height, _, _, goal = self.extent
        if n == 0:
            component["termination"] = -1.0
            return EndReason.EXTINCT
        centre = sum(node.x for node in self.nodes) / n
        right = max(node.x for node in self.nodes)
        cosines = []
        for node in self.nodes:
            for parent in self.nodes:
                if node.parent == parent.ident:
                    length = math.hypot(node.x - parent.x, node.y - parent.y)
                    cosines.append((node.x - parent.x) / length if length > 0 else 0.0)
        component["distance"] = (centre - self.centre) / REACH
        component["population"] = math.exp(-0.5 * ((n - rules.target) / (0.5 * rules.target)) ** 2)
        component["edge_alignment"] = sum(cosines) / len(cosines) if cosines else 0.0
        component["boundary"] = -sum((2 * node.y / height - 1) ** 4 for node in self.nodes) / n
        passed = sum(right >= part * width for part in MILESTONES)
        component["milestones"] = float(max(passed - self.passed, 0))
        self.passed = max(passed, self.passed)
        self.retreat = self.retreat + 1 if centre < self.centre else 0
        self.centre = centre
        ending = (
            EndReason.OVERGROWN
            if n > rules.max_nodes
            else EndReason.GOAL
            if right >= goal
            else EndReason.RETREAT
            if self.retreat >= RETREAT
            else EndReason.TIME
            if self.step_count >= rules.max_steps
            else EndReason.NONE
        )
        lost = ending in (EndReason.OVERGROWN, EndReason.RETREAT)
        component["goal"], component["survival"] = float(ending == EndReason.GOAL), float(not lost)
        component["termination"] = -1.0 if lost else 0.0
        return ending


# the pair: the same episodes, step by step


def rest_where_masked(mask: np.ndarray | None, actions: np.ndarray) -> np.ndarray:
    """Actions [E, …] with rest in place of choices that the mask [E, 3·max_nodes] does not
    allow."""
    if mask is None:
        return actions
    options = mask.reshape(len(mask), -1, CHOICES)
    choices, numbers = np.split(actions, [options.shape[1]], axis=1)
    allowed = np.take_along_axis(options, choices.astype(np.int64)[..., None], -1)[..., 0]
    return np.concatenate([np.where(allowed, choices, REST), numbers], axis=1)


def play(
    envs: DurotaxisEnvironments, actions: np.ndarray, step: Callable[[np.ndarray], None]
) -> tuple[np.ndarray, ...]:
    """Plays actions [T, E, …], episode after episode. Returns for each step observations, the true
    last observation where an episode ended, components, endings, ids and parents."""
    c, slots = envs.colonies, np.arange(2 * envs.setting.max_nodes)
    steps = []
    for action in actions:
        step(rest_where_masked(envs.mask, action))
        exists = slots < c.nodes[:, None]
        trees = np.stack([np.where(exists, ids, -2) for ids in (c.ident, c.parent)], 1)
        last = np.where((envs.ending > 0)[:, None], envs.final_obs, 0)
        steps.append(
            (envs.obs.copy(), last, envs.component_values.copy(), envs.ending.copy(), trees)
        )
    return tuple(map(np.array, zip(*steps, strict=True)))


def step_reference(envs: DurotaxisEnvironments, alone: list[Colony], actions: np.ndarray) -> None:
    """One step of each colony, written into the arrays of `envs`."""
    envs.set_actions(actions)
    c, setting = envs.colonies, envs.setting
    for i, colony in enumerate(alone):
        component, ending = colony.step(envs.action[i].tolist())
        envs.component_values[i], envs.ending[i] = list(component.values()), ending
        envs.obs[i] = observe_reference(setting, colony.extent, colony.nodes)
        if ending:
            envs.final_obs[i] = envs.obs[i]
            envs.episode[i] += 1
            alone[i] = colony = Colony(setting, envs.episode_seed(i))
            envs.obs[i] = observe_reference(setting, colony.extent, colony.nodes)
        c.nodes[i] = n = len(colony.nodes)
        c.ident[i, :n] = [node.ident for node in colony.nodes]
        c.parent[i, :n] = [node.parent for node in colony.nodes]
        if setting.mode == "nodes":
            envs.options[i] = False
            envs.options[i, : CHOICES * n] = [n < setting.max_nodes, True, n > 1] * n


def play_reference(name: str, seed: int, actions: np.ndarray) -> tuple[np.ndarray, ...]:
    envs = DurotaxisEnvironments(
        name, actions.shape[1], seed
    )  # for its arrays, and episodes' seeds
    alone = [Colony(envs.setting, envs.episode_seed(i)) for i in range(envs.num_envs)]
    return play(envs, actions, lambda action: step_reference(envs, alone, action))


def random_actions(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """Colonies near their stationary size, so that episodes last; now and then all nodes or none
    are deleted."""
    for arguments, steps, colonies in (
        ("substrate=linear", 40, 2),
        ("substrate=bend, max_nodes=30, rounding=floor", 40, 3),
        ("substrate=random, size=250x60, init_nodes=1, max_nodes=12, max_steps=7", 40, 2),
        ("mode=nodes, substrate=bend, max_nodes=24", 30, 2),
        ("substrate=bend, size=210..330x40..90, init_nodes=1..12, max_nodes=14", 30, 3),
    ):
        name = f"tenfold/Durotaxis-v0({arguments})"
        yield name, int(rng.integers(2**31)), some_actions(rng, name, steps, colonies).astype(dtype)


def some_actions(rng: np.random.Generator, name: str, steps: int, colonies: int) -> np.ndarray:
    choices, low, high = flat_limits(read_setting(**split_name(name)[1]))
    choice = rng.choice(3, (steps, colonies, choices), p=(0.4, 0.25, 0.35))
    numbers = rng.uniform(low, high, (steps, colonies, len(low)))
    if not choices:
        numbers[..., 0] = rng.choice(
            [0.0, 0.3, 0.5, 0.7, 1.0], (steps, colonies), p=(0.1, 0.2, 0.4, 0.28, 0.02)
        )
    return np.concatenate([choice, numbers], axis=-1)


@pair(
    play_reference,
    random_actions,
    rtol=1e-5,
    atol=1e-6,
    dtypes=("float32",),
    name="envs.durotaxis.play_all",
)
def play_compiled(name: str, seed: int, actions: np.ndarray) -> tuple[np.ndarray, ...]:
    """Plays actions with `DurotaxisEnvironments`."""
    envs = DurotaxisEnvironments(name, actions.shape[1], seed)
    return play(envs, actions, envs.step)

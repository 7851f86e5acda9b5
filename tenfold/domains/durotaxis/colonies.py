"""Durotaxis as environments, E colonies at once. `rules` has the step, `features` the observations,
`setting` the settings and rewards, `api` Gymnasium's environments.

    tenfold/Durotaxis-v0(mode=nodes, substrate=bend, size=900x300, w_population=0)
"""

from typing import Any

import numpy as np
from gymnasium import spaces

from tenfold.core.errors import EnvironmentFault
from tenfold.core.graph_spaces import BoundedGraph, Gated
from tenfold.core.kernels import kernel
from tenfold.core.random import Purpose, draw_bits, key
from tenfold.domains.durotaxis.features import EDGE, GRAPH, NODE, observe
from tenfold.domains.durotaxis.rules import advance, begin
from tenfold.domains.durotaxis.setting import (
    ACTIONS,
    COMPONENTS,
    DELETE,
    HIGH,
    LOW,
    REST,
    SPAWN,
    EndReason,
    Setting,
    make_colonies,
    make_scratch,
    read_setting,
)
from tenfold.envs.adapter import SEED_BITS, Environments, Episode
from tenfold.envs.arguments import split_name

CHOICES = 3
SEED_SHIFT = np.uint64(64 - SEED_BITS)
LARGE = 1e6  # beyond all features on substrates of any size, and the same for all of them
GOAL, TIME = int(EndReason.GOAL), int(EndReason.TIME)


def observation_space(setting: Setting) -> spaces.Dict:
    def real(size: int) -> spaces.Box:
        return spaces.Box(-LARGE, LARGE, (size,), np.float32)

    graph = BoundedGraph(real(NODE), real(EDGE), setting.max_nodes, setting.max_nodes)
    return spaces.Dict({"colony": real(GRAPH), "graph": graph})


def flat_limits(setting: Setting) -> tuple[int, np.ndarray, np.ndarray]:
    """The number of choices at the start of a flat action, and the limits of the numbers behind
    them."""
    if setting.mode == "nodes":
        nodes = setting.max_nodes
        return nodes, np.tile(LOW[1:], nodes), np.tile(HIGH[1:], nodes)
    numbers = 1 if setting.learn == "delete_ratio" else len(LOW)
    return 0, LOW[:numbers], HIGH[:numbers]


def action_space(setting: Setting) -> spaces.Space[Any]:
    choices, low, high = flat_limits(setting)
    if not choices:
        return spaces.Box(low, high, dtype=np.float32)
    return spaces.Dict(
        {
            "choice": spaces.MultiDiscrete([CHOICES] * choices),
            "spawn": Gated(low.reshape(choices, -1), high.reshape(choices, -1), option=SPAWN),
        }
    )


@kernel
def write_mask(rules, n, mask):
    """Writes the legal choices of each node: no node of a full colony may spawn, and the last node
    may not be deleted."""
    mask[:] = False
    for j in range(min(n, rules.max_nodes)):
        mask[CHOICES * j + SPAWN] = n < rules.max_nodes
        mask[CHOICES * j + REST] = True
        mask[CHOICES * j + DELETE] = n > 1


@kernel
def find_masked_choice(rules, n, action, mask):
    """The first node whose choice is masked, or −1."""
    if rules.by_node:
        for j in range(n):
            if not (
                0 <= action[j] < CHOICES
                and action[j] == np.floor(action[j])
                and mask[CHOICES * j + int(action[j])]
            ):
                return j
    return -1


@kernel
def observe_one(rules, c, i, scratch, obs, mask):
    observe(rules, c, i, scratch, obs)
    if rules.by_node:
        write_mask(rules, c.nodes[i], mask)


@kernel
def observe_all(rules, c, scratch, obs, mask):
    for i in range(len(obs)):
        observe_one(rules, c, i, scratch, obs[i], mask[i])


@kernel
def begin_all(rules, c, scratch, keys, episode, obs, mask):
    for i in range(len(keys)):
        begin(rules, c, i, draw_bits(keys[i], episode[i]) >> SEED_SHIFT)
    observe_all(rules, c, scratch, obs, mask)


@kernel
def play_all(
    rules,
    c,
    scratch,
    action,
    weights,
    keys,
    episode,
    obs,
    final_obs,
    mask,
    components,
    reward,
    terminated,
    truncated,
    ret,
    ending,
    last,
):
    """One step of every colony, SAME_STEP: where an episode ended, final_obs has its last
    observation, and obs and mask are the next one's first. The first rows of `last` [E, 4] are the
    episodes that ended: lane, return, length, ending.

    Returns the number of episodes that ended. A masked choice of node j of colony i is refused
    before any colony moves: the result is then −1 − (i · max_nodes + j).
    """
    for i in range(len(keys)):
        j = find_masked_choice(rules, c.nodes[i], action[i], mask[i])
        if j >= 0:
            return -1 - (i * rules.max_nodes + j)
    ended = 0
    for i in range(len(keys)):
        end = advance(rules, c, i, action[i], scratch, components[i])
        total = 0.0
        for k in range(len(weights)):
            total += weights[k] * components[i, k]
        reward[i], ending[i] = total, end
        ret[i] += total
        truncated[i] = end == TIME
        terminated[i] = end != 0 and end != TIME
        if end:
            observe(rules, c, i, scratch, final_obs[i])
            last[ended, 0], last[ended, 1], last[ended, 2], last[ended, 3] = (
                i,
                ret[i],
                c.step[i],
                end,
            )
            ended += 1
            episode[i] += 1
            ret[i] = 0.0
            begin(rules, c, i, draw_bits(keys[i], episode[i]) >> SEED_SHIFT)
        observe_one(rules, c, i, scratch, obs[i], mask[i])
    return ended


class DurotaxisEnvironments(Environments):
    """All colonies in one kernel call a step, on one thread.

    Actions are flat: [E, 5] in mode ratio ([E, 1] where only delete_ratio is learned), [E,
    max_nodes + 4·max_nodes] in mode nodes, choices first, as `PolicyActions.for_env` gives them;
    numbers outside their ranges are clipped, rows without a node ignored. `components` [E, K] are
    the last step's parts of `reward`, `ending` [E] why an episode ended (`EndReason`). `mask` [E,
    3·max_nodes] in mode nodes is all False for rows without a node.
    """

    component_names, action_names = COMPONENTS, ACTIONS

    def __init__(
        self, name: str, num_envs: int, seed: int, first: int = 0, setting: Setting | None = None
    ) -> None:
        self.setting = setting if setting is not None else read_setting(**split_name(name)[1])
        super().__init__(
            name, num_envs, seed, observation_space(self.setting), action_space(self.setting), first
        )
        self.rules, nodes = self.setting.rules, self.setting.max_nodes
        self.colonies, self.scratch = (
            make_colonies(num_envs, nodes, self.rules.width),
            make_scratch(nodes),
        )
        by_node = self.rules.by_node
        self.options = np.zeros((num_envs, CHOICES * nodes if by_node else 1), np.bool_)
        self.mask = self.options if by_node else None
        self.action = (
            np.zeros((num_envs, 5 * nodes))
            if by_node
            else np.tile(self.setting.fixed, (num_envs, 1))
        )
        self.choices, self.low, self.high = flat_limits(self.setting)
        self.components = self.component_values = np.zeros((num_envs, len(COMPONENTS)), np.float32)
        self.component_weights = self.setting.component_weights
        self.length, self.episode = self.colonies.step, np.zeros(num_envs, np.int64)
        self.ret, self.last, self.ending = (
            np.zeros(num_envs),
            np.zeros((num_envs, 4)),
            np.zeros(num_envs, np.int64),
        )
        self.state_arrays = {"episode": self.episode, "ret": self.ret} | self.colonies._asdict()
        self.streams = np.zeros(num_envs, np.uint64)
        # what every step hands to the kernel; these arrays are written to, never replaced
        self.step_arrays = (
            self.rules,
            self.colonies,
            self.scratch,
            self.action,
            self.component_weights,
            self.streams,
            self.episode,
            self.obs,
            self.final_obs,
            self.options,
            self.component_values,
            self.reward,
            self.terminated,
            self.truncated,
            self.ret,
            self.ending,
            self.last,
        )
        self.begin(seed)

    def begin(self, seed: int) -> None:
        """Resets every lane to the first of its episodes of this seed."""
        self.keys = [key(seed, Purpose.EPISODE, self.first + i) for i in range(self.num_envs)]
        self.streams[:] = self.keys
        self.episode[:], self.ret[:], self.component_values[:] = 0, 0.0, 0.0
        begin_all(
            self.rules,
            self.colonies,
            self.scratch,
            self.streams,
            self.episode,
            self.obs,
            self.options,
        )

    def step(self, actions: np.ndarray) -> None:
        """One step of every colony. A masked choice or a number that is not finite is refused
        before any colony moves."""
        self.begin_rounds()
        self.set_actions(actions)
        ended = play_all(*self.step_arrays)
        if ended > 0:
            self.finished = [
                Episode(int(i), ret, int(length), success=ending == GOAL)
                for i, ret, length, ending in self.last[:ended].tolist()
            ]
        elif ended < 0:
            i, j = divmod(-1 - ended, self.setting.max_nodes)
            why = masked_choice_message(j, float(self.action[i, j]), self.options[i])
            raise EnvironmentFault(f"{self.location(i, later=1)}: {why}")

    def set_actions(self, actions: np.ndarray) -> None:
        choices, columns = self.choices, self.choices + len(self.low)
        shape = (self.num_envs, columns)
        if actions.shape != shape:
            raise EnvironmentFault(
                f"{self.name}: actions of the shape {actions.shape} do not fit {shape}."
            )
        self.action[:, :choices] = actions[:, :choices]
        np.clip(actions[:, choices:], self.low, self.high, out=self.action[:, choices:columns])
        if not np.isfinite(self.action).all():
            i = int(np.argmin(np.isfinite(self.action).all(1)))
            raise EnvironmentFault(
                f"{self.location(i, later=1)}: the action is not a number everywhere."
            )

    def state(self) -> dict[str, np.ndarray]:
        return super().state() | {"grid": self.rules.grid.copy()}

    def restore(self, state: dict[str, np.ndarray]) -> bool:
        if (
            not np.array_equal(self.rules.grid, state["grid"])
            or self.colonies.x.shape != state["x"].shape
        ):
            raise EnvironmentFault(
                f"{self.name}: the substrate is not the one this run was trained on: put it back."
            )
        # runs of earlier versions had worlds of one size, and did not keep it
        return super().restore({"extent": self.colonies.extent.copy()} | state)

    def see_again(self) -> None:
        observe_all(self.rules, self.colonies, self.scratch, self.obs, self.options)


def masked_choice_message(node: int, choice: float, options: np.ndarray) -> str:
    names = ("spawn", "rest", "delete")
    legal = ", ".join(
        name
        for name, may in zip(names, options[CHOICES * node : CHOICES * (node + 1)], strict=True)
        if may
    )
    choice_name = names[int(choice)] if choice in range(CHOICES) else f"{choice:g}"
    return f"node {node} may not choose {choice_name}: its options are {legal}."

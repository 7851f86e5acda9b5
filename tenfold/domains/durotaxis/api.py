"""Durotaxis for Gymnasium: an ordinary environment, and a vector environment."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from tenfold.core.errors import EnvironmentFault
from tenfold.core.masks import MASK
from tenfold.domains.durotaxis import COLONY
from tenfold.domains.durotaxis.colonies import (
    DurotaxisEnvironments,
    action_space,
    find_masked_choice,
    masked_choice_message,
    observation_space,
    observe_one,
)
from tenfold.domains.durotaxis.features import EDGE, GRAPH, NODE, graph_size
from tenfold.domains.durotaxis.rules import advance, begin
from tenfold.domains.durotaxis.setting import (
    COMPONENTS,
    DELETE,
    SPAWN,
    EndReason,
    Setting,
    read_setting,
)
from tenfold.domains.durotaxis.view import (
    Trajectory,
    heat_map,
    picture,
    picture_text,
    trajectory_row,
)
from tenfold.envs.arguments import shorten


def read_row(setting: Setting, row: np.ndarray) -> dict[str, Any]:
    """The observation of the space from a row."""
    nodes, links, edges, _ = graph_size(setting.max_nodes).starts
    n, e = int(row[0]), int(row[1])
    graph = spaces.GraphInstance(
        row[nodes : nodes + n * NODE].reshape(n, NODE).copy(),
        row[edges : edges + e * EDGE].reshape(e, EDGE).copy(),
        row[links : links + 2 * e].reshape(e, 2).astype(np.int32),
    )
    return {"colony": row[2 : 2 + GRAPH].copy(), "graph": graph}


def flat_actions(action: Any, colonies: int) -> np.ndarray:
    """Rows from actions of the space, one for each colony, or a list of them; `set_actions` refuses
    other sizes."""
    if isinstance(action, list | tuple) and action and all(isinstance(one, dict) for one in action):
        return np.concatenate([flat_actions(one, 1) for one in action])
    try:
        columns = [action["choice"], action["spawn"]] if isinstance(action, dict) else [action]
        return np.concatenate(
            [np.reshape(np.asarray(part, np.float64), (colonies, -1)) for part in columns], axis=1
        )
    except (KeyError, TypeError, ValueError):
        raise EnvironmentFault(
            f"{COLONY}: an action is numbers as its action_space has them, in mode nodes a dict "
            f"with choice and spawn, and not {shorten(action)}."
        ) from None


class DurotaxisEnv(gym.Env[dict[str, Any], Any]):
    """One colony as an ordinary environment. Episodes of a seed are those of a lane with this
    episode seed.

    `info` has the reward's `components` by name and in mode nodes the `action_mask`; at the end the
    `ending`, `success` and the `trajectory`, a table with the columns `view.TRAJECTORY`.
    """

    metadata = {"render_modes": ["ansi", "rgb_array"], "render_fps": 10}
    component_names = COMPONENTS

    def __init__(self, render_mode: str | None = None, **arguments: Any) -> None:
        self.setting = setting = read_setting(**arguments)
        self.observation_space, self.action_space = (
            observation_space(setting),
            action_space(setting),
        )
        self.render_mode = render_mode
        self.inner = DurotaxisEnvironments(COLONY, 1, 0, setting=setting)
        self.over = True
        self.history: list[list[float]] = []
        self.heat: np.ndarray | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed)
        inner = self.inner
        # a stream's seed has 64 bits
        episode_seed = (
            seed if seed is not None and seed < 2**64 else int(self.np_random.integers(2**31))
        )
        begin(inner.rules, inner.colonies, 0, np.uint64(episode_seed))
        inner.component_values[:] = 0
        self.over, self.heat = False, None
        self.history = [
            trajectory_row(inner.rules, inner.colonies, 0, None, 0.0, inner.component_values[0])
        ]
        return self.observe(), self.info()

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        if self.over:
            raise EnvironmentFault(f"This episode of {COLONY} is over: call reset() to begin one.")
        inner = self.inner
        inner.set_actions(flat_actions(action, 1))
        node = find_masked_choice(
            inner.rules, int(inner.colonies.nodes[0]), inner.action[0], inner.options[0]
        )
        if node >= 0:
            raise EnvironmentFault(
                f"{COLONY}: {masked_choice_message(node, inner.action[0, node], inner.options[0])}"
            )
        mean_action = self.mean_action()
        ending = EndReason(
            advance(
                inner.rules,
                inner.colonies,
                0,
                inner.action[0],
                inner.scratch,
                inner.component_values[0],
            )
        )
        reward = float(inner.component_weights @ inner.component_values[0])
        self.over = ending is not EndReason.NONE
        self.history.append(
            trajectory_row(
                inner.rules, inner.colonies, 0, mean_action, reward, inner.component_values[0]
            )
        )
        more: dict[str, Any] = {}
        if self.over:
            more = {
                "ending": ending.name.lower(),
                "success": ending is EndReason.GOAL,
                "trajectory": Trajectory.of(self.history),
            }
        return (
            self.observe(),
            reward,
            self.over and ending is not EndReason.TIME,
            ending is EndReason.TIME,
            self.info() | more,
        )

    def observe(self) -> dict[str, Any]:
        inner = self.inner
        observe_one(inner.rules, inner.colonies, 0, inner.scratch, inner.obs[0], inner.options[0])
        return read_row(self.setting, inner.obs[0])

    def mean_action(self) -> np.ndarray:
        """The action in five numbers: in mode nodes the share of deleted nodes, and means over the
        nodes that spawn."""
        action, n, nodes = (
            self.inner.action[0],
            int(self.inner.colonies.nodes[0]),
            self.setting.max_nodes,
        )
        if not self.inner.rules.by_node:
            return action.copy()
        numbers = action[nodes:].reshape(nodes, 4)[:n][action[:n] == SPAWN]
        means = numbers.mean(0) if len(numbers) else np.full(4, np.nan)
        return np.array([np.mean(action[:n] == DELETE), *means])

    def render(self) -> Any:
        """The colony as text, or as RGB [H, W, 3] with the path of its centroid."""
        rules, colonies = self.inner.rules, self.inner.colonies
        if self.render_mode != "rgb_array":
            return picture_text(rules, colonies, 0)
        if self.heat is None:
            self.heat = heat_map(rules, colonies, 0)
        trail = [(row[2], row[3]) for row in self.history if row[1]]
        return picture(rules, colonies, 0, trail, self.heat)

    def info(self) -> dict[str, Any]:
        components = dict(zip(COMPONENTS, self.inner.component_values[0].tolist(), strict=True))
        mask = {MASK: self.inner.options[0].copy()} if self.inner.mask is not None else {}
        return {"components": components, "nodes": int(self.inner.colonies.nodes[0])} | mask


class DurotaxisVectorEnv(VectorEnv[Any, Any, Any]):
    """E colonies that step together. Observations are {"colony": [E, G], "graph": a tuple of E
    graphs}; where an episode ended `info` has its true last observation as `final_obs`, its
    `ending` and its `success`, and the next one has begun. As in
    Gymnasium's vector environments, `_success` says for which colonies `success` is set."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": []}

    def __init__(self, num_envs: int = 1, render_mode: str | None = None, **arguments: Any) -> None:
        self.num_envs, self.render_mode = num_envs, render_mode
        self.setting = setting = read_setting(**arguments)
        self.single_observation_space, self.single_action_space = (
            observation_space(setting),
            action_space(setting),
        )
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.inner = DurotaxisEnvironments(COLONY, num_envs, 0, setting=setting)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.inner.begin(int(self.np_random.integers(2**31)) if seed is None else seed)
        return self.observe(self.inner.obs), self.info()

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        inner = self.inner
        inner.step(flat_actions(actions, self.num_envs))
        info, ended = self.info(), inner.terminated | inner.truncated
        if ended.any():
            final = np.full(self.num_envs, None, object)
            for i in np.flatnonzero(ended):
                final[i] = read_row(self.setting, inner.final_obs[i])
            endings = np.array([EndReason(e).name.lower() for e in inner.ending])
            final_info = {
                "final_obs": final,
                "ending": endings,
                "success": inner.ending == EndReason.GOAL,
            }
            info |= final_info | {f"_{key}": ended.copy() for key in final_info}
        return (
            self.observe(inner.obs),
            inner.reward.copy(),
            inner.terminated.copy(),
            inner.truncated.copy(),
            info,
        )

    def observe(self, rows: np.ndarray) -> dict[str, Any]:
        observations = [read_row(self.setting, row) for row in rows]
        return {
            "colony": np.stack([one["colony"] for one in observations]),
            "graph": tuple(one["graph"] for one in observations),
        }

    def info(self) -> dict[str, Any]:
        columns = self.inner.component_values.T.copy()
        values: dict[str, Any] = {
            "components": dict(zip(COMPONENTS, columns, strict=True)),
            "nodes": self.inner.colonies.nodes.copy(),
        }
        if self.inner.mask is not None:
            values[MASK] = self.inner.mask.copy()
        return values | {f"_{key}": np.ones(self.num_envs, np.bool_) for key in values}

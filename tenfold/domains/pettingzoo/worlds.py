"""PettingZoo environments with the parallel API as lanes, agent by agent."""

import importlib
import math
import pkgutil
from difflib import get_close_matches
from typing import Any

import gymnasium as gym
import numpy as np

from tenfold.core.errors import FAULTS, EnvironmentFault, UserError
from tenfold.core.masks import MaskReader, offers_mask, refuse_undeclared
from tenfold.core.spaces import policy_actions
from tenfold.domains.pettingzoo import PREFIX
from tenfold.envs.adapter import Episode, Worlds
from tenfold.envs.arguments import split_name
from tenfold.envs.faults import CALLERS, put_away
from tenfold.envs.making import make_errors
from tenfold.envs.scalar import replayable, require_possible

CALLERS.add(__file__)


def make_parallel(name: str) -> Any:
    """A PettingZoo environment with the parallel API: `pettingzoo/mpe2.simple_spread_v3(N=3)` calls
    that module's `parallel_env`, `pettingzoo/module:Name` something else in it."""
    ident, arguments = split_name(name)
    module, _, maker = ident.removeprefix(PREFIX).partition(":")
    with make_errors(name, module):
        try:
            home = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name != module or "." not in module:
                raise
            raise EnvironmentFault(f"{name} cannot be made: {near_modules(module)}") from None
        if not hasattr(home, maker or "parallel_env"):
            raise EnvironmentFault(
                f"{name} cannot be made: the module {module} has no {maker or 'parallel_env'}; "
                "write pettingzoo/module, or pettingzoo/module:name_of_a_class."
            )
        return getattr(home, maker or "parallel_env")(**arguments)


def near_modules(module: str) -> str:
    """A hint for a module that its package does not have."""
    package, _, last = module.rpartition(".")
    names = [
        module_info.name
        for module_info in pkgutil.iter_modules(importlib.import_module(package).__path__)
    ]
    near = get_close_matches(last, names, 3, 0.5) or names
    return f"{package} has no {last}; perhaps {', '.join(near)}."


def common_spaces(env: Any, name: str) -> tuple[gym.Space[Any], gym.Space[Any]]:
    """The spaces that all agents share; unequal ones are refused."""
    agents = getattr(env, "possible_agents", None)
    if not agents:
        raise EnvironmentFault(
            f"{name} does not say who its agents may be: it needs a list `possible_agents`."
        )
    spaces = {agent: (env.observation_space(agent), env.action_space(agent)) for agent in agents}
    for agent, (observations, actions) in spaces.items():
        for space, common, what in (
            (observations, spaces[agents[0]][0], "observations"),
            (actions, spaces[agents[0]][1], "actions"),
        ):
            if space != common:
                raise EnvironmentFault(
                    f"{name}: {agents[0]} has {what} {common} and {agent} {space}; agents that "
                    "share lanes need equal spaces: pad them, for example with supersuit."
                )
    return spaces[agents[0]]


class ParallelWorlds(Worlds):
    """A loop over PettingZoo environments with the parallel API."""

    one_by_one = True
    begun = False  # whether every world has shown its first observations

    def __init__(
        self, name: str, worlds: int, seed: int, policy: bool = False, first: int = 0
    ) -> None:
        """`policy`: actions may be of any kind, and masks are read."""
        self.envs = [make_parallel(name) for _ in range(worlds)]
        observations, actions = common_spaces(self.envs[0], name)
        self.masks = MaskReader(observations, policy_actions(actions, name)) if policy else None
        self.names = list(self.envs[0].possible_agents)
        super().__init__(
            name,
            worlds,
            seed,
            self.masks.observation_space if self.masks else observations,
            actions,
            first,
            len(self.names),
        )
        self.lane = {agent: a * worlds for a, agent in enumerate(self.names)}  # of its first world
        self.shape = (self.masks.observation_space if self.masks else observations).shape or ()
        shape, dtype = actions.shape or (), actions.dtype or np.dtype(np.int64)
        self.decode = (
            self.masks.actions.decode if self.masks and self.masks.actions.children else None
        )
        if self.masks and self.decode:
            shape, dtype = (self.masks.actions.numbers,), np.dtype(np.float64)
        self.discrete = isinstance(actions, gym.spaces.Discrete)
        # of the current episodes; grows by doubling
        self.actions = np.zeros((worlds, 1024, self.agents, *shape), dtype)
        self.alive: list[list[str]] = [[] for _ in range(worlds)]  # who acts in the next step
        for w in range(worlds):
            self.begin(w)
        self.begun = True

    def begin(self, w: int) -> None:
        self.length[w] = 0
        try:
            observations, infos = self.envs[w].reset(seed=self.episode_seed(w))
            self.alive[w] = list(self.envs[w].agents)
        except FAULTS as error:
            raise self.raised(w, "reset", error) from error
        for lane in range(w, self.num_envs, self.worlds):
            self.ret[lane] = 0.0
            if self.mask is not None:
                self.mask[lane] = True  # of absent agents
        for agent in self.alive[w]:
            self.see(w, agent, observations, infos)

    def see(self, w: int, agent: str, observations: dict[str, Any], infos: dict[str, Any]) -> None:
        """Writes an agent's observation and mask into its lane."""
        lane = self.lane_of(w, agent)
        if agent not in observations:
            raise EnvironmentFault(
                f"{self.location(lane)}: there is no observation for {agent}, which is there."
            )
        obs = observations[agent]
        if self.layout.direct:
            self.check_shape(lane, obs, self.shape)
        self.layout.write(obs, self.obs[lane])
        if self.fallible and not np.isfinite(self.obs[lane]).all():
            raise self.not_finite(lane)
        if not self.masks:
            if not self.unread_mask and (offers_mask(obs) or offers_mask(infos.get(agent))):
                if self.begun:
                    self.refuse_late_mask(lane)
                self.unread_mask = True
        else:
            refuse_undeclared(obs, self.envs[w].observation_space(agent), self.location(lane))
            mask = self.mask_given(self.masks, lane, obs, infos.get(agent) or {})
            who = f"{self.location(lane)}: {agent}"
            self.note_mask(lane, mask, self.masks.actions.options, who)

    def lane_of(self, w: int, agent: str) -> int:
        if agent not in self.lane:
            raise EnvironmentFault(
                f"{self.name}, world {self.first + w}: {agent} is none of the possible agents "
                f"{', '.join(self.names)}."
            )
        return self.lane[agent] + w

    def step(self, actions: np.ndarray) -> None:
        """One step of every world with actions [B], in the environment's own numbers; those of
        skipped lanes are ignored."""
        self.finished = []
        self.terminated[:] = self.truncated[:] = False
        self.skipped[:] = True
        self.reward[:] = 0.0
        by_world = actions.reshape(self.agents, self.worlds, *actions.shape[1:])
        for w in range(self.worlds):
            while self.length[w] >= self.actions.shape[1]:
                self.actions = np.concatenate([self.actions, np.zeros_like(self.actions)], axis=1)
            self.actions[w, self.length[w]] = by_world[:, w]
            if self.advance(w):
                returns = self.ret[w :: self.worlds]
                self.finished.append(
                    Episode(w, sum(returns) / self.agents, self.length[w], tuple(returns))
                )
                self.episode[w] += 1
                self.begin(w)

    def advance(self, w: int) -> bool:
        """Steps world w with its latest actions; returns whether its episode ended."""
        env, numbers = self.envs[w], self.actions[w, self.length[w]]
        acting, actions = self.alive[w], {}
        for agent in acting:
            action = numbers[self.lane[agent] // self.worlds]
            actions[agent] = (
                self.decode(action)
                if self.decode
                else action.item()
                if self.discrete
                else action.copy()
            )
        self.length[w] += 1  # the step that an error is of
        try:
            observations, rewards, terminations, truncations, infos = env.step(actions)
        except UserError:
            raise
        except FAULTS as error:
            raise self.raised(w, "step", error) from error
        present, self.alive[w] = set(env.agents), []
        for agent in acting:
            lane = self.lane_of(w, agent)
            if agent not in rewards or agent not in terminations or agent not in truncations:
                raise EnvironmentFault(
                    f"{self.location(lane)}: {agent} acted, and the step says nothing of its "
                    "reward or its end."
                )
            self.skipped[lane] = False
            self.reward[lane] = reward = float(rewards[agent])
            if not math.isfinite(reward):
                raise self.not_finite(lane)
            self.ret[lane] += reward
            self.require_flags(lane, terminations[agent], truncations[agent])
            self.terminated[lane], self.truncated[lane] = terminations[agent], truncations[agent]
            self.see(w, agent, observations, infos)
            if self.terminated[lane] or self.truncated[lane]:
                self.final_obs[lane] = self.obs[lane]
                if self.mask is not None:
                    if not self.terminated[lane]:
                        self.note_final_mask(lane, self.mask[lane])
                    self.mask[lane] = True
            elif agent in present:
                self.alive[w].append(agent)
            else:
                raise EnvironmentFault(
                    f"{self.location(lane)}: {agent} is gone, neither terminated nor truncated."
                )
        for agent in env.agents:  # agents that appear now act from the next step on
            if agent not in acting:
                self.see(w, agent, observations, infos)
                self.alive[w].append(agent)
        return not self.alive[w]

    def picture(self) -> Any:
        self.envs[0].unwrapped.render_mode = "rgb_array"
        return self.envs[0].render()

    def state(self) -> dict[str, np.ndarray]:
        return replayable(self, self.actions)

    def restore(self, state: dict[str, np.ndarray]) -> bool:
        """Replays the current episodes. Returns False where the observations differ: the resume is
        not exact."""
        self.episode = state["episode"].tolist()
        if self.actions.shape[1] < state["actions"].shape[1]:
            self.actions = np.zeros_like(
                self.actions, shape=(self.worlds, *state["actions"].shape[1:])
            )
        for w in range(self.worlds):
            # lanes of agents that are no longer there show the last they saw, of an episode that
            # may not be played again
            self.obs[w :: self.worlds] = state["obs"][w :: self.worlds]
            self.begin(w)
            steps = int(state["length"][w])
            actions = state["actions"][w, :steps]
            require_possible(
                actions.reshape(-1, *actions.shape[2:]),
                self.envs[w].action_space(self.names[0]),
                self.location(w),
            )
            self.actions[w, :steps] = actions
            for _ in range(steps):
                if self.advance(w):
                    self.begin(w)
                    break
        self.terminated[:] = self.truncated[:] = self.skipped[:] = False
        return bool(np.array_equal(self.obs, state["obs"]))

    def close(self) -> None:
        for env in self.envs:
            put_away(env)

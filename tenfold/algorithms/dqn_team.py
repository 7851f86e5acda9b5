"""The agents of a world, each with a network and a replay memory of its own, and how they learn one
after another. (In one call they learn by the plain engine, as one agent would.)

All numbers lie in one block [M, 5, P]. Row m is agent m's, as if it were alone; the same memory
read across rows is one network with a member dimension. So a run can be updated either way, and
both give the same within rounding. Each agent's rows are its own, and a batch of all of them is one
array [M, B, …].
"""

import copy
from dataclasses import fields
from typing import Any

import numpy as np
import torch

from tenfold.algorithms.dqn import (
    DQN_GRAD,
    DQN_MEAN,
    DQN_ONLINE,
    DQN_SQUARE,
    DQN_TARGET,
    DQNAgent,
    Tensors,
    Values,
)
from tenfold.algorithms.dqn_settings import DQN
from tenfold.config.run import Run
from tenfold.core.errors import UserError
from tenfold.core.layout import ObsLayout
from tenfold.core.masks import FROM_OBSERVATION
from tenfold.core.random import Purpose
from tenfold.core.spaces import DiscreteActions
from tenfold.core.system import Clock, require_memory
from tenfold.engines.plain import OffPolicyEngine, fitted_sums
from tenfold.envs.adapter import Environments, EnvViews
from tenfold.memory.replay import Replay, ReplayBatch, replay_bytes


class TeamReplay:
    """A `Replay` for each agent, used as one. Lanes come agent by agent, as the environments give
    them."""

    def __init__(
        self,
        config: DQN,
        layout: ObsLayout,
        worlds: int,
        seed: int,
        agents: int,
        options: int = 0,
    ) -> None:
        require_memory(agents * replay_bytes(config, layout, worlds, options=options))
        self.memories = [
            Replay(config, layout, worlds, seed, member, options=options)
            for member in range(agents)
        ]
        first = self.memories[0]
        self.lane_rows, self.priorities = first.lane_rows, first.priorities
        arrays = {
            f.name: np.stack([getattr(memory.batch, f.name) for memory in self.memories])
            for f in fields(ReplayBatch)
        }
        self.batch = ReplayBatch(**arrays)
        for member, memory in enumerate(self.memories):
            memory.use(ReplayBatch(**{name: array[member] for name, array in arrays.items()}))

    @property
    def rows(self) -> int:
        """Transitions that every agent can draw."""
        return min(memory.rows for memory in self.memories)

    @property
    def head(self) -> np.ndarray:
        return np.concatenate([memory.head for memory in self.memories])

    def split(self, array: np.ndarray) -> list[np.ndarray]:
        """An array of some lanes of all agents, agent by agent."""
        return np.split(array, len(self.memories))

    def begin(self, *rows: np.ndarray) -> None:
        """Observations, and their masks where there are any."""
        for memory, *part in zip(self.memories, *map(self.split, rows), strict=True):
            memory.begin(*part)

    def add(self, *step: np.ndarray, first: int = 0) -> None:
        """One step of some worlds, beginning with number `first`, for all agents: what `Replay.add`
        takes."""
        for memory, *part in zip(self.memories, *map(self.split, step), strict=True):
            memory.add(*part, first=first)

    def cut(self, *rows: np.ndarray, first: int = 0) -> None:
        for memory, *part in zip(self.memories, *map(self.split, rows), strict=True):
            memory.cut(*part, first=first)

    def sample(self, beta: float = 1.0) -> ReplayBatch:
        for memory in self.memories:
            memory.sample(beta)
        return self.batch

    def prioritise(self, error: np.ndarray) -> None:
        for memory, errors in zip(self.memories, error, strict=True):
            memory.prioritise(errors)

    def state(self) -> dict[str, np.ndarray]:
        states = [memory.state() for memory in self.memories]
        return {name: np.stack([state[name] for state in states]) for name in states[0]}

    def load_state(self, state: dict[str, np.ndarray]) -> None:
        for member, memory in enumerate(self.memories):
            memory.load_state({name: array[member] for name, array in state.items()})

    def written(self, since: np.ndarray) -> dict[str, np.ndarray]:
        pairs = zip(self.memories, self.split(since), strict=True)
        per_agent = [memory.written(heads) for memory, heads in pairs]
        for member, piece in enumerate(per_agent):
            piece["place"] += member * len(self.memories[member].action)
        return {name: np.concatenate([piece[name] for piece in per_agent]) for name in per_agent[0]}

    def load_rows(self, rows: dict[str, np.ndarray]) -> None:
        member, places = np.divmod(rows["place"], len(self.memories[0].action))
        for number, memory in enumerate(self.memories):
            mine = member == number
            memory.load_rows({k: v[mine] for k, v in rows.items()} | {"place": places[mine]})


class Team(DQNAgent):
    """M agents as one: rows and actions come agent by agent, [M·B, …]. `agents` are the single
    ones."""

    def __init__(
        self,
        config: DQN,
        layout: ObsLayout,
        actions: DiscreteActions,
        seed: int,
        members: int,
        device: str = "cpu",
    ) -> None:
        first = DQNAgent(config, layout, actions, seed)
        self.config, self.layout, self.actions, self.members = (
            first.config,
            layout,
            actions,
            members,
        )
        self.block = torch.zeros(members, 5, first.online.flat.numel(), device=device)
        self.agents = [
            DQNAgent(config, layout, actions, seed, device, m, self.block[m])
            for m in range(members)
        ]
        self.online, self.target = (self.make_network(members).to(device) for _ in range(2))
        kept = self.block.clone()  # a network brings its own values along when it moves
        self.online.flatten(self.block[:, DQN_ONLINE], self.block[:, DQN_GRAD])
        self.target.flatten(self.block[:, DQN_TARGET])
        self.block.copy_(kept)
        self.exp_avg, self.exp_avg_sq = self.block[:, DQN_MEAN], self.block[:, DQN_SQUARE]
        self.count = np.zeros(members, np.int64)
        for m, agent in enumerate(self.agents):
            agent.count = self.count[m : m + 1]
        self.device, self.seed = self.block.device, seed

    def make_replay(self, envs: Environments) -> TeamReplay:
        return TeamReplay(
            self.config, self.layout, envs.worlds, self.seed, self.members, self.mask_size(envs)
        )

    def make_engine(self, run: Run, replay: Any, envs: Environments) -> tuple[Any, str]:
        from tenfold.algorithms.dqn_team_engines import choose_team_engine  # it reads this module

        return choose_team_engine(run, self, replay, envs)

    def values(self, rows: np.ndarray, noise: torch.Tensor | None = None) -> np.ndarray:
        """Mean action values [M·B, A]."""
        values = super().values(rows.reshape(self.members, -1, *rows.shape[1:]), noise)
        return values.reshape(-1, self.actions.n)

    def explore(
        self,
        rows: np.ndarray,
        step: int,
        rounds: int,
        mask: np.ndarray | None = None,
        values: Values | None = None,
    ) -> np.ndarray:
        """Every agent by its own draws, all by one forward pass."""
        ask = values or self.values
        size = len(rows) // self.members
        masks = [None] * self.members if mask is None else np.split(mask, self.members)
        known: list[np.ndarray] = []

        def values_of(member: int) -> np.ndarray:
            if not known:
                noise = self.draw_noise(Purpose.NOISE_ACT, rounds)
                known.append(ask(rows, noise).reshape(self.members, size, -1))
            return known[0][member]

        actions = [
            agent.explore_by(lambda noise, m=m: values_of(m), size, step, rounds, masks[m])
            for m, agent in enumerate(self.agents)
        ]
        return np.concatenate(actions)

    def for_actor(self, actor: int) -> "Team":
        team = copy.copy(self)
        team.agents = [agent.for_actor(actor) for agent in self.agents]
        return team

    def set_lr(self, lr: Any) -> None:
        super().set_lr(lr)
        for agent in self.agents:
            agent.set_lr(lr)

    def draw_noise(self, purpose: Purpose, count: int) -> torch.Tensor | None:
        drawn = [agent.draw_noise(purpose, count) for agent in self.agents]
        return None if drawn[0] is None else torch.stack(drawn)  # type: ignore[arg-type]

    def draw_for(self, items: int) -> Tensors:
        drawn = [agent.draw_for(items) for agent in self.agents]
        return {name: torch.stack([draws[name] for draws in drawn]) for name in drawn[0]}

    def act(self, obs: Any, mask: Any = FROM_OBSERVATION, state: None = None) -> Any:
        """The greedy actions [M] for what every agent sees, [M, …]; or [M, B] for [M, B, …]. A
        single agent is `agents[m]`. Masks are one of each agent, [M, …]."""
        if len(obs) != self.members:
            raise UserError(
                f"The observations of {len(obs)} agents were given, and this team has "
                f"{self.members}."
            )
        alike = mask is None or mask is FROM_OBSERVATION
        masks: Any = [mask] * self.members if alike else mask
        if len(masks) != self.members:
            raise UserError(
                f"The masks of {len(masks)} agents were given, and this team has {self.members}."
            )
        actions = [
            agent.act(agent_obs, allowed, state)
            for agent, agent_obs, allowed in zip(self.agents, obs, masks, strict=True)
        ]
        return (
            torch.stack([torch.as_tensor(e) for e in actions])
            if isinstance(obs, torch.Tensor)
            else np.array(actions)
        )


class SequentialAgents:
    """One agent after another, each by an engine of its own on its own lanes."""

    notices: Any = ()
    since: Any = ()  # updates of several agents are not due by episodes

    def __init__(
        self, team: Team, replay: TeamReplay, envs: Any, kind: type[OffPolicyEngine]
    ) -> None:
        self.agent, self.replay = team, replay
        arrays = [getattr(envs, name) for name in EnvViews._fields]
        split = [np.split(array, team.members) for array in arrays if array is not None]
        views: list[Any] = [EnvViews(*per_agent) for per_agent in zip(*split, strict=True)]
        self.engines = [kind(*one) for one in zip(team.agents, replay.memories, views, strict=True)]

    def warm_up(self) -> None:
        self.engines[0].warm_up()

    def look(self, stacked_obs: np.ndarray) -> None:
        for engine, obs in zip(self.engines, np.split(stacked_obs, len(self.engines)), strict=True):
            engine.look(obs)

    def explore(self, step: int, rounds: int) -> np.ndarray:
        return np.concatenate([engine.explore(step, rounds) for engine in self.engines])

    def update(self, count: int, step: int, clock: Clock) -> None:
        for engine in self.engines:
            engine.update(count, step, clock)

    def settle(self) -> None:
        for engine in self.engines:
            engine.settle()

    def set_lr(self, lr: Any) -> None:
        for engine in self.engines:
            engine.set_lr(lr)

    def statistics(self) -> dict[str, float]:
        per_agent = [engine.statistics() for engine in self.engines]
        return {name: float(np.mean([one[name] for one in per_agent])) for name in per_agent[0]}

    def state(self) -> Tensors:
        return {"sums": torch.stack([engine.sums.cpu() for engine in self.engines])}

    def load_state(self, state: Tensors) -> None:
        rows = fitted_sums(state["sums"], (len(self.engines), *self.engines[0].sums.shape))
        for engine, sums in zip(self.engines, rows, strict=True):
            engine.load_state({"sums": sums})

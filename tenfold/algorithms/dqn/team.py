"""The agents of a world, each with a network of its own: one call for all of them, or one agent
after another.

All numbers lie in one block [M, 5, P]. Row m is agent m's, as if it were alone; the same memory
read across rows is one network with a member dimension. So a run can be updated either way, and
both give the same within rounding.
"""

import copy
from collections.abc import Iterator, Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from tenfold.algorithms.dqn.agent import GRAD, MEAN, ONLINE, SQUARE, TARGET, DQNAgent, Tensors
from tenfold.algorithms.dqn.config import DQN, Implicit
from tenfold.algorithms.dqn.plain import PlainEngine
from tenfold.algorithms.dqn.team_replay import TeamReplay
from tenfold.core.errors import UserError
from tenfold.core.pairs import pair
from tenfold.core.random import Purpose
from tenfold.core.spaces import DiscreteActions, ObsLayout
from tenfold.core.timing import Clock
from tenfold.envs.adapter import Environments

# multiplications of an agent's largest product up to which one call for all is faster
STACKED_PRODUCTS = 30_000_000


class Team(DQNAgent):
    """M agents as one: rows and actions come agent by agent, [M·B, …]. `agents` are the single
    ones; where they learn on other devices, `away` are those that do, and only what acts is brought
    back after every update."""

    away: Sequence[DQNAgent] = ()

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
        self.online.flatten(self.block[:, ONLINE], self.block[:, GRAD])
        self.target.flatten(self.block[:, TARGET])
        self.block.copy_(kept)
        self.mean, self.square = self.block[:, MEAN], self.block[:, SQUARE]
        self.count = np.zeros(members, np.int64)
        for m, agent in enumerate(self.agents):
            agent.count = self.count[m : m + 1]
        self.device = self.block.device

    def values(self, rows: np.ndarray, noise: torch.Tensor | None = None) -> np.ndarray:
        """Mean action values [M·B, A]."""
        found = super().values(rows.reshape(self.members, -1, *rows.shape[1:]), noise)
        return found.reshape(-1, self.actions.n)

    def explore(self, rows: np.ndarray, step: int, rounds: int) -> np.ndarray:
        """Every agent by its own draws, all by one forward pass."""
        size = len(rows) // self.members
        known: list[np.ndarray] = []

        def values_of(member: int) -> np.ndarray:
            if not known:
                noise = self.draw_noise(Purpose.NOISE_ACT, rounds)
                known.append(self.values(rows, noise).reshape(self.members, size, -1))
            return known[0][member]

        each = [
            agent.explore_by(lambda noise, m=m: values_of(m), size, step, rounds)
            for m, agent in enumerate(self.agents)
        ]
        return np.concatenate(each)

    def for_actor(self, actor: int) -> "Team":
        own = copy.copy(self)
        own.agents = [agent.for_actor(actor) for agent in self.agents]
        return own

    def set_lr(self, lr: Any) -> None:
        super().set_lr(lr)
        for agent in (*self.agents, *self.away):
            agent.set_lr(lr)

    def draw_noise(self, purpose: Purpose, count: int) -> torch.Tensor | None:
        drawn = [agent.draw_noise(purpose, count) for agent in self.agents]
        return None if drawn[0] is None else torch.stack(drawn)  # type: ignore[arg-type]

    def draw_fractions(self, items: int) -> Tensors:
        drawn = [agent.draw_fractions(items) for agent in self.agents]
        return {name: torch.stack([each[name] for each in drawn]) for name in drawn[0]}

    def state(self) -> Tensors:
        for home, away in zip(self.agents, self.away, strict=bool(self.away)):
            home.block.copy_(away.block)
        return super().state()

    def load_state(self, state: Tensors) -> None:
        super().load_state(state)
        for home, away in zip(self.agents, self.away, strict=bool(self.away)):
            away.block.copy_(home.block)

    def act(self, obs: Any, mask: Any = None) -> Any:
        """The greedy actions [M] for what every agent sees, [M, …]; or [M, B] for [M, B, …]. A
        single agent is `agents[m]`."""
        if len(obs) != self.members:
            raise UserError(
                f"The observations of {len(obs)} agents were given, and this team has "
                f"{self.members}."
            )
        each = [
            agent.act(own, None if mask is None else mask[m])
            for m, (agent, own) in enumerate(zip(self.agents, obs, strict=True))
        ]
        return (
            torch.stack([torch.as_tensor(e) for e in each])
            if isinstance(obs, torch.Tensor)
            else np.array(each)
        )


class Apart:
    """One agent after another, each by an engine of its own on its own lanes."""

    def __init__(
        self, team: Team, replay: TeamReplay, envs: Environments, kind: type[PlainEngine]
    ) -> None:
        self.agent, self.replay = team, replay
        self.devices = [str(team.device)]  # where learning happens
        self.engines = [
            kind(agent, own, lanes_of(envs, m))
            for m, (agent, own) in enumerate(
                zip(team.away or team.agents, replay.each, strict=True)
            )
        ]

    def warm_up(self) -> None:
        self.engines[0].warm_up()

    def look(self, seen: np.ndarray) -> None:
        for engine, own in zip(self.engines, np.split(seen, len(self.engines)), strict=True):
            engine.look(own)

    def explore(self, step: int, rounds: int) -> np.ndarray:
        return np.concatenate([engine.explore(step, rounds) for engine in self.engines])

    def update(self, count: int, step: int, clock: Clock) -> None:
        for engine in self.engines:
            engine.update(count, step, clock)

    def set_lr(self, lr: Any) -> None:
        for engine in self.engines:
            engine.set_lr(lr)

    def statistics(self) -> dict[str, float]:
        each = [engine.statistics() for engine in self.engines]
        return {name: float(np.mean([one[name] for one in each])) for name in each[0]}

    def state(self) -> Tensors:
        return {"sums": torch.stack([engine.sums.cpu() for engine in self.engines])}

    def load_state(self, state: Tensors) -> None:
        for engine, sums in zip(self.engines, state["sums"], strict=True):
            engine.load_state({"sums": sums})


def lanes_of(envs: Environments, member: int) -> Any:
    """The arrays of one agent's lanes, as if they were environments of their own."""
    part = slice(member * envs.worlds, (member + 1) * envs.worlds)
    names = ("obs", "final_obs", "reward", "terminated", "truncated", "skipped")
    return SimpleNamespace(
        num_envs=envs.worlds, **{name: getattr(envs, name)[part] for name in names}
    )


def products(team: Team) -> int:
    """Multiplications of an agent's largest product in one pass over a batch. Implicit quantiles
    are a row each from where their embedding joins on."""
    config, net = team.config, team.online
    shapes = list(pairwise(net.sizes))
    counts = [config.batch_size] * len(shapes)
    if isinstance(config.distribution, Implicit):
        shapes.append((config.distribution.cosines, net.sizes[net.joins]))  # the embedding
        counts = [
            config.batch_size * (config.distribution.samples if place >= net.joins else 1)
            for place in range(len(shapes))
        ]
    return max(rows * i * o for rows, (i, o) in zip(counts, shapes, strict=True))


# the two ways as a pair


def team_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for options in (
        {},
        {"double": True, "dueling": True, "n_step": 3, "replay": "prioritized", "frames": 2},
        {"distribution": "quantile(5)", "clip_norm": 0.5, "accumulate": 2},
        {
            "distribution": "implicit(samples=3, target_samples=4, cosines=8, acting=5)",
            "explore": "noisy",
        },
    ):
        yield options, int(rng.integers(1, 4)), int(rng.integers(1, 4)), int(rng.integers(100))


def filled_team(
    options: dict[str, Any], members: int, worlds: int, seed: int, together: bool
) -> PlainEngine | Apart:
    """Agents with random memories."""
    config = DQN.of(
        {
            "batch_size": 6,
            "capacity": 60,
            "learning_starts": 0,
            "net": {"hidden": [9, 8]},
            "lr": 1e-2,
            **options,
        }
    )
    layout, rng = ObsLayout((3,), np.dtype(np.float32), (3,), 1.0), np.random.default_rng(seed)
    team, replay = (
        Team(config, layout, DiscreteActions(4, 0), seed, members),
        TeamReplay(config, layout, worlds, seed, members),
    )
    lanes = members * worlds
    envs: Any = SimpleNamespace(
        num_envs=lanes,
        worlds=worlds,
        final_obs=None,
        obs=rng.normal(size=(lanes, 3)).astype(np.float32),
    )
    envs.reward = envs.terminated = envs.truncated = envs.skipped = envs.final_obs = np.zeros(lanes)
    replay.begin(envs.obs)
    for _ in range(30):
        ends = rng.random((2, lanes)) < 0.1
        replay.add(
            rng.integers(0, 4, lanes),
            rng.normal(size=lanes),
            ends[0],
            ends[1],
            np.zeros(lanes, np.bool_),
            rng.normal(size=(lanes, 3)).astype(np.float32),
            rng.normal(size=(lanes, 3)).astype(np.float32),
        )
    engine = PlainEngine(team, replay, envs) if together else Apart(team, replay, envs, PlainEngine)  # type: ignore[arg-type]
    if config.frames > 1:
        engine.look(np.repeat(envs.obs[:, None], config.frames, 1))
    return engine


def outcome_of(engine: PlainEngine | Apart) -> tuple[np.ndarray, ...]:
    """Three updates, then the actions of five rounds."""
    engine.update(3, 50, Clock())
    actions = [engine.explore(50, rounds).copy() for rounds in range(5)]
    leaves = engine.replay.state()["leaves"]
    return (
        engine.agent.block.numpy()[:, [ONLINE, TARGET]],
        engine.agent.count,
        leaves,
        np.array(actions),
    )


def apart_outcome(
    options: dict[str, Any], members: int, worlds: int, seed: int
) -> tuple[np.ndarray, ...]:
    return outcome_of(filled_team(options, members, worlds, seed, together=False))


@pair(
    apart_outcome, team_examples, rtol=1e-4, atol=1e-5, name="engines.team.all agents in one call"
)
def together_outcome(
    options: dict[str, Any], members: int, worlds: int, seed: int
) -> tuple[np.ndarray, ...]:
    return outcome_of(filled_team(options, members, worlds, seed, together=True))

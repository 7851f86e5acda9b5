"""The replay memories of a world's agents: each agent's rows are its own, and a batch of all of
them is one array [M, B, …]."""

from dataclasses import fields
from typing import Any

import numpy as np

from tenfold.algorithms.dqn.config import DQN
from tenfold.core.spaces import ObsLayout
from tenfold.core.system import require_memory
from tenfold.memory.replay import Batch, Replay, replay_bytes


class TeamReplay:
    """A `Replay` for each agent, used as one. Lanes come agent by agent, as the environments give
    them."""

    def __init__(self, config: DQN, layout: ObsLayout, worlds: int, seed: int, agents: int) -> None:
        require_memory(agents * replay_bytes(config, layout, worlds))
        self.each = [Replay(config, layout, worlds, seed, member) for member in range(agents)]
        first = self.each[0]
        self.lane_rows, self.priorities, self.worlds = first.lane_rows, first.priorities, worlds
        arrays = {
            f.name: np.stack([getattr(own.batch, f.name) for own in self.each])
            for f in fields(Batch)
        }
        self.batch = Batch(**arrays)
        for member, own in enumerate(self.each):
            own.use(Batch(**{name: array[member] for name, array in arrays.items()}))

    def lanes(self, member: int) -> slice:
        return slice(member * self.worlds, (member + 1) * self.worlds)

    @property
    def rows(self) -> int:
        """Transitions that every agent can draw."""
        return min(own.rows for own in self.each)

    @property
    def head(self) -> np.ndarray:
        return np.concatenate([own.head for own in self.each])

    def begin(self, obs: np.ndarray) -> None:
        for member, own in enumerate(self.each):
            own.begin(obs[self.lanes(member)])

    def add(
        self,
        action: np.ndarray,
        reward: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        skipped: np.ndarray,
        obs: np.ndarray,
        final_obs: np.ndarray,
        first: int = 0,
    ) -> None:
        """One step of some worlds, beginning with number `first`, for all agents; arrays come agent
        by agent."""
        count = len(action) // len(self.each)
        for member, own in enumerate(self.each):
            part = slice(member * count, (member + 1) * count)
            own.add(
                action[part],
                reward[part],
                terminated[part],
                truncated[part],
                skipped[part],
                obs[part],
                final_obs[part],
                first,
            )

    def cut(self, obs: np.ndarray, first: int = 0) -> None:
        for own, part in zip(self.each, np.split(obs, len(self.each)), strict=True):
            own.cut(part, first)

    def sample(self, beta: float = 1.0) -> Batch:
        for own in self.each:
            own.sample(beta)
        return self.batch

    def prioritise(self, error: np.ndarray) -> None:
        for own, errors in zip(self.each, error, strict=True):
            own.prioritise(errors)

    def state(self) -> dict[str, np.ndarray]:
        states = [own.state() for own in self.each]
        return {name: np.stack([state[name] for state in states]) for name in states[0]}

    def load_state(self, state: dict[str, np.ndarray]) -> None:
        for member, own in enumerate(self.each):
            own.load_state({name: array[member] for name, array in state.items()})

    def written(self, since: np.ndarray) -> dict[str, np.ndarray]:
        pieces: list[dict[str, Any]] = []
        for member, own in enumerate(self.each):
            piece = own.written(since[self.lanes(member)])
            pieces.append(piece | {"place": piece["place"] + member * len(own.action)})
        return {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}

    def load_rows(self, rows: dict[str, np.ndarray]) -> None:
        count = len(self.each[0].action)
        for member, own in enumerate(self.each):
            mine = rows["place"] // count == member
            own.load_rows(
                {name: array[mine] for name, array in rows.items()}
                | {"place": rows["place"][mine] % count}
            )

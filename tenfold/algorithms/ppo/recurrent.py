"""The policy-gradient agent that remembers: acting and values with what was seen before in the
episode.

A state is a row of numbers for each lane (`nets.recurrent`), zeros where an episode begins. Whoever
acts keeps it: the rollout here, an actor elsewhere, a policy of evaluations, or the person who
calls `act`. Judging and shipping need the policy's own numbers alone.
"""

from typing import Any

import numpy as np
import torch

from tenfold.algorithms.agent import numpy_of
from tenfold.algorithms.ppo.agent import PPOAgent
from tenfold.algorithms.ppo.network import told_to_user
from tenfold.core.errors import UserError
from tenfold.core.masks import FROM_OBSERVATION
from tenfold.core.protocols import Policy
from tenfold.nets.recurrent import RecurrentNetwork, Sequences, one_step


class RecurrentAgent(PPOAgent):
    """A `PPOAgent` whose networks have a memory."""

    online: RecurrentNetwork

    @property
    def held(self) -> int:  # type: ignore[override]
        """Numbers that whoever learns remembers of a lane: the policy's, then the value's."""
        return self.online.held

    @property
    def state_size(self) -> int:
        """Numbers that whoever only acts remembers of a lane."""
        return self.online.policy.memory.held

    def shown(self, rows: np.ndarray | torch.Tensor, state: Any) -> Sequences:
        return one_step(self.to_net(rows), torch.as_tensor(state).to(self.device))

    def chosen_by(
        self, rows: Sequences, mask: torch.Tensor | None, u: torch.Tensor, noise: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """As without a memory, and behind it what is remembered then [B, held]."""
        output, value, after = self.online.remember(rows)
        return *self.drawn_from(output, mask, u, noise), value, after

    def tensors(self, *arrays: np.ndarray) -> list[torch.Tensor]:
        return [torch.from_numpy(array).to(self.device) for array in arrays]

    def said_after(
        self,
        rows: np.ndarray,
        mask: np.ndarray | None,
        state: np.ndarray,
        draws: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Actions for the environments and what the policy remembers then, for encoded rows and
        what it remembers [B, state_size]: the most probable ones, or by draws [B, C] and [B, D]."""
        with torch.no_grad(), told_to_user():
            shown, (before,) = self.to_net(self.normalised(rows)), self.tensors(state)
            output, after = self.online.says(one_step(shown, before))
            allowed = self.mask_of(mask)
            if draws is None:
                chosen, real = self.mode_of(output, allowed)
            else:
                chosen, real, _ = self.drawn_from(output, allowed, *self.tensors(*draws))
        return self.for_env(chosen.cpu().numpy(), real.cpu().numpy()), after.cpu().numpy()

    def policy(self, how: str) -> Policy:
        """For evaluations: greedy or sampled, with a memory of its own."""
        return RememberedEpisodes(self, how == "sampled")

    def act(
        self, obs: Any, mask: Any = FROM_OBSERVATION, sample: bool = False, state: Any = None
    ) -> Any:
        """(action, state): as `PPOAgent.act`, and what is to be given with the next observation.

        `state` is what the call before returned, or nothing where an episode begins: one row of
        numbers for each observation, [state_size] of one alone. In a batch zeros begin an episode.
        The agent itself keeps none of it.
        """
        if isinstance(obs, torch.Tensor):
            found, after = self.act(numpy_of(obs), numpy_of(mask), sample, numpy_of(state))
            told = found if self.actions.parts else torch.as_tensor(found).to(obs.device)
            return told, torch.from_numpy(after).to(obs.device)
        rows, single = self.layout.rows_of(obs)
        batch = () if single else (len(rows),)
        mask = self.told_mask(obs, mask, batch)
        draws = self.draws(len(rows), self.sampled_rows) if sample else None
        found, after = self.said_after(rows, mask, self.states_of(state, batch), draws)
        self.sampled_rows += sample * len(rows)
        return self.as_given(found, single), after[0] if single else after

    def states_of(self, state: Any, batch: tuple[int, ...]) -> np.ndarray:
        """States [B, state_size] as a person gave them."""
        wanted = (*batch, self.state_size)
        if state is None:
            return np.zeros(wanted if batch else (1, *wanted), np.float32)
        given = np.asarray(state, np.float32)
        if given.shape != wanted:
            raise UserError(
                f"The state has shape {given.shape}; it must be {wanted}, as act returned it, or "
                "None where an episode begins."
            )
        return np.ascontiguousarray(given if batch else given[None])


def agent_kind(settings: Any) -> type[PPOAgent]:
    """The agent of these settings."""
    return RecurrentAgent if settings.net.memory else PPOAgent


class RememberedEpisodes:
    """A policy of evaluations: what it remembers of an episode goes by the episode's number, and
    begins with its step 0. So a lane that another episode takes over remembers nothing."""

    def __init__(self, agent: RecurrentAgent, sample: bool) -> None:
        self.agent, self.sample = agent, sample
        self.states: dict[int, np.ndarray] = {}  # of the episodes that were played last

    def __call__(
        self, rows: np.ndarray, mask: np.ndarray | None, episode: np.ndarray, step: np.ndarray
    ) -> np.ndarray:
        agent, nothing = self.agent, np.zeros(self.agent.state_size, np.float32)
        agent.require_options(mask, episode, step)
        numbers = list(zip(episode.tolist(), step.tolist(), strict=True))
        before = np.stack([self.states[e] if s else nothing for e, s in numbers])
        draws = None
        if self.sample:
            each = [agent.draws(1, e * 2**32 + s) for e, s in numbers]
            u, noise = (np.concatenate(drawn) for drawn in zip(*each, strict=True))
            draws = (u, noise)
        found, after = agent.said_after(rows, mask, before, draws)
        self.states = {e: row for (e, _), row in zip(numbers, after, strict=True)}
        return found

"""PPO's policy outside of its updates: for users (`agent.act`), evaluations and exported files; and
what a learning phase on graphs or with counterfactual baselines computes from it beforehand."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from tenfold.algorithms.agent import Tensors, mask_rows, numpy_of, refuse_empty, refuse_state
from tenfold.core.errors import UserError
from tenfold.core.layout import ObsLayout
from tenfold.core.masks import FROM_OBSERVATION
from tenfold.core.protocols import Policy
from tenfold.core.spaces import PolicyActions
from tenfold.envs.faults import refuse_choiceless
from tenfold.nets.action_distribution import ActionDistribution, refusals_to_user
from tenfold.ops.advantages import (
    counterfactual_advantages,
    counterfactual_baselines,
    counterfactual_values,
)
from tenfold.ops.moments import RunningNorm

OUTPUT_ROWS = 512  # of one forward pass over a rollout of graphs
Draws = tuple[np.ndarray, np.ndarray]  # uniform [B, C], normal [B, D]


class PolicyInference:
    """The part of an agent that acts without learning."""

    config: Any
    layout: ObsLayout
    actions: PolicyActions
    online: Any
    distribution: ActionDistribution
    masked: bool
    sampled_rows: int
    mask_form: Any
    draws: Callable[[int, int], Draws]
    normalised: Callable[[np.ndarray], np.ndarray]
    to_net: Callable[[Any], Any]
    device: torch.device

    @property
    def state_size(self) -> int:
        """Numbers of the policy's recurrent state; 0 without a memory."""
        return self.online.state_size

    def tensors(self, *arrays: np.ndarray) -> list[torch.Tensor]:
        return [torch.from_numpy(array).to(self.device) for array in arrays]

    def mask_of(self, mask: np.ndarray | None) -> torch.Tensor | None:
        return self.tensors(mask)[0] if mask is not None and mask.shape[-1] else None

    def for_env(self, discrete: np.ndarray, real: np.ndarray) -> np.ndarray:
        """Actions for the environments; squashed numbers are scaled into their bounds."""
        return self.actions.for_env(discrete, self.bounded(real))

    def bounded(self, real: np.ndarray) -> np.ndarray:
        """Numbers drawn, by tanh within their bounds where the policy squashes."""
        if not self.config.squash:
            return real
        low, high = np.array(self.actions.low), np.array(self.actions.high)
        return low + (high - low) * 0.5 * (np.tanh(real) + 1)

    def exploring(self, step: int) -> dict[str, float]:
        """Metrics of exploration: the mean deviation of continuous actions, where it is one for all
        observations."""
        if not self.actions.low or self.layout.graph:
            return {}
        return {"std": float(self.online.log_std.detach().exp().mean())}

    def infer(
        self,
        rows: np.ndarray,
        mask: np.ndarray | None = None,
        draws: Draws | None = None,
        state: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """(actions for the environments, next state [B, S]) for encoded rows: the most probable
        actions, or those of `draws`."""
        if state is None:
            state = np.zeros((len(rows), self.state_size), np.float32)
        before, *numbers = self.tensors(state, *(draws or ()))
        with torch.no_grad(), refusals_to_user():
            obs, allowed = self.to_net(self.normalised(rows)), self.mask_of(mask)
            policy = self.distribution
            discrete, real, after = (
                policy.sampled(obs, before, allowed, *numbers)
                if draws
                else policy.greedy(obs, before, allowed)
            )
        return self.for_env(discrete.cpu().numpy(), real.cpu().numpy()), after.cpu().numpy()

    def greedy(self, rows: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        """The most probable actions for encoded rows."""
        return self.infer(rows, mask)[0]

    def sampled(self, rows: np.ndarray, mask: np.ndarray | None, first: int) -> np.ndarray:
        """Actions drawn from the policy, by the agent's draws from row number `first` on."""
        return self.infer(rows, mask, self.draws(len(rows), first))[0]

    def policy(self, how: str) -> Policy:
        """For evaluations: greedy or sampled."""
        return EpisodePolicy(self, how == "sampled")

    def require_options(self, mask: np.ndarray | None, describe_row: Callable[[int], str]) -> None:
        """Raises where a component has no allowed option and must have one; `describe_row` names a
        row's source."""
        if mask is not None and self.config.on_empty == "raise":
            refuse_choiceless(self.mask_form, mask, describe_row)

    def act(
        self, obs: Any, mask: Any = FROM_OBSERVATION, sample: bool = False, state: Any = None
    ) -> Any:
        """The most probable action for one observation or a batch, or with `sample` one drawn from
        the policy, in the environment's own numbers. A policy with a memory returns (action,
        state).

        NumPy in, NumPy out; torch in, torch out; one observation gives one action. A batch of Dict
        or Tuple observations is a list of them, or one whose leaves have the batch in front. `mask`
        is True where an option is allowed: all components side by side, or nested as the action
        space is (`core.masks`). Left out, the key `action_mask` of a Dict observation counts, as in
        training; an agent that learned with masks then refuses to act without one. None allows
        every option.

        `state` is for policies with a memory: what the call before returned, or nothing where an
        episode begins; one row of numbers for each observation, [state_size] of one alone. In a
        batch zeros begin an episode. The agent itself keeps none of it.
        """
        if not self.state_size:
            refuse_state(state)
        if isinstance(obs, torch.Tensor):
            result = self.act(numpy_of(obs), numpy_of(mask), sample, numpy_of(state))
            action, *after = result if self.state_size else (result,)
            action = action if self.actions.children else torch.as_tensor(action).to(obs.device)
            return (action, torch.from_numpy(after[0]).to(obs.device)) if after else action
        rows, single = self.layout.rows_of(obs)
        batch = () if single else (len(rows),)
        allowed = mask_rows(self.mask_form, self.layout, obs, mask, batch, self.masked)
        if self.config.on_empty == "raise":
            refuse_empty(self.mask_form, allowed)
        draws = self.draws(len(rows), self.sampled_rows) if sample else None
        actions, after = self.infer(rows, allowed, draws, self.read_state(state, batch))
        self.sampled_rows += sample * len(rows)
        action = self.decode(actions, single)
        return (action, after[0] if single else after) if self.state_size else action

    def read_state(self, state: Any, batch: tuple[int, ...]) -> np.ndarray:
        """A user's states as [B, state_size]."""
        shape = (*batch, self.state_size)
        if state is None:
            return np.zeros(shape if batch else (1, *shape), np.float32)
        states = np.asarray(state, np.float32)
        if states.shape != shape:
            raise UserError(
                f"The state has shape {states.shape}; it must be {shape}, as act returned it, or "
                "None where an episode begins."
            )
        return np.ascontiguousarray(states if batch else states[None])

    def decode(self, actions: Any, single: bool) -> Any:
        """Actions for the environments as `act` returns them: of one observation one."""
        rows = [self.actions.decode(row) for row in actions] if self.actions.children else actions
        if not single:
            return rows
        whole = isinstance(rows, np.ndarray) and rows.dtype.kind == "i" and rows.ndim == 1
        return int(rows[0]) if whole else rows[0]


class EpisodePolicy:
    """A policy for evaluations. Draws and states are addressed by an episode's number and step, so
    that each episode begins with an empty state in whichever environment."""

    def __init__(self, agent: PolicyInference, sample: bool) -> None:
        self.agent, self.sample = agent, sample
        self.states: dict[int, np.ndarray] = {}  # of the episodes that were played last

    def __call__(
        self, rows: np.ndarray, mask: np.ndarray | None, episode: np.ndarray, step: np.ndarray
    ) -> np.ndarray:
        agent, draws, before = self.agent, None, None
        agent.require_options(
            mask, lambda row: f"Evaluation, episode {episode[row]}, step {step[row]}"
        )
        if self.sample:
            per_row = [agent.draws(1, address) for address in (episode * 2**32 + step).tolist()]
            u, noise = (np.concatenate(drawn) for drawn in zip(*per_row, strict=True))
            draws = (u, noise)
        if not agent.state_size:
            return agent.infer(rows, mask, draws)[0]
        numbers = list(zip(episode.tolist(), step.tolist(), strict=True))
        empty = np.zeros(agent.state_size, np.float32)
        before = np.stack([self.states[e] if s else empty for e, s in numbers])
        actions, after = agent.infer(rows, mask, draws, before)
        self.states = {e: row for (e, _), row in zip(numbers, after, strict=True)}
        return actions


class NormalizeObs(nn.Module):
    """(x − mean)/√(variance + ε), clipped, as `RunningNorm` has it."""

    mean: torch.Tensor
    inv_std: torch.Tensor

    def __init__(self, norm: RunningNorm) -> None:
        super().__init__()
        self.clip = norm.clip
        self.register_buffer("mean", torch.from_numpy(norm.mean.copy()))
        self.register_buffer("inv_std", torch.from_numpy(norm.inv_std.copy()))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        scaled = (rows.flatten(1).double() - self.mean) * self.inv_std
        return scaled.clamp(-self.clip, self.clip).float().reshape(rows.shape)


class TracedPolicy(nn.Module):
    """The policy as a module to be exported, with the same functions that act in training: the
    most probable actions, or those of given draws. A file cannot raise: where a mask allows no
    option of a component and that is an error here, it takes the first."""

    low: torch.Tensor
    high: torch.Tensor

    def __init__(self, agent: Any, sample: bool) -> None:
        super().__init__()
        self.agent, self.sample, self.state_size = agent, sample, agent.state_size
        self.online = agent.online.detached_copy()
        self.distribution = agent.distribution.unchecked(self.online)
        # its tables become the file's
        self.heads = self.distribution.heads
        self.node_heads = getattr(getattr(self.distribution, "nodes", None), "heads", None)
        self.normalize = NormalizeObs(agent.norm) if agent.norm else nn.Identity()
        self.register_buffer("low", torch.tensor(agent.actions.low, dtype=torch.float64))
        self.register_buffer("high", torch.tensor(agent.actions.high, dtype=torch.float64))

    def forward(
        self,
        rows: torch.Tensor,
        mask: torch.Tensor | None,
        uniform: torch.Tensor | None = None,
        normal: torch.Tensor | None = None,
        state: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, ...]:
        """(components, numbers), and the next state where there is one."""
        obs = self.agent.to_net(self.normalize(rows))
        batch = obs.batch if self.agent.layout.graph else obs.shape[0]
        before = torch.zeros(batch, 0) if state is None else state
        if self.sample:
            draws = (torch.zeros(batch, 0) if u is None else u for u in (uniform, normal))
            discrete, real, after = self.distribution.sampled(obs, before, mask, *draws)
        else:
            discrete, real, after = self.distribution.greedy(obs, before, mask)
        if self.agent.config.squash:  # as `PPOAgent.bounded`
            real = self.low + (self.high - self.low) * 0.5 * (real.tanh() + 1)
        return (discrete, real, after) if self.state_size else (discrete, real)


# what some learning phases need of the policy that acted


@torch.no_grad()
def old_outputs(agent: Any, rows: torch.Tensor) -> torch.Tensor:
    """The network's output for all rows of a phase, before it learns."""
    chunks = rows.split(OUTPUT_ROWS)
    return torch.cat([agent.online(agent.to_net(chunk))[0] for chunk in chunks])


@torch.no_grad()
def counterfactual_rows(agent: Any, rows: Tensors, normalize: bool) -> Tensors:
    """Advantage Q(s, a) − bᵢ and log-probability of each component [rows, C] under the acting
    policy, of a whole phase (Foerster et al., 2018)."""
    batch = {name: value.to(agent.device) for name, value in rows.items()}
    batch["obs"] = agent.to_net(batch["obs"])
    heads, online = agent.distribution.heads, agent.online
    first, mask = online.critic.layers[0], batch.get("mask")
    hidden = first(agent.with_action(batch))
    logits = online.policy(online.scaled(batch["obs"]))
    weight = first.weight[:, batch["obs"].shape[1] :]
    values = counterfactual_values(heads, hidden, weight, batch["chosen"], online.critic.rest)
    baselines = counterfactual_baselines(heads, logits, values, mask)
    advantage = counterfactual_advantages(online.critic.rest(hidden).squeeze(-1), baselines)
    if normalize:
        weight = batch["weight"][:, None].expand_as(advantage)
        if mask is not None:
            weight = weight * heads.present(mask)  # absent components have no advantage
        weight = weight / weight.sum().clamp(min=1)
        mean = (weight * advantage).sum()
        deviation = (weight * (advantage - mean).square()).sum().sqrt()
        advantage = (advantage - mean) / (deviation + 1e-8)
    return {"advantage": advantage, "log_p": heads.log_prob(logits, batch["chosen"], mask)}

"""The policy-gradient agent: acting, and the state to save; `nets/policy_loss` has the loss of a
minibatch.

HOW an update runs (autograd, one fused call) is an engine's business; what is learned is decided
here.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from tenfold.algorithms.agent import (
    FlatAgent,
    Tensors,
    mask_rows,
    numpy_of,
    refuse_empty,
    refuse_state,
)
from tenfold.algorithms.ppo.network import (
    check_settings,
    make_network,
    node_choices,
    told_to_user,
)
from tenfold.algorithms.ppo_settings import PPO
from tenfold.core.masks import FROM_OBSERVATION
from tenfold.core.protocols import Policy
from tenfold.core.random import Purpose, fill_normal, fill_uniform, key
from tenfold.core.spaces import ObsLayout, PolicyActions
from tenfold.envs.mask_faults import refuse_choiceless
from tenfold.memory.graphs import pack
from tenfold.nets.graph import GraphNetwork
from tenfold.nets.policy_loss import PolicyLearning
from tenfold.nets.q_network import fit_encoder
from tenfold.ops import gaussian
from tenfold.ops.heads import MaskedHeads
from tenfold.ops.nodes import NodeChoices

SAID_AT_ONCE = 512  # rows, where all of a rollout would be too much
ONLINE, MEAN, SQUARE, GRAD = range(4)  # rows of an agent's `block`


class PPOAgent(FlatAgent, PolicyLearning):
    """Policy and value network, Adam's moments, the count of updates, the observations' running
    mean and deviation."""

    config: PPO
    reads_masks = True
    held = 0  # numbers that it remembers of a lane

    def __init__(
        self,
        config: PPO,
        layout: ObsLayout,
        actions: PolicyActions,
        seed: int,
        device: str = "cpu",
        components: int = 0,
    ) -> None:
        """`components` of the rewards, where they come in some: each has a value of its own,
        besides the total's."""
        self.config, self.layout, self.actions = (
            replace(config, net=fit_encoder(config.net, layout)),
            layout,
            actions,
        )
        check_settings(self.config, layout, actions, components)
        self.components = components
        if config.normalize_obs:
            self.normalise(layout, self.config.net.encoder)
        scale = 1.0 if self.norm else layout.scale
        self.online = make_network(self.config, layout, actions, scale, components)
        self.online.initialise(seed, config.std)
        self.online.to(device)
        self.block = torch.zeros(4, self.online.flat.numel(), device=device)
        self.online.flatten(self.block[ONLINE], self.block[GRAD])
        self.mean, self.square = self.block[MEAN], self.block[SQUARE]
        self.count = np.zeros(2, np.int64)  # gradient updates, epochs begun
        self.device = self.online.flat.device
        self.seed = seed
        self.keys = {purpose: key(seed, purpose) for purpose in Purpose}
        self.heads = (
            MaskedHeads(actions.sizes, config.on_empty).to(device) if actions.sizes else None
        )
        self.low, self.high = (
            torch.tensor(actions.low, device=device),
            torch.tensor(actions.high, device=device),
        )
        self.gates = torch.tensor(actions.gates, device=device) if actions.gates else None
        self.by_node = node_choices(self.online, self.config, self.low, self.high, self.gates)

    # acting

    def normalised(self, rows: np.ndarray) -> np.ndarray:
        """Encoded observations as the networks take them."""
        if self.norm is None:
            return rows
        return self.norm.normalise(rows.reshape(len(rows), -1)).reshape(rows.shape)

    def to_net(self, rows: np.ndarray | torch.Tensor) -> Any:
        """Rows as the network takes them: a tensor, or packed graphs."""
        tensor = torch.as_tensor(rows).to(self.device)
        if self.layout.graph:
            return pack(tensor, self.layout.graph)
        return tensor.flatten(1) if self.config.net.encoder == "mlp" else self.layout.to_net(tensor)

    def draws(self, size: int, first: int) -> tuple[np.ndarray, np.ndarray]:
        """Uniform numbers [size, C] and normal ones [size, D] of the rows from `first` on."""
        c, d = len(self.actions.sizes), len(self.actions.low)
        u, noise = np.empty((size, c)), np.empty((size, d), np.float32)
        fill_uniform(self.keys[Purpose.ACTION], first * c, u.reshape(-1))
        fill_normal(self.keys[Purpose.NOISE_ACT], first * d, noise.reshape(-1))
        return u, noise

    def explore(
        self,
        rows: np.ndarray,
        mask: np.ndarray | None,
        rounds: int,
        state: np.ndarray | None = None,
    ) -> tuple[np.ndarray, ...]:
        """(components [B, C], numbers [B, D], joint log-probability [B], value [B]) for normalised
        rows; `rounds` counts calls and addresses the draws. `state` is what is remembered, where
        that is something; then what is remembered behind the rows comes last."""
        return self.choose(rows, mask, *self.draws(len(rows), rounds * len(rows)), state)

    def choose(
        self,
        rows: np.ndarray,
        mask: np.ndarray | None,
        u: np.ndarray,
        noise: np.ndarray,
        state: np.ndarray | None = None,
    ) -> tuple[np.ndarray, ...]:
        """`explore` by given draws [B, C] and [B, D]."""
        if self.by_node:
            return self.choose_nodes(self.by_node, rows, mask, u, noise)
        given = (torch.from_numpy(array).to(self.device) for array in (u, noise))
        with torch.no_grad(), told_to_user():
            found = self.chosen_by(self.shown(rows, state), self.mask_of(mask), *given)
        return tuple(tensor.cpu().numpy() for tensor in found)

    def shown(self, rows: np.ndarray | torch.Tensor, state: Any) -> Any:
        """What the network is given to act on or to value: rows, behind what is remembered."""
        return self.to_net(rows)

    def chosen_by(
        self, rows: Any, mask: torch.Tensor | None, u: torch.Tensor, noise: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """The same of what the network is given, on the device."""
        output, value = self.online(rows)
        return *self.drawn_from(output, mask, u, noise), value

    def drawn_from(
        self,
        output: torch.Tensor,
        mask: torch.Tensor | None,
        u: torch.Tensor,
        noise: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(components, numbers, joint log-probability) by the network's output and draws."""
        logits, means, log_std = self.parts_of(output)
        log_p = torch.zeros(u.shape[0], device=self.device)
        chosen = torch.zeros(u.shape, dtype=torch.int64, device=self.device)
        if self.heads:
            chosen, each = self.heads.act(logits, mask, u)
            log_p = log_p + self.heads.joint(each)
        real = means + log_std.exp() * noise
        log_p = log_p + self.counted(gaussian.log_prob(means, log_std, real), chosen, mask).sum(-1)
        return chosen, real, log_p

    def choose_nodes(
        self,
        choices: NodeChoices,
        rows: np.ndarray,
        mask: np.ndarray | None,
        u: np.ndarray,
        noise: np.ndarray,
    ) -> tuple[np.ndarray, ...]:
        """`choose` where every node chooses for itself, by the same draws."""
        assert isinstance(self.online, GraphNetwork)
        allowed = np.ones((len(rows), self.actions.options), np.bool_) if mask is None else mask
        with torch.no_grad(), told_to_user():
            graphs = self.to_net(rows)
            said, value = self.online.packed(graphs)
            draws = (allowed, u.ravel(), noise.ravel())
            given = (torch.from_numpy(array).to(self.device) for array in draws)
            found = choices.act(said, graphs, self.online.size.nodes, *given)
        chosen, real, log_p, value = (tensor.cpu().numpy() for tensor in (*found, value))
        return chosen, real, log_p, value

    @torch.no_grad()
    def said(self, rows: torch.Tensor) -> torch.Tensor:
        """The network's output for all rows of a phase, before it learns."""
        return torch.cat([self.online(self.to_net(part))[0] for part in rows.split(SAID_AT_ONCE)])

    def exploring(self, step: int) -> dict[str, float]:
        """What sets the exploration at this step, for the metrics: the mean deviation of continuous
        actions, where it is one for all observations."""
        if not self.actions.low or self.layout.graph:
            return {}
        return {"std": float(self.online.log_std.detach().exp().mean())}

    def mask_of(self, mask: np.ndarray | None) -> torch.Tensor | None:
        return (
            torch.from_numpy(mask).to(self.device) if mask is not None and mask.shape[-1] else None
        )

    def values(self, rows: np.ndarray, state: np.ndarray | None = None) -> np.ndarray:
        """Values [B] (or [B, columns]) of normalised rows; `state` is what is remembered, where
        that is something."""
        with torch.no_grad():
            return self.online.values(self.shown(rows, state)).cpu().numpy()

    def for_env(self, chosen: np.ndarray, real: np.ndarray) -> np.ndarray:
        """As the environments take them; squashed numbers become tanh of what was drawn, within the
        bounds."""
        return self.actions.for_env(chosen, self.bounded(real))

    def bounded(self, real: np.ndarray) -> np.ndarray:
        """Numbers drawn, as squashing brings them within their bounds; without it they stay as they
        are."""
        if not self.config.squash:
            return real
        low, high = np.array(self.actions.low), np.array(self.actions.high)
        return low + (high - low) * 0.5 * (np.tanh(real) + 1)

    def greedy(self, rows: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        """The most probable actions for encoded rows."""
        with torch.no_grad(), told_to_user():
            seen = self.to_net(self.normalised(rows))
            chosen, means = self.most_probable(seen, self.mask_of(mask))
        return self.for_env(chosen.cpu().numpy(), means.cpu().numpy())

    def most_probable(
        self, rows: Any, mask: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Components [B, C] and numbers [B, D] for rows as the network takes them."""
        return self.mode_of(self.online(rows)[0], mask)

    def mode_of(
        self, output: torch.Tensor, mask: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        logits, means, _ = self.parts_of(output)
        return self.heads.mode(logits, mask) if self.heads else logits.long(), means

    def sampled(self, rows: np.ndarray, mask: np.ndarray | None, first: int) -> np.ndarray:
        """Actions drawn from the policy, by the agent's draws from row number `first` on."""
        draws = self.draws(len(rows), first)
        chosen, real, _, _ = self.choose(self.normalised(rows), mask, *draws)
        return self.for_env(chosen, real)

    def sampled_by_step(
        self, rows: np.ndarray, mask: np.ndarray | None, episode: np.ndarray, step: np.ndarray
    ) -> np.ndarray:
        """Actions drawn from the policy by (episode, step): the draws of `sampled` for each row
        alone, one pass for all."""
        each = [self.draws(1, address) for address in (episode * 2**32 + step).tolist()]
        u, noise = (np.concatenate(drawn) for drawn in zip(*each, strict=True))
        chosen, real, _, _ = self.choose(self.normalised(rows), mask, u, noise)
        return self.for_env(chosen, real)

    def policy(self, how: str) -> Policy:
        """For evaluations: greedy or sampled."""

        def choose(
            rows: np.ndarray, mask: np.ndarray | None, episode: np.ndarray, step: np.ndarray
        ) -> np.ndarray:
            self.require_options(mask, episode, step)
            if how == "sampled":
                return self.sampled_by_step(rows, mask, episode, step)
            return self.greedy(rows, mask)

        return choose

    def require_options(
        self, mask: np.ndarray | None, episode: np.ndarray, step: np.ndarray
    ) -> None:
        """An error where a component has no allowed option in an evaluation, and may not be
        absent."""
        if mask is not None and self.config.on_empty == "raise":
            refuse_choiceless(
                self.mask_form,
                mask,
                lambda row: f"Evaluation, episode {episode[row]}, step {step[row]}",
            )

    def act(
        self, obs: Any, mask: Any = FROM_OBSERVATION, sample: bool = False, state: Any = None
    ) -> Any:
        """The most probable action for one observation or a batch, or with `sample` one drawn from
        the policy, in the environment's own numbers.

        NumPy in, NumPy out; torch in, torch out; one observation gives one action. A batch of Dict
        or Tuple observations is a list of them, or one whose leaves have the batch in front. `mask`
        is True where an option is allowed: all components side by side, or nested as the action
        space is (`core.masks`). Left out, the key `action_mask` of a Dict observation counts, as in
        training; an agent that learned with masks then refuses to act without one. None allows
        every option. `state` is for agents that remember (`recurrent.RecurrentAgent`).
        """
        refuse_state(state)
        if isinstance(obs, torch.Tensor):
            found = self.act(numpy_of(obs), numpy_of(mask), sample)
            return found if self.actions.parts else torch.as_tensor(found).to(obs.device)
        rows, single = self.layout.rows_of(obs)
        batch = () if single else (len(rows),)
        mask = self.told_mask(obs, mask, batch)
        found = self.sampled(rows, mask, self.sampled_rows) if sample else self.greedy(rows, mask)
        self.sampled_rows += sample * len(rows)
        return self.as_given(found, single)

    def told_mask(self, obs: Any, mask: Any, batch: tuple[int, ...]) -> np.ndarray | None:
        """The mask [B, options] of what `act` is given."""
        found = mask_rows(self.mask_form, self.layout, obs, mask, batch, self.masked)
        if self.config.on_empty == "raise":
            refuse_empty(self.mask_form, found)
        return found

    def as_given(self, found: Any, single: bool) -> Any:
        """Actions for the environments as `act` returns them: of one observation one."""
        found = [self.actions.decode(row) for row in found] if self.actions.parts else found
        if not single:
            return found
        return (
            int(found[0])
            if isinstance(found, np.ndarray) and found.dtype.kind == "i" and found.ndim == 1
            else found[0]
        )

    # state

    def state(self) -> Tensors:
        moments = {"mean": self.mean, "square": self.square, "count": torch.from_numpy(self.count)}
        return self.policy_state() | moments

    def load_state(self, state: Tensors) -> None:
        self.load(self.state(), state)

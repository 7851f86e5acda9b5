"""Proximal policy optimisation (Schulman et al., 2017), the plain reference that every faster
engine is held to. From top to bottom: the agent (networks, acting, loss), then a learning phase.

Actions are any mixture of masked discrete components and numbers with one joint log-probability
(`nets.action_distribution`). A policy with a memory learns from whole sequences (`nets.recurrent`);
one without a memory has states of width 0. Settings are in `ppo_settings`, the learner in
`ppo_learner`, evaluations and export in `ppo_policy`.
"""

import copy
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import torch

from tenfold.algorithms.agent import FlatAgent, Tensors
from tenfold.algorithms.ppo_policy import PolicyInference, counterfactual_rows, old_outputs
from tenfold.algorithms.ppo_settings import PPO
from tenfold.algorithms.ppo_value import ValueStep
from tenfold.config.schedules import value_at
from tenfold.config.schema import Option
from tenfold.core.layout import ObsLayout
from tenfold.core.random import Purpose, fill_normal, fill_uniform, key
from tenfold.core.spaces import PolicyActions
from tenfold.core.system import Clock
from tenfold.engines.plain import BaseEngine
from tenfold.envs.adapter import Environments
from tenfold.memory.rollout import RolloutBuffer
from tenfold.memory.staging import Staging
from tenfold.nets.action_distribution import make_distribution, make_network, refusals_to_user
from tenfold.nets.q_network import fit_encoder
from tenfold.nets.recurrent import sequences
from tenfold.ops.minibatch_loss import KL, normalized_advantages, value_error
from tenfold.ops.sampling import shuffle
from tenfold.ops.segments import pack

PPO_ONLINE, PPO_MEAN, PPO_SQUARE, PPO_GRAD = range(4)  # rows of an agent's `block`
CLIPS = ("clip", "value_clip")  # settings that may be schedules
LEARNED_FROM = ("obs", "chosen", "real", "log_p", "value", "advantage", "target", "weight")


class PPOAgent(PolicyInference, FlatAgent):
    """Policy and value network, Adam's moments, the count of updates, the observations' running
    mean and deviation."""

    config: PPO
    reads_masks = True

    def __init__(
        self,
        config: PPO,
        layout: ObsLayout,
        actions: PolicyActions,
        seed: int,
        device: str = "cpu",
        components: int = 0,
    ) -> None:
        """`components` of the rewards: each has its own value, besides the total's."""
        self.config = replace(config, net=fit_encoder(config.net, layout))
        self.config.check_spaces(layout, actions, components)
        self.layout, self.actions, self.components = layout, actions, components
        if config.normalize_obs:
            self.normalise(layout, self.config.net.encoder)
        scale = 1.0 if self.norm else layout.scale
        self.online = make_network(self.config, layout, actions, scale, components)
        self.online.initialise(seed, config.std)
        self.online.to(device)
        self.block = torch.zeros(4, self.online.flat.numel(), device=device)
        self.online.flatten(self.block[PPO_ONLINE], self.block[PPO_GRAD])
        self.exp_avg, self.exp_avg_sq = self.block[PPO_MEAN], self.block[PPO_SQUARE]
        self.value_step = ValueStep(self.config, self.online)
        self.count = np.zeros(2, np.int64)  # gradient updates, epochs begun
        self.device, self.seed = self.online.flat.device, seed
        self.keys = {purpose: key(seed, purpose) for purpose in Purpose}
        self.distribution = make_distribution(self.online, self.config, actions)

    # acting

    def normalised(self, rows: np.ndarray) -> np.ndarray:
        """Encoded observations, normalised if the settings say so."""
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

    @property
    def hidden_size(self) -> int:
        """Size of the recurrent state: the policy's, then the value's."""
        return self.online.hidden_size

    def no_state(self, size: int) -> np.ndarray:
        """Recurrent states of episodes that begin."""
        return np.zeros((size, self.hidden_size), np.float32)

    def explore(
        self,
        rows: np.ndarray,
        mask: np.ndarray | None,
        rounds: int,
        state: np.ndarray | None = None,
    ) -> tuple[np.ndarray, ...]:
        """(components [B, C], numbers [B, D], joint log-probability [B], value [B], next state
        [B, S]) for normalised rows; `rounds` counts calls and addresses the draws."""
        before = self.no_state(len(rows)) if state is None else state
        before, *draws = self.tensors(before, *self.draws(len(rows), rounds * len(rows)))
        with torch.no_grad(), refusals_to_user():
            acted = self.distribution.act(self.to_net(rows), before, self.mask_of(mask), *draws)
        return tuple(tensor.cpu().numpy() for tensor in acted)

    def values(self, rows: np.ndarray, state: np.ndarray | None = None) -> np.ndarray:
        """Values [B] (or [B, columns]) of normalised rows."""
        (before,) = self.tensors(self.no_state(len(rows)) if state is None else state)
        with torch.no_grad():
            return self.online.values(self.to_net(rows), before).cpu().numpy()

    # learning

    def clips(self, step: int) -> Tensors:
        """The values at a step of those of CLIPS that are schedules."""
        return {
            name: torch.tensor(value_at(getattr(self.config, name), step), device=self.device)
            for name in CLIPS
            if isinstance(getattr(self.config, name), Option)
        }

    def loss(self, batch: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
        """L = −mean min(r·A, clip(r, 1 ± ε)·A) + c_v·½·mean (V − R)² − c_e·mean H, with
        r = π(a) / π_old(a), of a minibatch; and the policy's loss, the value's, entropy, KL
        divergence from the acting policy and share of clipped ratios. Means are weighted."""
        config = self.config
        clip: Any = batch.get("clip", config.clip)
        value_clip: Any = batch.get("value_clip", config.value_clip)
        weight = batch["weight"] / batch["weight"].sum().clamp(min=1)
        log_p, entropy, value, *exact_kl = self.distribution.compare(batch)
        log_ratio = log_p - batch["log_p"]
        ratio, advantage = log_ratio.exp(), batch["advantage"]
        if config.normalize_advantage == "minibatch":
            advantage = normalized_advantages(advantage, batch["weight"][:, None])
        clipped_ratio = ratio.clamp(1 - clip, 1 + clip)
        surrogate = torch.minimum(ratio * advantage, clipped_ratio * advantage).sum(-1)
        policy_loss = -(weight * surrogate).sum()

        target, alone = batch["target"], config.value_clip_kind == "clipped"
        error = value_error(value, target, batch["value"], value_clip, alone)
        value_loss = 0.5 * (weight * (error if error.dim() == 1 else error.mean(-1))).sum()
        mean_entropy = (weight * entropy).sum()
        loss = policy_loss + config.value_weight * value_loss - config.entropy * mean_entropy
        if self.online.critic is not None:  # of counterfactual baselines
            q = self.online.critic(self.with_action(batch)).squeeze(-1)
            loss = loss + config.value_weight * 0.5 * (weight * (q - target).square()).sum()
        with torch.no_grad():
            joint = log_ratio.sum(-1)
            kl = exact_kl[0] if exact_kl else joint.exp() - 1 - joint
            clipped = (weight * ((ratio - 1).abs() > clip).float().mean(-1)).sum()
            statistics = [policy_loss, value_loss, mean_entropy, (weight * kl).sum(), clipped]
            return loss, torch.stack(statistics)

    def with_action(self, batch: Tensors) -> torch.Tensor:
        """The critic's input: observation and one-hot action side by side."""
        one_hot = self.distribution.heads.one_hot(batch["chosen"])  # type: ignore[union-attr]
        return torch.cat([self.online.scaled(batch["obs"]), one_hot], -1)  # type: ignore[operator]

    def unchecked(self) -> "PPOAgent":
        """The same agent without checks of masks and actions: acting has made them."""
        other = copy.copy(self)
        other.distribution = self.distribution.unchecked(self.online)
        return other

    # state

    def state(self) -> Tensors:
        moments = {"mean": self.exp_avg, "square": self.exp_avg_sq}
        count = {"count": torch.from_numpy(self.count)}
        return self.policy_state() | moments | count | self.value_step.state()

    def load_state(self, state: Tensors) -> None:
        self.value_step.load(state)
        self.load(self.state(), state)


class PlainPPO(BaseEngine):
    """Acts into the rollout's current row; learns from a full rollout, epoch by epoch."""

    names = ("policy_loss", "value_loss", "entropy", "kl", "clipped", "grad_norm")
    components: Any = None  # statistics of reward components, where rewards come in some

    def __init__(self, agent: PPOAgent, rollout: RolloutBuffer, envs: Environments) -> None:
        self.agent, self.rollout, self.envs = agent, rollout, envs
        self.sums = np.zeros(len(self.names) + 1)  # of the statistics, and the number of updates
        self.per_phase = agent.config.epochs * rollout.minibatches
        names = (*LEARNED_FROM, *(("boundary",) if rollout.hidden_size else ()))
        names += ("mask",) if rollout.mask.shape[-1] else ()
        self.rows: Tensors = {
            name: torch.as_tensor(getattr(rollout, name)).flatten(0, 1) for name in names
        }
        self.start_states = torch.as_tensor(rollout.start_states).flatten(0, 1)
        self.extra_rows: Tensors = {}  # computed once a phase, by the policy that acted
        self.staging = Staging(agent.device)
        self.bounds = rollout.bounds
        self.clips = agent.clips(0)  # as they are in this phase

    def explore(self, step: int, rounds: int) -> np.ndarray:
        """Actions for the environments' current observations, stored in the rollout."""
        rollout, envs = self.rollout, self.envs
        t = int(rollout.count[0])
        rollout.obs[t] = self.agent.normalised(envs.obs)
        if envs.mask is not None:
            rollout.mask[t] = envs.mask
            self.agent.require_options(envs.mask, envs.location)
        acted = self.agent.explore(rollout.obs[t], envs.mask, rounds, rollout.hidden)
        rollout.chosen[t], rollout.real[t], rollout.log_p[t], rollout.value[t], after = acted
        rollout.next_hidden[:] = after
        return self.agent.for_env(rollout.chosen[t], rollout.real[t])

    def values(self, rows: np.ndarray, state: np.ndarray) -> np.ndarray:
        return self.agent.values(rows, state)

    def store(self) -> None:
        """Stores the step, and at a time limit the value of the final observation. Running
        statistics count here and not in acting, which can so be repeated."""
        envs, rollout = self.envs, self.rollout
        t = rollout.add(envs.reward, envs.terminated, envs.truncated, envs.skipped, envs.components)
        if envs.truncated.any():
            values = self.values(self.agent.normalised(envs.final_obs), rollout.next_hidden)
            rollout.next_value[t][envs.truncated] = values[envs.truncated]
        if self.agent.norm:
            self.agent.norm.update(envs.obs.reshape(envs.num_envs, -1))

    def learn_from_rollout(self, step: int, clock: Clock) -> None:
        """A whole learning phase: advantages of the full rollout, then every epoch's updates."""
        clock.start()
        self.finish()
        clock.lap("sample")
        self.learn(0, self.per_phase, step)
        clock.lap("update")

    def finish(self) -> None:
        """Advantages of a full rollout."""
        if self.components:
            self.components.add_rollout()
        rows = self.agent.normalised(self.envs.obs)
        self.rollout.finish(self.values(rows, self.rollout.hidden))
        self.agent.value_step.add(self.rollout.target)
        if self.agent.layout.graph:
            self.extra_rows = {"old_output": old_outputs(self.agent, self.rows["obs"])}
        elif self.agent.online.critic is not None:
            self.extra_rows = counterfactual_rows(self.agent, self.rows, self.rollout.normalize)

    def learn(self, first: int, last: int, step: int) -> bool:
        """Updates number first … last − 1 of the phase; False where target_kl ends the phase."""
        agent, count = self.agent, self.rollout.minibatches
        self.clips = agent.clips(step)
        agent.value_step.begin(step)
        for number in range(first, last):
            part = number % count
            if part == 0:
                shuffle(agent.keys[Purpose.SHUFFLE], agent.count[1], self.rollout.order)
                agent.count[1] += 1
                self.epoch_kl = 0.0
            self.minibatch_kl = self.update_once(part, step)
            self.epoch_kl += self.minibatch_kl / count
            if agent.config.target_kl and self.phase_ends(part == count - 1):
                return False
        return True

    def phase_ends(self, epoch_ends: bool) -> bool:
        """Whether target_kl ends the phase with the last minibatch."""
        config = self.agent.config
        too_far = epoch_ends and self.epoch_kl > config.epoch_kl_limit
        return bool(too_far or self.minibatch_kl > config.minibatch_kl_limit)

    def update_once(self, part: int, step: int) -> Any:
        """One gradient step, unless target_kl forbids it; returns the minibatch's KL divergence."""
        lr = value_at(self.agent.config.lr, step)
        statistics, norm = self.descend(lr, self.minibatch(part))
        numbers = statistics.tolist()
        if norm is not None:
            self.sums += [*numbers, float(norm), 1.0]
        return numbers[KL]

    def descend(self, lr: float, batch: Tensors) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Statistics of the loss, and the gradient's norm; None where target_kl forbids a step."""
        self.agent.online.flat_grad.zero_()
        loss, statistics = self.agent.loss(batch)
        if self.forbids(statistics):
            return statistics, None
        loss.backward()
        return statistics, self.agent.value_step.apply(self.agent, lr)

    def forbids(self, statistics: torch.Tensor) -> bool:
        """Whether a minibatch with these statistics ends the phase before its step."""
        limit = self.agent.config.minibatch_kl_limit
        return limit < inf and float(statistics[KL]) > limit

    def minibatch(self, part: int) -> Tensors:
        batch = self.gather(part)
        return batch | {"obs": self.network_input(batch)} | self.clips

    def gather(self, part: int) -> Tensors:
        """The rows of a minibatch, observations as they lie in the rollout."""
        numbers = self.rollout.order[self.bounds[part] : self.bounds[part + 1]]
        index = torch.from_numpy(self.rollout.rows_of(numbers))
        batch = dict(self.staging.send({**self.rows, **self.extra_rows}, index))
        if self.rollout.hidden_size:
            states = self.start_states[torch.from_numpy(numbers)]
            batch["state"] = states.to(self.agent.device)
        for name in ("advantage", "log_p"):  # of each component, or one for all
            batch[name] = batch[name] if name in self.extra_rows else batch[name][:, None]
        return batch

    def network_input(self, batch: Tensors) -> Any:
        """A minibatch's observations as the network takes them: rows, or whole sequences."""
        rows = self.agent.to_net(batch["obs"])
        if not self.rollout.hidden_size:
            return rows
        boundary = batch["boundary"].view(self.rollout.sequence_length, -1)
        return sequences(rows, boundary, batch["state"])

    def statistics(self) -> dict[str, float]:
        return super().statistics() | (self.components.statistics() if self.components else {})

    def state(self) -> Tensors:
        return super().state() | (self.components.state() if self.components else {})

    def load_state(self, state: Tensors) -> None:
        super().load_state(state)
        if self.components:
            self.components.load_state(state)

"""The reference engine of policy gradients: eager PyTorch autograd, one minibatch after another.
Any network, any device."""

from typing import Any

import numpy as np
import torch

from tenfold.algorithms.ppo.agent import PPOAgent, Tensors
from tenfold.algorithms.ppo.components import PartsRecord
from tenfold.config.schedules import value_at
from tenfold.core.errors import EnvironmentFault
from tenfold.core.random import Purpose
from tenfold.core.timing import Clock
from tenfold.envs.adapter import Environments
from tenfold.memory.rollout import Rollout
from tenfold.memory.staging import Staging
from tenfold.ops.adam import adam, clip
from tenfold.ops.policy import shuffle
from tenfold.ops.surrogate import KL

STATISTICS = ("policy_loss", "value_loss", "entropy", "kl", "clipped", "grad_norm")


class PlainPPO:
    """Acts into the rollout's current row; learns from a full rollout, epoch by epoch."""

    def __init__(self, agent: PPOAgent, rollout: Rollout, envs: Environments) -> None:
        self.agent, self.rollout, self.envs = agent, rollout, envs
        self.sums = np.zeros(len(STATISTICS) + 1)  # of the statistics, and the number of updates
        self.per_phase = agent.config.epochs * rollout.minibatches
        rows = rollout.order.size
        self.rows: Tensors = {
            name: torch.from_numpy(getattr(rollout, name)).flatten(0, 1)
            for name in ("obs", "chosen", "real", "log_p", "value", "advantage", "target", "weight")
        }
        if rollout.mask.shape[-1]:
            self.rows["mask"] = torch.from_numpy(rollout.mask).flatten(0, 1)
        self.staging = Staging(agent.device)
        parts = rollout.minibatches
        self.bounds = [rows * part // parts for part in range(parts + 1)]
        self.parts = (
            PartsRecord(agent, rollout, envs.component_names, envs.action_names)
            if envs.component_names
            else None
        )
        # of a phase with counterfactual baselines: advantage and log-probability of each component
        self.each: Tensors = {}

    def warm_up(self) -> None:
        """Compiles what there is to compile, and changes nothing."""

    def explore(self, step: int, rounds: int) -> np.ndarray:
        """Actions for the environments' current observations, noted in the rollout."""
        rollout, envs = self.rollout, self.envs
        t = int(rollout.count[0])
        rollout.obs[t] = self.agent.normalised(envs.obs)
        if envs.mask is not None:
            rollout.mask[t] = envs.mask
            if self.agent.config.on_empty == "raise":
                self.refuse_empty(envs.mask)
        found = self.agent.explore(rollout.obs[t], envs.mask, rounds)
        rollout.chosen[t], rollout.real[t], rollout.log_p[t], rollout.value[t] = found
        return self.agent.for_env(rollout.chosen[t], rollout.real[t])

    def refuse_empty(self, mask: np.ndarray) -> None:
        """An error where a component has no allowed option."""
        sizes = self.agent.actions.sizes
        there = np.logical_or.reduceat(mask, np.cumsum([0, *sizes[:-1]]), axis=1)
        if not there.all():
            row, component = np.argwhere(~there)[0].tolist()
            raise EnvironmentFault(
                f"{self.envs.name}, environment {row}: component {component} of the action has no "
                "allowed option; mend the mask, or set agent.on_empty to absent."
            )

    def store(self) -> None:
        """What the step brought; at a time limit the value of the final observation. The running
        statistics learn here and not in acting, so that choosing an action again changes
        nothing."""
        envs, rollout = self.envs, self.rollout
        t = rollout.add(envs.reward, envs.terminated, envs.truncated, envs.skipped, envs.components)
        if envs.truncated.any():
            values = self.agent.values(self.agent.normalised(envs.final_obs))
            rollout.next_value[t][envs.truncated] = values[envs.truncated]
        if self.agent.norm:
            self.agent.norm.update(envs.obs.reshape(envs.num_envs, -1))

    def finish(self) -> None:
        """Advantages of a full rollout, which can be learned from until the next step is stored."""
        if self.parts:
            self.parts.note()
        self.rollout.finish(self.agent.values(self.agent.normalised(self.envs.obs)))
        if self.agent.layout.graph:
            self.each = {"said": self.agent.said(self.rows["obs"])}
        if self.agent.online.critic is None:
            return
        rows = {name: value.to(self.agent.device) for name, value in self.rows.items()}
        advantage, log_p = self.agent.counterfactual(rows | {"obs": self.agent.to_net(rows["obs"])})
        if self.rollout.normalize:
            weight = rows["weight"][:, None].expand_as(advantage)
            if "mask" in rows and self.agent.heads:
                # absent components have no advantage
                weight = weight * self.agent.heads.present(rows["mask"])
            weight = weight / weight.sum().clamp(min=1)
            mean = (weight * advantage).sum()
            advantage = (advantage - mean) / (
                (weight * (advantage - mean).square()).sum().sqrt() + 1e-8
            )
        self.each = {"advantage": advantage, "log_p": log_p}

    def update(self, step: int, clock: Clock) -> None:
        """A whole learning phase."""
        clock.start()
        self.finish()
        clock.lap("sample")
        self.learn(0, self.per_phase, step)
        clock.lap("update")

    def learn(self, first: int, last: int, step: int) -> bool:
        """Updates number first … last − 1 of the phase; False where the policy has moved far enough
        and the phase ends."""
        agent, target_kl, parts = self.agent, self.agent.config.target_kl, self.rollout.minibatches
        for number in range(first, last):
            part = number % parts
            if part == 0:
                shuffle(agent.keys[Purpose.SHUFFLE], agent.count[1], self.rollout.order)
                agent.count[1] += 1
                self.moved = 0.0
            self.moved += self.update_once(part, step) / parts
            if target_kl and part == parts - 1 and self.moved > target_kl:
                return False
        return True

    def update_once(self, part: int, step: int) -> float:
        """One minibatch; returns its KL estimate."""
        agent, config = self.agent, self.agent.config
        batch = self.minibatch(part)
        agent.online.flat_grad.zero_()
        loss, statistics = agent.loss(batch)
        loss.backward()
        _, norm = clip(agent.online.flat_grad, config.clip_norm or float("inf"))
        agent.count[0] += 1
        adam(
            agent.online.flat,
            agent.online.flat_grad,
            agent.mean,
            agent.square,
            agent.updates,
            value_at(config.lr, step),
            config.adam_eps,
        )
        numbers = [*statistics.tolist(), float(norm), 1.0]
        self.sums += numbers
        return numbers[KL]

    def minibatch(self, part: int) -> Tensors:
        index = torch.from_numpy(self.rollout.order[self.bounds[part] : self.bounds[part + 1]])
        batch = dict(self.staging.send({**self.rows, **self.each}, index))
        for name in ("advantage", "log_p"):
            batch[name] = batch[name] if name in self.each else batch[name][:, None]
        return batch | {"obs": self.agent.to_net(batch["obs"])}

    def set_lr(self, lr: Any) -> None:
        """The agent's settings say it."""

    def statistics(self) -> dict[str, float]:
        """Means since the last call."""
        *sums, count = self.sums.tolist()
        self.sums[:] = 0
        found = (
            {name: total / count for name, total in zip(STATISTICS, sums, strict=True)}
            if count
            else {}
        )
        return found | (self.parts.statistics() if self.parts else {})

    def state(self) -> Tensors:
        return {"sums": torch.from_numpy(self.sums)} | (self.parts.state() if self.parts else {})

    def load_state(self, state: Tensors) -> None:
        self.sums[:] = state["sums"].numpy()
        if self.parts:
            self.parts.load_state(state)

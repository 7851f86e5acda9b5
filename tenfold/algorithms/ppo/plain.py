"""The reference engine of policy gradients: eager PyTorch autograd, one minibatch after another, on
any network and any device; the same through torch.compile; and how every other engine is held to it
(`PolicyLockstep`)."""

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from tenfold.algorithms.ppo.agent import PPOAgent, Tensors
from tenfold.config.options import value_at
from tenfold.core.random import Purpose
from tenfold.core.system import Clock
from tenfold.engines.compiled import Compiled
from tenfold.engines.lockstep import Lockstep
from tenfold.engines.plain import AutogradEngine
from tenfold.envs.adapter import Environments
from tenfold.envs.mask_faults import refuse_choiceless
from tenfold.memory.rollout import Rollout
from tenfold.memory.staging import Staging
from tenfold.nets.recurrent import sequences
from tenfold.ops.heads import MaskedHeads
from tenfold.ops.sampling import shuffle
from tenfold.ops.surrogate import KL


class PartsRecord:
    """Sums over the rows of every rollout: of each component, and of each named number of the
    action."""

    def __init__(
        self,
        agent: PPOAgent,
        rollout: Rollout,
        components: tuple[str, ...],
        numbers: tuple[str, ...],
    ) -> None:
        self.agent, self.rollout = agent, rollout
        self.names = (
            *(f"reward/{name}" for name in components),
            *(f"action/{name}" for name in numbers),
        )
        self.tells_numbers = bool(numbers)
        self.sums = np.zeros((3, len(self.names)))  # how many, Σ, Σ of squares

    def note(self) -> None:
        """Takes a full rollout in."""
        rollout = self.rollout
        there = rollout.weight.reshape(-1, 1) > 0
        parts = rollout.rewards[..., 1:].reshape(len(there), -1) / rollout.scale
        each = [(parts[:, k : k + 1], there) for k in range(parts.shape[1])]
        each += self.numbers(there) if self.tells_numbers else []
        for place, (values, counted) in enumerate(each):
            own = values[np.broadcast_to(counted, values.shape)].astype(np.float64)
            self.sums[:, place] += own.size, own.sum(), (own * own).sum()

    def numbers(self, there: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """Of each named number its values and which of them count; where every node chooses, first
        the share that chose the last option, then the numbers of those that their option was taken
        for."""
        rollout, actions = self.rollout, self.agent.actions
        rows, c = len(there), len(actions.sizes)
        real = self.agent.bounded(rollout.real.reshape(rows, -1))
        if not actions.gates:
            return [(real[:, d : d + 1], there) for d in range(real.shape[1])]
        mask, chosen = rollout.mask.reshape(rows, c, -1), rollout.chosen.reshape(rows, c)
        width = real.shape[1] // c
        taken = (
            np.take_along_axis(mask, chosen[..., None], 2)[..., 0]
            & there
            & (chosen == actions.gates[0] % mask.shape[2])
        )
        shares = [((chosen == mask.shape[2] - 1).astype(np.float64), mask.any(2) & there)]
        return shares + [(real[:, d::width], taken) for d in range(width)]

    def statistics(self) -> dict[str, float]:
        """Means and deviations since the last call."""
        count, total, square = np.maximum(self.sums[0], 1), self.sums[1], self.sums[2]
        mean = total / count
        spread = np.sqrt(np.maximum(square / count - mean**2, 0))
        told = bool(self.sums[0].any())
        self.sums[:] = 0
        found = {name: float(m) for name, m in zip(self.names, mean, strict=True)}
        return (
            found | {f"{name}/std": float(s) for name, s in zip(self.names, spread, strict=True)}
            if told
            else {}
        )

    def state(self) -> Tensors:
        return {"parts": torch.from_numpy(self.sums)}

    def load_state(self, state: Tensors) -> None:
        self.sums[:] = state["parts"].numpy()


class PlainPPO(AutogradEngine):
    """Acts into the rollout's current row; learns from a full rollout, epoch by epoch."""

    names = ("policy_loss", "value_loss", "entropy", "kl", "clipped", "grad_norm")

    def __init__(self, agent: PPOAgent, rollout: Rollout, envs: Environments) -> None:
        self.agent, self.rollout, self.envs = agent, rollout, envs
        self.sums = np.zeros(len(self.names) + 1)  # of the statistics, and the number of updates
        self.per_phase = agent.config.epochs * rollout.minibatches
        self.rows: Tensors = {
            name: torch.from_numpy(getattr(rollout, name)).flatten(0, 1)
            for name in ("obs", "chosen", "real", "log_p", "value", "advantage", "target", "weight")
        }
        if rollout.mask.shape[-1]:
            self.rows["mask"] = torch.from_numpy(rollout.mask).flatten(0, 1)
        if rollout.held:
            self.rows["boundary"] = torch.from_numpy(rollout.boundary).flatten(0, 1)
        self.states = torch.from_numpy(rollout.states).flatten(0, 1)  # in front of the sequences
        self.staging = Staging(agent.device)
        parts, count = rollout.minibatches, rollout.order.size
        self.bounds = [count * part // parts for part in range(parts + 1)]
        self.parts = (
            PartsRecord(agent, rollout, envs.component_names, envs.action_names)
            if envs.component_names
            else None
        )
        # of a phase with counterfactual baselines: advantage and log-probability of each component
        self.each: Tensors = {}

    def explore(self, step: int, rounds: int) -> np.ndarray:
        """Actions for the environments' current observations, noted in the rollout."""
        rollout, envs = self.rollout, self.envs
        t = int(rollout.count[0])
        rollout.obs[t] = self.agent.normalised(envs.obs)
        if envs.mask is not None:
            rollout.mask[t] = envs.mask
            if self.agent.config.on_empty == "raise":
                self.refuse_empty(envs.mask)
        found = self.choose(rollout.obs[t], envs.mask, rounds)
        rollout.chosen[t], rollout.real[t], rollout.log_p[t], rollout.value[t], *after = found
        if rollout.held:
            (rollout.following[:],) = after
        return self.agent.for_env(rollout.chosen[t], rollout.real[t])

    def choose(
        self, rows: np.ndarray, mask: np.ndarray | None, rounds: int
    ) -> tuple[np.ndarray, ...]:
        """What the agent draws, its log-probability, the value and, of an agent that remembers,
        what it remembers then."""
        return self.agent.explore(rows, mask, rounds, self.rollout.memory)

    def values(self, rows: np.ndarray, state: np.ndarray) -> np.ndarray:
        """Of normalised rows of all environments, and what is remembered before them."""
        return self.agent.values(rows, state)

    def refuse_empty(self, mask: np.ndarray) -> None:
        """An error where a component has no allowed option."""
        refuse_choiceless(self.agent.mask_form, mask, self.envs.place)

    def store(self) -> None:
        """What the step brought; at a time limit the value of the final observation. The running
        statistics learn here and not in acting, so that choosing an action again changes
        nothing."""
        envs, rollout = self.envs, self.rollout
        t = rollout.add(envs.reward, envs.terminated, envs.truncated, envs.skipped, envs.components)
        if envs.truncated.any():
            values = self.values(self.agent.normalised(envs.final_obs), rollout.following)
            rollout.next_value[t][envs.truncated] = values[envs.truncated]
        if self.agent.norm:
            self.agent.norm.update(envs.obs.reshape(envs.num_envs, -1))

    def finish(self) -> None:
        """Advantages of a full rollout, which can be learned from until the next step is stored."""
        if self.parts:
            self.parts.note()
        rows = self.agent.normalised(self.envs.obs)
        self.rollout.finish(self.values(rows, self.rollout.memory))
        if self.agent.layout.graph:
            self.each = {"said": self.agent.said(self.rows["obs"])}
        if self.agent.online.critic is None:
            return
        rows = {name: value.to(self.agent.device) for name, value in self.rows.items()}
        shown = {"obs": self.agent.to_net(rows["obs"])}
        advantage, log_p = self.agent.counterfactual(rows | shown)
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
        lr = value_at(self.agent.config.lr, step)
        [(_, statistics)], norm = self.descend(lr, [(self.minibatch(part),)])
        numbers = [*statistics.tolist(), float(norm), 1.0]
        self.sums += numbers
        return numbers[KL]

    def minibatch(self, part: int) -> Tensors:
        batch = self.picked(part)
        return batch | {"obs": self.shown(batch)}

    def shown(self, batch: Tensors) -> Any:
        """A minibatch's observations as the network takes them: rows, or whole sequences."""
        rows = self.agent.to_net(batch["obs"])
        if not self.rollout.held:
            return rows
        return sequences(rows, batch["boundary"].view(self.rollout.length, -1), batch["state"])

    def picked(self, part: int) -> Tensors:
        """The rows of a minibatch, observations as they lie in the rollout."""
        numbers = self.rollout.order[self.bounds[part] : self.bounds[part + 1]]
        rows = self.rollout.rows_of(numbers)
        batch = dict(self.staging.send({**self.rows, **self.each}, torch.from_numpy(rows)))
        if self.rollout.held:
            batch["state"] = self.states[torch.from_numpy(numbers)].to(self.agent.device)
        for name in ("advantage", "log_p"):
            batch[name] = batch[name] if name in self.each else batch[name][:, None]
        return batch

    def statistics(self) -> dict[str, float]:
        return super().statistics() | (self.parts.statistics() if self.parts else {})

    def state(self) -> Tensors:
        return super().state() | (self.parts.state() if self.parts else {})

    def load_state(self, state: Tensors) -> None:
        super().load_state(state)
        if self.parts:
            self.parts.load_state(state)


def unchecked(agent: PPOAgent) -> PPOAgent:
    """The same agent, which looks for no bad values in masks and actions: acting did that."""
    own = copy.copy(agent)
    if own.heads:
        own.heads = MaskedHeads(own.actions.sizes, "absent", check=False).to(own.device)
    return own


class CompiledPPO(Compiled, PlainPPO):
    """As the plain engine, but gradient and step are one compiled call."""

    def unchecked_agent(self) -> Any:
        return unchecked(self.agent)

    def examples(self) -> Iterator[tuple[Any, ...]]:
        """A minibatch of zeros of each size; there may be two."""
        self.rollout.weight[:] = 1
        sizes = {self.bounds[p + 1] - self.bounds[p]: p for p in range(self.rollout.minibatches)}
        for part in sorted(sizes.values()):
            yield (self.minibatch(part),)
        self.rollout.weight[:] = 0


class PolicyLockstep(Lockstep):
    """Both engines learn from the same rollout, each with parameters of its own."""

    def __init__(self, engine: PlainPPO, every: int) -> None:
        agent = engine.agent
        given = (agent.config, agent.layout, agent.actions, 0, str(agent.device))
        twin = type(agent)(*given, agent.components)
        twin.keys, twin.norm = agent.keys, agent.norm
        super().__init__(engine, PlainPPO(twin, engine.rollout, engine.envs), every)
        self.number = 0  # of the phase's update that was last made

    def update(self, step: int, clock: Clock) -> None:
        """A learning phase by the fast engine, every N-th update of the run by both."""
        fast, lr = self.engine, value_at(self.engine.agent.config.lr, step)

        def learn(engine: Any, clock: Clock) -> bool:
            going = engine.learn(self.number, self.number + 1, step)
            clock.lap("update")
            return going

        clock.start()
        fast.finish()
        for self.number in range(fast.per_phase):
            if not (self.update_both(learn, lr, clock) if self.due else learn(fast, clock)):
                break

    def copy_memory(self) -> None:
        self.plain.moved, self.plain.each = 0.0, self.engine.each

    def batch(self) -> dict[str, np.ndarray]:
        rows = self.plain.picked(self.number % self.plain.rollout.minibatches)
        return {name: np.ascontiguousarray(value.cpu().numpy()) for name, value in rows.items()}

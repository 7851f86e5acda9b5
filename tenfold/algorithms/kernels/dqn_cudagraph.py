"""Q-learning whose updates are CUDA graphs: rows are drawn on the host by the plain engine's draws,
their observations are found on the GPU, and up to eight updates are one launch. Acting is one too.
"""

from functools import cached_property
from typing import Any

import numpy as np
import torch

from tenfold.algorithms.dqn import DQNAgent
from tenfold.algorithms.dqn_settings import Hard
from tenfold.config.options import value_at
from tenfold.core.random import Purpose, fill_normal, fill_uniform
from tenfold.engines.off_policy import OffPolicyEngine
from tenfold.engines.replay_graph import DRAWN, ReplayGraph
from tenfold.memory.replay import Replay
from tenfold.memory.staging import Shapes, StagingBuffer

# an action value that no allowed one falls below; finite, so that kernels find an action where
# nothing is allowed
FORBIDDEN = -1e30
NOISE = {"noise": Purpose.NOISE_ONLINE, "target_noise": Purpose.NOISE_TARGET}


class GraphDQN(ReplayGraph, OffPolicyEngine):
    """As the plain engine, for one agent or all agents of a world."""

    def __init__(self, agent: DQNAgent, replay: Replay, envs: Any) -> None:
        self.agents = getattr(agent, "agents", [agent])
        super().__init__(agent, replay, envs)
        # what the draws of every member are written to, by slot and update
        self.drawn = [
            [[self.drawn_of(part, m) for m in range(agent.members)] for part in slot]
            for slot in self.sent.arrays
        ]
        # of loss, Σ Q and Σ |TD error| in the means of an update
        shares = [1 / agent.members, *[1 / replay.batch.action.size] * 2]
        self.shares = torch.tensor(shares, device=agent.device)
        self.acting: Any = None

    def atoms_fit(self) -> bool:
        from tenfold.ops.device.td import fits

        settings = self.agent.config
        how = settings.implicit
        return fits(how.samples, how.target_samples) if how else fits(*[settings.atoms] * 2)

    # what goes to the GPU

    def lead(self, *shape: int) -> tuple[int, ...]:
        """Agents of a world stand in front."""
        return (self.agent.members, *shape) if self.agent.members > 1 else shape

    def shapes(self) -> Shapes:
        """What is sent for an update."""
        agent, items = self.agent, self.replay.batch.action.shape[-1]
        found: Shapes = {
            "places": (self.lead(2, items, agent.frames), np.int64),
            "action": (self.lead(items), np.int64),
            **{name: (self.lead(items), np.float32) for name in DRAWN[1:]},
            "before": (self.lead(), np.float32),
            "lr": ((), np.float32),
            "tau": ((), np.float32),
        }
        if options := self.replay.batch.next_mask.shape[-1]:
            found["next_mask"] = self.lead(items, options), np.bool_
        if how := agent.config.implicit:
            found["fractions"] = self.lead(items, how.samples), np.float32
            found["next_fractions"] = self.lead(items, how.target_samples), np.float32
        if size := agent.online.noise_size:
            found |= {name: (self.lead(size), np.float32) for name in NOISE}
        return found

    def drawn_of(self, part: dict[str, np.ndarray], member: int) -> tuple[Any, ...]:
        """One agent: what `sample_indices` writes, fractions and noise with their purposes."""
        own = {
            name: part[name][member] if self.agent.members > 1 else part[name]
            for name in part
            if name not in ("lr", "tau")
        }
        fractions = [
            (purpose, own[name].reshape(-1))
            for name, purpose in (
                ("fractions", Purpose.FRACTION),
                ("next_fractions", Purpose.NEXT_FRACTION),
            )
            if name in own
        ]
        noise = [(purpose, own[name]) for name, purpose in NOISE.items() if name in own]
        return [own[name] for name in ("places", *DRAWN)], fractions, noise, own.get("next_mask")

    def draw(self, count: int, step: int) -> None:
        """Everything that the next `count` updates need, into what is sent."""
        replay, config, updates = self.replay, self.agent.config, self.agent.updates
        beta = value_at(replay.priorities.beta, step) if replay.priorities else 1.0
        lr, parts = value_at(config.lr, step), self.sent.open()
        drawn = self.drawn[self.sent.slot_index]
        for k in range(count):
            for m, (agent, memory) in enumerate(zip(self.agents, replay.memories, strict=True)):
                rows, fractions, noise, next_mask = drawn[k][m]
                memory.sample_indices(beta, m * self.mirror.rows, rows)
                if next_mask is not None:
                    memory.gather_masks(next_mask)
                for purpose, out in fractions:
                    fill_uniform(agent.keys[purpose], (updates + k) * out.size, out)
                for purpose, out in noise:
                    fill_normal(agent.keys[purpose], (updates + k) * out.size, out)
            part, target = parts[k], config.target
            part["lr"][...], part["before"][...] = lr, updates + k
            part["tau"][...] = (
                (updates + k + 1) % target.every == 0 if isinstance(target, Hard) else target.tau
            )

    # learning

    def record(self) -> None:
        """Updates of a round, and acting."""
        self.record_updates()
        if self.agent.frames == 1 or self.seen is not None:
            noisy = bool(self.agent.online.noise_size)
            acting = self.act_there(self.looked_at, noisy)
            self.record_all(("act", noisy), self.acting[0], acting)

    def update_there(self, k: int) -> None:
        """Update number k of those that were sent, as it is recorded."""
        sent = self.sent.on_device[k]
        partial, errors, told = self.gradient_there(k)
        if self.replay.priorities:
            self.errors.copy_(errors, non_blocking=True)
        self.finish_update(sent, told, self.shares, partial)

    def gradient_there(self, k: int) -> Any:
        """(parts of the gradient, or None where it is in its buffer; TD errors; rows of [loss, Σ Q,
        Σ |TD error|])."""
        if shape := self.small:
            from tenfold.algorithms.kernels.dqn_cudagraph_kernel import batch_gradient

            partial, errors, told = batch_gradient(
                self.agent, self.mirror.numbers, self.sent.on_device[k], shape
            )
            return partial if self.agent.members > 1 else partial[0], errors, told
        said = self.descend_by(self.parts(k))
        if len(said) == 1:
            return None, *said[0]
        errors, told = (
            torch.cat(each, dim) for each, dim in zip(zip(*said, strict=True), (-1, 0), strict=True)
        )
        return None, errors, told

    @cached_property
    def small(self) -> Any:
        """What the kernel of small networks is compiled for; None where it does not fit."""
        if not self.by_kernels:
            return None
        from tenfold.algorithms.kernels.dqn_cudagraph_kernel import shape_of, why_not

        if why_not(self.agent):
            return None
        return shape_of(self.agent, self.replay.batch.action.shape[-1], self.precision)

    def differentiate(self, inputs: Any) -> Any:
        """Beside the derivatives: every item's TD error, and rows of [loss, Σ Q, Σ |TD error|]."""
        batch, noise, target_noise, effective = inputs
        agent = self.agent
        if not self.by_kernels or not self.atoms_fit() or agent.config.categorical:
            loss, errors, q = agent.loss(batch, noise, target_noise, effective)
            told = [loss.detach(), q * errors.numel(), errors.abs().sum()]
            return [loss], None, (errors, torch.stack(told)[None])
        from tenfold.ops.device.td import td_derivative  # here: it needs Triton

        passes = agent.passes(batch, noise, target_noise, self.aside)
        self.join()
        values, next_values, chooser = passes
        if "next_mask" in batch:
            chooser = chooser.masked_fill(~batch["next_mask"][..., None], FORBIDDEN)
        slope, errors, told = td_derivative(
            batch, values, next_values, chooser, agent.config.loss, effective
        )
        return [values], [slope], (errors, told)

    def parts(self, k: int) -> Any:
        """What the loss is given: micro-batches, or all."""
        agent, sent = self.agent, self.sent.on_device[k]
        items, effective = len(self.lead()), sent["action"].shape[-1]
        obs, next_obs = self.mirror.at(sent["places"]).unbind(items)
        shape = self.replay.batch.obs.shape
        rows = {"obs": obs.reshape(shape), "next_obs": next_obs.reshape(shape)}
        rows |= {
            name: sent[name]
            for name in (*DRAWN, "next_mask", "fractions", "next_fractions")
            if name in sent
        }
        size = agent.config.batch_size
        for start in range(0, effective, size):
            part = {name: t.narrow(items, start, size) for name, t in rows.items()}
            yield part, sent.get("noise"), sent.get("target_noise"), effective

    # acting

    def explore(self, step: int, rounds: int) -> np.ndarray:
        return self.agent.explore(self.looked_at, step, rounds, self.envs.mask, self.values)

    def values(self, rows: np.ndarray, noise: torch.Tensor | None) -> np.ndarray:
        """Mean action values by one launch."""
        work = self.act_there(rows, noise is not None)
        parcel, found, place = self.acting
        parcel.open()[0]["rows"][...] = rows.reshape(parcel.on_device[0]["rows"].shape)
        if noise is not None:
            place.copy_(noise)
        self.replay_graph(("act", noise is not None), parcel, work)
        self.wait()
        return found.numpy().reshape(len(rows), -1)

    def act_there(self, rows: np.ndarray, noisy: bool) -> Any:
        """Acting as it is recorded, on arrays like `rows`."""
        agent, lanes = self.agent, len(rows) // self.agent.members
        if self.acting is None:
            shapes = {"rows": (self.lead(lanes, *rows.shape[1:]), rows.dtype)}
            self.acting = (
                StagingBuffer(agent.device, shapes, depth=1),
                self.host(*self.lead(lanes, agent.actions.n)),
                torch.zeros(self.lead(agent.online.noise_size), device=agent.device),
            )
        parcel, found, noise = self.acting

        @torch.no_grad()
        def work() -> None:
            known = agent.mean_values(parcel.on_device[0]["rows"], noise if noisy else None)
            found.copy_(known, non_blocking=True)

        return work

"""Q-learning's engines for a GPU. `CudaGraphDQN` records updates as CUDA graphs: rows are drawn on
the host by the plain engine's draws, their observations are found on the GPU, and up to eight
updates are one launch; acting is one too. `ResidentDQN` runs whole rounds inside one Triton launch,
the environments on the GPU as well; it works on a copy of what the run holds on the host, which
comes back before anything is saved (`dqn_resident_runs`).
"""

from functools import cached_property
from typing import Any

import numpy as np
import torch

from tenfold.algorithms.dqn import DQNAgent
from tenfold.algorithms.dqn_settings import Hard
from tenfold.algorithms.kernels.dqn import why_not_kernels
from tenfold.config.options import Episodes
from tenfold.config.run import Run
from tenfold.core.random import Purpose, fill_normal
from tenfold.engines.cudagraph_off_policy import COLUMNS, CudaGraphOffPolicy
from tenfold.engines.plain import OffPolicyEngine
from tenfold.engines.resident import ResidentEngine, why_not_resident
from tenfold.memory.replay import Replay
from tenfold.memory.staging import StagingBuffer

# an action value that no allowed one falls below; finite, so that kernels find an action where
# nothing is allowed
FORBIDDEN = -1e30
PER_ITEM = {*COLUMNS, "next_mask", "fractions", "next_fractions"}
NOISE = {"noise": Purpose.NOISE_ONLINE, "target_noise": Purpose.NOISE_TARGET}


class CudaGraphDQN(CudaGraphOffPolicy, OffPolicyEngine):
    """As the plain engine, for one agent or all agents of a world."""

    def __init__(self, agent: DQNAgent, replay: Replay, envs: Any) -> None:
        super().__init__(agent, replay, envs)
        # of loss, Σ Q and Σ |TD error| in the means of an update
        shares = [1 / agent.members, *[1 / replay.batch.action.size] * 2]
        self.shares = torch.tensor(shares, device=agent.device)
        self.acting: Any = None

    def update_draws(self) -> dict[str, Any]:
        """Beside fractions the noise of layers, one vector an agent."""
        size = self.agent.online.noise_size
        noise = {name: (purpose, fill_normal, (size,)) for name, purpose in NOISE.items() if size}
        return super().update_draws() | noise

    def update_scalars(self, number: int) -> dict[str, float]:
        return {"tau": self.agent.target_share(number)}

    def atoms_fit(self) -> bool:
        from tenfold.ops.device.td import fits

        settings = self.agent.config
        how = settings.implicit
        return fits(how.samples, how.target_samples) if how else fits(*[settings.atoms] * 2)

    # learning

    def capture(self) -> None:
        """Records updates of a round, and acting."""
        self.capture_updates()
        if self.agent.frames == 1 or self.stacked_obs is not None:
            noisy = bool(self.agent.online.noise_size)
            acting = self.make_acting_work(self.acted_on, noisy)
            self.capture_all(("act", noisy), self.acting[0], acting)

    def update_work(self, k: int) -> None:
        partial, errors, metrics = self.gradient_work(k)
        if self.replay.priorities:
            self.errors.copy_(errors, non_blocking=True)
        self.finish_update(self.sent.on_device[k], metrics, self.shares, partial)

    def gradient_work(self, k: int) -> Any:
        """(parts of the gradient, or None where it is in its buffer; TD errors; rows of [loss, Σ Q,
        Σ |TD error|])."""
        if shape := self.small:
            from tenfold.algorithms.kernels.dqn_cudagraph_kernel import batch_gradient

            partial, errors, metrics = batch_gradient(
                self.agent, self.mirror.elements, self.sent.on_device[k], shape
            )
            return partial if self.agent.members > 1 else partial[0], errors, metrics
        results = self.gradient_of(self.minibatches(k))
        if len(results) == 1:
            return None, *results[0]
        errors, metrics = zip(*results, strict=True)
        return None, torch.cat(errors, -1), torch.cat(metrics, 0)

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
            metrics = [loss.detach(), q * errors.numel(), errors.abs().sum()]
            return [loss], None, (errors, torch.stack(metrics)[None])
        from tenfold.ops.device.td import td_derivative  # here: it needs Triton

        passes = agent.passes(batch, noise, target_noise, self.side_stream)
        self.wait_side_streams()
        values, next_values, chooser = passes
        if "next_mask" in batch:
            chooser = chooser.masked_fill(~batch["next_mask"][..., None], FORBIDDEN)
        slope, errors, metrics = td_derivative(
            batch, values, next_values, chooser, agent.config.loss, effective
        )
        return [values], [slope], (errors, metrics)

    def minibatches(self, k: int) -> Any:
        """What the loss is given: micro-batches, or all."""
        agent, sent, (obs, next_obs) = self.agent, self.sent.on_device[k], self.observations(k)
        items, effective = len(self.lead()), sent["action"].shape[-1]
        rows = {name: sent[name] for name in sent if name in PER_ITEM}
        rows |= {"obs": obs, "next_obs": next_obs}
        size = agent.config.batch_size
        for start in range(0, effective, size):
            minibatch = {name: rows[name].narrow(items, start, size) for name in rows}
            yield minibatch, sent.get("noise"), sent.get("target_noise"), effective

    # acting

    def explore(self, step: int, rounds: int) -> np.ndarray:
        return self.agent.explore(self.acted_on, step, rounds, self.envs.mask, self.values)

    def values(self, rows: np.ndarray, noise: torch.Tensor | None) -> np.ndarray:
        """Mean action values by one launch."""
        work = self.make_acting_work(rows, noise is not None)
        staging, values, static_noise = self.acting
        staging.open()[0]["rows"][...] = rows.reshape(staging.on_device[0]["rows"].shape)
        if noise is not None:
            static_noise.copy_(noise)
        self.launch_graph(("act", noise is not None), staging, work)
        self.wait()
        return values.numpy().reshape(len(rows), -1)

    def make_acting_work(self, rows: np.ndarray, noisy: bool) -> Any:
        """The work of acting as it is recorded, on arrays like `rows`."""
        agent, lanes = self.agent, len(rows) // self.agent.members
        if self.acting is None:
            shapes = {"rows": (self.lead(lanes, *rows.shape[1:]), rows.dtype)}
            self.acting = (
                StagingBuffer(agent.device, shapes, depth=1),
                self.host(*self.lead(lanes, agent.actions.n)),
                torch.zeros(self.lead(agent.online.noise_size), device=agent.device),
            )
        staging, values, noise = self.acting

        @torch.no_grad()
        def work() -> None:
            means = agent.mean_values(staging.on_device[0]["rows"], noise if noisy else None)
            values.copy_(means, non_blocking=True)

        return work


class ResidentDQN(ResidentEngine, OffPolicyEngine):
    """Runs all rounds by launches of many."""

    runs_home = "tenfold.algorithms.kernels.dqn_resident_runs:ResidentDQNRuns"
    memory_attribute = "replay"

    @classmethod
    def why_not(cls, agent: DQNAgent, run: Any = None) -> str:
        if obstacle := why_not_kernels(agent):
            return obstacle
        if agent.norm:
            return "observations are normalised, which is done on the CPU"
        if agent.config.categorical:
            return "the distribution is categorical"
        if agent.online.noise_size:
            return "the layers are noisy"
        if agent.config.warms_up(-1):
            return "actions are uniform until learning starts"
        target = agent.config.target
        if isinstance(target, Hard) and (target.steps or target.tau < 1):
            return f"the target network is {target}"
        if isinstance(agent.config.every, Episodes) or agent.config.updates < 1:
            return "updates are not a fixed number after so many steps"
        if agent.masked:
            return "actions are masked"
        return why_not_resident(agent, run, agent.online.sizes[-1])

    def prepare(self, run: Run) -> None:
        super().prepare(run)
        self.precision = run.precision
        self.description = f"whole rounds in one launch on the GPU, products in {run.precision}"

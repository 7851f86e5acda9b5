"""PPO's engines for a GPU. `CudaGraphPPO` records the plain engine's updates as CUDA graphs: a
rollout goes to the GPU once, up to eight minibatches are one launch, and between them goes nothing
but the order of the rows; acting is one launch too. `ResidentPPO` runs the environments there as
well.

A policy that remembers learns from whole sequences: the same rows in another order, and the states
in front of them. The recurrence is recorded step by step, so that longer sequences are fewer
minibatches a launch. What is remembered while acting is the rollout's, and goes with every row.
"""

from typing import Any

import numpy as np
import torch

from tenfold.algorithms.agent import Tensors
from tenfold.algorithms.ppo import PlainPPO, PPOAgent
from tenfold.algorithms.ppo_recorded import RecordedMinibatches
from tenfold.config.run import Run
from tenfold.engines.choose import why_not_layers
from tenfold.engines.resident import ResidentEngine, why_not_resident
from tenfold.memory.rollout import ACTED, RolloutBuffer
from tenfold.memory.staging import Shapes, StagingBuffer


class CudaGraphPPO(RecordedMinibatches, PlainPPO):
    """As the plain engine, on rollouts of the host."""

    def __init__(self, agent: PPOAgent, rollout: RolloutBuffer, envs: Any) -> None:
        super().__init__(agent, rollout, envs)
        self.acting = self.make_acting()

    def capture(self) -> None:
        """Records minibatches, and acting."""
        super().capture()
        self.capture_all("act", self.acting[0], self.acting_work)
        self.capture_all("value", self.acting[0], self.value_work)

    def finish(self) -> None:
        """Copies the rollout to the GPU."""
        super().finish()
        (host,) = self.phase.open()
        for name, rows in self.rows.items():
            if name in self.columns:
                columns = host["numbers"][:, slice(*self.columns[name])]
                columns[...] = rows.numpy().reshape(columns.shape)
            else:
                host[name][...] = rows.numpy()
        self.phase.send()
        for name, tensor in self.static.items():
            tensor.copy_(self.extra_rows[name])

    # acting

    def sample_action(
        self, rows: np.ndarray, mask: np.ndarray | None, rounds: int
    ) -> tuple[np.ndarray, ...]:
        agent = self.agent
        u, noise = agent.draws(len(rows), rounds * len(rows))
        staging, results = self.acting
        (host,) = staging.open()
        host["rows"][...], host["state"][...] = rows, self.rollout.hidden
        host["u"][...], host["noise"][...] = u, noise
        if "mask" in host:
            host["mask"][...] = mask
        self.launch_graph("act", staging, self.acting_work)
        self.wait()
        if not np.isfinite(results["log_p"].numpy()).all():  # the agent says what is wrong
            return agent.explore(rows, mask, rounds, self.rollout.hidden)
        acted = tuple(value.numpy() for value in results.values())
        return acted if self.rollout.hidden_size else (*acted, self.rollout.hidden)

    def values(self, rows: np.ndarray, state: np.ndarray) -> np.ndarray:
        staging, results = self.acting
        (host,) = staging.open()
        host["rows"][...], host["state"][...] = rows, state
        self.launch_graph("value", staging, self.value_work)
        self.wait()
        return results["value"].numpy()

    def make_acting(self) -> tuple[StagingBuffer, Tensors]:
        """Buffers of acting's inputs and results."""
        rollout, envs = self.rollout, self.rollout.obs.shape[1]
        arrays = {"rows": rollout.obs[0], "state": rollout.hidden}
        if rollout.mask.shape[-1]:
            arrays["mask"] = rollout.mask[0]
        shapes: Shapes = {name: (a.shape, a.dtype) for name, a in arrays.items()}
        shapes["u"] = (envs, rollout.chosen.shape[2]), np.float64
        shapes["noise"] = (envs, rollout.real.shape[2]), np.float32
        arrays = {name: getattr(rollout, name)[0] for name in ACTED}
        if rollout.hidden_size:
            arrays["next_hidden"] = rollout.next_hidden
        like = {name: torch.from_numpy(array) for name, array in arrays.items()}
        results = {name: self.host(*a.shape, dtype=a.dtype) for name, a in like.items()}
        return StagingBuffer(self.agent.device, shapes, depth=1), results

    @torch.no_grad()
    def acting_work(self) -> None:
        """Acting as it is recorded."""
        inputs, results = self.acting[0].on_device[0], self.acting[1]
        obs, agent = self.agent.to_net(inputs["rows"]), self.learning
        acted = agent.distribution.act(
            obs, inputs["state"], inputs.get("mask"), inputs["u"], inputs["noise"]
        )
        for result, value in zip(results.values(), acted, strict=False):
            result.copy_(value, non_blocking=True)

    @torch.no_grad()
    def value_work(self) -> None:
        inputs, results = self.acting[0].on_device[0], self.acting[1]
        obs = self.agent.to_net(inputs["rows"])
        values = self.agent.online.values(obs, inputs["state"])
        results["value"].copy_(values, non_blocking=True)


class ResidentPPO(ResidentEngine, PlainPPO):
    """Rollouts with the environments on the GPU, and all epochs of minibatches, as one CUDA graph
    of small launches spread over the whole GPU: one agent with thousands of environments, or
    hundreds of seeds side by side. The GPU works on copies of what the run holds on the host
    (`ppo_resident_runs`), which come back before anything is saved."""

    runs_home = "tenfold.algorithms.kernels.ppo_resident_runs:ResidentPPORuns"
    memory_attribute = "rollout"

    @classmethod
    def why_not(cls, agent: PPOAgent, run: Any = None) -> str:
        if obstacle := why_not_layers(agent):
            return obstacle
        config, actions = agent.config, agent.actions
        if obstacle := agent.value_step.why_not:
            return obstacle
        if config.baseline == "counterfactual":
            return "the baseline is counterfactual"
        if agent.components:
            return "rewards come in components, each with a value of its own"
        if config.squash and config.entropy:
            return "the entropy of squashed actions has no closed form"
        return why_not_resident(agent, run, actions.options + len(actions.low))

    def prepare(self, run: Run) -> None:
        super().prepare(run)
        self.precision = run.precision
        self.description = f"whole phases as one CUDA graph, products in {run.precision}"

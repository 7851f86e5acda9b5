"""PPO's engines for a GPU. `CudaGraphPPO` records the plain engine's updates as CUDA graphs: a
rollout goes to the GPU once, up to eight minibatches are one launch, and between them goes nothing
but the order of the rows; acting is one launch too, for all environments or for one half while the
other steps. `ResidentPPO` runs the environments there as well.

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
        lanes = getattr(envs, "halves", (slice(None),))
        self.acting = [RecordedActing(self, number, part) for number, part in enumerate(lanes)]
        self.valuing = self.make_valuing()

    @property
    def looks_ahead(self) -> bool:
        """Whether an observation alone decides how the policy acts on it, so that half of the
        environments can be acted for before the step of the others is stored."""
        return not self.rollout.hidden_size and self.agent.norm is None

    def capture(self) -> None:
        """Records minibatches, and acting."""
        super().capture()
        for acting in self.acting:
            self.capture_all(acting.name, acting.staging, acting.work)
        self.capture_all("value", self.valuing[0], self.value_work)

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

    def load_state(self, state: Tensors) -> None:
        super().load_state(state)
        for acting in self.acting:
            acting.round = None

    # acting

    def explore(self, step: int, rounds: int) -> np.ndarray:
        return np.concatenate([self.act(part, rounds) for part in range(len(self.acting))])

    def act(self, part: int, rounds: int) -> np.ndarray:
        """Actions for the current observations of one half of the environments, or of all, stored
        in the rollout."""
        rollout, envs, agent, acting = self.rollout, self.envs, self.agent, self.acting[part]
        t, lanes = int(rollout.count[0]), acting.lanes
        rollout.obs[t, lanes] = agent.normalised(envs.obs[lanes])
        mask = None if envs.mask is None else envs.mask[lanes]
        if mask is not None:
            rollout.mask[t, lanes] = mask
            agent.require_options(envs.mask, envs.location)
        acted = acting.results_of(rounds, rollout.obs[t, lanes], mask, rollout.hidden[lanes])
        if not np.isfinite(acted["log_p"]).all():  # the agent says what is wrong
            agent.explore(rollout.obs[t, lanes], mask, rounds, rollout.hidden[lanes])
        for name in ACTED:
            getattr(rollout, name)[t, lanes] = acted[name]
        rollout.next_hidden[lanes] = acted.get("next_hidden", rollout.hidden[lanes])
        return agent.for_env(rollout.chosen[t, lanes], rollout.real[t, lanes])

    def look_ahead(self, part: int, rounds: int) -> None:
        """Begins to act in the round after this one, whose row is not stored yet; not where the
        policy learns before."""
        if self.rollout.left > 1:
            envs, acting = self.envs, self.acting[part]
            lanes = acting.lanes
            mask = None if envs.mask is None else envs.mask[lanes]
            acting.begin(rounds + 1, envs.obs[lanes], mask, self.rollout.hidden[lanes])

    def values(self, rows: np.ndarray, state: np.ndarray) -> np.ndarray:
        staging, value = self.valuing
        (host,) = staging.open()
        host["rows"][...], host["state"][...] = rows, state
        self.launch_graph("value", staging, self.value_work)
        self.wait()
        return value.numpy()

    def make_valuing(self) -> tuple[StagingBuffer, torch.Tensor]:
        """Where observations are sent for their values, and these."""
        rollout = self.rollout
        arrays = {"rows": rollout.obs[0], "state": rollout.hidden}
        shapes: Shapes = {name: (a.shape, a.dtype) for name, a in arrays.items()}
        staging = StagingBuffer(self.agent.device, shapes, depth=1)
        return staging, self.host(*rollout.value[0].shape)

    @torch.no_grad()
    def value_work(self) -> None:
        staging, value = self.valuing
        inputs = staging.on_device[0]
        obs = self.agent.to_net(inputs["rows"])
        value.copy_(self.agent.online.values(obs, inputs["state"]), non_blocking=True)


class RecordedActing:
    """How a policy acts for some lanes, as one launch."""

    def __init__(self, engine: CudaGraphPPO, number: int, lanes: slice) -> None:
        rollout = engine.rollout
        self.engine, self.name, self.lanes = engine, ("act", number), lanes
        self.first, self.stop, _ = lanes.indices(rollout.obs.shape[1])
        self.round: int | None = None  # that was begun
        arrays = {"rows": rollout.obs[0], "state": rollout.hidden}
        if rollout.mask.shape[-1]:
            arrays["mask"] = rollout.mask[0]
        shapes: Shapes = {name: (a[lanes].shape, a.dtype) for name, a in arrays.items()}
        count = self.stop - self.first
        shapes["u"] = (count, rollout.chosen.shape[2]), np.float64
        shapes["noise"] = (count, rollout.real.shape[2]), np.float32
        self.staging = StagingBuffer(engine.agent.device, shapes, depth=1)
        arrays = {name: getattr(rollout, name)[0] for name in ACTED}
        if rollout.hidden_size:
            arrays["next_hidden"] = rollout.next_hidden
        like = {name: torch.from_numpy(array[lanes]) for name, array in arrays.items()}
        self.results = {name: engine.host(*a.shape, dtype=a.dtype) for name, a in like.items()}

    def begin(
        self, rounds: int, rows: np.ndarray, mask: np.ndarray | None, state: np.ndarray
    ) -> None:
        """Launches it, with the draws of this round."""
        agent, (host,) = self.engine.agent, self.staging.open()
        lanes = self.engine.rollout.obs.shape[1]
        host["u"][...], host["noise"][...] = agent.draws(
            self.stop - self.first, rounds * lanes + self.first
        )
        host["rows"][...], host["state"][...] = rows, state
        if "mask" in host:
            host["mask"][...] = mask
        self.engine.launch_graph(self.name, self.staging, self.work)
        self.round = rounds

    def results_of(
        self, rounds: int, rows: np.ndarray, mask: np.ndarray | None, state: np.ndarray
    ) -> dict[str, np.ndarray]:
        """How it acted in this round, begun here where that was not done before."""
        if self.round != rounds:
            self.begin(rounds, rows, mask, state)
        self.round = None
        self.engine.wait()
        return {name: value.numpy() for name, value in self.results.items()}

    @torch.no_grad()
    def work(self) -> None:
        """As it is recorded."""
        inputs, engine = self.staging.on_device[0], self.engine
        obs = engine.agent.to_net(inputs["rows"])
        acted = engine.learning.distribution.act(
            obs, inputs["state"], inputs.get("mask"), inputs["u"], inputs["noise"]
        )
        for result, value in zip(self.results.values(), acted, strict=False):
            result.copy_(value, non_blocking=True)


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

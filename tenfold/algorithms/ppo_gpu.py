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
from tenfold.config.options import value_at
from tenfold.config.run import Run
from tenfold.core.random import Purpose
from tenfold.engines.choose import why_not_layers
from tenfold.engines.cudagraph import MOST, CudaGraphCapture, at_once
from tenfold.engines.resident import ResidentEngine, why_not_resident
from tenfold.memory.rollout import ACTED, RolloutBuffer
from tenfold.memory.staging import Shapes, StagingBuffer
from tenfold.ops.sampling import shuffle
from tenfold.ops.surrogate import KL

NUMBERS = ("log_p", "advantage", "weight", "value", "target", "real")  # side by side in one table
INPUTS = ("obs", "boundary")  # a row's input of the networks


class CudaGraphPPO(CudaGraphCapture, PlainPPO):
    """As the plain engine; statistics stay on the GPU until they are logged."""

    def __init__(self, agent: PPOAgent, rollout: RolloutBuffer, envs: Any) -> None:
        super().__init__(agent, rollout, envs)
        device = agent.device
        self.sums = torch.zeros(len(self.names) + 1, dtype=torch.float64, device=device)
        self.shares = torch.ones(len(self.names) - 1, device=device)
        # of this epoch's updates so far
        self.epoch_kl_sum = torch.zeros((), dtype=torch.float64, device=device)
        self.columns, width = {}, 0
        for name in NUMBERS:
            size = self.rows[name].flatten(1).shape[1] if self.rows[name].dim() > 1 else 1
            self.columns[name] = (width, width + size)
            width += size
        count = len(self.rows["obs"])
        shapes: Shapes = {
            name: (tuple(rows.shape), rows.numpy().dtype)
            for name, rows in self.rows.items()
            if name not in NUMBERS
        }
        self.phase = StagingBuffer(
            device, {"numbers": ((count, width), np.float32), **shapes}, depth=1
        )
        # of counterfactual baselines
        self.static: Tensors = {}
        if agent.online.critic is not None:
            size = (count, len(agent.actions.sizes))
            self.static = {n: torch.zeros(size, device=device) for n in ("advantage", "log_p")}
        self.most = max(1, MOST // rollout.sequence_length)  # minibatches of a graph
        self.row_indices = rollout.rows_of(np.arange(rollout.order.size)).reshape(
            rollout.sequence_length, -1
        )
        self.sent = self.make_sent()
        self.acting = self.make_acting()
        self.shape = self.kernel_shape()

    def make_sent(self) -> StagingBuffer:
        """The buffer of minibatches' indices and settings."""
        sizes, rollout = np.diff(self.bounds), self.rollout
        self.size, self.uneven = int(sizes.max()), bool(sizes.min() < sizes.max())
        rows = self.size * rollout.sequence_length
        shapes: Shapes = {"index": ((rows,), np.int64), "lr": ((), np.float32)}
        shapes |= {
            "state": ((self.size, rollout.hidden_size), np.float32),
            "before": ((), np.float32),
        }
        if self.uneven:
            shapes["counts"] = (rows,), np.float32
        return StagingBuffer(
            self.agent.device, shapes, min(self.most, rollout.minibatches), depth=2
        )

    def unchecked_agent(self) -> Any:
        return self.agent.unchecked()

    def changed(self) -> list[torch.Tensor]:
        return [*super().changed(), self.epoch_kl_sum]

    def capture(self) -> None:
        """Records minibatches, as many as make an epoch, and acting."""
        left = self.rollout.minibatches
        while left:
            count = at_once(left, self.most)
            self.capture_all("learn", self.sent, self.make_minibatches_work(count), count)
            left -= count
        self.capture_all("act", self.acting[0], self.acting_work)
        self.capture_all("value", self.acting[0], self.value_work)

    # learning

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

    def learn(self, first: int, last: int, step: int) -> bool:
        agent, count, target_kl = self.agent, self.rollout.minibatches, self.agent.config.target_kl
        lr = value_at(agent.config.lr, step)
        while first < last:
            part = first % count
            if part == 0:
                shuffle(agent.keys[Purpose.SHUFFLE], agent.count[1], self.rollout.order)
                agent.count[1] += 1
                self.epoch_kl_sum.zero_()
            now = at_once(min(count - part, last - first), self.most)
            self.send_order(part, now, lr)
            self.launch_graph("learn", self.sent, self.make_minibatches_work(now), now)
            agent.updates += now
            first += now
            if target_kl and part + now == count and float(self.epoch_kl_sum) > target_kl:
                return False
        return True

    def send_order(self, part: int, count: int, lr: float) -> None:
        """Sends the sequences of the minibatches from number `part` on, and the states in front of
        them. Shorter minibatches are filled up with rows that do not count."""
        host, before = self.sent.open(), self.agent.updates
        numbers = np.empty(self.size, np.int64)
        for k in range(count):
            in_minibatch = self.rollout.order[self.bounds[part + k] : self.bounds[part + k + 1]]
            numbers[: len(in_minibatch)], numbers[len(in_minibatch) :] = (
                in_minibatch,
                in_minibatch[0],
            )
            host[k]["index"][...] = self.row_indices[:, numbers].ravel()
            host[k]["state"][...] = self.start_states.numpy()[numbers]
            if self.uneven:
                host[k]["counts"].reshape(-1, self.size)[...] = np.arange(self.size) < len(
                    in_minibatch
                )
            host[k]["lr"][...], host[k]["before"][...] = lr, before + k

    def make_minibatches_work(self, count: int) -> Any:
        """The work of so many minibatches as it is recorded."""

        def work() -> None:
            for k in range(count):
                self.update_work(k)

        return work

    def update_work(self, k: int) -> None:
        """Minibatch number k of those that were sent, as it is recorded."""
        sent = self.sent.on_device[k]
        [statistics] = self.gradient_of([k])
        self.finish_update(sent, statistics[None], self.shares)
        if self.agent.config.target_kl:
            self.epoch_kl_sum.add_(statistics[KL].double() / self.rollout.minibatches)

    def differentiate(self, inputs: Any) -> Any:
        """Of minibatch number `inputs`; beside the derivatives the statistics."""
        if self.shape is None:
            loss, statistics = self.learning.loss(self.minibatch_on_device(inputs))
            return [loss], None, statistics
        from tenfold.ops.device.policy_loss import PolicyRows, policy_derivative  # needs Triton

        sent, phase, online = (
            self.sent.on_device[inputs],
            self.phase.on_device[0],
            self.agent.online,
        )
        output, value = online(self.input_on_device(inputs))
        rows = PolicyRows(
            sent["index"],
            sent["counts"] if self.uneven else value,
            phase["numbers"],
            phase["chosen"],
            phase["mask"] if self.shape.masked else value,
        )
        by_output, by_value, by_spread, statistics = policy_derivative(
            output, value, online.log_std, rows, self.offsets, self.shape
        )
        if not self.shape.reals:
            return [output, value], [by_output, by_value], statistics
        return [output, value, online.log_std], [by_output, by_value, by_spread], statistics

    def kernel_shape(self) -> Any:
        """What the loss's kernel is compiled for; None where autograd has to do it."""
        agent, settings = self.agent, self.agent.config
        if (
            not self.by_kernels
            or agent.online.critic is not None
            or agent.distribution.gates is not None
            or self.rows["value"].dim() > 1
            or (settings.squash and settings.entropy > 0)
        ):
            return None
        from tenfold.ops.device.policy_loss import PolicyLossShape, head_offsets

        shape = PolicyLossShape(
            tuple(agent.actions.sizes),
            len(agent.actions.low),
            "mask" in self.rows,
            self.uneven,
            settings.clip,
            settings.value_clip or 0.0,
            settings.value_weight,
            settings.entropy,
        )
        self.offsets = head_offsets(shape, agent.device)
        return shape

    def minibatch_on_device(self, k: int) -> Tensors:
        sent, rows = self.sent.on_device[k], self.phase.on_device[0] | self.static
        batch = {
            name: value.index_select(0, sent["index"])
            for name, value in rows.items()
            if name not in INPUTS
        }
        numbers = batch.pop("numbers")
        for name, (start, end) in self.columns.items():
            columns = numbers[:, start:end]
            flat = self.rows[name].dim() == 1 and name not in ("log_p", "advantage")
            batch.setdefault(name, columns.squeeze(1) if flat else columns)
        if self.uneven:
            batch["weight"] = batch["weight"] * sent["counts"]
        return batch | {"obs": self.input_on_device(k)}

    def input_on_device(self, k: int) -> Any:
        """The network's input of minibatch number k."""
        sent, phase = self.sent.on_device[k], self.phase.on_device[0]
        rows = {n: phase[n].index_select(0, sent["index"]) for n in INPUTS if n in phase}
        return self.network_input(rows | {"state": sent["state"]})

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

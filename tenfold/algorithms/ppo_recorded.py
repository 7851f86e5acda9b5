"""Learning of PPO as CUDA graphs, from the rows of a rollout that are on the GPU: up to eight
minibatches are one launch, and between them goes nothing but the order of the rows."""

from math import inf
from typing import Any

import numpy as np
import torch

from tenfold.algorithms.agent import Tensors
from tenfold.algorithms.ppo import CLIPS, PPO_GRAD, PPOAgent
from tenfold.config.schedules import value_at
from tenfold.core.random import Purpose
from tenfold.engines.cudagraph import MOST, CudaGraphCapture, at_once
from tenfold.memory.staging import Shapes, StagingBuffer
from tenfold.ops.minibatch_loss import KL
from tenfold.ops.sampling import shuffle

NUMBERS = ("log_p", "advantage", "weight", "value", "target", "real")  # side by side in one table
INPUTS = ("obs", "boundary")  # a row's input of the networks


class RecordedMinibatches(CudaGraphCapture):
    """Mixin: list it before the plain engine. Learning from the rows in `phase`; statistics stay on
    the GPU until they are logged."""

    agent: PPOAgent
    rollout: Any
    rows: Tensors
    names: tuple[str, ...]
    bounds: np.ndarray
    clips: Tensors
    start_states: torch.Tensor
    network_input: Any
    phase_slots = 1  # on the host, that rows are sent from

    @classmethod
    def why_not(cls, agent: Any, run: Any = None) -> str:
        return super().why_not(agent, run) or agent.value_step.why_not

    def __init__(self, agent: PPOAgent, rollout: Any, envs: Any) -> None:
        super().__init__(agent, rollout, envs)
        device = agent.device
        self.sums = torch.zeros(len(self.names) + 1, dtype=torch.float64, device=device)
        self.shares = torch.ones(len(self.names) - 1, device=device)
        # of this epoch's updates so far
        self.epoch_kl_sum = torch.zeros((), dtype=torch.float64, device=device)
        # whether target_kl allows more steps, and how many were made since the host asked
        self.going, self.made = torch.ones(2, dtype=torch.int64, device=device).unbind()
        self.columns, width = {}, 0
        for name in NUMBERS:
            size = self.rows[name].flatten(1).shape[1] if self.rows[name].dim() > 1 else 1
            self.columns[name] = (width, width + size)
            width += size
        count = len(self.rows["obs"])
        shapes: Shapes = {
            name: (tuple(rows.shape), torch.empty(0, dtype=rows.dtype).numpy().dtype)
            for name, rows in self.rows.items()
            if name not in NUMBERS
        }
        self.phase = StagingBuffer(
            device,
            {"numbers": ((count, width), np.float32), **shapes},
            depth=self.phase_slots,
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
        self.shape = self.kernel_shape()

    def make_sent(self) -> StagingBuffer:
        """The buffer of minibatches' indices and settings."""
        sizes, rollout = np.diff(self.bounds), self.rollout
        self.size, self.uneven = int(sizes.max()), bool(sizes.min() < sizes.max())
        rows = self.size * rollout.sequence_length
        shapes: Shapes = {"index": ((rows,), np.int64), "lr": ((), np.float32)}
        shapes["limits"] = (len(CLIPS),), np.float32
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
        return [*super().changed(), self.epoch_kl_sum, self.going, self.made]

    def capture(self) -> None:
        """Records minibatches, as many as make an epoch."""
        left = self.rollout.minibatches
        while left:
            count = at_once(left, self.most)
            self.capture_all("learn", self.sent, self.make_minibatches_work(count), count)
            left -= count

    def learn(self, first: int, last: int, step: int) -> bool:
        agent, count, config = self.agent, self.rollout.minibatches, self.agent.config
        lr, limits = value_at(config.lr, step), [value_at(c, step) for c in self.limits()]
        self.going.fill_(1)
        while first < last:
            part = first % count
            if part == 0:
                shuffle(agent.keys[Purpose.SHUFFLE], agent.count[1], self.rollout.order)
                agent.count[1] += 1
                self.epoch_kl_sum.zero_()
            now = at_once(min(count - part, last - first), self.most)
            self.send_order(part, now, lr, limits)
            self.made.zero_()
            self.launch_graph("learn", self.sent, self.make_minibatches_work(now), now)
            first += now
            if config.minibatch_kl_limit < inf:
                agent.updates += int(self.made)
                if not self.going:
                    return False
                continue
            agent.updates += now
            epoch_ends = config.target_kl and part + now == count
            if epoch_ends and float(self.epoch_kl_sum) > config.epoch_kl_limit:
                return False
        return True

    def limits(self) -> list[Any]:
        """How far ratios and values may move, as the settings say it."""
        return [getattr(self.agent.config, name) or 0.0 for name in CLIPS]

    def send_order(self, part: int, count: int, lr: float, limits: list[float]) -> None:
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
            host[k]["limits"][...] = limits

    def make_minibatches_work(self, count: int) -> Any:
        """The work of so many minibatches as it is recorded."""

        def work() -> None:
            for k in range(count):
                self.update_work(k)

        return work

    def update_work(self, k: int) -> None:
        """Minibatch number k of those that were sent, as it is recorded."""
        sent, config = self.sent.on_device[k], self.agent.config
        [statistics] = self.gradient_of([k])
        limited = config.minibatch_kl_limit < inf
        before = (self.agent.block.clone(), self.sums.clone()) if limited else ()
        self.finish_update(sent, statistics[None], self.shares)
        if limited:
            self.take_back(statistics[KL] <= config.minibatch_kl_limit, *before)
        elif config.target_kl:
            self.epoch_kl_sum.add_(statistics[KL].double() / self.rollout.minibatches)

    def take_back(self, allowed: torch.Tensor, block: torch.Tensor, sums: torch.Tensor) -> None:
        """Undoes a step that target_kl does not allow, or that comes behind such a one."""
        self.going.mul_(allowed)
        self.made.add_(self.going)
        block[PPO_GRAD].zero_()
        for now, before in ((self.agent.block, block), (self.sums, sums)):
            now.copy_(torch.where(self.going > 0, now, before))

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
            sent["limits"],
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
        from tenfold.ops.device.policy_loss import (
            CLIPPED_ALONE,
            LARGER,
            PolicyLossShape,
            head_offsets,
        )

        kind = CLIPPED_ALONE if settings.value_clip_kind == "clipped" else LARGER
        shape = PolicyLossShape(
            tuple(agent.actions.sizes),
            len(agent.actions.low),
            "mask" in self.rows,
            self.uneven,
            settings.normalize_advantage == "minibatch",
            0 if settings.value_clip is None else kind,
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
        sent_clips = zip(CLIPS, sent["limits"], strict=True)
        clips = {name: value for name, value in sent_clips if name in self.clips}
        return batch | {"obs": self.input_on_device(k)} | clips

    def input_on_device(self, k: int) -> Any:
        """The network's input of minibatch number k."""
        sent, phase = self.sent.on_device[k], self.phase.on_device[0]
        rows = {n: phase[n].index_select(0, sent["index"]) for n in INPUTS if n in phase}
        return self.network_input(rows | {"state": sent["state"]})

"""Engines of sac and td3 where environments are tensors: acting, draws and updates on their device.
What an update is, the agent says; which numbers are drawn, as on the host, is a function of their
address."""

import copy
from typing import Any

import numpy as np
import torch

from tenfold.config.schedules import value_at
from tenfold.core.random import Purpose, normal_torch, uniform_torch
from tenfold.core.spaces import DiscreteActions
from tenfold.core.system import Clock
from tenfold.engines.cudagraph import MOST as MOST_UPDATES
from tenfold.engines.cudagraph import CudaGraphCapture, Work, at_once
from tenfold.engines.cudagraph_off_policy import ActorCriticTurns, RecordedOptimiser
from tenfold.engines.plain import BaseEngine, EagerOptimiser
from tenfold.envs.tensor_actions import ActionForm
from tenfold.memory.staging import Shapes, StagingBuffer
from tenfold.memory.tensor_replay import TensorReplay
from tenfold.ops.moments import TensorNorm


class TensorActorCritic(BaseEngine):
    """By eager autograd."""

    description = "rows stay on the environment's device"

    def __init__(self, agent: Any, replay: TensorReplay, envs: Any) -> None:
        device, lanes, reals = agent.device, envs.num_envs, agent.actions.reals
        self.norm = TensorNorm(agent.norm, device) if agent.norm else None
        self.agent = copy.copy(agent)
        if self.norm:
            self.agent.obs_moments = self.norm.moments
        self.replay, self.names = replay, agent.metric_names
        self.optimiser = EagerOptimiser(self.agent)
        self.sums = torch.zeros(len(self.names) + 1, device=device)
        self.form = ActionForm(agent.actions, envs.name, device)
        self.obs = torch.zeros(lanes, replay.obs.shape[-1], device=device)  # acted on next
        self.round_number = torch.zeros((), dtype=torch.int64, device=device)
        self.spread = torch.ones((), device=device)
        self.action = torch.zeros_like(replay.action[0])  # as the memory has them
        self.draw_count = lanes * max(reals, 1)
        self.noise_of_update = agent.update_draws(replay.batch_size)

    def set_lr(self, lr: Any) -> None:
        self.agent.set_lr(lr)

    # running statistics of observations, which are the agent's too

    def load_norm(self) -> None:
        if self.norm:
            self.norm.load()

    def store_norm(self) -> None:
        if self.norm:
            self.norm.store()

    @torch.no_grad()
    def begin(self, obs: torch.Tensor) -> None:
        """Observations to act on next."""
        self.obs.copy_(obs)
        if self.norm:
            self.norm.update(self.obs)

    # acting

    def perform(self, name: str, work: Work) -> None:
        """Does the work of this name."""
        work()

    @torch.no_grad()
    def explore(self, step: int, rounds: int) -> torch.Tensor:
        """Actions for the environments; those of the memory are in `action`. As
        `ActorCriticAgent.explore`."""
        self.round_number.fill_(rounds)
        if step < self.agent.config.learning_starts:
            self.action.copy_(self.random_actions())
        else:
            self.spread.fill_(self.agent.spread(step))
            self.perform("act", self.acting_work)
        return self.form.of_memory(self.action)

    def uniform(self, count: int) -> torch.Tensor:
        counter = self.round_number * count + torch.arange(count, device=self.obs.device)
        return uniform_torch(self.agent.keys[Purpose.ACTION], counter)

    def random_actions(self) -> torch.Tensor:
        actions, u = self.agent.actions, self.uniform(self.draw_count)
        if isinstance(actions, DiscreteActions):
            return (u * actions.n).long()
        return (2 * u - 1).float().view(self.action.shape)

    @torch.no_grad()
    def acting_work(self) -> None:
        agent, lanes, reals = self.agent, len(self.obs), self.agent.actions.reals
        uniform = self.uniform(lanes * (not reals)).view(lanes, int(not reals))
        first: Any = self.round_number * (lanes * reals)
        stream, device = agent.keys[Purpose.NOISE_ACT], self.obs.device
        noise = normal_torch(stream, first, lanes * reals, device).float().view(lanes, reals)
        output = agent.online.policy_output(agent.to_net(self.obs))
        self.action.copy_(agent.sample_action(output, uniform, self.spread * noise))

    # learning

    def noise(self, updates: Any) -> dict[str, torch.Tensor]:
        """What an update draws beside its batch, after so many `updates`: a number, or a tensor
        [] where it is recorded."""
        numbers: dict[str, torch.Tensor] = {}
        for name, (purpose, _, shape) in self.noise_of_update.items():
            size = int(np.prod(shape))
            stream, device = self.agent.keys[purpose], self.obs.device
            normal = normal_torch(stream, updates * size, size, device)
            numbers[name] = normal.float().view(shape)
        return numbers

    def update(self, count: int, step: int, clock: Clock) -> None:
        """`count` gradient updates at environment step `step`."""
        agent, replay = self.agent, self.replay
        clock.start()
        for _ in range(count):
            updates = agent.updates
            batch = replay.sample(updates, replay.oldest, replay.rows) | self.noise(updates)
            clock.lap("sample")
            self.optimiser.begin(updates + 1, value_at(agent.config.lr, step))
            _, (metrics,) = agent.update([(batch,)], self.optimiser)
            agent.updates = updates + 1
            self.sums[: len(metrics)] += metrics
            self.sums[-1] += 1
            clock.lap("update")


class CudaGraphTensorActorCritic(ActorCriticTurns, CudaGraphCapture, TensorActorCritic):
    """By CUDA graphs: up to eight updates with their draws are one launch, acting is another."""

    def __init__(self, agent: Any, replay: TensorReplay, envs: Any) -> None:
        super().__init__(agent, replay, envs)
        self.recorder = RecordedOptimiser(self.agent, self.learning.online)
        whole = dict.fromkeys(("updates", "oldest", "rows"), ((), np.int64))
        real = dict.fromkeys(("before", "lr", *self.update_scalars(1)), ((), np.float32))
        shapes: Shapes = whole | real
        self.sent = StagingBuffer(agent.device, shapes, MOST_UPDATES, depth=2)

    def perform(self, name: str, work: Work) -> None:
        self.launch_alone(name, work)

    def capture(self) -> None:
        """Records acting, and updates of a round for every place in the policy's turn."""
        self.recorded("act", self.acting_work)
        settings, lanes = self.agent.config, len(self.obs)
        for turn in range(self.agent.delay):
            self.turn = turn
            left = settings.usual_updates(lanes)
            while left:
                count = at_once(left)
                self.capture_all(self.update_name(), self.sent, self.work_of(count), count)
                left = 0 if count == MOST_UPDATES else left - count

    def work_of(self, count: int) -> Work:
        """So many updates as they are recorded."""

        def work() -> None:
            for k in range(count):
                self.update_work(k)

        return work

    def update_work(self, k: int) -> None:
        """Update number k of those that were sent."""
        sent = self.sent.on_device[k]
        self.recorder.begin_recorded(sent, (self.turn + k + 1) % self.agent.delay == 0)
        updates = sent["updates"]
        batch = self.replay.sample(updates, sent["oldest"], sent["rows"]) | self.noise(updates)
        _, (metrics,) = self.learning.update([(batch,)], self.recorder)
        self.sums[: len(metrics)].add_(metrics)
        self.sums[-1:].add_(1)

    def update(self, count: int, step: int, clock: Clock) -> None:
        agent, replay, lr = self.agent, self.replay, value_at(self.agent.config.lr, step)
        clock.start()
        while count:
            now, updates = at_once(count), agent.updates
            self.turn = updates % agent.delay
            arrays = self.sent.open()
            for k in range(now):
                numbers = {"updates": updates + k, "before": updates + k, "lr": lr}
                numbers |= {"oldest": replay.oldest, "rows": replay.rows}
                numbers |= self.update_scalars(updates + k + 1)
                for name, number in numbers.items():
                    arrays[k][name][...] = number
            self.launch_graph(self.update_name(), self.sent, self.work_of(now), now)
            agent.updates = updates + now
            count -= now
            clock.lap("update")

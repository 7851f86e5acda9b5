"""The plain engines: updates by eager autograd on an agent's flat buffers, and the means of their
metrics. They are the reference that every other engine is held to (`engines.lockstep`)."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch

from tenfold.config.schedules import value_at
from tenfold.core.protocols import RoundDriver
from tenfold.core.system import Clock
from tenfold.envs.adapter import Environments
from tenfold.memory.replay import Replay
from tenfold.memory.staging import Staging
from tenfold.ops.adam import ADAM_EPS, adam, descend, polyak


def apply_gradient(agent: Any, lr: float) -> torch.Tensor:
    """Clips the gradient in an agent's flat buffer and makes one step of Adam; returns its norm, of
    each member, before it was clipped."""
    agent.updates += 1
    config, flat, grad = agent.config, agent.online.flat, agent.online.flat_grad
    eps, limit = getattr(config, "adam_eps", ADAM_EPS), getattr(config, "clip_norm", None)
    options = (lr, eps, limit, getattr(config, "weight_decay", 0.0))
    return descend(flat, grad, agent.exp_avg, agent.exp_avg_sq, agent.updates, *options)


class EagerOptimiser:
    """Steps of Adam by autograd, in place, on the flat buffers of an agent that learns off-policy:
    what an agent's `update` is written against. `engines.compiled.TracedOptimiser` does the same
    with tensors in place of numbers, and new buffers in place of changed ones; `RecordedOptimiser`
    of `engines.cudagraph_off_policy` with numbers that a CUDA graph reads anew each time.
    `CudaGraphDQN` uses none of the three: its step is `CudaGraphCapture.finish_update`."""

    def __init__(self, agent: Any) -> None:
        self.agent, self.network = agent, agent.online

    def begin(self, number: int, lr: float) -> None:
        """Before update `number`, counted from 1."""
        self.number, self.lr, self.tau = number, lr, self.agent.target_share(number)
        self.policy_due = number % self.agent.delay == 0
        self.agent.online.flat_grad.zero_()

    def descend(
        self, loss: Callable[..., Any], minibatches: Iterable[tuple[Any, ...]]
    ) -> tuple[list[list[torch.Tensor]], torch.Tensor]:
        """One step for the whole network, by the sum of the minibatches' losses. Returns what
        `loss` gave for each, and the gradient's norm before it was clipped."""
        agent, results = self.agent, []
        for inputs in minibatches:
            value, *more = loss(*inputs)
            value.backward()
            results.append([value.detach(), *more])
        flat, grad, config = agent.online.flat, agent.online.flat_grad, agent.config
        options = (self.lr, config.adam_eps, config.clip_norm, config.weight_decay)
        norm = descend(flat, grad, agent.exp_avg, agent.exp_avg_sq, self.number, *options)
        return results, norm

    def descend_networks(
        self, loss: Callable[..., Any], batch: Any, names: tuple[str, ...], every: int = 1
    ) -> list[torch.Tensor]:
        """A step for these parts of the networks, all others as they are; one in `every` updates
        makes it. Returns what `loss` gave."""
        value, *more = loss(batch)
        for buffers in gradients(value, self.agent, self.network, names):
            self.step(buffers, every)
        return [value.detach(), *(result.detach() for result in more)]

    def step(self, buffers: list[torch.Tensor], every: int) -> None:
        """A step of Adam on parameters, gradient and moments that one in `every` updates moves."""
        flat, grad, mean, square = buffers
        eps, decay = self.agent.config.adam_eps, self.agent.config.weight_decay
        adam(flat, grad, mean, square, self.number // every, self.lr, eps, decay)

    def follow(self) -> None:
        """The target moves towards what was learned, by the share `tau`."""
        if self.tau:
            agent = self.agent
            polyak(agent.target.flat, agent.online.flat[..., agent.target_slice], self.tau)

    def gradient_norm(self) -> torch.Tensor:
        """Of all parts together."""
        return self.agent.online.flat_grad.norm()


@torch.no_grad()
def gradients(
    loss: torch.Tensor, agent: Any, network: Any, names: tuple[str, ...]
) -> list[list[torch.Tensor]]:
    """The loss's gradient by these parts of a network, which lies on the agent's buffers, into its
    place; and what Adam takes for each part: parameters, gradient and moments."""
    online, modules = agent.online, {name: getattr(network, name) for name in names}
    parameters = [p for module in modules.values() for p in module.parameters()]
    by_parameter = iter(torch.autograd.grad(loss, parameters))
    buffers, steps = (online.flat, online.flat_grad, agent.exp_avg, agent.exp_avg_sq), []
    for name, module in modules.items():
        lead = getattr(module, "members", None) or 1  # networks one after another
        rows = [next(by_parameter).reshape(lead, -1) for _ in module.parameters()]
        steps.append([buffer[online.places[name]] for buffer in buffers])
        steps[-1][1].copy_(torch.cat(rows, -1).flatten())
    return steps


class BaseEngine:
    """What all engines share, fused and resident ones too: statistics and their state, and methods
    that do nothing until an engine overrides them."""

    description = ""  # what is special about it, for the person who watches
    whole_batches = False  # whether micro-batches are learned from as one
    rounds_by: RoundDriver = "learner"
    names: tuple[str, ...]  # of the statistics
    notices: Any = ()  # a list of sentences for the person, where an engine has any
    agent: Any
    sums: Any  # of the statistics, and the number of updates

    @classmethod
    def why_not(cls, agent: Any, run: Any = None) -> str:
        """What keeps it from an agent, in words; empty if nothing does."""
        return ""

    def prepare(self, run: Any) -> None:
        """Takes what it needs to know of a run."""

    def warm_up(self) -> None:
        """Compiles kernels; no side effects."""

    def settle(self) -> None:
        """Before the state is saved: copies come back from the device."""

    def set_lr(self, lr: Any) -> None:
        """The agent's settings say it."""

    def statistics(self) -> dict[str, float]:
        """Means since the last call."""
        *sums, count = self.sums.tolist()
        self.sums[:] = 0
        if not count:
            return {}
        return {name: total / count for name, total in zip(self.names, sums, strict=True)}

    def state(self) -> dict[str, torch.Tensor]:
        return {"sums": torch.as_tensor(self.sums)}

    def load_state(self, state: dict[str, torch.Tensor]) -> None:
        self.sums[:] = fitted_sums(state["sums"], self.sums.shape)


def fitted_sums(saved: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Sums of statistics as an engine keeps them. Agents that learn one after another have a row
    each, those that learn in one call the mean of these rows."""
    saved = torch.as_tensor(saved)
    return (saved.mean(0) if saved.ndim > len(shape) else saved).expand(*shape)


SAMPLED = ("obs", "action", "reward", "discount", "next_obs", "weight")


class OffPolicyEngine(BaseEngine):
    """Eager autograd, on any network and any device: K due updates as one call, each from a batch
    sampled after the previous one's priorities were written. What an update is, the agent says
    (`update`)."""

    def __init__(self, agent: Any, replay: Replay, envs: Environments) -> None:
        self.agent, self.replay, self.envs = agent, replay, envs
        self.names = agent.metric_names
        self.noise = agent.make_noise(envs)
        # steps and episodes stored since updates were last due, where they are due by episodes
        self.since = np.zeros(2, np.int64)
        # what the network acts on, where it is not the environments' observations
        self.stacked_obs: np.ndarray | None = None
        # they share the batch's memory: nothing is copied on the CPU
        self.batch_tensors: dict[str, torch.Tensor] = {
            name: torch.from_numpy(getattr(replay.batch, name)) for name in SAMPLED
        }
        if replay.batch.next_mask.shape[-1]:
            self.batch_tensors["next_mask"] = torch.from_numpy(replay.batch.next_mask)
        self.batch_tensors |= agent.draw_for(self.batch_items)
        self.optimiser = EagerOptimiser(agent)
        self.staging = Staging(agent.device)
        # of the statistics, and the number of updates; they stay on the device until they are
        # logged
        self.sums = torch.zeros(len(self.names) + 1, device=agent.device)

    @property
    def batch_items(self) -> int:
        """Of a batch."""
        return self.replay.batch.reward.shape[-1]

    def look(self, stacked_obs: np.ndarray) -> None:
        """Acts on these arrays from now on: the last frames instead of the environments'
        observations."""
        self.stacked_obs = stacked_obs

    @property
    def acted_on(self) -> np.ndarray:
        """What the network acts on."""
        return self.envs.obs if self.stacked_obs is None else self.stacked_obs

    def explore(self, step: int, rounds: int) -> np.ndarray:
        """Actions for the environments' current observations."""
        masks = () if self.envs.mask is None else (self.envs.mask,)
        return self.with_noise(self.agent.explore(self.acted_on, step, rounds, *masks), rounds)

    def with_noise(self, action: np.ndarray, rounds: int) -> np.ndarray:
        """The actions of a round, and what is added to them."""
        return self.noise.add(action, rounds, self.ended) if self.noise else action

    @property
    def ended(self) -> np.ndarray:
        """Whose episode ended in the last step."""
        return self.envs.terminated | self.envs.truncated

    def update(self, count: int, step: int, clock: Clock) -> None:
        """`count` gradient updates at environment step `step`."""
        clock.start()
        for _ in range(count):
            self.update_once(step, clock)

    def update_once(self, step: int, clock: Clock) -> None:
        self.finish(self.launch(step, clock))
        clock.lap("update")

    def launch(self, step: int, clock: Clock) -> torch.Tensor:
        """An update, as far as nobody has to wait for the device; returns every item's TD error."""
        agent, number = self.agent, self.agent.updates + 1
        self.sample(step, clock)
        inputs = agent.minibatches(self.batch_tensors, self.staging.send, self.whole_batches)
        errors, metrics = self.update_from(inputs, number, value_at(agent.config.lr, step))
        agent.updates = number
        for row in metrics:
            self.sums[: len(row)] += row
        self.sums[-1] += 1
        return errors

    def update_from(
        self, inputs: Iterable[tuple[Any, ...]], number: int, lr: float
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Update `number` by these minibatches, as the agent says: every item's TD error, and the
        metrics."""
        self.optimiser.begin(number, lr)
        return self.agent.update(inputs, self.optimiser)

    def sample(self, step: int, clock: Clock) -> None:
        """The next batch, and what is drawn beside it."""
        replay = self.replay
        replay.sample(value_at(replay.priorities.beta, step) if replay.priorities else 1.0)
        self.batch_tensors |= self.agent.draw_for(self.batch_items)
        clock.lap("sample")

    def finish(self, errors: torch.Tensor) -> None:
        if self.replay.priorities:
            self.replay.prioritise(errors.cpu().numpy())

    def state(self) -> dict[str, torch.Tensor]:
        arrays = self.noise.state(self.ended) if self.noise else {}
        return super().state() | {name: torch.from_numpy(array) for name, array in arrays.items()}

    def load_state(self, state: dict[str, torch.Tensor]) -> None:
        super().load_state(state)
        if self.noise:
            self.noise.load_state(state)

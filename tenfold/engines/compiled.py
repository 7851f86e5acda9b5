"""The compiled engines: an agent's update, forward passes, losses, gradients, clipping, Adam and
target networks, as one pure function on the flat buffers through torch.compile. Opt-in: compiling
takes long.

It traces the very function that the plain engine runs, with an optimiser that makes new tensors
instead of changing old ones. Numbers that change from update to update (learning rate, bias
corrections, how far the target moves) are tensors, so that nothing is compiled twice. All else
stays as in the plain engine.
"""

import shutil
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import Any

import torch
from torch import nn
from torch.func import functional_call, grad_and_value

from tenfold.engines.choose import why_not_memory
from tenfold.engines.plain import OffPolicyEngine
from tenfold.ops.adam import BETA1, BETA2

WORDS = "the update as one graph through torch.compile"


def why_not_traced(agent: Any) -> str:
    """What keeps torch.compile from an agent, in words."""
    if not shutil.which("g++"):
        return "it needs a C++ compiler, and g++ is not installed"
    if agent.device.type != "cpu":
        return f"it runs on the CPU, and the networks are on {agent.device.type}"
    if agent.layout.graph:
        return "every batch of graphs has another number of nodes, and would be compiled anew"
    return why_not_memory(agent)


def compiled(update: FunctionType) -> Callable[..., Any]:
    """`update` through torch.compile. Its code is a copy: what torch.compile keeps is kept by code,
    and of one code no more than eight times, however many engines a process has."""
    parts = update.__code__.replace(), update.__globals__, update.__name__
    copied = FunctionType(*parts, update.__defaults__, update.__closure__)
    return torch.compile(copied, fullgraph=True, dynamic=False)


class Losses(nn.Module):
    """An agent's networks as a module whose parameters can be given while a loss is computed."""

    def __init__(self, agent: Any) -> None:
        super().__init__()
        self.online, self.target = agent.online, getattr(agent, "target", None)
        self.views = [views_of(self.online, "online")]
        if self.target is not None:
            self.views.append(views_of(self.target, "target"))

    def forward(self, loss: Callable[..., Any], *inputs: Any) -> Any:
        return loss(*inputs)


def views_of(network: Any, prefix: str) -> Callable[[torch.Tensor], dict[str, torch.Tensor]]:
    """How a flat buffer becomes the parameters of such a network, by names behind `prefix`."""
    places, used = {}, 0
    for name, parameter in network.named_parameters():
        places[f"{prefix}.{name}"] = (used, used + parameter.numel(), parameter.shape)
        used += parameter.numel()
    return lambda flat: {name: flat[a:b].view(shape) for name, (a, b, shape) in places.items()}


def adam_scalars(lr: float, step: int) -> torch.Tensor:
    """What changes in Adam from step to step: learning rate and bias corrections."""
    return torch.tensor([lr, 1 - BETA1**step, (1 - BETA2**step) ** 0.5])


class TracedOptimiser:
    """As `engines.plain.EagerOptimiser`, with new buffers in place of changed ones."""

    def __init__(
        self, agent: Any, module: Losses, buffers: list[torch.Tensor], scalars: Any, tau: Any
    ) -> None:
        """`module`: of the agent's networks; `buffers`: parameters, moments, the target's
        parameters if there is one; `scalars`: of Adam, for parts that make a step in every update
        and for those that make one rarer."""
        self.agent, self.module, self.scalars, self.tau = agent, module, scalars, tau
        self.flat, self.mean, self.square, *targets = buffers
        self.target = targets[0] if targets else None
        self.gradient = torch.zeros_like(self.flat)
        self.policy_due = True

    @property
    def buffers(self) -> tuple[torch.Tensor, ...]:
        targets = () if self.target is None else (self.target,)
        return (self.flat, self.mean, self.square, *targets, self.gradient)

    def differentiate(self, loss: Callable[..., Any], inputs: tuple[Any, ...]) -> tuple[Any, Any]:
        """The gradient by all parameters, and what `loss` gave."""
        online, *others = self.module.views
        of_target = others[0](self.target) if others and self.target is not None else {}

        def value_of(flat: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
            value, *more = functional_call(self.module, online(flat) | of_target, (loss, *inputs))
            return value, more

        gradient, (value, more) = grad_and_value(value_of, has_aux=True)(self.flat)
        return gradient, [value, *more]

    def adam(self, columns: slice, gradient: torch.Tensor, scalars: torch.Tensor) -> None:
        """A step for the parameters at `columns`."""
        flat, mean, square = (b[columns] for b in (self.flat, self.mean, self.square))
        mean = torch.lerp(mean, gradient, 1 - BETA1)
        square = square * BETA2 + gradient * gradient * (1 - BETA2)
        root = square.sqrt() / scalars[2] + self.agent.config.adam_eps
        if decay := self.agent.config.weight_decay:
            flat = flat * (1 - scalars[0] * decay)
        flat = flat - scalars[0] / scalars[1] * mean / root
        stepped = {"flat": flat, "mean": mean, "square": square, "gradient": gradient}
        for name, new in stepped.items():
            old = getattr(self, name)
            stop = len(old) if columns.stop is None else columns.stop
            setattr(self, name, torch.cat([old[: columns.start or 0], new, old[stop:]]))

    def descend(
        self, loss: Callable[..., Any], minibatches: Iterable[tuple[Any, ...]]
    ) -> tuple[list[list[torch.Tensor]], torch.Tensor]:
        (inputs,) = minibatches
        gradient, results = self.differentiate(loss, inputs)
        norm, limit = gradient.norm(), self.agent.config.clip_norm
        if limit:
            gradient = gradient * (limit / (norm + 1e-6)).clamp(max=1.0)
        self.adam(slice(None), gradient, self.scalars[0])
        return [results], norm

    def descend_networks(
        self, loss: Callable[..., Any], batch: Any, names: tuple[str, ...], every: int = 1
    ) -> list[torch.Tensor]:
        gradient, results = self.differentiate(loss, (batch,))
        places = self.agent.online.places
        for name in names:
            self.adam(places[name], gradient[places[name]], self.scalars[int(every > 1)])
        return results

    def follow(self) -> None:
        assert self.target is not None
        self.target = torch.lerp(self.target, self.flat[self.agent.target_slice], self.tau)

    def gradient_norm(self) -> torch.Tensor:
        return self.gradient.norm()


class CompiledOffPolicy(OffPolicyEngine):
    """As the plain engine, but an update is one pure function; where the policy learns rarer than
    the critics, there are two of them."""

    description, whole_batches = WORDS, True

    @classmethod
    def why_not(cls, agent: Any, run: Any = None) -> str:
        changing = "observations are normalised by statistics that change between updates"
        return why_not_traced(agent) or (changing if agent.norm else "")

    def __init__(self, *rest: Any) -> None:
        super().__init__(*rest)
        self.traced = {
            due: compiled(self.pure_update(due)) for due in {True, self.agent.delay == 1}
        }

    def pure_update(self, policy_due: bool) -> Callable[..., Any]:
        """(buffers, scalars, share of the target, minibatches) -> (new buffers and the gradient,
        TD errors, metrics)."""
        agent, module = self.agent, Losses(self.agent)

        def update(
            buffers: list[torch.Tensor], scalars: torch.Tensor, tau: torch.Tensor, inputs: Any
        ) -> Any:
            optimiser = TracedOptimiser(agent, module, buffers, scalars, tau)
            optimiser.policy_due = policy_due
            errors, metrics = agent.update(inputs, optimiser)
            return optimiser.buffers, errors, metrics

        return update

    def buffers(self) -> list[torch.Tensor]:
        agent = self.agent
        return [agent.online.flat, agent.exp_avg, agent.exp_avg_sq, agent.target.flat]

    def warm_up(self) -> None:
        """What the first calls return is thrown away."""
        for due in self.traced:
            inputs = self.agent.minibatches(self.batch_tensors, self.staging.send, True)
            self.call(inputs, 1, 1e-3, due)

    def call(self, inputs: Iterable[Any], number: int, lr: float, policy_due: bool) -> Any:
        agent = self.agent
        steps = number, max(number // agent.delay, 1)
        scalars = torch.stack([adam_scalars(lr, step) for step in steps])
        tau = torch.tensor(float(agent.target_share(number)))
        return self.traced[policy_due](self.buffers(), scalars, tau, list(inputs))

    def update_from(
        self, inputs: Iterable[tuple[Any, ...]], number: int, lr: float
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        new, errors, metrics = self.call(inputs, number, lr, number % self.agent.delay == 0)
        for old, value in zip((*self.buffers(), self.agent.online.flat_grad), new, strict=True):
            old.copy_(value)
        return errors, metrics


class Compiled:
    """Mixin: list it before a plain engine that learns from rollouts. The class's `examples` are
    minibatches of every size."""

    agent: Any
    examples: Callable[[], Iterable[Any]]
    forbids: Callable[[torch.Tensor], bool]  # a step, by the loss's statistics
    description, whole_batches = WORDS, True

    def __init__(self, agent: Any, memory: Any, envs: Any) -> None:
        super().__init__(agent, memory, envs)  # type: ignore[call-arg]
        unchecked = self.unchecked_agent()
        module = Losses(unchecked)

        def step(buffers: list[torch.Tensor], scalars: torch.Tensor, batch: Any) -> Any:
            optimiser = TracedOptimiser(unchecked, module, buffers, scalars, None)
            ((_, statistics),), norm = optimiser.descend(unchecked.loss, [(batch,)])
            return optimiser.buffers, norm, statistics

        self.step = compiled(step)

    @classmethod
    def why_not(cls, agent: Any, run: Any = None) -> str:
        return why_not_traced(agent)

    def unchecked_agent(self) -> Any:
        """The agent whose loss is compiled, where what it checks has been checked already."""
        return self.agent

    def warm_up(self) -> None:
        """What the first calls return is thrown away."""
        for batch in self.examples():
            self.call(1e-3, 1, batch)

    def call(self, lr: float, number: int, batch: Any) -> Any:
        agent = self.agent
        buffers = [agent.online.flat, agent.exp_avg, agent.exp_avg_sq]
        return self.step(buffers, adam_scalars(lr, number)[None], batch)

    def descend(self, lr: float, batch: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
        agent = self.agent
        new, norm, statistics = self.call(lr, agent.updates + 1, batch)
        if self.forbids(statistics):
            agent.online.flat_grad.zero_()
            return statistics, None
        agent.updates += 1
        buffers = (agent.online.flat, agent.exp_avg, agent.exp_avg_sq, agent.online.flat_grad)
        for buffer, value in zip(buffers, new, strict=True):
            buffer.copy_(value)
        return statistics, norm

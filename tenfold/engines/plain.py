"""What the plain engines of all algorithms share: an update by eager autograd on an agent's flat
buffers, and the means of what updates tell."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch

from tenfold.ops.adam import ADAM_EPS, adam, descend, polyak


def apply_gradient(agent: Any, lr: float) -> torch.Tensor:
    """Clips the gradient in an agent's flat buffer and makes one step of Adam; returns its norm, of
    each member, before it was clipped."""
    agent.updates += 1
    config, online, moments = agent.config, agent.online, (agent.mean, agent.square)
    eps, limit = getattr(config, "adam_eps", ADAM_EPS), getattr(config, "clip_norm", None)
    return descend(online.flat, online.flat_grad, *moments, agent.updates, lr, eps, limit)


class EagerOptimiser:
    """Steps of Adam by autograd, in place, on the flat buffers of an agent that learns off-policy:
    what an agent's `update` is written against. `engines.compiled.TracedOptimiser` does the same
    with tensors in place of numbers, and new buffers in place of changed ones."""

    def __init__(self, agent: Any) -> None:
        self.agent = agent

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
        buffers = agent.online.flat, agent.online.flat_grad, agent.mean, agent.square
        config = agent.config
        norm = descend(*buffers, self.number, self.lr, config.adam_eps, config.clip_norm)
        return results, norm

    def descend_parts(
        self, loss: Callable[..., Any], batch: Any, parts: tuple[str, ...], every: int = 1
    ) -> list[torch.Tensor]:
        """A step for these parts of the networks, all others as they are; one in `every` updates
        makes it. Returns what `loss` gave."""
        agent, number, eps = self.agent, self.number // every, self.agent.config.adam_eps
        value, *more = loss(batch)
        for flat, grad, mean, square in gradients(value, agent, agent.online, parts):
            adam(flat, grad, mean, square, number, self.lr, eps)
        return [value.detach(), *(part.detach() for part in more)]

    def follow(self) -> None:
        """The target moves towards what was learned, by the share `tau`."""
        if self.tau:
            agent = self.agent
            polyak(agent.target.flat, agent.online.flat[..., agent.followed], self.tau)

    def gradient_norm(self) -> torch.Tensor:
        """Of all parts together."""
        return self.agent.online.flat_grad.norm()


@torch.no_grad()
def gradients(
    loss: torch.Tensor, agent: Any, network: Any, parts: tuple[str, ...]
) -> list[list[torch.Tensor]]:
    """The loss's gradient by these parts of a network, which lies on the agent's buffers, into its
    place; and what Adam takes for each part: parameters, gradient and moments."""
    online, modules = agent.online, {name: getattr(network, name) for name in parts}
    parameters = [p for module in modules.values() for p in module.parameters()]
    by_parameter = iter(torch.autograd.grad(loss, parameters))
    buffers, steps = (online.flat, online.flat_grad, agent.mean, agent.square), []
    for name, module in modules.items():
        lead = getattr(module, "members", None) or 1  # networks one after another
        rows = [next(by_parameter).reshape(lead, -1) for _ in module.parameters()]
        steps.append([buffer[online.places[name]] for buffer in buffers])
        steps[-1][1].copy_(torch.cat(rows, -1).flatten())
    return steps


class AutogradEngine:
    """The gradient of the agent's loss by autograd. Any network, any device."""

    words = ""  # what is special about it, for the person who watches
    whole_batches = False  # whether micro-batches are learned from as one
    whole_rounds = False  # whether it has `run`, which does everything between two looks at a run
    by_stages = True  # whether what a round is made of can be had one by one
    names: tuple[str, ...]  # of the statistics
    agent: Any
    sums: Any  # of the statistics, and the number of updates

    @classmethod
    def why_not(cls, agent: Any, run: Any = None) -> str:
        """What keeps it from an agent, in words; empty if nothing does."""
        return ""

    def prepare(self, run: Any) -> None:
        """Takes what it needs to know of a run."""

    def warm_up(self) -> None:
        """Compiles what there is to compile, and changes nothing."""

    def settle(self) -> None:
        """Before the state is saved: what is held elsewhere comes back."""

    def set_lr(self, lr: Any) -> None:
        """The agent's settings say it."""

    def descend(
        self, lr: float, parts: Iterable[tuple[Any, ...]]
    ) -> tuple[list[list[torch.Tensor]], torch.Tensor]:
        """One update by the gradient of the losses' sum; `parts` are what `agent.loss` is given.
        Returns what that said of each part, and the gradient's norm."""
        self.agent.online.flat_grad.zero_()
        said = []
        for inputs in parts:
            loss, *more = self.agent.loss(*inputs)
            loss.backward()
            said.append([loss.detach(), *more])
        return said, apply_gradient(self.agent, lr)

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


NAMES = ("obs", "final_obs", "reward", "terminated", "truncated", "skipped")


@dataclass(frozen=True)
class Lanes:
    """Views of an adapter's arrays, one row a lane."""

    obs: np.ndarray
    final_obs: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    skipped: np.ndarray
    mask: np.ndarray | None = None
    final_mask: np.ndarray | None = None

    @property
    def num_envs(self) -> int:
        return len(self.obs)

    @classmethod
    def showing(cls, obs: np.ndarray) -> Self:
        """Lanes with these observations in which nothing has happened."""
        no = np.zeros(len(obs), np.bool_)
        return cls(obs, obs, np.zeros(len(obs)), no, no, no)


def split_lanes(envs: Any, parts: int) -> list[Any]:
    """The lanes of environments in equal parts, such as those of each agent of a world."""
    names = NAMES if envs.mask is None else (*NAMES, "mask", "final_mask")
    arrays = zip(*(np.split(getattr(envs, name), parts) for name in names), strict=True)
    return [Lanes(*part) for part in arrays]

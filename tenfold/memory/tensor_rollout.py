"""A rollout of environments of tensors: [T, B] on their device, and its advantages there.

`RolloutBuffer` is its counterpart on the host, and says what the rows mean. Without the last
observation of an episode that was cut, the value of the one acted on last stands for it.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tenfold.core.pairs import pair
from tenfold.core.spaces import PolicyActions
from tenfold.memory.rollout import ACTED
from tenfold.ops.advantages import finish_examples, finish_rollout_reference
from tenfold.ops.returns import gae

if TYPE_CHECKING:  # types alone
    from tenfold.algorithms.ppo_settings import PPO
    from tenfold.envs.tensors import TensorStep

FLOATS = ("log_p", "value", "reward", "discount", "boundary", "next_value", "advantage", "target")


class TensorRollout:
    """T steps of B worlds."""

    hidden_size, sequence_length = 0, 1  # as of `RolloutBuffer`: every row is learned from alone

    def __init__(
        self, config: "PPO", size: int, actions: PolicyActions, num_envs: int, device: torch.device
    ) -> None:
        """`size` of an observation."""
        lead = t, b = config.horizon, num_envs
        self.obs = torch.zeros(*lead, size, device=device)
        self.chosen = torch.zeros(*lead, len(actions.sizes), dtype=torch.int64, device=device)
        self.real = torch.zeros(*lead, len(actions.low), device=device)
        numbers = torch.zeros(len(FLOATS), *lead, device=device).unbind()
        self.log_p, self.value, self.reward, self.discount, self.boundary = numbers[:5]
        self.next_value, self.advantage, self.target = numbers[5:]
        self.weight = torch.ones(*lead, device=device)
        self.mask = torch.zeros(*lead, 0, dtype=torch.bool, device=device)
        self.start_states = torch.zeros(*lead, 0)
        self.count = 0  # rows that are there
        self.order = np.zeros(t * b, np.int64)  # in which an epoch learns from the rows
        self.bounds = np.array(config.minibatch_bounds(t * b, 1))  # of its minibatches
        self.minibatches = len(self.bounds) - 1
        self.gamma, self.lam = config.gamma, config.lam
        self.scale, self.normalize = config.reward_scale, config.normalize_advantage is True

    @property
    def bytes(self) -> int:
        tensors = (value for value in vars(self).values() if isinstance(value, torch.Tensor))
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    @property
    def horizon(self) -> int:
        return len(self.obs)

    def rows_of(self, numbers: np.ndarray) -> np.ndarray:
        """The indices of rows: every row is a sequence."""
        return numbers

    def act(self, rows: torch.Tensor, acted: tuple[torch.Tensor, ...]) -> None:
        """What was acted on in the current row, and how."""
        self.obs[self.count] = rows
        for name, value in zip(ACTED, acted, strict=True):
            getattr(self, name)[self.count] = value

    def add(self, step: "TensorStep", final_value: torch.Tensor | None) -> None:
        """What the step of the current row brought; `final_value` [B] of the last observations of
        episodes that ended, None where these are missing."""
        t = self.count
        self.reward[t] = step.reward * self.scale
        self.discount[t] = self.gamma * (~step.terminated).float()
        self.boundary[t] = (step.terminated | step.truncated).float()
        self.next_value[t] = self.value[t] if final_value is None else final_value
        self.count += 1

    def finish(self, last_value: torch.Tensor) -> None:
        """Advantages and targets, given the values of the observations acted on next."""
        finish_tensors(
            self.reward,
            self.discount,
            self.value,
            self.next_value,
            self.boundary,
            self.weight,
            last_value,
            self.lam,
            self.normalize,
            self.advantage,
            self.target,
        )
        self.count = 0


def tensor_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for example in finish_examples(rng, dtype):
        values = list(example)
        values[5] = np.ones_like(values[5])  # every row counts
        yield tuple(torch.from_numpy(v) if isinstance(v, np.ndarray) else v for v in values)


def finish_on_host(*inputs):
    return finish_rollout_reference(
        *(v.numpy().copy() if isinstance(v, torch.Tensor) else v for v in inputs)
    )


@pair(finish_on_host, tensor_examples, rtol=1e-4, atol=1e-4)
def finish_tensors(
    reward: torch.Tensor,
    discount: torch.Tensor,
    value: torch.Tensor,
    next_value: torch.Tensor,
    boundary: torch.Tensor,
    weight: torch.Tensor,
    last_value: torch.Tensor,
    lam: float,
    normalize: bool,
    advantage: torch.Tensor,
    target: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`finish_rollout` where every row counts, on any device and without waiting for it."""
    follow = torch.cat([value[1:], last_value[None]])
    next_value.copy_(torch.where(boundary > 0, next_value, follow))
    advantage.copy_(gae(reward, discount, value, next_value, boundary, lam))
    torch.add(advantage, value, out=target)
    if normalize:
        centred = advantage.double() - advantage.double().mean()
        advantage.copy_(centred / (centred.square().mean().sqrt() + 1e-8))
    return next_value, advantage, target

"""What the agents of all algorithms share: parameters and Adam's moments in flat buffers, the count
of updates, and what of it is published, saved and loaded."""

import copy
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import torch

from tenfold.core.errors import UserError
from tenfold.core.random import Purpose, key
from tenfold.core.spaces import ObsLayout

Tensors = dict[str, torch.Tensor]
MASK = "action_mask"  # the key of a Dict observation that holds its mask


class FlatAgent:
    """A subclass makes the network `online`, says how it acts and what its loss is."""

    frames, reads_masks, member, members = 1, False, 0, 1
    actor_bits: ClassVar[int] = 0  # before an actor's number in the address of its draws
    norm: Any = None  # running statistics of observations, where they are normalised
    config: Any
    online: Any
    mean: torch.Tensor
    square: torch.Tensor
    count: np.ndarray  # gradient updates, and what else an algorithm counts
    seed: int
    keys: dict[Purpose, Any]

    @property
    def updates(self) -> int:
        return int(self.count[0])

    @updates.setter
    def updates(self, count: int) -> None:
        self.count[: self.members] = count  # all agents of a world learn at once

    def set_lr(self, lr: Any) -> None:
        self.config = replace(self.config, lr=lr)

    def exploring(self, step: int) -> dict[str, float]:
        """What sets the exploration at this step, for the metrics."""
        return {}

    def for_actor(self, actor: int) -> Self:
        """The same networks, exploring by the draws of one of several actors."""
        own, address = copy.copy(self), self.member + (actor << self.actor_bits)
        drawn = (Purpose.COIN, Purpose.ACTION, Purpose.NOISE_ACT)
        own.keys = self.keys | {purpose: key(self.seed, purpose, address) for purpose in drawn}
        return own

    def published(self) -> np.ndarray:
        """What actors elsewhere act by, as one float32 array: on the CPU the parameters
        themselves."""
        return self.online.flat.detach().cpu().numpy()

    def adopt(self, published: np.ndarray) -> None:
        """Acts by what another process published, which was read into this agent's own
        `published()`."""

    def policy_state(self) -> Tensors:
        """What acting needs."""
        return {"online": self.online.flat}

    def state(self) -> Tensors:
        """Everything."""
        moments = {"mean": self.mean, "square": self.square, "updates": torch.tensor(self.updates)}
        return self.policy_state() | moments

    def load_policy(self, state: Tensors) -> None:
        """What acting needs, of a checkpoint that may hold more."""
        self.load(self.policy_state(), state)

    def load_state(self, state: Tensors) -> None:
        self.load(self.state(), state)
        self.updates = int(state["updates"])

    def load(self, own: Tensors, state: Tensors) -> None:
        """The tensors of a state into one's own."""
        for name, value in own.items():
            found = tuple(state[name].shape) if name in state else None
            if found != tuple(value.shape):
                raise UserError(
                    f"The saved {name} has shape {found}, and this agent's {tuple(value.shape)}."
                )
            value.copy_(state[name])


def numpy_of(value: Any) -> Any:
    """Tensors as arrays, all else as it is."""
    return value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else value


def mask_rows(
    layout: ObsLayout, options: int, obs: Any, mask: Any, batch: tuple[int, ...]
) -> np.ndarray | None:
    """The mask [B, options] that was given, or else that of a Dict observation. `batch` is (B,), or
    () for one observation alone."""
    if mask is None and MASK not in layout.keys:
        first = obs[0] if isinstance(obs, list) and obs else obs
        if isinstance(first, dict) and MASK in first:
            mask = np.stack([one[MASK] for one in obs]) if isinstance(obs, list) else obs[MASK]
    if mask is None:
        return None
    allowed, wanted = np.asarray(mask, np.bool_).reshape(*batch, -1), (*batch, options)
    if allowed.shape != wanted:
        raise UserError(f"The action mask has shape {allowed.shape}; it must be {wanted}.")
    return allowed if batch else allowed[None]

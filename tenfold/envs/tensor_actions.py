"""Actions as environments of tensors take them, of what an agent's networks say: as `for_env` of
`core.spaces`, on any device and without waiting for it."""

from typing import Any

import torch
from gymnasium import spaces

from tenfold.core.errors import EnvironmentFault
from tenfold.core.spaces import BoundedActions, PolicyActions


class ActionForm:
    """How actions of one space are put together."""

    def __init__(self, actions: Any, name: str, device: torch.device, squash: bool = False) -> None:
        """`squash`: numbers of a policy go through tanh."""
        self.actions, self.squash = actions, squash
        self.starts: Any = getattr(actions, "start", 0)
        if isinstance(actions, PolicyActions):
            if actions.children:
                raise EnvironmentFault(
                    f"{name} has actions of type {type(actions.space).__name__}, and environments "
                    "of tensors take one tensor: make them a Box, Discrete or MultiDiscrete."
                )
            self.starts = torch.tensor(actions.starts, device=device)
        space = getattr(actions, "space", None)
        self.shape = space.shape if space is not None else ()
        if isinstance(space, spaces.Box):
            self.low, self.high = (
                torch.tensor(list(bound), dtype=torch.float64, device=device)
                for bound in (actions.low, actions.high)
            )
            self.dtype = torch.from_numpy(space.low[..., None][:0]).dtype

    def of_policy(self, discrete: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        """Of components [B, C] or numbers [B, D], as a policy draws them."""
        if self.actions.sizes:
            discrete = discrete + self.starts
            one = isinstance(self.actions.space, spaces.Discrete)
            return discrete[:, 0] if one else discrete.reshape(-1, *self.shape)
        if self.squash:
            real = self.scaled(real.double().tanh())
        return real.double().clamp(self.low, self.high).to(self.dtype).reshape(-1, *self.shape)

    def of_memory(self, action: torch.Tensor) -> torch.Tensor:
        """Of options [B], or numbers [B, D] from -1 to 1, as a replay memory has them."""
        if not isinstance(self.actions, BoundedActions):
            return action + self.starts
        scaled = self.scaled(action.double()).clamp(self.low, self.high)
        return scaled.to(self.dtype).reshape(-1, *self.shape)

    def scaled(self, share: torch.Tensor) -> torch.Tensor:
        return self.low + (self.high - self.low) * 0.5 * (share + 1)

"""All parameters of a module as views of ONE contiguous buffer, all gradients of another.

The optimiser's step, the target's copy, clipping, publishing and saving are then each one operation
on one array. With members the buffers are [M, P]: each member's parameters are one contiguous row.
"""

import copy
import warnings
from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import nn


class FlatModule(nn.Module):
    """A module whose parameters live in `flat` and whose gradients live in `flat_grad`.

    Call `flatten()` once after construction. Moving, converting, copying and loading keep the
    property; whoever replaces a parameter by hand calls `flatten()` again.
    """

    members: int | None = None
    flat: torch.Tensor
    flat_grad: torch.Tensor

    def flatten(self, flat: torch.Tensor | None = None, grad: torch.Tensor | None = None) -> Self:
        """Moves every parameter into a buffer, in the order of `parameters()`, and makes them views
        of it.

        The buffers are new, or the given ones, which must fit.
        """
        parameters = list(self.parameters())
        lead = () if self.members is None else (self.members,)
        if lead:  # rows of [M, P] are apart by design
            warnings.filterwarnings(
                "ignore", "grad and param do not obey the gradient layout contract"
            )
        with torch.no_grad():
            values = torch.cat([p.detach().reshape(*lead, -1) for p in parameters], dim=-1)
            self.flat = values if flat is None else flat.copy_(values)
            self.flat_grad = torch.zeros_like(values) if grad is None else grad.zero_()
            start = 0
            for p in parameters:
                size = p.numel() // (self.members or 1)
                p.data = self.flat[..., start : start + size].view(p.shape)
                p.grad = self.flat_grad[..., start : start + size].view(p.shape)
                start += size
        return self

    def detached_copy(self) -> Self:
        """A copy to act by, whose parameters are tensors of their own: whoever saves one of them
        saves nothing else. It has no gradients and is not flat any more."""
        clone = copy.deepcopy(self)
        for p in clone.parameters():
            p.data, p.grad = p.data.clone(), None
            p.requires_grad_(False)
        clone.flat = clone.flat_grad = clone.flat.new_zeros(0)
        return clone

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        return self.flatten()

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        result = super().load_state_dict(state_dict, strict, assign)
        if assign:
            self.flatten()
        return result

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        clone = self.__class__.__new__(self.__class__)
        memo[id(self)] = clone
        for name, value in self.__dict__.items():
            if name not in ("flat", "flat_grad"):
                clone.__dict__[name] = copy.deepcopy(value, memo)
        return clone.flatten()

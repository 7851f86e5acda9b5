"""How the options of C components with n₁ … n_C options each lie in memory: constants, two layouts,
masks, checks.

The M = Σ nᵢ options of all components lie side by side: logits and masks are [..., M], actions
[..., C]. Equal components are a reshape to [..., C, n]; ragged ones one gather to [..., C, n_max].
Which of the two is decided once, in the constructor. Inside, a forbidden option is −∞, so its
probability and gradient are exactly 0; outside it is the dtype's finite minimum, so that 0·(min −
min) in a divergence is 0 and never NaN. 16-bit logits are worked on in float32.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn

from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.ops.head_tables import (
    LOWEST,
    HeadTables,
    OnEmpty,
    cases,
    compiled,
    describe_first,
    first_bad,
    on_cpu,
)

MASK_DTYPES = (
    torch.bool,
    torch.int8,
    torch.uint8,
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
)


# examples and references


def layout_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    yield from cases(rng, dtype, HeadLayout)


def padded_logits_reference(heads, logits, mask):
    padded = logits.new_full(
        (*logits.shape[:-1], heads.count, heads.widest), torch.finfo(logits.dtype).min
    )
    offsets, fallback, _ = heads.tables
    for row in np.ndindex(*logits.shape[:-1]):
        for i, (start, stop) in enumerate(pairwise(offsets.tolist())):
            options = [k for k in range(stop - start) if mask is None or mask[row][start + k]]
            for k in options:
                padded[row][i, k] = logits[row][start + k]
            if not options:
                padded[row][i, fallback[i]] = 0
    return padded


def one_hot_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for layout, logits, _ in layout_examples(rng, dtype):
        drawn = [rng.integers(0, n, logits.shape[:-1]) for n in layout.sizes]
        yield layout, torch.from_numpy(np.stack(drawn, -1)), logits.dtype


def one_hot_reference(heads, actions, dtype):
    sizes = np.diff(heads.tables.offsets).tolist()
    return torch.cat(
        [nn.functional.one_hot(actions[..., i], n) for i, n in enumerate(sizes)], -1
    ).to(dtype)


# compiled passes


@kernel
def mark(actions, offsets, out):
    """One-hot actions into `out` [B, M]; False where one is out of range."""
    for b in range(actions.shape[0]):
        out[b] = 0
        for i in range(actions.shape[1]):
            if not 0 <= actions[b, i] < offsets[i + 1] - offsets[i]:
                return False
            out[b, offsets[i] + actions[b, i]] = 1
    return True


@kernel
def spread(logits, mask, offsets, fallback, check, floor, out, empty):
    """Logits [B, M] into `out` [B, C, n_max], `floor` where forbidden or padding, and which
    components have no option into `empty` [B, C]; the fallback of such a one is 0. False where
    there is none, or with `check` a logit is not finite."""
    count, widest = out.shape[1:]
    low = np.float32(floor)
    for b in range(logits.shape[0]):
        for i in range(count):
            start, size = offsets[i], offsets[i + 1] - offsets[i]
            off = some = 0
            for k in range(size):
                x, allowed = logits[b, start + k], mask[b, start + k]
                off += np.int32(not abs(x) <= -LOWEST)
                some += np.int32(allowed)
                out[b, i, k] = x if allowed else low
            for k in range(size, widest):
                out[b, i, k] = low
            if (off and check) or (some == 0 and fallback[i] < 0):
                return False
            empty[b, i] = some == 0
            if some == 0:
                out[b, i, fallback[i]] = np.float32(0)
    return True


# the layout


class HeadLayout(nn.Module):
    """Components of given sizes. Holds constants only: logits, masks and actions are given to each
    call.

    `on_empty` says what a component with every option masked is: an error ("raise"), no part of the
    action ("absent": log-probability, entropy and divergence 0, no gradient, sampled as 0), or one
    that does its no-op (the no-op's index; −1 is the last option). `check` looks for bad values in
    every call, which on a GPU waits for the device; shapes and dtypes are looked at always.
    """

    offsets: torch.Tensor  # (C,)
    limits: torch.Tensor  # (C,), the sizes
    # (C·n_max,), the option at each slot; padding points at the component's first
    gather: torch.Tensor
    padding: torch.Tensor  # (C, n_max), −∞ for padding and else 0
    slots: torch.Tensor  # (M,), where each option lies in (C·n_max,)
    component: torch.Tensor  # (M,)
    fallback: torch.Tensor  # (C, n_max) bool, the option that is left to an empty component

    def __init__(
        self, sizes: Sequence[int], on_empty: OnEmpty = "raise", check: bool = True
    ) -> None:
        super().__init__()
        self.tables = HeadTables.of(sizes, on_empty)
        if on_empty == "raise" and not check:
            raise ValueError(
                'on_empty="raise" needs check=True; without checks say "absent" or the index of a '
                "no-op"
            )
        self.sizes, self.check, self.raises = (
            tuple(int(n) for n in sizes),
            check,
            on_empty == "raise",
        )
        self.count, self.options, self.widest = len(self.sizes), sum(self.sizes), max(self.sizes)
        self.equal = len(set(self.sizes)) == 1
        limits = torch.tensor(self.sizes)
        offsets = limits.cumsum(0) - limits
        position = torch.arange(self.widest)
        real = position < limits[:, None]
        slot = torch.arange(self.count)[:, None] * self.widest + position
        constants = {
            "limits": limits,
            "offsets": offsets,
            "slots": slot[real],
            "gather": torch.where(real, offsets[:, None] + position, offsets[:, None]).flatten(),
            "component": torch.arange(self.count).repeat_interleave(limits),
            "padding": torch.where(real, 0.0, -torch.inf),
            "fallback": position == torch.from_numpy(self.tables.fallback)[:, None],
        }
        for name, constant in constants.items():
            self.register_buffer(name, constant, persistent=False)

    # the two layouts

    def padded(self, flat: torch.Tensor) -> torch.Tensor:
        """(..., M) as (..., C, n_max); what stands in the padding means nothing."""
        return (flat if self.equal else flat.index_select(-1, self.gather)).unflatten(
            -1, (self.count, self.widest)
        )

    def flat(self, padded: torch.Tensor) -> torch.Tensor:
        """(..., C, n_max) as (..., M)."""
        return padded.flatten(-2) if self.equal else padded.flatten(-2).index_select(-1, self.slots)

    # masks

    def shaped(
        self, logits: torch.Tensor, mask: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The logits as (..., C, n_max), −∞ where an option is forbidden or padding, and the
        components that had no option, (..., C), or None. Such a component keeps its fallback, so
        that no row is without one."""
        if mask is not None and compiled(logits):
            return self.shaped_without_gradient(logits, mask)
        return self.shaped_plainly(logits, mask)

    def shaped_plainly(
        self, logits: torch.Tensor, mask: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """With a gradient, on any device."""
        self.check_logits(logits)
        if logits.dtype in (torch.float16, torch.bfloat16):
            logits = logits.float()
        if mask is not None:
            logits = torch.where(self.as_bool(mask, logits.shape), logits, -torch.inf)
        shaped = self.padded(logits)
        if not self.equal:
            shaped = shaped + self.padding.to(shaped.dtype)  # adding is faster than filling
        if mask is None:
            return shaped, None
        highest = shaped.detach().amax(-1)
        if not self.raises:
            empty = highest == -torch.inf
            return torch.where(empty[..., None] & self.fallback, 0, shaped), empty
        if highest.numel() and highest.amin().item() == -torch.inf:
            raise ValueError(
                f"{describe_first(highest == -torch.inf)} has no allowed option: allow one, or "
                'declare on_empty ("absent" or the index of a no-op)'
            )
        return shaped, None

    def shaped_without_gradient(
        self, logits: torch.Tensor, mask: torch.Tensor, floor: float = -math.inf
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The same in one compiled pass, for acting on a CPU; `floor` stands for −∞."""
        self.check_logits(logits, values=False)
        mask = self.as_bool(mask, logits.shape)
        rows, x, allowed = logits.shape[:-1], logits.detach().numpy(), mask.numpy()
        if len(rows) != 1:
            x, allowed = x.reshape(-1, self.options), allowed.reshape(-1, self.options)
        shaped = np.empty((len(x), self.count, self.widest), np.float32)
        empty = np.empty((len(x), self.count), np.bool_)
        offsets, fallback, _ = self.tables
        if not spread(x, allowed, offsets, fallback, self.check, floor, shaped, empty):
            self.shaped_plainly(logits, mask)  # which says where and why
        masked = torch.from_numpy(shaped)
        return (
            masked if len(rows) == 1 else masked.view(*rows, self.count, self.widest),
            None if self.raises else torch.from_numpy(empty).view(*rows, self.count),
        )

    def present(self, mask: torch.Tensor) -> torch.Tensor:
        """The components with an option, (..., C): those that are part of the action when
        `on_empty` is "absent"."""
        mask = self.padded(self.as_bool(mask, mask.shape))
        return (mask if self.equal else mask & (self.padding == 0)).any(-1)

    def as_bool(self, mask: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        if mask.shape != shape:
            raise ValueError(
                f"the mask must have the shape of the logits, {tuple(shape)}; it has "
                f"{tuple(mask.shape)}"
            )
        if mask.dtype not in MASK_DTYPES:
            raise ValueError(
                f"the mask must be bool, int8, uint8 or a float of 0 and 1; it is {mask.dtype}"
            )
        if mask.dtype == torch.bool:
            return mask
        if self.check and (strange := (mask != 0) & (mask != 1)).any():
            raise ValueError(f"the mask at {self.where_option(strange)} is neither 0 nor 1")
        return mask != 0

    def masked_logits(self, logits: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """The logits (..., M), the finite minimum of their dtype where an option is forbidden. The
        fallback of an empty component is 0."""
        return self.flat(self.padded_logits(logits, mask))

    @pair(padded_logits_reference, layout_examples, dtypes=("float32", "float64"))
    def padded_logits(self, logits: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """The same as (..., C, n_max), the padding at the minimum too."""
        low = torch.finfo(logits.dtype).min
        if mask is not None and compiled(logits):
            return self.shaped_without_gradient(logits, mask, low)[0]
        return self.shaped(logits, mask)[0].to(logits.dtype).clamp_min(low)

    # checks of values

    def check_logits(self, logits: torch.Tensor, values: bool = True) -> None:
        if logits.shape[-1:] != (self.options,) or not logits.is_floating_point():
            raise ValueError(
                f"the logits must be floats (..., {self.options}); they are {logits.dtype} "
                f"{tuple(logits.shape)}"
            )
        # a sum is finite only if all its terms are; it may also overflow, then one looks closer
        if (
            values
            and self.check
            and not math.isfinite(logits.detach().sum())
            and not (finite := logits.isfinite()).all()
        ):
            raise ValueError(
                f"{self.where_option(~finite)} has a logit that is not finite: the network "
                "diverged, or its output was masked with infinities before"
            )

    def check_actions(self, actions: torch.Tensor) -> None:
        """An action out of range would count as the neighbour's."""
        if actions.shape[-1:] != (self.count,) or actions.dtype != torch.int64:
            raise ValueError(
                f"actions must be int64 (..., {self.count}); they are {actions.dtype} "
                f"{tuple(actions.shape)}"
            )
        if (
            self.check
            and actions.numel()
            and (actions.amin() < 0 or (actions - self.limits).amax() >= 0)
        ):
            outside = (actions < 0) | (actions >= self.limits)
            action, size = int(actions[outside][0]), self.sizes[first_bad(outside)[1]]
            raise ValueError(
                f"{describe_first(outside)} was given action {action}, which is outside its range "
                f"0 … {size - 1}"
            )

    def where_option(self, bad: torch.Tensor) -> str:
        row, option = first_bad(bad)
        component = int(self.component[option])
        return f"row {row}, component {component} (option {option - int(self.offsets[component])})"

    # actions

    @pair(one_hot_reference, one_hot_examples, dtypes=("float32", "float64"))
    def one_hot(self, actions: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """(..., M), one 1 in each component: one scatter, or on a CPU one compiled pass that looks
        at the range too."""
        if (
            dtype == torch.float32
            and on_cpu(actions)
            and actions.dtype == torch.int64
            and actions.shape[-1:] == (self.count,)
        ):
            indices = actions.numpy()
            out = np.empty((*indices.shape[:-1], self.options), np.float32)
            if mark(
                indices.reshape(-1, self.count), self.tables.offsets, out.reshape(-1, self.options)
            ):
                return torch.from_numpy(out)
        self.check_actions(actions)
        empty = torch.zeros(*actions.shape[:-1], self.options, dtype=dtype, device=actions.device)
        return empty.scatter_(-1, actions + self.offsets, 1)

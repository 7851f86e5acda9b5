"""What RLlib hands over, as tensors of one row each: observations of any space, masks in any of the
forms that an environment may give."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import gymnasium as gym
import torch

from tenfold.core.layout import ObsLayout


def natural(name: Any) -> list[tuple[bool, Any]]:
    """Sorts numbers in names as numbers: head_2 before head_10."""
    return [
        (part.isdigit(), int(part) if part.isdigit() else part)
        for part in re.split(r"(\d+)", str(name))
        if part
    ]


@cache
def in_order(names: tuple[Any, ...]) -> list[Any]:
    return sorted(names, key=natural)


def mask_in(seen: Mapping[str, Any]) -> Any:
    """What an observation says is allowed; never overlooked."""
    if "action_mask" not in seen:
        raise ValueError(
            'the observations have no "action_mask": give one, of ones where everything is allowed'
        )
    return seen["action_mask"]


def join_mask(mask: Any, sizes: tuple[int, ...], in_rows: bool = False) -> torch.Tensor:
    """(..., M) out of one tensor (..., M), one of equal heads (..., C, n), or a list, tuple or dict
    with one for each head; a dict's names in natural order. `in_rows`: the space has a row for each
    head; of a single head no shape tells it."""
    options = sum(sizes)
    if isinstance(mask, Mapping):
        mask = [mask[name] for name in in_order(tuple(mask))]
    if isinstance(mask, list | tuple):
        found = tuple(part.shape[-1] for part in mask)
        if found != sizes:
            raise ValueError(
                f"the mask's parts have {list(found)} options, the heads have {list(sizes)}"
            )
        return torch.cat(list(mask), -1)
    if mask.shape[-1] == options and not in_rows:
        return mask
    if len(set(sizes)) == 1 and tuple(mask.shape[-2:]) == (len(sizes), sizes[0]):
        return mask.flatten(-2)
    raise ValueError(
        f"the mask has shape {tuple(mask.shape)}; its last dimension must be {options}, the "
        "options of all heads"
    )


def check_mask_space(space: Any, sizes: tuple[int, ...]) -> None:
    """The mask the environment declares fits the heads; said before training begins."""
    if isinstance(space, gym.spaces.Dict):
        space = gym.spaces.Tuple([space[name] for name in in_order(tuple(space))])
    shapes = [part.shape for part in space] if isinstance(space, gym.spaces.Tuple) else space.shape
    if isinstance(shapes, list):
        fits = shapes == [(n,) for n in sizes]
    else:
        fits = shapes == (sum(sizes),) or (
            len(set(sizes)) == 1 and shapes == (len(sizes), sizes[0])
        )
    if not fits:
        raise ValueError(
            f'the space of "action_mask" has shape {shapes}, and the heads have sizes '
            f"{list(sizes)}: it must be one "
            f"array of {sum(sizes)} numbers, or a Tuple or Dict with one array for each head"
        )


def join_observation(layout: ObsLayout, value: Any, dtype: torch.dtype) -> torch.Tensor:
    """(..., D) as the layout lies in a row: arrays flattened, images of bytes scaled to [0, 1],
    discrete parts one-hot, Dict and Tuple joined."""
    if layout.parts:
        parts = [value[key] for key in layout.keys] if layout.keys else value
        return torch.cat(
            [
                join_observation(part, one, dtype)
                for part, one in zip(layout.parts, parts, strict=True)
            ],
            -1,
        )
    if layout.one_hot:
        places = torch.tensor(
            [offset - first for offset, first in layout.one_hot], device=value.device
        )
        value = value.long() if len(layout.one_hot) > 1 else value.long().unsqueeze(-1)
        return torch.zeros(
            *value.shape[:-1], layout.size, dtype=dtype, device=value.device
        ).scatter_(-1, value + places, 1)
    if len(layout.shape) != 1:
        value = value.reshape(*value.shape[: value.dim() - len(layout.shape)], layout.size)
    value = value if value.dtype == dtype else value.to(dtype)
    return value if layout.scale == 1.0 else value * layout.scale

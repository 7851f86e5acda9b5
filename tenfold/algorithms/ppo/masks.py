"""Masks of allowed options as a person gives them, and what becomes of those without any."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tenfold.core.errors import UserError
from tenfold.core.spaces import ObsLayout

MASK = "action_mask"  # the key of a Dict observation that holds its mask


@contextmanager
def told_to_user() -> Iterator[None]:
    """What the heads refuse is a person's affair: a mask without an option, or a network that
    diverged."""
    try:
        yield
    except ValueError as error:
        way_out = " (in a run: --agent.on-empty absent)" if "on_empty" in str(error) else ""
        raise UserError(f"The policy cannot act: {error}{way_out}.") from None


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

"""What the locksteps of all algorithms share: how a run ends whose fast engine is wrong."""

from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from safetensors.numpy import save_file

from tenfold.core.errors import UserError


class Mismatch(UserError):
    """A fast engine did not do what the plain one does."""


def refuse(
    folder: Path,
    batch: dict[str, np.ndarray],
    before: torch.Tensor,
    fast: Any,
    plain: Any,
    excess: float,
    where: str,
) -> NoReturn:
    """Ends the run, with the batch and both agents' results saved."""
    path = folder / f"mismatch-{fast.updates}.safetensors"
    save_file(
        batch
        | {"before": before.numpy(), "fast": fast.block.numpy(), "plain": plain.block.numpy()},
        path,
    )
    raise Mismatch(
        f"Update {fast.updates} of the fast engine is not the plain one's: the {where} differ "
        f"{excess:.3g} times more than allowed. The batch and both results are in {path}; please "
        "report it, and go on with `tenfold resume RUN --engine plain`."
    )

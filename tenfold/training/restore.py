"""A checkpoint into the place that goes on from it."""

from pathlib import Path
from typing import Any

import numpy as np

from tenfold.core.errors import CheckpointError, EnvironmentFault, UserError
from tenfold.runs.checkpoint import Checkpoints, nested_state
from tenfold.runs.files import Arrays
from tenfold.training.learners import Place


class Unfit(CheckpointError):
    """A checkpoint that is whole and cannot be gone on from."""

    def __init__(self, path: Path, words: str) -> None:
        super().__init__(f"{path} is damaged: {words}")
        self.path = path


def put_back(
    place: Place,
    checkpoints: Checkpoints,
    arrays: Arrays,
    rows: list[Arrays] | None,
    note: dict[str, Any],
) -> bool:
    """A checkpoint into the place. False where the environments could not be restored exactly;
    Unfit where it is none of this run's, whatever its digest says."""
    path = checkpoints.path(note["step"])
    try:
        for piece in rows or []:
            place.load_rows(piece)  # type: ignore[union-attr]  (a place that has none holds none)
        exact = place.load_state(nested_state(arrays), with_replay=rows is not None)
        wrong = place.step != note["step"] or (
            checkpoints.heads is not None
            and not np.array_equal(checkpoints.heads, arrays["replay.head"].ravel())
        )
    except EnvironmentFault:
        raise
    except CheckpointError as error:
        raise Unfit(path, str(error)) from None
    except (
        UserError,
        LookupError,
        ValueError,
        TypeError,
        AttributeError,
        RuntimeError,
        OverflowError,
    ) as error:
        words = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise Unfit(path, f"what it holds is not what this run saves ({words}).") from None
    if wrong:
        raise Unfit(path, "its note does not tell of what it holds.")
    return exact

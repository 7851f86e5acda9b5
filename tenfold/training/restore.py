"""A checkpoint into the learner that goes on from it."""

from pathlib import Path
from typing import Any

import numpy as np

from tenfold.core.errors import CheckpointError, EnvironmentFault, UserError
from tenfold.core.protocols import Learner
from tenfold.runs.checkpoint import Checkpoints, nested_state
from tenfold.runs.files import Arrays


class Unfit(CheckpointError):
    """A checkpoint that is whole and cannot be gone on from."""

    def __init__(self, path: Path, words: str) -> None:
        super().__init__(f"{path} is damaged: {words}")
        self.path = path


def put_back(
    learner: Learner,
    checkpoints: Checkpoints,
    arrays: Arrays,
    rows: list[Arrays] | None,
    note: dict[str, Any],
) -> bool:
    """A checkpoint into the learner. False where the environments could not be restored exactly;
    Unfit where it is none of this run's, whatever its digest says."""
    path = checkpoints.path(note["step"])
    try:
        for piece in rows or []:
            learner.load_rows(piece)
        exact = learner.load_state(nested_state(arrays), with_rows=rows is not None)
        wrong = learner.step != note["step"] or (
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

"""Training on recordings, from the command line and from Python: `ten.fit("data.npz")`."""

import sys
from collections.abc import Sequence
from numbers import Real
from pathlib import Path
from typing import Any

from tenfold.config.mappings import merge
from tenfold.config.notation import show
from tenfold.config.run import Run, named
from tenfold.core.errors import ConfigError, UserError
from tenfold.domains.dynamics.config import Explorer
from tenfold.domains.dynamics.offline import recorded
from tenfold.domains.dynamics.recording import identified
from tenfold.domains.dynamics.recording_files import Columns, listed
from tenfold.training.loop import Result, train

USUAL = {
    "steps": 3_000,
    "eval_every": 500,
    "checkpoint_every": 1_000,
    "log_every": 100,
    "agent": {"planner": {"policy": "random"}},
}


def fit(
    file: str | Path,
    out: str | Path = "",
    *,
    settings: dict[str, Any] | None = None,
    dt: float | None = None,
    observations: str | Sequence[str] = "",
    actions: str | Sequence[str] = "",
    overwrite: bool = False,
    quiet: bool = False,
) -> Result:
    """Trains a model on an NPZ or CSV file, or on what a run of an explorer recorded, into the
    folder `out`; without it into a new one, runs/fit-NAME, runs/fit-NAME-2, …. `settings` are those
    of a run, whose steps are gradient steps; `dt` is the time of a step where the file does not say
    it; `observations` and `actions` name arrays or columns, or what names of columns begin with."""
    path, columns = Path(file), Columns(names_in(observations), names_in(actions))
    recording = recorded(path, None if dt is None else as_number(dt), columns)
    if recording.left_out:
        print(
            f"tenfold: {path} also holds what is left out: {listed(recording.left_out)}.",
            file=sys.stderr,
        )
    base = merge(merge(USUAL, {"agent": {"window": recording.steps}}), settings or {})
    run: Run = named("explorer", base | {"env": identified(path, recording, columns)})
    if not isinstance(run.agent, Explorer):
        raise UserError(f"fit trains agent explorer, not {run.agent.name}.")
    return train(run, out, name=f"fit-{path.stem}", overwrite=overwrite, quiet=quiet)


def names_in(given: str | Sequence[str]) -> tuple[str, ...]:
    """One name, names with commas between them, or a sequence."""
    return tuple(
        filter(
            None, (name.strip() for name in (given.split(",") if isinstance(given, str) else given))
        )
    )


def as_number(dt: object) -> float:
    """NumPy's numbers too."""
    if isinstance(dt, bool) or not isinstance(dt, Real):
        raise ConfigError(
            "dt", f"= {show(dt)} is no number: give the time of a step, such as 0.05."
        )
    return float(dt)

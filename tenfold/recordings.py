"""Training on recordings, from the command line and from Python: `ten.fit("data.npz")`."""

from pathlib import Path
from typing import Any

from tenfold.config import merge
from tenfold.envs.recording import identified
from tenfold.errors import UserError
from tenfold.explorer_settings import Explorer
from tenfold.places.offline import recorded
from tenfold.settings import Run, named
from tenfold.training import Result, train

USUAL = {"steps": 3_000, "eval_every": 500, "checkpoint_every": 1_000, "log_every": 100,
         "agent": {"lr": 1e-2, "model": {"samples": 1}, "planner": {"policy": "random"}}}


def fit(file: str | Path, out: str | Path = "", *, settings: dict[str, Any] | None = None, dt: float | None = None,
        overwrite: bool = False, quiet: bool = False) -> Result:
    """Trains a model on an NPZ or CSV file, or on what a run of an explorer recorded, into the folder `out` (runs/fit-<name> by
    default). `settings` are those of a run, whose steps are gradient steps; `dt` is the time of a step where the file does not
    say it."""
    path = Path(file)
    recording = recorded(path, dt)
    base = merge(merge(USUAL, {"agent": {"window": recording.steps}}), settings or {})
    run: Run = named("explorer", base | {"env": identified(path, recording)})
    if not isinstance(run.agent, Explorer):
        raise UserError(f"fit trains agent explorer, not {run.agent.name}.")
    return train(run, out or Path("runs") / f"fit-{path.stem}", overwrite=overwrite, quiet=quiet)

"""Training: make the learner and the folder, or find what a run goes on from, and carry it out
(`session`)."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from tenfold.config.changes import changed_run, changes, constant_from, new_end
from tenfold.config.files import Trust, require_trust, require_trusted_cluster, settings_of
from tenfold.config.notation import merge
from tenfold.config.run import Run
from tenfold.core.errors import ConfigError, UserError
from tenfold.core.processes import Interrupt
from tenfold.core.user_envs import lend
from tenfold.envs.making import resolve_paths
from tenfold.runs.checkpoint import Checkpoints, checkpoint_steps, set_aside
from tenfold.runs.file_schema import current
from tenfold.runs.folder import RunFolder, destination, require_place, run_name
from tenfold.runs.metrics import Metrics
from tenfold.runs.storage import Target, update_latest
from tenfold.training.callbacks import callbacks_of
from tenfold.training.initial import InitialWeights, initial_weights
from tenfold.training.learners import Unfit, prepare, put_back, ready
from tenfold.training.session import Result, Saved, Session
from tenfold.training.tracking import trackers_named


class Finished(UserError):
    """There is nothing to resume."""


def train(
    run: Run | str,
    out: str | Path = "",
    *,
    name: str = "",
    overwrite: bool = False,
    quiet: bool = False,
    callbacks: Sequence[Any] = (),
    report: bool = True,
    init: Any = None,
    checkpoint: str | int = "last",
    trust: bool = False,
    track: str | Sequence[str] | None = None,
    **settings: Any,
) -> Result:
    """Trains `run`, settings or the name of a preset, an agent or a YAML file, from the start into
    the folder `out`; without it into a new one, runs/NAME, runs/NAME-2, … (the name is the preset's
    or the environment's by default). `settings` are others than the run has: ten.train("cartpole",
    steps=5_000, agent={"n_step": 1}). `callbacks` are called at moments of the run: see
    `tenfold.Callback`. `report`: its page is written at the end. `init`: another run (its folder or
    archive, or what `train` returned) with whose weights this one begins, those of its `checkpoint`
    (last, best or a step); `trust` allows modules that somebody else's run names to be imported.
    `track`: wandb, trackio or mlflow are sent the metrics."""
    what, run = run, settings_of(run, settings)
    if init is None and checkpoint != "last":
        raise ConfigError("checkpoint", f"= {checkpoint} is that of init, and no init was given.")
    target = destination(out, name or run_name(what, run), overwrite)
    require_place(target, overwrite)  # here: before anything is compiled
    callbacks = (*callbacks_of(callbacks), *trackers_named(track))
    run = replace(run, env=resolve_paths(run.env))
    prepare(run)
    initial = initial_weights(init, checkpoint, run, trust)
    return begin(run, target, initial, overwrite, quiet, callbacks, report)


def begin(
    run: Run,
    target: Target,
    initial: InitialWeights | None,
    overwrite: bool,
    quiet: bool,
    callbacks: Sequence[Any],
    report: bool = True,
) -> Result:
    """`train` of settings that are ready, with weights that were read."""
    # the learner before the folder: settings that do not fit leave nothing behind
    with (
        ready(run, quiet, initial) as learner,
        Interrupt() as interrupt,
        RunFolder.create(target, run, overwrite, initial.about if initial else None) as folder,
    ):
        session = Session(
            learner, folder, Checkpoints(folder, run.keep), interrupt, quiet, report=report
        )
        return session.carry_out(Metrics(folder), {}, [], callbacks)


def resume(
    path: Any,
    steps: int | None = None,
    *,
    engine: str = "",
    settings: dict[str, Any] | None = None,
    quiet: bool = False,
    env: Any = None,
    callbacks: Sequence[Any] = (),
    report: bool = True,
    more: int | None = None,
    track: str | Sequence[str] | None = None,
    trust: Trust = False,
) -> Result:
    """Goes on from the latest whole checkpoint of a run, given by its folder or by what `train`
    returned, as if it had never stopped; `steps` sets a new end, `more` one so many steps later,
    `engine` another engine (then numbers differ in their last bits), `settings` whatever else can
    change (config.changes.CHANGEABLE). `env` is the environment again, where it was an object or a
    function; `track` is that of `train`; `trust` allows modules that somebody else's run names to
    be imported."""
    folder, run = RunFolder.open(Path(getattr(path, "path", path)), trust)
    lend(run.env, env)
    given = new_end(run, steps, more, settings) | ({"engine": engine} if engine else {})
    callbacks = (*callbacks_of(callbacks), *trackers_named(track))
    change = merge(settings or {}, given)
    with folder:
        run, refused = changed_run(run, change), []
        require_trusted_cluster(folder.path, run, trust, change)
        while True:
            try:
                return go_on(folder, run, quiet, refused, callbacks, report)
            except Unfit as error:
                refused.append(pass_over(error, folder))  # and the one before it is tried


def require_fit(path: Path, change: Mapping[str, Any], trust: Trust) -> None:
    """Refuses settings that a run's checkpoint does not go together with, before they are written
    down for several."""
    folder, run = RunFolder.open(path, trust)
    with folder, suppress(Finished, Unfit):  # these are told of when it goes on
        run = changed_run(run, change)
        checkpoints = Checkpoints(folder, run.keep)
        saved = last_saved(checkpoints, run, [])
        with ready(run, quiet=True) as learner:
            put_back(learner, checkpoints, saved.arrays, saved.rows, saved.note)


def pass_over(error: Unfit, folder: RunFolder) -> str:
    """Sets a checkpoint aside that cannot be gone on from; the error where there is no other."""
    if len(checkpoint_steps(folder.path)) == 1:
        raise error
    set_aside(error.path)
    return f"{error} It was set aside as {error.path.name}.damaged."


def go_on(
    folder: RunFolder,
    run: Run,
    quiet: bool,
    refused: list[str],
    callbacks: Sequence[Any],
    report: bool,
) -> Result:
    """`resume` in a folder that nobody else writes to; `refused` says which checkpoints could not
    be gone on from."""
    checkpoints = Checkpoints(folder, run.keep)
    saved = last_saved(checkpoints, run, refused)
    prepare(run)
    with ready(run, quiet) as learner, Interrupt() as interrupt:
        session = Session(learner, folder, checkpoints, interrupt, quiet, report=report)
        restored = session.restore(saved)
        update_latest(folder.path)
        return session.carry_out(*restored, callbacks)


def last_saved(checkpoints: Checkpoints, run: Run, refused: list[str]) -> Saved:
    """The one that the run goes on from, or a sentence why it does not."""
    path = checkpoints.folder.path
    arrays, rows, note, complaints = checkpoints.latest()
    settings = current(note["settings"])
    require_trust(path, settings, checkpoints.folder.trust)
    note["changed"] = changes(settings, run, path / "config.yaml")
    before = Run.of(settings)
    complaints = [*refused, *complaints, *filter(None, [constant_from(before, run)])]
    if run.steps < min(note["step"], before.steps):
        raise ConfigError(
            "steps",
            f"= {run.steps:,} is less than {path} has done, {note['step']:,}: give a larger one.",
        )
    if note["step"] >= run.steps and not note["owes_evaluation"]:
        raise Finished(
            f"{path} is finished at step {note['step']:,}: give --more or a larger --steps to go "
            f"on, or look at it with `tenfold eval {path}`."
        )
    return Saved(arrays, rows, note, complaints)

"""Fits a model to recordings, `ten.fit("data.npz")`, and chooses the size of the hidden state,
`latent="auto"`.

A model of each size is trained on the same steps and predicts held-out pieces of the steps that a
run trains on, not those that judge it. R² is the mean over 1 to 10 steps ahead and over pieces; its
standard error comes from how the pieces differ. The smallest model within one standard error of the
best one is taken (Breiman et al., Classification and Regression Trees, 1984)."""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Real
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from tenfold.config.files import named
from tenfold.config.notation import merge, show
from tenfold.config.run import Run
from tenfold.core.errors import ConfigError, UserError
from tenfold.core.protocols import Callback
from tenfold.core.system import set_threads
from tenfold.domains.dynamics.belief import forecasts
from tenfold.domains.dynamics.config import Explorer, LatentModel
from tenfold.domains.dynamics.learner import fill_window, make_agent
from tenfold.domains.dynamics.missing import all_missing
from tenfold.domains.dynamics.recording import (
    Recording,
    open_recording,
    parse_recording_id,
    pooled,
    recording_id,
)
from tenfold.domains.dynamics.recording_checks import are_counts
from tenfold.domains.dynamics.recording_formats import save_frame
from tenfold.domains.dynamics.recording_table import (
    EVERYTHING,
    Selection,
    is_frame,
    list_names,
    read_frame,
)
from tenfold.runs.storage import write_json
from tenfold.training.loop import Result, train

SETTINGS = {
    "steps": 3_000,
    "eval_every": 500,
    "checkpoint_every": 1_000,
    "log_every": 100,
    "agent": {"planner": {"policy": "random"}},
}
SILENT = 0.2  # share of zeros among whole numbers from which on they may be counts of spikes
MOST = 6  # numbers of a state that are tried
MOST_CENTRES = 1_000  # of a grid of radial basis functions, while sizes are tried
SHARE, LEAST = 3, 1_000  # a trial takes a third of the run's steps, but at least so many
HORIZON = 10  # steps ahead
FEW = 3  # pieces, below which nothing can be said of an error
NOTES_FILE = "recording.json"  # in a run's folder: notes about the recording, and this search
SAVED = {"size": "chosen", "held_out": "pieces"}  # names of a search's values in that file
BAR = 40  # characters of the longest bar in the terminal


class FitInput(NamedTuple):
    """The files of a fit, which columns of them, what was left out when frames were written to
    files, and the names of a run and in a sentence."""

    paths: list[Path]
    selection: Selection
    left_out: tuple[str, ...]
    name: str
    label: str


def fit(
    file: Any,
    out: str | Path = "",
    *,
    settings: dict[str, Any] | None = None,
    dt: float | None = None,
    observations: str | Sequence[str] = "",
    actions: str | Sequence[str] = "",
    bin: float | None = None,
    shared: bool = False,
    latent: int | Literal["auto"] | None = None,
    overwrite: bool = False,
    quiet: bool = False,
) -> Result:
    """Trains a model on a file (NPZ, CSV, NWB, HDF5, MAT), on a pandas DataFrame, or on what a run
    of an explorer recorded, into the folder `out`; without it into a new one, runs/fit-NAME,
    runs/fit-NAME-2, …. `settings` are those of a run, whose steps are gradient steps; `dt` is the
    time of a step where the file does not say it; `observations` and `actions` name arrays or
    columns, or what names of columns begin with; `bin` is the width in which spike times are
    counted. A list of several with `shared=True` is fitted by one dynamics, with readouts for each.
    `latent` is how many numbers the hidden state has; "auto" tries 1 to 6 on steps that are held
    back, and takes the smallest that predicts as well as the best one."""
    step = None if dt is None else as_number(dt)
    width = 0.0 if bin is None else as_number(bin, "bin")
    if bin is not None and not 0 < width < np.inf:
        raise ConfigError("bin", f"= {show(bin)} is no width: give one above 0, such as 0.02.")
    selection = Selection(names_in(observations), names_in(actions), width)
    source = fit_input(file, shared, out, selection)
    sessions = [open_recording(path, step, source.selection) for path in source.paths]
    recording = pooled(source.paths, sessions) if shared else sessions[0]
    report_reading(source, sessions)
    run = run_on(source, recording, sessions, settings or {})
    size_search = None
    if latent == "auto":
        size_search = search(run, recording, quiet)
        say(size_search.sentence)
    if latent is not None:
        assert isinstance(run.agent, Explorer)
        model = run.agent.model
        model = sized(model, size_search.size) if size_search else replace(model, latent=latent)
        run = replace(run, agent=replace(run.agent, model=model))
    notes = [note for session in sessions for note in session.notes]
    callbacks = [KeepNotes(notes, size_search)] if notes or size_search else []
    name = f"fit-{source.name}"
    return train(run, out, name=name, overwrite=overwrite, quiet=quiet, callbacks=callbacks)


def report_reading(source: FitInput, sessions: Sequence[Recording]) -> None:
    """Prints what was left out of the files, and their notes."""
    left_out = [*source.left_out, *(name for session in sessions for name in session.left_out)]
    if left_out:
        names = list_names(list(dict.fromkeys(left_out)))
        say(f"{source.label} also holds what is left out: {names}")
    for path, session in zip(source.paths, sessions, strict=True):
        for note in session.notes:
            say(f"{path}: {note}")


def run_on(
    source: FitInput, recording: Recording, sessions: Sequence[Recording], settings: dict[str, Any]
) -> Run:
    """The run of a fit to these sessions, or to the only one; a doubt about its settings is
    printed."""
    agent: dict[str, Any] = {"window": recording.steps}
    agent |= {"model": {"missing": True}} if recording.missing else {}
    base = merge(merge(SETTINGS, {"agent": agent}), settings)
    channels = tuple(one.sizes[0] for one in sessions) if len(sessions) > 1 else ()
    ident = recording_id(source.paths, recording, source.selection, channels)
    run: Run = named("explorer", base | {"env": ident})
    if not isinstance(run.agent, Explorer):
        raise UserError(f"fit trains agent explorer, not {run.agent.name}.")
    if run.agent.length > recording.steps:
        raise UserError(
            f"{source.label} has {recording.steps:,} steps, and a sequence that is trained on "
            f"takes agent.length = {run.agent.length}: record more, or make it shorter."
        )
    if doubt := unlike_counts(recording, run.agent.model.noise, base):
        say(f"{source.label}: {doubt}")
    return run


def say(sentence: str) -> None:
    print(f"tenfold: {sentence}.", file=sys.stderr)


def names_in(names: str | Sequence[str]) -> tuple[str, ...]:
    """One name, names with commas between them, or a sequence."""
    every = names.split(",") if isinstance(names, str) else names
    return tuple(filter(None, (name.strip() for name in every)))


def as_number(value: object, what: str = "dt") -> float:
    """NumPy's numbers too."""
    if isinstance(value, bool) or not isinstance(value, Real):
        meant = {"dt": "the time of a step, such as 0.05", "bin": "a width, such as 0.02"}[what]
        raise ConfigError(what, f"= {show(value)} is no number: give {meant}.")
    return float(value)


def fit_input(recordings: Any, shared: bool, out: str | Path, selection: Selection) -> FitInput:
    """Files as they are; a frame is written to one, so that a run can be resumed and judged."""
    several = isinstance(recordings, list | tuple)
    every = list(recordings) if several else [recordings]
    if shared != (len(every) > 1):
        raise UserError(
            f"fit was given {len(every)} recordings {'with' if shared else 'without'} shared: "
            "several are fitted by one dynamics with shared=True (--shared), and one alone without."
        )
    frames = [one for one in every if is_frame(one)]
    other = next((one for one in every if not isinstance(one, str | PathLike)), None)
    if other is not None and not frames:
        raise UserError(
            f"fit takes the path of a file, or a pandas frame, and not {type(other).__name__}: "
            'save arrays by np.savez("mine.npz", observations=…, actions=…, dt=…).'
        )
    if not frames:
        paths = [Path(one) for one in every]
        name = paths[0].stem + (f"-and-{len(paths) - 1}-more" if several and shared else "")
        return FitInput(paths, selection, (), name, str(paths[0]))
    if len(frames) < len(every):
        raise UserError("fit was given files and frames together: give one kind.")
    tables = [read_frame(one, selection) for one in frames]
    paths = [save_frame(one, Path(out).parent if out else Path("runs")) for one in tables]
    left_out = tuple(name for one in tables for name in one.left_out)
    return FitInput(paths, EVERYTHING, left_out, "frame", "the frame")


def unlike_counts(recording: Recording, noise: str, settings: dict[str, Any]) -> str:
    """A warning where observations look like counts of spikes, the settings do not choose a noise,
    and the model takes them for real numbers; else nothing."""
    noise_set = settings.get("agent", {}).get("model", {}).get("noise")
    if noise == "poisson" or noise_set or not all(are_counts(y) for y, _ in recording.episodes):
        return ""
    observed = np.concatenate([y[~np.isnan(y)] for y, _ in recording.episodes])
    silent = float(np.mean(observed == 0))
    if silent < SILENT:
        return ""
    return (
        f"its observations are whole numbers, {100 * silent:.0f} % of them 0, and are fitted as "
        "real ones with Gaussian noise; if they are counts, such as spikes in a bin, "
        "--agent.model.noise poisson --agent.model.decoder loglinear fits them as such"
    )


@dataclass(frozen=True)
class LatentSearch:
    """Sizes tried, the mean R² of each, its standard error, and the size taken; gradient steps of
    each trial and the held-out pieces it was judged by."""

    tried: tuple[int, ...]
    r2: tuple[float, ...]
    error: tuple[float, ...]
    size: int
    steps: int
    held_out: int

    @property
    def sentence(self) -> str:
        best = int(np.argmax(self.r2))
        return (
            f"a hidden state of {self.size} {'numbers' if self.size > 1 else 'number'}: the "
            f"least within one standard error of the best R², {self.r2[best]:.3f} ± "
            f"{self.error[best]:.3f} with {self.tried[best]} "
            f"({self.held_out} pieces held back from {self.steps:,} gradient steps each)"
        )


def smallest_within(r2: Sequence[float], error: Sequence[float]) -> int:
    """The place of the first one that is no more than one standard error below the best."""
    best = int(np.argmax(r2))
    return next(k for k, one in enumerate(r2) if one >= r2[best] - error[best])


def sized(model: LatentModel, latent: int) -> LatentModel:
    """The same model with so many numbers, and a grid that a trial can bear."""
    grid = min(model.grid, int(MOST_CENTRES ** (1 / latent) + 1e-9))
    return replace(model, latent=latent, grid=grid if model.dynamics == "rbf" else model.grid)


def search(run: Run, recording: Recording, quiet: bool = False) -> LatentSearch:
    """Tries 1 … 6 numbers on the steps that a run on the recording trains on."""
    set_threads(run.threads)
    config = run.agent
    assert isinstance(config, Explorer)
    if config.model.decoder == "identity":
        raise ConfigError(
            "latent",
            "= auto has nothing to choose: with decoder identity the state is what is observed.",
        )
    division = recording.divided().kept.divided()
    y, a = (
        np.concatenate(pair) if not division.alone else pair[0]
        for pair in zip(division.choosing, division.judging, strict=True)
    )
    if len(y) < FEW:
        raise UserError(
            f"The recording is too short to choose the size of its hidden state by: {len(y)} "
            f"{'pieces' if len(y) > 1 else 'piece'} could be held back, and {FEW} are needed; say "
            "it with --latent 2."
        )
    steps = min(max(run.steps // SHARE, LEAST), run.steps)
    tried = tuple(range(1, min(MOST, recording.sizes[0]) + 1))
    means, errors = [], []
    for latent in tried:
        start = time.monotonic()
        alone = replace(run, agent=replace(config, model=sized(config.model, latent)), members=1)
        scores = trial(alone, division.kept, y, a, steps)
        means.append(float(scores.mean()))
        errors.append(float(scores.std(ddof=1) / np.sqrt(len(scores))))
        if not quiet:
            bar = "█" * round(BAR * max(min(means[-1], 1.0), 0.0))
            print(
                f"latent {latent} of {tried[0]} … {tried[-1]}: R² {means[-1]:.3f} ± "
                f"{errors[-1]:.3f}   {bar.ljust(BAR, '·')}   {time.monotonic() - start:.0f} s",
                file=sys.stderr,
                flush=True,
            )
    size = tried[smallest_within(means, errors)]
    return LatentSearch(tried, tuple(means), tuple(errors), size, steps, len(y))


def trial(run: Run, kept: Recording, y: np.ndarray, a: np.ndarray, steps: int) -> np.ndarray:
    """R² of each piece y [E, T, Y] under actions a [E, T, A], mean over horizons, by a model that
    was trained on other steps."""
    bound = np.ones(kept.sizes[1], np.float32)
    sessions = parse_recording_id(run.env).sessions
    agent = make_agent(run, kept.sizes[0], -bound, bound, kept.dt, sessions)
    fill_window(agent, kept)
    for step in range(1, steps + 1):
        agent.train_step()
        if agent.refit_due(step):
            agent.refit()
    return piece_scores(agent, y, a)


@torch.no_grad()
def piece_scores(agent: Any, y: np.ndarray, a: np.ndarray) -> np.ndarray:
    """Mean over horizons of 1 − squared error / variance over all pieces, [E]: their mean is R²."""
    ahead = min(HORIZON, y.shape[1] - 1)
    inner, actions = agent.inner(y[None]), agent.inner_actions(a)[None]
    predicted = forecasts(agent.online, inner, actions[:, :, :-1], ahead)[0].cpu().double().numpy()
    inside = inner[0].cpu().double().numpy()
    starts = y.shape[1] - ahead
    following = np.stack([inside[:, k : k + starts] for k in range(1, ahead + 1)], 2)
    observed = ~np.isnan(following) & ~all_missing(inside[:, :starts])[:, :, None, None]
    known = np.where(observed, following, 0.0)
    mean = known.sum((0, 1, 2)) / np.maximum(observed.sum((0, 1, 2)), 1)
    error, spread = (
        np.square(np.where(observed, known - other, 0.0)).sum((1, 3))
        for other in (predicted[:, :starts], mean)
    )  # [E, K]
    usual = np.maximum(spread.mean(0), np.finfo(np.float64).tiny)
    return np.nan_to_num(1 - error / usual, nan=-1e9, neginf=-1e9).mean(1)


class KeepNotes(Callback):
    """Writes the notes about a recording into the run's folder, as soon as there is one."""

    def __init__(self, notes: Sequence[str], search: LatentSearch | None) -> None:
        latent = (
            {SAVED.get(name, name): value for name, value in vars(search).items()}
            if search
            else None
        )
        self.content = {"notes": list(notes), "latent": latent}

    def on_start(self, training: Any) -> None:
        write_json(Path(training.path) / NOTES_FILE, self.content)

"""Training on recordings, from the command line and from Python: `ten.fit("data.npz")`, and which
recording a run was trained on."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import quote, unquote

import numpy as np

from tenfold.config.files import named
from tenfold.config.notation import merge
from tenfold.config.run import Run
from tenfold.core.errors import UserError
from tenfold.domains.dynamics import RECORDING, is_recording
from tenfold.domains.dynamics.clock import are_counts
from tenfold.domains.dynamics.config import Explorer
from tenfold.domains.dynamics.dimensions import Kept, Search, search, sized
from tenfold.domains.dynamics.given import as_number, bin_width, names_in, sources
from tenfold.domains.dynamics.recording import DIGEST, SAME, Recording, read_recording
from tenfold.domains.dynamics.recording_files import USUAL, Columns, listed
from tenfold.domains.dynamics.sessions import pooled
from tenfold.envs.arguments import split_name
from tenfold.runs.checkpoint import Checkpoints, nested_state
from tenfold.runs.folder import RunFolder, is_run
from tenfold.training.learners import load
from tenfold.training.loop import Result, train

SETTINGS = {
    "steps": 3_000,
    "eval_every": 500,
    "checkpoint_every": 1_000,
    "log_every": 100,
    "agent": {"planner": {"policy": "random"}},
}

SILENT = 0.2  # share of zeros among whole numbers from which on they may be counts of spikes


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
    back, and takes the smallest that foretells as well as the best one."""
    step = None if dt is None else as_number(dt)
    columns = Columns(names_in(observations), names_in(actions), bin_width(bin))
    source = sources(file, shared, out, columns)
    parts = [recorded(path, step, source.columns) for path in source.paths]
    every = dict.fromkeys((*source.left_out, *(name for own in parts for name in own.left_out)))
    if every:
        print(
            f"tenfold: {source.words} also holds what is left out: {listed(list(every))}.",
            file=sys.stderr,
        )
    for path, part in zip(source.paths, parts, strict=True):
        for note in part.notes:
            print(f"tenfold: {path}: {note}.", file=sys.stderr)
    notes = tuple(note for part in parts for note in part.notes)
    recording = pooled(source.paths, parts) if shared else parts[0]
    own = {"window": recording.steps} | ({"model": {"missing": True}} if recording.missing else {})
    base = merge(merge(SETTINGS, {"agent": own}), settings or {})
    sizes = tuple(part.sizes[0] for part in parts) if shared else ()
    ident = recording_id(source.paths, recording, source.columns, sizes)
    run: Run = named("explorer", base | {"env": ident})
    if not isinstance(run.agent, Explorer):
        raise UserError(f"fit trains agent explorer, not {run.agent.name}.")
    if run.agent.length > recording.steps:
        raise UserError(
            f"{source.words} has {recording.steps:,} steps, and a sequence that is trained on "
            f"takes agent.length = {run.agent.length}: record more, or make it shorter."
        )
    if words := unlike_counts(recording, run.agent.model.noise, base):
        print(f"tenfold: {source.words}: {words}.", file=sys.stderr)
    run, found = with_latent(run, recording, latent, quiet)
    kept = [Kept(notes, found)] if notes or found else []
    name = f"fit-{source.name}"
    return train(run, out, name=name, overwrite=overwrite, quiet=quiet, callbacks=kept)


def unlike_counts(recording: Recording, noise: str, settings: dict[str, Any]) -> str:
    """Words where observations look like counts of spikes, nobody has said which noise they have,
    and the model takes them for real numbers; else nothing."""
    said = settings.get("agent", {}).get("model", {}).get("noise")
    if noise == "poisson" or said or not all(are_counts(y) for y, _ in recording.episodes):
        return ""
    seen = np.concatenate([y[~np.isnan(y)] for y, _ in recording.episodes])
    silent = float(np.mean(seen == 0))
    if silent < SILENT:
        return ""
    return (
        f"its observations are whole numbers, {100 * silent:.0f} % of them 0, and are fitted as "
        "real ones with Gaussian noise; if they are counts, such as spikes in a bin, "
        "--agent.model.noise poisson --agent.model.decoder loglinear fits them as such"
    )


def with_latent(
    run: Run, recording: Recording, latent: Any, quiet: bool
) -> tuple[Run, Search | None]:
    """The run with a hidden state of so many numbers, and how they were chosen where they were."""
    if latent is None:
        return run, None
    config: Any = run.agent
    if latent != "auto":
        return replace(run, agent=replace(config, model=replace(config.model, latent=latent))), None
    found = search(run, recording, quiet)
    print(f"tenfold: {found.sentence}.", file=sys.stderr)
    return replace(run, agent=replace(config, model=sized(config.model, found.chosen))), found


# the recording of a run


class Source(NamedTuple):
    """Where a run's recording is, and what the run knows of it."""

    file: str
    observations: int
    actions: int
    dt: float
    digest: str
    columns: Columns
    sessions: tuple[int, ...] = ()
    """channels of each of several sessions"""

    @property
    def paths(self) -> list[Path]:
        if not self.sessions:
            return [Path(self.file)]
        return [Path(unquote(own)) for own in self.file.split("+")]


def source_of(name: str) -> Source:
    """From the id of a recording."""
    _, given = split_name(name, str)
    missing = [part for part in ("file", "observations", "actions", "dt") if part not in given]
    if missing:
        raise UserError(f"{name} does not say its {missing[0]}: start it with `tenfold fit FILE`.")
    try:
        sizes, dt = (int(given["observations"]), int(given["actions"])), float(given["dt"])
        sessions = tuple(map(int, filter(None, given.get("sessions", "").split("+"))))
        width = float(given.get("bin", 0))
    except ValueError:
        raise UserError(f"{name} cannot be read: start it with `tenfold fit FILE`.") from None
    seen, done = (
        tuple(map(unquote, filter(None, given.get(part, "").split("+"))))
        for part in ("observed", "acted")
    )
    named = Columns(seen, done, width)
    return Source(given["file"], *sizes, dt, given.get("digest", ""), named, sessions)


def recording_id(
    path: Path | Sequence[Path],
    recording: Recording,
    columns: Columns = USUAL,
    sessions: tuple[int, ...] = (),
) -> str:
    """The id under which a run remembers its recording, or those of several sessions."""
    paths = [path] if isinstance(path, Path) else list(path)
    wrong = next((own for own in paths if set(str(own)) & set("(),=")), None)
    if wrong:
        raise UserError(
            f"{wrong} has one of ( ) , = in its name, which a run's settings cannot hold: rename "
            "it."
        )
    file = str(paths[0].absolute())
    if sessions:
        file = "+".join(quote(str(own.absolute())) for own in paths)
    observations, actions = recording.sizes
    named = "".join(
        f", {part}={'+'.join(quote(name, safe='') for name in names)}"
        for part, names in zip(("observed", "acted"), columns[:2], strict=True)
        if names
    )
    named += f", bin={columns.bin!r}" if columns.bin else ""
    named += f", sessions={'+'.join(map(str, sessions))}" if sessions else ""
    return (
        f"{RECORDING}(file={file}, observations={observations}, actions={actions}, "
        f"dt={recording.dt!r}, digest={recording.digest}{named})"
    )


def recorded(path: Path, dt: float | None = None, columns: Columns = USUAL) -> Recording:
    """From a file, or from what an explorer's run still has in its window."""
    if not is_run(path):
        below = (
            next((run for run in sorted(path.iterdir()) if is_run(run)), None)
            if path.is_dir()
            else None
        )
        if below:
            raise UserError(
                f"{path} holds runs and is none itself: give one of them, such as {below}."
            )
        return read_recording(path, dt, columns)
    if any(columns):
        raise UserError(
            f"{path} is a run, whose observations and actions are known: --observations, --actions "
            "and --bin are for files."
        )
    recording = of_run(path)
    if dt is not None and abs(dt - recording.dt) > SAME * recording.dt:
        raise UserError(
            f"{path} was recorded with {recording.dt:.9g} for a step, and --dt says {dt:.9g}: "
            "leave --dt out."
        )
    return recording


def recalled(name: str) -> Recording:
    """The recording of a run, which must be what it was when the run began."""
    source = source_of(name)
    if source.digest and not source.digest.startswith(DIGEST):
        raise UserError(
            f"A run on {source.file} by an earlier version of tenfold cannot go on in this one: "
            f"start it anew with `tenfold fit {source.file}`."
        )
    parts = [recorded(path, source.dt, source.columns) for path in source.paths]
    recording = pooled(source.paths, parts) if source.sessions else parts[0]
    if recording.sizes != (source.observations, source.actions) or source.digest not in (
        "",
        recording.digest,
    ):
        raise UserError(
            f"{source.file} is no longer what this run was trained on: put it back as it was, or "
            f"start a run of its own with `tenfold fit {source.file}`."
        )
    return recording


def of_run(path: Path) -> Recording:
    folder, run = RunFolder.open(path)
    if not isinstance(run.agent, Explorer):
        raise UserError(
            f"{path} is a run of {run.agent.name}, which keeps no recordings of a hidden system."
        )
    if is_recording(run.env):
        return recalled(run.env)
    agent: Any = load(path)
    agent.load_state(nested_state(Checkpoints(folder, run.keep).latest()[0])["agent"])
    episodes = []
    for m in range(agent.members):
        window, rows = agent.window, agent.window.places()
        first = [k for k, row in enumerate(rows) if k == 0 or window.first[m, row]]
        episodes += [
            (window.obs[m, rows[s:e]], window.action[m, rows[s:e]])
            for s, e in zip(first, [*first[1:], len(rows)], strict=True)
        ]
    episodes = [(y, a) for y, a in episodes if len(y) > 1]
    if not episodes:
        raise UserError(f"{path} has recorded nothing yet: go on with `tenfold resume {path}`.")
    return Recording(tuple(episodes), agent.dt)

"""`train` and `resume`: make the learner and the folder, or find the checkpoint to resume from, and
run the session (`session`)."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from tenfold.config.changes import changed_run, changes, constant_from, new_end
from tenfold.config.files import Trust, require_trust, require_trusted_cluster, resolve_run
from tenfold.config.networks import Net
from tenfold.config.notation import merge, show
from tenfold.config.run import Run
from tenfold.core.errors import ConfigError, UserError
from tenfold.core.processes import Interrupt
from tenfold.core.protocols import Learner
from tenfold.core.user_envs import OWN, is_known, lend
from tenfold.envs.making import resolve_paths
from tenfold.runs.archive import opened
from tenfold.runs.checkpoint import (
    Checkpoints,
    checkpoint_steps,
    flat_state,
    nested_state,
    require_weights,
    set_aside,
)
from tenfold.runs.file_schema import INIT, current
from tenfold.runs.folder import RunFolder, destination, is_seeds, require_place, run_name
from tenfold.runs.metrics import Metrics
from tenfold.runs.seeds import SeedsFolder
from tenfold.runs.storage import Arrays, Target, read_arrays, update_latest, write_arrays
from tenfold.training.callbacks import callbacks_of, trackers_named
from tenfold.training.learners import (
    CheckpointMismatch,
    agent_of,
    agent_with,
    check_resources,
    open_learner,
    restore_checkpoint,
)
from tenfold.training.session import Result, ResumePoint, Session

# settings of an agent that decide what the numbers of its networks mean
MEANING = ("net", "distribution", "frames", "squash")
FILE = "init.safetensors"  # in a folder of many seeds


@dataclass(frozen=True)
class InitialWeights:
    """The weights of a checkpoint, and their origin, which run.json records. They are sent to other
    processes and machines as arrays."""

    state: Arrays
    about: dict[str, Any]

    def give(self, learner: Learner) -> None:
        """Loads them into a learner that has not started."""
        learner.begin_with(nested_state(self.state)["agent"])

    def write(self, folder: Path) -> None:
        """Writes them for seeds that start later."""
        write_arrays(folder / FILE, self.state, self.about)


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
    what, run = run, resolve_run(run, settings)
    if init is None and checkpoint != "last":
        raise ConfigError("checkpoint", f"= {checkpoint} is that of init, and no init was given.")
    target = destination(out, name or run_name(what, run), overwrite)
    require_place(target, overwrite)  # here: before anything is compiled
    callbacks = (*callbacks_of(callbacks), *trackers_named(track))
    run = replace(run, env=resolve_paths(run.env))
    check_resources(run)
    initial = initial_weights(init, checkpoint, run, trust)
    return train_from_start(run, target, initial, overwrite, quiet, callbacks, report)


def train_from_start(
    run: Run,
    target: Target,
    initial: InitialWeights | None,
    overwrite: bool,
    quiet: bool,
    callbacks: Sequence[Any],
    report: bool = True,
) -> Result:
    """`train` with resolved settings and loaded initial weights."""
    # the learner before the folder: settings that do not fit leave nothing behind
    with (
        open_learner(run, quiet, initial) as learner,
        Interrupt() as interrupt,
        RunFolder.create(target, run, overwrite, initial.about if initial else None) as folder,
    ):
        session = Session(
            learner, folder, Checkpoints(folder, run.keep), interrupt, quiet, report=report
        )
        return session.run_session(Metrics(folder), {}, [], callbacks)


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
    overrides = new_end(run, steps, more, settings) | ({"engine": engine} if engine else {})
    callbacks = (*callbacks_of(callbacks), *trackers_named(track))
    change = merge(settings or {}, overrides)
    with folder:
        run, refused = changed_run(run, change), []
        require_trusted_cluster(folder.path, run, trust, change)
        while True:
            try:
                return continue_run(folder, run, quiet, refused, callbacks, report)
            except CheckpointMismatch as error:
                refused.append(skip_checkpoint(error, folder))  # and the one before it is tried


def require_fit(path: Path, change: Mapping[str, Any], trust: Trust) -> None:
    """Refuses settings that do not fit a run's checkpoint, before they are written for several
    runs."""
    folder, run = RunFolder.open(path, trust)
    with folder, suppress(Finished, CheckpointMismatch):  # these are told of when it goes on
        run = changed_run(run, change)
        checkpoints = Checkpoints(folder, run.keep)
        saved = find_resume_point(checkpoints, run, [])
        with open_learner(run, quiet=True) as learner:
            restore_checkpoint(learner, checkpoints, saved.arrays, saved.rows, saved.note)


def skip_checkpoint(error: CheckpointMismatch, folder: RunFolder) -> str:
    """Sets aside a checkpoint that cannot be resumed from; raises the error where it is the only
    one."""
    if len(checkpoint_steps(folder.path)) == 1:
        raise error
    set_aside(error.path)
    return f"{error} It was set aside as {error.path.name}.damaged."


def continue_run(
    folder: RunFolder,
    run: Run,
    quiet: bool,
    refused: list[str],
    callbacks: Sequence[Any],
    report: bool,
) -> Result:
    """Resumes in a locked folder; `refused` are sentences about checkpoints that were skipped."""
    checkpoints = Checkpoints(folder, run.keep)
    saved = find_resume_point(checkpoints, run, refused)
    check_resources(run)
    with open_learner(run, quiet) as learner, Interrupt() as interrupt:
        session = Session(learner, folder, checkpoints, interrupt, quiet, report=report)
        restored = session.restore(saved)
        update_latest(folder.path)
        return session.run_session(*restored, callbacks)


def find_resume_point(checkpoints: Checkpoints, run: Run, refused: list[str]) -> ResumePoint:
    """The checkpoint to resume from; raises an error where there is none or nothing is left to
    do."""
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
    return ResumePoint(arrays, rows, note, complaints)


# Weights of another run to begin with: its networks, and the running statistics of observations
# that they were trained with. Adam's moments, counters, exploration and replay memory are the new
# run's.


def initial_weights(
    path: Any, checkpoint: str | int, run: Run, trust: Trust
) -> InitialWeights | None:
    """The weights of a run's folder or archive, or of what `ten.train` returned; None without a
    path. Refuses weights of networks that differ from those of `run`."""
    if path is None:
        return None
    path = getattr(path, "path", path)
    if not isinstance(path, str | Path):
        raise ConfigError(
            "init",
            f"= {path!r:.100} is no run: give its folder, its archive, or what ten.train returned.",
        )
    path, agent = Path(path), agent_of(run)
    if not hasattr(agent, "begin_with"):
        raise ConfigError("init", f"= {path} is not for agent {run.agent.name}: leave it out.")
    with opened(path) as folder:
        if is_seeds(folder):
            raise ConfigError(
                "init",
                f"= {path} holds several seeds, and one run's weights are taken: name a seed's "
                f"folder, such as {SeedsFolder.open(folder, trust).members[0]}.",
            )
        source, settings = RunFolder.open(folder, trust)
        state, step = Checkpoints(source, settings.keep).policy(str(checkpoint))
        if settings.env.startswith(OWN) and not is_known(settings.env):
            settings = replace(settings, env=run.env)  # its own is not in this process
        if run.agent.name != settings.agent.name:
            raise ConfigError(
                "init",
                f"= {path} was trained by {settings.agent.name}, and this run trains "
                f"{run.agent.name}: take the weights of a run of the same agent.",
            )
        trained = agent_with(state, settings, path)
    require_alike(agent, trained, path)
    kept = {name: state[name] for name in (*trained.policy_state(), "target") if name in state}
    about = {
        "run": source.id,
        "path": str(path.absolute()),
        "checkpoint": str(checkpoint),
        "step": step,
    }
    return InitialWeights(flat_state({"agent": kept}), about)


def require_alike(agent: Any, source: Any, path: Path) -> None:
    """Refuses weights of other networks, or networks whose settings give their numbers another
    meaning."""
    for name, here, theirs in network_settings(agent, source):
        if here != theirs:
            raise ConfigError(
                name,
                f"= {show(here)} does not fit --init {path}, whose networks were trained with "
                f"{show(theirs)}: set it to that, or train without --init.",
            )
    shapes = [
        {name: tuple(value.shape) for name, value in each_agent.online.named_parameters()}
        for each_agent in (agent, source)
    ]
    for name in dict.fromkeys((*shapes[0], *shapes[1])):
        here, theirs = (
            " x ".join(map(str, each_agent.get(name, ("nothing",)))) for each_agent in shapes
        )
        if here != theirs:
            raise ConfigError(
                "init",
                f"= {path} does not fit: its network's {name} is {theirs}, and this run's {here}, "
                "since observations, actions or settings of the network differ; train without "
                "--init.",
            )


def network_settings(agent: Any, source: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yields name and both values of each setting that determines the meaning of network
    outputs."""
    for name in MEANING:
        here, theirs = (getattr(one.config, name, None) for one in (agent, source))
        if isinstance(here, Net) and isinstance(theirs, Net):
            for name in (field.name for field in fields(here) if field.name != "init"):
                yield f"agent.net.{name}", getattr(here, name), getattr(theirs, name, None)
        else:
            yield f"agent.{name}", here, theirs
    yield "normalize_obs", agent.norm is not None, source.norm is not None


def kept_weights(folder: Path) -> InitialWeights | None:
    """The initial weights of all seeds of a folder, or None."""
    path = folder / FILE
    if not path.exists():
        return None
    arrays, about = read_arrays(path, schema=INIT)
    require_weights(path, arrays)
    return InitialWeights(arrays, about)

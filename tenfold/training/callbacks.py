"""Callbacks: what a user may give as one, and those of `--track`, which send the numbers of a run's
metrics to a tracking service.

A tracker uses the names of TensorBoard's files (`train/return`, `eval/mean_return`, …); its step is
the environment's. Each client is a package of its own, imported when it is needed. Its server and
its key come from the client's own environment variables or login; tenfold neither asks for them nor
writes them to a file. Where a client is offline or fails, the run goes on.
"""

import contextlib
import io
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from netrc import NetrcParseError, netrc
from pathlib import Path
from typing import Any

from tenfold.config.notation import dotted, show
from tenfold.config.schema import to_mapping
from tenfold.core.errors import UserError, described, told_of
from tenfold.runs.folder import is_seeds
from tenfold.runs.metrics import scalars

MOMENTS = ("on_start", "on_round", "on_log", "on_evaluate", "on_checkpoint", "on_row", "on_end")


class EveryRow:
    """Wraps a function as a callback: it is called with every row of training metrics."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self.function, self.name = function, name

    def on_log(self, training: Any, row: dict[str, Any]) -> None:
        with told_of(self.name):
            self.function(training, row)


def require_row(name: str, before: dict[str, Any], row: dict[str, Any]) -> None:
    """Refuses a row that a callback changed in another way than by adding numbers."""
    for key in before.keys() - row.keys():
        raise UserError(f"{name} took {key} out of the row: a callback may only add numbers to it.")
    for key, value in row.items():
        if key in before and before[key] is not value:
            raise UserError(
                f"{name} changed {key} of the row, which is the run's own: add a number under "
                "another name."
            )
        if key not in before and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise UserError(
                f"{name} added {key} = {value!r:.100} to the row, and rows hold numbers: add a "
                "number, int or float."
            )


def callbacks_of(callbacks: Any) -> Sequence[Any]:
    """Checks that callbacks were given as a list or tuple."""
    if not isinstance(callbacks, list | tuple):
        raise UserError(f"callbacks = {callbacks!r:.100} is no list: give callbacks=[…].")
    return callbacks


def callback_of(callback: Any) -> Any:
    """Makes a callback of what a user gives: an object, a class that takes no arguments, or a
    function of (training, row). Refuses an object that has none of the hooks."""
    name = getattr(callback, "__name__", type(callback).__name__)
    if isinstance(callback, type):
        with told_of(f"{name}()"):
            callback = callback()
    if any(hasattr(callback, moment) for moment in MOMENTS):
        return callback
    if callable(callback):
        return EveryRow(callback, name)
    raise UserError(
        f"{name} is no callback: derive it from tenfold.Callback, or give it one of "
        f"{', '.join(MOMENTS)}; a function is called with (training, row) for every row of "
        "training metrics."
    )


# trackers

PROJECT = "tenfold"
PROJECT_VARIABLE = "TENFOLD_PROJECT"
LONGEST = 250  # characters of a setting that MLflow keeps
# as Python imports them, and as pip installs them
PACKAGES = {"wandb": "wandb", "trackio": "trackio", "mlflow": "mlflow"}
TENSORBOARD = "tensorboard"


def project() -> str:
    """The project that runs are filed under."""
    return os.environ.get(PROJECT_VARIABLE) or PROJECT


def trackers_named(text: str | Sequence[str] | None) -> tuple["Tracker", ...]:
    """The trackers of --track: names separated by commas, in Python also a list. TensorBoard's
    files are always written."""
    text, trackers = text if text is None or isinstance(text, str) else ",".join(text), []
    for name in filter(None, (text or "").split(",")):
        if name == TENSORBOARD:
            continue
        if name not in PACKAGES:
            known = ", ".join((*PACKAGES, TENSORBOARD))
            raise UserError(f"--track {name} is not known: it can be {known}.")
        if find_spec(PACKAGES[name]) is None:
            raise UserError(
                f"--track {name} needs the package {PACKAGES[name]}: pip install 'tenfold[{name}]'."
            )
        trackers.append(Tracker(name))
    if text is not None and not text.strip(","):
        raise UserError("--track is empty: name wandb, trackio, mlflow or tensorboard.")
    return tuple({one.name: one for one in trackers}.values())


@dataclass(frozen=True)
class TrackedRun:
    """What a tracking service is given about a run."""

    id: str  # the run's own, the same after a resume
    name: str
    group: str
    settings: dict[str, Any]
    folder: Path


class Tracker:
    """A callback that sends rows to a tracking service. One object may serve several runs of a
    process. It is pickled as its name."""

    def __init__(self, name: str, group: str = "") -> None:
        """`group` is the common name of runs that belong together."""
        self.name, self.group = name, group
        self.open: dict[Path, Any] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return Tracker, (self.name, self.group)

    def on_start(self, training: Any) -> None:
        about = tracked_run(training, self.group)
        with self.forgiving(training, "begun"):
            client = CLIENTS[self.name](about)
            self.open[training.path] = client
            training.display.say(f"tracked by {self.name}: {client.where}")

    def on_log(self, training: Any, row: dict[str, Any]) -> None:
        self.send(training, row)

    def on_evaluate(self, training: Any, row: dict[str, Any]) -> None:
        self.send(training, row)

    def send(self, training: Any, row: dict[str, Any]) -> None:
        client = self.open.get(training.path)
        if client:
            with self.forgiving(training, "sent to"):
                client.log(scalars(row), row["step"])

    def on_end(self, training: Any) -> None:
        client = self.open.pop(training.path, None)
        if client:
            finished = training.step >= training.run.steps
            with self.forgiving(training, "ended"):
                client.close(finished)

    @contextlib.contextmanager
    def forgiving(self, training: Any, what: str) -> Iterator[None]:
        """An error of the client ends its tracking, not the run. The client's output is
        discarded."""
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                yield
        except Exception as error:
            self.open.pop(training.path, None)
            training.display.say(
                f"Warning: {self.name} could not be {what} ({described(error)}); training goes on "
                "without it.",
                always=True,
            )


def tracked_run(training: Any, group: str) -> TrackedRun:
    path: Path = training.path
    many = group or (path.absolute().parent.name if is_seeds(path.parent) else "")
    name = f"{many}/{path.name}" if many else path.name
    return TrackedRun(training.checkpoints.folder.id, name, many, to_mapping(training.run), path)


# the clients


class Wandb:
    """Weights & Biases. Without a login it writes RUN/wandb, which `wandb sync` sends later."""

    def __init__(self, run: TrackedRun) -> None:
        wandb: Any = import_module("wandb")
        mode = os.environ.get("WANDB_MODE") or ("online" if logged_in() else "offline")
        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or project(),
            name=run.name,
            group=run.group or None,
            id=run.id,
            resume="allow",
            config=run.settings,
            dir=str(run.folder),
            mode=mode,
            reinit="create_new",
            # this terminal is the run's, and its words are in no file but its own
            settings=wandb.Settings(console="off", silent=True),
        )
        # a resume goes back to its checkpoint: then the client's own counter would refuse rows
        self.run.define_metric("*", step_metric="step")
        offline = f"offline in {run.folder / 'wandb'}, `wandb sync` sends it"
        self.where = offline if mode == "offline" else self.run.url

    def log(self, numbers: dict[str, float], step: int) -> None:
        self.run.log({**numbers, "step": step})

    def close(self, finished: bool) -> None:
        self.run.finish()


def logged_in() -> bool:
    """Whether `wandb login` has stored a key or the environment has one; the user is never
    prompted."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    with contextlib.suppress(OSError, NetrcParseError):
        return any("wandb" in host for host in netrc().hosts)
    return False


class Trackio:
    """Trackio: its local database, unless its environment variables name a Space or a server."""

    def __init__(self, run: TrackedRun) -> None:
        trackio: Any = import_module("trackio")
        self.run = trackio.init(
            project=project(),
            name=run.name,
            group=run.group or None,
            config=run.settings,
            resume="allow",
            embed=False,
        )
        # that is one for a process, which the next run would end, and the process's end again
        trackio.context_vars.current_run.set(None)
        self.where = f"project {project()}, `trackio show --project {project()}` shows it"

    def log(self, numbers: dict[str, float], step: int) -> None:
        self.run.log(numbers, step=step)

    def close(self, finished: bool) -> None:
        self.run.finish()


class Mlflow:
    """MLflow, wherever MLFLOW_TRACKING_URI says; without it into ./mlflow.db."""

    def __init__(self, run: TrackedRun) -> None:
        mlflow: Any = import_module("mlflow")
        entities: Any = import_module("mlflow.entities")
        self.metric, self.param = entities.Metric, entities.Param
        self.client = mlflow.MlflowClient()
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or project()
        existing = self.client.get_experiment_by_name(name)
        experiment = existing.experiment_id if existing else self.client.create_experiment(name)
        same = self.client.search_runs([experiment], f"tags.`tenfold.id` = '{run.id}'")
        if same:
            self.id = same[0].info.run_id
            self.client.update_run(self.id, status="RUNNING")
        else:
            tags = {"tenfold.id": run.id, "tenfold.group": run.group}
            self.id = self.client.create_run(experiment, run_name=run.name, tags=tags).info.run_id
            settings = dotted(run.settings).items()
            values = [self.param(key, show(value)[:LONGEST]) for key, value in settings]
            self.client.log_batch(self.id, params=values)
        self.where = f"experiment {name} at {mlflow.get_tracking_uri()}"

    def log(self, numbers: dict[str, float], step: int) -> None:
        now = int(time.time() * 1000)
        every = [self.metric(fit(name), value, now, step) for name, value in numbers.items()]
        self.client.log_batch(self.id, metrics=every)

    def close(self, finished: bool) -> None:
        self.client.set_terminated(self.id, status="FINISHED" if finished else "KILLED")


def fit(name: str) -> str:
    """A metric's name with only the characters that MLflow allows."""
    return "".join(letter if letter.isalnum() or letter in "_-./ " else "_" for letter in name)


CLIENTS: dict[str, Callable[[TrackedRun], Any]] = {
    "wandb": Wandb,
    "trackio": Trackio,
    "mlflow": Mlflow,
}

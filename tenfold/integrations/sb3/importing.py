"""A run made of a model that Stable-Baselines3 saved, or that we saved in its place: evaluated,
resumed and exported as any other."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tenfold.config.notation import merge, show
from tenfold.config.run import Run
from tenfold.config.schema import Count, convert, to_mapping
from tenfold.core.errors import UserError
from tenfold.envs.making import make_env, resolve_paths
from tenfold.integrations.sb3.saved_model import SavedModel, interpret
from tenfold.integrations.sb3.saved_settings import require_sizes, translation_of
from tenfold.integrations.sb3.saving import give_model
from tenfold.integrations.sb3.signatures import CONSTRUCTORS
from tenfold.integrations.sb3.zip_file import read_model
from tenfold.runs.checkpoint import Checkpoints
from tenfold.runs.folder import RunFolder, destination, require_place
from tenfold.runs.metrics import Metrics
from tenfold.training.learners import check_resources, open_learner


@dataclass(frozen=True)
class ImportedRun:
    """A new run's folder, its settings, and what is not the same as in the file."""

    path: Path
    run: Run
    class_name: str
    step: int
    notes: list[str]


def import_model(
    model: str | Path,
    env: str,
    out: str | Path = "",
    overwrite: bool = False,
    settings: Mapping[str, Any] | None = None,
) -> ImportedRun:
    """Makes a run of a model's file, which `env` names the environment of: it stands at the step at
    which it was saved. `settings` are others than the file's."""
    saved = interpret(read_model(model))
    target = destination(out, Path(model).stem, overwrite)
    require_place(target, overwrite)
    run, notes = run_of(saved, env, settings or {})
    one_env = make_env(run.env)
    try:
        saved.require_spaces(one_env.observation_space, one_env.action_space)
        require_sizes(saved, one_env.observation_space, one_env.action_space)
    finally:
        one_env.close()
    check_resources(run)
    step = saved.step
    with open_learner(run, quiet=True) as learner:
        give_model(saved, learner.agent)
        counted: Any = learner
        counted.step, counted.rounds = step, step // run.lanes
        if counted.engine:
            counted.engine.load_state(counted.engine.state())
        about = {
            "run": f"Stable-Baselines3 {saved.file.version}, {saved.class_name}".replace(" ,", ","),
            "path": str(Path(model).absolute()),
            "checkpoint": "last",
            "step": step,
        }
        with RunFolder.create(target, run, overwrite, about) as folder:
            metrics = Metrics(folder, step=step)
            note = {
                "metrics_bytes": metrics.flush(),
                "seconds": 0.0,
                "best": None,
                "owes_evaluation": False,
                "settings": to_mapping(run),
            }
            Checkpoints(folder, run.keep).save(learner, note)
            metrics.close()
    return ImportedRun(folder.path, run, saved.class_name, step, notes)


def run_of(saved: SavedModel, env: str, settings: Mapping[str, Any]) -> tuple[Run, list[str]]:
    """The settings of a run that goes on with a model, and what there is to say of them."""
    num_envs = convert(settings.get("num_envs") or saved.num_envs, Count, "num_envs")
    translation = translation_of(saved, num_envs)
    step = saved.step
    theirs = merge(translation.settings, {"env": resolve_paths(env), "steps": max(step, 1)})
    notes = [*unread_notes(saved, translation.agent), *translation.differences]
    if starts := translation.agent.get("learning_starts"):
        theirs = merge(theirs, {"agent": {"learning_starts": step + starts}})
        notes.append(
            f"the file holds no replay memory: going on, it is filled with {starts:,} steps first "
            f"(agent.learning_starts = {step + starts:,})"
        )
    run = Run.of(merge(theirs, settings))
    if run.steps < step:
        raise UserError(
            f"--steps {run.steps:,} is less than the model's {step:,}: give more, or leave it out."
        )
    return replace(run, env=resolve_paths(run.env)), notes


def unread_notes(saved: SavedModel, agent: Mapping[str, Any]) -> list[str]:
    """Of arguments that only a pickle says, with what is taken in their place."""
    ours = {"learning_rate": "lr", "clip_range": "clip", "train_freq": "every"}
    notes = []
    for name in saved.unread:
        flag = f": give --agent.{ours[name]}" if name in ours else ""
        usual = show(CONSTRUCTORS[saved.class_name][name])
        why = "" if name == "train_freq" else " was a function or an object and"
        notes.append(
            f"{name}{why} is not read from the file, and {usual} is taken{flag or ''}"
            + (" if it was another one" if flag else "")
        )
    return notes

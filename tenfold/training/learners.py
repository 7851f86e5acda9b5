"""Learners: checks of threads, device and memory, compilation, restoring a checkpoint; and the
trained agent of a run."""

import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tenfold.config.changes import STATE_HOLDERS, changes_in_words
from tenfold.config.files import Trust
from tenfold.config.notation import show
from tenfold.config.run import Run
from tenfold.core.errors import CheckpointError, ConfigError, EnvironmentFault, Obstacle, UserError
from tenfold.core.masks import refuse_unread
from tenfold.core.processes import refuse_in_child
from tenfold.core.protocols import Learner
from tenfold.core.registry import OBSTACLES, algorithm, algorithms
from tenfold.core.system import require_memory, set_threads
from tenfold.core.threads import UPDATES, set_team_limit
from tenfold.core.user_envs import lend
from tenfold.envs.making import spec_of
from tenfold.envs.tensor_sources import is_tensors
from tenfold.ops.mlp import parameter_count
from tenfold.runs.archive import opened
from tenfold.runs.checkpoint import Checkpoints, nested_state
from tenfold.runs.folder import RunFolder
from tenfold.runs.storage import Arrays


def make_learner(run: Run) -> Learner:
    kind = algorithm(run.agent.name)
    if not is_tensors(run.env):
        return kind.make_learner(run)
    if not kind.tensor_engines:
        able = [name for name, one in algorithms().items() if one.tensor_engines]
        raise ConfigError(
            "agent",
            f"= {run.agent.name} is not for environments of tensors, such as {run.env}: train "
            f"{', '.join(able)}.",
        )
    return kind.make_tensor_learner(run)


def agent_of(run: Run) -> Any:
    """The untrained agent of a run, on the CPU."""
    kind, run = algorithm(run.agent.name), replace(run, device="cpu")
    if (agent := kind.untrained(run)) is not None:
        return agent
    spec = spec_of(run.world, kind.reads_masks, run.stacked)
    refuse_unread(spec, f"agent {run.agent.name}", kind.reads_masks)
    return kind.make_agent(run, spec)


@dataclass(frozen=True)
class Trained:
    """A run's agent from a checkpoint, and the step at which that was saved."""

    folder: RunFolder
    run: Run
    agent: Any
    step: int


def load(path: Any, checkpoint: str | int = "last", env: Any = None, trust: Trust = False) -> Any:
    """The trained agent of a run, ready to act. `path` is the run's folder or archive, or what
    `ten.train` returned; `checkpoint` is last, best or a step; `env` is the run's environment
    again, where it was an object or a function; `trust` allows modules that somebody else's run
    names to be imported."""
    with opened(Path(getattr(path, "path", path))) as folder:
        return load_run(folder, str(checkpoint), env, trust).agent


def load_run(
    path: Path, checkpoint: str = "last", env: Any = None, trust: Trust = False
) -> Trained:
    """As `load`, but also returns the folder, the settings and the step."""
    folder, run = RunFolder.open(path, trust)
    lend(run.env, env)
    state, step = Checkpoints(folder, run.keep).policy(checkpoint)
    return Trained(folder, run, agent_with(state, run, path), step)


def agent_with(state: dict[str, torch.Tensor], run: Run, path: Path) -> Any:
    """The agent of a run, on the CPU, with the parameters of a checkpoint below `path`."""
    # before an agent is made: settings of a stranger may ask for more than there is memory
    least, saved = least_parameters(run), state["online"].numel()
    agent = agent_of(run) if least <= saved else None
    if agent is None or state["online"].shape != agent.online.flat.shape:
        expected = f"{least:,} or more" if agent is None else f"{agent.online.flat.numel():,}"
        raise CheckpointError(
            f"The checkpoint of {path} holds {saved:,} parameters and its settings ask for "
            f"{expected}: config.yaml was changed after training."
        )
    require_types(path, agent.policy_state(), state)
    try:
        agent.load_policy(state)
    except CheckpointError as error:
        raise CheckpointError(f"The checkpoint of {path} {error}") from None
    except (UserError, LookupError, ValueError, TypeError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise CheckpointError(
            f"The checkpoint of {path} holds something else than its settings ask for "
            f"({type(error).__name__}: {reason})."
        ) from None
    return agent


def require_types(path: Path, expected_state: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    """Refuses parameters of another dtype: converting them would change the policy."""
    for name in expected_state.keys() & state.keys():
        kinds = [str(getattr(values[name], "dtype", "")) for values in (state, expected_state)]
        kind, expected = (kind.removeprefix("torch.") for kind in kinds)
        if kind != expected and name.startswith(("online", "norm_", "buffer.")):
            raise CheckpointError(
                f"The checkpoint of {path} holds {name} as {kind} and not as {expected}: tenfold "
                "did not write it like that."
            )


def least_parameters(run: Run) -> int:
    """A lower bound of the number of parameters, from the hidden layers alone."""
    settings: Any = run.agent
    networks = algorithm(run.agent.name).hidden_layers(settings)
    if not networks or settings.net.module:
        return 0
    return sum(map(parameter_count, networks))


COPIES = 5  # of the parameters while they are learned: online, target, gradient, Adam's two moments
NOTICE_AFTER = 1.5  # seconds of silence while kernels load; compiling them takes longer


def check_resources(run: Run) -> None:
    refuse_in_child()
    set_threads(run.threads)
    set_team_limit(run.env_threads)
    set_team_limit(run.threads, UPDATES)
    if run.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device", "= cuda, but PyTorch sees no CUDA device here: use cpu.")
    if run.device != "cuda":
        require_networks(run)


def require_networks(run: Run) -> None:
    """Refuses hidden layers that do not fit into memory: otherwise the kernel would kill the
    process without a message."""
    settings: Any = run.agent
    networks = algorithm(run.agent.name).hidden_layers(settings)
    if not networks:
        return
    count = sum(map(parameter_count, networks))
    try:
        require_memory(count * COPIES * 4)
    except UserError:
        raise ConfigError(
            "agent.net.hidden",
            f"= {show(settings.net.hidden)} makes {count:,} parameters, for whose learning "
            f"{count * COPIES * 4:,} bytes are needed, more than are free: make the layers "
            "narrower.",
        ) from None


@contextmanager
def open_learner(run: Run, quiet: bool, initial: Any = None) -> Iterator[Learner]:
    """The learner of a run, with its kernels compiled. Closes environments and actors at the end,
    whatever happens. `initial` are weights to start from (`training.loop`)."""
    learner = make_learner(run)
    try:
        if initial:
            initial.give(learner)
        warm_up(learner, quiet)
    except Obstacle as obstacle:
        learner.close()
        name = learner.description.name
        if run.engine != "auto":
            raise ConfigError("engine", f"= {name} does not fit: {obstacle}; use auto.") from None
        OBSTACLES[name] = str(obstacle)
        with open_learner(run, quiet, initial) as another:  # by the next engine, which says why
            yield another
        return
    except BaseException:
        learner.close()
        raise
    try:
        yield learner
    finally:
        learner.close()


def warm_up(learner: Learner, quiet: bool) -> None:
    """Compiles the engine's kernels, and prints a notice where that takes long."""
    notice = threading.Timer(
        NOTICE_AFTER,
        lambda: quiet or print("compiling kernels, once …", file=sys.stderr, flush=True),
    )
    notice.daemon = True
    notice.start()
    try:
        learner.warm_up()
    finally:
        notice.cancel()


class SettingsMismatch(UserError):
    """An intact checkpoint that does not fit the changed settings. The run's files were not
    touched."""


class CheckpointMismatch(CheckpointError):
    """An intact checkpoint file that the run cannot resume from."""

    def __init__(self, path: Path, sentence: str) -> None:
        super().__init__(f"{path} is damaged: {sentence}")
        self.path = path


def restore_checkpoint(
    learner: Learner,
    checkpoints: Checkpoints,
    arrays: Arrays,
    rows: list[Arrays] | None,
    note: dict[str, Any],
) -> bool:
    """Restores a checkpoint into the learner. Returns False if the environments could not be
    restored exactly. Raises CheckpointMismatch if it is not one of this run's, whatever its
    digest says, and SettingsMismatch if that may be due to changed settings or another engine."""
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
        refuse_other_holder(learner, checkpoints, note, str(error).rstrip("."))
        raise CheckpointMismatch(path, str(error)) from None
    except (
        UserError,
        LookupError,
        ValueError,
        TypeError,
        AttributeError,
        RuntimeError,
        OverflowError,
    ) as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        refuse_other_holder(learner, checkpoints, note, reason)
        raise CheckpointMismatch(
            path, f"what it holds is not what this run saves ({reason})."
        ) from None
    if wrong:
        refuse_other_holder(learner, checkpoints, note, "its counters differ")
        raise CheckpointMismatch(path, "its note does not tell of what it holds.")
    return exact


def refuse_other_holder(
    learner: Learner, checkpoints: Checkpoints, note: dict[str, Any], why: str
) -> None:
    """Raises SettingsMismatch where a checkpoint does not fit changed settings, or another engine
    than this machine chooses: then it is not damaged."""
    folder = checkpoints.folder
    changed = {name: values for name, values in note["changed"].items() if name in STATE_HOLDERS}
    if changed:
        raise SettingsMismatch(
            f"{folder.path} cannot go on with {changes_in_words(changed)}: its checkpoint does not "
            f"fit that ({why}); nothing was changed, resume it as it was."
        )
    before = (folder.about.get("sessions") or [{"engine": ""}])[-1]["engine"].partition(",")[0]
    now = learner.description.engine.partition(",")[0]
    if before not in ("", now):
        raise SettingsMismatch(
            f"{folder.path} was trained by engine {before}, and here {now} is chosen, which its "
            f"checkpoint does not fit ({why}); nothing was changed, resume it with --engine "
            f"{before}, or where it was trained."
        )

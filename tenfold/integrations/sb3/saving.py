"""A model's file written, with Stable-Baselines3 by its own function, without it in our own form;
a model's weights given to an agent; replay memory as a file."""

from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from tenfold.core.errors import CheckpointError, UserError
from tenfold.integrations.sb3.parameters import NamedParameters
from tenfold.integrations.sb3.policy_object import policy_class
from tenfold.integrations.sb3.saved_model import SavedModel
from tenfold.integrations.sb3.zip_file import MissingFile, Source, write_ours
from tenfold.runs.storage import Arrays, read_arrays, write_arrays

SPACES = ("observation_space", "action_space")


def give_model(saved: SavedModel, agent: Any) -> None:
    """Weights, moments and counts of a file into an agent whose networks are alike."""
    named = NamedParameters(agent)
    named.load(saved.file.parameters)
    named.load_variables(saved.file.variables)
    if len(agent.count) > 1:  # of ppo: epochs begun, which it counts as updates
        agent.count[1] = int(saved.counters.get("_n_updates", 0))


def zip_path(target: Any) -> Any:
    """The path with `.zip` where it has no suffix, its folder made; an open file as it is."""
    if not isinstance(target, str | Path):
        return target
    path = Path(target)
    path = path if path.suffix else path.with_name(f"{path.name}.zip")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def save_model(
    target: Source,
    class_name: str,
    agent: Any,
    attributes: Mapping[str, Any],
    policy: Any = "MlpPolicy",
    exclude: Iterable[str] = (),
    include: Iterable[str] = (),
) -> None:
    """Writes the file of a model. `attributes` are its constructor's arguments, the spaces and
    counters; `exclude` leaves some of them out, but for those of `include`."""
    left_out = set(exclude) - set(include)
    saved_attributes = {name: value for name, value in attributes.items() if name not in left_out}
    named = NamedParameters(agent)
    lr = saved_attributes.get("learning_rate")
    parameters = named.all(lr if isinstance(lr, float) else None)
    path = zip_path(target)
    if find_spec("stable_baselines3") is None:
        write_ours(
            path, class_name, plain_attributes(saved_attributes), parameters, named.variables()
        )
        return
    from stable_baselines3.common.save_util import (  # pyright: ignore[reportMissingImports]
        save_to_zip_file,
    )

    saved_attributes["policy_class"] = policy_class(class_name, policy)
    save_to_zip_file(path, saved_attributes, parameters, named.variables())


def plain_attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """As JSON holds them; of what it cannot hold the kind is told, and of spaces all."""
    return {
        name: described_space(value) if isinstance(value, gym.Space) else plain_value(value)
        for name, value in attributes.items()
    }


def plain_value(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [plain_value(one) for one in value]
    if isinstance(value, Mapping):
        return {str(name): plain_value(one) for name, one in value.items()}
    if isinstance(value, type):
        return f"<class '{value.__module__}.{value.__qualname__}'>"
    return {":type:": str(type(value))}


def described_space(space: gym.Space[Any]) -> dict[str, Any]:
    """A space in the words of `saved_spaces`, every number in full."""
    kind = type(space)
    table: dict[str, Any] = {":type:": f"<class '{kind.__module__}.{kind.__name__}'>"}
    table |= {"_shape": list(space.shape or ()), "dtype": str(space.dtype)}
    arrays = {spaces.Box: ("low", "high"), spaces.MultiDiscrete: ("nvec", "start")}
    for name in arrays.get(kind, ()):
        table[name] = " ".join(map(str, np.ravel(getattr(space, name)).tolist()))
    if isinstance(space, spaces.Discrete):
        table |= {"n": str(space.n), "start": str(space.start)}
    return table


# replay memory


def replay_path(target: Any, suffix: str = ".pkl") -> Path:
    """The path of a memory's file, with the suffix that Stable-Baselines3 adds."""
    if not isinstance(target, str | Path):
        raise UserError("A replay memory is saved into a file: give its path.")
    path = Path(target)
    return path if path.suffix else path.with_name(f"{path.name}{suffix}")


def save_replay(target: Any, learner: Any) -> None:
    """Writes a learner's replay memory as tensors; nothing in it is pickled."""
    path, replay = replay_path(target), require_replay(learner)
    path.parent.mkdir(parents=True, exist_ok=True)
    state = {f"state.{name}": array for name, array in replay.state().items()}
    rows = {f"rows.{name}": array for name, array in replay.written(0 * replay.head).items()}
    write_arrays(path, state | rows, {})


def load_replay(source: Any, learner: Any) -> None:
    """Puts a saved replay memory into a learner of the same spaces, capacity and environments.
    Episodes that were running go on nowhere."""
    path, replay = replay_path(source), require_replay(learner)
    if not path.is_file():
        raise MissingFile(f"{path} does not exist: give the path of a saved replay memory.")
    arrays = arrays_of(path)
    rows, state = (within(arrays, part) for part in ("rows", "state"))
    require_alike(path, replay, rows, state)
    learner.load_rows(rows)
    replay.load_state(state)
    learner.forget()


def within(arrays: Arrays, part: str) -> Arrays:
    return {
        name.partition(".")[2]: array
        for name, array in arrays.items()
        if name.partition(".")[0] == part
    }


def require_replay(learner: Any) -> Any:
    replay = getattr(learner, "replay", None)
    if replay is None:
        raise UserError("This model has no replay memory: only DQN, QRDQN, SAC, TD3 and DDPG do.")
    return replay


def require_alike(path: Path, replay: Any, rows: Arrays, state: Arrays) -> None:
    """Refuses a memory of another form."""
    for name, array in replay.state().items():
        if name not in state or state[name].shape != array.shape:
            raise CheckpointError(
                f"{path} holds a replay memory of another size: buffer_size and the number of "
                "environments must be those that it was saved with."
            )
    row_indices = rows.get("place", np.zeros(0, np.int64))
    for name in replay.stored:
        stored = getattr(replay, name)
        fits = name in rows and rows[name].shape == (len(row_indices), *stored.shape[1:])
        if not fits or rows[name].dtype != stored.dtype:
            raise CheckpointError(f"{path} holds {name} of other spaces than this model's.")
    if len(row_indices) and not 0 <= row_indices.min() <= row_indices.max() < len(replay.obs):
        raise CheckpointError(f"{path} is damaged: it holds rows that there are not.")


def arrays_of(path: Path) -> Arrays:
    try:
        return read_arrays(path)[0]
    except CheckpointError:
        with path.open("rb") as file:
            first = file.read(1)
        if first != b"\x80":  # which pickles begin with
            raise
        raise UserError(
            f"{path} is a pickle, as Stable-Baselines3 saves a replay buffer, and running those is "
            "what tenfold does not do: fill a new memory, or load one that tenfold saved."
        ) from None

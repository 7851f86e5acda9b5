"""What a model of Stable-Baselines3's interface does with files and parameters: `save`, `load`,
`get_parameters`, `set_parameters`, its replay memory's files, `policy`."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from tenfold.core.errors import ConfigError, UserError
from tenfold.integrations.sb3.parameters import NamedParameters
from tenfold.integrations.sb3.policy_object import LinkedPolicy, make_policy
from tenfold.integrations.sb3.saved_model import SavedModel, interpret
from tenfold.integrations.sb3.saved_settings import require_sizes
from tenfold.integrations.sb3.saving import give_model, save_model, save_replay
from tenfold.integrations.sb3.signatures import CONSTRUCTORS
from tenfold.integrations.sb3.zip_file import Source, read_model
from tenfold.runs.file_schema import SHARE

# classes that read one another's files
FAMILIES = (("PPO", "MaskablePPO"), ("TD3", "DDPG"))
COUNTERS = (
    "num_timesteps",
    "_total_timesteps",
    "_num_timesteps_at_start",
    "_episode_num",
    "n_envs",
)
NOT_SAVED = ("device", "_init_setup_model")


def get_parameters(model: Any) -> dict[str, dict[str, Any]]:
    """State dicts of the policy and its optimisers, by their names."""
    return NamedParameters(synced(model)).all(model.current_lr())


def set_parameters(
    model: Any,
    load_path_or_dict: Source | Mapping[str, Any],
    exact_match: bool = True,
    device: Any = "auto",
) -> None:
    """Takes parameters from such a dict, or from a model's file. With `exact_match` every object
    and every tensor must be there."""
    parameters = load_path_or_dict
    if not isinstance(parameters, Mapping):
        parameters = read_model(parameters).parameters
    NamedParameters(synced(model)).load(parameters, exact_match)
    weights_changed(model)


def synced(model: Any) -> Any:
    """The agent, with what was changed through the policy object."""
    if model.linked is not None:
        model.linked.sync()
    return model.agent


def weights_changed(model: Any) -> None:
    """Whoever has a copy of the weights is sent them."""
    if model.linked is not None:
        model.linked.bind()
    if model.learner is not None:
        model.learner.engine.load_state(model.learner.engine.state())


# files


def save(
    model: Any,
    path: Source,
    exclude: Iterable[str] | None = None,
    include: Iterable[str] | None = None,
) -> None:
    """Writes the model into a zip file: Stable-Baselines3's where that is installed, which its
    `load` reads, else one of the same name that only tenfold reads."""
    attributes = attributes_of(model)
    policy = model.policy_name
    agent = synced(model)
    save_model(path, model.class_name, agent, attributes, policy, exclude or (), include or ())


def attributes_of(model: Any) -> dict[str, Any]:
    """What Stable-Baselines3's model of the class has as attributes."""
    attributes = {
        name: getattr(model, name) for name in model.argument_names if name not in NOT_SAVED
    }
    attributes |= {name: getattr(model, name) for name in COUNTERS if hasattr(model, name)}
    for name in ("rollout_buffer_kwargs", "replay_buffer_kwargs"):
        if name in attributes:
            attributes[name] = attributes[name] or {}
    attributes["policy_kwargs"] = policy_kwargs_of(model)
    attributes["_n_updates"] = model._n_updates
    attributes["observation_space"] = model.observation_space
    attributes["action_space"] = model.action_space
    if attributes.get("target_entropy") == "auto":  # it asks the environment for it otherwise
        attributes["target_entropy"] = -float(math.prod(model.action_space.shape))
    if hasattr(model, "exploration_rate"):
        attributes["exploration_rate"] = model.exploration_rate
    return attributes


def policy_kwargs_of(model: Any) -> dict[str, Any]:
    """Its constructors add to what they are given."""
    kwargs = dict(model.policy_kwargs or {})
    if model.class_name == "DDPG":
        kwargs.setdefault("n_critics", 1)
    if model.class_name == "QRDQN" and "optimizer_class" not in kwargs:
        kwargs |= {"optimizer_class": torch.optim.Adam}
        kwargs["optimizer_kwargs"] = {"eps": model.agent.config.adam_eps}
    return kwargs


def load(
    cls: Any,
    path: Source,
    env: Any = None,
    device: Any = "auto",
    custom_objects: Mapping[str, Any] | None = None,
    print_system_info: bool = False,
    force_reset: bool = True,
    **kwargs: Any,
) -> Any:
    """A model from its file, which Stable-Baselines3 or tenfold wrote. `custom_objects` and further
    arguments stand in for what the file says; no pickle in it is opened."""
    saved = interpret(read_model(path))
    require_class(saved, cls.class_name)
    if print_system_info:
        print(f"{saved.file.name}: Stable-Baselines3 {saved.file.version or '(none)'}")
    defaults = CONSTRUCTORS[cls.class_name]
    known = {name: value for name, value in saved.arguments.items() if name in defaults}
    instead = {name: one for name, one in (custom_objects or {}).items() if name in defaults}
    instead |= {name: one for name, one in kwargs.items() if name in defaults}
    if "policy_kwargs" in kwargs and kwargs["policy_kwargs"] != known.get("policy_kwargs", {}):
        raise ConfigError(
            "policy_kwargs",
            f"= {kwargs['policy_kwargs']} do not equal the stored policy kwargs, "
            f"{known.get('policy_kwargs', {})}: leave them out.",
        )
    kinds = {"verbose": int, "seed": int, "tensorboard_log": str}
    plain = {name: saved.file.attributes.get(name) for name in kinds}
    plain = {name: value for name, value in plain.items() if type(value) is kinds[name]}
    arguments = {**plain, **known, **instead, "device": device}
    model = cls(policy_in(saved), None, **arguments, _init_setup_model=False)
    model.unread_arguments = tuple(name for name in saved.unread if name not in instead)
    put_spaces(model, saved, env)
    require_sizes(saved, model.observation_space, model.action_space)
    model._setup_model()
    give_model(saved, model.agent)
    for name in COUNTERS[:-1]:
        setattr(model, name, saved.counters.get(name, 0))
    rate = saved.file.attributes.get("exploration_rate")
    if hasattr(model, "exploration_rate") and SHARE.fits(rate):
        model.exploration_rate = rate
    for name, value in kwargs.items():
        if name not in defaults:
            if not hasattr(model, name):
                raise ConfigError(name, f"is no attribute of {cls.class_name}: leave it out.")
            setattr(model, name, value)
    return model


def require_class(saved: SavedModel, class_name: str) -> None:
    alike = next((family for family in FAMILIES if class_name in family), (class_name,))
    if saved.class_name not in alike:
        raise UserError(
            f"{saved.file.name} is a model of {saved.class_name}: load it by "
            f"{saved.class_name}.load."
        )


def policy_in(saved: SavedModel) -> str:
    if saved.class_name == "RecurrentPPO":
        return "MlpLstmPolicy"
    kind = saved.file.attributes.get("observation_space")
    several = isinstance(kind, Mapping) and ".Dict'" in str(kind.get(":type:"))
    return "MultiInputPolicy" if several else "MlpPolicy"


def put_spaces(model: Any, saved: SavedModel, env: Any) -> None:
    """Those of the environment, which must be the file's; without one the file's."""
    if env is None:
        model.take_spaces(*saved.spaces)
        model.n_envs = saved.num_envs
        return
    model.take_new_env(env)
    saved.require_spaces(model.observation_space, model.action_space)


def require_read(model: Any) -> None:
    """Before a model learns: refuses arguments that its file had in a pickle alone."""
    for name in getattr(model, "unread_arguments", ()):
        why = "" if name == "train_freq" else "was a function or an object and "
        raise ConfigError(
            name, f"{why}is not read from the file: give {name}=… to {model.class_name}.load."
        )


def save_replay_buffer(model: Any, path: Any) -> None:
    """Writes the replay memory as tensors."""
    if model.learner is None:
        raise UserError("There is no replay memory yet: it is made when the model learns.")
    save_replay(path, model.learner)


# the policy object


def policy_of(model: Any) -> Any:
    """Stable-Baselines3's own policy, on the weights that are trained here."""
    if model.linked is None:
        spaces = model.observation_space, model.action_space
        new_policy = make_policy(
            model.class_name, model.policy_name, spaces, model.current_lr(), policy_kwargs_of(model)
        )
        model.linked = LinkedPolicy(model.agent, new_policy)
    model.linked.sync()
    return model.linked.policy if model.linked.compiled is None else model.linked.compiled


def put_policy(model: Any, policy: Any) -> None:
    """The same policy by `torch.compile`."""
    original = getattr(policy, "_orig_mod", policy)
    if model.linked is None or original is not model.linked.policy:
        raise ConfigError(
            "policy",
            "is the model's own: change its weights by set_parameters, or give "
            "torch.compile(model.policy).",
        )
    model.linked.compiled = None if policy is original else policy

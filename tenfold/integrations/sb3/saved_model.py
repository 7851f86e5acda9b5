"""What a model's file says, in the words of Stable-Baselines3's constructors: class, arguments,
spaces and counters."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import torch
from torch import nn

from tenfold.core.errors import UserError
from tenfold.integrations.sb3.saved_spaces import UnreadSpace, require_same_space, saved_space
from tenfold.integrations.sb3.signatures import CONSTRUCTORS
from tenfold.integrations.sb3.zip_file import ModelFile
from tenfold.runs.archive import quoted
from tenfold.runs.file_schema import WHOLE

COUNTERS = (
    "num_timesteps",
    "_total_timesteps",
    "_n_updates",
    "_n_calls",
    "_episode_num",
    "n_envs",
)
MOST_ENVS = 4096  # which a file may ask for
LONGEST_FREQ = 1001  # of train_freq, which is looked for
# not arguments that a file tells
BESIDES = ("policy", "env", "device", "_init_setup_model", "tensorboard_log", "verbose", "seed")
CLASS = re.compile(r"<class '([\w.]+)'>")
CONSTANT = re.compile(r"ConstantSchedule\(val=([-+.\w]+)\)")
LINE = re.compile(r"LinearSchedule\(start=([-+.\w]+), end=([-+.\w]+), end_fraction=([-+.\w]+)\)")
# classes that policy_kwargs may name, which are torch's
TORCH_CLASSES = {
    f"{cls.__module__}.{cls.__name__}": cls
    for cls in (
        *(nn.ReLU, nn.Tanh, nn.ELU, nn.GELU, nn.SiLU, nn.SELU, nn.LeakyReLU),
        *(torch.optim.Adam, torch.optim.AdamW),
    )
}
# policies that read otherwise: a mark among the parameters' names, and what that is
OTHER_POLICIES = (
    ("features_extractor.", "a policy with a features extractor (images or several inputs)"),
    (".cnn.", "a policy of images"),
    ("running_mean", "a policy with batch normalisation (CrossQ)"),
    ("log_std_", "a policy of another kind"),
)


@dataclass(frozen=True)
class SavedModel:
    """A file's model. `unread` are arguments that stood in pickles alone, which are not read."""

    file: ModelFile
    class_name: str
    arguments: dict[str, Any]
    unread: tuple[str, ...]
    counters: dict[str, Any] = field(default_factory=dict)

    @property
    def step(self) -> int:
        return int(self.counters.get("num_timesteps", 0))

    @property
    def num_envs(self) -> int:
        """Environments that it was trained in, of as many as anybody has."""
        return min(max(int(self.counters.get("n_envs", 1)), 1), MOST_ENVS)

    def space(self, name: str) -> gym.Space[Any]:
        """`observation_space` or `action_space`."""
        return saved_space(self.file.name, name, self.file.attributes.get(name))

    @property
    def spaces(self) -> tuple[gym.Space[Any], gym.Space[Any]]:
        return self.space("observation_space"), self.space("action_space")

    def require_spaces(self, observation: gym.Space[Any], action: gym.Space[Any]) -> None:
        """Refuses an environment of other spaces, as far as the file tells them."""
        for name, here in (("observation_space", observation), ("action_space", action)):
            try:
                saved = self.space(name)
            except UnreadSpace:
                continue  # shapes of the weights are compared in any case
            require_same_space(name, saved, here)


def interpret(file: ModelFile) -> SavedModel:
    """The model of a file."""
    class_name = file.class_name or class_in(file)
    if class_name not in CONSTRUCTORS:
        raise UserError(
            f"{file.name} is a model of {quoted(class_name)}, which tenfold does not have: there "
            f"are {', '.join(CONSTRUCTORS)}."
        )
    if file.attributes.get("use_sde"):
        raise UserError(
            f"{file.name}: use_sde = True: state-dependent exploration is not in tenfold."
        )
    arguments: dict[str, Any] = {}
    unread = []
    for name in CONSTRUCTORS[class_name]:
        if name in BESIDES or name not in file.attributes:
            continue
        try:
            arguments[name] = plain(file, name, file.attributes[name])
        except KeyError:
            unread.append(name)
    counters = {name: value for name in COUNTERS if WHOLE.fits(value := file.attributes.get(name))}
    if "train_freq" in unread and (freq := train_freq_of(class_name, arguments, counters)):
        unread.remove("train_freq")
        arguments["train_freq"] = freq
    return SavedModel(file, class_name, arguments, tuple(unread), counters)


def train_freq_of(
    class_name: str, arguments: dict[str, Any], counters: dict[str, Any]
) -> int | None:
    """`train_freq`, which files have in a pickle alone, from the count of updates: the usual one or
    the only one that it fits; else None."""
    steps, envs = counters.get("num_timesteps", 0), counters.get("n_envs", 1)
    starts, per_call = arguments.get("learning_starts"), arguments.get("gradient_steps")
    if type(starts) is not int or type(per_call) is not int or per_call < 1 or not envs:
        return None
    calls, rest = divmod(counters.get("_n_updates", 0), per_call)

    def fits(freq: int) -> bool:
        between = freq * envs
        return not rest and bool(calls) and steps // between - starts // between == calls

    usual = CONSTRUCTORS[class_name]["train_freq"]
    if fits(usual):
        return usual
    others = [freq for freq in range(1, LONGEST_FREQ) if fits(freq)]
    return others[0] if len(others) == 1 else None


def class_in(file: ModelFile) -> str:
    """The class that wrote a file, which does not name it: from the parameters' names and the
    attributes."""
    names = [str(name) for name in file.parameters["policy"]]
    for mark, what in OTHER_POLICIES:
        if any(mark in name for name in names):
            raise UserError(
                f"{file.name} holds {what}, and tenfold reads MLP policies: train it anew with "
                "tenfold."
            )

    def has(*starts: str) -> bool:
        return all(any(name.startswith(start) for name in names) for start in starts)

    attributes = file.attributes
    if has("q_net.q_net."):
        return "DQN"
    if has("quantile_net.quantile_net."):
        return "QRDQN"
    if has("actor.latent_pi.", "critic.qf0."):
        return "SAC"
    if has("actor.mu.", "critic.qf0."):
        return "TD3" if has("critic.qf1.") else "DDPG"
    if has("lstm_actor."):
        return "RecurrentPPO"
    if has("action_net.") and "clip_range" in attributes:
        described = str(attributes.get("policy_class"))
        return "MaskablePPO" if "Maskable" in described else "PPO"
    if has("action_net."):
        return "TRPO" if "cg_max_steps" in attributes else "A2C"
    return "TQC" if has("critic.") else "an unknown class"


def plain(file: ModelFile, name: str, value: Any) -> Any:
    """An argument as the constructor takes it; KeyError where only a pickle says it."""
    if name == "policy_kwargs":
        return policy_kwargs(file, value)
    if not isinstance(value, dict) or ":type:" not in value:
        return value
    if name in ("replay_buffer_class", "rollout_buffer_class") and "Her" not in str(value):
        return None  # files tell the class that is taken without one
    if schedule := schedule_in(value):
        return schedule
    raise KeyError(name)


def schedule_in(table: dict[str, Any]) -> float | Callable[[float], float] | None:
    """A number or a line that is told beside its pickle."""
    text = str(table.get("value_schedule", ""))
    if constant := CONSTANT.fullmatch(text):
        return float(constant[1])
    line = LINE.fullmatch(text)
    ends = line.groups() if line else [table.get(k) for k in ("start", "end", "end_fraction")]
    try:
        return line_schedule(*(float(str(number)) for number in ends))
    except ValueError:
        return None


def line_schedule(start: float, end: float, end_fraction: float) -> Callable[[float], float]:
    """Of the progress that remains: in a straight line from `start` to `end`, which is reached
    after a fraction of the training."""

    def value(progress_remaining: float) -> float:
        share = min((1 - progress_remaining) / end_fraction, 1.0) if end_fraction else 1.0
        return start + share * (end - start)

    return value


def policy_kwargs(file: ModelFile, table: Any) -> dict[str, Any]:
    """The policy's arguments; classes are told by their names."""
    if not isinstance(table, dict):
        return {}
    kwargs = {}
    for key, value in table.items():
        if key in (":type:", ":serialized:", "device"):
            continue
        named = CLASS.fullmatch(value) if isinstance(value, str) else None
        if named and named[1] not in TORCH_CLASSES:
            raise UserError(
                f"{file.name}: policy_kwargs has {quoted(key)} = {quoted(named[1])}, a class that "
                "tenfold does not have."
            )
        kwargs[key] = TORCH_CLASSES[named[1]] if named else value
    return kwargs

"""RL-Zoo's files: the entry of an environment, as a run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tenfold.config.notation import merge, nearest, parse_number, show
from tenfold.config.run import Run
from tenfold.config.schedules import Linear
from tenfold.config.schema import NotNegative, Positive, convert, convert_scalar
from tenfold.core.errors import ConfigError
from tenfold.core.other_libraries import algorithm_elsewhere
from tenfold.core.registry import Tell
from tenfold.integrations.sb3.action_noise import NamedNoise
from tenfold.integrations.sb3.converted import refuse, short
from tenfold.integrations.sb3.literals import parse_literal
from tenfold.integrations.sb3.settings import settings_of
from tenfold.integrations.sb3.signatures import CONSTRUCTORS
from tenfold.integrations.sb3.zoo_envs import ATARI_IDS, bare_id, environment_of

CLASSES = {
    "dqn": "DQN",
    "ppo": "PPO",
    "sac": "SAC",
    "td3": "TD3",
    "ddpg": "DDPG",
    "qrdqn": "QRDQN",
    "ppo_lstm": "RecurrentPPO",
}
OFF_POLICY = ("DQN", "QRDQN", "SAC", "TD3", "DDPG")
SCHEDULES = ("learning_rate", "clip_range", "clip_range_vf")
TEXTS = ("policy_kwargs", "replay_buffer_class", "replay_buffer_kwargs", "monitor_kwargs")
NOISES = {"normal": None, "ornstein-uhlenbeck": 0.15}  # with the rate at which they return to 0
# arguments of the constructors that are RL-Zoo's own flags, and what they are here
FLAGS = {
    "env": "--env",
    "seed": "--seed",
    "device": "--device",
    "tensorboard_log": "every run writes RUN/tensorboard",
    "verbose": "--quiet",
    "_init_setup_model": "leave it out",
    "stats_window_size": "every episode is in RUN/metrics.jsonl",
}
# keys that RL-Zoo reads and that are not here
ELSEWHERE = {
    "callback": "give a callback of tenfold, --callback my_module:Mine",
    "vec_env_wrapper": "frame_stack and normalize are read",
    "monitor_kwargs": "every episode is in RUN/metrics.jsonl",
    "eval_env_kwargs": "evaluations are of env_kwargs as well",
}
# what VecNormalize has by default, and nothing else here
NORMALIZER = {
    "training": True,
    "norm_obs": True,
    "norm_reward": True,
    "clip_obs": 10.0,
    "clip_reward": 10.0,
    "epsilon": 1e-8,
    "norm_obs_keys": None,
}


def run_of(
    path: Path, content: Mapping[str, Any], change: Mapping[str, Any], tell: Tell = lambda _: None
) -> Run:
    """The run of the entry for `change["env"]`, of the algorithm `change["algo"]`. Other settings
    in `change` go over the file's: `steps` and `num_envs` as if they stood in it."""
    change, content = dict(change), {str(name): entry for name, entry in content.items()}
    algo = algorithm_of(path, change.pop("algo", None))
    imports = convert_scalar(change.pop("allow_imports", False), bool, "allow_imports")
    if "env" not in change:
        raise ConfigError("env", f"is missing: {path.name} has {', '.join(content)}.")
    env = str(change["env"])
    name = entry_name(path, content, env)
    try:
        entry = ZooEntry(content[name], CLASSES[algo], change)
        settings = entry.settings(env, imports)
    except ConfigError as error:
        raise error.within(f"{path.name}, {name}") from None
    ident = bare_id(env)
    why = "" if name == ident else f"; none is for {ident}{nearest(ident, list(content), 3)}"
    tell(f"{path}: the entry {name} for {algo}{why}.")
    for line in entry.lines:
        tell(f"  differs: {line}")
    rest = {k: v for k, v in change.items() if k not in ("env", "steps", "num_envs")}
    return Run.of(merge(settings, rest))


def algorithm_of(path: Path, algo: str | None) -> str:
    name = str(path.stem if algo is None else algo).lower()
    if name in CLASSES:
        return name
    known = ", ".join(CLASSES)
    if algo is None:
        raise ConfigError("algo", f"is missing: say whose settings {path.name} has, of {known}.")
    reason = algorithm_elsewhere(name)
    raise ConfigError(
        "algo",
        f"= {algo} is not one of {known}"
        + (f": {reason}." if reason else f"{nearest(algo, list(CLASSES))}."),
    )


def entry_name(path: Path, content: Mapping[str, Any], env: str) -> str:
    """The entry of an environment: its own, that of Atari games, or the default one."""
    ident = bare_id(env)
    if ident in content:
        return ident
    if ATARI_IDS.fullmatch(ident) and "atari" in content:
        return "atari"
    if "default" in content:
        return "default"
    raise ConfigError(
        "env",
        f"= {env} has no entry in {path.name}, which has no default either"
        f"{nearest(ident, list(content), 3)}.",
    )


class ZooEntry:
    """The keys of one entry. `lines` are sentences about what is not the same here."""

    def __init__(self, keys: Mapping[str, Any], class_name: str, change: Mapping[str, Any]) -> None:
        if not isinstance(keys, Mapping):
            refuse("", keys, "it is no entry")
        self.keys, self.class_name = dict(keys), class_name
        self.lines: list[str] = []
        for ours, theirs in (("steps", "n_timesteps"), ("num_envs", "n_envs")):
            if ours in change:
                self.keys[theirs] = change[ours]

    def settings(self, env: str, imports: bool) -> dict[str, Any]:
        """As `Run.of` reads them."""
        total = self.whole("n_timesteps", None)
        num_envs = self.whole("n_envs", 1)
        for key, answer in {**ELSEWHERE, **FLAGS}.items():
            if self.keys.get(key):
                refuse(key, self.keys[key], f"it is not read from a file: {answer}")
            self.keys.pop(key, None)
        run = self.normalizer()
        run["env"], wrapping = environment_of(
            env, self.keys.pop("env_kwargs", None), self.keys.pop("env_wrapper", None), imports
        )
        self.lines += wrapping.lines
        run |= wrapping.settings
        if frames := self.keys.pop("frame_stack", None):
            run["frames"] = convert_scalar(frames, int, "frame_stack")
            self.lines.append(
                "before the first observation of an episode its frames are that one, and not zeros"
            )
        arguments = self.arguments(total)
        converted = settings_of(self.class_name, arguments, num_envs, total)
        converted.check()
        if converted.run["steps"] != total:
            self.lines.append(
                f"steps = {converted.run['steps']:,}: whole rollouts of {converted.phase:,} steps, "
                f"which are more than {total:,}"
            )
        self.lines += converted.differences
        return merge(converted.settings, run)

    def whole(self, key: str, usual: int | None) -> int:
        value = self.keys.pop(key, usual)
        if value is None:
            raise ConfigError(key, "is missing.")
        number = convert_scalar(value, int, key)
        if number < 1:
            refuse(key, number, "it must be at least 1")
        return number

    def arguments(self, total: int) -> dict[str, Any]:
        """What is left, as the arguments of the class there."""
        arguments = self.keys
        for key in TEXTS:
            if isinstance(arguments.get(key), str):
                arguments[key] = parse_literal(arguments[key], key)
        for key in SCHEDULES:
            if isinstance(arguments.get(key), str):
                arguments[key] = schedule_of(arguments[key], key, total)
        if isinstance(limit := arguments.get("clip_range_vf"), int | float) and limit < 0:
            arguments["clip_range_vf"] = None
        if isinstance(arguments.get("train_freq"), list):
            arguments["train_freq"] = tuple(arguments["train_freq"])
        policy = arguments.get("policy")
        if isinstance(policy, str) and "." in policy:
            refuse("policy", policy, "a network of your own is net.module of tenfold")
        self.noise(arguments)
        return arguments

    def noise(self, arguments: dict[str, Any]) -> None:
        name = arguments.pop("noise_type", None)
        if name is None:
            if "noise_std" in arguments:
                refuse("noise_std", arguments["noise_std"], "noise_type is missing")
            return
        if "action_noise" not in CONSTRUCTORS[self.class_name]:
            refuse("noise_type", name, f"{self.class_name} has no noise on actions")
        rates = [rate for word, rate in NOISES.items() if word in str(name)]
        if not rates:
            refuse("noise_type", name, f"there are {' and '.join(NOISES)}")
        if "noise_std" not in arguments:
            raise ConfigError("noise_std", f"is missing beside noise_type = {name}.")
        sigma = convert(arguments.pop("noise_std"), NotNegative, "noise_std")
        arguments["action_noise"] = NamedNoise(sigma, rates[0])

    def normalizer(self) -> dict[str, Any]:
        """`normalize`: true, or the arguments of VecNormalize."""
        value = self.keys.pop("normalize", False)
        if isinstance(value, str):
            value = parse_literal(value, "normalize")
        if not isinstance(value, Mapping):
            value = {} if value is True else {"norm_obs": False, "norm_reward": False}
        gamma = self.keys.get("gamma", 0.99)
        usual = {**NORMALIZER, "gamma": gamma}
        for key, setting in value.items():
            if key not in usual:
                refuse(f"normalize.{key}", setting, "it is no argument of VecNormalize")
            if key not in ("norm_obs", "norm_reward") and setting != usual[key]:
                refuse(f"normalize.{key}", setting, f"it is {show(usual[key])} here")
        both = {**NORMALIZER, **value}
        if not both["norm_reward"]:
            reward: Any = False
        else:
            reward = "drawn" if self.class_name in OFF_POLICY else True
        return {"normalize_obs": bool(both["norm_obs"]), "normalize_reward": reward}


def schedule_of(text: str, key: str, total: int) -> Any:
    """`lin_X`: X times the progress that remains."""
    word, _, start = text.partition("_")
    if (number := parse_number(text)) is not None:
        return number
    if word != "lin":
        raise ConfigError(key, f"= {short(text)} cannot be read: write a number or lin_1e-3.")
    return Linear(convert(start, Positive, key), 0.0, total)

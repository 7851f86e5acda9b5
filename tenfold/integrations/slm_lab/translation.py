"""A spec as settings of a run: its environment, its agent, how many sessions, and in which keys the
run differs from SLM-Lab's."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tenfold.config.files import modules_beyond
from tenfold.config.notation import with_arguments
from tenfold.config.run import Run
from tenfold.config.schema import Count, convert
from tenfold.core.errors import ConfigError
from tenfold.integrations.slm_lab.agents import NAMES, agent_settings
from tenfold.integrations.slm_lab.keys import Keys, short
from tenfold.integrations.slm_lab.networks import device
from tenfold.integrations.slm_lab.spec import Spec

GAME = re.compile(r"(?:ALE/)(\w+)-v\d+|(\w+?)NoFrameskip-v\d+")
STICKY, STACKED = 0.25, 4  # of ALE's version 5, and observations that an agent sees together
# keys of meta about the machine that a spec was written for
OF_MACHINE = ("search_resources", "num_gpus", "search", "param_spec_process", "resume")


@dataclass(frozen=True)
class Translation:
    """`settings` of the run, how many `sessions` (seeds) and `trials` there are, what ends trials
    early, and sentences about keys that mean something else here."""

    settings: dict[str, Any]
    sessions: int
    trials: int
    pruner: str
    notes: tuple[str, ...]

    @property
    def run(self) -> Run:
        return Run.of(self.settings)


def translate(spec: Spec, change: Mapping[str, Any] | None = None) -> Translation:
    """Raises a ConfigError that names the first key that cannot be honoured. `change` is another
    content of the spec, as in a search."""
    keys = Keys(spec.values if change is None else change)
    keys.take("search")
    env, settings = environment(keys.group("env"))
    if modules := modules_beyond(env, [*spec.variables.values()]):
        raise ConfigError(
            "env",
            f"= {short(env)} names {modules[0]}, which is not imported because a file names it: "
            "write ${env} as its name, and give -s env=my_module:MyEnv-v0.",
        )
    meta = session_settings(keys.group("meta"))
    settings |= meta.pop("settings")
    agent = keys.group("agent")
    name = NAMES.get(str(Keys(agent.values.get("algorithm", {})).take("name")), "")
    options = discrete_options(env) if name == "sac" else None
    settings["device"] = device(Keys(agent.values.get("net", {})))
    agent.values["net"] = without_device(agent.values.get("net"))
    settings["agent"] = agent_settings(agent, settings["num_envs"], options)
    if (scale := settings.pop("reward_scale", None)) is not None:
        if name != "ppo":
            keys.group("env").refuse("reward_scale", "is for PPO: leave it out")
        settings["agent"]["reward_scale"] = scale
    keys.done()
    return Translation(settings, notes=tuple(keys.notes), **meta)


def without_device(net: Any) -> Any:
    return {k: v for k, v in net.items() if k != "gpu"} if isinstance(net, Mapping) else net


def environment(keys: Keys) -> tuple[str, dict[str, Any]]:
    """The environment's name, and the settings of the group env."""
    name = str(keys.require("name"))
    if name.startswith("playground/"):
        keys.refuse("name", "is of MuJoCo Playground, whose environments are not in tenfold")
    settings: dict[str, Any] = {
        "num_envs": keys.whole("num_envs", 1),
        "steps": keys.whole("max_frame"),
        "normalize_obs": keys.flag("normalize_obs"),
        "normalize_reward": keys.flag("normalize_reward"),
    }
    if (limit := keys.whole("max_t", None)) is not None:
        settings["max_episode_steps"] = limit
    keys.flag("scale_obs")  # images are divided by 255 in any case
    if keys.take("frame_op") not in (None, "stack", "concat"):
        keys.refuse("frame_op", "is not in tenfold: use stack")
    frames = keys.whole("frame_op_len", None)
    scale = keys.take("reward_scale")
    if scale == "sign":
        settings["clip_reward"] = "sign"
    elif scale is not None:
        settings["reward_scale"] = keys.number("reward_scale")
    if game := GAME.fullmatch(name):
        name, frames = atari(keys, game[1] or game[2]), frames or STACKED
        settings.pop("clip_reward", None)  # the game's are clipped already
    elif keys.flag("life_loss_info"):
        keys.refuse("life_loss_info", "is for Atari games")
    if frames and frames > 1:
        settings["frames"] = frames
    # all others are arguments of the environment
    more = {key: keys.take(key) for key in [*keys.unread] if keys.values[key] is not None}
    settings["env"] = with_arguments(name, more)
    keys.unread.clear()
    return settings["env"], settings


def atari(keys: Keys, game: str) -> str:
    """A game with the usual preprocessing, which is that of Gymnasium there."""
    side = keys.take("image_downsize", [84, 84])
    if side != [84, 84]:
        keys.refuse("image_downsize", "is not in tenfold, whose images have 84 x 84 pixels")
    snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", game).lower()
    arguments = {
        "game": snake,
        "sticky": keys.number("repeat_action_probability", STICKY),
        "life_ends": keys.flag("life_loss_info"),
    }
    return with_arguments("tenfold/Atari-v0", arguments)


def discrete_options(env: str) -> int | None:
    """How many actions an environment has; None where they are continuous."""
    from tenfold.envs.making import spec_of

    return getattr(spec_of(env).action_space, "n", None)


def session_settings(keys: Keys) -> dict[str, Any]:
    """The group meta."""
    if keys.take("distributed") not in (None, False):
        keys.note("distributed", "sessions are trained each for itself")
    evaluated = keys.whole("eval_frequency", None)
    rigorous = keys.take("rigorous_eval", 0)
    settings: dict[str, Any] = {}
    if every := keys.whole("log_frequency", evaluated):
        settings["log_every"] = every
    if rigorous and evaluated:
        settings["eval_every"] = evaluated
        if not isinstance(rigorous, bool):
            settings["eval_episodes"] = keys.whole("rigorous_eval")
    for name in OF_MACHINE:
        if keys.take(name) is not None:
            keys.note(name, "is of the machine, and not used")
    pruner = "none"
    if "search_scheduler" in keys:
        group = keys.group("search_scheduler")
        group.note("grace_period", "trials are pruned by evaluations, as `hyperband` does")
        for name in ("grace_period", "reduction_factor"):
            group.take(name)
        group.done()
        pruner = "hyperband"
    sessions, trials = (
        convert(keys.whole(name, 1), Count, keys.key(name)) for name in ("max_session", "max_trial")
    )
    keys.done()
    return {"settings": settings, "sessions": sessions, "trials": trials, "pruner": pruner}


def first_lines(spec: Spec, translation: Translation, run: Run) -> list[str]:
    """What a run says of its spec before it begins."""
    about = f"{spec.name} of {spec.path}: {run.agent.name} on {run.env}, {run.steps:,} frames"
    return [about, *(f"differs from SLM-Lab: {note}" for note in translation.notes)]

"""Arguments of Stable-Baselines3's classes as settings of tenfold: each means the same, or is
refused by its name.

No torch and no Stable-Baselines3 here: their classes are known by name.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from tenfold.config.notation import show
from tenfold.config.schedules import callable_table
from tenfold.config.schema import Count, Limits, NotNegative, Option, Share, Whole, convert
from tenfold.core.errors import ConfigError, told_of
from tenfold.integrations.sb3.action_noise import translate_noise
from tenfold.integrations.sb3.converted import (
    FailedAssertion,
    SB3Settings,
    all_arguments,
    refuse,
)
from tenfold.integrations.sb3.policy_kwargs import NO_STATE_NOISE, translate_networks
from tenfold.integrations.sb3.signatures import PPO_FAMILY, Q_FAMILY

KNOTS = 4096  # of a schedule that is asked at every step there
AGENTS = (
    {"SAC": "sac", "TD3": "td3", "DDPG": "td3"}
    | dict.fromkeys(PPO_FAMILY, "ppo")
    | dict.fromkeys(Q_FAMILY, "dqn")
)
OTHER_BUFFERS = "there are only tenfold's own rollouts and replay memory: leave it out"


def settings_of(
    class_name: str,
    arguments: Mapping[str, Any],
    num_envs: int = 1,
    total_timesteps: int = 1_000_000,
) -> SB3Settings:
    """What the arguments of a constructor are here, for so many environments and steps of `learn`,
    in which exploration and schedules go. Settings of the run are its steps, rounded up to whole
    rollouts, environments, seed and device."""
    t = SB3Settings(
        class_name,
        all_arguments(class_name, arguments),
        convert(num_envs, Count, "n_envs"),
        convert(total_timesteps, Count, "total_timesteps"),
    )
    t.set("name", AGENTS[class_name])
    t.run["num_envs"] = t.num_envs
    if t["seed"] is not None:
        t.run["seed"] = t.number("seed", Whole)
    t.run["device"] = device(t["device"])
    t.same(gamma="gamma")
    translate_networks(t)
    if class_name in PPO_FAMILY:
        translate_ppo(t)
    else:
        translate_replay(t)
        (translate_q_learning if class_name in Q_FAMILY else translate_actor_critic)(t)
    t.run["steps"] = -(-t.total // t.phase) * t.phase
    return t


def device(named: Any) -> str:
    """`device` as our setting."""
    name = str(named).partition(":")
    if name[0] not in ("auto", "cpu", "cuda") or name[2] not in ("", "0"):
        refuse("device", named, "there are auto, cpu and cuda")
    return name[0]


def schedule(t: SB3Settings, key: str, minimum: Any = NotNegative) -> Any:
    """A number, or a function of the progress that remains: a schedule over environment steps, with
    its values where it is asked there: at the end of a rollout, of other algorithms at 4,096
    steps."""
    value = t[key]
    if isinstance(value, Option):
        return value
    if not callable(value):
        return convert(value, minimum, key)
    function: Any = value
    last = -(-t.total // t.phase) * t.phase
    points = last // t.phase if t.class_name in PPO_FAMILY else min(last, KNOTS)
    steps = [round(last * (k + 1) / points) for k in range(points)]
    try:
        with told_of(f"{key}(progress_remaining)"):
            return callable_table(function, t.total, steps)
    except ConfigError as error:
        raise error.within(key) from None


def translate_ppo(t: SB3Settings) -> None:
    horizon, rows = t.number("n_steps", Count), t.number("n_steps", Count) * t.num_envs
    t.phase = rows
    t.same(horizon="n_steps", epochs="n_epochs", lam="gae_lambda", entropy="ent_coef")
    t.set("clip_norm", t["max_grad_norm"], "max_grad_norm")
    t.set("lr", schedule(t, "learning_rate"), "learning_rate")
    t.set("clip", schedule(t, "clip_range"), "clip_range")
    # the loss of a value is (V − R)² there, and has a ½ here
    t.set("value_weight", 2 * t.number("vf_coef", NotNegative), "vf_coef")
    t.set("normalize_advantage", "minibatch" if t["normalize_advantage"] else False)
    minibatches(t, horizon, rows)
    value_clip(t)
    if t["target_kl"] is not None:
        t.same(target_kl="target_kl")
        t.set("kl_stop", "minibatch", "target_kl")
    for key in ("rollout_buffer_class", "rollout_buffer_kwargs"):
        if t.arguments.get(key):
            refuse(key, t[key], OTHER_BUFFERS)
    state_dependent_noise(t)


def minibatches(t: SB3Settings, horizon: int, rows: int) -> None:
    """Rows of a minibatch; of a recurrent policy whole environments."""
    normalized = bool(t["normalize_advantage"])
    if normalized and rows == 1:
        refuse(
            "n_steps",
            horizon,
            "one step has no deviation to normalise advantages by: n_steps x n_envs must be above "
            "1",
            FailedAssertion,
        )
    if t["batch_size"] is None and t.class_name == "MaskablePPO":
        t.set("minibatches", 1, "batch_size")
        return
    size = t.number("batch_size", Count)
    if normalized and size == 1:
        refuse(
            "batch_size",
            size,
            "one step has no deviation to normalise advantages by: batch_size must be above 1",
            FailedAssertion,
        )
    if rows % size and size < rows:
        t.warn(
            f"batch_size = {size} does not divide n_steps x n_envs = {rows}: each epoch ends with "
            f"a truncated mini-batch of size {rows % size}."
        )
    t.set("minibatch_size", min(size, rows), "batch_size")
    if t.class_name == "RecurrentPPO":
        t.note(
            "minibatches of a recurrent policy are whole environments (at least one), and not "
            "slices of their steps side by side"
        )


def value_clip(t: SB3Settings) -> None:
    limit = t["clip_range_vf"]
    if limit is None:
        return
    if isinstance(limit, int | float) and not limit > 0:
        refuse("clip_range_vf", limit, "it must be above 0, or None", FailedAssertion)
    t.set("value_clip", schedule(t, "clip_range_vf"), "clip_range_vf")
    t.set("value_clip_kind", "clipped", "clip_range_vf")


def state_dependent_noise(t: SB3Settings) -> None:
    if t.arguments.get("use_sde"):
        refuse("use_sde", True, NO_STATE_NOISE)
    for key in ("sde_sample_freq", "use_sde_at_warmup"):
        if t.is_set(key):
            t.note(f"{key} changes nothing without use_sde, there and here")


# algorithms with a replay memory


def translate_replay(t: SB3Settings) -> None:
    rows = max(t.number("buffer_size", Count) // t.num_envs, 1) * t.num_envs
    t.set("capacity", rows, "buffer_size")
    if rows < t.total:
        t.note(
            f"a full replay memory of {rows:,} rows holds fewer steps: an episode takes a row more "
            "than it has steps"
        )
    t.same(batch_size="batch_size", n_step="n_steps")
    t.set("learning_starts", t.number("learning_starts", Whole))
    train_freq(t)
    t.set("lr", schedule(t, "learning_rate"), "learning_rate")
    if t["replay_buffer_class"] is not None:
        name = getattr(t["replay_buffer_class"], "__name__", str(t["replay_buffer_class"]))
        why = "hindsight replay is not in tenfold" if "Her" in name else OTHER_BUFFERS
        refuse("replay_buffer_class", name, why)
    options = t["replay_buffer_kwargs"] or {}
    timeouts = options.get("handle_timeout_termination", True)
    if wrong := [name for name in options if name != "handle_timeout_termination"]:
        refuse("replay_buffer_kwargs", options, f"{wrong[0]} is not here: leave it out")
    if not timeouts:
        refuse(
            "replay_buffer_kwargs",
            options,
            "a time limit is never an end here, whose value counts: leave it out",
        )
    if t["optimize_memory_usage"]:
        refuse(
            "optimize_memory_usage",
            True,
            "it does not go with handle_timeout_termination, there as here, where observations are "
            "stored once anyway: leave it out",
        )


def train_freq(t: SB3Settings) -> None:
    """When updates are due, and how many."""
    freq = t["train_freq"]
    pair = isinstance(freq, tuple | list) and len(freq) == 2
    count, unit = freq if pair else (freq, "step")
    unit = getattr(unit, "value", unit)
    if unit not in ("step", "episode"):
        refuse("train_freq", freq, "its unit is step or episode")
    if isinstance(count, bool) or not isinstance(count, int):
        refuse("train_freq", freq, "it must be a whole number")
    count = convert(count, Count, "train_freq")
    updates = t["gradient_steps"]
    if isinstance(updates, bool) or not isinstance(updates, int) or updates < -1:
        refuse("gradient_steps", updates, "it must be a whole number, or -1")
    if unit == "episode":
        if t.num_envs > 1:
            refuse("train_freq", freq, "episodes are counted of one environment", FailedAssertion)
        t.phase = 1
        t.set("every", f"episodes({count})", "train_freq")
    else:
        t.phase = count * t.num_envs
        t.set("every", t.phase, "train_freq")
    t.set("updates", updates, "gradient_steps")


def translate_q_learning(t: SB3Settings) -> None:
    interval, tau = t.number("target_update_interval", Count), t.number("tau", Share)
    t.set("target", f"hard(steps={interval}, tau={show(tau)})", "target_update_interval")
    if t.num_envs > interval:
        t.warn(
            f"n_envs = {t.num_envs} is more than target_update_interval = {interval}: the target "
            "network is updated after every step of the environments."
        )
    t.set("explore", f"epsilon({exploration(t)})", "exploration_fraction")
    if t.agent["learning_starts"]:
        t.set("warm_up", "uniform", "learning_starts")
    t.set("clip_norm", t["max_grad_norm"], "max_grad_norm")
    t.set("double", False)
    t.set("loss", "huber")
    if t.num_envs > 1:
        t.note(
            "each environment draws a coin of its own for exploration, and not one for all of them"
        )


def exploration(t: SB3Settings) -> str:
    """ε over environment steps."""
    start, end = (t.number(f"exploration_{which}_eps", Share) for which in ("initial", "final"))
    steps = round(t.number("exploration_fraction", Share) * t.total)
    return f"linear({show(start)}, {show(end)}, {steps})" if steps else show(end)


def translate_actor_critic(t: SB3Settings) -> None:
    t.same(tau="tau")
    translate_noise(t)
    if t.class_name == "SAC":
        t.set("temperature", temperature(t), "ent_coef")
        interval = t.number("target_update_interval", Count)
        if interval > 1 and t.agent["updates"] != 1:
            refuse(
                "target_update_interval",
                interval,
                "targets move at every update here: leave it out, or set gradient_steps to 1",
            )
        state_dependent_noise(t)
    elif t.class_name == "TD3":
        t.same(
            policy_delay="policy_delay",
            smoothing="target_policy_noise",
            smoothing_clip="target_noise_clip",
        )
    else:
        for key, value in (("policy_delay", 1), ("smoothing", 0.0), ("smoothing_clip", 0.0)):
            t.set(key, value)


def temperature(t: SB3Settings) -> Any:
    """`ent_coef` and `target_entropy`."""
    coefficient, target = t["ent_coef"], t["target_entropy"]
    target = None if target == "auto" else convert(target, float, "target_entropy")
    if not isinstance(coefficient, str):
        number = convert(coefficient, Annotated[float, Limits(0, above=True)], "ent_coef")
        if target is not None:
            t.note("target_entropy changes nothing where ent_coef is a number, there and here")
        return number
    word, _, start = coefficient.partition("_")
    if word != "auto":
        refuse("ent_coef", coefficient, "it must be auto, auto_0.1 or a number")
    first = convert(start or 1.0, Annotated[float, Limits(0, above=True)], "ent_coef")
    return f"auto({show(target)}, {show(first)})"

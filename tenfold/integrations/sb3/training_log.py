"""Tables of a training under Stable-Baselines3's keys."""

import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from tenfold.config.schedules import value_at

# ours -> theirs, with the factor between them
ON_POLICY = {
    "policy_loss": ("policy_gradient_loss", 1.0),
    "value_loss": ("value_loss", 2.0),  # theirs has no one half
    "entropy": ("entropy_loss", -1.0),
    "kl": ("approx_kl", 1.0),
    "clipped": ("clip_fraction", 1.0),
}
OFF_POLICY = {
    "critic_loss": ("critic_loss", 1.0),
    "actor_loss": ("actor_loss", 1.0),
    "alpha": ("ent_coef", 1.0),
    "loss": ("loss", 1.0),
}


def mean_of(values: Any) -> float:
    return float(np.mean(list(values))) if len(values) else float("nan")


def record_table(model: Any, iteration: int = 0) -> None:
    """Records returns and times, and writes the table."""
    logger, steps = model.logger, model.num_timesteps
    seconds = max((time.time_ns() - model.start_time) / 1e9, sys.float_info.epsilon)
    speed = int((steps - model._num_timesteps_at_start) / seconds)
    if not model.on_policy:
        logger.record("time/episodes", model._episode_num, exclude="tensorboard")
    elif iteration > 0:
        logger.record("time/iterations", iteration, exclude="tensorboard")
    if len(model.ep_info_buffer):
        for key, name in (("r", "rew"), ("l", "len")):
            values = [info[key] for info in model.ep_info_buffer]
            logger.record(f"rollout/ep_{name}_mean", mean_of(values))
    if hasattr(model, "exploration_rate"):
        logger.record("rollout/exploration_rate", model.exploration_rate)
    logger.record("time/fps", speed)
    logger.record("time/time_elapsed", int(seconds), exclude="tensorboard")
    logger.record("time/total_timesteps", steps, exclude="tensorboard")
    if len(model.ep_success_buffer):
        logger.record("rollout/success_rate", mean_of(model.ep_success_buffer))
    logger.dump(step=steps)


def record_training(model: Any, statistics: Mapping[str, float]) -> None:
    """Records means of the updates since the last time; nothing where there were none."""
    if not statistics:
        return
    logger, agent = model.logger, model.agent
    for ours, (theirs, factor) in (ON_POLICY if model.on_policy else OFF_POLICY).items():
        if ours in statistics:
            logger.record(f"train/{theirs}", factor * statistics[ours])
    if model.on_policy:
        record_phase(model, statistics)
    elif "temperature" in getattr(agent, "actor_parts", ()):
        away = statistics["entropy"] - agent.target_entropy
        logger.record("train/ent_coef_loss", float(np.log(statistics["alpha"]) * away))
    logger.record("train/n_updates", model._n_updates, exclude="tensorboard")
    logger.record("train/learning_rate", model.current_lr())
    std = agent.exploring(model.num_timesteps).get("std")
    if std is not None:
        logger.record("train/std", std)


def record_phase(model: Any, statistics: Mapping[str, float]) -> None:
    """What is PPO's alone."""
    logger, settings, rollout = model.logger, model.agent.config, model.learner.rollout
    loss = statistics["policy_loss"] - settings.entropy * statistics["entropy"]
    logger.record("train/loss", loss + settings.value_weight * statistics["value_loss"])
    values, returns = rollout.value.ravel(), rollout.target.ravel()
    spread = returns.var()
    explained = np.nan if spread == 0 else 1 - (returns - values).var() / spread
    logger.record("train/explained_variance", float(explained))
    logger.record("train/clip_range", float(value_at(settings.clip, model.num_timesteps)))
    if settings.value_clip:
        logger.record("train/clip_range_vf", float(settings.value_clip))

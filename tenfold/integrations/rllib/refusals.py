"""What of RLlib's configurations our environment runner and our learner do not do, as one sentence
that names it."""

from typing import Any

import gymnasium as gym
from ray.rllib.callbacks.callbacks import RLlibCallback

from tenfold.integrations.rllib.module import MultiHeadActionMaskRLModule


def runner_lacks(config: Any) -> str:
    """What `BulkEnvRunner` does not do of a configuration; empty where it does all."""
    if config.is_multi_agent:
        return "samples a single agent, and this configuration is multi-agent"
    for name in ("env_to_module", "module_to_env"):
        if getattr(config, f"_{name}_connector") is not None:
            return f"runs no connectors, and the configuration has {name}_connector"
        if not getattr(config, f"add_default_connectors_to_{name}_pipeline"):
            return f"does what the default connectors do, which the {name} pipeline is without"
    if gym.VectorizeMode(config.gym_env_vectorize_mode) is not gym.VectorizeMode.SYNC:
        return f"steps environments itself, not with vectorize mode {config.gym_env_vectorize_mode}"
    if not config.episodes_to_numpy:
        return "makes episodes of arrays, and episodes_to_numpy is off"
    classes = config.callbacks_class
    for kind in classes if isinstance(classes, list | tuple) else [classes]:
        if getattr(kind, "on_episode_step", None) is not RLlibCallback.on_episode_step:
            return (
                f"has no episode to show in every step, which {kind.__name__}.on_episode_step asks"
            )
    if config.callbacks_on_episode_step:
        return "has no episode to show in every step, which callbacks_on_episode_step asks"
    return ""


def learner_lacks(config: Any) -> str:
    """What `FusedPPOTorchLearner` does not do of a configuration; empty where it does all."""
    if config.is_multi_agent:
        return "trains a single agent, and this configuration is multi-agent"
    if config._learner_connector is not None:
        return "runs no connectors, and the configuration has learner_connector"
    if not config.add_default_connectors_to_learner_pipeline:
        return "does what the default connectors do, which the learner pipeline is without"
    if config.num_learners > 1:
        return f"is one learner, and num_learners is {config.num_learners}"
    if config.num_gpus_per_learner:
        return f"updates on a CPU, and num_gpus_per_learner is {config.num_gpus_per_learner}"
    if config.grad_clip and config.grad_clip_by != "global_norm":
        return f"clips by global_norm, and grad_clip_by is {config.grad_clip_by}"
    if not config.use_critic:
        return "bootstraps from a value, and use_critic is off"
    for name in (
        "torch_compile_learner",
        "_torch_grad_scaler_class",
        "_torch_lr_scheduler_classes",
    ):
        if getattr(config, name):
            return f"has an update of its own, and {name} is set"
    return ""


def learner_lacks_for(module: Any) -> str:
    """As `learner_lacks`: of a module."""
    ours = MultiHeadActionMaskRLModule
    if not isinstance(module, ours):
        return f"updates a MultiHeadActionMaskRLModule, and this is a {type(module).__name__}"
    for name in ("features", "_forward_train", "compute_values"):
        if getattr(type(module), name) is not getattr(ours, name):
            return f"has compiled networks, and {type(module).__name__} has its own {name}"
    if module.critic is not None:
        return "trains no critic, and the module has one (CriticPPOTorchLearner does)"
    return ""

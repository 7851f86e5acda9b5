"""The constructors and `learn` of Stable-Baselines3 2.9.2 and sb3-contrib 2.9.2, as data: names,
order and defaults."""

from collections.abc import Mapping
from inspect import Parameter, Signature
from typing import Any

REQUIRED = Parameter.empty
Arguments = dict[str, Any]  # name -> default

START: Arguments = {"policy": REQUIRED, "env": REQUIRED}
LOGGING: Arguments = {"stats_window_size": 100}
END: Arguments = {
    "tensorboard_log": None,
    "policy_kwargs": None,
    "verbose": 0,
    "seed": None,
    "device": "auto",
    "_init_setup_model": True,
}
ON_POLICY: Arguments = {
    "learning_rate": 3e-4,
    "n_steps": 2048,
    "batch_size": 64,
    "n_epochs": 10,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "clip_range": 0.2,
    "clip_range_vf": None,
    "normalize_advantage": True,
    "ent_coef": 0.0,
    "vf_coef": 0.5,
    "max_grad_norm": 0.5,
}
STATE_DEPENDENT_NOISE: Arguments = {"use_sde": False, "sde_sample_freq": -1}
ROLLOUTS: Arguments = {"rollout_buffer_class": None, "rollout_buffer_kwargs": None}
TARGET_KL: Arguments = {"target_kl": None}
REPLAY: Arguments = {
    "replay_buffer_class": None,
    "replay_buffer_kwargs": None,
    "optimize_memory_usage": False,
    "n_steps": 1,
}
Q_LEARNING: Arguments = {
    "learning_rate": 1e-4,
    "buffer_size": 1_000_000,
    "learning_starts": 100,
    "batch_size": 32,
    "tau": 1.0,
    "gamma": 0.99,
    "train_freq": 4,
    "gradient_steps": 1,
    **REPLAY,
    "target_update_interval": 10_000,
    "exploration_fraction": 0.1,
    "exploration_initial_eps": 1.0,
    "exploration_final_eps": 0.05,
    "max_grad_norm": 10,
}
ACTOR_CRITIC: Arguments = {
    "learning_rate": 1e-3,
    "buffer_size": 1_000_000,
    "learning_starts": 100,
    "batch_size": 256,
    "tau": 0.005,
    "gamma": 0.99,
    "train_freq": 1,
    "gradient_steps": 1,
    "action_noise": None,
    **REPLAY,
}

CONSTRUCTORS: dict[str, Arguments] = {
    "DQN": START | Q_LEARNING | LOGGING | END,
    "PPO": START | ON_POLICY | STATE_DEPENDENT_NOISE | ROLLOUTS | TARGET_KL | LOGGING | END,
    "SAC": START
    | ACTOR_CRITIC
    | {"learning_rate": 3e-4, "ent_coef": "auto", "target_update_interval": 1}
    | {"target_entropy": "auto"}
    | STATE_DEPENDENT_NOISE
    | {"use_sde_at_warmup": False}
    | LOGGING
    | END,
    "TD3": START
    | ACTOR_CRITIC
    | {"policy_delay": 2, "target_policy_noise": 0.2, "target_noise_clip": 0.5}
    | LOGGING
    | END,
    "DDPG": START | ACTOR_CRITIC | END,
    "MaskablePPO": START | ON_POLICY | ROLLOUTS | TARGET_KL | LOGGING | END,
    "RecurrentPPO": START
    | ON_POLICY
    | {"n_steps": 128, "batch_size": 128}
    | STATE_DEPENDENT_NOISE
    | TARGET_KL
    | LOGGING
    | END,
    "QRDQN": START
    | Q_LEARNING
    | {"learning_rate": 5e-5, "exploration_fraction": 0.005, "exploration_final_eps": 0.01}
    | {"max_grad_norm": None}
    | LOGGING
    | END,
}
PPO_FAMILY = ("PPO", "MaskablePPO", "RecurrentPPO")
Q_FAMILY = ("DQN", "QRDQN")


def learn_arguments(class_name: str) -> Arguments:
    """The arguments of `learn`. Between two tables are rollouts of PPO, and episodes of the
    others."""
    masking = {"use_masking": True} if class_name == "MaskablePPO" else {}
    return {
        "total_timesteps": REQUIRED,
        "callback": None,
        "log_interval": 1 if class_name in PPO_FAMILY else 4,
        "tb_log_name": class_name,
        "reset_num_timesteps": True,
        **masking,
        "progress_bar": False,
    }


def signature(arguments: Mapping[str, Any]) -> Signature:
    """A signature without `self`, to bind a call's arguments to."""
    return Signature(
        [
            Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=default)
            for name, default in arguments.items()
        ]
    )

"""Specs in the form of SLM-Lab, written for the tests."""

import copy
import json
from pathlib import Path
from typing import Any

Group = dict[str, Any]


def decay(start: float, end: float, last: int, first: int = 0, name: str = "linear_decay") -> Group:
    return {
        "name": name,
        "start_val": start,
        "end_val": end,
        "start_step": first,
        "end_step": last,
    }


META = {"distributed": False, "eval_frequency": 200, "log_frequency": 100, "max_session": 2}
DQN = {
    "agent": {
        "name": "DQN",
        "algorithm": {
            "name": "DQN",
            "action_pdtype": "Argmax",
            "action_policy": "epsilon_greedy",
            "explore_var_spec": decay(1.0, 0.1, 3000),
            "gamma": 0.97,
            "training_batch_iter": 1,
            "training_iter": 3,
            "training_frequency": 2,
            "training_start_step": 40,
        },
        "memory": {"name": "Replay", "batch_size": 16, "max_size": 500, "use_cer": False},
        "net": {
            "type": "MLPNet",
            "hid_layers": [12, 6],
            "hid_layers_activation": "selu",
            "init_fn": None,
            "clip_grad_val": 0.5,
            "loss_spec": {"name": "SmoothL1Loss"},
            "optim_spec": {"name": "Adam", "lr": 0.002},
            "lr_scheduler_spec": None,
            "update_type": "replace",
            "update_frequency": 50,
            "gpu": False,
        },
    },
    "env": {"name": "CartPole-v1", "num_envs": 4, "max_t": None, "max_frame": 400},
    "meta": META | {"max_trial": 3},
}
PPO = {
    "agent": {
        "name": "PPO",
        "algorithm": {
            "name": "PPO",
            "action_pdtype": "default",
            "action_policy": "default",
            "explore_var_spec": None,
            "gamma": 0.98,
            "lam": 0.9,
            "clip_eps_spec": decay(0.3, 0.1, 5000),
            "entropy_coef_spec": decay(0.02, 0.02, 0, name="no_decay"),
            "val_loss_coef": 0.4,
            "time_horizon": 30,
            "minibatch_size": 13,
            "training_epoch": 5,
        },
        "memory": {"name": "OnPolicyBatchReplay"},
        "net": {
            "type": "TorchArcNet",
            "shared": False,
            "arc": {
                "modules": {
                    "body": {
                        "Sequential": [
                            {"LazyLinear": {"out_features": 20}},
                            {"Tanh": None},
                            {"LazyLinear": {"out_features": 10}},
                            {"Tanh": None},
                        ]
                    }
                },
                "graph": {"input": "x", "modules": {"body": ["x"]}, "output": "body"},
            },
            "hid_layers_activation": "tanh",
            "init_fn": "orthogonal_",
            "clip_grad_val": 0.7,
            "use_same_optim": True,
            "loss_spec": {"name": "MSELoss"},
            "optim_spec": {"name": "AdamW", "lr": 0.001, "eps": 1e-5},
            "lr_scheduler_spec": {"name": "LinearToZero", "frame": 9000},
            "gpu": "auto",
        },
    },
    "env": {
        "name": "Pendulum-v1",
        "num_envs": 4,
        "max_t": 150,
        "max_frame": 9000,
        "normalize_obs": True,
        "normalize_reward": True,
    },
    "meta": META,
}
SAC = {
    "agent": {
        "name": "SoftActorCritic",
        "algorithm": {
            "name": "SoftActorCritic",
            "action_pdtype": "default",
            "action_policy": "default",
            "gamma": 0.99,
            "training_frequency": 1,
            "training_start_step": 100,
        },
        "memory": {"name": "Replay", "batch_size": 32, "max_size": 1000},
        "net": {
            "type": "MLPNet",
            "hid_layers": [16],
            "hid_layers_activation": "relu",
            "clip_grad_val": None,
            "loss_spec": {"name": "MSELoss"},
            "optim_spec": {"name": "Adam", "lr": 0.0003},
            "update_type": "polyak",
            "update_frequency": 1,
            "polyak_coef": 0.01,
            "gpu": "auto",
        },
    },
    "env": {"name": "Pendulum-v1", "num_envs": 2, "max_frame": 600},
    "meta": META,
}


def with_keys(spec: Group, changes: Group) -> Group:
    """A spec with other values of keys, by their dotted names."""
    spec = copy.deepcopy(spec)
    for path, value in changes.items():
        *groups, name = path.split(".")
        group = spec
        for below in groups:
            group = group.setdefault(below, {})
        group[name] = value
    return spec


def written(folder: Path, spec: Group, name: str = "mine") -> Path:
    file = folder / "specs.json"
    file.write_text(json.dumps({name: spec}))
    return file

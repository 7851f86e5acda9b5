"""Models' files as Stable-Baselines3 writes them, made of plain JSON and tensors; and what their
policies do, in the formulas that it publishes."""

import base64
import io
import json
import zipfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch.nn import functional as F

HIGH = np.array([4.8, np.inf, 0.41887903], np.float32)
OBS = gym.spaces.Box(-HIGH, HIGH)
ACTIONS: dict[str, gym.Space[Any]] = {
    "DQN": gym.spaces.Discrete(3),
    "QRDQN": gym.spaces.Discrete(3),
    "PPO": gym.spaces.Discrete(3),
    "PPO box": gym.spaces.Box(-1, 2, (2,)),
    "PPO bits": gym.spaces.MultiBinary(3),
    "PPO memory": gym.spaces.Discrete(3),
    "SAC": gym.spaces.Box(-1, 2, (2,)),
    "TD3": gym.spaces.Box(-1, 2, (2,)),
    "DDPG": gym.spaces.Box(-1, 2, (2,)),
}
HIDDEN, VALUE_HIDDEN, QUANTILES, STEPS, MEMORY = (5, 4), (6,), 6, 8, 7
# would write a file, if anybody loaded it
TRAP = base64.b64encode(b"cos\nsystem\n(S'touch opened-a-pickle'\ntR.").decode()


def pickled(kind: str, **beside: Any) -> dict[str, Any]:
    return {":type:": f"<class '{kind}'>", ":serialized:": TRAP, **beside}


def space_table(space: gym.Space[Any]) -> dict[str, Any]:
    """As it stands beside a pickle: arrays as they are printed."""
    names = ("low", "high", "dtype", "n", "start", "nvec")
    fields = {name: str(value) for name, value in vars(space).items() if name in names}
    shape = list(space.shape or ())
    return pickled(f"{type(space).__module__}.{type(space).__name__}", _shape=shape, **fields)


def mlp(sizes: tuple[int, ...], start: str, rng: torch.Generator) -> dict[str, torch.Tensor]:
    return {
        f"{start}{2 * layer}.{part}": torch.randn(shape, generator=rng)
        for layer, (inputs, outputs) in enumerate(pairwise(sizes))
        for part, shape in (("weight", (outputs, inputs)), ("bias", (outputs,)))
    }


def head(inputs: int, outputs: int, name: str, rng: torch.Generator) -> dict[str, torch.Tensor]:
    one = mlp((inputs, outputs), f"{name}.", rng)
    return {key.replace(".0.", "."): value for key, value in one.items()}


def policy_of(kind: str, seed: int = 0) -> dict[str, torch.Tensor]:
    """Random weights by their names, in the order of the policy."""
    rng, obs, space = torch.Generator().manual_seed(seed), 3, ACTIONS[kind]
    value_hidden = HIDDEN if kind == "PPO memory" else VALUE_HIDDEN
    if kind in ("DQN", "QRDQN"):
        name = "q_net" if kind == "DQN" else "quantile_net"
        outputs = 3 * (1 if kind == "DQN" else QUANTILES)
        nets = [mlp((obs, *HIDDEN, outputs), f"{n}.{name}.", rng) for n in (name, f"{name}_target")]
        return nets[0] | nets[1]
    if kind.startswith("PPO"):
        outputs, memory = 2 if kind == "PPO box" else 3, {}
        if kind == "PPO memory":
            shapes = {"weight_ih": (4 * MEMORY, obs), "weight_hh": (4 * MEMORY, MEMORY)}
            shapes |= {"bias_ih": (4 * MEMORY,), "bias_hh": (4 * MEMORY,)}
            memory = {
                f"lstm_{side}.{part}_l0": torch.randn(shape, generator=rng)
                for side in ("actor", "critic")
                for part, shape in shapes.items()
            }
            obs = MEMORY
        start = {"log_std": torch.randn(2, generator=rng)} if kind == "PPO box" else {}
        towers = mlp((obs, *HIDDEN), "mlp_extractor.policy_net.", rng)
        towers |= mlp((obs, *value_hidden), "mlp_extractor.value_net.", rng)
        heads = head(HIDDEN[-1], outputs, "action_net", rng) | head(
            value_hidden[-1], 1, "value_net", rng
        )
        return start | towers | heads | memory
    critics = 1 if kind == "DDPG" else 2
    reals = (space.shape or ())[0]

    def valued(name: str) -> dict[str, torch.Tensor]:
        nets = [mlp((obs + reals, *HIDDEN, 1), f"{name}.qf{j}.", rng) for j in range(critics)]
        return {key: value for net in nets for key, value in net.items()}

    if kind == "SAC":
        actor = mlp((obs, *HIDDEN), "actor.latent_pi.", rng)
        actor |= head(HIDDEN[-1], reals, "actor.mu", rng)
        actor |= head(HIDDEN[-1], reals, "actor.log_std", rng)
        return actor | valued("critic") | valued("critic_target")
    actors = [mlp((obs, *HIDDEN, reals), f"{n}.mu.", rng) for n in ("actor", "actor_target")]
    return actors[0] | actors[1] | valued("critic") | valued("critic_target")


def optimizer_of(parameters: list[torch.Tensor], steps: int, seed: int) -> dict[str, Any]:
    rng = torch.Generator().manual_seed(seed)
    state = {
        index: {
            "step": torch.tensor(float(steps)),
            "exp_avg": torch.randn(value.shape, generator=rng),
            "exp_avg_sq": torch.rand(value.shape, generator=rng),
        }
        for index, value in enumerate(parameters)
    }
    group = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-5, "params": list(range(len(state)))}
    return {"state": state, "param_groups": [group]}


def objects_of(kind: str) -> dict[str, Any]:
    """Everything that is saved with torch, by member."""
    policy = policy_of(kind)
    online = {k: v for k, v in policy.items() if "_target" not in k.split(".")[0]}
    if kind in ("DQN", "QRDQN") or kind.startswith("PPO"):
        optimizers = {"policy.optimizer": optimizer_of([*online.values()], STEPS, 1)}
    else:
        steps = STEPS // 2 if kind == "TD3" else STEPS
        actor = [v for k, v in online.items() if k.startswith("actor.")]
        critic = [v for k, v in online.items() if k.startswith("critic.")]
        optimizers = {"actor.optimizer": optimizer_of(actor, steps, 1)}
        optimizers |= {"critic.optimizer": optimizer_of(critic, STEPS, 2)}
    variables = {}
    if kind == "SAC":
        variables = {"log_ent_coef": torch.tensor([-0.5])}
        optimizers["ent_coef_optimizer"] = optimizer_of([torch.zeros(1)], STEPS, 3)
    return {"policy": policy, **optimizers, "pytorch_variables": variables}


def data_of(kind: str) -> dict[str, Any]:
    """The attributes; what is no JSON is a pickle with something beside it."""
    constant = pickled("stable_baselines3.common.utils.FloatSchedule")
    data = {
        "policy_class": pickled("abc.ABCMeta", forward="<function ActorCriticPolicy.forward at 0>"),
        "observation_space": space_table(OBS),
        "action_space": space_table(ACTIONS[kind]),
        "policy_kwargs": {},
        "learning_rate": 0.002,
        "lr_schedule": constant | {"value_schedule": "ConstantSchedule(val=0.002)"},
        "gamma": 0.97,
        "use_sde": False,
        "num_timesteps": 64,
        "_n_updates": STEPS,
        "n_envs": 1,
        "verbose": 0,
        "seed": 3,
    }
    if kind.startswith("PPO"):
        data |= {"n_steps": 64, "batch_size": 32, "n_epochs": 4, "gae_lambda": 0.9, "ent_coef": 0.0}
        data |= {"vf_coef": 0.5, "max_grad_norm": 0.5, "normalize_advantage": True}
        if kind == "PPO memory":
            data["policy_kwargs"] = {"lstm_hidden_size": MEMORY}
        data["clip_range"] = constant | {"value_schedule": "ConstantSchedule(val=0.3)"}
        return data
    data |= {"buffer_size": 500, "batch_size": 16, "learning_starts": 32, "gradient_steps": 1}
    data |= {"train_freq": pickled("stable_baselines3.common.type_aliases.TrainFreq")}
    if kind == "SAC":
        data |= {"ent_coef": "auto", "target_entropy": -2.0}
    return data


def torch_bytes(value: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def write_zip(path: Path, data: dict[str, Any] | bytes, objects: dict[str, Any]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data", data if isinstance(data, bytes) else json.dumps(data))
        for name, value in objects.items():
            content = value if isinstance(value, bytes) else torch_bytes(value)
            archive.writestr(f"{name}.pth", content)
        archive.writestr("_stable_baselines3_version", "2.9.2")
    return path


def model_zip(path: Path, kind: str, data: Any = (), **objects: Any) -> Path:
    """The file of a model; `data` and `objects` stand in for what it would hold."""
    return write_zip(path, data_of(kind) | dict(data), objects_of(kind) | objects)


def run_mlp(policy: dict[str, torch.Tensor], start: str, x: torch.Tensor, how: Any) -> torch.Tensor:
    """All layers of a network, each but the first behind an activation."""
    layer = 0
    while (weight := policy.get(f"{start}{2 * layer}.weight")) is not None:
        x = (how(x) if layer else x) @ weight.T + policy[f"{start}{2 * layer}.bias"]
        layer += 1
    return x


def actions_of(kind: str, policy: dict[str, torch.Tensor], obs: np.ndarray) -> np.ndarray:
    """What the policy does without exploration."""
    x = torch.from_numpy(obs)

    def through(name: str, x: torch.Tensor) -> torch.Tensor:
        return x @ policy[f"{name}.weight"].T + policy[f"{name}.bias"]

    if kind == "DQN":
        return run_mlp(policy, "q_net.q_net.", x, F.relu).argmax(1).numpy()
    if kind == "QRDQN":
        values = run_mlp(policy, "quantile_net.quantile_net.", x, F.relu)
        return values.view(-1, QUANTILES, 3).mean(1).argmax(1).numpy()
    if kind.startswith("PPO"):
        latent = run_mlp(policy, "mlp_extractor.policy_net.", x, torch.tanh).tanh()
        output = through("action_net", latent)
        if kind in ("PPO", "PPO memory"):
            return output.argmax(1).numpy()
        return (output > 0).numpy() if kind == "PPO bits" else output.clamp(-1, 2).numpy()
    if kind == "SAC":
        mean = through("actor.mu", run_mlp(policy, "actor.latent_pi.", x, F.relu).relu())
    else:
        mean = run_mlp(policy, "actor.mu.", x, F.relu)
    return (-1 + 0.5 * (mean.tanh() + 1) * 3).numpy()

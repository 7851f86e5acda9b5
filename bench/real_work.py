"""Work of the size people train at, end to end: HalfCheetah by PPO and SAC, Pong by PPO and DQN,
beside Stable-Baselines3 in the same process where it can be imported (for Pong it wants OpenCV as
well; those rows stand alone), SAC beside SBX too, which has the cores to itself in its turns.

    python bench/all.py real-work           # on the CPU, all its cores
    python bench/all.py --cuda cuda-real-work

Both sides have the same setting, which is in each row, and take turns. Ours is chosen by itself as
in `tenfold train`: engine, threads, form of the environments. Stable-Baselines3 has no monitor,
logger output or callbacks; PPO of it runs on the CPU, as its documentation advises.
"""

import importlib
import os
from collections.abc import Callable
from typing import Any

import torch
from actors import begun, per_second
from measure import interleave

from tenfold.config.files import named
from tenfold.config.run import Run
from tenfold.core.system import set_threads
from tenfold.core.threads import set_team_limit
from tenfold.training.learners import make_learner

CHEETAH, LANES, TURNS = "HalfCheetah-v5", 16, 5
PPO = {
    "name": "ppo",
    "horizon": 256,
    "minibatches": 8,
    "epochs": 4,
    "lr": 3e-4,
    "net": {"hidden": [64, 64], "activation": "tanh"},
}
SAC = {
    "name": "sac",
    "learning_starts": 1000,
    "batch_size": 256,
    "capacity": 100_000,
    "net": {"hidden": [256, 256]},
}
PACKAGES = {"stable_baselines3": "Stable-Baselines3", "sbx": "SBX"}
Turn = Callable[[], int]
CORES = len(os.sched_getaffinity(0))


def ours(run: Run, warm: int, steps: int) -> tuple[Any, Turn]:
    """A learner that has learned already, and a turn of about so many steps."""
    set_team_limit(0)
    learner = begun(make_learner(run), warm)

    def turn() -> int:
        first = learner.step
        begun(learner, first + steps)
        if run.device == "cuda":
            torch.cuda.synchronize()
        return learner.step - first

    return learner, turn


def theirs(
    package: str, agent: dict[str, Any], lanes: int, device: str, warm: int, steps: int
) -> Turn | None:
    """The same by Stable-Baselines3, or by SBX; None where it cannot be imported."""
    try:
        import gymnasium as gym
        from stable_baselines3.common.vec_env import DummyVecEnv

        library = importlib.import_module(package)
    except ImportError:
        return None
    # it would put its monitor on a plain one
    envs = DummyVecEnv([lambda: gym.make(CHEETAH, disable_env_checker=True)] * lanes)
    net = {"net_arch": agent["net"]["hidden"]}
    if agent["name"] == "ppo":
        model: Any = library.PPO(
            "MlpPolicy",
            envs,
            learning_rate=agent["lr"],
            n_steps=agent["horizon"],
            batch_size=agent["horizon"] * lanes // agent["minibatches"],
            n_epochs=agent["epochs"],
            policy_kwargs=net,
            device="cpu",
            seed=0,
        )
    else:
        model = library.SAC(
            "MlpPolicy",
            envs,
            learning_starts=agent["learning_starts"],
            batch_size=agent["batch_size"],
            buffer_size=agent["capacity"],
            train_freq=1,
            gradient_steps=agent.get("updates", 1) * lanes,
            policy_kwargs=net,
            device=device,
            seed=0,
        )
    model.learn(warm, log_interval=None)

    def turn() -> int:
        first = model.num_timesteps
        model.learn(steps, log_interval=None, reset_num_timesteps=False)
        return model.num_timesteps - first

    return turn


def compare(
    name: str, work: str, run: dict[str, Any], warm: int, steps: int, their_steps: int
) -> list[dict[str, Any]]:
    """A row for each package that can be imported."""
    sides = {
        package: theirs(package, run["agent"], run["num_envs"], run["device"], warm, their_steps)
        for package in (PACKAGES if run["agent"]["name"] == "sac" else ["stable_baselines3"])
    }
    rivals = {package: side for package, side in sides.items() if side}
    learner, turn = ours(Run.of(run), warm, steps)
    times = interleave({"tenfold": turn} | rivals, TURNS)
    learner.close()
    setting = {"work": work, "cores": CORES, "device": run["device"]}
    if not rivals:
        return [alone(name, setting, times["tenfold"])]
    return [
        per_second(
            name, setting, (PACKAGES[package], times[package]), ("tenfold", times["tenfold"])
        )
        for package in rivals
    ]


def alone(name: str, setting: dict[str, Any], microseconds: float) -> dict[str, Any]:
    return {"name": name, "setting": setting, "steps_per_second": round(1e6 / microseconds)}


def cheetah(name: str, device: str) -> list[dict[str, Any]]:
    """PPO on the CPU alone: with so small networks a GPU would only be waited for."""
    base = {"env": CHEETAH, "num_envs": LANES, "device": device, "steps": 10**8}
    rows = []
    if device == "cpu":
        work = "HalfCheetah-v5, PPO 64-64, 16 environments x 256 steps, 4 epochs of 8 minibatches"
        rows += compare(name, work, base | {"agent": PPO}, 8192, 16_384, 4096)
    warm, turn = 1500, 400 if device == "cpu" else 4000
    for lanes in (1, LANES):
        many = f"{lanes} environment{'s' * (lanes > 1)}, {lanes} update{'s' * (lanes > 1)} a round"
        work = f"HalfCheetah-v5, SAC 256-256, batch 256, {many}"
        run = base | {"agent": SAC, "num_envs": lanes}
        rows += compare(name, work, run, warm, turn, 200)
    return rows


def pong(name: str) -> list[dict[str, Any]]:
    rows = []
    for preset, warm, steps in (("pong", 4000, 3000), ("pong-ppo", 2048, 4096)):
        early = {"agent": {"learning_starts": 2000}} if preset == "pong" else {}
        for precision in ("fp32", "tf32"):
            run = named(preset, early | {"device": "cuda", "precision": precision})
            learner, turn = ours(run, warm, steps)
            times = interleave({"tenfold": turn}, TURNS)
            learner.close()
            setting = {"work": f"preset {preset}, {precision}", "cores": CORES, "device": "cuda"}
            rows.append(alone(name, setting, times["tenfold"]))
    return rows


def on_cpu() -> list[dict[str, Any]]:
    set_threads(1)  # which Stable-Baselines3 is fastest on as well
    return cheetah("real-work", "cpu")


def on_gpu() -> list[dict[str, Any]]:
    set_threads(1)
    return cheetah("cuda-real-work", "cuda") + pong("cuda-real-work")


NAMES = {"real-work": on_cpu}
CUDA = {"cuda-real-work": on_gpu}

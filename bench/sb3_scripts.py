"""Scripts of Stable-Baselines3 by itself, and with their import changed to tenfold's, in turns in
one process. Needs stable-baselines3.

    python bench/all.py --peers sb3-scripts

Both sides run the very same lines: the class, its defaults, the environment as `gymnasium.make` or
`make_vec_env` gives it, `learn`. The rows with a callback have one that reads the reward of every
step.
"""

import importlib
from collections.abc import Callable
from typing import Any

import gymnasium as gym
from actors import per_second
from measure import interleave

from tenfold.core.system import set_threads

TURNS = 3
CARTPOLE, PENDULUM = "CartPole-v1", "Pendulum-v1"
NARROW = {"policy_kwargs": {"net_arch": [64, 64]}}
# class, environment, how many of it, arguments, steps of a turn: theirs, ours
SCRIPTS: tuple[tuple[str, str, int, dict[str, Any], int, int], ...] = (
    ("DQN", CARTPOLE, 1, {}, 1000, 10_000),
    ("PPO", CARTPOLE, 1, {}, 2048, 10_240),
    ("PPO", CARTPOLE, 8, {"n_steps": 256}, 4096, 16_384),
    ("SAC", PENDULUM, 1, NARROW, 150, 1000),
    ("SAC", PENDULUM, 1, {}, 110, 300),
    ("TD3", PENDULUM, 1, {}, 110, 300),
)


def turn_of(
    library: Any, script: tuple[Any, ...], steps: int, callback: Any = None
) -> Callable[[], int]:
    """A model that has learned already, and so many further steps of it."""
    from stable_baselines3.common.env_util import make_vec_env

    name, env, count, arguments, *_ = script
    envs = make_vec_env(env, count) if count > 1 else gym.make(env)
    model = getattr(library, name)("MlpPolicy", envs, seed=0, device="cpu", **arguments)
    model.learn(steps, callback=callback)

    def turn() -> int:
        before = model.num_timesteps
        model.learn(steps, callback=callback, reset_num_timesteps=False)
        return model.num_timesteps - before

    return turn


def watcher() -> Any:
    """A callback that looks at every step."""
    from stable_baselines3.common.callbacks import BaseCallback

    class RewardSum(BaseCallback):
        total = 0.0

        def _on_step(self) -> bool:
            self.total += float(self.locals["rewards"][0])
            return True

    return RewardSum()


def compare(script: tuple[Any, ...]) -> list[dict[str, Any]]:
    """Two rows: nobody looks, and a callback looks at every step."""
    name, env, count, arguments, their_steps, our_steps = script
    ours = importlib.import_module("tenfold.integrations.sb3")
    theirs = importlib.import_module("stable_baselines3")
    sides = {
        "theirs": turn_of(theirs, script, their_steps),
        "ours": turn_of(ours, script, our_steps),
        "theirs watched": turn_of(theirs, script, their_steps, watcher()),
        "ours watched": turn_of(ours, script, our_steps, watcher()),
    }
    times = interleave(sides, TURNS)
    net = "64-64" if arguments is NARROW or name in ("DQN", "PPO") else "its default networks"
    many = f", {count} environments" if count > 1 else ""
    rows = []
    for suffix, callback in (("", "none"), (" watched", "at every step")):
        setting = {"script": f"{name} on {env}, {net}{many}", "callback": callback}
        own, other = ("tenfold", times[f"ours{suffix}"]), times[f"theirs{suffix}"]
        rows.append(per_second("sb3-scripts", setting, ("Stable-Baselines3", other), own))
    return rows


def scripts() -> list[dict[str, Any]]:
    set_threads(1)  # which Stable-Baselines3 is fastest on as well
    return [row for script in SCRIPTS for row in compare(script)]


NAMES = {}  # only with --peers
PEERS = {"sb3-scripts": scripts}

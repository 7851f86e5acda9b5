"""This checkout beside another one, in turns: microseconds of an environment step with training.

    python bench/against.py /path/to/the/other/checkout [ROUNDS]
    python bench/against.py /path/to/the/other/checkout [ROUNDS] --cuda    # the engines of a GPU

For changes that should change nothing: rebuilt code must be as fast as before.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent.parent
DQN = {
    "net": {"hidden": [64, 64]},
    "batch_size": 32,
    "target": "hard(500)",
    "lr": 1e-3,
    "double": False,
    "learning_starts": 1000,
    "explore": "epsilon(0.05)",
}
PPO = {
    "name": "ppo",
    "minibatches": 4,
    "net": {"hidden": [64, 64], "activation": "tanh"},
    "horizon": 128,
    "epochs": 4,
}
SAC = {"name": "sac", "net": {"hidden": [64, 64]}, "batch_size": 64, "learning_starts": 100}
RECURRENT = {
    "name": "ppo",
    "net": {"hidden": [64], "memory": "lstm(16)"},
    "horizon": 64,
    "minibatches": 2,
    "epochs": 4,
}
COLONY = {"agent": {"horizon": 8}, "num_envs": 16}
FIELD = {"agent": {"learning_starts": 60, "first_updates": 20}}
# preset or agent, settings, steps before the clock starts, steps of a turn
CASES: dict[str, tuple[str, dict[str, Any], int, int]] = {
    "DQN, CartPole": ("dqn", {"agent": DQN}, 3000, 4000),
    "DQN, CartPole, plain": ("dqn", {"agent": DQN, "engine": "plain"}, 1200, 400),
    "DQN, compiled CartPole": ("dqn", {"agent": DQN, "env": "tenfold/CartPole-v1"}, 3000, 6000),
    "PPO, CartPole, 8 x 128": ("ppo", {"agent": PPO, "num_envs": 8}, 4096, 8192),
    "PPO, compiled CartPole": (
        "ppo",
        {"agent": PPO, "num_envs": 8, "env": "tenfold/CartPole-v1"},
        4096,
        16384,
    ),
    "SAC, Pendulum": ("sac", {"agent": SAC, "env": "Pendulum-v1"}, 400, 800),
    "SAC, compiled Pendulum": ("sac", {"agent": SAC, "env": "tenfold/Pendulum-v1"}, 400, 1200),
    "PPO with a memory": ("ppo", {"agent": RECURRENT, "num_envs": 8}, 1024, 4096),
    "five agents of a gridworld": (
        "treasure-small",
        {"agent": {"learning_starts": 200}},
        400,
        300,
    ),
    "a colony": ("durotaxis-bend", COLONY, 128, 128),
    "an explorer": ("limit-cycle", FIELD, 80, 40),
}
WIDE = {"net": {"hidden": [256, 256]}}
RESIDENT = {"device": "cuda", "engine": "resident", "env": "tenfold/CartPole-v1"}
GRAPHS = {"device": "cuda", "engine": "cudagraph"}
# (the first steps of a resident engine's turn are those of a launch of another length)
CUDA_CASES: dict[str, tuple[str, dict[str, Any], int, int]] = {
    "DQN, resident": ("dqn", RESIDENT | {"agent": DQN}, 20_000, 40_000),
    "PPO, resident, 8 x 128": ("ppo", RESIDENT | {"agent": PPO, "num_envs": 8}, 8192, 65_536),
    "PPO, resident, 4,096 x 128": (
        "ppo",
        RESIDENT | {"agent": PPO, "num_envs": 4096},
        2**20,
        2**22,
    ),
    "DQN 256-256, CUDA graphs": ("dqn", GRAPHS | {"agent": DQN | WIDE}, 2000, 1000),
    "PPO, CUDA graphs, 8 x 128": ("ppo", GRAPHS | {"agent": PPO, "num_envs": 8}, 4096, 4096),
    "SAC 256-256, CUDA graphs": (
        "sac",
        GRAPHS | {"agent": SAC | WIDE, "env": "Pendulum-v1"},
        400,
        600,
    ),
    "PPO with a memory, CUDA graphs": (
        "ppo",
        GRAPHS | {"agent": RECURRENT, "num_envs": 8},
        1024,
        2048,
    ),
}
TURNS = 5


def cases() -> dict[str, tuple[str, dict[str, Any], int, int]]:
    return CUDA_CASES if "--cuda" in sys.argv else CASES


def measure() -> dict[str, float]:
    """In the checkout that PYTHONPATH names."""
    from tenfold.config.files import named
    from tenfold.core.system import set_threads
    from tenfold.training.learners import make_learner

    set_threads(1)
    found = {}
    for name, (what, settings, warm, steps) in cases().items():
        learner = make_learner(named(what, settings | {"steps": 10**7}))
        learner.warm_up()
        while learner.agent.updates == 0 or learner.step < warm:
            learner.round()
        times = []
        for _ in range(TURNS):
            first, start = learner.step, time.perf_counter()
            while learner.step < first + steps:
                learner.round(first + steps)
            times.append((time.perf_counter() - start) / (learner.step - first) * 1e6)
        learner.close()
        found[name] = statistics.median(times)
    return found


def turn(checkout: Path) -> dict[str, float]:
    command = [sys.executable, str(Path(__file__).resolve()), "--measure", *sys.argv[-1:]]
    path = os.pathsep.join(filter(None, [str(checkout), os.environ.get("PYTHONPATH")]))
    env = os.environ | {"PYTHONPATH": path}
    done = subprocess.run(
        command, cwd=checkout, env=env, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    if "--measure" in sys.argv:
        print(json.dumps(measure()))
        return
    words = [word for word in sys.argv[1:] if word != "--cuda"]
    other, rounds = Path(words[0]).resolve(), int(words[1]) if len(words) > 1 else 3
    pairs = [(turn(other), turn(HERE)) for _ in range(rounds)]
    for name in cases():
        there, here = (statistics.median(pair[k][name] for pair in pairs) for k in (0, 1))
        print(f"{name:28} there {there:9.2f} us   here {here:9.2f} us   {here / there:.3f}")


if __name__ == "__main__":
    main()

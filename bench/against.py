"""This checkout beside another one, in turns: microseconds of an environment step with training.

    python bench/against.py /path/to/the/other/checkout [ROUNDS]

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
TURNS = 5


def measure() -> dict[str, float]:
    """In the checkout that PYTHONPATH names."""
    from tenfold.config.files import named
    from tenfold.core.system import set_threads
    from tenfold.training.learners import make_learner

    set_threads(1)
    found = {}
    for name, (what, settings, warm, steps) in CASES.items():
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
    command = [sys.executable, str(Path(__file__).resolve()), "--measure"]
    env = os.environ | {"PYTHONPATH": str(checkout)}
    done = subprocess.run(
        command, cwd=checkout, env=env, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    if "--measure" in sys.argv:
        print(json.dumps(measure()))
        return
    other, rounds = Path(sys.argv[1]).resolve(), int(sys.argv[2]) if len(sys.argv) > 2 else 3
    pairs = [(turn(other), turn(HERE)) for _ in range(rounds)]
    for name in CASES:
        there, here = (statistics.median(pair[k][name] for pair in pairs) for k in (0, 1))
        print(f"{name:28} there {there:9.2f} us   here {here:9.2f} us   {here / there:.3f}")


if __name__ == "__main__":
    main()

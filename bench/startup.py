"""How long a person waits, in fresh processes: `import tenfold` after torch, `tenfold --help`, the
kernels' first compilation, and the first environment step of a run whose kernels are on disk."""

import os
import subprocess
import sys
import tempfile
import time

from measure import interleave, write

FIRST_STEP = """
from tenfold.training.learners import make_learner
from tenfold.config.run import Run
place = make_learner(Run.of({{"env": "{}", "agent": {{"name": "{}"}}, "num_envs": 1}}))
place.engine.warm_up()
place.round(1)
assert place.step == 1
"""
# one after another into the same cache
KERNELS = (
    ("CartPole-v1", "CartPole-v1", "dqn"),
    ("tenfold/CartPole-v1 as well", "tenfold/CartPole-v1", "dqn"),
    ("PPO, CartPole-v1, as well", "CartPole-v1", "ppo"),
)
COUNT = "import torch, time; t = time.perf_counter(); {}; print(time.perf_counter() - t)"


def seconds(*command: str, env: dict[str, str] | None = None) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env=env)
    return time.perf_counter() - start


def main() -> None:
    everything = "import tenfold; tenfold.train; tenfold.Run; tenfold.load"
    after_torch = [
        float(
            subprocess.run(
                [sys.executable, "-c", COUNT.format(everything)],
                check=True,
                capture_output=True,
                text=True,
            ).stdout
        )
        for _ in range(5)
    ]
    found = interleave(
        {
            "--help": lambda: seconds(sys.executable, "-m", "tenfold", "--help") and 1,
            "train --help": lambda: (
                seconds(sys.executable, "-m", "tenfold", "train", "--help") and 1
            ),
        },
        5,
    )
    rows = [{"name": "import after torch", "seconds": round(sorted(after_torch)[2], 3), "bar": 1.5}]
    with tempfile.TemporaryDirectory() as cache:
        for name, env, agent in KERNELS:
            kernels = os.environ | {"NUMBA_CACHE_DIR": cache}
            cold, *warm = [
                seconds(sys.executable, "-c", FIRST_STEP.format(env, agent), env=kernels)
                for _ in range(6)
            ]
            rows.append(
                {
                    "name": f"process start to first step, kernels on disk ({agent}, {env})",
                    "seconds": round(sorted(warm)[2], 3),
                    "bar": 3.0,
                }
            )
            rows.append(
                {
                    "name": f"compiling the kernels, once ({name})",
                    "seconds": round(cold - sorted(warm)[2], 3),
                    "bar": 15.0,
                }
            )
    rows += [
        {"name": f"tenfold {name}", "seconds": round(us / 1e6, 3), "bar": 1.0}
        for name, us in found.items()
    ]
    write("startup", rows)


if __name__ == "__main__":
    main()

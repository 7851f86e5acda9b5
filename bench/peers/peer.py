"""What the opponents' scripts share: one thread, the common work, the command line, the clock and
the last line of output.

Import it before NumPy, torch or JAX: they read the number of threads when they start.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
# XLA sizes its pool by this. With the flags alone it still hands operations of some µs to idle
# workers, and whole-loop programs of small operations take nearly twice as long.
os.environ["NPROC"] = "1"

# tianshou.py, sbx.py and cpprb.py would import themselves instead of the packages
HERE = Path(__file__).resolve().parent
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != HERE]

ENV = "CartPole-v1"
HIDDEN = [64, 64]
LR = 1e-3
GAMMA = 0.99
EPSILON = 0.05
CAPACITY = 50_000
LEARNING_STARTS = 1_000  # random actions until then
TARGET_EVERY = 500  # updates between hard copies
WARM_UP = 2_000  # steps before the clock starts
PPO = {
    "num_envs": 8,
    "horizon": 128,
    "batch": 256,
    "epochs": 4,
    "lr": 2.5e-4,
    "lam": 0.95,
    "clip": 0.2,
    "entropy": 0.01,
    "value_weight": 0.5,
    "clip_norm": 0.5,
}
SAC = {"env": "Pendulum-v1", "lr": 3e-4, "tau": 0.005}


def arguments(description: str | None, steps: int = 10_000, **own: str) -> argparse.Namespace:
    """The common command line, and a script's own flags with their defaults."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--steps",
        type=int,
        default=steps,
        help=f"steps in all, the {WARM_UP} before the clock starts included",
    )
    parser.add_argument("--batch", type=int, default=32, help="transitions in a batch")
    parser.add_argument("--every", type=int, default=1, help="environment steps between updates")
    parser.add_argument("--updates", type=int, default=1, help="gradient updates each time")
    parser.add_argument("--seed", type=int, default=0)
    for name, default in own.items():
        parser.add_argument(f"--{name}", default=default)
    options = parser.parse_args()
    if options.steps <= WARM_UP:
        parser.error(f"--steps must be more than the {WARM_UP} of the warm-up")
    if min(options.batch, options.every, options.updates) < 1:
        parser.error("--batch, --every and --updates must be at least 1")
    return options


def setting(options: argparse.Namespace, **own: Any) -> dict[str, Any]:
    """Everything that decides the work: the common part, the command line, and what is this
    opponent's own."""
    return {
        "env": ENV,
        "num_envs": 1,
        "hidden": HIDDEN,
        "activation": "relu",
        "optimizer": "adam",
        "lr": LR,
        "gamma": GAMMA,
        "epsilon": EPSILON,
        "capacity": CAPACITY,
        "learning_starts": LEARNING_STARTS,
        "target_every_updates": TARGET_EVERY,
        "batch": options.batch,
        "every": options.every,
        "updates": options.updates,
        "seed": options.seed,
        "threads": 1,
        "warm_up_steps": WARM_UP,
        **own,
    }


def ppo_setting(options: argparse.Namespace, **own: Any) -> dict[str, Any]:
    return {
        "env": ENV,
        "hidden": HIDDEN,
        "activation": "tanh",
        "optimizer": "adam",
        "gamma": GAMMA,
        "seed": options.seed,
        "threads": 1,
        **PPO,
        **own,
    }


def sac_setting(options: argparse.Namespace, **own: Any) -> dict[str, Any]:
    return {
        "hidden": HIDDEN,
        "activation": "relu",
        "optimizer": "adam",
        "gamma": GAMMA,
        "capacity": CAPACITY,
        "learning_starts": LEARNING_STARTS,
        "temperature": "learned",
        "batch": options.batch,
        "every": options.every,
        "updates": options.updates,
        "seed": options.seed,
        "threads": 1,
        "warm_up_steps": WARM_UP,
        **SAC,
        **own,
    }


@contextmanager
def needs(package: str) -> Iterator[None]:
    """Ends the script with a sentence where an import within fails."""
    try:
        yield
    except ImportError as missing:
        sys.exit(
            f"{package} is not installed here ({missing}): run `make bench-peers` and use "
            ".venv-peers/bin/python."
        )


class Stopwatch:
    """Wall-clock and processor seconds of a `with` block."""

    def __enter__(self) -> "Stopwatch":
        self.seconds, self.processor = -time.perf_counter(), -time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter()
        self.processor += time.process_time()


def report(
    peer: str,
    package: str,
    steps: int,
    measured: int,
    watch: Stopwatch,
    chosen: dict[str, Any],
    **more: Any,
) -> None:
    """The last line. `cores_used` is processor time by wall time: below 1 the machine was busy,
    above 1 it was not one thread."""
    print(
        json.dumps(
            {
                "peer": peer,
                "version": version(package),
                "steps_per_second": round(measured / watch.seconds, 1),
                "steps": steps,
                "measured_steps": measured,
                "cores_used": round(watch.processor / watch.seconds, 2),
                **more,
                "setting": chosen,
            }
        )
    )

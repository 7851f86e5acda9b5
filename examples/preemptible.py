"""A run on a machine that may be taken away at any time: the same command starts it, and goes on
with it after SIGTERM, `kill -9` or a power cut, as if nothing had happened.

    python examples/preemptible.py runs/preemptible --steps 50000

Let the queue start this line again until it exits with 0. A machine that warns (SIGTERM) is left
with everything saved; without a warning the run goes on from its last checkpoint, at most
`checkpoint_every` steps back, and makes the same numbers again. FOLDER must lie on a disk that
outlives the machine.
"""

import argparse
import sys
from pathlib import Path

import tenfold as ten

AGAIN = 75  # "try again later": what the queue should restart for


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="where the run is kept")
    parser.add_argument("--steps", type=int, default=50_000, help="environment steps in all")
    arguments = parser.parse_args()
    if (arguments.folder / "config.yaml").exists():
        result = ten.resume(arguments.folder, arguments.steps, quiet=True)
    else:
        run = ten.Run(
            env="CartPole-v1",
            agent=ten.DQN(n_step=3),
            steps=arguments.steps,
            checkpoint_every=2_000,
        )
        result = ten.train(run, arguments.folder, quiet=True)
    print(f"step {result.step:,} of {arguments.steps:,}", flush=True)
    return AGAIN if result.interrupted else 0


if __name__ == "__main__":
    sys.exit(main())

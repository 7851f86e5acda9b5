"""cpprb's prioritised replay: add one transition, sample a batch, write back its priorities, on a
full memory.

--steps is the number of such cycles; --every and --updates mean nothing here. Prints microseconds a
cycle, the median of turns.
"""

import json
import statistics
import time
from importlib.metadata import version

import peer

SIZE = 100_000
ALPHA, BETA = 0.6, 0.4
WARM, TURN = 1_000, 500  # cycles before the clock starts; cycles a turn


def main() -> None:
    options = peer.arguments(__doc__, steps=50_000)
    with peer.needs("cpprb"):
        import numpy as np
        from cpprb import PrioritizedReplayBuffer
    rng = np.random.default_rng(options.seed)
    vector, number = {"shape": 4, "dtype": np.float32}, {"dtype": np.float32}
    replay = PrioritizedReplayBuffer(
        SIZE,
        {
            "obs": vector,
            "act": {"dtype": np.int64},
            "rew": number,
            "next_obs": vector,
            "done": number,
        },
        alpha=ALPHA,
    )
    obs = rng.normal(size=(SIZE, 4)).astype(np.float32)
    action = rng.integers(0, 2, SIZE)
    replay.add(
        obs=obs,
        act=action,
        rew=np.ones(SIZE, np.float32),
        next_obs=obs,
        done=np.zeros(SIZE, np.float32),
    )
    for first in range(0, SIZE, 1000):  # unequal priorities, as in use
        replay.update_priorities(np.arange(first, first + 1000), rng.uniform(0.01, 2, 1000))
    errors = rng.uniform(0.01, 2, (SIZE, options.batch)).astype(np.float32)

    def cycles(start: int, count: int) -> None:
        for i in range(start, start + count):
            row = i % SIZE
            replay.add(obs=obs[row], act=action[row], rew=1.0, next_obs=obs[row - 1], done=0.0)
            batch = replay.sample(options.batch, BETA)
            replay.update_priorities(batch["indexes"], errors[row])

    cycles(0, WARM)
    times = []
    for start in range(WARM, max(options.steps, WARM + TURN), TURN):
        begin = time.perf_counter()
        cycles(start, TURN)
        times.append((time.perf_counter() - begin) / TURN * 1e6)
    print(
        json.dumps(
            {
                "peer": "cpprb",
                "version": version("cpprb"),
                "us_per_cycle": round(statistics.median(times), 2),
                "us_per_cycle_best": round(min(times), 2),
                "steps": TURN * len(times),
                "setting": {
                    "size": SIZE,
                    "batch": options.batch,
                    "alpha": ALPHA,
                    "beta": BETA,
                    "obs": "4 float32",
                    "cycle": "add 1 + sample + update_priorities",
                    "turn": TURN,
                    "seed": options.seed,
                    "threads": 1,
                },
            }
        )
    )


if __name__ == "__main__":
    main()

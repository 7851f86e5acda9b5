"""Hidden dynamics from recordings: ten traces of a pendulum, observed through five noisy sensors,
and what a model of two hidden states predicts of them.

    python examples/recordings.py
"""

from pathlib import Path

import numpy as np

import tenfold as ten

DT = 0.1


def record(traces: int = 10, steps: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Observations [traces, steps, 5] and actions [traces, steps, 1] of a damped pendulum that is
    pushed now and then."""
    rng = np.random.default_rng(0)
    sensors = rng.normal(size=(2, 5))
    observations, pushed = np.zeros((traces, steps, 5)), np.zeros((traces, steps, 1))
    for trace in range(traces):
        angle, speed = rng.normal(size=2)
        for t in range(steps):
            push = rng.normal() if t % 10 == 0 else 0.0
            observations[trace, t] = np.array([angle, speed]) @ sensors + 0.05 * rng.normal(size=5)
            pushed[trace, t] = push
            speed += DT * (-np.sin(angle) - 0.1 * speed + push)
            angle += DT * speed
    return observations, pushed


def main(steps: int = 1_000) -> float:
    Path("runs").mkdir(exist_ok=True)
    observations, pushed = record()
    np.savez("runs/pendulum.npz", observations=observations, actions=pushed, dt=DT)
    run = ten.fit(
        "runs/pendulum.npz",
        "runs/pendulum",
        settings={"steps": steps, "eval_every": 0, "agent": {"model": {"latent": 2}}},
        overwrite=True,
        quiet=True,
    )
    agent = ten.load(run.path)
    ahead = agent.forecast(observations[0], pushed[0], 5)  # [T - 5 + 1, 5, 5]: five steps ahead
    missed = np.mean((ahead[:-1, 4] - observations[0, 5:]) ** 2)
    still = np.mean(
        (observations[0, :-5] - observations[0, 5:]) ** 2
    )  # nothing changes: the guess to beat
    print(f"five steps ahead: error {missed:.3f}, of the last observation {still:.3f}")
    return float(missed / still)


if __name__ == "__main__":
    main()

"""What the adapter adds to an environment step: the same actions and episode seeds, the environment
alone and behind it."""

from statistics import median

import gymnasium as gym
import numpy as np
from measure import turns, write

from tenfold.envs.making import make_env
from tenfold.envs.scalar import ScalarEnvironments

STEPS = 1000  # short turns, many of them: the machine changes its pace within a second


def compare(name: str, num_envs: int) -> dict[str, object]:
    rng = np.random.default_rng(0)
    together = ScalarEnvironments(name, num_envs, 0)
    actions = rng.integers(together.action_space.n, size=(STEPS // num_envs, num_envs))
    listed = actions.tolist()
    alone = [make_env(name) for _ in range(num_envs)]
    for env in alone:
        env.reset(seed=1)
    vector = gym.vector.SyncVectorEnv(
        [lambda: make_env(name)] * num_envs, autoreset_mode=gym.vector.AutoresetMode.SAME_STEP
    )
    vector.reset(seed=0)

    def environment() -> int:
        """The least any program must do: step, and reset with a seed at an episode's end."""
        for row in listed:
            for env, action in zip(alone, row, strict=True):
                _, _, terminated, truncated, _ = env.step(action)
                if terminated or truncated:
                    env.reset(seed=7)
        return STEPS

    def adapter() -> int:
        for row in actions:
            together.step(row)
        return STEPS

    def gymnasium_vector() -> int:
        for row in actions:
            vector.step(row)
        return STEPS

    times = turns(
        {"environment": environment, "adapter": adapter, "SyncVectorEnv": gymnasium_vector}, 201
    )
    found = {way: median(t) for way, t in times.items()}
    # of neighbouring turns, since the machine's pace drifts by more than what is measured
    overhead = median(a - e for a, e in zip(times["adapter"], times["environment"], strict=True))
    return {
        "name": "adapter",
        "setting": {"env": name, "num_envs": num_envs},
        "environment_us": round(found["environment"], 2),
        "adapter_us": round(found["adapter"], 2),
        "sync_vector_us": round(found["SyncVectorEnv"], 2),
        "overhead_us": round(overhead, 2),
        "bar_us": 2.0,
    }


if __name__ == "__main__":
    write(
        "adapter", [compare(name, n) for name in ("CartPole-v1", "MountainCar-v0") for n in (1, 8)]
    )

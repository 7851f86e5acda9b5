"""A hidden system of one's own that tells its truth: a FitzHugh-Nagumo neuron seen through ten
noisy channels, driven by a current. `info["latent"]` is its state and `field(z)` its dz/dt, so that
the error of the learned field is known, as for tenfold's own systems.

    python examples/fitzhugh_nagumo.py
    PYTHONPATH=examples tenfold compare explorer --env fitzhugh_nagumo:FitzHughNagumo-v0 \
        --policies active,random --seeds 4 --steps 2000
"""

from typing import Any

import gymnasium as gym
import numpy as np

import tenfold as ten
from tenfold.runs.metrics import read_rows

PARTS = 10  # Runge-Kutta steps of one step


class FitzHughNagumo(gym.Env[np.ndarray, np.ndarray]):
    """dv = v − v³/3 − w + 0.5 + current/2,   dw = 0.08·(v + 0.7 − 0.8·w)."""

    def __init__(self, dt: float = 0.5, channels: int = 10, noise: float = 0.02) -> None:
        self.dt, self.noise = dt, noise  # tenfold takes the time of a step from `dt`
        self.readout = np.random.default_rng(0).normal(size=(channels, 2))
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (channels,), np.float32)
        self.action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def field(self, z: np.ndarray) -> np.ndarray:
        """dz/dt without current, at states [n, 2] or [2]."""
        v, w = z[..., 0], z[..., 1]
        return np.stack([v - v**3 / 3 - w + 0.5, 0.08 * (v + 0.7 - 0.8 * w)], -1)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.z, self.steps = self.np_random.uniform([-2, -0.5], [2, 1.5]), 0
        return self.look()

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        push, h = np.array([0.5 * float(np.ravel(action)[0]), 0.0]), self.dt / PARTS
        for _ in range(PARTS):
            k1 = self.field(self.z) + push
            k2 = self.field(self.z + h / 2 * k1) + push
            k3 = self.field(self.z + h / 2 * k2) + push
            k4 = self.field(self.z + h * k3) + push
            self.z = self.z + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        self.steps += 1
        obs, info = self.look()
        return obs, 0.0, False, self.steps >= 200, info

    def look(self) -> tuple[np.ndarray, dict[str, Any]]:
        y = self.readout @ self.z + self.noise * self.np_random.normal(size=len(self.readout))
        return y.astype(np.float32), {"latent": self.z.copy()}


gym.register("FitzHughNagumo-v0", FitzHughNagumo)


def main(steps: int = 1_000, out: str = "runs/fitzhugh-nagumo") -> None:
    run = ten.train(
        "explorer",
        out,
        env="FitzHughNagumo-v0",
        steps=steps,
        eval_every=steps,
        eval_episodes=64,
        overwrite=True,
    )
    fit = [row for row in read_rows(run.path / "metrics.jsonl") if row["kind"] == "fit"][-1]
    print(f"error of the field: {fit['field_error']:.3f} of the mean along a step of 0.5,")
    print(f"                    {fit['instant_error']:.3f} of the instantaneous one")
    z = [[0.0, 0.5]]
    agent = ten.load(run.path)
    print(f"dz/dt at {z[0]}: true {FitzHughNagumo().field(np.array(z))[0].round(3).tolist()}")
    print(f"  learned {agent.field(z, true=True, instantaneous=True)[0].round(3).tolist()}")


if __name__ == "__main__":
    main()

"""`action_noise`: objects of Stable-Baselines3 as our `noise`."""

from typing import Any

import numpy as np

from tenfold.config.notation import show
from tenfold.integrations.sb3.converted import SB3Settings, refuse

KEY = "action_noise"
NORMAL, ORNSTEIN_UHLENBECK = "NormalActionNoise", "OrnsteinUhlenbeckActionNoise"


class NamedNoise:
    """Gaussian noise (Ornstein-Uhlenbeck's with `theta` and `dt`) of every action, where no object
    of Stable-Baselines3 says it: RL-Zoo's files name it."""

    def __init__(self, sigma: float, theta: float | None = None, dt: float = 1e-2) -> None:
        self.sigma, self.theta, self.dt = sigma, theta, dt


def translate_noise(t: SB3Settings) -> None:
    noise = t[KEY]
    if noise is None:
        if t.class_name != "SAC":
            t.set("noise", 0.0, KEY)
        return
    if type(noise).__name__ == "VectorizedActionNoise":  # one for each environment, as it is here
        noise = noise.base_noise
    if isinstance(noise, NamedNoise):
        how = noise.sigma, 0.0, noise.theta, noise.dt
    elif type(noise).__name__ == NORMAL:
        how = noise._sigma, noise._mu, None, 0.0
    elif type(noise).__name__ == ORNSTEIN_UHLENBECK:
        if noise.initial_noise is not None and any(numbers(noise.initial_noise)):
            refuse(KEY, noise, "it begins at 0 here: leave out initial_noise")
        how = noise._sigma, noise._mu, noise._theta, noise._dt
    else:
        refuse(KEY, type(noise).__name__, f"there are {NORMAL} and {ORNSTEIN_UHLENBECK}")
        return
    sigma, mean = equal(how[0]), equal(how[1])
    if how[2] is not None:
        if mean != 0 or not isinstance(sigma, float):
            refuse(KEY, noise, "its mean is 0, and its sigma one number, here")
        t.set("noise", f"ou({show(sigma)}, {show(float(how[2]))}, {show(float(how[3]))})", KEY)
    elif mean == 0 and isinstance(sigma, float):
        if sigma or t.class_name != "SAC":
            t.set("noise", sigma if t.class_name != "SAC" else f"normal({show(sigma)})", KEY)
    else:
        t.set("noise", f"normal({listed(sigma)}, {listed(mean)})", KEY)


def numbers(values: Any) -> list[float]:
    return [float(value) for value in np.ravel(values)]


def equal(values: Any) -> float | list[float]:
    """One number where all are the same."""
    listed_values = numbers(values)
    return listed_values[0] if len(set(listed_values)) == 1 else listed_values


def listed(value: float | list[float]) -> str:
    return show(value) if isinstance(value, float) else f"[{', '.join(map(show, value))}]"

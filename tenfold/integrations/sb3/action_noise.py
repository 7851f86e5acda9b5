"""`action_noise`: objects of Stable-Baselines3 as our `noise`."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from tenfold.config.action_noise import OU, Normal
from tenfold.integrations.sb3.converted import SB3Settings, refuse

KEY = "action_noise"
NORMAL, ORNSTEIN_UHLENBECK = "NormalActionNoise", "OrnsteinUhlenbeckActionNoise"


@dataclass(frozen=True)
class NamedNoise:
    """Gaussian noise (Ornstein-Uhlenbeck's with `theta`) of every action, where no object
    of Stable-Baselines3 says it: RL-Zoo's files name it."""

    sigma: float
    theta: float | None = None


def translate_noise(t: SB3Settings) -> None:
    noise = t[KEY]
    if type(noise).__name__ == "VectorizedActionNoise":  # one for each environment, as it is here
        noise = noise.base_noise
    if noise is None:
        if t.class_name != "SAC":
            t.set("noise", 0.0, KEY)
        return
    t.set("noise", str(option_of(noise)), KEY)


def option_of(noise: Any) -> Normal | OU:
    """The same noise as our setting. It is added to uniform actions too, before learning starts."""
    if isinstance(noise, NamedNoise):
        sigma = (noise.sigma,)
        return Normal(sigma=sigma) if noise.theta is None else OU(sigma=sigma, theta=noise.theta)
    kind = type(noise).__name__
    if kind not in (NORMAL, ORNSTEIN_UHLENBECK):
        refuse(KEY, kind, f"there are {NORMAL} and {ORNSTEIN_UHLENBECK}")
    sigma, mean = numbers(noise._sigma), numbers(noise._mu)
    if kind == NORMAL:
        return Normal(sigma=sigma, mean=mean)
    if noise.initial_noise is not None and any(numbers(noise.initial_noise)):
        refuse(KEY, noise, "it begins at 0 here: leave out initial_noise")
    return OU(sigma=sigma, theta=noise._theta, dt=noise._dt, mean=mean)


def numbers(values: Any) -> tuple[float, ...]:
    """One number where all are the same."""
    array = np.asarray(values, np.float64)
    items = [float(array.flat[k]) for k in range(array.size)]
    return tuple(items[:1] if len(set(items)) == 1 else items)

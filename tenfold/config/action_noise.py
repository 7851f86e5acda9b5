"""Settings of noise that is added to actions while an agent explores (`ops.action_noise`).

No torch here, so that help and errors appear at once.
"""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from tenfold.config.notation import show
from tenfold.config.schema import NotNegative, Option, Positive
from tenfold.core.errors import ConfigError


class ActionNoiseOption(Option):
    """Noise on actions between -1 and 1 while the agent explores, uniform ones included: a number
    for all numbers of an action, or one for each."""

    sigma: Any
    mean: Any

    def __post_init__(self) -> None:
        for name in ("sigma", "mean"):
            value = getattr(self, name)
            if isinstance(value, int | float):
                object.__setattr__(self, name, (value,))
        super().__post_init__()

    def __str__(self) -> str:
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        shown = ", ".join(
            f"{name}={f'[{show(value)}]' if isinstance(value, tuple) else show(value)}"
            for name, value in values.items()
        )
        return f"{type(self).__name__.lower()}({shown})"

    def rule(self, reals: int) -> np.ndarray:
        """See `ops.action_noise`, for actions of so many numbers."""
        for name in ("sigma", "mean"):
            if len(getattr(self, name)) not in (1, reals):
                raise ConfigError(
                    f"agent.noise, {type(self).__name__.lower()}.{name}",
                    f"= {show(getattr(self, name))} is {len(getattr(self, name))} numbers, and an "
                    f"action has {reals}: give as many, or one for all.",
                )
        mean, sigma = (np.broadcast_to(part, reals) for part in (self.mean, self.sigma))
        return np.ascontiguousarray(self.parts(mean, sigma))

    def parts(self, mean: np.ndarray, sigma: np.ndarray) -> tuple[np.ndarray, ...]:
        """How much of the noise before is kept, what is added, and the deviation."""
        raise NotImplementedError


@dataclass(frozen=True)
class Normal(ActionNoiseOption):
    """Normal noise, each step's by itself."""

    sigma: tuple[NotNegative, ...] = (0.1,)
    mean: tuple[float, ...] = (0.0,)

    def parts(self, mean: np.ndarray, sigma: np.ndarray) -> tuple[np.ndarray, ...]:
        return np.zeros_like(sigma), mean, sigma


@dataclass(frozen=True)
class OU(ActionNoiseOption):
    """Noise of an Ornstein-Uhlenbeck process, which begins at 0 with every episode: x moves by
    theta * (mean - x) * dt and by a normal number times sigma * sqrt(dt)."""

    sigma: tuple[NotNegative, ...] = (0.2,)
    theta: NotNegative = 0.15
    dt: Positive = 0.01
    mean: tuple[float, ...] = (0.0,)

    def parts(self, mean: np.ndarray, sigma: np.ndarray) -> tuple[np.ndarray, ...]:
        pull = self.theta * self.dt
        return np.full_like(sigma, 1 - pull), pull * mean, sigma * self.dt**0.5

"""Settings of noise that is added to actions while an agent explores (`ops.exploration_noise`).

No torch here, so that help and errors appear at once.
"""

from dataclasses import dataclass, fields
from typing import Any

from tenfold.config.notation import show
from tenfold.config.schema import NotNegative, Option, Positive
from tenfold.core.errors import ConfigError


class ActionNoiseOption:
    """Noise on actions between -1 and 1 while the agent explores, uniform ones included: a number
    for all numbers of an action, or one for each. Mixin: list it before `Option`."""

    sigma: Any
    mean: Any

    def __post_init__(self) -> None:
        for name in ("sigma", "mean"):
            value = getattr(self, name)
            value = value.tolist() if hasattr(value, "tolist") else value  # of NumPy's
            object.__setattr__(self, name, (value,) if isinstance(value, int | float) else value)
        super().__post_init__()  # type: ignore[misc]

    def __str__(self) -> str:
        values = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        arguments = ", ".join(
            f"{name}=[{show(value)}]" if name in ("sigma", "mean") else f"{name}={show(value)}"
            for name, value in values.items()
        )
        return f"{type(self).__name__.lower()}({arguments})"

    def rule(self, reals: int) -> list[tuple[float, ...]]:
        """`rule` of `ops.exploration_noise`, for actions of so many numbers."""
        sides = []
        for name in ("mean", "sigma"):
            values = getattr(self, name)
            if len(values) not in (1, reals):
                raise ConfigError(
                    f"agent.noise, {type(self).__name__.lower()}.{name}",
                    f"= {show(values)} is {len(values)} numbers, and an action has {reals}: give "
                    "as many, or one for all.",
                )
            sides.append(values * (reals if len(values) == 1 else 1))
        return list(zip(*map(self.factors, *sides), strict=True))

    def factors(self, mean: float, sigma: float) -> tuple[float, float, float]:
        """How much of the noise before is kept, what is added, and the deviation."""
        raise NotImplementedError


@dataclass(frozen=True)
class Normal(ActionNoiseOption, Option):
    """Normal noise, each step's by itself."""

    sigma: tuple[NotNegative, ...] = (0.1,)
    mean: tuple[float, ...] = (0.0,)

    def factors(self, mean: float, sigma: float) -> tuple[float, float, float]:
        return 0.0, mean, sigma


@dataclass(frozen=True)
class OU(ActionNoiseOption, Option):
    """Noise of an Ornstein-Uhlenbeck process, which begins at 0 with every episode: x moves by
    theta * (mean - x) * dt and by a normal number times sigma * sqrt(dt)."""

    sigma: tuple[NotNegative, ...] = (0.2,)
    theta: NotNegative = 0.15
    dt: Positive = 0.01
    mean: tuple[float, ...] = (0.0,)

    def factors(self, mean: float, sigma: float) -> tuple[float, float, float]:
        pull = self.theta * self.dt
        return 1 - pull, pull * mean, sigma * self.dt**0.5

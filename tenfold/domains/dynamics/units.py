"""The units that a model of a hidden system works in, and the way there and back.

A recording says the same in volts and in millivolts, in seconds and in milliseconds. First weights,
priors, the learning rate and the grid of radial basis functions do not: they are made for numbers
of about 1. So inside the agent

    observation   (y − mean) / scale        each channel's mean and deviation
    action        (a − centre) / reach      within ±1; the centre is 0 where that is an action, else
    the middle of the range
    time          a step takes STEP         whatever it takes outside

and everything that leaves is turned back. Counts are left alone, since Poisson noise knows no other
scale. The mean behind a loglinear decoder is above 0, so that 0 has to stay where it is:
observations are divided by their root mean square only.
"""

from typing import NamedTuple

import numpy as np

from tenfold.core.errors import ConfigError, UserError
from tenfold.domains.dynamics.config import LatentModel

# of time, inside: a first drift of about 1 then moves a state by a tenth of its deviation in a step
STEP = 0.1
ROUNDING = 1e-15  # of a channel's mean: what deviates by less does not vary
GROWTH = 1.25  # times as many rows as the units were taken from, they are taken anew


class Channels(NamedTuple):
    """Of every member and channel, [M, Y] each: mean, scale, and whether it varied at all in what
    both were taken from."""

    mean: np.ndarray
    scale: np.ndarray
    varied: np.ndarray


def channels_of(y: np.ndarray, centred: bool) -> Channels:
    """From rows [M, n, Y]. A channel that never varies has the scale of its one number, or 1 where
    that is 0."""
    mean = y.mean(1)
    middle = mean if centred else np.zeros_like(mean)
    scale = np.sqrt(np.square(y - middle[:, None]).mean(1))
    varied = scale > ROUNDING * np.abs(middle)
    if centred:
        varied &= y.max(1) > y.min(1)
    return Channels(middle, np.where(varied, scale, np.where(mean == 0, 1.0, np.abs(mean))), varied)


class Units:
    """Of M members, whose channels may differ, and of the actions and the step that they share."""

    def __init__(self, members: int, observations: int, model: LatentModel, dt: float) -> None:
        if not dt > 0:
            raise ConfigError("dt", f"= {dt} is not positive: give the time of one step.")
        self.dt = dt
        self.free, self.centred = model.noise != "poisson", model.decoder != "loglinear"
        shape = (members, observations)
        self.channels = Channels(np.zeros(shape), np.ones(shape), np.ones(shape, np.bool_))
        self.rows = 0  # that they were taken from; 0: not yet

    def require_counts(self, y: np.ndarray) -> None:
        """Refuses observations below 0 where the noise is that of counts."""
        if not self.free and np.min(y) < 0:
            raise UserError(
                "agent.model.noise = poisson is for counts, and an observation has "
                f"{np.min(y):.6g}, which is below 0: use gaussian."
            )

    @property
    def known(self) -> bool:
        """Whether numbers inside are what they are meant to be."""
        return self.rows > 0 or not self.free

    def outgrown(self, rows: int) -> bool:
        """Whether so many rows should be looked at."""
        return self.free and rows >= GROWTH * self.rows

    def take(self, y: np.ndarray, rows: int) -> Channels:
        """The channels are those of y [M, n, Y] from now on; what they were is given back."""
        old, self.channels, self.rows = (
            self.channels,
            channels_of(np.asarray(y, np.float64), self.centred),
            rows,
        )
        return old

    def bound(self, low: np.ndarray, high: np.ndarray) -> None:
        """Actions are within low and high [A]."""
        low, high = (np.asarray(end, np.float64) for end in (low, high))
        self.low, self.high = low, high
        self.centre = np.where((low <= 0) & (high >= 0), 0.0, (low + high) / 2)
        reach = np.maximum(high - self.centre, self.centre - low)
        self.reach = np.where(reach > 0, reach, 1.0)

    def observed(self, y: np.ndarray) -> np.ndarray:
        """Observations [M, …, Y] as they are inside. In float64: a small difference of large
        numbers is one inside."""
        return (y - wide(self.channels.mean, y)) / wide(self.channels.scale, y)

    def foretold(self, y: np.ndarray) -> np.ndarray:
        """Observations [M, …, Y] as they are outside."""
        return y * wide(self.channels.scale, y) + wide(self.channels.mean, y)

    def acted(self, a: np.ndarray) -> np.ndarray:
        """Actions [..., A] as they are inside."""
        return (a - self.centre) / self.reach

    def chosen(self, a: np.ndarray) -> np.ndarray:
        """Actions [..., A] as they are outside."""
        return a * self.reach + self.centre

    @property
    def pace(self) -> float:
        """A velocity outside, of one inside."""
        return STEP / self.dt

    @property
    def log_density(self) -> np.ndarray:
        """What the logarithm of an observation's density has more outside than inside, [M]."""
        return -np.log(self.channels.scale).sum(-1)

    def state(self) -> dict[str, np.ndarray]:
        return {
            **self.channels._asdict(),
            "rows": np.array(self.rows),
            "low": self.low,
            "high": self.high,
        }

    def load_state(self, state: dict[str, np.ndarray]) -> None:
        self.channels = Channels(
            *(
                np.array(state[name]).astype(own.dtype).reshape(own.shape)
                for name, own in self.channels._asdict().items()
            )
        )
        self.rows = int(state["rows"])
        self.bound(state["low"], state["high"])


def wide(of_members: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """[M, Y] such that it broadcasts with rows [M, …, Y]."""
    return of_members.reshape(len(of_members), *[1] * (rows.ndim - 2), -1)

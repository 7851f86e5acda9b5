"""What is known of a system besides its observations: hidden states, and the field at them.

Our own systems know both. An environment of one's own may offer `info["latent"]`, the hidden state
[D], with each observation, and a method `field(z)`: dz/dt without action at states [n, D] (or at
one, [D]), for the unit of time that its `dt` is in.
"""

from typing import Any, NamedTuple

import numpy as np

from tenfold.core.errors import EnvironmentFault, described, raised
from tenfold.envs.faults import CALLERS, fault_of

CALLERS.add(__file__)
GRID = 25  # points of the grid in each dimension
PLANE = 2  # numbers of a state that a grid is laid over; more of them are judged where they were
MOST_POINTS = 5_000  # of the latter


class Truth(NamedTuple):
    """What is known of our fields: hidden states [E, T, D], the field at points [n, D] of a grid,
    and how often the states come near each [n]. `continuous`: a step is the flow of the field, and
    not the field times dt."""

    latent: np.ndarray
    points: np.ndarray
    field: np.ndarray
    weight: np.ndarray
    continuous: bool = False


def grid_over(states: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    """A grid over states [n, D]: its axes, and all its points, the last dimension fastest."""
    axes = [axis_over(column, GRID) for column in states.T]
    return axes, np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(axes))


def axis_over(values: np.ndarray, points: int) -> np.ndarray:
    """Evenly spaced over all values but the outermost."""
    low, high = np.quantile(values, (0.005, 0.995)).tolist()
    if high - low < 1e-6 * max(abs(low), abs(high), 1):  # values that do not vary
        low, high = low - 0.5, high + 0.5
    return np.linspace(low, high, points)


def near(axes: list[np.ndarray], states: np.ndarray) -> np.ndarray:
    """How many states [n, D] come nearest to each point of a grid."""
    edges = [np.concatenate(([-np.inf], (axis[1:] + axis[:-1]) / 2, [np.inf])) for axis in axes]
    return np.histogramdd(states, edges)[0].ravel()


# of an environment of one's own


def latent_in(name: str, info: Any) -> np.ndarray | None:
    """The hidden state [D] that comes with an observation; none where the environment offers no
    such thing."""
    if not isinstance(info, dict) or info.get("latent") is None:
        return None
    try:
        latent = np.asarray(info["latent"], np.float64)
    except (TypeError, ValueError):
        latent = np.zeros((0, 0))
    if latent.ndim != 1 or not latent.size or not np.isfinite(latent).all():
        raise EnvironmentFault(
            f'{name}: info["latent"] must be the hidden state, finite numbers in one dimension, '
            f"and is {str(info['latent'])[:80]}."
        )
    return latent


def truth_of(name: str, env: Any, latent: np.ndarray) -> Truth | None:
    """What an environment says of its field around hidden states [E, T, D]; none where it has no
    method `field`."""
    field = getattr(env.unwrapped, "field", None)
    if not callable(field):
        return None
    states = latent.reshape(-1, latent.shape[-1])
    if states.shape[1] <= PLANE:
        axes, points = grid_over(states)
        weight = near(axes, states)
    else:
        points = states[:: -(-len(states) // MOST_POINTS)]
        weight = np.ones(len(points))
    return Truth(latent, points, field_at(name, field, points), weight, True)


def field_at(name: str, field: Any, points: np.ndarray) -> np.ndarray:
    """field(z) at points [n, D], all at once where the method takes them so, else one by one."""
    together = None  # what it raised; it may be made for one state
    try:
        found = np.asarray(field(points.copy()), np.float64)
    except Exception as error:
        together, found = error, np.zeros(0)
    if found.shape != points.shape or not agrees(field, points, found):
        found = np.stack([field_alone(name, field, point, together) for point in points])
    if not np.isfinite(found).all():
        place = points[int(np.argmin(np.isfinite(found).all(1)))]
        raise EnvironmentFault(
            f"{name}: field(z) is not finite at z = {np.array2string(place, precision=3)}, which "
            "recordings come near to."
        )
    return found


def field_alone(name: str, field: Any, point: np.ndarray, together: Exception | None) -> np.ndarray:
    """field(z) at one state [D]; `together` is what it raised when it was given all at once."""
    try:
        found = np.asarray(field(point.copy()), np.float64).ravel()
    except Exception as error:
        place = f"{name}, z = {np.array2string(point, precision=3)}"
        fault = fault_of(place, "field(z)", error)
        if together is None or described(together) == described(error):
            raise fault from error
        # one of the two is what the method is made for, and only its author knows which
        raise EnvironmentFault(
            f"{fault} Given all states at once, as rows, it {raised(together)}."
        ) from error
    if found.size != point.size:
        raise EnvironmentFault(
            f"{name}: field(z) gives {found.size} numbers for a state of {point.size}: it must "
            "give dz/dt, as many as z has."
        )
    return found


def agrees(field: Any, points: np.ndarray, found: np.ndarray) -> bool:
    """Whether a method that took all states at once says the same of one: with as many states as
    numbers, rows may have been taken for columns."""
    try:
        alone = np.asarray(field(points[:1].copy()), np.float64)
    except Exception:
        return len(points) != points.shape[1]
    return alone.size == points.shape[1] and np.allclose(alone.ravel(), found[0], rtol=1e-6)

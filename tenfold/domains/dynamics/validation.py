"""Validation recordings: episodes of random actions that are not trained on, and the ground truth
of a system: hidden states and the field.

The built-in systems have both. A user's environment may offer `info["latent"]`, the hidden state
[D], with each observation, and a method `field(z)`: dz/dt without action at states [n, D] (or at
one, [D]), for the unit of time that its `dt` is in.
"""

from contextlib import closing
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from tenfold.core.errors import FAULTS, ConfigError, EnvironmentFault, described, raised
from tenfold.core.random import Purpose, bits, key, uniform
from tenfold.domains.dynamics import is_field, is_recording
from tenfold.domains.dynamics.fields import Field, FieldState
from tenfold.domains.dynamics.recording import VALIDATION_LENGTH, load_recording
from tenfold.envs.faults import CALLERS, fault_of
from tenfold.envs.making import make_env

CALLERS.add(__file__)
LENGTH = VALIDATION_LENGTH  # steps of a recording
HOLD = 10  # steps for which recordings hold a random action: pushes that last lead off an attractor
GRID = 25  # points of the grid in each dimension
PLANE = 2  # numbers of a state that a grid is laid over; more of them are judged where they were
MOST_POINTS = 5_000  # of the latter


class Truth(NamedTuple):
    """Hidden states [E, T, D], the field at points [n, D] of a grid, and how often the states come
    near each [n]. `continuous`: a step is the flow of the field, and not the field times dt."""

    latent: np.ndarray
    points: np.ndarray
    field: np.ndarray
    weight: np.ndarray
    continuous: bool = False


class Recordings(NamedTuple):
    """Observations y [E, T, Y] and actions a [E, T, A] (a_t follows y_t)."""

    y: np.ndarray
    a: np.ndarray
    truth: Truth | None = None


def random_recordings(
    name: str, episodes: int, purpose: Purpose = Purpose.SELECT, seed: int = 0
) -> Recordings:
    """Episodes of random actions, the same for every seed of an experiment. The best checkpoint is
    chosen on others (Purpose.SELECT) than the final evaluation uses."""
    if is_recording(name):
        division = load_recording(name).divided()
        return Recordings(*(division.judging if purpose is Purpose.EVALUATE else division.choosing))
    if is_field(name):
        return record_field(Field.named(name), episodes, purpose, seed)
    return record_any(name, episodes, purpose, seed)


def record_field(system: Field, episodes: int, purpose: Purpose, seed: int) -> Recordings:
    """Starts are spread over the region, so that the way to an attractor counts too."""
    seeds = bits(key(seed, purpose), np.arange(episodes)) >> np.uint64(2)
    start = replace(system, start=system.reach)
    states = FieldState(start, [(int(s), int(purpose)) for s in seeds])
    y = np.zeros((episodes, LENGTH, system.width), np.float32)
    u = held_uniform(seed, purpose, episodes, system.actions)
    a = (system.bound * (2 * u - 1)).astype(np.float32)
    latent = np.zeros((episodes, LENGTH, system.latent))
    states.begin(*range(episodes))
    for t in range(LENGTH):
        states.observe(y[:, t])
        latent[:, t] = states.z
        states.advance(a[:, t])
    if system.ring:
        return Recordings(y, a)
    flat = latent.reshape(-1, system.latent)
    axes, points = grid_over(flat)
    # a step of one inner step is exactly the field times dt
    truth = Truth(
        latent, points, states.velocity(points), count_nearest(axes, flat), system.every > 1
    )
    return Recordings(y, a, truth)


def held_uniform(seed: int, purpose: Purpose, episodes: int, size: int) -> np.ndarray:
    """Uniform numbers [E, LENGTH, size], each held for a while."""
    count = -(-LENGTH // HOLD)
    u = uniform(key(seed, purpose, 1), np.arange(episodes * count * size))
    return np.repeat(u.reshape(episodes, count, size), HOLD, 1)[:, :LENGTH]


def record_any(name: str, episodes: int, purpose: Purpose, seed: int) -> Recordings:
    """The same of any environment, with as much truth as it offers. Recordings have the length of
    the shortest episode, but those of one step, which are left out."""
    played, truth = [], None
    with closing(make_env(name)) as env:
        if not hasattr(env.action_space, "low"):
            raise ConfigError("env", f"= {name} has no actions of real numbers.")
        space: Any = env.action_space
        low, high = (np.nan_to_num(b, posinf=1, neginf=-1) for b in (space.low, space.high))
        u = held_uniform(seed, purpose, episodes, low.size).reshape(episodes, LENGTH, *low.shape)
        seeds = bits(key(seed, purpose), np.arange(episodes)) >> np.uint64(33)
        for e, one in enumerate(seeds.tolist()):
            actions = (low + (high - low) * u[e]).astype(np.float32)
            try:
                played.append(record_one(env, one, actions, name))
            except EnvironmentFault:
                raise
            except FAULTS as error:
                raise fault_of(f"{name}, recording {e}", "the environment", error) from error
            if not np.isfinite(played[-1][0]).all():
                raise EnvironmentFault(
                    f"{name}, recording {e}: an observation is not finite; mend the environment, "
                    "or clip what it returns."
                )
        whole = [episode for episode in played if len(episode[0]) > 1]  # one step predicts nothing
        if not whole:
            raise ConfigError(
                "env",
                f"= {name} has episodes of one step under random actions, and nothing can be "
                "foretold in them.",
            )
        length = min(len(y) for y, _, _ in whole)
        y, a = (np.stack([episode[k][:length] for episode in whole]) for k in (0, 1))
        if all(latent is not None for _, _, latent in played):
            truth = truth_in(name, env, [episode[2][:length] for episode in whole])
    return Recordings(y, a, truth)


def record_one(
    env: Any, seed: int, actions: np.ndarray, name: str
) -> tuple[np.ndarray, np.ndarray, Any]:
    """Observations before each of these actions until the episode ends, the actions taken, and the
    hidden states where the environment offers them."""
    obs, info = env.reset(seed=seed)
    observed, hidden, over = [obs], [latent_in(name, info)], False
    while not over and len(observed) <= len(actions):
        obs, _, terminated, truncated, info = env.step(actions[len(observed) - 1])
        observed.append(obs)
        hidden.append(latent_in(name, info))
        over = terminated or truncated
    steps = len(observed) - 1
    known = [latent for latent in hidden[:steps] if latent is not None]
    if len({len(latent) for latent in known}) > 1:
        raise EnvironmentFault(f'{name}: info["latent"] has not always as many numbers.')
    return (
        np.array(observed[:steps], np.float32).reshape(steps, -1),
        actions[:steps].reshape(steps, -1),
        np.stack(known) if steps and len(known) == steps else None,
    )


# the field on a grid


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


def count_nearest(axes: list[np.ndarray], states: np.ndarray) -> np.ndarray:
    """How many states [n, D] come nearest to each point of a grid."""
    edges = [np.concatenate(([-np.inf], (axis[1:] + axis[:-1]) / 2, [np.inf])) for axis in axes]
    return np.histogramdd(states, edges)[0].ravel()


# the truth of a user's environments


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


def truth_in(name: str, env: Any, hidden: list[np.ndarray]) -> Truth | None:
    """The environment's field around hidden states [T, D] of each recording; none where it has no
    method `field`."""
    sizes = {states.shape[1] for states in hidden}
    if len(sizes) > 1:
        raise EnvironmentFault(f'{name}: info["latent"] has {min(sizes)} and {max(sizes)} numbers.')
    field = getattr(env.unwrapped, "field", None)
    if not callable(field):
        return None
    latent = np.stack(hidden)
    states = latent.reshape(-1, latent.shape[-1])
    if states.shape[1] <= PLANE:
        axes, points = grid_over(states)
        weight = count_nearest(axes, states)
    else:
        points = states[:: -(-len(states) // MOST_POINTS)]
        weight = np.ones(len(points))
    try:
        return Truth(latent, points, field_at(name, field, points), weight, True)
    except EnvironmentFault:
        raise
    except Exception as error:
        raise fault_of(f"{name}, field(z)", "the environment", error) from error


def field_at(name: str, field: Any, points: np.ndarray) -> np.ndarray:
    """field(z) at points [n, D], all at once where the method takes them so, else one by one."""
    batch_error = None  # the method may be made for one state
    try:
        velocity = np.asarray(field(points.copy()), np.float64)
    except Exception as error:
        batch_error, velocity = error, np.zeros(0)
    if velocity.shape != points.shape or not agrees(field, points, velocity):
        velocity = np.stack([field_at_one(name, field, point, batch_error) for point in points])
    if not np.isfinite(velocity).all():
        where = points[int(np.argmin(np.isfinite(velocity).all(1)))]
        raise EnvironmentFault(
            f"{name}: field(z) is not finite at z = {np.array2string(where, precision=3)}, which "
            "recordings come near to."
        )
    return velocity


def field_at_one(
    name: str, field: Any, point: np.ndarray, batch_error: Exception | None
) -> np.ndarray:
    """field(z) at one state [D]; `batch_error` was raised when it was given all at once."""
    try:
        velocity = np.asarray(field(point.copy()), np.float64).ravel()
    except Exception as error:
        where = f"{name}, z = {np.array2string(point, precision=3)}"
        fault = fault_of(where, "field(z)", error)
        if batch_error is None or described(batch_error) == described(error):
            raise fault from error
        # one of the two is what the method is made for, and only its author knows which
        raise EnvironmentFault(
            f"{fault} Given all states at once, as rows, it {raised(batch_error)}."
        ) from error
    if velocity.size != point.size:
        raise EnvironmentFault(
            f"{name}: field(z) gives {velocity.size} numbers for a state of {point.size}: it must "
            "give dz/dt, as many as z has."
        )
    return velocity


def agrees(field: Any, points: np.ndarray, velocity: np.ndarray) -> bool:
    """Whether a method that took all states at once agrees with itself for one: with as many states
    as numbers, rows may have been taken for columns."""
    try:
        alone = np.asarray(field(points[:1].copy()), np.float64)
    except Exception:
        return len(points) != points.shape[1]
    return alone.size == points.shape[1] and np.allclose(alone.ravel(), velocity[0], rtol=1e-6)

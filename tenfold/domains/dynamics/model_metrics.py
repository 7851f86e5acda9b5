"""How well a hidden system was identified, judged on recordings of random actions that no training
saw.

The field's error is taken on a grid, in true coordinates, and weighted by how often recordings pass
there. Learned states are brought into true coordinates by the affine map that fits the recordings'
states best; it never sees the fields.
"""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from tenfold.core.errors import FAULTS, ConfigError, EnvironmentFault
from tenfold.core.random import Purpose, bits, fill_normal, key, uniform
from tenfold.domains.dynamics import is_field, is_recording
from tenfold.domains.dynamics.agent import ExplorerAgent
from tenfold.domains.dynamics.coordinates import align, field_error
from tenfold.domains.dynamics.elbo import draws_shape, elbo
from tenfold.domains.dynamics.fields import Field, Lanes
from tenfold.domains.dynamics.forecast import fit_arx, k_step_r2, repeated_r2
from tenfold.domains.dynamics.gap_metrics import (
    arx_r2_of_seen,
    k_step_r2_of_seen,
    repeated_r2_of_seen,
)
from tenfold.domains.dynamics.offline import recalled
from tenfold.domains.dynamics.recording import HELD
from tenfold.domains.dynamics.spikes import spike_metrics
from tenfold.domains.dynamics.truth import Truth, grid_over, latent_in, near, truth_of
from tenfold.envs.faults import CALLERS, fault_of
from tenfold.envs.making import make_env

CALLERS.add(__file__)
LENGTH = HELD  # steps of a recording
HOLD = 10  # steps for which recordings hold a random action: pushes that last lead off an attractor
STEPS = 10  # horizons of R²
LAGS = 2  # of ARX


class Recordings(NamedTuple):
    """Observations y [E, T, Y] and actions a [E, T, A] (a_t follows y_t)."""

    y: np.ndarray
    a: np.ndarray
    truth: Truth | None = None


def random_recordings(
    name: str, episodes: int, purpose: Purpose = Purpose.SELECT, seed: int = 0
) -> Recordings:
    """Episodes of random actions: the same for every seed of an experiment. Choosing a checkpoint
    looks at others (Purpose.SELECT) than judging it afterwards."""
    if is_recording(name):
        division = recalled(name).divided()
        return Recordings(*(division.judging if purpose is Purpose.EVALUATE else division.choosing))
    if is_field(name):
        return record_field(Field.named(name), episodes, purpose, seed)
    return record_any(name, episodes, purpose, seed)


def record_field(system: Field, episodes: int, purpose: Purpose, seed: int) -> Recordings:
    """Starts are spread over the region, so that the way to an attractor counts too."""
    own = bits(key(seed, purpose), np.arange(episodes)) >> np.uint64(2)
    lanes = Lanes(replace(system, start=system.reach), [(int(s), int(purpose)) for s in own])
    y = np.zeros((episodes, LENGTH, system.width), np.float32)
    a = (system.bound * (2 * held_uniform(seed, purpose, episodes, system.actions) - 1)).astype(
        np.float32
    )
    latent = np.zeros((episodes, LENGTH, system.latent))
    lanes.begin(*range(episodes))
    for t in range(LENGTH):
        lanes.observe(y[:, t])
        latent[:, t] = lanes.z
        lanes.advance(a[:, t])
    if system.ring:
        return Recordings(y, a)
    axes, points = grid_over(latent.reshape(-1, system.latent))
    weight = near(axes, latent.reshape(-1, system.latent))
    # a step of one inner step is the field times dt, and nothing else
    flows = system.every > 1
    return Recordings(y, a, Truth(latent, points, lanes.velocity(points), weight, flows))


def held_uniform(seed: int, purpose: Purpose, episodes: int, size: int) -> np.ndarray:
    """Uniform numbers [E, LENGTH, size], each held for a while."""
    parts = -(-LENGTH // HOLD)
    u = uniform(key(seed, purpose, 1), np.arange(episodes * parts * size)).reshape(
        episodes, parts, size
    )
    return np.repeat(u, HOLD, 1)[:, :LENGTH]


def record_any(name: str, episodes: int, purpose: Purpose, seed: int) -> Recordings:
    """The same of any environment, whose truth is known as far as it offers it; an episode that
    ends early is followed by a new one's rows only if it is too short, so ends are cut: recordings
    have the length of the shortest."""
    rows, actions, hidden, truth = [], [], [], None
    with closing(make_env(name)) as env:
        if not hasattr(env.action_space, "low"):
            raise ConfigError("env", f"= {name} has no actions of real numbers.")
        space: Any = env.action_space
        low, high = (np.nan_to_num(b, posinf=1, neginf=-1) for b in (space.low, space.high))
        u = held_uniform(seed, purpose, episodes, low.size).reshape(episodes, LENGTH, *low.shape)
        for e, own in enumerate(
            (bits(key(seed, purpose), np.arange(episodes)) >> np.uint64(33)).tolist()
        ):
            try:
                seen, taken, latent = record_one(
                    env, own, (low + (high - low) * u[e]).astype(np.float32), name
                )
            except EnvironmentFault:
                raise
            except FAULTS as error:
                raise fault_of(f"{name}, recording {e}", "the environment", error) from error
            if not np.isfinite(seen).all():
                raise EnvironmentFault(
                    f"{name}, recording {e}: an observation is not finite; mend the environment, "
                    "or clip what it returns."
                )
            rows.append(seen)
            actions.append(taken)
            hidden.append(latent)
        lengths = [len(own) for own in rows if len(own) > 1]  # one step alone foretells nothing
        if lengths and all(own is not None for own in hidden):
            truth = truth_in(name, env, [own[: min(lengths)] for own in hidden if len(own) > 1])
    if not lengths:
        raise ConfigError(
            "env",
            f"= {name} has episodes of one step under random actions, and nothing can be foretold "
            "in them.",
        )
    y, a = (
        np.stack([part[: min(lengths)] for part in parts if len(part) > 1])
        for parts in (rows, actions)
    )
    return Recordings(y, a, truth)


def truth_in(name: str, env: Any, hidden: list[np.ndarray]) -> Truth | None:
    """What the environment says of its field around the states of recordings."""
    sizes = {own.shape[1] for own in hidden}
    if len(sizes) > 1:
        raise EnvironmentFault(f'{name}: info["latent"] has {min(sizes)} and {max(sizes)} numbers.')
    try:
        return truth_of(name, env, np.stack(hidden))
    except EnvironmentFault:
        raise
    except Exception as error:
        raise fault_of(f"{name}, field(z)", "the environment", error) from error


def record_one(
    env: Any, seed: int, actions: np.ndarray, name: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """What was seen before each of these actions, as far as the episode goes, the actions taken,
    and the hidden states where the environment tells them."""
    obs, info = env.reset(seed=seed)
    seen, hidden, over = [obs], [latent_in(name, info)], False
    while not over and len(seen) <= len(actions):
        obs, _, terminated, truncated, info = env.step(actions[len(seen) - 1])
        seen.append(obs)
        hidden.append(latent_in(name, info))
        over = terminated or truncated
    steps = len(seen) - 1
    known = [own for own in hidden[:steps] if own is not None]
    if len({len(own) for own in known}) > 1:
        raise EnvironmentFault(f'{name}: info["latent"] has not always as many numbers.')
    return (
        np.array(seen[:steps], np.float32).reshape(steps, -1),
        actions[:steps].reshape(steps, -1),
        np.stack(known) if steps and len(known) == steps else None,
    )


@dataclass(frozen=True)
class ModelMetrics:
    """Of each member: R² of observations 1 … K steps ahead [M, K], the bound for each step of time
    [M], and where the truth is known the field's error [M] and how much of the true states the
    alignment explains [M]; where it is one of continuous time, the error of the instantaneous field
    [M] too. R² [M, K] also of repeating the last value, and of ARX fitted to the same data as the
    model. Of counts bits per spike as `spike_metrics` has them."""

    r2: np.ndarray
    elbo: np.ndarray
    field_error: np.ndarray | None = None
    aligned: np.ndarray | None = None
    arx_r2: np.ndarray | None = None
    last_r2: np.ndarray | None = None
    instant_error: np.ndarray | None = None
    spikes: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def score(self) -> float:
        """What the best checkpoint has most of: the share of the field that is explained, 1 −
        error², or else of what comes; of counts bits per spike of what comes."""
        if self.field_error is not None:
            return float(np.mean(1 - self.field_error**2))
        return float(np.mean(self.spikes.get("fp_bps", self.r2)))

    def row(self) -> dict[str, Any]:
        """For metrics: means over members, and each member's own."""
        found: dict[str, Any] = {"score": self.score}
        if self.field_error is not None and self.aligned is not None:
            found |= {
                "field_error": float(self.field_error.mean()),
                "field_errors": self.field_error.tolist(),
                "aligned": float(self.aligned.mean()),
            }
        if self.instant_error is not None:
            found |= {
                "instant_error": float(self.instant_error.mean()),
                "instant_errors": self.instant_error.tolist(),
            }
        found |= {
            "elbo": float(self.elbo.mean()),
            "elbos": self.elbo.tolist(),
            "r2": self.r2.mean(0).tolist(),
            "r2s": self.r2.tolist(),
        }
        found |= {name: own.mean(0).tolist() for name, own in self.spikes.items()}
        plain = {"arx_r2": self.arx_r2, "last_r2": self.last_r2}
        return found | {name: r2.mean(0).tolist() for name, r2 in plain.items() if r2 is not None}


@torch.no_grad()
def evaluate_model(agent: ExplorerAgent, recordings: Recordings, arx: bool = True) -> ModelMetrics:
    """Judges the agent's model, and where the truth is known gives it the alignment with true
    coordinates."""
    network, members = agent.online, agent.members
    y = agent.inner(np.broadcast_to(recordings.y, (members, *recordings.y.shape)))
    a = agent.inner_actions(recordings.a).expand(members, *recordings.a.shape)
    steps = min(STEPS, y.shape[2] - 1)
    shape = draws_shape(network, *y.shape[1:3])
    normal = fill_normal(key(0, Purpose.SELECT, 2), 0, np.empty(int(np.prod(shape)), np.float32))
    drawn = torch.from_numpy(normal).to(network.flat).view(shape)
    bound = elbo(network, y, a, drawn.expand(members, *drawn.shape)) / y.shape[2]
    gaps = bool(np.isnan(recordings.y).any())
    ahead, repeated = (k_step_r2_of_seen, repeated_r2_of_seen) if gaps else (k_step_r2, repeated_r2)
    found: dict[str, Any] = {
        "r2": np.asarray(torch.as_tensor(ahead(network, y, a, steps)).cpu().double()),
        "elbo": bound.cpu().double().numpy() + agent.units.log_density_of(recordings.y),
    }
    found["last_r2"] = np.stack([repeated(own, steps) for own in y.cpu().double().numpy()])
    if agent.config.model.noise == "poisson":
        normal = drawn.expand(members, *drawn.shape)
        found["spikes"] = spike_metrics(network, y, a, normal, steps, agent.sessions)
    if truth := recordings.truth:
        mean = network.posterior(y.transpose(1, 2))[0].transpose(1, 2).flatten(1, 2)
        states = truth.latent.reshape(-1, truth.latent.shape[-1])
        plain = agent.config.model.decoder == "identity" and states.shape == mean.shape[1:]
        learned = mean.cpu().double().numpy()
        agent.maps = agent.own if plain else [align(own, states) for own in learned]
        found["field_error"] = field_errors(agent, truth)
        if truth.continuous:
            found["instant_error"] = field_errors(agent, truth, True)
        found["aligned"] = np.array([m.r2 for m in agent.maps])
    if arx and agent.window.ready and agent.window.length > LAGS and y.shape[2] - steps >= LAGS:
        found["arx_r2"] = np.stack([arx_of(agent, m, recordings, steps) for m in range(members)])
    return ModelMetrics(**found)


def field_errors(agent: ExplorerAgent, truth: Truth, instantaneous: bool = False) -> np.ndarray:
    """Of each member, [M]."""
    fields = agent.field(truth.points, true=True, instantaneous=instantaneous)
    every = fields.reshape(agent.members, *truth.field.shape)
    return np.array([field_error(own, truth.field, truth.weight) for own in every])


def arx_of(agent: ExplorerAgent, m: int, recordings: Recordings, steps: int) -> np.ndarray:
    """R² of ARX fitted to the pieces that member m's window can be cut into."""
    window, length = agent.window, agent.window.length
    made, gone = window.counters[m, 2], window.counters[m, 3]
    ends = window.ends[m, np.arange(gone, made, length) % window.capacity]
    rows = (ends[:, None] - np.arange(length)[::-1]) % window.capacity

    def inside(y: np.ndarray, a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        every = np.broadcast_to(y, (agent.members, *y.shape))
        return agent.units.observations_in(every)[m], agent.units.actions_in(a)

    train = inside(window.obs[m, rows], window.action[m, rows])
    held = inside(recordings.y, recordings.a)
    if agent.config.model.missing:
        return arx_r2_of_seen(train, held, partial(filled_for, agent, m), steps, LAGS)
    return fit_arx(*train, LAGS).k_step_r2(*held, steps)


def filled_for(agent: ExplorerAgent, m: int, rows: np.ndarray) -> np.ndarray:
    """Rows [n, Y] inside with what the values seen say of the others; member m's."""
    every = torch.from_numpy(np.broadcast_to(rows, (agent.members, *rows.shape)).copy())
    found = agent.online.fill(every.to(agent.online.flat))[m].cpu().double().numpy()
    found = np.expm1(found) if agent.config.model.noise == "poisson" else found
    return np.where(np.isnan(rows), found, rows)

"""How the model is fitted: gradient steps up the bound, and dynamics in closed form.

Every draw of a gradient step is a function of (seed, purpose, counter), so a member sees what its
seed alone sees, and what is to be saved are Adam's two moments and two counters. Posterior noise is
drawn into new memory each time: autograd holds it until the gradient is taken, and a second forward
pass must not write over it.

Dynamics that are linear in their weights are fitted in closed form to states that the encoder reads
(`refit`).

    (z_{t+1} − b_t) / dt  ≈  W·φ(b_t) + G·a_t        ridge regression of [W, G], one small system
    for each model

Neighbouring radial basis functions overlap, so that gradient steps reach sums of weights soon and
differences of weights late; this reaches both at once. The models of an ensemble see the same steps
with other random weights (a Bayesian bootstrap), so that they differ where there is little to go
by. The gradient goes on from there, encoder and decoder included.

b_t is what may be believed of the state before the step, not what the encoder reads. An encoder's
error in z_t makes the step from there look longer or shorter. Fitted to readings, a field seen
through much noise pulls everything to the middle; and where actions were chosen by looking at z_t
they go with its error: G came out 5 % too large on the limit cycle for an agent that plans. Beliefs
err too, but not along with anything that was known before the step (in a closed loop it is the
error of predictions that has to be least; Ljung, System Identification, 1999). A belief is the
prediction from the one before, moved towards the reading:

    b_t = z_t − e·(z_t − prediction)        e: the share of a surprise that is error of the reading,
    in each dimension

An error is in two surprises, of the step to t with a plus and of the step from t with a minus:
while neighbouring surprises correlate negatively e is too small. Fit and share are found by turns.
From there steps of Gauss and Newton go to the least error of predictions (`prediction_error`).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from tenfold.core.errors import ConfigError
from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.core.random import Purpose, fill_normal, fill_uniform, key, normal_torch
from tenfold.domains.dynamics.config import LatentModel
from tenfold.domains.dynamics.coordinated import draw_kept
from tenfold.domains.dynamics.dynamics import Dynamics, raw_of
from tenfold.domains.dynamics.elbo import Parts, draws_shape, elbo_parts
from tenfold.domains.dynamics.gauss_newton import (
    MOST,
    PRIOR,
    SURE,
    Record,
    of_readings,
    predicting,
)
from tenfold.domains.dynamics.latent import LatentNetwork
from tenfold.domains.dynamics.paths import grid_features
from tenfold.domains.dynamics.prediction_error import features_at
from tenfold.domains.dynamics.ridge import bootstrap, ridge
from tenfold.ops.adam import descend

ROUNDS = 2  # of fits and shares by turns: more of them overshoot
MOST_ERROR = 0.95  # the largest share of a surprise that is error
# times as large as before, surprises are of beliefs that follow a model which is not stable
RUNAWAY = 10


# by gradients


def beta_at(config: LatentModel, update: int) -> float:
    """Weight of the KL terms in gradient step `update`, counted from 1.

    linear rises to 1 within beta_steps; cyclic does so in the first half of every beta_steps (Fu et
    al., 2019); warm-up leaves the KL terms out for beta_steps.
    """
    if config.beta == "linear":
        return min(update / config.beta_steps, 1.0)
    if config.beta == "cyclic":
        return min(2 * ((update - 1) % config.beta_steps + 1) / config.beta_steps, 1.0)
    return float(config.beta == "none" or update > config.beta_steps)


class Training:
    """What a model's training keeps between calls: Adam's moments [M, P] and how much was drawn."""

    def __init__(self, network: LatentNetwork, seeds: Sequence[int]) -> None:
        if len(seeds) != network.members:
            raise ConfigError(
                "seeds",
                f"has {len(seeds)} of them, and the model {network.members} members: give one for "
                "each.",
            )
        self.mean, self.square = torch.zeros_like(network.flat), torch.zeros_like(network.flat)
        self.updates = self.drawn = 0
        self.posterior, self.masks = (
            [key(seed, purpose) for seed in seeds] for purpose in (Purpose.POSTERIOR, Purpose.MASK)
        )
        self.mask = np.zeros((len(seeds), 0))
        self.drops = [key(seed, Purpose.MASK, 1) for seed in seeds]

    def state(self) -> dict[str, torch.Tensor]:
        # the third number is what earlier versions counted
        count = torch.tensor([self.updates, self.drawn, 0])
        return {"mean": self.mean, "square": self.square, "count": count}

    def load_state(self, state: dict[str, Any]) -> None:
        self.mean.copy_(torch.as_tensor(state["mean"]))
        self.square.copy_(torch.as_tensor(state["square"]))
        self.updates, self.drawn = (int(count) for count in state["count"][:2])

    def draw(
        self, network: LatentNetwork, batch: int, length: int
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Standard normal numbers [M, T, S, B, D] of one bound, and which observations are seen [M,
        B, T] (None: all)."""
        shape, flat = draws_shape(network, batch, length), network.flat
        size = int(np.prod(shape))
        if flat.device.type == "cpu":
            normal = flat.new_empty(network.members, size)
            for row, stream in zip(normal.numpy(), self.posterior, strict=True):
                fill_normal(stream, self.drawn, row)
        else:
            normal = torch.stack(
                [normal_torch(stream, self.drawn, size, flat.device) for stream in self.posterior]
            ).to(flat.dtype)
        seen = self.draw_seen(network, batch, length) if network.config.mask else None
        self.drawn += size
        return normal.view(-1, *shape), seen

    def draw_seen(self, network: LatentNetwork, batch: int, length: int) -> torch.Tensor:
        """Its numbers go into memory kept for them: only the comparison, which is new, is part of
        the forward pass."""
        if self.mask.shape[1] != batch * length:
            self.mask = np.empty((network.members, batch * length))
        for row, stream in zip(self.mask, self.masks, strict=True):
            fill_uniform(stream, self.drawn, row)
        return (
            torch.from_numpy(self.mask >= network.config.mask)
            .to(network.flat)
            .view(-1, batch, length)
        )


def update(
    network: LatentNetwork,
    training: Training,
    y: torch.Tensor,
    a: torch.Tensor,
    lr: float = 1e-3,
    clip_norm: float | None = 10.0,
) -> Parts:
    """One step of Adam up the bound of sequences y [M, B, T, Y] under actions a [M, B, T, A]; the
    bound's parts before it."""
    training.updates += 1
    network.flat_grad.zero_()
    drawn = training.draw(network, y.shape[1], y.shape[2])
    parts = elbo_parts(
        network, y, a, *drawn, draw_kept(network, training.drops, training.updates, y)
    )
    beta = beta_at(network.config, training.updates)
    # for each step of time: rates then fit any length
    loss = (beta * parts.divergence - parts.likelihood).sum() / y.shape[2]
    loss.backward()
    moments = training.mean, training.square
    descend(network.flat, network.flat_grad, *moments, training.updates, lr, limit=clip_norm)
    return Parts(*(part.detach() for part in parts))


# in closed form


def believed_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for rows, size, grid in ((1, 1, 3), (2, 2, 0), (30, 3, 2), (40, 2, 4)):
        axis = np.linspace(-2, 2, grid) if grid else np.zeros(0)
        yield (
            rng.normal(size=(rows + 1, size)),
            rng.normal(size=(rows, size)),
            rng.random(rows) < 0.8,
            0.1 * rng.normal(size=(size, grid**size if grid else size + 1)),
            axis,
            0.7,
            rng.uniform(0, 1, size),
        )


def believed_reference(z, push, whole, weight, axis, width, error):
    """Step by step, with features as they are defined."""
    belief, surprise = z.copy(), np.zeros_like(push)
    for t in range(len(push)):
        start = belief[t]
        phi = grid_features(start, axis, width) if len(axis) else np.append(start, 1.0)
        surprise[t] = z[t + 1] - start - weight @ phi - push[t]
        if whole[t]:
            belief[t + 1] = z[t + 1] - error * surprise[t]
    return belief, surprise


@pair(believed_reference, believed_examples, rtol=1e-9, atol=1e-12)
@kernel
def believed(z, push, whole, weight, axis, width, error):
    """Beliefs [T + 1, D] along readings z, and the surprise [T, D] of each step: a belief is the
    reading less the share `error` [D] of its surprise. A step adds W·φ and `push` [T, D]; where it
    is not `whole` [T], an episode begins with its reading."""
    steps, size = push.shape
    belief, surprise = z.copy(), np.zeros_like(push)
    phi, bells = np.empty(weight.shape[1]), np.empty((size, len(axis)))
    for t in range(steps):
        features_at(belief[t], axis, width, bells, phi)
        for d in range(size):
            moved = push[t, d]
            for p in range(len(phi)):
                moved += weight[d, p] * phi[p]
            surprise[t, d] = z[t + 1, d] - belief[t, d] - moved
            if whole[t]:
                belief[t + 1, d] = z[t + 1, d] - error[d] * surprise[t, d]
    return belief, surprise


def correlation(surprise: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Of each step's surprise [T, D] with the one before it in the same episode, [D]."""
    both = (whole[:-1] & whole[1:])[:, None]
    along, squares = (
        np.sum(surprise[1:] * other * both, 0) for other in (surprise[:-1], surprise[1:])
    )
    return along / np.maximum(squares, np.finfo(np.float64).tiny)


def known_alone(
    z: np.ndarray, alone: np.ndarray, whole: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """States that are read from one observation each, the usual ones where that cannot be; and
    which steps then count."""
    known = np.logical_and.reduce(np.isfinite(alone), 1)
    return np.where(known[:, None], alone, z), whole & known[:-1] & known[1:]


def steps_of(
    dynamics: Dynamics, a: np.ndarray, whole: np.ndarray, noise: float
) -> tuple[Callable[[np.ndarray], np.ndarray], Callable[..., np.ndarray]]:
    """Of steps under actions a [T, A]: what moves the states b [T, D] that they start from, [T, P +
    A], and the ridge regression of what has moved."""
    count = dynamics.weight.shape[-1]

    def inputs(start: np.ndarray) -> np.ndarray:
        given = torch.from_numpy(start).to(dynamics.weight)[None, None]
        phi = dynamics.features(given)[0, 0].double().cpu().numpy()
        return np.concatenate((phi, a), 1)

    def solve(x: np.ndarray, moved: np.ndarray, weight: np.ndarray) -> np.ndarray:
        penalty = np.full(x.shape[1], noise / PRIOR**2)
        penalty[count:] *= SURE
        return ridge(x[whole], moved[whole], weight, penalty)

    return inputs, solve


@torch.no_grad()
def refit(
    dynamics: Dynamics,
    member: int,
    z: np.ndarray,
    variance: np.ndarray,
    a: np.ndarray,
    whole: np.ndarray,
    seed: int,
    alone: np.ndarray | None = None,
) -> None:
    """Fits one member's dynamics to consecutive states z [T + 1, D], read with these variances,
    under actions a [T, A]; `whole` [T] is False where the next state belongs to another episode.
    Where readings are made of several observations, to states `alone` [T + 1, D] that are read from
    one each, NaN where that cannot be (`read_alone`); noise and share are those of z all the same.

    The noise is what is left, and what both ends of a step are unsure by: the bound compares a step
    with all that z may be. Left alone, the means of a hesitant encoder would make it too small, and
    the bound would bend the encoder to the model.
    """
    readings, steps = z, whole
    if alone is not None:
        z, whole = known_alone(z, alone, whole)
    if not whole.any():
        return
    count, rows = dynamics.weight.shape[-1], int(whole.sum())
    noise = float(dynamics.variance()[member].mean())
    a = np.asarray(a, np.float64)

    inputs, solve = steps_of(dynamics, a, whole, noise)
    start, error, one = z[:-1], np.zeros(z.shape[1]), np.ones((1, rows))
    axis = dynamics.axis.double().cpu().numpy() if dynamics.kind == "rbf" else np.zeros(0)
    for _ in range(ROUNDS):
        plain = solve(inputs(start), z[1:] - start, one)[0]
        given = np.ascontiguousarray(plain[:, :count]), axis, float(dynamics.width)
        push = a @ plain[:, count:].T
        before = believed(z, push, whole, *given, error)[1]
        next_error = np.clip(error - correlation(before, whole), 0, MOST_ERROR)
        belief, surprise = believed(z, push, whole, *given, next_error)
        # nor where it is not a number
        if not np.abs(surprise[whole]).max() <= RUNAWAY * np.abs(before[whole]).max():
            break
        start, error = belief[:-1], next_error
    x, moved, weights = inputs(start), z[1:] - start, bootstrap(seed, dynamics.models, rows)
    seen, first = np.ones_like(whole), (np.zeros_like(z), np.zeros(z.shape[1]))
    record = Record(z, a, whole, seen, axis, float(dynamics.width), *first, noise)
    if z.shape[1] * (x.shape[1] + z.shape[1]) <= MOST:
        found, left, share = predicting(record, solve(x, moved, one)[0], error, weights, count)
    else:
        share = np.diag(error)
        found = solve(x, moved, weights)
        left = np.square(moved[whole] - x[whole] @ found.transpose(0, 2, 1)).mean(1)  # [N, D]
    if alone is not None:
        own, share = of_readings(record._replace(z=readings, whole=steps), found.mean(0), count)
        left = np.repeat(own[None], len(found), 0)
    left += (variance[:-1] + variance[1:])[steps].mean(0)
    targets = (dynamics.weight, dynamics.action_weight, dynamics.raw_variance, dynamics.share)
    drift, push = found[..., :count] / dynamics.dt, found[..., count:] / dynamics.dt
    values = (drift, push, raw_of(left), share)
    for tensor, value in zip(targets, values, strict=True):
        tensor[member] = torch.from_numpy(value).to(tensor)

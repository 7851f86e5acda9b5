"""Dynamics that are linear in their weights, fitted in closed form to states from the encoder.

    (z_{t+1} − b_t) / dt  ≈  W·φ(b_t) + G·a_t        ridge regression of [W, G], one small system
    for each model

Neighbouring radial basis functions overlap, so that gradient steps find sums of weights early and
differences of weights late; this finds both at once. The models of an ensemble see the same steps
with other random weights (a Bayesian bootstrap), so that they differ where there is little data.
Training continues from there by gradients, encoder and decoder included.

b_t is the belief of the state before the step, not the encoder's reading. An encoder's error in z_t
makes the step from there look longer or shorter: fitted to readings, a field seen through much
noise pulls everything to the middle; and where actions were chosen by looking at z_t they correlate
with its error (G came out 5 % too large on the limit cycle for an agent that plans). Beliefs err
too, but not with anything that was known before the step (in a closed loop the error of predictions
has to be least; Ljung, System Identification, 1999). A belief is the prediction from the one
before, moved towards the reading:

    b_t = z_t − e·(z_t − prediction)        e: the share of a surprise that is error of the reading,
    in each dimension

An error is in two surprises, of the step to t with a plus and of the step from t with a minus:
while neighbouring surprises correlate negatively e is too small. Fit and share alternate. From
there steps of Gauss and Newton go to the least error of predictions (`gauss_newton`).

Readings of a gru. A fit takes errors of readings to be independent. Those of a gru are not: it
reads an observation with those before it, so that readings follow the state late, and dynamics
fitted to them turn and fade too slowly: by 3 % and 29 % where 60 neurons were counted in bins of 20
ms, many standard errors. So the fit takes the estimate by a single observation instead, one Newton
step up its likelihood from the reading z,

    z + H⁻¹·s,    s = Cᵀ·m'·(y − m)/v,    H = Cᵀ·diag(m'²/v)·C

(m the mean, C·z + c through its link, v its variance), whose error is y's own, to first order,
wherever z was (the one-step estimate of Le Cam). It is far less certain than z.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tenfold.core.pairs import pair
from tenfold.core.random import Purpose, key, uniform
from tenfold.domains.dynamics.dynamics import Dynamics, positive, raw_of
from tenfold.domains.dynamics.gauss_newton import (
    MOST,
    PRIOR,
    SURE,
    Record,
    of_readings,
    predicting,
)
from tenfold.domains.dynamics.latent import MOST_LOG_RATE, Decoder
from tenfold.domains.dynamics.prediction_error import followed

if TYPE_CHECKING:
    from tenfold.domains.dynamics.agent import ExplorerAgent

ROUNDS = 2  # of fits and shares by turns: more of them overshoot
MOST_ERROR = 0.95  # the largest share of a surprise that is error
# times as large as before, surprises are of beliefs that follow a model which is not stable
RUNAWAY = 10
LEAST_INFORMATION = 0.01  # about a state, of the usual observation's: with less it is no reading


# ridge regression


def ridge_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for rows, features, outputs in ((1, 1, 1), (7, 3, 2), (60, 12, 2)):
        yield (
            rng.normal(size=(rows, features)),
            rng.normal(size=(rows, outputs)),
            rng.exponential(size=(2, rows)),
            rng.uniform(0.1, 1, features),
        )


def ridge_reference(x, y, weight, penalty):
    """argmin Σ_t w_t ‖y_t − B x_t‖² + Σ_p λ_p ‖B_p‖², as least squares of rows scaled by √w with
    rows √λ below them."""
    coefficients = []
    for w in weight:
        root = np.sqrt(w)[:, None]
        rows = np.concatenate((root * x, np.diag(np.sqrt(penalty))))
        target = np.concatenate((root * y, np.zeros((x.shape[1], y.shape[1]))))
        coefficients.append(np.linalg.lstsq(rows, target, rcond=None)[0].T)
    return np.stack(coefficients)


@pair(ridge_reference, ridge_examples, rtol=1e-6, atol=1e-7)
def ridge(x: np.ndarray, y: np.ndarray, weight: np.ndarray, penalty: np.ndarray) -> np.ndarray:
    """Coefficients [N, outputs, features] by the normal equations; x [T, features], y [T, outputs],
    weights [N, T]."""
    weighted = weight[:, :, None] * x
    gram = weighted.transpose(0, 2, 1) @ x + np.diag(penalty)
    return np.linalg.solve(gram, weighted.transpose(0, 2, 1) @ y).transpose(0, 2, 1)


def bootstrap(seed: int, models: int, rows: int) -> np.ndarray:
    """Weights [N, T] of mean 1: exponential, by (seed, model, row); of one model alone 1."""
    if models == 1:
        return np.ones((1, rows))
    return -np.log1p(
        -np.stack(
            [uniform(key(seed, Purpose.SEQUENCE, 1 + n), np.arange(rows)) for n in range(models)]
        )
    )


# the fit


def correlation(surprise: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Of each step's surprise [T, D] with the one before it in the same episode, [D]."""
    both = (whole[:-1] & whole[1:])[:, None]
    along, squares = (
        np.sum(surprise[1:] * other * both, 0) for other in (surprise[:-1], surprise[1:])
    )
    return along / np.maximum(squares, np.finfo(np.float64).tiny)


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

    The noise is what is left, and the variance of both ends of a step: the bound compares a step
    with all that z may be. The means of a hesitant encoder alone would make it too small, and the
    bound would bend the encoder to the model.
    """
    readings, steps = z, whole
    if alone is not None:
        known = np.logical_and.reduce(np.isfinite(alone), 1)
        z, whole = np.where(known[:, None], alone, z), whole & known[:-1] & known[1:]
    if not whole.any():
        return
    count, rows = dynamics.weight.shape[-1], int(whole.sum())
    noise = float(dynamics.variance()[member].mean())
    a = np.asarray(a, np.float64)

    def inputs(start: np.ndarray) -> np.ndarray:
        """Features and actions [T, P + A] of steps from states [T, D]."""
        phi = dynamics.features(torch.from_numpy(start).to(dynamics.weight)[None, None])
        return np.concatenate((phi[0, 0].double().cpu().numpy(), a), 1)

    def solve(x: np.ndarray, moved: np.ndarray, weight: np.ndarray) -> np.ndarray:
        penalty = np.full(x.shape[1], noise / PRIOR**2)
        penalty[count:] *= SURE
        return ridge(x[whole], moved[whole], weight, penalty)

    start, error, one = z[:-1], np.zeros(z.shape[1]), np.ones((1, rows))
    axis = dynamics.axis.double().cpu().numpy() if dynamics.kind == "rbf" else np.zeros(0)
    none, middle = np.zeros_like(z), np.zeros(z.shape[1])
    record = Record(
        z, a, whole, np.ones_like(whole), axis, float(dynamics.width), none, middle, noise
    )
    # the first reading of an episode is believed
    scale = np.repeat(np.concatenate(([False], whole))[:, None], z.shape[1], 1).astype(np.float64)
    steady = record._replace(scale=scale)
    for _ in range(ROUNDS):
        plain = solve(inputs(start), z[1:] - start, one)[0]
        before = followed(*steady[:4], plain, np.diag(error), *steady.filter)[1]
        next_error = np.clip(error - correlation(before, whole), 0, MOST_ERROR)
        belief, surprise = followed(*steady[:4], plain, np.diag(next_error), *steady.filter)
        # nor where it is not a number
        if not np.abs(surprise[whole]).max() <= RUNAWAY * np.abs(before[whole]).max():
            break
        start, error = belief[:-1], next_error
    x, moved, weights = inputs(start), z[1:] - start, bootstrap(seed, dynamics.models, rows)
    if z.shape[1] * (x.shape[1] + z.shape[1]) <= MOST:
        fitted, left, share = predicting(record, solve(x, moved, one)[0], error, weights, count)
    else:
        share = np.diag(error)
        fitted = solve(x, moved, weights)
        left = np.square(moved[whole] - x[whole] @ fitted.transpose(0, 2, 1)).mean(1)  # [N, D]
    if alone is not None:
        own, share = of_readings(record._replace(z=readings, whole=steps), fitted.mean(0), count)
        left = np.repeat(own[None], len(fitted), 0)
    left += (variance[:-1] + variance[1:])[steps].mean(0)
    targets = (dynamics.weight, dynamics.action_weight, dynamics.raw_variance, dynamics.share)
    drift, push = fitted[..., :count] / dynamics.dt, fitted[..., count:] / dynamics.dt
    values = (drift, push, raw_of(left), share)
    for tensor, value in zip(targets, values, strict=True):
        tensor[member] = torch.from_numpy(value).to(tensor)


# states from single observations


@torch.no_grad()
def read_alone(
    agent: "ExplorerAgent", member: int, rows: np.ndarray, z: np.ndarray
) -> np.ndarray | None:
    """Of the window's rows [n] that were read as z [n, D]: the same states [n, D] from each
    observation alone, NaN where it tells too little. None where readings are such already, or the
    decoder has hidden layers."""
    network = agent.online
    if not network.encoder.units or network.decoder.kind == "mlp":
        return None
    y = agent.inner(agent.window.obs[:, rows])[member]
    y = torch.where(network.held_out, torch.nan, y).cpu().double().numpy()
    return one_step(network.decoder, member, y, z)


def one_step(decoder: Decoder, member: int, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """From readings z [n, D] to those of observations y [n, Y] alone, by a decoder without hidden
    layers."""
    loading, mean, slope = linked(decoder, member, z)
    if decoder.raw_variance is None:
        variance = np.maximum(mean, np.finfo(np.float64).tiny)
    else:
        variance = positive(decoder.raw_variance[member]).detach().cpu().double().numpy()
    observed = ~np.isnan(y)
    score = np.where(observed, slope * (np.where(observed, y, 0.0) - mean) / variance, 0.0)
    weight = np.where(observed, np.square(slope) / variance, 0.0)
    information = np.einsum("ty,yi,yj->tij", weight, loading, loading)
    least = np.linalg.eigvalsh(information)[:, 0]
    floor = max(LEAST_INFORMATION * float(np.median(least)), np.finfo(np.float64).tiny)
    enough = least > floor
    information[~enough] = np.eye(z.shape[1])
    states = z + np.linalg.solve(information, (score @ loading)[..., None])[..., 0]
    states[~enough] = np.nan
    return states


def linked(
    decoder: Decoder, member: int, z: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The loading C [Y, D], and the means of observations [n, Y] at states z with their derivatives
    by the input of the link function."""
    loading, below = np.eye(z.shape[1]), torch.from_numpy(z)
    if decoder.layers:
        layer: Any = decoder.layers[0]
        loading, bias = (
            part[member].detach().cpu().double().numpy() for part in (layer.weight, layer.bias)
        )
        below = torch.from_numpy(z @ loading.T + bias)
    if decoder.kind == "loglinear":
        below = below.clamp(max=MOST_LOG_RATE)
    mean = decoder.link(below).numpy()
    if decoder.kind == "loglinear":
        return loading, mean, mean
    return loading, mean, torch.sigmoid(below).numpy() if decoder.poisson else np.ones_like(mean)

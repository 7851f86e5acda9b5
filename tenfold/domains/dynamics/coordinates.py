"""Coordinates of a latent space: how a learned one is compared with the true one, and what a model
says in other coordinates or units.

With a learned decoder the latent space is free: any invertible affine map of z, undone in encoder,
dynamics and decoder, gives the same observations. So the learned states of a recording are mapped
to the true ones by least squares,

    x ≈ A·z + b        (x true, z learned, of the same moments),

and everything is compared in true coordinates. A field dz/dt = f(z) reads there dx/dt = A·f(A⁺(x −
b)), with the pseudo-inverse A⁺ where the learned space has fewer numbers; where it has more, z is
read from x by least squares too. The map is fitted to states only, never to the fields: it cannot
flatter the dynamics.

Behind a decoder with weights the hidden state is known up to an affine map: put z = L·z' + c into
the decoder's first layer and take it out of the encoder's last, and every observation is foretold
as before. The bound asks only that states begin near N(0, I), so gradients drift there over
thousands of steps from wherever the first weights had put them, and on the way states lie beside
the grid of radial basis functions: the field had no features there and its error grew while data
came in. So before dynamics are fitted in closed form the coordinates are chosen such that all
states together have mean 0 and covariance I,

    L = (covariance of the encoder's means + mean of its variances)^½        c = mean

the symmetric root, so that nothing turns. A dimension that the encoder does not use has its prior's
variance 1 and stays.

Units of observations change in the same way: they are put into the decoder's last layer and taken
out of the encoder's first.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from tenfold.domains.dynamics.dynamics import Dynamics, positive, raw_of
from tenfold.domains.dynamics.latent import FIRST_NOISE, Belief, LatentNetwork
from tenfold.domains.dynamics.units import Channels

# of the map that is inverted: beyond this a learned space has lost a dimension
MOST_CONDITION = 1e6
LEAST = 1e-12  # of a variance, where every state was the same


# the true coordinates


class Alignment(NamedTuple):
    """x ≈ matrix·z + offset, and the share of the true states' variance that it explains. Where the
    learned space has more numbers than the true one, many z map to one x: `back` [D, d + 1] then
    says which z the learned states have there, z ≈ back·(x, 1)."""

    matrix: np.ndarray
    offset: np.ndarray
    r2: float
    back: np.ndarray | None = None

    def to_true(self, z: np.ndarray) -> np.ndarray:
        return z @ self.matrix.T + self.offset

    def to_learned(self, x: np.ndarray) -> np.ndarray:
        if self.back is not None:
            return x @ self.back[:, :-1].T + self.back[:, -1]
        return (x - self.offset) @ np.linalg.pinv(self.matrix).T

    def field(self, learned: Callable[[np.ndarray], np.ndarray], x: np.ndarray) -> np.ndarray:
        """The learned field at true states x [n, d], in true coordinates."""
        return learned(self.to_learned(x)) @ self.matrix.T


def align(z_learned: np.ndarray, z_true: np.ndarray) -> Alignment:
    """The affine map from learned states [n, D] to the true ones [n, d] of the same moments, by
    least squares. Where D = d it is the inverse of the map from true to learned ones: true states
    have no error, and learned ones that err, fitted from, would shrink the map by the share of
    their variance that is error."""
    z, x = np.asarray(z_learned, np.float64), np.asarray(z_true, np.float64)
    rows, ones = (np.concatenate((part, np.ones((len(part), 1))), 1) for part in (z, x))
    solution = np.linalg.lstsq(rows, x, rcond=None)[0]
    back = np.linalg.lstsq(ones, z, rcond=None)[0].T
    r2 = float(1 - np.square(x - rows @ solution).sum() / np.square(x - x.mean(0)).sum())
    matrix, offset = np.ascontiguousarray(solution[:-1].T), solution[-1]
    if z.shape[1] == x.shape[1] and np.linalg.cond(back[:, :-1]) < MOST_CONDITION:
        matrix = np.linalg.inv(back[:, :-1])
        offset = -matrix @ back[:, -1]
    return Alignment(matrix, offset, r2, back if z.shape[1] > x.shape[1] else None)


def identity(size: int) -> Alignment:
    """Where the hidden state is what is observed (decoder identity), nothing is to be aligned."""
    return Alignment(np.eye(size), np.zeros(size), 1.0)


def field_error(found: np.ndarray, true: np.ndarray, weight: np.ndarray | None = None) -> float:
    """√(Σ w‖found − true‖² / Σ w‖true‖²) over points [n, d]: 0 is perfect, 1 is what a field of
    zeros gets."""
    weight = np.ones(len(true)) if weight is None else np.asarray(weight, np.float64)
    error, size = (
        weight @ np.square(part).sum(-1) for part in (np.subtract(found, true), np.asarray(true))
    )
    return float(np.sqrt(error / size))


# standard coordinates


class Coordinates(NamedTuple):
    """z = root·z' + centre, of old coordinates z and new ones z'; `back` is the root's inverse."""

    root: np.ndarray
    centre: np.ndarray
    back: np.ndarray

    def states(self, z: np.ndarray) -> np.ndarray:
        """Old states [..., D] in the new coordinates."""
        return (z - self.centre) @ self.back.T

    def variances(self, variance: np.ndarray) -> np.ndarray:
        """Variances [..., D] of independent numbers in the new coordinates, without the covariances
        that a map may bring."""
        return variance @ np.square(self.back).T

    def alignment(self, old: Alignment) -> Alignment:
        """A map from old to true coordinates as one from the new."""
        back = None
        if old.back is not None:
            back = self.back @ old.back
            back[:, -1] -= self.back @ self.centre
        return Alignment(
            old.matrix @ self.root, old.matrix @ self.centre + old.offset, old.r2, back
        )


def standard(mean: np.ndarray, variance: np.ndarray) -> Coordinates:
    """From the encoder's means and variances [n, D] of many states."""
    centre = mean.mean(0)
    values, vectors = np.linalg.eigh(
        np.cov(mean.T, ddof=0).reshape(len(centre), -1) + np.diag(variance.mean(0))
    )
    scale = np.sqrt(np.maximum(values, LEAST))
    return Coordinates(vectors * scale @ vectors.T, centre, vectors / scale @ vectors.T)


def put(tensor: torch.Tensor, value: np.ndarray) -> None:
    tensor.copy_(torch.from_numpy(value))


def array(tensor: torch.Tensor) -> np.ndarray:
    return tensor.double().cpu().numpy()


@torch.no_grad()
def move(
    network: LatentNetwork, belief: Belief, m: int, to: Coordinates, variance: np.ndarray
) -> None:
    """Brings member m's encoder, decoder, dynamics' noise and belief to new coordinates; `variance`
    [n, D] of many states. A drift of fixed features has to be fitted anew. Means stay what they are
    to rounding; the encoder's variances follow on the whole."""
    size, last = network.config.latent, network.encoder.last
    put(last.weight[m, :size], to.back @ array(last.weight[m, :size]))
    put(last.bias[m, :size], to.states(array(last.bias[m, :size])))
    usual = variance.mean(0)
    last.bias[m, size:] += torch.from_numpy(raw_of(to.variances(usual)) - raw_of(usual)).to(
        last.bias
    )
    if network.decoder.layers:
        first: Any = network.decoder.layers[0]
        put(first.bias[m], array(first.bias[m]) + array(first.weight[m]) @ to.centre)
        put(first.weight[m], array(first.weight[m]) @ to.root)
    if network.dynamics.kind == "mlp":
        move_drift(network.dynamics, m, to)
    noise = network.dynamics.raw_variance[m]
    put(noise, raw_of(to.variances(array(positive(noise)))))
    put(belief.mean[m], to.states(array(belief.mean[m])))
    put(belief.variance[m], to.variances(array(belief.variance[m])))


def move_drift(dynamics: Dynamics, m: int, to: Coordinates) -> None:
    """f'(z') = root⁻¹·f(root·z' + centre) of an mlp, and the push of actions alike."""
    first, last = dynamics.weights[0][m], dynamics.weights[len(dynamics.weights) - 1][m]
    put(dynamics.biases[0][m], array(dynamics.biases[0][m]) + array(first) @ to.centre)
    put(first, array(first) @ to.root)
    put(last, to.back @ array(last))
    bias, push = dynamics.biases[len(dynamics.biases) - 1][m], dynamics.action_weight[m]
    put(bias, array(bias) @ to.back.T)
    put(push, to.back @ array(push))


# other units of observations


def change(m: int, old: Channels, new: Channels) -> Coordinates:
    """Of member m's observations: what was y inside is y' now, y = root·y' + centre. What is known
    of a channel that had never varied is that it was where it was: there the model keeps its first
    weights, whatever the scale turns out to be."""
    before = np.where(old.varied[m], old.scale[m], new.scale[m])
    ratio = new.scale[m] / before
    return Coordinates(np.diag(ratio), (new.mean[m] - old.mean[m]) / before, np.diag(1 / ratio))


@torch.no_grad()
def restate(network: LatentNetwork, m: int, to: Coordinates, stirred: np.ndarray) -> None:
    """Member m's encoder reads and its decoder says the same in new units of observations;
    `stirred` [Y] are channels that vary for the first time, whose noise was that of a number that
    stands still."""
    size, encoder, decoder = network.observations, network.encoder, network.decoder
    own = encoder.into if encoder.units else encoder.last
    first: Any = encoder.layers[0] if encoder.layers else own
    weight = array(first.weight[m])
    shifted = weight[:, :size] @ to.centre
    if network.flags:  # an observation that is hidden is read as 0 before and after
        weight[:, size] += shifted
    else:
        put(first.bias[m], array(first.bias[m]) + shifted)
    weight[:, :size] @= to.root
    put(first.weight[m], weight)
    if decoder.layers:
        last: Any = decoder.layers[len(decoder.layers) - 1]
        if decoder.kind == "loglinear":
            put(last.bias[m], array(last.bias[m]) + np.log(np.diag(to.back)))
        else:
            put(last.bias[m], to.states(array(last.bias[m])))
            put(last.weight[m], to.back @ array(last.weight[m]))
    assert decoder.raw_variance is not None
    noise = to.variances(array(positive(decoder.raw_variance[m])))
    put(decoder.raw_variance[m], raw_of(np.where(stirred, FIRST_NOISE, noise)))

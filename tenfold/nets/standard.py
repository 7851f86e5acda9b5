"""Standard coordinates of a latent space.

Behind a decoder with weights the hidden state is known up to an affine map: put z = L·z' + c into the decoder's first layer and
take it out of the encoder's last, and every observation is foretold as before. The bound asks only that states begin near
N(0, I), so gradients drift there over thousands of steps from wherever the first weights had put them, and on the way states lie
beside the grid of radial basis functions: the field had no features there and its error grew while data came in. So before
dynamics are fitted in closed form the coordinates are chosen such that all states together have mean 0 and covariance I,

    L = (covariance of the encoder's means + mean of its variances)^½        c = mean

the symmetric root, so that nothing turns. A dimension that the encoder does not use has its prior's variance 1 and stays.
"""

from typing import NamedTuple

import numpy as np
import torch

from tenfold.nets.belief import Belief
from tenfold.nets.blocks import Layer
from tenfold.nets.dynamics import positive, raw_of
from tenfold.nets.latent import LatentNetwork
from tenfold.ops.alignment import Alignment

LEAST = 1e-12  # of a variance, where every state was the same


class Coordinates(NamedTuple):
    """z = root·z' + centre, of old coordinates z and new ones z'; `back` is the root's inverse."""

    root: np.ndarray
    centre: np.ndarray
    back: np.ndarray

    def states(self, z: np.ndarray) -> np.ndarray:
        """Old states [..., D] in the new coordinates."""
        return (z - self.centre) @ self.back.T

    def variances(self, variance: np.ndarray) -> np.ndarray:
        """Variances [..., D] of independent numbers in the new coordinates, without the covariances that a map may bring."""
        return variance @ np.square(self.back).T

    def alignment(self, old: Alignment) -> Alignment:
        """A map from old to true coordinates as one from the new."""
        back = None
        if old.back is not None:
            back = self.back @ old.back
            back[:, -1] -= self.back @ self.centre
        return Alignment(old.matrix @ self.root, old.matrix @ self.centre + old.offset, old.r2, back)


def standard(mean: np.ndarray, variance: np.ndarray) -> Coordinates:
    """From the encoder's means and variances [n, D] of many states."""
    centre = mean.mean(0)
    values, vectors = np.linalg.eigh(np.cov(mean.T, ddof=0).reshape(len(centre), -1) + np.diag(variance.mean(0)))
    scale = np.sqrt(np.maximum(values, LEAST))
    return Coordinates(vectors * scale @ vectors.T, centre, vectors / scale @ vectors.T)


@torch.no_grad()
def move(network: LatentNetwork, belief: Belief, m: int, to: Coordinates, variance: np.ndarray) -> None:
    """Brings member m's encoder, decoder, dynamics' noise and belief to new coordinates; `variance` [n, D] of many states. The
    drift has to be fitted anew. Means stay what they are to rounding; the encoder's variances follow on the whole."""
    def put(tensor: torch.Tensor, value: np.ndarray) -> None:
        tensor.copy_(torch.from_numpy(value))

    def array(tensor: torch.Tensor) -> np.ndarray:
        return tensor.double().cpu().numpy()

    size, last, first = network.config.latent, network.encoder.last, network.decoder.layers[0]
    assert isinstance(first, Layer)
    put(last.weight[m, :size], to.back @ array(last.weight[m, :size]))
    put(last.bias[m, :size], to.states(array(last.bias[m, :size])))
    usual = variance.mean(0)
    last.bias[m, size:] += torch.from_numpy(raw_of(to.variances(usual)) - raw_of(usual)).to(last.bias)
    put(first.bias[m], array(first.bias[m]) + array(first.weight[m]) @ to.centre)
    put(first.weight[m], array(first.weight[m]) @ to.root)
    noise = network.dynamics.raw_variance[m]
    put(noise, raw_of(to.variances(array(positive(noise)))))
    put(belief.mean[m], to.states(array(belief.mean[m])))
    put(belief.variance[m], to.variances(array(belief.variance[m])))

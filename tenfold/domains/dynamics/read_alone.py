"""States as single observations say them, for dynamics that are fitted in closed form.

A fit takes errors of readings to be new at each step (`prediction_error`). Those of a gru are not:
it reads an observation with those before it, so that the error of a reading is in the next ones
too, readings follow the state late and, where an episode begins, with less and less of it missing.
Dynamics fitted to them turn too slowly and fade too slowly: by 3 % and 29 % where 60 neurons were
counted in bins of 20 ms, many times their standard errors.

The decoder says what an observation alone tells of its state. One step of Newton up its likelihood
from the reading z,

    z + H⁻¹·s,    s = Cᵀ·m'·(y − m)/v,    H = Cᵀ·diag(m'²/v)·C

(m the mean, C·z + c through its link, v its variance) ends where the error is y's own, to first
order, wherever z was (the one-step estimate of Le Cam). It is far less sure than z, which is what
the fit is made for.
"""

from typing import TYPE_CHECKING

import numpy as np
import torch

from tenfold.domains.dynamics.decoder import MOST_LOG_RATE
from tenfold.domains.dynamics.dynamics import positive

if TYPE_CHECKING:
    from tenfold.domains.dynamics.agent import ExplorerAgent
    from tenfold.domains.dynamics.decoder import Decoder

LEAST_TOLD = 0.01  # of what most observations tell of a state: one that tells less is no reading


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


def one_step(decoder: "Decoder", member: int, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """From readings z [n, D] to those of observations y [n, Y] alone, by a decoder without hidden
    layers."""
    loading, mean, slope = linked(decoder, member, z)
    if decoder.raw_variance is None:
        variance = np.maximum(mean, np.finfo(np.float64).tiny)
    else:
        variance = positive(decoder.raw_variance[member]).detach().cpu().double().numpy()
    seen = ~np.isnan(y)
    score = np.where(seen, slope * (np.where(seen, y, 0.0) - mean) / variance, 0.0) @ loading
    weight = np.where(seen, np.square(slope) / variance, 0.0)
    told = np.einsum("ty,yi,yj->tij", weight, loading, loading)
    least = np.linalg.eigvalsh(told)[:, 0]
    enough = least > max(LEAST_TOLD * float(np.median(least)), np.finfo(np.float64).tiny)
    told[~enough] = np.eye(z.shape[1])
    found = z + np.linalg.solve(told, score[..., None])[..., 0]
    found[~enough] = np.nan
    return found


def linked(
    decoder: "Decoder", member: int, z: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The loading C [Y, D], and the means of observations [n, Y] at states z with their derivatives
    by what is below the link."""
    if decoder.kind == "identity":
        loading, below = np.eye(z.shape[1]), torch.from_numpy(z)
    else:
        layer = decoder.layers[0]
        weight, bias = (
            part[member].detach().cpu().double().numpy()  # type: ignore[index,union-attr]
            for part in (layer.weight, layer.bias)
        )
        loading, below = weight, torch.from_numpy(z @ weight.T + bias)
    if decoder.kind == "loglinear":
        below = below.clamp(max=MOST_LOG_RATE)
    mean = decoder.link(below).numpy()
    if decoder.kind == "loglinear":
        return loading, mean, mean
    return loading, mean, torch.sigmoid(below).numpy() if decoder.poisson else np.ones_like(mean)

"""Units and coordinates of a model of a hidden system, and conversions to and from them.

Units. A recording means the same in volts and in millivolts, in seconds and in milliseconds. But
initial weights, priors, the learning rate and the grid of radial basis functions are made for
numbers of about 1. So inside the agent

    observation   (y − mean) / scale    each channel's mean and deviation
    action        (a − centre) / reach  within ±1; the centre is 0 where that is an action
    time          a step takes STEP     whatever it takes outside

and all results are converted back. Counts are not scaled, since Poisson noise has no other scale.
The mean of a loglinear decoder is above 0, so that 0 has to stay where it is: observations are
divided by their root mean square only.

True coordinates. With a learned decoder the latent space is free: any invertible affine map of z,
undone in encoder, dynamics and decoder, gives the same observations. So the learned states of a
recording are mapped to the true ones by least squares, x ≈ A·z + b, and everything is compared
there. A field dz/dt = f(z) reads there dx/dt = A·f(A⁺(x − b)), with the pseudo-inverse A⁺ where the
learned space has fewer numbers; where it has more, z is read from x by least squares too. The map
is fitted to states only, never to the fields: it cannot flatter the dynamics.

Standard coordinates. Left to gradients, states drift for thousands of steps from wherever the first
weights had put them, and lie beside the grid of radial basis functions meanwhile. So before
dynamics are fitted in closed form coordinates are chosen such that all states together have mean 0
and covariance I: z = L·z' + c, put into the decoder's first layer and taken out of the encoder's
last, c the mean and L the symmetric root of (covariance of the encoder's means + mean of its
variances), so that nothing turns. Units of observations change in the same way, in the decoder's
last layer and the encoder's first.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from tenfold.core.errors import ConfigError, UserError
from tenfold.domains.dynamics.config import LatentModel
from tenfold.domains.dynamics.dynamics import FIRST_NOISE, Dynamics, positive, raw_of
from tenfold.domains.dynamics.missing import observed_mean

if TYPE_CHECKING:
    from tenfold.domains.dynamics.belief import Belief
    from tenfold.domains.dynamics.latent import LatentNetwork

# of time, inside: a first drift of about 1 then moves a state by a tenth of its deviation in a step
STEP = 0.1
ROUNDING = 1e-15  # of a channel's mean: what deviates by less does not vary
GROWTH = 1.25  # times as many rows as the units were taken from, they are taken anew
# of the map that is inverted: beyond this a learned space has lost a dimension
MOST_CONDITION = 1e6
LEAST = 1e-12  # of a variance, where every state was the same


# units


class Channels(NamedTuple):
    """Of every member and channel, [M, Y] each: mean, scale, and whether it varied at all in what
    both were taken from."""

    mean: np.ndarray
    scale: np.ndarray
    varied: np.ndarray


def channel_statistics(y: np.ndarray, centred: bool) -> Channels:
    """From rows [M, n, Y], whatever is missing. A channel that never varies has the scale of its
    one number, or 1 where that is 0."""
    mean = observed_mean(y)
    middle = mean if centred else np.zeros_like(mean)
    scale = np.sqrt(observed_mean(np.square(y - middle[:, None])))
    varied = scale > ROUNDING * np.abs(middle)
    if centred:
        varied &= np.fmax.reduce(y, 1) > np.fmin.reduce(y, 1)
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
        if not self.free and np.any(y < 0):
            raise UserError(
                "agent.model.noise = poisson is for counts, and an observation has "
                f"{np.nanmin(y):.6g}, which is below 0: use gaussian."
            )

    @property
    def known(self) -> bool:
        """Whether the units were fitted, or need not be."""
        return self.rows > 0 or not self.free

    def due_again(self, rows: int) -> bool:
        """Whether the units should be fitted to so many rows."""
        return self.free and rows >= GROWTH * self.rows

    def take(self, y: np.ndarray, rows: int) -> Channels:
        """Fits mean and scale to y [M, n, Y]; returns the old ones."""
        old, self.rows = self.channels, rows
        self.channels = channel_statistics(np.asarray(y, np.float64), self.centred)
        return old

    def bound(self, low: np.ndarray, high: np.ndarray) -> None:
        """Sets the bounds of actions [A]."""
        low, high = (np.asarray(end, np.float64) for end in (low, high))
        self.low, self.high = low, high
        self.centre = np.where((low <= 0) & (high >= 0), 0.0, (low + high) / 2)
        reach = np.maximum(high - self.centre, self.centre - low)
        self.reach = np.where(reach > 0, reach, 1.0)

    def observations_in(self, y: np.ndarray) -> np.ndarray:
        """Observations [M, …, Y] as they are inside. In float64: a small difference of large
        numbers is one inside."""
        return (y - broadcast(self.channels.mean, y)) / broadcast(self.channels.scale, y)

    def observations_out(self, y: np.ndarray) -> np.ndarray:
        """Observations [M, …, Y] as they are outside."""
        return y * broadcast(self.channels.scale, y) + broadcast(self.channels.mean, y)

    def actions_in(self, a: np.ndarray) -> np.ndarray:
        """Actions [..., A] as they are inside."""
        return (a - self.centre) / self.reach

    def actions_out(self, a: np.ndarray) -> np.ndarray:
        """Actions [..., A] as they are outside."""
        return a * self.reach + self.centre

    @property
    def pace(self) -> float:
        """Factor from a velocity inside to one outside."""
        return STEP / self.dt

    @property
    def log_density(self) -> np.ndarray:
        """The log density of an observation outside minus that inside, [M]."""
        return -np.log(self.channels.scale).sum(-1)

    def log_density_of(self, y: np.ndarray) -> np.ndarray:
        """The same, mean over rows [..., Y] of which some values are missing."""
        observed = (~np.isnan(y)).reshape(-1, y.shape[-1])
        return (
            self.log_density if observed.all() else -np.log(self.channels.scale) @ observed.mean(0)
        )

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
                np.array(state[name]).astype(current.dtype).reshape(current.shape)
                for name, current in self.channels._asdict().items()
            )
        )
        self.rows = int(state["rows"])
        self.bound(state["low"], state["high"])


def broadcast(of_members: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """[M, Y] such that it broadcasts with rows [M, …, Y]."""
    return of_members.reshape(len(of_members), *[1] * (rows.ndim - 2), -1)


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


def field_error(learned: np.ndarray, true: np.ndarray, weight: np.ndarray | None = None) -> float:
    """√(Σ w‖learned − true‖² / Σ w‖true‖²) over points [n, d]: 0 is perfect, 1 is what a field of
    zeros gets."""
    weight = np.ones(len(true)) if weight is None else np.asarray(weight, np.float64)
    error, size = (
        weight @ np.square(part).sum(-1) for part in (np.subtract(learned, true), np.asarray(true))
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


def standardise(mean: np.ndarray, variance: np.ndarray) -> Coordinates:
    """From the encoder's means and variances [n, D] of many states."""
    centre = mean.mean(0)
    values, vectors = np.linalg.eigh(
        np.cov(mean.T, ddof=0).reshape(len(centre), -1) + np.diag(variance.mean(0))
    )
    scale = np.sqrt(np.maximum(values, LEAST))
    return Coordinates(vectors * scale @ vectors.T, centre, vectors / scale @ vectors.T)


def assign(tensor: torch.Tensor, value: np.ndarray) -> None:
    tensor.copy_(torch.from_numpy(value))


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    return tensor.double().cpu().numpy()


def transform_inputs(weight: torch.Tensor, bias: torch.Tensor, to: Coordinates) -> None:
    """A layer [out, in] and its bias read new coordinates: W·(root·z' + centre) + b."""
    assign(bias, to_numpy(bias) + to_numpy(weight) @ to.centre)
    assign(weight, to_numpy(weight) @ to.root)


def transform_outputs(weight: torch.Tensor, bias: torch.Tensor, to: Coordinates) -> None:
    """A layer and its bias give new coordinates."""
    assign(weight, to.back @ to_numpy(weight))
    assign(bias, to.states(to_numpy(bias)))


@torch.no_grad()
def transform_network(
    network: "LatentNetwork", belief: "Belief", m: int, to: Coordinates, variance: np.ndarray
) -> None:
    """Brings member m's encoder, decoder, dynamics' noise and belief to new coordinates; `variance`
    [n, D] of many states. A drift of fixed features has to be fitted anew. Means stay what they are
    to rounding; the encoder's variances follow on the whole."""
    size, last, usual = network.config.latent, network.encoder.last, variance.mean(0)
    transform_outputs(last.weight[m, :size], last.bias[m, :size], to)
    wider = raw_of(to.variances(usual)) - raw_of(usual)
    last.bias[m, size:] += torch.from_numpy(wider).to(last.bias)
    if network.decoder.layers:
        first: Any = network.decoder.layers[0]
        transform_inputs(first.weight[m], first.bias[m], to)
    if network.dynamics.kind == "mlp":
        transform_drift(network.dynamics, m, to)
    noise = network.dynamics.raw_variance[m]
    assign(noise, raw_of(to.variances(to_numpy(positive(noise)))))
    assign(belief.mean[m], to.states(to_numpy(belief.mean[m])))
    assign(belief.variance[m], to.variances(to_numpy(belief.variance[m])))


def transform_drift(dynamics: Dynamics, m: int, to: Coordinates) -> None:
    """f'(z') = root⁻¹·f(root·z' + centre) of an mlp, and the push of actions alike."""
    transform_inputs(dynamics.weights[0][m], dynamics.biases[0][m], to)
    last, bias = dynamics.weights[-1][m], dynamics.biases[-1][m]
    assign(bias, to_numpy(bias) @ to.back.T)
    for weight in (last, dynamics.action_weight[m]):
        assign(weight, to.back @ to_numpy(weight))


def channel_transform(m: int, old: Channels, new: Channels) -> Coordinates:
    """Of member m's observations: what was y inside is y' now, y = root·y' + centre. What is known
    of a channel that had never varied is that it was where it was: there the model keeps its first
    weights, whatever the scale turns out to be."""
    before = np.where(old.varied[m], old.scale[m], new.scale[m])
    ratio = new.scale[m] / before
    return Coordinates(np.diag(ratio), (new.mean[m] - old.mean[m]) / before, np.diag(1 / ratio))


@torch.no_grad()
def rescale_channels(
    network: "LatentNetwork", m: int, to: Coordinates, newly_varying: np.ndarray
) -> None:
    """Converts member m's encoder and decoder to new units of observations, functions unchanged;
    `newly_varying` [Y] are channels whose noise was that of a number that stands still."""
    size, encoder, decoder = network.observations, network.encoder, network.decoder
    first_layer = encoder.into if encoder.units else encoder.last
    first: Any = encoder.layers[0] if encoder.layers else first_layer
    # an observation that is hidden is read as 0 before and after, and the flag says which is not
    bias = first.weight[m][:, size] if network.flags else first.bias[m]
    transform_inputs(first.weight[m][:, :size], bias, to)
    if decoder.layers:
        last: Any = decoder.layers[-1]
        if decoder.kind == "loglinear":
            assign(last.bias[m], to_numpy(last.bias[m]) + np.log(np.diag(to.back)))
        else:
            transform_outputs(last.weight[m], last.bias[m], to)
    assert decoder.raw_variance is not None
    noise = to.variances(to_numpy(positive(decoder.raw_variance[m])))
    assign(decoder.raw_variance[m], raw_of(np.where(newly_varying, FIRST_NOISE, noise)))

"""A model of a hidden system: encoder q(z_t | y), latent dynamics, decoder p(y_t | z_t); one flat
buffer [M, P] of parameters.

Shapes: M members in front, then time T, then batch B (or samples S, B). The encoder reads an
observation alone (mlp) or with those before it (gru), whose state is carried: one call for each new
observation. Poisson counts are read as log(1 + y).

What is believed of the hidden state goes step by step: predict by the dynamics, correct by the
encoder. Both say a Gaussian with independent numbers, and the belief after an observation is their
product: a prediction alone runs away from the state, an encoder alone forgets what was known
before.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import softplus

from tenfold.core.errors import ConfigError
from tenfold.core.pairs import pair
from tenfold.core.random import Purpose, fill_uniform, key
from tenfold.domains.dynamics.config import LatentModel
from tenfold.domains.dynamics.coordinated import held_out_channels
from tenfold.domains.dynamics.dynamics import LEAST_VARIANCE, Dynamics, positive, raw_of
from tenfold.domains.dynamics.missing import FACTORS, Factors, filled, unread
from tenfold.domains.dynamics.turning import session_of, turned
from tenfold.nets.blocks import Layer
from tenfold.nets.flat import FlatModule
from tenfold.ops.qlearning import tensor

FIRST_POSTERIOR, FIRST_NOISE = 0.1, 0.3  # variances of an untrained encoder and decoder
MOST_LOG_RATE = 20.0  # e^20 counts; a steeper exponential overflows before the gradient turns back


class Encoder(nn.Module):
    """Observations -> mean and variance of the hidden state. With a gru the last hidden width is
    the size of its state."""

    def __init__(self, inputs: int, config: LatentModel, members: int) -> None:
        super().__init__()
        self.members, self.latent = members, config.latent
        widths = (inputs, *config.hidden)
        self.units = widths[-1] if config.encoder == "gru" and config.hidden else 0
        if config.encoder == "gru" and not config.hidden:
            raise ConfigError(
                "model.hidden", "is empty, and encoder gru needs a width: give one, such as 64."
            )
        self.layers = nn.ModuleList(
            Layer(i, o, members, stride=0)
            for i, o in pairwise(widths[:-1] if self.units else widths)
        )
        if self.units:
            self.into, self.again = (
                Layer(i, 3 * self.units, members, stride=0) for i in (widths[-2], self.units)
            )
        self.last = Layer(widths[-1], 2 * config.latent, members, stride=0)

    @property
    def first(self) -> Any:
        """The layer that reads observations."""
        return self.layers[0] if self.layers else self.into if self.units else self.last

    def forward(
        self,
        y: torch.Tensor,
        state: torch.Tensor | None,
        begins: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """y [M, T, B, Y] and the state after the observation before, [M, B, H] -> mean, variance
        [M, T, B, D], state. Where `begins` [M, T, B] an episode begins, and nothing is carried
        there."""
        x = y.flatten(1, 2)
        for layer in self.layers:
            x = torch.tanh(layer(x))
        if self.units:
            x, state = self.recur(self.into(x).view(*y.shape[:3], -1), state, begins)
        x = self.last(x).view(*y.shape[:3], -1)
        return x[..., : self.latent], positive(x[..., self.latent :]), state

    def recur(
        self,
        into: torch.Tensor,
        state: torch.Tensor | None,
        begins: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """A gated recurrent unit (Cho et al., 2014) over time; what it gets from outside is
        computed for all times at once."""
        steps, batch = into.shape[1:3]
        h = into.new_zeros(self.members, batch, self.units) if state is None else state
        outputs = []
        for t in range(steps):
            h = h if begins is None else h * ~begins[:, t, :, None]
            again = self.again(h)
            gates = torch.sigmoid(into[:, t, :, : 2 * self.units] + again[..., : 2 * self.units])
            reset, keep = gates.chunk(2, -1)
            new = torch.tanh(
                torch.addcmul(into[:, t, :, 2 * self.units :], reset, again[..., 2 * self.units :])
            )
            h = torch.lerp(new, h, keep)
            outputs.append(h)
        return torch.stack(outputs, 1).flatten(1, 2), h


class Decoder(nn.Module):
    """Hidden state -> the observation's mean, and the noise around it.

    Under Poisson noise the mean is a rate: `loglinear` gives its logarithm, the others pass through
    softplus.
    """

    def __init__(self, outputs: int, config: LatentModel, members: int) -> None:
        super().__init__()
        self.kind, self.poisson = config.decoder, config.noise == "poisson"
        self.missing = config.missing or config.coordinated_dropout > 0
        if self.kind == "identity" and outputs != config.latent:
            raise ConfigError(
                "model.decoder",
                f"= identity needs observations of latent = {config.latent} numbers, and they have "
                f"{outputs}: use linear, loglinear or mlp.",
            )
        hidden = config.hidden if self.kind == "mlp" else ()
        widths = () if self.kind == "identity" else (config.latent, *hidden, outputs)
        self.layers = nn.ModuleList(Layer(i, o, members, stride=0) for i, o in pairwise(widths))
        self.raw_variance = None if self.poisson else nn.Parameter(torch.zeros(members, outputs))

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        """What the mean is made of, [M, R, D] -> [M, R, Y]: the logarithm of it for loglinear."""
        for place, layer in enumerate(self.layers):
            z = layer(torch.tanh(z) if place else z)
        return z.clamp(max=MOST_LOG_RATE) if self.kind == "loglinear" else z

    def link(self, x: torch.Tensor) -> torch.Tensor:
        """The mean, of what it is made of."""
        if self.kind == "loglinear":
            return x.exp()
        return softplus(x) + LEAST_VARIANCE if self.poisson else x

    def mean(self, z: torch.Tensor) -> torch.Tensor:
        return self.link(self(z))

    def log_likelihood(self, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        """log p(y | z) summed over the observation's numbers: y [M, …, Y] and z [M, …, D] broadcast
        -> [M, …]."""
        x = self(z.flatten(1, -2)).view(*z.shape[:-1], -1)
        mean = self.link(x)
        if self.missing:
            return self.log_likelihood_of_seen(y, x, mean)
        if self.raw_variance is None:
            log_rate = x if self.kind == "loglinear" else mean.log()
            return (y * log_rate - mean).sum(-1) - torch.lgamma(y + 1).sum(-1)
        variance = positive(self.raw_variance)
        squares = torch.bmm(
            (y - mean).square().flatten(1, -2), (-0.5 / variance).unsqueeze(-1)
        ).view(z.shape[:-1])
        constant = -0.5 * (math.log(2 * math.pi) * y.shape[-1] + variance.log().sum(-1))
        return squares + constant.view(-1, *[1] * (z.dim() - 2))

    def log_likelihood_of_seen(
        self, y: torch.Tensor, x: torch.Tensor, mean: torch.Tensor
    ) -> torch.Tensor:
        """The same over the numbers that are not NaN."""
        gone = torch.isnan(y)
        y, seen = torch.where(gone, 0.0, y), (~gone).to(y)
        if self.raw_variance is None:
            log_rate = x if self.kind == "loglinear" else mean.log()
            return (seen * (y * log_rate - mean)).sum(-1) - (seen * torch.lgamma(y + 1)).sum(-1)
        variance = positive(self.raw_variance).view(len(y), *[1] * (y.dim() - 2), -1)
        squares = (seen * (y - mean).square() / variance).sum(-1)
        return -0.5 * (squares + (seen * (math.log(2 * math.pi) + variance.log())).sum(-1))


class LatentNetwork(FlatModule):
    """Encoder, dynamics and decoder of M members. Parameters in this order: encoder, dynamics,
    decoder."""

    held_out: torch.Tensor  # [Y] channels that the encoder never reads
    # from what it says of a session to the state that all share: [M, sessions, D, D], [M, sessions, D]
    turn: torch.Tensor
    shift: torch.Tensor

    def __init__(
        self,
        observations: int,
        actions: int,
        config: LatentModel,
        dt: float,
        members: int = 1,
        sessions: tuple[int, ...] = (),
    ) -> None:
        super().__init__()
        if dt <= 0:
            raise ConfigError("dt", f"= {dt} is not positive: give the time of one step.")
        self.members: int = members  # pyright: ignore[reportIncompatibleVariableOverride]
        self.config, self.observations, self.actions = config, observations, actions
        self.register_buffer(
            "held_out",
            torch.from_numpy(held_out_channels(observations, config.held_out)),
            persistent=False,
        )
        self.flags = int(config.mask > 0)  # one more input says whether the observation is seen
        # and one for each number, whether it is missing
        self.sessions, self.tells = sessions, config.missing and not sessions
        unit = torch.eye(config.latent).expand(members, len(sessions), -1, -1).clone()
        self.register_buffer("turn", unit, persistent=False)
        self.register_buffer("shift", torch.zeros(unit.shape[:-1]), persistent=False)
        told = self.flags + observations * self.tells
        self.encoder = Encoder(observations + told, config, members)
        self.dynamics = Dynamics(config, actions, dt, members)
        self.decoder = Decoder(observations, config, members)
        if config.missing:
            factors = max(min(FACTORS, observations - 1), 1)
            self.learn_factors(
                Factors(
                    torch.zeros(members, observations),
                    torch.zeros(members, observations, factors),
                    torch.ones(members, observations),
                )
            )
        self.flatten()

    def initialise(self, seeds: Sequence[int]) -> "LatentNetwork":
        """Weights and biases uniform within ±1/√inputs, variances at fixed first values; a seed for
        each member."""
        drawn = [
            fill_uniform(key(seed, Purpose.INIT), 0, np.empty(self.flat.shape[1])) for seed in seeds
        ]
        with torch.no_grad():
            self.flat.copy_(torch.from_numpy(np.stack(drawn)))
            for layer in (part for part in self.modules() if isinstance(part, Layer)):
                layer.weight.mul_(2).sub_(1).mul_(layer.bound)
                layer.bias.mul_(2).sub_(1).mul_(layer.bound)
            self.dynamics.scale()
            self.encoder.last.bias[:, self.config.latent :] += float(raw_of(FIRST_POSTERIOR))
            if self.tells:  # a row with gaps is read like any other at first
                self.encoder.first.weight[:, :, self.observations + self.flags :] = 0
            if self.decoder.raw_variance is not None:
                self.decoder.raw_variance.fill_(float(raw_of(FIRST_NOISE)))
        return self

    def posterior(
        self,
        y: torch.Tensor,
        seen: torch.Tensor | None = None,
        state: torch.Tensor | None = None,
        begins: torch.Tensor | None = None,
        kept: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """q(z_t) for sequences y [M, T, B, Y]: mean and variance [M, T, B, D], and the encoder's
        state after the last.

        `seen` [M, T, B] is 0 where an observation is hidden: the encoder then reads zeros and is
        told so. `begins` [M, T, B] is true where an episode begins. `kept` [M, T, B, Y] is
        false where coordinated dropout hides a value.
        """
        if y.shape[-1] != self.observations:
            raise ConfigError(
                "observation",
                f"has {y.shape[-1]} numbers, and the model was made for {self.observations}.",
            )
        told, gone, given = [], self.held_out, y
        if self.config.missing:
            gone = torch.isnan(y) | self.held_out
            unknown = gone if kept is None else gone | ~kept
            told, y = [gone.to(self.flat)] * self.tells, self.read_over(y, unknown)
            if not self.tells:  # of several sessions, each around its own mean
                y = y - self.factors.mean[:, None, None]
        else:
            y = torch.where(gone, 0.0, y) if self.config.held_out else y
            y = torch.log1p(y) if self.config.noise == "poisson" else y
        if kept is not None:
            y = torch.where(gone, y, y * kept / (1 - self.config.coordinated_dropout))
        if self.flags:
            flag = torch.ones_like(y[..., :1]) if seen is None else seen.unsqueeze(-1)
            y = torch.cat((y * flag, flag), -1)
        mean, variance, state = self.encoder(
            torch.cat((y, *told), -1) if told else y, state, begins
        )
        if self.sessions:
            own = session_of(given, self.sessions)
            mean, variance = turned(self, own, mean, variance)
        return mean, variance, state

    def learn_factors(self, factors: Factors) -> None:
        """What the values seen in a row say of those that are missing, as the encoder reads
        them."""
        for name, value in factors._asdict().items():
            self.register_buffer(f"fill_{name}", value, persistent=False)

    @property
    def factors(self) -> Factors:
        return Factors(*(getattr(self, f"fill_{name}") for name in Factors._fields))

    def read_over(self, y: torch.Tensor, gone: torch.Tensor) -> torch.Tensor:
        """Observations [M, …, Y] as the encoder reads them, with what the others say in place of
        values that are `gone`."""
        y = torch.where(gone, 0.0, y)
        y = torch.log1p(y) if self.config.noise == "poisson" else y
        if not gone.any():
            return y
        holes = torch.where(gone, torch.nan, y)
        return filled(holes.flatten(1, -2), *self.factors).view_as(y)

    def encode(
        self,
        y: torch.Tensor,
        state: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """One new observation [M, B, Y] and the state carried from the one before (none at first)
        -> mean, variance [M, B, D] and the state to carry on (None of an mlp)."""
        mean, variance, state = self.posterior(y.unsqueeze(1), state=state)
        return mean.squeeze(1), variance.squeeze(1), state

    def decode(self, z: torch.Tensor) -> torch.Tensor:
        """The observation's mean, [M, B, D] -> [M, B, Y]."""
        return self.decoder.mean(z)


# the belief


Gaussian = tuple[torch.Tensor, torch.Tensor]  # mean and variance


def fuse_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for shape in ((1, 1), (3, 2), (4, 5)):
        one, other = tensor(rng, dtype, *shape), tensor(rng, dtype, *shape)
        yield one, tensor(rng, dtype, *shape).exp(), other, tensor(rng, dtype, *shape).exp()


def fuse_reference(mean, variance, other_mean, other_variance):
    """The product of two Gaussians: precisions add, and means count by their precision."""
    precision = 1 / variance + 1 / other_variance
    return (mean / variance + other_mean / other_variance) / precision, 1 / precision


@pair(
    fuse_reference,
    fuse_examples,
    rtol=1e-5,
    atol=1e-6,
    dtypes=("float32", "float64"),
    gradients=(0, 1, 2, 3),
)
def fuse(
    mean: torch.Tensor,
    variance: torch.Tensor,
    other_mean: torch.Tensor,
    other_variance: torch.Tensor,
) -> Gaussian:
    """The same by its gain, which also bears variances of 0."""
    gain = variance / (variance + other_variance)
    return torch.lerp(mean, other_mean, gain), variance * (1 - gain)


class Belief:
    """Mean and variance [M, D] of M members, and the encoder's state."""

    def __init__(self, network: LatentNetwork) -> None:
        self.network = network
        size = (network.members, network.config.latent)
        self.mean, self.variance = network.flat.new_zeros(size), network.flat.new_ones(size)
        units = network.encoder.units
        self.carried = network.flat.new_zeros(network.members, 1, units) if units else None
        self.encoded = 0  # calls of the encoder

    @torch.no_grad()
    def predict(self, action: torch.Tensor) -> None:
        """One step under actions [M, A]: V' = diag(J·V·Jᵀ) + what the dynamics add, the ensemble's
        disagreement included."""
        dynamics = self.network.dynamics
        z, a = self.mean[:, None], action[:, None]
        slope = dynamics.jacobian(
            *(x.unsqueeze(1).expand(-1, dynamics.models, -1, -1) for x in (z, a))
        ).mean(1)[:, 0]
        mean, added = dynamics.predict(z, a)
        spread = (slope.square() @ self.variance.unsqueeze(-1)).squeeze(-1)
        self.mean, self.variance = mean[:, 0], spread + added[:, 0]

    @torch.no_grad()
    def correct(self, y: torch.Tensor, begins: torch.Tensor) -> None:
        """By an observation [M, Y]; where an episode begins nothing was known before."""
        if self.carried is not None:
            self.carried = self.carried * ~begins[:, None, None]
        mean, variance, self.carried = self.network.encode(y[:, None], self.carried)
        self.encoded += 1
        fused = fuse(self.mean, self.variance, mean[:, 0], variance[:, 0])
        if self.network.config.missing:  # nothing seen, nothing corrected
            nothing = unread(y)[:, None]
            fused = [
                torch.where(nothing, own, both)
                for own, both in zip((self.mean, self.variance), fused, strict=True)
            ]
            mean = torch.where(nothing[:, None], 0.0, mean)
            variance = torch.where(nothing[:, None], 1.0, variance)
        self.mean, self.variance = (
            torch.where(begins[:, None], own, both)
            for own, both in zip((mean[:, 0], variance[:, 0]), fused, strict=True)
        )

    def state(self) -> dict[str, torch.Tensor]:
        carried = {} if self.carried is None else {"carried": self.carried}
        return {"mean": self.mean, "variance": self.variance, **carried}

    def load_state(self, state: dict[str, Any]) -> None:
        for name in self.state():
            setattr(self, name, torch.as_tensor(state[name]).to(self.mean))

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

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn

from tenfold.core.errors import ConfigError
from tenfold.core.pairs import pair
from tenfold.core.random import Purpose, fill_uniform, key
from tenfold.domains.dynamics.config import LatentModel
from tenfold.domains.dynamics.coordinated import held_out_channels, scaled_up
from tenfold.domains.dynamics.decoder import Decoder
from tenfold.domains.dynamics.dynamics import Dynamics, positive, raw_of
from tenfold.domains.dynamics.missing import Fill, unread
from tenfold.domains.dynamics.turning import Together
from tenfold.nets.flat import FlatModule
from tenfold.nets.layers import Layer
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


class LatentNetwork(FlatModule):
    """Encoder, dynamics and decoder of M members. Parameters in this order: encoder, dynamics,
    decoder."""

    held_out: torch.Tensor  # [Y] channels that the encoder never reads

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
        self.sessions = sessions
        told = self.flags + observations * (config.missing and not sessions)
        self.encoder = Encoder(observations + told, config, members)
        self.dynamics = Dynamics(config, actions, dt, members)
        self.decoder = Decoder(observations, config, members)
        if config.missing:
            self.fill = Fill(members, observations, config.noise == "poisson")
        if sessions:
            self.together = Together(members, sessions, config.latent)
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
            # a row with gaps is read like any other at first
            if self.config.missing and not self.sessions:
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
        given, gone = y, torch.isnan(y) | self.held_out if self.config.missing else None
        if gone is not None:
            unknown = gone if kept is None else gone | ~kept
            y = self.fill(torch.where(unknown, torch.nan, y))
        else:
            y = torch.where(self.held_out, 0.0, y) if self.config.held_out else y
            y = torch.log1p(y) if self.config.noise == "poisson" else y
        if self.sessions:  # each around its own mean, so that none is told by where it lies
            y = y - self.fill.mean[:, None, None]
        if kept is not None:
            y = scaled_up(y, kept, gone, self.config.coordinated_dropout)
        if self.flags:
            flag = torch.ones_like(y[..., :1]) if seen is None else seen.unsqueeze(-1)
            y = torch.cat((y * flag, flag), -1)
        if gone is not None and not self.sessions:
            y = torch.cat((y, gone.to(y)), -1)
        mean, variance, state = self.encoder(y, state, begins)
        if self.sessions:
            mean, variance = self.together(given, mean, variance)
        return mean, variance, state

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

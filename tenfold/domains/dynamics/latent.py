"""The model of a hidden system: encoder q(z_t | y), latent dynamics, decoder p(y_t | z_t); one flat
buffer [M, P] of parameters.

Shapes: M members in front, then time T, then batch B (or samples S, B). The encoder reads an
observation alone (mlp) or with those before it (gru), whose state is carried: one call for each new
observation. Poisson counts are read as log(1 + y).

Coordinated dropout (Keshtkaran and Pandarinath, 2019): in every gradient step a random share of the
values is dropped from the encoder's input, the rest is scaled up by 1 / (1 − share), and the
likelihood counts the dropped values alone, divided by the share. A value then never contributes to
its own reconstruction, so that copying noise, which a large encoder of counts learns soon, earns
nothing. Held-out channels are never read by the encoder at all.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import softplus

from tenfold.core.errors import ConfigError
from tenfold.core.random import Purpose, fill_uniform, key
from tenfold.domains.dynamics.config import LatentModel
from tenfold.domains.dynamics.dynamics import (
    FIRST_NOISE,
    FIRST_POSTERIOR,
    LEAST_VARIANCE,
    MOST_LOG_RATE,
    Dynamics,
    positive,
    raw_of,
)
from tenfold.domains.dynamics.missing import Imputer, observed_log_likelihood
from tenfold.domains.dynamics.sessions import SessionMap
from tenfold.nets.layers import FlatModule, Layer

LEAST_MEAN = 1e-3  # of a neuron's counts, before its logarithm is taken

Posterior = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]  # mean, variance, encoder state


class LatentEncoder(nn.Module):
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
        self, y: torch.Tensor, state: torch.Tensor | None, is_reset: torch.Tensor | None = None
    ) -> Posterior:
        """y [M, T, B, Y] and the state after the observation before, [M, B, H] -> mean, variance
        [M, T, B, D], state. Where `is_reset` [M, T, B] an episode begins with a fresh state."""
        x = y.flatten(1, 2)
        for layer in self.layers:
            x = torch.tanh(layer(x))
        if self.units:
            x, state = self.run_gru(self.into(x).view(*y.shape[:3], -1), state, is_reset)
        x = self.last(x).view(*y.shape[:3], -1)
        return x[..., : self.latent], positive(x[..., self.latent :]), state

    def run_gru(
        self, into: torch.Tensor, state: torch.Tensor | None, is_reset: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """A gated recurrent unit (Cho et al., 2014) over time; its inputs are computed for all
        times at once."""
        steps, batch = into.shape[1:3]
        h = into.new_zeros(self.members, batch, self.units) if state is None else state
        outputs = []
        for t in range(steps):
            h = h if is_reset is None else h * ~is_reset[:, t, :, None]
            again = self.again(h)
            gates = torch.sigmoid(into[:, t, :, : 2 * self.units] + again[..., : 2 * self.units])
            reset, keep = gates.chunk(2, -1)
            new = torch.tanh(
                torch.addcmul(into[:, t, :, 2 * self.units :], reset, again[..., 2 * self.units :])
            )
            h = torch.lerp(new, h, keep)
            outputs.append(h)
        return torch.stack(outputs, 1).flatten(1, 2), h


class LatentDecoder(nn.Module):
    """Hidden state -> mean of the observation, and the noise around it.

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
        """Inputs of the link function, [M, R, D] -> [M, R, Y]: log-means of loglinear."""
        for depth, layer in enumerate(self.layers):
            z = layer(torch.tanh(z) if depth else z)
        return z.clamp(max=MOST_LOG_RATE) if self.kind == "loglinear" else z

    def link(self, x: torch.Tensor) -> torch.Tensor:
        """The mean from the input of the link function."""
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
        log_rate = x if self.kind == "loglinear" else mean.log() if self.poisson else None
        if self.missing:
            return observed_log_likelihood(y, mean, self.raw_variance, log_rate)
        if self.raw_variance is None:
            assert log_rate is not None
            return (y * log_rate - mean).sum(-1) - torch.lgamma(y + 1).sum(-1)
        variance = positive(self.raw_variance)
        squares = torch.bmm(
            (y - mean).square().flatten(1, -2), (-0.5 / variance).unsqueeze(-1)
        ).view(z.shape[:-1])
        constant = -0.5 * (math.log(2 * math.pi) * y.shape[-1] + variance.log().sum(-1))
        return squares + constant.view(-1, *[1] * (z.dim() - 2))

    @torch.no_grad()
    def init_rates(self, mean: np.ndarray) -> None:
        """Makes an untrained decoder of counts give their means [M, Y] at the state 0: gradients
        alone would move the state away to do so, and learn nothing of it meanwhile."""
        if self.layers:
            last: Any = self.layers[-1]
            rate = np.maximum(mean, LEAST_MEAN)
            start = np.log(rate) if self.kind == "loglinear" else np.log(np.expm1(rate))
            last.bias.copy_(torch.from_numpy(start))


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
        held_out = torch.from_numpy(held_out_channels(observations, config.held_out))
        self.register_buffer("held_out", held_out, persistent=False)
        self.sessions = sessions
        # further inputs: whether the observation is visible, and which of its numbers are missing
        self.flags = int(config.mask > 0)
        flags = self.flags + observations * (config.missing and not sessions)
        self.encoder = LatentEncoder(observations + flags, config, members)
        self.dynamics = Dynamics(config, actions, dt, members)
        self.decoder = LatentDecoder(observations, config, members)
        if config.missing:
            self.fill = Imputer(members, observations, config.noise == "poisson")
        if sessions:
            self.session_map = SessionMap(members, sessions, config.latent)
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
        visible: torch.Tensor | None = None,
        state: torch.Tensor | None = None,
        is_reset: torch.Tensor | None = None,
        kept: torch.Tensor | None = None,
    ) -> Posterior:
        """q(z_t) for sequences y [M, T, B, Y]: mean and variance [M, T, B, D], and the encoder's
        state after the last.

        `visible` [M, T, B] is 0 where an observation is hidden: the encoder then reads zeros, and a
        flag. `is_reset` [M, T, B] is true where an episode begins. `kept` [M, T, B, Y] is false
        where coordinated dropout hides a value.
        """
        if y.shape[-1] != self.observations:
            raise ConfigError(
                "observation",
                f"has {y.shape[-1]} numbers, and the model was made for {self.observations}.",
            )
        raw, gone = y, torch.isnan(y) | self.held_out if self.config.missing else None
        if gone is not None:
            unknown = gone if kept is None else gone | ~kept
            y = self.fill(torch.where(unknown, torch.nan, y))
        else:
            y = torch.where(self.held_out, 0.0, y) if self.config.held_out else y
            y = torch.log1p(y) if self.config.noise == "poisson" else y
        if self.sessions:  # each around its own mean: it must not be recognised by its level
            y = y - self.fill.mean[:, None, None]
        if kept is not None:
            y = scaled_up(y, kept, gone, self.config.coordinated_dropout)
        if self.flags:
            flag = torch.ones_like(y[..., :1]) if visible is None else visible.unsqueeze(-1)
            y = torch.cat((y * flag, flag), -1)
        if gone is not None and not self.sessions:
            y = torch.cat((y, gone.to(y)), -1)
        mean, variance, state = self.encoder(y, state, is_reset)
        if self.sessions:
            mean, variance = self.session_map(raw, mean, variance)
        return mean, variance, state

    def encode(self, y: torch.Tensor, state: torch.Tensor | None = None) -> Posterior:
        """One new observation [M, B, Y] and the encoder's state after the one before (none at
        first) -> mean, variance [M, B, D] and the next state (None of an mlp)."""
        mean, variance, state = self.posterior(y.unsqueeze(1), state=state)
        return mean.squeeze(1), variance.squeeze(1), state

    def decode(self, z: torch.Tensor) -> torch.Tensor:
        """The observation's mean, [M, B, D] -> [M, B, Y]."""
        return self.decoder.mean(z)


# values that the encoder does not read


def held_out_channels(channels: int, share: float) -> np.ndarray:
    """Which of the channels the encoder never reads, [Y]: that share of them, evenly spread, but
    never all, and of a share above 0 at least one."""
    count = min(max(round(share * channels), 1), channels - 1) if share else 0
    held_out = np.zeros(channels, np.bool_)
    if count > 0:
        held_out[((np.arange(count) + 0.5) * channels / count).astype(np.int64)] = True
    return held_out


def scaled_up(
    y: torch.Tensor, kept: torch.Tensor, gone: torch.Tensor | None, share: float
) -> torch.Tensor:
    """The encoder's input [M, T, B, Y] under dropout: dropped values are 0 and the others as much
    larger, but those that were not observed anyway (`gone`)."""
    scaled = y * kept / (1 - share)
    return scaled if gone is None else torch.where(gone, y, scaled)

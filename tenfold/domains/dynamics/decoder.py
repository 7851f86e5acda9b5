"""From the hidden state to what is observed, p(y_t | z_t)."""

import math
from itertools import pairwise

import torch
from torch import nn
from torch.nn.functional import softplus

from tenfold.core.errors import ConfigError
from tenfold.domains.dynamics.config import LatentModel
from tenfold.domains.dynamics.dynamics import LEAST_VARIANCE, positive
from tenfold.domains.dynamics.missing import log_likelihood_of_seen
from tenfold.nets.layers import Layer

MOST_LOG_RATE = 20.0  # e^20 counts; a steeper exponential overflows before the gradient turns back


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
            log_rate = x if self.kind == "loglinear" else mean.log() if self.poisson else None
            return log_likelihood_of_seen(y, mean, self.raw_variance, log_rate)
        if self.raw_variance is None:
            log_rate = x if self.kind == "loglinear" else mean.log()
            return (y * log_rate - mean).sum(-1) - torch.lgamma(y + 1).sum(-1)
        variance = positive(self.raw_variance)
        squares = torch.bmm(
            (y - mean).square().flatten(1, -2), (-0.5 / variance).unsqueeze(-1)
        ).view(z.shape[:-1])
        constant = -0.5 * (math.log(2 * math.pi) * y.shape[-1] + variance.log().sum(-1))
        return squares + constant.view(-1, *[1] * (z.dim() - 2))

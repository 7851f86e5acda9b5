"""Latent dynamics z' ~ N(z + dt·f(z) + dt·G·a, v): f linear, an MLP, or weights on a grid of radial
basis functions.

M members (seeds of one experiment) of N models (an ensemble) each are stacked [M, N, …] and
computed by one batched product. v is a learned diagonal. Nothing derived from a parameter is kept
between calls; the grid's centres are constants.

The field of continuous time. A step leads to Φ(z) = z + dt·F(z), where F is the mean of the field f
along the step. Φ is the exponential of the flow of f, and f the logarithm of Φ,

    F = f + dt/2·f'f + dt²/6·(f'f'f + f''(f, f)) + …
    f = F − dt/2·F'F + dt²·(F'F'F/3 + F''(F, F)/12) − …

Where f is linear this is the logarithm of a matrix, f = log(J)·(J − I)⁻¹·F with J = ∂Φ/∂z, which
contains all terms with F' alone. It is the integral ∫₀¹ (I + s·dt·F')⁻¹ ds·F, which needs no
eigenvectors. The term with F'' is added: along the step it is a second difference of F, (F(z +
dt·F) − 2·F(z) + F(z − dt·F))/12. The rest is of order dt³. A logarithm exists where no eigenvalue
of J is 0 or below; elsewhere dt is too long, and F is returned."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import softplus

from tenfold.core.errors import ConfigError
from tenfold.core.pairs import pair
from tenfold.domains.dynamics.config import LatentModel
from tenfold.nets.layers import linear
from tenfold.ops.qlearning import tensor

LEAST_VARIANCE = 1e-6  # softplus of a very negative number is 0, and its logarithm is not finite
# variances of one step of untrained dynamics, and of an untrained encoder and decoder
FIRST_VARIANCE, FIRST_POSTERIOR, FIRST_NOISE = 0.05, 0.1, 0.3
MOST_LOG_RATE = 20.0  # e^20 counts; a steeper exponential overflows before the gradient turns back
MOST_CENTRES = 10_000  # grid^latent grows fast; beyond this a plan or a gradient takes seconds
# nodes of the integral: exact to 1e-7 for eigenvalues of J from 0.05 to 20, and for those that turn
# by up to 120 degrees in a step; to 1e-3 by 150 degrees, to a tenth by 170
NODES = 16
OVER = 1e-3  # of an angle: nearer to half a turn than this, a direction is turned over
EQUAL: Any = {"rtol": 1e-5, "atol": 1e-5, "dtypes": ("float32", "float64")}


def positive(raw: torch.Tensor) -> torch.Tensor:
    """A variance from a number without bounds."""
    return softplus(raw) + LEAST_VARIANCE


def raw_of(variance: np.ndarray | float) -> np.ndarray:
    """The numbers that `positive` makes these variances of."""
    above = np.maximum(np.asarray(variance) - LEAST_VARIANCE, LEAST_VARIANCE)
    return above + np.log(-np.expm1(-above))


def grid_centres(axis: torch.Tensor, latent: int) -> torch.Tensor:
    """All points of the grid, [P, D]; the last dimension runs fastest."""
    return torch.cartesian_prod(*[axis] * latent).view(-1, latent)


# radial basis functions on a grid


def rbf_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    shapes = ((1,), 1, 1, 2), ((2, 3), 5, 2, 4), ((1, 1), 3, 3, 3), ((1, 5), 32, 2, 10)
    for lead, rows, latent, grid in shapes:
        axis = torch.linspace(-2, 2, grid, dtype=getattr(torch, dtype))
        yield (
            tensor(rng, dtype, *lead, rows, latent),
            tensor(rng, dtype, *lead, latent, grid**latent),
            axis,
            4 / (grid - 1),
        )


def rbf_features_reference(z, axis, width):
    """φ_p(z) = exp(−‖z − c_p‖² / 2 width²)."""
    centres = grid_centres(axis, z.shape[-1])
    return torch.stack([torch.exp(-(z - c).square().sum(-1) / (2 * width**2)) for c in centres], -1)


def feature_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for z, _, axis, width in rbf_examples(rng, dtype):
        yield z, axis, width


def rbf_axes(z: torch.Tensor, axis: torch.Tensor, width: float) -> torch.Tensor:
    """exp(−(z_d − c)² / 2 width²) for each dimension alone, [..., D, G]: the features are products
    of these."""
    return torch.exp((z.unsqueeze(-1) - axis).square() * (-0.5 / width**2))


@pair(rbf_features_reference, feature_examples, gradients=(0,), **EQUAL)
def rbf_features(z: torch.Tensor, axis: torch.Tensor, width: float) -> torch.Tensor:
    """[..., D] -> [..., G^D]. D·G exponentials instead of G^D, since the exponential of a sum is a
    product."""
    along = rbf_axes(z, axis, width)
    product = along[..., 0, :]
    for d in range(1, z.shape[-1]):
        product = (product.unsqueeze(-1) * along[..., d, None, :]).flatten(-2)
    return product


def rbf_drift_reference(z, weight, axis, width):
    """f(z) = W·φ(z)."""
    return torch.einsum("...dp,...bp->...bd", weight, rbf_features_reference(z, axis, width))


@pair(rbf_drift_reference, rbf_examples, gradients=(0, 1), **EQUAL)
def rbf_drift(
    z: torch.Tensor, weight: torch.Tensor, axis: torch.Tensor, width: float
) -> torch.Tensor:
    """z [..., B, D], weight [..., D, G^D] -> [..., B, D]. Sums over one dimension of the grid after
    the other, so that the G^D features of a row are never written down."""
    latent, grid = z.shape[-1], len(axis)
    along = rbf_axes(z, axis, width).flatten(0, -4)
    # [MN, G, D·G^(D-1)]
    first = weight.reshape(len(along), latent, grid, -1).transpose(1, 2).flatten(2)
    partial = torch.bmm(along[:, :, 0], first).view(*along.shape[:2], latent, -1)
    for d in range(1, latent):
        partial = partial.view(*along.shape[:2], latent, grid, -1)
        if partial.shape[-1] == 1:
            partial = (partial.squeeze(-1) * along[:, :, d, None]).sum(-1)
        else:
            partial = (partial * along[:, :, d, None, :, None]).sum(-2)
    return partial.reshape(z.shape)


def rbf_slopes(z: torch.Tensor, axis: torch.Tensor, width: float) -> torch.Tensor:
    """∂φ_p/∂z_d = −(z_d − c_pd)/width² · φ_p,   [..., P, D]."""
    centres = grid_centres(axis, z.shape[-1])
    return (centres - z.unsqueeze(-2)) * (rbf_features(z, axis, width) / width**2).unsqueeze(-1)


# the module


class Dynamics(nn.Module):
    """N models for each of M members. `weight` [M, N, D, P] holds f of kinds linear (P = D + 1, the
    last for a constant) and rbf (P = grid^D); an mlp has `weights` and `biases` of its layers.
    `action_weight` [M, N, D, A] is G. `share` [M, D, D] is no weight: how much of a surprise is
    error of the reading, as the last closed-form fit found it (0: a reading is believed)."""

    axis: torch.Tensor
    share: torch.Tensor

    def __init__(self, config: LatentModel, actions: int, dt: float, members: int) -> None:
        super().__init__()
        self.kind, self.dt, self.models = config.dynamics, dt, config.ensemble
        self.latent = latent = config.latent
        lead = members, config.ensemble
        if self.kind == "rbf" and config.grid**latent > MOST_CENTRES:
            raise ConfigError(
                "model.grid",
                f"= {config.grid} in {latent} dimensions makes {config.grid**latent:,} centres: "
                f"use {MOST_CENTRES:,} at most, or dynamics mlp.",
            )
        axis = torch.linspace(-config.span, config.span, config.grid)
        # neighbours at one width: their sum is flat to 1 %
        self.width = 2 * config.span / (config.grid - 1)
        self.register_buffer("axis", axis, persistent=False)
        self.register_buffer("share", torch.zeros(members, latent, latent), persistent=False)
        self.sizes = (latent, *config.hidden, latent) if self.kind == "mlp" else ()
        self.weights = nn.ParameterList(
            nn.Parameter(torch.zeros(*lead, o, i)) for i, o in pairwise(self.sizes)
        )
        self.biases = nn.ParameterList(
            nn.Parameter(torch.zeros(*lead, o)) for _, o in pairwise(self.sizes)
        )
        if self.kind != "mlp":
            features = config.grid**latent if self.kind == "rbf" else latent + 1
            self.weight = nn.Parameter(torch.zeros(*lead, latent, features))
        self.action_weight = nn.Parameter(torch.zeros(*lead, latent, actions))
        self.raw_variance = nn.Parameter(torch.zeros(*lead, latent))

    def scale(self) -> None:
        """Turns parameters uniform in [0, 1) into initial values: weights within ±1/√inputs.
        Actions push the hidden state along its own axes where there are as many of both: its
        coordinates are free, and this chooses among them."""
        mlp = self.kind == "mlp"
        for layer in zip(self.weights, self.biases, strict=True) if mlp else [(self.weight,)]:
            bound = layer[0].shape[-1] ** -0.5
            for parameter in layer:
                parameter.mul_(2).sub_(1).mul_(bound)
        latent, actions = self.action_weight.shape[-2:]
        if latent == actions:
            self.action_weight.copy_(torch.eye(latent).expand_as(self.action_weight))
        else:
            self.action_weight.mul_(2).sub_(1)
        self.raw_variance.fill_(float(raw_of(FIRST_VARIANCE)))

    def features(self, z: torch.Tensor) -> torch.Tensor:
        """φ(z) [M, N, B, P] of kinds linear and rbf, whose drift is weight·φ."""
        if self.kind == "rbf":
            return rbf_features(z, self.axis, self.width)
        if self.kind == "linear":
            return torch.cat((z, torch.ones_like(z[..., :1])), -1)
        raise TypeError("Dynamics of kind mlp have no fixed features: use linear or rbf.")

    def drift(self, z: torch.Tensor) -> torch.Tensor:
        """f(z), [M, N, B, D] -> [M, N, B, D]."""
        if self.kind == "rbf":
            return rbf_drift(z, self.weight, self.axis, self.width)
        if self.kind == "linear":
            weight = self.weight.flatten(0, 1)
            return linear(z.flatten(0, 1), weight[..., :-1], weight[..., -1]).view_as(z)
        x = z.flatten(0, 1)
        for depth, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = linear(torch.tanh(x) if depth else x, weight.flatten(0, 1), bias.flatten(0, 1))
        return x.view_as(z)

    def push(self, a: torch.Tensor) -> torch.Tensor:
        """g(a) = G·a, [M, N, B, A] -> [M, N, B, D]."""
        return a @ self.action_weight.transpose(-1, -2)

    def variance(self) -> torch.Tensor:
        """Of one step, [M, N, 1, D]."""
        return positive(self.raw_variance).unsqueeze(-2)

    def forward(self, z: torch.Tensor, a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean [M, N, B, D] and variance [M, N, 1, D] of the next state."""
        return z + self.dt * (self.drift(z) + self.push(a)), self.variance()

    def jacobian(self, z: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
        """∂mean/∂z, [M, N, B, D, D]: row i is the derivative of the mean's number i. Actions push
        alike everywhere."""
        if self.kind == "mlp":
            return self.slopes(z, a)[0]
        unit = torch.eye(self.latent, dtype=z.dtype, device=z.device)
        if self.kind == "linear":
            slope = self.weight[..., None, :, :-1].expand(*z.shape, self.latent)
        else:
            slope = self.weight.unsqueeze(-3) @ rbf_slopes(z, self.axis, self.width)
        return unit + self.dt * slope

    def slopes(self, z: torch.Tensor, a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Of an mlp: ∂mean/∂z [M, N, B, D, D], and by all that the mean depends on in the order of
        `parameters()`, [M, N, B, D, K]: by the chain rule backward through the layers, for all
        states at once; the derivative of tanh is 1 − tanh²."""
        inputs, weights, biases = [z], [*self.weights], [*self.biases]
        for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
            inputs.append(torch.tanh(inputs[-1] @ weight.mT + bias.unsqueeze(-2)))
        unit = torch.eye(self.latent, dtype=z.dtype, device=z.device)
        # of the mean by what layer l gives, [M, N, B, D, out]
        slope = (self.dt * unit).expand(*z.shape, -1)
        by_weight, by_bias = [], []
        for weight, x in zip(reversed(weights), reversed(inputs), strict=True):
            by_bias.insert(0, slope)
            by_weight.insert(0, (slope.unsqueeze(-1) * x[..., None, None, :]).flatten(-2))
            slope = slope @ weight.unsqueeze(-3)
            if x is not z:
                slope = slope * (1 - x.square()).unsqueeze(-2)
        by_push = (self.dt * unit[..., None] * a[..., None, None, :]).flatten(-2)
        return unit + slope, torch.cat((by_push, *by_weight, *by_bias), -1)

    def predict(self, z: torch.Tensor, a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The ensemble's prediction of the next state, z [M, B, D], a [M, B, A] -> mean and
        variance [M, B, D]. The variance is the mean of the models' variances and the variance of
        their means."""
        mean, variance = self(*(x.unsqueeze(1).expand(-1, self.models, -1, -1) for x in (z, a)))
        return mean.mean(1), variance.mean(1) + mean.var(1, correction=0)

    def continuous_field(self, z: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """The instantaneous field of every model at states z [M, N, B, D] under an action [M, N, 1,
        A]; its Jacobian is that of the model."""

        def field(states: torch.Tensor) -> torch.Tensor:
            return self.drift(states) + self.push(action)

        slope = self.jacobian(z, action.expand(*z.shape[:-1], -1))
        return instantaneous(field, slope, z, self.dt)


# the field of continuous time


def logarithm_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """Steps that turn, grow and shrink; a matrix without eigenvectors of its own; one number."""
    for rows, size in ((1, 1), (5, 2), (3, 4)):
        slope = 0.2 * tensor(rng, dtype, rows, size, size)
        yield slope, tensor(rng, dtype, rows, size)
    yield (
        torch.tensor([[[0.0, 0.3], [0.0, 0.0]]], dtype=getattr(torch, dtype)),
        tensor(rng, dtype, 1, 2),
    )


def logarithm_reference(slope, average):
    """log(J)·(J − I)⁻¹·F by SciPy's logarithm of a matrix, [n, D]: J = I + slope. Where J − I has
    no inverse, the series F − X·F/2 + X²·F/3 …"""
    from scipy.linalg import logm

    fields = []
    for x, f in zip(slope.double().numpy(), average.double().numpy(), strict=True):
        if abs(np.linalg.det(x)) > 1e-9:
            fields.append(np.real(logm(np.eye(len(x)) + x)) @ np.linalg.solve(x, f))
        else:
            powers = [np.linalg.matrix_power(-x, k) / (k + 1) for k in range(60)]
            fields.append(np.sum(powers, 0) @ f)
    return torch.from_numpy(np.stack(fields)).to(average)


@pair(logarithm_reference, logarithm_examples, rtol=1e-5, atol=1e-6, dtypes=("float32", "float64"))
def logarithm(slope: torch.Tensor, average: torch.Tensor) -> torch.Tensor:
    """∫₀¹ (I + s·X)⁻¹ ds·F of X = `slope` [..., D, D] and F = `average` [..., D], by Gauss and
    Legendre."""
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    unit = torch.eye(average.shape[-1], dtype=average.dtype, device=average.device)
    right, integral = average.unsqueeze(-1), torch.zeros_like(average)
    values = torch.linalg.eigvals((unit + slope).nan_to_num().cpu())
    turned = ((values.real <= 0) & (values.imag.abs() <= -OVER * values.real)).any(-1)
    turned = turned.to(average.device)
    slope = torch.where(turned[..., None, None], 0.0, slope)
    for s, w in zip(((nodes + 1) / 2).tolist(), (weights / 2).tolist(), strict=True):
        integral = integral + w * torch.linalg.solve(unit + s * slope, right).squeeze(-1)
    return torch.where(turned.unsqueeze(-1), average, integral)


def instantaneous(
    field: Callable[[torch.Tensor], torch.Tensor], slope: torch.Tensor, z: torch.Tensor, dt: float
) -> torch.Tensor:
    """The field of continuous time at states z [..., D], of the field of steps `field` whose map
    has the Jacobian `slope` [..., D, D] there."""
    average = field(z)
    unit = torch.eye(z.shape[-1], dtype=z.dtype, device=z.device)
    whole = logarithm(slope - unit, average)
    bend = field(z + dt * average) - 2 * average + field(z - dt * average)
    unchanged = (whole == average).all(-1, keepdim=True)
    return torch.where(unchanged, average, whole + bend / 12)

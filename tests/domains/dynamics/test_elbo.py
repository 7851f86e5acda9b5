"""The evidence bound: against Kalman's likelihood and the analytic bound, tables by hand, safe to
call twice."""

import math

import pytest
import torch
from torch.distributions import MultivariateNormal

from tenfold.domains.dynamics.config import LatentModel
from tenfold.domains.dynamics.dynamics import positive
from tenfold.domains.dynamics.elbo import (
    draws_shape,
    elbo,
    elbo_parts,
    elbo_reference,
    windows,
    windows_of,
)
from tenfold.domains.dynamics.latent import LatentNetwork

CPU = torch.device("cpu")


def linear_system(length: int) -> tuple[LatentNetwork, torch.Tensor, torch.Tensor]:
    """A linear-Gaussian model in float64 with a few sequences, and noise whose mean is 0 and whose
    covariance is exactly I."""
    config = LatentModel(dynamics="linear", steps=1, samples=4, hidden=(6,))
    net = LatentNetwork(3, 2, config, 0.2).double().initialise([3])
    cubature = math.sqrt(2) * torch.tensor(
        [[1.0, 0], [-1, 0], [0, 1], [0, -1]], dtype=torch.float64
    )
    return (
        net,
        cubature,
        torch.randn(
            1, 5, length, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
        ),
    )


def joint(net: LatentNetwork, a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and covariance of all hidden states of one sequence under actions a [T, A]."""
    weight, push = net.dynamics.weight[0, 0], net.dynamics.action_weight[0, 0]
    step = torch.eye(2, dtype=torch.float64) + net.dynamics.dt * weight[:, :2]
    noise = positive(net.dynamics.raw_variance)[0, 0].diag()
    length = len(a)
    means, covariance = (
        [torch.zeros(2, dtype=torch.float64)],
        torch.zeros(length, 2, length, 2, dtype=torch.float64),
    )
    covariance[0, :, 0] = torch.eye(2)
    for t in range(1, length):
        means.append(step @ means[-1] + net.dynamics.dt * (weight[:, 2] + push @ a[t - 1]))
        for s in range(t):
            covariance[t, :, s] = step @ covariance[t - 1, :, s]
            covariance[s, :, t] = covariance[t, :, s].T
        covariance[t, :, t] = step @ covariance[t - 1, :, t - 1] @ step.T + noise
    return torch.cat(means), covariance.view(2 * length, 2 * length)


@pytest.mark.parametrize("length", [1, 2, 9])
def test_a_linear_systems_bound_is_the_analytic_one_and_below_its_likelihood(length: int) -> None:
    net, cubature, both = linear_system(length)
    y, a = both[..., :3], both[..., 3:]
    normal = cubature[:, None].expand(1, length, 4, 5, 2)
    with torch.no_grad():
        found = elbo(net, y, a, normal).item()
        mean, variance, _ = net.posterior(y.transpose(1, 2))
        layer = net.decoder.layers[0]
        read = torch.block_diag(*[layer.weight[0]] * length)  # type: ignore[index]
        offset, noise = (
            layer.bias[0].repeat(length),
            positive(net.decoder.raw_variance)[0].repeat(length).diag(),
        )  # type: ignore[index,arg-type]
        analytic, likelihood = 0.0, 0.0
        for b in range(5):
            m, p = joint(net, a[0, b])
            mu, v = mean[0, :, b].flatten(), variance[0, :, b].flatten()
            seen, at = y[0, b].flatten(), read @ mean[0, :, b].flatten() + offset
            # E_q log p(y | z) + E_q log p(z) + entropy of q, with E_q (z − m)ᵀP⁻¹(z − m) = (μ −
            # m)ᵀP⁻¹(μ − m) + tr P⁻¹V
            analytic += (
                MultivariateNormal(at, noise).log_prob(seen)
                - 0.5 * (read.T @ noise.inverse() @ read @ v.diag()).trace()
            )
            analytic += (
                MultivariateNormal(m, p).log_prob(mu) - 0.5 * (p.inverse() @ v.diag()).trace()
            )
            analytic += 0.5 * (2 * math.pi * math.e * v).log().sum()
            likelihood += MultivariateNormal(read @ m + offset, read @ p @ read.T + noise).log_prob(
                seen
            )
    assert found == pytest.approx(float(analytic) / 5, abs=1e-4)
    assert found < float(likelihood) / 5


def test_with_the_exact_posterior_the_bound_is_the_likelihood(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One observation y = z + noise of variance r, z ~ N(0, 1): q = N(y/(1 + r), r/(1 + r)), p(y) =
    N(0, 1 + r)."""
    net = (
        LatentNetwork(
            2, 2, LatentModel(decoder="identity", dynamics="linear", steps=1, samples=4), 0.1
        )
        .double()
        .initialise([0])
    )
    y = torch.randn(1, 3, 1, 2, dtype=torch.float64)
    assert net.decoder.raw_variance is not None
    noise = positive(net.decoder.raw_variance)[0].detach()
    exact = (y.transpose(1, 2) / (1 + noise), (noise / (1 + noise)).expand(1, 1, 3, 2), None)
    monkeypatch.setattr(net, "posterior", lambda *_, **__: exact)
    cubature = math.sqrt(2) * torch.tensor(
        [[1.0, 0], [-1, 0], [0, 1], [0, -1]], dtype=torch.float64
    )
    found = elbo(net, y, torch.zeros(1, 3, 1, 2).double(), cubature[:, None].expand(1, 1, 4, 3, 2))
    expected = torch.distributions.Normal(0, (1 + noise).sqrt()).log_prob(y).sum(-1).mean()
    assert found.item() == pytest.approx(expected.item(), abs=1e-9)


def test_window_table_by_hand() -> None:
    """T = 4, K = 2, decay ½: state 1 is reached by one horizon, states 2 and 3 by two with weights
    2/3 and 1/3."""
    table = windows_of(4, 2, 0.5, CPU, torch.float64)
    assert table.target.tolist() == [1, 2, 3, 2, 3]
    assert table.weight.tolist() == pytest.approx([1, 2 / 3, 2 / 3, 1 / 3, 1 / 3])
    assert table.share.tolist() == pytest.approx([1, 2 / 3, 2 / 3, 1 / 6, 1 / 6])
    assert table.total_share.tolist() == pytest.approx([0, 1, 5 / 6, 5 / 6])
    assert table.log_horizons == pytest.approx(2 / 3 * math.log(2)) and table.horizons == 2


@pytest.mark.parametrize(("length", "steps"), [(1, 5), (2, 5), (5, 5), (20, 5), (7, 1)])
def test_the_weights_of_every_state_sum_to_one(length: int, steps: int) -> None:
    table = windows(length, steps, 0.8, CPU, torch.float64)
    sums = torch.zeros(length, dtype=torch.float64).index_add_(0, table.target, table.weight)
    assert sums[1:].tolist() == pytest.approx([1] * (length - 1)) and sums[0] == 0


def test_tables_are_computed_once_and_stay_what_they_are() -> None:
    settings = (20, 5, 0.8, CPU, torch.float32)
    first = windows(*settings)
    kept = [part.clone() if isinstance(part, torch.Tensor) else part for part in first]
    net = LatentNetwork(3, 2, LatentModel(), 0.1).initialise([0])
    y, a = torch.randn(1, 2, 20, 3), torch.randn(1, 2, 20, 2)
    elbo(net, y, a, torch.randn(1, *draws_shape(net, 2, 20))).sum().backward()
    assert windows(*settings) is first
    for before, now, anew in zip(kept, first, windows_of(*settings), strict=True):
        assert torch.equal(torch.as_tensor(before), torch.as_tensor(now)) and torch.equal(
            torch.as_tensor(now), torch.as_tensor(anew)
        )
    with torch.inference_mode():
        # may serve a gradient later
        assert not windows(19, 5, 0.8, CPU, torch.float32).share.is_inference()
    # another type, another table
    assert windows(20, 5, 0.8, CPU, torch.float64).weight.dtype == torch.float64


def gradient(net: LatentNetwork, bound: torch.Tensor) -> torch.Tensor:
    net.flat_grad.zero_()
    bound.sum().backward()
    return net.flat_grad.clone()


@pytest.mark.parametrize("bound", [elbo, elbo_reference])
def test_two_forward_passes_and_gradient_accumulation_are_safe(bound) -> None:
    net = LatentNetwork(
        3, 2, LatentModel(samples=2, steps=3, mask=0.2, ensemble=2, grid=4), 0.1, 2
    ).initialise([0, 1])

    def inputs() -> tuple[torch.Tensor, ...]:
        return (
            torch.randn(2, 3, 6, 3),
            torch.randn(2, 3, 6, 2),
            torch.randn(2, *draws_shape(net, 3, 6)),
            (torch.rand(2, 3, 6) > 0.3).float(),
        )

    one, two = inputs(), inputs()
    alone = gradient(net, bound(net, *one)), gradient(net, bound(net, *two))
    # both forward passes before any backward pass
    first, second = bound(net, *one), bound(net, *two)
    assert torch.equal(gradient(net, first), alone[0]) and torch.equal(
        gradient(net, second), alone[1]
    )
    net.flat_grad.zero_()
    bound(net, *one).sum().backward()
    bound(net, *two).sum().backward()
    assert torch.allclose(net.flat_grad, alone[0] + alone[1], rtol=1e-5, atol=1e-6)


def test_beta_weighs_the_divergence() -> None:
    net = LatentNetwork(3, 2, LatentModel(), 0.1).initialise([0])
    inputs = (
        torch.randn(1, 2, 8, 3),
        torch.randn(1, 2, 8, 2),
        torch.randn(1, *draws_shape(net, 2, 8)),
    )
    parts = elbo_parts(net, *inputs)
    assert parts.divergence.item() > 0
    for beta in (0.0, 0.3, 1.0):
        assert elbo(net, *inputs, None, beta).item() == pytest.approx(
            (parts.likelihood - beta * parts.divergence).item(), rel=1e-5
        )


def test_the_last_action_is_not_used_and_all_others_are() -> None:
    net = LatentNetwork(3, 2, LatentModel(steps=2), 0.1).initialise([0])
    y, a, normal = (
        torch.randn(1, 2, 5, 3),
        torch.randn(1, 2, 5, 2).requires_grad_(),
        torch.randn(1, *draws_shape(net, 2, 5)),
    )
    (slope,) = torch.autograd.grad(elbo(net, y, a, normal).sum(), a)
    assert (slope[:, :, -1] == 0).all() and (slope[:, :, :-1] != 0).all()

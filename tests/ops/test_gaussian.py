"""Gaussian policies, plain and squashed: numbers by hand, definitions by integration, ends of the
range, errors."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tenfold.domains.dynamics.elbo import kl_variance
from tenfold.ops.gaussian import (
    Gaussian,
    entropy,
    kl,
    log_prob,
    log_slope,
    squash,
    squashed_entropy,
    squashed_log_prob,
)

HALF_LOG_TAU = 0.9189385332  # ½ log 2π
quick = settings(max_examples=25, deadline=None)
means, log_stds = st.floats(-2, 2), st.floats(-3, 0.5)
bounded = st.tuples(st.floats(-5, 5), st.floats(0.1, 10)).map(lambda b: (b[0], b[0] + b[1]))
GRID = torch.linspace(-9, 9, 20_001, dtype=torch.float64)  # raw samples


def double(*numbers: float) -> list[torch.Tensor]:
    return [torch.tensor([number], dtype=torch.float64) for number in numbers]


def test_log_probability_entropy_and_divergence_by_hand() -> None:
    zero, one, two = torch.tensor([0.0]), torch.tensor([1.0]), torch.tensor([2.0])
    assert log_prob(zero, zero, one).item() == pytest.approx(-0.5 - HALF_LOG_TAU)
    # one σ = 2 away
    assert log_prob(one, two.log(), 3 + 0 * one).item() == pytest.approx(
        -0.5 - math.log(2) - HALF_LOG_TAU
    )
    assert entropy(zero).item() == pytest.approx(0.5 + HALF_LOG_TAU)
    assert entropy(two.log()).item() == pytest.approx(0.5 + HALF_LOG_TAU + math.log(2))
    # N(0, 1) against N(1, 4): log 2 + (1 + 1)/8 − ½
    assert kl(zero, zero, one, two.log()).item() == pytest.approx(math.log(2) - 0.25)
    assert kl(one, two.log(), one, two.log()).item() == 0


def test_squashing_by_hand() -> None:
    low, high = torch.tensor([-1.0]), torch.tensor([3.0])
    # σ(2u) of u = ½ log 3 is ¾: −1 + 4·¾ = 2; the slope is (4/2)·(1 − tanh²) = 2·(1 − ¼)
    u = torch.tensor([0.5 * math.log(3)])
    assert squash(u, low, high).item() == pytest.approx(2.0)
    assert squash(-u, low, high).item() == pytest.approx(0.0, abs=1e-6)
    assert log_slope(u, low, high).item() == pytest.approx(math.log(1.5), abs=1e-6)
    zero = torch.zeros(1)
    assert squashed_log_prob(zero, zero, zero, low, high).item() == pytest.approx(
        -HALF_LOG_TAU - math.log(2)
    )


def test_far_out_nothing_is_lost() -> None:
    # 1 − tanh²(50) is 0 in floats; its logarithm is 2·(log 2 − 50)
    low, high = torch.tensor([-1.0]), torch.tensor([1.0])
    for u in (50.0, -50.0, 1e4):
        raw = torch.tensor([u], requires_grad=True)
        found = log_slope(raw, low, high)
        assert found.item() == pytest.approx(2 * (math.log(2) - abs(u)))
        assert torch.autograd.grad(found, raw)[0].item() == pytest.approx(-2 * math.copysign(1, u))
        assert squash(raw, low, high).item() == math.copysign(1, u)


@quick
@given(means, log_stds, bounded)
def test_the_squashed_density_integrates_to_one(
    mean: float, log_std: float, bounds: tuple[float, float]
) -> None:
    m, s, low, high = double(mean, log_std, *bounds)
    raw = m + s.exp() * GRID
    density = squashed_log_prob(m, s, raw, low, high).exp()
    assert torch.trapezoid(density, squash(raw, low, high)).item() == pytest.approx(1, abs=1e-5)


@quick
@given(means, log_stds, bounded)
def test_the_squashed_entropy_is_the_integral_over_actions(
    mean: float, log_std: float, bounds: tuple[float, float]
) -> None:
    m, s, low, high = double(mean, log_std, *bounds)
    raw = m + s.exp() * GRID
    logs = squashed_log_prob(m, s, raw, low, high)
    expected = -torch.trapezoid(logs.exp() * logs, squash(raw, low, high)).item()
    assert squashed_entropy(m, s, low, high).item() == pytest.approx(expected, abs=5e-5)
    # the uniform has the most
    assert squashed_entropy(m, s, low, high).item() <= math.log(bounds[1] - bounds[0]) + 1e-4


@quick
@given(means, log_stds, means, log_stds, bounded)
def test_squashing_leaves_the_divergence_as_it_is(
    mean: float, log_std: float, new_mean: float, new_log_std: float, bounds: tuple[float, float]
) -> None:
    m, s, n, t, low, high = double(mean, log_std, new_mean, new_log_std, *bounds)
    raw = m + s.exp() * GRID
    logs = squashed_log_prob(m, s, raw, low, high)
    integral = torch.trapezoid(
        logs.exp() * (logs - squashed_log_prob(n, t, raw, low, high)), squash(raw, low, high)
    ).item()
    policy = Gaussian([bounds[0]], [bounds[1]])
    assert policy.kl(m, s, n, t).item() == pytest.approx(integral, rel=1e-4, abs=1e-4)
    assert torch.equal(policy.kl(m, s, n, t), Gaussian().kl(m, s, n, t))


@pytest.mark.parametrize(
    ("log_std", "error"), [(-1.0, 1e-9), (0.0, 1e-6), (1.0, 1e-3), (1.5, 5e-3)]
)
def test_the_quadrature_is_as_exact_as_it_says(log_std: float, error: float) -> None:
    z = torch.linspace(-12, 12, 100_001, dtype=torch.float64)
    for mean in (0.0, 0.7, 3.0):
        m, s, low, high = double(mean, log_std, -1, 1)
        density = torch.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
        expected = (
            entropy(s).item()
            + torch.trapezoid(density * log_slope(m + s.exp() * z, low, high), z).item()
        )
        assert squashed_entropy(m, s, low, high).item() == pytest.approx(expected, abs=error)


def test_draws_follow_the_policy() -> None:
    n, policy = 200_000, Gaussian([-1.0], [1.0])
    mean, log_std = torch.full((n, 1), 0.3), torch.full((n, 1), -0.5)
    raw = policy.sample(mean, log_std, generator=torch.Generator().manual_seed(0))
    std = math.exp(-0.5)
    assert raw.mean().item() == pytest.approx(0.3, abs=4.5 * std / math.sqrt(n))
    assert raw.std().item() == pytest.approx(std, abs=4.5 * std / math.sqrt(2 * n))
    scores = policy.log_prob(mean, log_std, raw)
    assert -scores.mean().item() == pytest.approx(
        policy.entropy(mean[:1], log_std[:1]).item(), abs=4.5 * scores.std().item() / math.sqrt(n)
    )
    assert torch.equal(policy.sample(mean, log_std, torch.zeros(n, 1)), policy.mode(mean))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_actions_never_leave_the_bounds(dtype: torch.dtype) -> None:
    rng = np.random.default_rng(0)
    low = rng.normal(size=1000)
    policy = Gaussian(low, low + rng.uniform(1e-3, 5, 1000))
    assert policy.low is not None and policy.high is not None
    for raw in (
        torch.full((1000,), 1e6),
        torch.full((1000,), -1e6),
        torch.from_numpy(20 * rng.normal(size=1000)),
    ):
        action = policy.action(raw.to(dtype))
        assert action.dtype == dtype
        assert (action >= policy.low.to(dtype)).all() and (action <= policy.high.to(dtype)).all()
    assert torch.equal(Gaussian().action(raw), raw)


def test_a_plain_policy_gives_the_plain_numbers_and_a_squashed_one_the_squashed() -> None:
    mean, log_std, raw = torch.randn(3, 4, 2, generator=torch.Generator().manual_seed(0))
    plain, squashed = Gaussian(), Gaussian([-1, 0], [1, 5])
    low, high = torch.tensor([-1.0, 0.0]), torch.tensor([1.0, 5.0])
    assert torch.equal(plain.log_prob(mean, log_std, raw), log_prob(mean, log_std, raw))
    assert torch.equal(plain.entropy(mean, log_std[0]), entropy(log_std[0]).expand(4, 2))
    assert torch.equal(
        squashed.log_prob(mean, log_std, raw), squashed_log_prob(mean, log_std, raw, low, high)
    )
    assert torch.equal(
        squashed.entropy(mean, log_std[0]),
        squashed_entropy(mean, log_std[0].expand(4, 2), low, high),
    )
    assert not squashed.state_dict()


def test_bounds_that_cannot_work_are_refused() -> None:
    for low, high, words in (
        ([0.0], None, "both bounds"),
        ([0, 1], [1, 1], "dimension 1.* low < high"),
        ([0, -np.inf], [1, 1], "dimension 1"),
        ([0, np.nan], [1, 1], "dimension 1"),
        ([0], [1, 2], "one number a dimension"),
    ):
        with pytest.raises(ValueError, match=words):
            Gaussian(low, high)


def test_divergence_of_variances_is_its_monte_carlo_estimate() -> None:
    """E_q log q/p over 400,000 draws, within five standard errors; in three dimensions at once."""
    generator = torch.Generator().manual_seed(0)
    mean, new_mean = torch.randn(2, 3, generator=generator, dtype=torch.float64)
    variance, new_variance = torch.rand(2, 3, generator=generator, dtype=torch.float64) + 0.2
    z = mean + variance.sqrt() * torch.randn(400_000, 3, generator=generator, dtype=torch.float64)
    ratio = log_prob(mean, 0.5 * variance.log(), z) - log_prob(
        new_mean, 0.5 * new_variance.log(), z
    )
    found, error = ratio.mean(0), ratio.std(0) / 400_000**0.5
    assert ((kl_variance(mean, variance, new_mean, new_variance) - found).abs() < 5 * error).all()
    assert torch.allclose(
        kl_variance(mean, variance, new_mean, new_variance),
        kl(mean, 0.5 * variance.log(), new_mean, 0.5 * new_variance.log()),
    )

"""States as single observations say them: the step up the likelihood, and a rotation that a gru
reads late."""

from typing import Any

import numpy as np
import pytest
import torch

from tenfold.domains.dynamics.closed_form import refit
from tenfold.domains.dynamics.config import LatentModel
from tenfold.domains.dynamics.dynamics import Dynamics, raw_of
from tenfold.domains.dynamics.latent import LatentNetwork
from tenfold.domains.dynamics.missing import newton_step

DT, TURN = 0.1, np.array([[-0.38, -1.98], [1.98, -0.38]])


def network(outputs: int, size: int = 2, **model: Any) -> LatentNetwork:
    return LatentNetwork(outputs, 0, LatentModel(latent=size, **model), DT).initialise([3])


def set_decoder(net: LatentNetwork, weight: np.ndarray, bias: np.ndarray) -> None:
    layer: Any = net.decoder.layers[0]
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(weight)[None])
        layer.bias.copy_(torch.from_numpy(bias)[None])


def test_one_count_by_hand() -> None:
    """Log rates z and −z + log 2 at z = 0: rates 1 and 2. Counts 2 and 1 have the score
    1·(2 − 1) − 1·(1 − 2) = 2 and the information 1 + 2 = 3. The second alone: −1·(1 − 2) / 2. None:
    no reading."""
    net = network(2, 1, noise="poisson", decoder="loglinear")
    set_decoder(net, np.array([[1.0], [-1.0]]), np.array([0.0, np.log(2)]))
    y = np.array([[2.0, 1.0], [np.nan, 1.0], [np.nan, np.nan]])
    found = newton_step(net.decoder, 0, y, np.zeros((3, 1)))
    assert found[:2, 0] == pytest.approx([2 / 3, 1 / 2], rel=1e-6) and np.isnan(found[2, 0])


def test_of_gaussian_noise_it_is_least_squares_wherever_it_began() -> None:
    net = network(5, noise="gaussian", decoder="linear")
    rng = np.random.default_rng(0)
    weight, bias, noise = rng.normal(size=(5, 2)), rng.normal(size=5), rng.uniform(0.5, 2, 5)
    set_decoder(net, weight, bias)
    with torch.no_grad():
        net.decoder.raw_variance.copy_(torch.from_numpy(raw_of(noise))[None])  # type: ignore[union-attr]
    y = rng.normal(size=(7, 5))
    scaled = np.linalg.lstsq(weight / np.sqrt(noise)[:, None], ((y - bias) / np.sqrt(noise)).T)[0]
    for start in (np.zeros((7, 2)), rng.normal(size=(7, 2))):
        found = newton_step(net.decoder, 0, y, start)
        assert found == pytest.approx(scaled.T, abs=1e-5)


@pytest.mark.parametrize(
    ("noise", "decoder"),
    [("poisson", "loglinear"), ("poisson", "linear"), ("gaussian", "loglinear")],
)
def test_score_and_information_are_those_of_the_decoders_likelihood(
    noise: Any, decoder: Any
) -> None:
    """The step is H⁻¹·s with the gradient s of log p(y | z), by autograd, and the mean H of s·sᵀ over
    observations of this state."""
    net = network(6, noise=noise, decoder=decoder).double()
    z = np.array([[0.3, -0.2]])
    with torch.no_grad():
        mean = net.decoder.mean(torch.from_numpy(z)[None])[0, 0].numpy()
    rng, count = np.random.default_rng(1), 4_000
    deviation = 0.6  # FIRST_NOISE of 0.3 is a variance
    y = (
        rng.poisson(mean, (count, 6))
        if noise == "poisson"
        else mean + deviation * rng.normal(size=(count, 6))
    )
    at = torch.from_numpy(np.repeat(z, count, 0))[None].requires_grad_()
    (slope,) = torch.autograd.grad(
        net.decoder.log_likelihood(torch.from_numpy(y.astype(float))[None], at).sum(), at
    )
    score = slope[0].numpy()
    moved = newton_step(net.decoder, 0, y.astype(float), np.repeat(z, count, 0)) - z
    information = np.linalg.lstsq(moved, score)[0]
    assert moved @ information == pytest.approx(score, rel=1e-4, abs=1e-4)
    spread = deviation**2 / 0.3 if noise == "gaussian" else 1.0
    assert score.T @ score / count == pytest.approx(information * spread, rel=0.25, abs=0.05)


def test_a_rotation_that_is_read_late_keeps_its_eigenvalues() -> None:
    """Readings that follow what is seen late, as a gru's do, make it turn by 5 % too slowly, 30
    standard errors; one step of Newton from them does not. Noise and share stay those of the
    readings, which are far more sure."""
    net = network(40, noise="poisson", decoder="loglinear")
    found, plain, behind = [], [], np.eye(2) + 0.5 * DT * TURN
    for seed in range(4):
        rng = np.random.default_rng(seed)
        weight, bias = 0.6 * rng.normal(size=(40, 2)), np.log(rng.uniform(0.1, 0.5, 40))
        set_decoder(net, weight, bias)
        angle, z = 2 * np.pi * rng.random(80), np.zeros((80, 40, 2))
        z[:, 0] = 1.8 * np.stack((np.cos(angle), np.sin(angle)), 1)
        for t in range(1, 40):
            z[:, t] = z[:, t - 1] @ (np.eye(2) + DT * TURN).T + 0.15 * rng.normal(size=(80, 2))
        y = rng.poisson(np.exp(z @ weight.T + bias)).astype(float)
        late = z + 0.2 * rng.normal(size=z.shape)
        for t in range(1, 40):
            late[:, t] = 0.7 * late[:, t - 1] @ behind.T + 0.3 * late[:, t]
        whole = np.arange(1, 80 * 40) % 40 > 0
        readings, nothing = late.reshape(-1, 2), np.zeros((len(whole), 0))
        alone = newton_step(net.decoder, 0, y.reshape(-1, 40), readings)
        for states, into in ((None, plain), (alone, found)):
            dynamics = Dynamics(LatentModel(dynamics="linear"), 0, DT, 1)
            refit(dynamics, 0, readings, np.zeros_like(readings), nothing, whole, 0, states)
            own = np.linalg.eigvals(dynamics.weight[0, 0, :, :2].detach().numpy())[0]
            into.append([own.real, abs(own.imag)])
            if states is not None:
                assert (
                    dynamics.variance()[0, 0].max() < 0.02 and dynamics.share[0].abs().max() < 0.4
                )
    assert np.mean(found, 0) == pytest.approx([-0.38, 1.98], abs=0.03)
    assert np.mean(plain, 0)[1] < 1.9

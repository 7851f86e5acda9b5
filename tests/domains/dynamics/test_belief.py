"""Beliefs step by step, and the linear baseline: an ARX system is recovered, its forecasts fed back."""

import numpy as np
import pytest
import torch

from tenfold.domains.dynamics.belief import ARX, Belief, fit_arx, fuse
from tenfold.domains.dynamics.config import LatentModel
from tenfold.domains.dynamics.dynamics import raw_of
from tenfold.domains.dynamics.fields import FieldEnvironments
from tenfold.domains.dynamics.latent import LatentNetwork

NAME = "tenfold/LimitCycle-v0(observe=identity, scale=0.1, process_noise=0.05, limit=100000)"


def exact_model() -> LatentNetwork:
    """The limit cycle itself on a fine grid, an encoder that says what it sees, with the true
    variances."""
    network = LatentNetwork(
        2, 2, LatentModel(hidden=(), decoder="identity", grid=21, span=2.5), 0.1
    ).initialise([0])
    dynamics = network.dynamics
    axis = torch.linspace(-1.6, 1.6, 41, dtype=torch.float64)
    z = torch.cartesian_prod(axis, axis)
    grow = 1 - z.square().sum(-1, keepdim=True)
    field = z * grow + torch.stack((-z[:, 1], z[:, 0]), -1)
    phi = dynamics.double().features(z[None, None])[0, 0]
    weight = torch.linalg.lstsq(phi, field, driver="gelsd").solution.T
    network = network.float()
    with torch.no_grad():
        network.dynamics.weight.copy_(weight[None, None])
        network.dynamics.action_weight.copy_(torch.eye(2)[None, None])
        network.dynamics.raw_variance.fill_(raw_of(0.05 * 0.1))
        network.encoder.last.weight.zero_()
        network.encoder.last.weight[:, :2] = torch.eye(2)
        network.encoder.last.bias.copy_(torch.tensor([0.0, 0.0, raw_of(0.1**2), raw_of(0.1**2)]))
    return network


def errors(correct: bool, steps: int = 600) -> np.ndarray:
    network, envs = exact_model(), FieldEnvironments(NAME, 1, 3)
    belief, found = Belief(network), []
    belief.correct(torch.from_numpy(envs.obs), torch.tensor([True]))
    action = np.zeros((1, 2), np.float32)  # a push would tell both where they are
    for _ in range(steps):
        belief.predict(torch.from_numpy(action))
        envs.step(action)
        if correct:
            belief.correct(torch.from_numpy(envs.obs), torch.tensor([False]))
        found.append(np.linalg.norm(belief.mean.numpy()[0] - envs.latent[0]))
    assert belief.encoded == 1 + steps * correct
    return np.array(found)


def test_with_the_exact_model_the_belief_stays_near_the_state_and_beats_the_encoder() -> None:
    found = errors(correct=True)
    encoder_alone = 0.1 * np.sqrt(np.pi / 2)  # mean length of its error: 0.125
    assert found.mean() < 0.85 * encoder_alone and found.max() < 0.4
    assert found[-200:].mean() < 1.3 * found[50:250].mean()  # it does not grow


def test_without_correction_the_same_model_loses_the_state() -> None:
    assert errors(correct=False)[-200:].mean() > 5 * errors(correct=True)[-200:].mean()


def test_two_gaussians_are_fused_by_their_precisions() -> None:
    mean, variance = fuse(
        torch.tensor([0.0]), torch.tensor([1.0]), torch.tensor([3.0]), torch.tensor([0.5])
    )
    assert mean.item() == pytest.approx(2.0) and variance.item() == pytest.approx(1 / 3)
    certain, none = fuse(
        torch.tensor([1.5]), torch.tensor([0.0]), torch.tensor([3.0]), torch.tensor([0.5])
    )
    assert (certain.item(), none.item()) == (1.5, 0.0)


def test_a_carried_gru_says_what_the_whole_sequence_says_and_forgets_at_a_new_episode() -> None:
    network = LatentNetwork(5, 2, LatentModel(encoder="gru", hidden=(8,)), 0.1).initialise([0])
    belief, y = Belief(network), torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
    for t in range(6):
        belief.correct(y[None, t], torch.tensor([t in (0, 4)]))
    _, _, state = network.posterior(y[None, 4:].unsqueeze(2))
    assert belief.carried is not None and state is not None and belief.encoded == 6
    assert torch.allclose(belief.carried, state, atol=1e-6)


def oscillator(rng: np.random.Generator, count: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """y_t = 1.6·y_{t−1} − 0.8·y_{t−2} + 0.5·a_{t−1} + 0.1, no noise."""
    a = rng.normal(size=(count, length, 1))
    y = rng.normal(size=(count, length, 1))
    for t in range(2, length):
        y[:, t] = 1.6 * y[:, t - 1] - 0.8 * y[:, t - 2] + 0.5 * a[:, t - 1] + 0.1
    return y, a


def test_a_linear_system_is_recovered_and_foretold_exactly() -> None:
    y, a = oscillator(np.random.default_rng(0), 4, 30)
    model = fit_arx(y, a, lags=2)
    # y and a one step ago, then two; the constant
    assert model.weight[0] == pytest.approx([1.6, 0.5, -0.8, 0.0, 0.1])
    assert model.k_step_r2(*oscillator(np.random.default_rng(1), 4, 30), 5) == pytest.approx(
        np.ones(5)
    )
    assert (fit_arx(y, a, lags=1).k_step_r2(y, a, 5) < 0.99).all()  # one lag cannot


def test_predictions_are_fed_back_by_hand() -> None:
    """y_t = 2·y_{t−1} + a_{t−1}: from 1 under actions 0, 1, 0: 2, 5, 10."""
    model = ARX(np.array([[2.0, 1.0, 0.0]]), 1)
    found = model.forecast(
        np.array([[[1.0]]]), np.array([[[9.0]]]), np.array([[[0.0], [1.0], [0.0]]])
    )
    assert found[0, :, 0].tolist() == [2, 5, 10]


def test_what_does_not_vary_has_nothing_to_be_explained() -> None:
    still, none = np.full((1, 8, 1), 0.5), np.zeros((1, 8, 0))
    assert ARX(np.array([[0.0, 0.5]]), 1).k_step_r2(still, none, 2).tolist() == [0.0, 0.0]


def test_too_short_sequences_are_told() -> None:
    with pytest.raises(ValueError, match="Sequences of 2 steps are too short for 2 lags"):
        fit_arx(np.zeros((1, 2, 1)), np.zeros((1, 2, 1)), 2)

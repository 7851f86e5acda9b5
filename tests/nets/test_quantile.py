"""Implicit quantiles: the network against its definition, and the quantile function it learns."""

import math

import numpy as np
import pytest
import torch

from tenfold.algorithms.dqn import DQNAgent
from tenfold.algorithms.dqn_settings import DQN
from tenfold.algorithms.off_policy import OffPolicyLearner
from tenfold.config.networks import Net
from tenfold.config.run import Run
from tenfold.core.errors import ConfigError
from tenfold.core.layout import ObsLayout
from tenfold.core.spaces import DiscreteActions
from tenfold.nets.q_network import QNetwork


def by_definition(
    net: QNetwork, features: torch.Tensor, fraction: float, head: list
) -> torch.Tensor:
    """head(ψ ⊙ ReLU(W cos(π i τ) + b)) for one item and one fraction."""
    assert net.embedding is not None
    cosine = torch.tensor(
        [math.cos(math.pi * i * fraction) for i in range(net.embedding.weight.shape[1])]
    )
    x = features * torch.relu(net.embedding.weight @ cosine + net.embedding.bias)
    for place, layer in enumerate(head):
        x = layer.weight @ (torch.relu(x) if place else x) + layer.bias
    return x[0] + x[1:] - x[1:].mean() if net.dueling else x


@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("hidden", [(), (7,), (7, 6)], ids=str)
def test_the_embedding_multiplies_the_first_hidden_layer(
    hidden: tuple[int, ...], dueling: bool
) -> None:
    config = DQN(distribution="implicit(cosines=5)", dueling=dueling, net=Net(hidden=hidden))  # type: ignore[arg-type]
    net = QNetwork((3,), 2, config).initialise([3])
    x, fractions = torch.randn(4, 3), torch.rand(4, 6)
    found = net(x, None, fractions)
    assert found.shape == (4, 2, 6)
    for b in range(4):
        psi = torch.relu(net.layers[0].weight @ x[b] + net.layers[0].bias) if hidden else x[b]  # type: ignore[operator]
        for i in range(6):
            expected = by_definition(
                net, psi, float(fractions[b, i]), list(net.layers)[bool(hidden) :]
            )
            assert torch.allclose(found[b, :, i], expected, rtol=1e-4, atol=1e-6)


def test_the_embedding_multiplies_what_the_convolutions_see() -> None:
    config = DQN(distribution="implicit(cosines=5)", net=Net(encoder="small", hidden=(6,)))  # type: ignore[arg-type]
    net = QNetwork((1, 5, 5), 2, config).initialise([3])
    x, fractions = torch.rand(2, 1, 5, 5), torch.rand(2, 3)
    convolution = net.convolutions[0]
    psi = torch.relu(torch.nn.functional.conv2d(x, convolution.weight, convolution.bias)).flatten(1)  # type: ignore[arg-type]
    found = net(x, None, fractions)
    for b in range(2):
        for i in range(3):
            expected = by_definition(net, psi[b], float(fractions[b, i]), list(net.layers))
            assert torch.allclose(found[b, :, i], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("shape", [(3,), (2, 7, 7)], ids=str)
def test_member_i_with_fractions_of_its_own_is_what_it_would_be_alone(
    shape: tuple[int, ...],
) -> None:
    config = DQN(
        distribution="implicit(cosines=5)",
        dueling=True,
        explore="noisy",  # type: ignore[arg-type]
        net=Net(encoder="small" if len(shape) == 3 else "mlp", hidden=(8, 6)),
    )
    stacked = QNetwork(shape, 4, config, members=3).initialise([4, 5, 6])
    x, noise, fractions = (
        torch.randn(3, 5, *shape),
        torch.randn(3, stacked.noise_size),
        torch.rand(3, 5, 9),
    )
    together = stacked(x, noise, fractions)
    together.square().sum().backward()
    for i in range(3):
        alone = QNetwork(shape, 4, config).initialise([4 + i])
        out = alone(x[i], noise[i], fractions[i])
        out.square().sum().backward()
        assert torch.allclose(out, together[i], rtol=1e-4, atol=1e-5)
        assert torch.allclose(alone.flat_grad, stacked.flat_grad[i], rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_the_learned_quantile_function_of_a_two_valued_reward_is_right() -> None:
    """Rewards 0 or 10: 10 with probability p = ½ (action 0) or ¼ (action 1), and nothing after.

    Huber rounds the quantile function's step: within 1 of 0 the slopes balance at (1 − τ)(1 − p)θ =
    τp. So for p = ½ it is ¼ at τ = 0.2, and 10 − ¼ at τ = 0.8; for p = ¼ it is 1/7 at τ = 0.3, and
    10 − 3/19 at τ = 0.95.
    """
    config = DQN(
        distribution="implicit(samples=8, target_samples=1)", lr=2e-3, net=Net(hidden=(32,))
    )  # type: ignore[arg-type]
    agent = DQNAgent(
        config, ObsLayout((1,), np.dtype(np.float32), (1,), 1.0), DiscreteActions(2, 0), seed=0
    )
    action = torch.arange(64) % 2
    won = torch.where(action == 0, torch.arange(64) % 4 < 2, torch.arange(64) % 8 < 2)
    batch = {
        "obs": torch.ones(64, 1),
        "next_obs": torch.ones(64, 1),
        "action": action,
        "reward": 10.0 * won,
        "discount": torch.zeros(64),
        "weight": torch.ones(64),
    }
    optimiser = torch.optim.Adam(agent.online.parameters(), lr=2e-3)
    for _ in range(1500):
        agent.online.flat_grad.zero_()
        agent.loss(batch | agent.draw_for(64), None, None, 64)[0].backward()
        optimiser.step()
        agent.count += 1
    with torch.no_grad():
        asked = torch.tensor([[0.2, 0.3, 0.8, 0.95]])
        found = agent.online(torch.ones(1, 1), None, asked)[0]
    assert found[0, 0] == pytest.approx(0.25, abs=0.5) and found[0, 2] == pytest.approx(
        9.75, abs=0.5
    )
    assert found[1, 1] == pytest.approx(1 / 7, abs=0.5) and found[1, 3] == pytest.approx(
        10 - 3 / 19, abs=0.5
    )
    values = agent.values(np.ones((1, 1), np.float32))[0]
    assert values.tolist() == pytest.approx([5, 2.5], abs=0.5)


def test_fused_refuses_implicit_quantiles_and_auto_says_why_it_is_plain() -> None:
    agent = {"distribution": "implicit"}
    assert OffPolicyLearner(Run.of({"agent": agent})).description.engine.startswith(
        "plain, not fused: the quantiles are implicit;"
    )
    with pytest.raises(
        ConfigError,
        match="engine = fused does not fit: the quantiles are implicit; use plain or auto",
    ):
        OffPolicyLearner(Run.of({"agent": agent, "engine": "fused"}))

"""Networks equal torch's own modules, written out here, in values and gradients; and what their
settings refuse."""

from itertools import pairwise
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

import tenfold as ten
from tenfold.algorithms.ppo import PPOAgent
from tenfold.config.networks import ActorCriticNet, PolicyNet
from tenfold.config.run import Run
from tenfold.core.errors import ConfigError
from tenfold.core.graph_spaces import BoundedGraph
from tenfold.core.layout import observation_layout
from tenfold.core.spaces import policy_actions
from tenfold.nets.layers import FlatModule, Layer
from tenfold.nets.policy import ActorCritics, PolicyNetwork, Sizes
from tenfold.nets.recurrent import RecurrentNetwork, sequences
from tenfold.training.learners import make_learner

TORCHS = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "selu": nn.SELU,
    "leaky_relu": nn.LeakyReLU,
}


def dense(*widths: int, activation: str) -> nn.Sequential:
    """Linear layers of these widths with an activation between them."""
    layers: list[nn.Module] = []
    for into, out in pairwise(widths):
        layers += [nn.Linear(into, out), TORCHS[activation]()]
    return nn.Sequential(*layers[:-1])


def fill(module: nn.Module, numbers: torch.Tensor) -> int:
    """Parameters from the front of a flat buffer, in their order; how many they were."""
    used = 0
    for parameter in module.parameters():
        parameter.data = numbers[used : used + parameter.numel()].clone().view_as(parameter)
        used += parameter.numel()
    return used


def gradients(*modules: nn.Module) -> torch.Tensor:
    return torch.cat([p.grad.flatten() for m in modules for p in m.parameters()])  # type: ignore[union-attr]


def assert_as_torch(network: FlatModule, outputs: Any, expected: Any, modules: list) -> None:
    """Outputs, and the gradients of the sum of their squares; `modules` hold the last parameters of
    the network."""
    for output, other in zip(outputs, expected, strict=True):
        assert output.shape == other.shape
        assert torch.allclose(output, other, rtol=1e-5, atol=1e-6)
    network.flat_grad.zero_()
    sum(output.square().sum() for output in outputs).backward()
    sum(other.square().sum() for other in expected).backward()
    by_torch = gradients(*modules)
    ours = network.flat_grad[network.flat.numel() - by_torch.numel() :]
    assert by_torch.abs().max() > 1e-3
    assert torch.allclose(ours, by_torch, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("value_hidden", [None, (), (5,), (9, 2, 3)])
@pytest.mark.parametrize("activation", TORCHS)
def test_policy_and_value_have_layers_of_their_own(
    activation: str, value_hidden: tuple[int, ...] | None, rows: int
) -> None:
    net = PolicyNet(hidden=(8, 6), value_hidden=value_hidden, activation=activation)  # type: ignore[arg-type]
    network = PolicyNetwork((4,), 3, 2, net).initialise(3, 1.0).double()
    policy = dense(4, 8, 6, 5, activation=activation).double()
    of_value = (8, 6) if value_hidden is None else value_hidden
    value = dense(4, *of_value, 1, activation=activation).double()
    used = 2 + fill(policy, network.flat[2:].detach())  # behind the deviations
    assert used + fill(value, network.flat[used:].detach()) == network.flat.numel()
    x = torch.randn(rows, 4).double()
    assert_as_torch(network, network(x), (policy(x), value(x).squeeze(-1)), [policy, value])


@pytest.mark.parametrize("value_hidden", [None, (), (6, 3)])
def test_critics_have_layers_of_their_own(value_hidden: tuple[int, ...] | None) -> None:
    net = ActorCriticNet(hidden=(8,), value_hidden=value_hidden, activation="silu")
    network = ActorCritics(Sizes((3,), 4, 2, 1), net).initialise(5)
    widths = (8,) if value_hidden is None else value_hidden
    actor = dense(3, 8, 4, activation="silu")
    critics = [dense(5, *widths, 1, activation="silu") for _ in range(2)]
    used = 0
    for module in (actor, *critics):
        used += fill(module, network.flat[used:].detach())
    assert used == network.flat.numel()
    x, action = torch.randn(7, 3), torch.randn(7, 2)
    expected = torch.stack([critic(torch.cat([x, action], -1)) for critic in critics])
    outputs = network.policy_output(x), network(x, action)
    assert_as_torch(network, outputs, (actor(x), expected), [actor, *critics])


@pytest.mark.parametrize("value_hidden", [None, (12,), (12, 3)])
def test_policy_and_value_of_images_share_one_body(value_hidden: tuple[int, ...] | None) -> None:
    net = PolicyNet(encoder="nature", hidden=(12, 7), value_hidden=value_hidden, shared_body=True)
    network = PolicyNetwork((2, 40, 36), 3, 0, net, scale=1 / 255).initialise(1, 1.0)
    body = nn.Sequential(
        nn.Conv2d(2, 32, 8, 4),
        nn.Tanh(),
        nn.Conv2d(32, 64, 4, 2),
        nn.Tanh(),
        nn.Conv2d(64, 64, 3, 1),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(64, 12),
        nn.Tanh(),
    )
    policy = dense(12, 7, 3, activation="tanh")
    value = dense(12, *(7,) if value_hidden is None else value_hidden[1:], 1, activation="tanh")
    used = 0
    for module in (body, policy, value):
        used += fill(module, network.flat[used:].detach())
    assert used == network.flat.numel()
    images = torch.randint(0, 256, (3, 2, 40, 36), dtype=torch.uint8)
    features = body(images.float() / 255)
    expected = policy(features), value(features).squeeze(-1)
    assert_as_torch(network, network(images), expected, [body, policy, value])
    state = torch.zeros(3, 0)
    assert torch.equal(network.policy_step(images, state)[0], network(images)[0])
    assert torch.equal(network.values(images, state), network(images)[1])


@pytest.mark.parametrize("after", [(), (6,), (5, 9)])
@pytest.mark.parametrize("value_hidden", [None, (), (4,)])
def test_layers_stand_in_front_of_the_memory_and_behind_it(
    value_hidden: tuple[int, ...] | None, after: tuple[int, ...]
) -> None:
    net = PolicyNet(hidden=(8,), value_hidden=value_hidden, memory="lstm(5)", after=after)  # type: ignore[arg-type]
    network = RecurrentNetwork((3,), 2, 0, net).initialise(2, 1.0)
    steps, lanes = 6, 2
    rows = torch.randn(steps * lanes, 3)
    modules, expected, used = [], [], 0
    for hidden, outputs in (((8,), 2), ((8,) if value_hidden is None else value_hidden, 1)):
        front = dense(3, *hidden, activation="tanh") if hidden else nn.Identity()
        memory = nn.LSTM(hidden[-1] if hidden else 3, 5)
        behind = dense(5, *after, outputs, activation="tanh")
        for module in (front, memory, behind):
            used += fill(module, network.flat[used:].detach())
        x = front(rows).tanh() if hidden else rows
        modules += [front, memory, behind]
        expected.append(behind(memory(x.view(steps, lanes, -1))[0].flatten(0, 1)))
    assert used == network.flat.numel()
    inputs = sequences(rows, torch.zeros(steps, lanes), torch.zeros(lanes, network.hidden_size))
    outputs = network(inputs)
    assert_as_torch(network, outputs, (expected[0], expected[1].squeeze(-1)), modules)


@pytest.mark.parametrize(
    "net",
    [
        {"hidden": (30, 40)},
        {"hidden": (30,), "value_hidden": (40,), "memory": "lstm(20)", "after": (25,)},
        {"encoder": "small", "hidden": (30, 20), "shared_body": True},
    ],
    ids=str,
)
def test_torchs_start_is_uniform_within_the_root_of_the_inputs(net: dict[str, Any]) -> None:
    kind: Any = RecurrentNetwork if "memory" in net else PolicyNetwork
    shape = (4, 8, 8) if "encoder" in net else (16,)
    network = kind(shape, 3, 2, PolicyNet(**net, init="torch")).initialise(1, 0.3)
    default = kind(shape, 3, 2, PolicyNet(**net)).initialise(1, 0.3)
    assert torch.allclose(network.log_std.exp(), torch.tensor(0.3))
    bounds = [
        (layer, layer.weight[0].numel() ** -0.5)
        for layer in network.modules()
        if isinstance(layer, Layer)
    ]
    if "memory" in net:
        bounds += [(tower.memory, 20**-0.5) for tower in (network.policy, network.value)]
    assert sum(p.numel() for m, _ in bounds for p in m.parameters()) == network.flat.numel() - 2
    for module, bound in bounds:
        for parameter in module.parameters():
            assert parameter.abs().max() <= bound and parameter.abs().min() > 0
        largest = max(p.abs().max() for p in module.parameters())
        assert largest > 0.9 * bound
    assert any((layer.bias == 0).all() for layer in default.modules() if isinstance(layer, Layer))


@pytest.mark.parametrize("name", ["dqn", "sac", "td3"])
def test_torchs_start_is_the_default_of_q_learning_and_actor_critics(name: str) -> None:
    env = "tenfold/CartPole-v1" if name == "dqn" else "tenfold/Pendulum-v1"
    usual, torchs = (
        make_learner(Run.of({"env": env, "agent": {"name": name, "net": net}})).agent.online.flat
        for net in ({}, {"init": "torch"})
    )
    assert torch.equal(usual, torchs)


IMAGES = "tenfold/Catch-v0"
MODULE = "my_nets:MyNet"


@pytest.mark.parametrize(
    ("name", "net", "words"),
    [
        ("dqn", {"value_hidden": [8]}, "net.value_hidden = [8] is not a setting"),
        ("ppo", {"after": [8]}, "net.after = 8 are layers behind a memory, and there is none"),
        ("ppo", {"shared_body": True}, "net.shared_body = true is for images"),
        ("ppo", {"shared_body": True, "hidden": []}, "give at least one"),
        (
            "ppo",
            {"shared_body": True, "hidden": [8], "value_hidden": [9]},
            "begin net.value_hidden with the same",
        ),
        ("ppo", {"module": MODULE, "value_hidden": []}, "net.value_hidden = [] does not go with"),
        ("ppo", {"module": MODULE, "init": "torch"}, "net.init = torch does not go with"),
        ("ppo", {"module": MODULE, "shared_body": True}, "net.shared_body = true does not go with"),
        ("dqn", {"module": MODULE, "init": "torch"}, "net.init = torch does not go with"),
        ("ppo", {"activation": "swish"}, "is not one of relu, tanh, elu, gelu, silu, selu"),
        ("sac", {"value_hidden": "8,x"}, "net.value_hidden = x is not a whole number"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(
    name: str, net: dict[str, Any], words: str
) -> None:
    env = "tenfold/Pendulum-v1" if name == "sac" else "tenfold/CartPole-v1"
    with pytest.raises(ConfigError) as error:
        make_learner(Run.of({"env": env, "agent": {"name": name, "net": net}}))
    assert words in str(error.value)


@pytest.mark.parametrize("net", [{"value_hidden": [8]}, {"init": "torch"}, {"shared_body": True}])
def test_a_graph_encoder_refuses_what_it_has_none_of(net: dict[str, Any]) -> None:
    actions = policy_actions(gym.spaces.Discrete(2), "Graphs-v0")
    leaves = gym.spaces.Box(0, 1, (3,)), gym.spaces.Box(0, 1, (1,))
    layout = observation_layout(BoundedGraph(*leaves, max_nodes=4, max_edges=5), "Graphs-v0")
    (name,) = net
    with pytest.raises(ConfigError, match=f"agent.net.{name} = "):
        PPOAgent(ten.PPO(net=ten.PolicyNet(**net)), layout, actions, 0)


AGENTS: dict[str, dict[str, Any]] = {
    "dqn": {"net": {"hidden": [8]}, "learning_starts": 8, "batch_size": 4, "clip_norm": 0.1},
    "sac": {"net": {"hidden": [8]}, "learning_starts": 8, "batch_size": 4},
    "td3": {"net": {"hidden": [8]}, "learning_starts": 8, "batch_size": 4, "policy_delay": 1},
    "ppo": {"net": {"hidden": [8]}, "horizon": 9, "epochs": 1, "minibatches": 1},
}


@pytest.mark.parametrize("name", AGENTS)
def test_weights_decay_by_lr_times_the_share_besides_the_step(name: str) -> None:
    """θ ← θ − lr·λ·θ − Adam's step (Loshchilov & Hutter, 2019), of all parameters."""

    def one_update(decay: float) -> list[torch.Tensor]:
        agent = {"name": name, "lr": 0.01, "weight_decay": decay, **AGENTS[name]}
        env = "tenfold/CartPole-v1" if name == "dqn" else "tenfold/Pendulum-v1"
        learner: Any = make_learner(Run.of({"env": env, "agent": agent, "engine": "plain"}))
        flat = learner.agent.online.flat.detach()
        if name in ("sac", "td3"):  # the policy learns from critics that have decayed
            flat = flat[learner.agent.online.places["critics"]]
        before = flat.clone()
        while not learner.agent.updates:
            learner.round()
        return [before, flat]

    (start, plain), (also, decayed) = one_update(0.0), one_update(0.3)
    assert torch.equal(start, also) and not torch.equal(start, plain)
    assert torch.allclose(decayed - plain, -0.01 * 0.3 * start, atol=1e-7)
    assert start.abs().max() > 0.1


def test_a_run_with_all_of_it_is_trained_and_loaded(tmp_path: Any) -> None:
    net = ten.PolicyNet(
        hidden=(8, 6), value_hidden=(8,), shared_body=True, init="torch", activation="leaky_relu"
    )
    agent = ten.PPO(horizon=8, epochs=1, minibatches=2, net=net, weight_decay=0.01)
    run = ten.Run(env=IMAGES, steps=32, agent=agent, eval_every=0)
    ten.train(run, out=tmp_path / "run", quiet=True)
    resumed = ten.load(tmp_path / "run")
    assert resumed.config.net.shared_body and resumed.config.weight_decay == 0.01
    names = [name for name, _ in resumed.online.named_parameters()]
    assert names[1] == "body.convolutions.0.weight" and "policy.convolutions.0.weight" not in names
    assert np.isfinite(resumed.online.flat.detach().numpy()).all()

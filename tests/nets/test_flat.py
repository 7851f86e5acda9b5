"""One buffer holds all parameters, whatever is done to the module."""

import copy

import pytest
import torch

from tenfold.algorithms.dqn_settings import DQN
from tenfold.config.networks import Net
from tenfold.nets.q_network import QNetwork


def network(members: int | None = None, **agent: object) -> QNetwork:
    net = QNetwork((3,), 2, DQN(net=Net(hidden=(5, 4)), **agent), members=members)  # type: ignore[arg-type]
    return net.initialise(list(range(members or 1)))


def shares_memory(net: QNetwork) -> bool:
    """Every parameter and gradient is a view of the flat buffers, in order, with nothing left
    over."""
    end = net.flat.untyped_storage().data_ptr()
    for p in net.parameters():
        size = p.numel() // (net.members or 1) * p.element_size()
        if (
            p.data_ptr() != end
            or p.grad is None
            or p.grad.untyped_storage().data_ptr() != net.flat_grad.untyped_storage().data_ptr()
        ):
            return False
        end += size
    return (
        end == net.flat.untyped_storage().data_ptr() + net.flat.shape[-1] * net.flat.element_size()
    )


@pytest.mark.parametrize("members", [None, 3])
@pytest.mark.parametrize(
    "change",
    [
        lambda n: n,
        lambda n: n.double(),
        lambda n: n.to(torch.bfloat16).float(),
        copy.deepcopy,
        lambda n: n.to("cpu"),
        lambda n: (n.load_state_dict({k: v + 1 for k, v in n.state_dict().items()}), n)[1],
        lambda n: (
            n.load_state_dict({k: v.clone() for k, v in n.state_dict().items()}, assign=True),
            n,
        )[1],
    ],
    ids=["made", "double", "bfloat16", "deepcopy", "to", "load", "load by assignment"],
)
def test_parameters_stay_views_of_one_buffer(change, members: int | None) -> None:
    net = change(network(members))
    assert shares_memory(net)
    x = torch.randn(*((members,) if members else ()), 4, 3, dtype=net.flat.dtype)
    before = net(x).detach().clone()
    net.flat.mul_(0)  # writing the buffer writes the parameters
    assert net(x).abs().sum() == 0 and before.abs().sum() > 0
    net.flat_grad.zero_()
    net(x).sum().backward()  # autograd writes into the gradient buffer
    assert net.flat_grad.abs().sum() > 0 and shares_memory(net)


def test_a_copy_shares_nothing_with_the_original() -> None:
    net = network()
    clone = copy.deepcopy(net)
    assert torch.equal(clone.flat, net.flat)
    clone.flat.zero_()
    assert net.flat.abs().sum() > 0
    assert all(
        a.data_ptr() != b.data_ptr()
        for a, b in zip(net.parameters(), clone.parameters(), strict=True)
    )


def test_loading_a_state_changes_the_buffer() -> None:
    net, other = network(), network()
    other.flat.add_(1)
    net.load_state_dict(other.state_dict())
    assert torch.equal(net.flat, other.flat)


@pytest.mark.parametrize(
    "option",
    [
        {},
        {"dueling": True},
        {"distribution": "quantile(3)"},
        {"explore": "noisy"},
        {"distribution": "implicit(cosines=5)"},
    ],
    ids=str,
)
def test_member_i_is_what_it_would_be_alone(option: dict[str, object]) -> None:
    stacked = network(3, **option)
    x = torch.randn(3, 6, 3)
    noise = torch.randn(3, stacked.noise_size) if stacked.noise_size else None
    together = stacked(x, noise)
    together.square().sum().backward()
    for i in range(3):
        alone = QNetwork((3,), 2, DQN(net=Net(hidden=(5, 4)), **option)).initialise([i])  # type: ignore[arg-type]
        assert torch.equal(alone.flat, stacked.flat[i])
        out = alone(x[i], None if noise is None else noise[i])
        out.square().sum().backward()
        assert torch.allclose(out, together[i], rtol=1e-5, atol=1e-6)
        assert torch.allclose(alone.flat_grad, stacked.flat_grad[i], rtol=1e-4, atol=1e-5)


def test_images_pass_through_convolutions_with_members_too() -> None:
    config = DQN(net=Net(encoder="small", hidden=(8,)))
    stacked = QNetwork((2, 7, 7), 3, config, 1 / 255, members=2).initialise([4, 5])
    x = torch.randint(0, 256, (2, 3, 2, 7, 7), dtype=torch.uint8)
    alone = QNetwork((2, 7, 7), 3, config, 1 / 255).initialise([5])
    assert torch.allclose(stacked(x)[1], alone(x[1]), atol=1e-6)
    nature = QNetwork((4, 84, 84), 6, DQN(net=Net(encoder="nature", hidden=(512,))))
    # Mnih et al. (2015): 32·4·64 + 32, 64·32·16 + 64, 64·64·9 + 64, 512·3136 + 512, 6·512 + 6
    assert nature.flat.numel() == 8224 + 32832 + 36928 + 1606144 + 3078


def test_initial_values_fill_torchs_default_range() -> None:
    net = QNetwork((100,), 2, DQN(net=Net(hidden=(400,)))).initialise([1])
    weight = net.layers[0].weight
    assert weight.abs().max() <= 0.1 and weight.abs().max() > 0.0999
    assert abs(weight.mean()) < 4 * 0.1 / 3**0.5 / 40_000**0.5


def test_noise_changes_the_output_and_its_absence_gives_the_means() -> None:
    net = network(explore="noisy")
    x = torch.randn(4, 3)
    assert torch.equal(net(x), net(x))
    assert not torch.allclose(net(x), net(x, torch.ones(net.noise_size)))
    assert torch.allclose(net(x), net(x, torch.zeros(net.noise_size)))

"""The latent model's parts: Jacobians, ensembles, decoders, the carried state, members, and that
nothing learned is kept."""

import copy
import math
from typing import Any

import pytest
import torch
from torch import distributions

from tenfold.core.errors import ConfigError
from tenfold.domains.dynamics.config import LatentModel
from tenfold.domains.dynamics.dynamics import Dynamics, grid_centres, positive, raw_of
from tenfold.domains.dynamics.elbo import draws_shape, elbo
from tenfold.domains.dynamics.latent import LatentNetwork

KINDS = ("linear", "mlp", "rbf")


def network(
    members: int = 1, observations: int = 5, seeds: list[int] | None = None, **model: Any
) -> LatentNetwork:
    settings = {"hidden": (8,), "grid": 5} | model
    return LatentNetwork(observations, 2, LatentModel(**settings), 0.1, members).initialise(
        seeds or list(range(members))
    )


def batch_for(
    net: LatentNetwork, batch: int, length: int, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(net.members, *shape, generator=generator, dtype=torch.float64).to(
            net.flat.dtype
        )

    return (
        normal(batch, length, net.observations),
        normal(batch, length, 2),
        normal(*draws_shape(net, batch, length)),
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("latent", [1, 2, 3])
def test_jacobians_are_finite_differences(kind: str, latent: int) -> None:
    net = network(2, dynamics=kind, latent=latent, ensemble=3).double()
    z, a = (
        torch.randn(2, 3, 4, latent, dtype=torch.float64),
        torch.randn(2, 3, 4, 2, dtype=torch.float64),
    )
    with torch.no_grad():
        found = net.dynamics.jacobian(z, a)
        for d in range(latent):
            step = torch.zeros(latent, dtype=torch.float64)
            step[d] = 1e-6
            slope = (net.dynamics(z + step, a)[0] - net.dynamics(z - step, a)[0]) / 2e-6
            assert torch.allclose(found[..., d], slope, atol=1e-8)
    assert found.shape == (2, 3, 4, latent, latent)


@pytest.mark.parametrize("kind", ["linear", "rbf"])
def test_drift_is_weight_times_features(kind: str) -> None:
    net = network(2, dynamics=kind, ensemble=3).double()
    z = torch.randn(2, 3, 4, 2, dtype=torch.float64)
    features = net.dynamics.features(z)
    assert torch.allclose(
        torch.einsum("mndp,mnbp->mnbd", net.dynamics.weight, features),
        net.dynamics.drift(z),
        atol=1e-12,
    )
    if kind == "rbf":  # each centre's own feature is 1 there
        centres = grid_centres(net.dynamics.axis, 2)
        at_centres = net.dynamics.features(centres.expand(2, 3, -1, -1))
        assert torch.allclose(
            at_centres.diagonal(dim1=-2, dim2=-1), torch.ones(25, dtype=torch.float64)
        )


def test_a_step_by_hand() -> None:
    """z + dt (W [z, 1] + G a): 2 + 0.5·(3·2 + 1 + 4·(−1)) = 3.5, under a variance of ¼."""
    dynamics = Dynamics(LatentModel(latent=1, dynamics="linear"), 1, 0.5, 1)
    with torch.no_grad():
        dynamics.weight.copy_(torch.tensor([3.0, 1.0]).view(1, 1, 1, 2))
        dynamics.action_weight.fill_(4.0)
        dynamics.raw_variance.fill_(raw_of(0.25))
    mean, variance = dynamics(torch.full((1, 1, 1, 1), 2.0), torch.full((1, 1, 1, 1), -1.0))
    assert mean.item() == pytest.approx(3.5) and variance.item() == pytest.approx(0.25)
    assert dynamics.jacobian(mean, mean).item() == pytest.approx(1 + 0.5 * 3)


@pytest.mark.parametrize("kind", KINDS)
def test_a_stacked_model_is_what_it_would_be_alone(kind: str) -> None:
    stacked = network(2, dynamics=kind, ensemble=3)
    z, a = torch.randn(2, 3, 7, 2), torch.randn(2, 3, 7, 2)
    together = stacked.dynamics(z, a)
    for m in range(2):
        for n in range(3):
            alone = network(1, dynamics=kind, ensemble=1)
            with torch.no_grad():
                for own, all_of_them in zip(
                    alone.dynamics.parameters(), stacked.dynamics.parameters(), strict=True
                ):
                    own.copy_(all_of_them[m : m + 1, n : n + 1])
            for found, expected in zip(
                together,
                alone.dynamics(z[m : m + 1, n : n + 1], a[m : m + 1, n : n + 1]),
                strict=True,
            ):
                assert torch.allclose(found[m, n], expected[0, 0], rtol=1e-6, atol=1e-6)


def test_an_ensembles_variance_is_mean_variance_plus_variance_of_means() -> None:
    """Means 1 and 3 differ by a variance of 1; variances ½ and 1½ have mean 1: 2 in all."""
    net = network(latent=1, dynamics="linear", ensemble=2)
    with torch.no_grad():
        net.dynamics.weight.zero_()
        net.dynamics.weight[0, :, 0, 1] = torch.tensor([10.0, 30.0])  # times dt = 0.1
        net.dynamics.raw_variance.copy_(torch.tensor([raw_of(0.5), raw_of(1.5)]).view(1, 2, 1))
    mean, variance = net.dynamics.predict(torch.zeros(1, 1, 1), torch.zeros(1, 1, 2))
    assert mean.item() == pytest.approx(2.0) and variance.item() == pytest.approx(2.0, rel=1e-5)
    single = network()
    mean, variance = single.dynamics.predict(torch.zeros(1, 3, 2), torch.zeros(1, 3, 2))
    assert torch.equal(variance, positive(single.dynamics.raw_variance).expand(1, 3, 2))


@pytest.mark.parametrize("decoder", ["identity", "linear", "loglinear", "mlp"])
@pytest.mark.parametrize("noise", ["gaussian", "poisson"])
def test_likelihood_is_that_of_torchs_distributions(decoder: str, noise: str) -> None:
    net = network(2, observations=2, decoder=decoder, noise=noise)
    z, y = torch.randn(2, 6, 2), torch.randint(0, 5, (2, 6, 2)).float()
    mean = net.decode(z)
    if noise == "poisson":
        expected = distributions.Poisson(mean).log_prob(y)
    else:
        assert net.decoder.raw_variance is not None
        expected = distributions.Normal(
            mean, positive(net.decoder.raw_variance)[:, None].sqrt()
        ).log_prob(y)
    assert torch.allclose(net.decoder.log_likelihood(y, z), expected.sum(-1), rtol=1e-4, atol=1e-5)
    if decoder == "identity" and noise == "gaussian":
        assert torch.equal(mean, z)
    if decoder == "loglinear":
        layer = net.decoder.layers[0]
        assert torch.allclose(
            mean.log(), z @ layer.weight.transpose(1, 2) + layer.bias[:, None], atol=1e-5
        )  # type: ignore[operator,index]


def test_a_carried_state_is_the_whole_window_read_again() -> None:
    net = network(2, encoder="gru", hidden=(6, 8))
    y, _, _ = batch_for(net, 3, 7)
    mean, variance, last = net.posterior(y.transpose(1, 2))
    calls = []
    net.encoder.register_forward_hook(lambda *_: calls.append(1))
    state = None
    for t in range(7):
        found, spread, state = net.encode(y[:, :, t], state)
        assert len(calls) == t + 1  # one call for each new observation
        assert torch.allclose(found, mean[:, t], atol=1e-6) and torch.allclose(
            spread, variance[:, t], atol=1e-6
        )
    assert state is not None and last is not None and torch.allclose(state, last, atol=1e-6)
    assert not torch.allclose(net.encode(y[:, :, 6])[0], mean[:, 6], atol=1e-3)  # the past matters


def test_the_gated_unit_is_torchs() -> None:
    net = network(encoder="gru", hidden=(4,))
    own, theirs = net.encoder, torch.nn.GRU(5, 4)
    parameters: list[Any] = [
        (theirs.weight_ih_l0, theirs.bias_ih_l0, own.into),
        (theirs.weight_hh_l0, theirs.bias_hh_l0, own.again),
    ]
    with torch.no_grad():
        for weight, bias, layer in parameters:
            weight.copy_(layer.weight[0])
            bias.copy_(layer.bias[0])
    y = torch.randn(1, 6, 3, 5)
    found, last = own.run_gru(own.into(y.flatten(1, 2)).view(1, 6, 3, -1), None, None)
    expected, state = theirs(y[0])
    assert torch.allclose(found.view(6, 3, 4), expected, atol=1e-6) and torch.allclose(
        last, state, atol=1e-6
    )


@pytest.mark.parametrize(
    "model",
    [
        {},
        {"encoder": "gru"},
        {"dynamics": "mlp", "decoder": "mlp", "ensemble": 3},
        {"dynamics": "linear", "mask": 0.5},
    ],
    ids=str,
)
def test_member_i_is_what_it_would_be_alone(model: dict[str, Any]) -> None:
    stacked = network(3, seeds=[4, 5, 6], **model)
    y, a, normal = batch_for(stacked, 4, 6)
    together = elbo(stacked, y, a, normal)
    together.sum().backward()
    for i in range(3):
        alone = network(1, seeds=[4 + i], **model)
        assert torch.equal(alone.flat[0], stacked.flat[i])
        bound = elbo(alone, y[i : i + 1], a[i : i + 1], normal[i : i + 1])
        bound.sum().backward()
        assert torch.allclose(bound[0], together[i], rtol=1e-5)
        assert torch.allclose(alone.flat_grad[0], stacked.flat_grad[i], rtol=1e-3, atol=1e-4)


def test_all_parameters_are_views_of_one_buffer_after_any_change() -> None:
    for net in (network(2), copy.deepcopy(network(2)), network(2).double()):
        assert sum(p.numel() for p in net.parameters()) == net.flat.numel()
        for p in net.parameters():
            assert p.untyped_storage().data_ptr() == net.flat.untyped_storage().data_ptr()
            assert (
                p.grad is not None
                and p.grad.untyped_storage().data_ptr()
                == net.flat_grad.untyped_storage().data_ptr()
            )
        assert net.dynamics.axis.dtype == net.flat.dtype


@pytest.mark.parametrize(
    "model",
    [
        {},
        {"dynamics": "mlp", "encoder": "gru", "ensemble": 2},
        {"dynamics": "linear", "noise": "poisson"},
    ],
    ids=str,
)
def test_nothing_derived_from_a_parameter_is_kept(model: dict[str, Any]) -> None:
    """Poison: after one call of everything the parameters become NaN, and so must every result;
    restored, all is as before."""
    net = network(2, **model)
    y, a, normal = batch_for(net, 3, 6)
    y = y.abs().round()
    z, many = normal[:, 0, 0], (2, net.dynamics.models, 3, 2)

    def everything() -> list[torch.Tensor]:
        mean, variance, _ = net.encode(y[:, :, 0])
        step, spread = net.dynamics(z[:, None].expand(many), a[:, None, :, 0].expand(many))
        jacobian = net.dynamics.jacobian(z[:, None].expand(many), a[:, None, :, 0].expand(many))
        return [
            mean,
            variance,
            step,
            spread,
            jacobian,
            *net.dynamics.predict(z, a[:, :, 0]),
            net.decode(z),
            net.decoder.log_likelihood(y[:, :, 0], z),
            elbo(net, y, a, normal),
        ]

    with torch.no_grad():
        before, kept = everything(), net.flat.clone()
        net.flat.fill_(math.nan)
        assert all(result.isnan().all() for result in everything())
        net.flat.copy_(kept)
        assert all(torch.equal(b, e) for b, e in zip(before, everything(), strict=True))


def test_hidden_observations_do_not_reach_the_encoder() -> None:
    net = network(mask=0.5)
    y, _, _ = batch_for(net, 2, 3)
    seen = torch.tensor([[[1.0, 1], [0, 1], [1, 0]]])  # [M, T, B]
    other = y.transpose(1, 2) + (1 - seen).unsqueeze(-1) * 100
    mean, _, _ = net.posterior(y.transpose(1, 2), seen)
    assert torch.equal(net.posterior(other, seen)[0], mean)
    # zeros that are hidden are not zeros seen
    assert not torch.equal(net.posterior(y.transpose(1, 2))[0][:, 1, 0], mean[:, 1, 0])
    assert torch.equal(
        net.posterior(torch.zeros(1, 1, 1, 5), torch.zeros(1, 1, 1))[0][0, 0, 0], mean[0, 1, 0]
    )


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (
            lambda: network(decoder="identity"),
            "model.decoder = identity needs observations of latent = 2 numbers, and they have 5",
        ),
        (
            lambda: network(latent=6, grid=10),
            "model.grid = 10 in 6 dimensions makes 1,000,000 centres: use 10,000 at most, or dynamics mlp",
        ),
        (
            lambda: network(encoder="gru", hidden=()),
            "model.hidden is empty, and encoder gru needs a width",
        ),
        (lambda: LatentNetwork(3, 1, LatentModel(), 0.0), "dt = 0.0 is not positive"),
        (
            lambda: network().encode(torch.zeros(1, 1, 4)),
            "observation has 4 numbers, and the model was made for 5",
        ),
    ],
)
def test_what_does_not_fit_is_told(build, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence.replace("(", r"\(")):
        build()

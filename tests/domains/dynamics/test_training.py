"""Gradient steps and the window that sequences are drawn from."""

import copy
from typing import Any

import numpy as np
import pytest
import torch

from tenfold.core.errors import UserError
from tenfold.domains.dynamics.belief import fit_arx, forecast, k_step_r2
from tenfold.domains.dynamics.config import LatentModel
from tenfold.domains.dynamics.coordinates import align, field_error
from tenfold.domains.dynamics.latent import LatentNetwork
from tenfold.domains.dynamics.training import Training, Window, beta_at, update

KINDS = [
    {},
    {"encoder": "gru", "mask": 0.3},
    {"dynamics": "mlp", "decoder": "mlp", "ensemble": 3, "beta": "linear"},
    {"dynamics": "linear", "decoder": "loglinear", "noise": "poisson", "beta": "cyclic"},
]


def made(seeds: list[int], **model: Any) -> tuple[LatentNetwork, Training]:
    config = LatentModel(**({"hidden": (8,), "grid": 4, "samples": 2, "steps": 3} | model))
    network = LatentNetwork(5, 2, config, 0.1, len(seeds)).initialise(seeds)
    return network, Training(network, seeds)


def sequences(poisson: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    y, a = torch.randn(6, 12, 5, generator=generator), torch.randn(6, 12, 2, generator=generator)
    return y.abs().round() if poisson else y, a


def fit(
    network: LatentNetwork,
    training: Training,
    y: torch.Tensor,
    a: torch.Tensor,
    updates: int,
    batch: int = 8,
    length: int = 12,
    lr: float = 1e-3,
) -> torch.Tensor:
    """Gradient steps on random pieces of y [E, L, Y] and a [E, L, A], the same for all members; the
    bound for each step of time before every one, [updates, M]."""
    bounds = []
    for _ in range(updates):
        rng = np.random.default_rng(training.updates)
        which = torch.from_numpy(rng.integers(len(y), size=batch))[:, None]
        start = torch.from_numpy(rng.integers(y.shape[1] - length + 1, size=batch))[:, None]
        rows = which, start + torch.arange(length)
        pieces = (x[rows].to(network.flat).expand(network.members, -1, -1, -1) for x in (y, a))
        parts = update(network, training, *pieces, lr=lr)
        bounds.append((parts.likelihood - parts.divergence) / length)
    return torch.stack(bounds)


@pytest.mark.parametrize("model", KINDS, ids=str)
def test_two_steps_in_a_row_change_every_parameter(model: dict[str, Any]) -> None:
    network, training = made([0, 1], **model)
    y, a = sequences("noise" in model)
    for _ in range(2):
        before = network.flat.clone()
        fit(network, training, y, a, 1, batch=6, length=8)
        unmoved = [
            name
            for (name, p), old in zip(
                network.named_parameters(),
                before.split([p.numel() // 2 for p in network.parameters()], 1),
                strict=True,
            )
            if (p.view(2, -1) == old).all(1).any()
        ]
        assert not unmoved
        moved = (network.flat != before).float().mean()
        # a few basis functions lie too far out
        assert moved > (0.9 if network.dynamics.kind == "rbf" else 0.999)


@pytest.mark.parametrize("model", KINDS, ids=str)
def test_a_member_learns_what_its_seed_alone_learns(model: dict[str, Any]) -> None:
    together, training = made([3, 4], **model)
    y, a = sequences("noise" in model)
    fit(together, training, y, a, 5, batch=3, length=8)
    for i, seed in enumerate((3, 4)):
        alone, own = made([seed], **model)
        fit(alone, own, y, a, 5, batch=3, length=8)
        assert torch.allclose(alone.flat[0], together.flat[i], rtol=1e-3, atol=2e-5)
        # a gru's sums over so few units are ordered by the number of members
        if together.config.encoder == "mlp":
            assert torch.equal(alone.flat[0], together.flat[i])


def test_training_goes_on_as_if_it_had_never_stopped() -> None:
    network, training = made([3, 4], mask=0.2)
    y, a = sequences()
    fit(network, training, y, a, 4)
    copied = copy.deepcopy(network)
    again = Training(copied, [3, 4])
    again.load_state({name: value.clone() for name, value in training.state().items()})
    expected, found = fit(network, training, y, a, 4), fit(copied, again, y, a, 4)
    assert torch.equal(expected, found) and torch.equal(network.flat, copied.flat)
    assert again.updates == 8  # one optimiser over both calls: its moments are not begun anew


def test_draws_differ_from_step_to_step_and_between_members() -> None:
    network, training = made([3, 4], mask=0.5)
    first, seen = training.draw(network, 3, 8)
    second, _ = training.draw(network, 3, 8)
    assert not torch.equal(first, second) and not torch.equal(first[0], first[1])
    assert seen is not None and set(seen.flatten().tolist()) == {0.0, 1.0}
    assert abs(float(first.mean())) < 0.2 and abs(float(first.std()) - 1) < 0.2


def test_beta_schedules_by_hand() -> None:
    def at(kind: str, *updates: int) -> list[float]:
        return [beta_at(LatentModel(beta=kind, beta_steps=10), u) for u in updates]  # type: ignore[arg-type]

    assert at("none", 1, 100) == [1.0, 1.0]
    assert at("linear", 1, 5, 10, 11) == [0.1, 0.5, 1.0, 1.0]
    assert at("cyclic", 1, 5, 8, 10, 11, 15) == [0.2, 1.0, 1.0, 1.0, 0.2, 1.0]
    assert at("warm-up", 1, 10, 11) == [0.0, 0.0, 1.0]


def test_a_forecast_is_the_dynamics_applied_again_and_again() -> None:
    network, _ = made([0, 1], ensemble=2)
    z, a = torch.randn(2, 3, 2), torch.randn(2, 3, 4, 2)
    found = forecast(network, z, a)
    many = z[:, None].expand(2, 2, 3, 2)
    for k in range(4):
        many = network.dynamics(many, a[:, None, :, k].expand(2, 2, 3, 2))[0]
        expected = (network.decode(many[:, 0]) + network.decode(many[:, 1])) / 2
        assert torch.allclose(found[:, :, k], expected, atol=1e-5)


def test_foretelling_the_mean_explains_nothing_and_the_truth_everything() -> None:
    """Decoder identity with no drift and no actions stays where it is: of a sequence 0, 1, 2, 3, …
    R² follows by hand."""
    network = LatentNetwork(
        1, 1, LatentModel(latent=1, dynamics="linear", decoder="identity", hidden=()), 0.1
    ).initialise([0])
    with torch.no_grad():
        network.dynamics.weight.zero_()
        network.encoder.last.weight.copy_(torch.tensor([[[1.0], [0.0]]]))
        network.encoder.last.bias.zero_()
    y, a = torch.arange(5.0).view(1, 1, 5, 1), torch.zeros(1, 1, 5, 1)
    # one step: 0, 1, 2 for 1, 2, 3; two steps: 0, 1, 2 for 2, 3, 4; the mean of all that follows is
    # 2.5
    found = k_step_r2(network, y, a, 2)
    assert found[0].tolist() == pytest.approx([1 - 3 / 2.75, 1 - 12 / 2.75])
    with torch.no_grad():
        network.dynamics.weight[..., 1] = 10  # 1 in each step of 0.1
    assert k_step_r2(network, y, a, 2)[0].tolist() == pytest.approx([1, 1])


# learning


def limit_cycle(x: np.ndarray) -> np.ndarray:
    return x * (1 - np.square(x).sum(-1, keepdims=True)) + np.stack((-x[..., 1], x[..., 0]), -1)


def rollouts(
    rng: np.random.Generator, read: np.ndarray, count: int, length: int
) -> tuple[np.ndarray, ...]:
    """Hidden states, actions and observations under random actions, dt = 0.1, Q = 0.05."""
    x, states, actions = (
        rng.uniform(-1.5, 1.5, (count, 2)),
        [],
        rng.uniform(-1, 1, (count, length, 2)),
    )
    for t in range(length):
        states.append(x)
        x = (
            x
            + 0.1 * (limit_cycle(x) + actions[:, t])
            + np.sqrt(0.05 * 0.1) * rng.normal(size=x.shape)
        )
    found = np.stack(states, 1)
    return found, actions, found @ read.T + 0.1 * rng.normal(size=(count, length, len(read)))


def learned(updates: int) -> dict[str, float]:
    """Fits a model to 64 rollouts that are observed linearly in 20 dimensions, and measures it on
    others."""
    rng = np.random.default_rng(0)
    read = rng.normal(size=(20, 2))
    (_, a, y), (x, a_new, y_new) = rollouts(rng, read, 64, 100), rollouts(rng, read, 32, 100)
    network = LatentNetwork(20, 2, LatentModel(samples=2), 0.1).initialise([1])
    bounds = fit(
        network,
        Training(network, [1]),
        torch.from_numpy(y),
        torch.from_numpy(a),
        updates,
        16,
        20,
        1e-2,
    )
    seen, pushed = (torch.from_numpy(part).float()[None] for part in (y_new, a_new))
    with torch.no_grad():
        z = (
            network.posterior(seen.transpose(1, 2))[0][0]
            .transpose(0, 1)
            .reshape(-1, 2)
            .double()
            .numpy()
        )
        affine = align(z, x.reshape(-1, 2))

        def field(at: np.ndarray) -> np.ndarray:
            return (
                network.dynamics.drift(torch.from_numpy(at).float()[None, None])[0, 0]
                .double()
                .numpy()
            )

        # at visited states: weighted by occupancy
        found = field(affine.to_learned(x.reshape(-1, 2))) @ affine.matrix.T
        ahead = float(k_step_r2(network, seen, pushed, 10)[0, 9])
    return {
        "alignment": affine.r2,
        "error": field_error(found, limit_cycle(x.reshape(-1, 2))),
        "ten_steps": ahead,
        "arx": float(fit_arx(y, a).k_step_r2(y_new, a_new, 10)[9]),
        "gain": float(bounds[-20:].mean() - bounds[:20].mean()),
    }


def test_the_field_of_a_limit_cycle_is_found_from_linear_observations() -> None:
    """Up to an affine map, which is fitted to states and never to fields; a field of zeros has
    error 1."""
    found = learned(400)
    assert found["gain"] > 10 and found["alignment"] > 0.99, found
    assert found["error"] < 0.4, found
    assert found["ten_steps"] > found["arx"] > 0.8, found


@pytest.mark.slow
def test_with_more_steps_the_field_is_found_better() -> None:
    found = learned(4_000)
    assert found["error"] < 0.2 and found["ten_steps"] > found["arx"], found


def filled(
    capacity: int, length: int, rows: int, episode: int, seeds: tuple[int, ...] = (0,)
) -> Window:
    """Row r shows r, and is followed by action -r; episodes have `episode` rows."""
    window = Window(list(seeds), capacity, length, 1, 1)
    for row in range(rows):
        shown = np.full((len(seeds), 1), row, np.float32)
        window.append(shown, -shown, np.full(len(seeds), row % episode == 0))
    return window


def draw(window: Window, batch: int) -> tuple[np.ndarray, np.ndarray]:
    members = len(window.obs)
    out, acts = (np.zeros((members, batch, window.length, 1), np.float32) for _ in range(2))
    window.sample(out, acts)
    return out[..., 0], acts[..., 0]


def test_sequences_are_whole_and_all_of_them_are_drawn_equally_often() -> None:
    window = filled(capacity=10, length=3, rows=25, episode=7)
    # rows 15 … 24 are alive; episodes begin at 14 and 21: sequences end at 17, 18, 19, 20 and 23,
    # 24
    drawn, acts = draw(window, 6000)
    assert np.array_equal(drawn, -acts) and np.array_equal(
        np.diff(drawn[0], axis=-1), np.ones((6000, 2))
    )
    ends, counts = np.unique(drawn[0, :, -1], return_counts=True)
    assert ends.tolist() == [17, 18, 19, 20, 23, 24] and counts.min() > 900 and counts.max() < 1100


def test_members_draw_what_their_seed_draws_alone_and_go_on_after_a_restore() -> None:
    both, alone = filled(50, 4, 80, 30, (3, 8)), filled(50, 4, 80, 30, (8,))
    assert np.array_equal(draw(both, 9)[0][1], draw(alone, 9)[0][0])
    again = Window([3, 8], 50, 4, 1, 1)
    again.load_state({name: value.copy() for name, value in both.state().items()})
    assert np.array_equal(draw(both, 5), draw(again, 5))


def test_nothing_can_be_drawn_before_a_sequence_is_whole() -> None:
    assert not filled(10, 4, 3, 100).ready and filled(10, 4, 4, 100).ready
    assert not filled(10, 4, 40, 3).ready  # episodes are too short
    with pytest.raises(UserError, match=r"agent\.length = 20 is more than agent\.window = 10"):
        Window([0], 10, 20, 1, 1)


def test_a_window_too_large_for_memory_names_the_setting_that_explorers_have() -> None:
    with pytest.raises(
        UserError,
        match=r"The window of latest steps needs [0-9,]+ bytes and .* are free .*: lower agent\.window\.",
    ):
        Window([0], 10**12, 20, 2, 1)


@pytest.mark.parametrize("capacity", [20, 2_000])
def test_an_append_writes_one_row_whatever_the_window_holds(capacity: int) -> None:
    """Nothing is moved: what it takes is a row of bench/explorer.py."""
    window = filled(capacity, 5, capacity + 1, 10_000)
    arrays = window.obs, window.action, window.first, window.ends
    for number in range(3):
        before = [array.copy() for array in arrays]
        row = np.full((1, 1), 0.5 + number, np.float32)
        window.append(row, row, np.zeros(1, np.bool_))
        written = [
            (old != new).reshape(capacity, -1).any(1)
            for old, new in zip(before, arrays, strict=True)
        ]
        assert np.flatnonzero(written[0]).tolist() == [(capacity + 1 + number) % capacity]
        assert [int(changed.sum()) for changed in written] == [1, 1, 0, 1]
    assert all(
        new is old
        for new, old in zip(
            (window.obs, window.action, window.first, window.ends), arrays, strict=True
        )
    )

"""Bits per spike, neurons and values hidden from the encoder, and sessions that share dynamics."""

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import tenfold as ten
from tenfold.cli.main import main
from tenfold.config.files import named
from tenfold.core.errors import ConfigError
from tenfold.core.random import Purpose
from tenfold.domains.dynamics.config import LatentModel
from tenfold.domains.dynamics.elbo import draws_shape, elbo_parts
from tenfold.domains.dynamics.latent import LatentNetwork, held_out_channels, scaled_up
from tenfold.domains.dynamics.missing import embed_channels
from tenfold.domains.dynamics.model_metrics import bits_per_spike
from tenfold.domains.dynamics.offline import unlike_counts
from tenfold.domains.dynamics.recording import Recording
from tenfold.domains.dynamics.sessions import (
    lagged_covariances,
    polar,
    rotate_sessions,
    session_rotations,
    session_rows,
)
from tenfold.domains.dynamics.training import Training
from tenfold.domains.dynamics.validation import random_recordings

# bits per spike


def test_bits_per_spike_by_hand() -> None:
    """Counts 0, 2, 0, 2 of one neuron have mean 1. Rates ½, 2, ½, 2 give them
    2·(−½) + 2·(2·log 2 − 2) = 4·log 2 − 5, the mean 2·(−1) + 2·(−1) = −4: of 4 spikes each is told
    (4·log 2 − 1) / (4·log 2) bits better."""
    counts, rates = np.array([[0], [2], [0], [2]]), np.array([[0.5], [2], [0.5], [2]])
    wanted = (4 * math.log(2) - 1) / (4 * math.log(2))
    assert ten.bits_per_spike(rates, counts) == pytest.approx(wanted, rel=1e-12)
    assert ten.bits_per_spike(np.ones((4, 1)), counts) == 0  # every neuron's mean rate
    # a second neuron, told by its mean rate, adds two spikes and no bits
    both = ten.bits_per_spike(
        np.concatenate((rates, np.full((4, 1), 0.5)), 1), np.c_[counts, [1, 0, 1, 0]]
    )
    assert both == pytest.approx(wanted * 4 / 6, rel=1e-12)


def test_bits_per_spike_is_the_poisson_likelihoods_of_scipy() -> None:
    from scipy.stats import poisson

    rng = np.random.default_rng(0)
    rates = rng.uniform(0.1, 3, (2, 30, 5))
    counts = rng.poisson(rates).astype(float)
    null = np.broadcast_to(counts.mean((0, 1)), counts.shape)
    better = poisson.logpmf(counts, rates).sum() - poisson.logpmf(counts, null).sum()
    wanted = better / counts.sum() / np.log(2)
    assert bits_per_spike(rates, counts) == pytest.approx(wanted, rel=1e-10)
    # what was not observed does not count, whatever the rate there
    gaps = counts.copy()
    gaps[1, 20:, 2], rates[1, 20:, 2] = np.nan, np.nan
    seen = ~np.isnan(gaps[..., 2])
    parts = [(rates[..., k], counts[..., k]) for k in (0, 1, 3, 4)] + [
        (rates[seen, 2], gaps[seen, 2])
    ]
    sums = [poisson.logpmf(n, r).sum() - poisson.logpmf(n, n.mean()).sum() for r, n in parts]
    wanted = sum(sums) / np.nansum(gaps) / np.log(2)
    assert bits_per_spike(rates, gaps) == pytest.approx(wanted, rel=1e-10)


def test_bits_per_spike_of_silence_and_of_rates_that_are_none() -> None:
    assert bits_per_spike(np.ones((4, 2)), np.zeros((4, 2))) == 0
    assert np.isfinite(bits_per_spike(np.zeros((4, 1)), np.ones((4, 1))))
    for rates, counts, words in (
        (np.ones((4, 2)), np.ones((4, 3)), r"Rates \(4, 2\) and counts \(4, 3\) do not fit"),
        (np.ones(2), np.array([1, -1]), "Counts must be 0 or more"),
        (np.array([1, np.nan]), np.ones(2), "Rates must be finite"),
    ):
        with pytest.raises(ValueError, match=words):
            bits_per_spike(rates, counts)


@pytest.mark.parametrize(
    ("channels", "share", "hidden"),
    [(8, 0.25, [2, 6]), (5, 0.2, [2]), (4, 0.0, []), (3, 0.01, [1]), (2, 0.99, [1]), (1, 0.5, [])],
)
def test_neurons_held_out_are_spread_evenly_and_never_all(
    channels: int, share: float, hidden: list[int]
) -> None:
    assert np.flatnonzero(held_out_channels(channels, share)).tolist() == hidden


# what the encoder does not read

POISSON = {"noise": "poisson", "decoder": "loglinear", "dynamics": "linear", "hidden": (8,)}


def counts_of(*shape: int, seed: int = 0) -> torch.Tensor:
    drawn = np.random.default_rng(seed).poisson(1.5, shape)
    return torch.from_numpy(drawn.astype(np.float32))


@pytest.mark.parametrize("more", [{}, {"encoder": "gru"}, {"missing": True}])
def test_no_value_has_a_way_to_its_own_reconstruction(more: dict[str, Any]) -> None:
    """Of a dropped value the posterior does not depend on it; a kept one has no part in the
    likelihood, so that the readout of a neuron that was kept throughout gets no gradient."""
    model = LatentModel(**POISSON, **more, coordinated_dropout=0.3)
    network = LatentNetwork(6, 1, model, 0.1).initialise([0])
    y, a = counts_of(1, 4, 9, 6), torch.zeros(1, 4, 9, 1)
    if "missing" in more:
        y[0, 1, 3:5, 2] = torch.nan
    kept = drawn(network, [0], 1, y)
    assert kept is not None and 0.5 < kept.float().mean() < 0.9
    kept[..., 5] = True
    read = torch.nan_to_num(y).requires_grad_()
    given = torch.where(torch.isnan(y), y, read).transpose(1, 2)
    mean, variance, _ = network.posterior(given, kept=kept.transpose(1, 2))
    (slope,) = torch.autograd.grad(mean.sum() + 2 * variance.sum(), read)
    seen = ~torch.isnan(y)
    assert (slope[~kept & seen] == 0).all() and (slope[kept & seen] != 0).all()
    normal = torch.randn(1, *draws_shape(network, 4, 9), generator=torch.Generator().manual_seed(0))
    elbo_parts(network, y, a, normal, None, kept).likelihood.sum().backward()
    readout = network.decoder.layers[0].weight.grad
    assert (readout[0, 5] == 0).all() and (readout[0, :5] != 0).all()


def drawn(
    network: LatentNetwork, seeds: list[int], update: int, y: torch.Tensor
) -> torch.Tensor | None:
    training = Training(network, seeds)
    training.updates = update
    return training.draw_kept(network, y)


def test_the_likelihood_of_dropped_values_weighs_as_all_would() -> None:
    """By hand: at a state that says the rate 2 of everything, of counts 1, 2, 3, the likelihood of
    the dropped 2 alone is divided by the share ¼."""
    model = LatentModel(**POISSON, samples=1, coordinated_dropout=0.25)
    network = LatentNetwork(3, 0, model, 0.1).initialise([0])
    with torch.no_grad():
        network.decoder.layers[0].weight.zero_()
        network.decoder.layers[0].bias.fill_(math.log(2))
    y, kept = torch.tensor([[[[1.0, 2.0, 3.0]]]]), torch.tensor([[[[True, False, True]]]])
    normal = torch.zeros(1, *draws_shape(network, 1, 1))
    found = elbo_parts(network, y, torch.zeros(1, 1, 1, 0), normal, None, kept).likelihood
    assert found.item() == pytest.approx((2 * math.log(2) - 2 - math.log(2)) / 0.25, rel=1e-6)
    all_of_them = elbo_parts(network, y, torch.zeros(1, 1, 1, 0), normal).likelihood
    wanted = sum(n * math.log(2) - 2 - math.lgamma(n + 1) for n in (1, 2, 3))
    assert all_of_them.item() == pytest.approx(wanted, rel=1e-6)


def test_kept_values_are_scaled_up_and_drawn_by_seed_and_step() -> None:
    model = LatentModel(**POISSON, coordinated_dropout=0.2)
    network = LatentNetwork(40, 0, model, 0.1, 2).initialise([0, 1])
    y = torch.ones(2, 8, 20, 40)
    first, again, later = (drawn(network, [0, 1], step, y) for step in (1, 1, 2))
    assert first is not None and later is not None and again is not None
    assert torch.equal(first, again) and not torch.equal(first, later)
    assert not torch.equal(first[0], first[1])
    read = scaled_up(y, first, None, 0.2)
    assert set(read.unique().tolist()) == {0.0, 1.25}
    assert float(read.mean()) == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("missing", [False, True])
def test_neurons_held_out_never_reach_the_encoder_but_are_foretold(missing: bool) -> None:
    network = LatentNetwork(8, 0, LatentModel(**POISSON, held_out=0.25, missing=missing), 0.1)
    network.initialise([0])
    y = counts_of(1, 5, 3, 8)
    other = y.clone()
    other[..., [2, 6]] += 7
    assert torch.equal(network.posterior(y)[0], network.posterior(other)[0])
    other[..., 1] += 1
    assert not torch.equal(network.posterior(y)[0], network.posterior(other)[0])
    assert network.decode(torch.ones(1, 1, 2)).shape == (1, 1, 8)
    with pytest.raises(ConfigError, match=r"held_out = 0\.5 is for counts"):
        ten.Explorer(model=LatentModel(held_out=0.5))


# recordings of a rotation


TURN = np.exp(complex(-0.03, 0.25))  # of a step: −0.3 ± 2.5i with dt = 0.1


def rotation(neurons: int, trials: int, seed: int, steps: int = 40) -> np.ndarray:
    """Counts [trials, steps, neurons] of neurons whose log rates are linear in a state that turns."""
    rng = np.random.default_rng(seed)
    loading = rng.normal(size=(2, neurons)) * 0.6
    offset = np.log(rng.uniform(0.3, 1.0, neurons))
    z = np.zeros((trials, steps), complex)
    z[:, 0] = 1.8 * np.exp(2j * np.pi * rng.random(trials))
    for t in range(1, steps):
        z[:, t] = z[:, t - 1] * TURN + 0.15 * rng.normal(size=(2, trials)).T @ (1, 1j)
    rates = np.exp(np.stack((z.real, z.imag), -1) @ loading + offset)
    return rng.poisson(rates).astype(float)


def save(path: Path, counts: np.ndarray) -> Path:
    np.savez(path, observations=counts, dt=0.1)
    return path


def settings(steps: int, **model: Any) -> dict[str, Any]:
    own = {"noise": "poisson", "decoder": "loglinear", "dynamics": "linear", "hidden": (32,)}
    return {"steps": steps, "eval_every": steps, "agent": {"model": own | model}}


def eigenvalue(agent: Any) -> complex:
    """Of a step, with an imaginary part above 0."""
    unit = agent.field(np.eye(2)) - agent.field(np.zeros((1, 2)))
    found = 1 + 0.1 * np.linalg.eigvals(unit.T)
    return complex(found[np.argmax(found.imag)])


def test_bits_per_spike_are_in_output_report_and_python(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = rotation(24, 30, 0)
    ten.fit(
        save(tmp_path / "data.npz", counts), tmp_path / "run",
        settings=settings(150, held_out=0.25, coordinated_dropout=0.2), quiet=True,
    )  # fmt: skip
    assert main(["eval", str(tmp_path / "run"), "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert len(row["fp_bps"]) == 10
    assert main(["eval", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().out
    assert f"of held-out neurons (co-bps): {row['co_bps']:.3f}" in said
    assert "bits per spike 1 to 10 steps ahead (fp-bps)" in said
    page = (tmp_path / "run" / "report.html").read_text()
    assert "co-bps" in page and "bits per spike" in page
    # the same from Python: judged on the pieces that judge, by rates that `rates` and `forecast` say
    held, _ = random_recordings(
        str(named(str(tmp_path / "run/config.yaml")).env), 0, Purpose.EVALUATE
    )[:2]
    agent: Any = ten.load(tmp_path / "run")
    ahead = agent.forecast(held, None, 10)[:, :10]
    later = np.stack([held[:, 1 + k : 11 + k] for k in range(10)], 2)
    for k, found in enumerate(row["fp_bps"]):
        assert found == pytest.approx(ten.bits_per_spike(ahead[:, :, k], later[:, :, k]), abs=1e-5)
    hidden = np.flatnonzero(held_out_channels(24, 0.25))
    plain = ten.bits_per_spike(agent.rates(held)[..., hidden], held[..., hidden])
    assert row["co_bps"] == pytest.approx(
        plain, abs=0.05
    )  # the mean over states drawn, or their mean


# several sessions


def test_counts_that_are_fitted_as_real_numbers_are_spoken_of_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = rotation(6, 10, 0)
    file = save(tmp_path / "data.npz", counts)
    few = {"steps": 2, "eval_every": 0, "agent": {"refit": 0, "length": 10}}
    ten.fit(file, tmp_path / "run", settings=few, quiet=True)
    told = capsys.readouterr().err
    assert told.count("--agent.model.noise poisson") == 1
    assert (
        f"data.npz: its observations are whole numbers, {100 * np.mean(counts == 0):.0f} %" in told
    )

    def words(y: np.ndarray, noise: str = "gaussian", said: str = "") -> str:
        episodes = tuple((own, np.zeros((len(own), 0))) for own in y)
        given = {"agent": {"model": {"noise": said} if said else {}}}
        return unlike_counts(Recording(episodes, 0.1), noise, given)

    assert words(counts) and words(np.where(counts > 3, np.nan, counts))
    assert not words(counts, "poisson") and not words(counts, said="gaussian")
    # numbers that are not whole, below 0, or hardly ever 0
    for other in (counts + 0.5, -counts, counts + 1):
        assert not words(other)


def test_sessions_of_one_rotation_share_its_eigenvalue(tmp_path: Path) -> None:
    """Other neurons, other readouts, another number of them. With this seed both start
    against each other: were they not turned, no rotation would be left."""
    files = [save(tmp_path / f"{k}.npz", rotation(16 + 4 * k, 40, k)) for k in (0, 1)]
    own = settings(200) | {"seed": 2}
    run = ten.fit(files, tmp_path / "run", settings=own, shared=True, quiet=True)
    agent: Any = ten.load(run.path)
    assert agent.sessions == (16, 20)
    assert eigenvalue(agent) == pytest.approx(TURN, abs=0.06)
    for k, file in enumerate(files):  # and each session's states turn like that by themselves
        y = np.load(file)["observations"]
        z = agent.encode(agent.of_session(y, k))
        z = z - z.mean((0, 1))
        lags = [np.einsum("eti,etj->ij", z[:, n:], z[:, : -n or None]) for n in (2, 3)]
        own = np.linalg.eigvals(lags[1] @ np.linalg.inv(lags[0]))
        assert own.imag.max() == pytest.approx(TURN.imag, abs=0.05)
    assert main(["eval", str(run.path)]) == 0
    with pytest.raises(ValueError, match="not of session 1, which has 20 channels"):
        agent.of_session(np.zeros((5, 16)), 1)
    resumed = ten.resume(run.path, 205, quiet=True)
    assert resumed.step == 205


def test_sessions_that_turn_against_each_other_are_turned() -> None:
    """A reflected session is found whatever the phase, in two and in three numbers; of what it says
    nothing changes."""
    rng = np.random.default_rng(0)
    for size in (2, 3):
        way = np.eye(size)
        way[:2, :2] = 0.97 * np.array([[np.cos(0.3), -np.sin(0.3)], [np.sin(0.3), np.cos(0.3)]])
        way[2:, 2:] *= 0.8
        z = np.zeros((2000, size))
        for t in range(1, 2000):
            z[t] = way @ z[t - 1] + 0.3 * rng.normal(size=size)
        mirror = polar(rng.normal(size=(size, size)))
        mirror[0] *= -np.sign(np.linalg.det(mirror))
        both = np.concatenate((z[:1000], z[1000:] @ mirror.T))
        own = np.repeat([0, 1], 1000)
        found = session_rotations(both, own, own, 2)
        kept, moved = (0, 1) if np.array_equal(found[0], np.eye(size)) else (1, 0)
        assert np.array_equal(found[kept], np.eye(size)) and np.linalg.det(found[moved]) < 0
        there = np.concatenate([both[own == s] @ found[s].T for s in (0, 1)])
        step = [np.linalg.lstsq(p[:-1], p[1:], rcond=None)[0] for p in (there[:1000], there[1000:])]
        np.testing.assert_allclose(step[0], step[1], atol=0.1)


def test_rows_that_were_not_read_are_no_part_of_what_sessions_are_compared_by() -> None:
    """By hand: 1, 3 and −4 of one episode have mean 0 and mean square 26/3; a row was lost before
    the −4, which is two steps behind the 3 then, and three behind the 1."""
    z = np.array([[1.0], [3.0], [99.0], [-4.0]])
    found = lagged_covariances(z, np.array([0, 0, np.nan, 0]))[:4, 0, 0] * 26 / 3
    assert found == pytest.approx([3, -12, -4, 0])
    assert not lagged_covariances(
        z, np.full(4, np.nan)
    ).any()  # a session of which there is nothing
    y = np.full((5, 3), np.nan)
    y[0, 0], y[2:4, 1:] = 1, 1  # sessions of one and two channels, and rows without either
    window = SimpleNamespace(obs=y[None])
    agent: Any = SimpleNamespace(window=window, sessions=(1, 2))
    assert session_rows(agent, 0, np.arange(5)).tolist() == [0, 0, 1, 1, 1]


def test_a_turn_changes_nothing_of_what_is_said() -> None:
    model = LatentModel(**POISSON, missing=True)
    network = LatentNetwork(7, 0, model, 0.1, 1, (3, 4)).initialise([0])
    y = torch.from_numpy(
        np.concatenate([embed_channels(counts_of(1, 6, 1, n).numpy(), s, 7) for s, n in ((0, 3), (3, 4))], 2)
    ).float()  # fmt: skip
    before = network.posterior(y)[0]
    said = network.decode(before.flatten(1, 2)).view(y.shape)
    rotate_sessions(network, 0, np.stack((np.eye(2), [[0.0, 1.0], [1.0, 0.0]])))
    z = network.posterior(y)[0]
    assert torch.equal(z[:, :, 0], before[:, :, 0])
    assert torch.allclose(z[:, :, 1], before[:, :, 1].flip(-1))
    after = network.decode(z.flatten(1, 2)).view(y.shape)
    for rows, channels in ((0, slice(3)), (1, slice(3, 7))):  # each session by its own readout
        assert torch.allclose(after[:, :, rows, channels], said[:, :, rows, channels], rtol=1e-5)


def test_sessions_that_do_not_fit_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = save(tmp_path / "one.npz", rotation(5, 6, 0))
    np.savez(tmp_path / "slow.npz", observations=rotation(5, 6, 0), dt=0.2)
    np.savez(
        tmp_path / "pushed.npz",
        observations=rotation(5, 6, 0),
        actions=np.zeros((6, 40, 1)),
        dt=0.1,
    )
    for name, flags, words in (
        ("slow.npz", ["--shared"], "slow.npz has 0.2 for a step and"),
        ("pushed.npz", ["--shared"], "pushed.npz has 1 actions and"),
        ("slow.npz", [], "several are fitted by one dynamics with shared=True (--shared)"),
        ("one.npz", ["--shared", "--agent.model.decoder", "mlp"], "use linear or loglinear"),
    ):
        assert (
            main(["fit", str(one), str(tmp_path / name), "--out", str(tmp_path / "r"), *flags]) == 2
        )
        assert words in capsys.readouterr().err


@pytest.mark.slow
def test_pooled_sessions_foretell_better_than_each_alone(tmp_path: Path) -> None:
    """Few trials of each of three; judged on trials that nothing saw, in bits per spike 1 to 10
    steps ahead, from states read by the same kind of encoder. The one with most neurons tells its
    own state best and gives a little of it away."""
    trials, sizes = 10, (12, 16, 20)
    every = [rotation(n, trials + 60, 10 + k) for k, n in enumerate(sizes)]
    files = [save(tmp_path / f"{k}.npz", own[:trials]) for k, own in enumerate(every)]
    model = settings(600, coordinated_dropout=0.2)

    def bits(agent: Any, k: int) -> float:
        new = every[k][trials:]
        y = agent.of_session(new, k) if agent.sessions else new
        start = sum(sizes[:k]) if agent.sessions else 0
        ahead = agent.forecast(y, None, 10)[:, :30, :, start : start + sizes[k]]
        later = np.stack([new[:, 1 + n : 31 + n] for n in range(10)], 2)
        return ten.bits_per_spike(ahead, later)

    pooled = ten.load(
        ten.fit(files, tmp_path / "all", settings=model, shared=True, quiet=True).path, "last"
    )
    gains = []
    for k, file in enumerate(files):
        alone = ten.fit(file, tmp_path / f"run{k}", settings=model, quiet=True)
        gains.append(bits(pooled, k) - bits(ten.load(alone.path, "last"), k))
    assert min(gains[:2]) > 0 and gains[2] > -0.02 and sum(gains) > 0.02

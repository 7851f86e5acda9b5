"""Values that were not observed: no part of the bound, of the belief, of R²; read over by what the
others of their row say."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.distributions import MultivariateNormal

import tenfold as ten
from tenfold.cli.main import main
from tenfold.core.errors import UserError
from tenfold.domains.dynamics.belief import Belief, beliefs, forecasts, observed_r2, repeated_r2
from tenfold.domains.dynamics.config import LatentModel
from tenfold.domains.dynamics.coordinates import align, channel_statistics, field_error
from tenfold.domains.dynamics.dynamics import raw_of
from tenfold.domains.dynamics.elbo import draws_shape, elbo
from tenfold.domains.dynamics.fields import Field, FieldState
from tenfold.domains.dynamics.latent import LatentNetwork
from tenfold.domains.dynamics.missing import (
    Factors,
    factor_analysis,
    forward_fill,
    impute,
    reliable_rows,
)
from tenfold.domains.dynamics.recording import read_recording
from tenfold.runs.checkpoint import checkpoint_steps
from tenfold.runs.storage import read_arrays

NAN = float("nan")
MEAN, DEVIATION, NOISE = (0.4, 0.2, 0.1), 0.25, (0.5, 2.0)


def by_hand(steps: int = 1) -> LatentNetwork:
    """One hidden number, two observed: q = N(0.4·y₀ + 0.2·y₁ + 0.1, 0.25), y = (2z + 0.1, −z), with
    noise of 0.5 and 2; a step is z' = z + 0.1·(−z) + noise of 0.3."""
    config = LatentModel(
        latent=1, hidden=(), dynamics="linear", steps=steps, samples=1, decay=1.0, missing=True
    )
    net = LatentNetwork(2, 0, config, 0.1).double().initialise([0])
    with torch.no_grad():
        net.encoder.last.weight.zero_()
        net.encoder.last.weight[0, 0, :2] = torch.tensor(MEAN[:2])
        net.encoder.last.bias.copy_(torch.tensor([[MEAN[2], float(raw_of(DEVIATION))]]))
        layer = net.decoder.layers[0]
        layer.weight.copy_(torch.tensor([[[2.0], [-1.0]]]))  # type: ignore[operator,union-attr]
        layer.bias.copy_(torch.tensor([[0.1, 0.0]]))  # type: ignore[operator,union-attr]
        net.decoder.raw_variance.copy_(torch.from_numpy(raw_of(np.array([NOISE]))))  # type: ignore[union-attr]
        net.dynamics.weight.copy_(torch.tensor([[[[-1.0, 0.0]]]]))
        net.dynamics.raw_variance.fill_(float(raw_of(0.3)))
    return net


def rows(*values: tuple[float, float]) -> torch.Tensor:
    return torch.tensor([[values]], dtype=torch.float64)


def no_actions(y: torch.Tensor) -> torch.Tensor:
    return y.new_zeros(*y.shape[:-1], 0)


# the bound


def test_the_bound_of_a_row_with_a_gap_is_that_of_the_value_that_was_seen() -> None:
    net, y = by_hand(), rows((1.5, NAN)).requires_grad_()
    found = elbo(net, y, no_actions(y), torch.ones(1, 1, 1, 1, 1, dtype=torch.float64))
    # the encoder reads (1.5, 0): m = 0.7; z = 0.7 + √0.25 = 1.2, of which y₀ is 2.5 on the mean
    likelihood = -0.5 * (math.log(2 * math.pi * 0.5) + (1.5 - 2.5) ** 2 / 0.5)
    divergence = 0.5 * (0.25 + 0.7**2 - math.log(0.25) - 1)
    assert found.item() == pytest.approx(likelihood - divergence, abs=1e-5)
    found.sum().backward()
    assert y.grad is not None and y.grad[0, 0, 0, 1] == 0 and y.grad[0, 0, 0, 0] != 0
    layer = net.decoder.layers[0]
    for gradient in (layer.weight.grad, layer.bias.grad, net.decoder.raw_variance.grad):  # type: ignore[union-attr]
        assert gradient[0, 1] == 0 and gradient[0, 0] != 0  # type: ignore[index]


def test_windows_pass_over_a_row_of_which_nothing_was_seen() -> None:
    net, y = by_hand(steps=2), rows((1.0, 0.5), (NAN, NAN), (0.5, 1.0))
    found = elbo(net, y, no_actions(y), torch.zeros(1, 3, 1, 1, 1, dtype=torch.float64)).item()
    first, last = 0.4 + 0.1 + 0.1, 0.2 + 0.2 + 0.1  # means of q; the paths are the means
    wanted = -0.5 * (0.25 + first**2 - math.log(0.25) - 1)
    for (y0, y1), z in (((1.0, 0.5), first), ((0.5, 1.0), last)):
        for seen, mean, noise in ((y0, 2 * z + 0.1, 0.5), (y1, -z, 2.0)):
            wanted -= 0.5 * (math.log(2 * math.pi * noise) + (seen - mean) ** 2 / noise)
    rolled, spread = first * 0.9**2, 2 * 0.3  # two steps from the first row
    wanted -= 0.5 * (math.log(spread / 0.25) + (0.25 + (last - rolled) ** 2) / spread - 1)
    assert found == pytest.approx(wanted, abs=1e-5)


def test_a_state_that_no_window_reaches_begins_anew() -> None:
    """With one horizon the row after a gap is as alone as the first one."""
    net, y = by_hand(), rows((1.0, 0.5), (NAN, NAN), (0.5, 1.0))
    zeros = torch.zeros(1, 3, 1, 1, 1, dtype=torch.float64)
    alone = [
        elbo(net, y[:, :, [t]], no_actions(y[:, :, [t]]), zeros[:, [t]]).item() for t in (0, 2)
    ]
    assert elbo(net, y, no_actions(y), zeros).item() == pytest.approx(sum(alone), abs=1e-9)


@pytest.mark.parametrize("noise", ["gaussian", "poisson"])
def test_where_everything_was_seen_the_bound_is_the_usual_one(noise: str) -> None:
    settings = {"grid": 4, "ensemble": 2, "samples": 2, "noise": noise, "decoder": "loglinear"}
    plain, own = (
        LatentNetwork(3, 2, LatentModel(**settings, missing=missing), 0.1).double().initialise([1])
        for missing in (False, True)
    )
    with torch.no_grad():
        for name, value in plain.named_parameters():
            other = own.get_parameter(name)
            other[..., : value.shape[-1]] = value  # the encoder's first layer reads flags too
    rng = torch.Generator().manual_seed(0)
    y = torch.randn(1, 4, 9, 3, generator=rng, dtype=torch.float64).abs().round()
    a = torch.randn(1, 4, 9, 2, generator=rng, dtype=torch.float64)
    normal = torch.randn(1, *draws_shape(plain, 4, 9), generator=rng, dtype=torch.float64)
    both = [elbo(net, y, a, normal).item() for net in (plain, own)]
    assert both[0] == pytest.approx(both[1], rel=1e-12)


def test_the_bound_is_below_the_likelihood_of_what_was_seen() -> None:
    """Of a linear system, all states and observations together are Gaussian."""
    net = by_hand()
    y = rows((1.0, NAN), (NAN, 0.5), (0.3, 0.2), (NAN, -0.7))
    step, spread, read = 0.9, 0.3, torch.tensor([2.0, -1.0], dtype=torch.float64)
    covariance = torch.zeros(4, 4, dtype=torch.float64)
    covariance[0, 0] = 1
    for t in range(1, 4):
        covariance[t, :t] = covariance[:t, t] = step * covariance[t - 1, :t]
        covariance[t, t] = step**2 * covariance[t - 1, t - 1] + spread
    whole = torch.kron(covariance, torch.outer(read, read))
    whole += torch.diag(torch.tensor(NOISE, dtype=torch.float64).repeat(4))
    flat, mean = y.flatten(), torch.tensor([0.1, 0.0], dtype=torch.float64).repeat(4)
    seen = ~torch.isnan(flat)
    likelihood = MultivariateNormal(mean[seen], whole[seen][:, seen]).log_prob(flat[seen]).item()
    many = y.expand(1, 4000, 4, 2)
    draws = torch.Generator().manual_seed(2)
    normal = torch.randn(1, 4, 1, 4000, 1, generator=draws, dtype=torch.float64)
    found = elbo(net, many, no_actions(many), normal).item()
    assert likelihood - 3 < found < likelihood


# what the others of a row say


def test_a_missing_value_is_read_as_the_others_of_its_row_say() -> None:
    """Two channels with one factor and noise of 1 each: covariance 1, variance 2, so that half of
    what one is off is expected of the other."""
    factors = (torch.zeros(1, 2), torch.ones(1, 2, 1), torch.ones(1, 2))
    x = torch.tensor([[[3.0, NAN], [NAN, -1.0], [NAN, NAN], [1.0, 2.0]]])
    found = impute(x, *factors)
    assert torch.allclose(found, torch.tensor([[[3.0, 1.5], [-0.5, -1.0], [0, 0], [1.0, 2.0]]]))


def test_factors_are_found_from_what_was_seen() -> None:
    rng = np.random.default_rng(0)
    loading = rng.normal(size=(12, 2))
    clean = rng.normal(size=(3000, 2)) @ loading.T + 4.0
    x = clean + 0.1 * rng.normal(size=clean.shape)
    gone = rng.random(x.shape) < 0.3
    found = factor_analysis(np.where(gone, np.nan, x))
    read = impute(
        torch.from_numpy(np.where(gone, np.nan, x))[None],
        *(torch.from_numpy(part)[None] for part in found),
    )[0].numpy()
    assert np.abs(found.mean - 4.0).max() < 0.15
    # of two factors seen through eight channels or so with noise of 0.1
    assert np.sqrt(np.square(read - clean)[gone].mean()) < 0.09
    assert np.array_equal(read[~gone], x[~gone])


def test_units_are_those_of_what_was_seen() -> None:
    y = np.array([[[1.0, 5.0, NAN], [3.0, NAN, NAN], [NAN, 9.0, NAN]]])
    found = channel_statistics(y, centred=True)
    assert found.mean.tolist() == [[2.0, 7.0, 0.0]] and found.scale.tolist() == [[1.0, 2.0, 1.0]]
    assert found.varied.tolist() == [[True, True, False]]


# the belief


def test_nothing_seen_corrects_nothing_and_a_gap_does() -> None:
    net = by_hand().float()
    belief = Belief(net)
    begins, goes_on = torch.tensor([True]), torch.tensor([False])
    belief.correct(torch.tensor([[NAN, NAN]]), begins)
    assert belief.mean.item() == 0 and belief.variance.item() == 1  # nothing is known
    belief.mean, belief.variance = torch.tensor([[0.5]]), torch.tensor([[0.25]])
    belief.correct(torch.tensor([[NAN, NAN]]), goes_on)
    assert belief.mean.item() == 0.5 and belief.variance.item() == 0.25
    belief.correct(torch.tensor([[2.0, NAN]]), goes_on)  # read as 0.9, as sure as the belief
    assert belief.mean.item() == pytest.approx(0.7, abs=1e-5)
    assert belief.variance.item() == pytest.approx(0.125, abs=1e-5)


def test_a_state_is_foretold_over_rows_of_which_nothing_was_seen() -> None:
    net, y = by_hand(), rows((NAN, NAN), (1.0, 0.5), (NAN, NAN), (NAN, NAN), (0.5, 1.0))
    found = beliefs(net, y, no_actions(y))[0, :, 0, 0].tolist()
    assert found == pytest.approx([0.0, 0.6, 0.6 * 0.9, 0.6 * 0.81, 0.5], abs=1e-6)


def test_a_forecast_over_a_gap_starts_from_a_belief() -> None:
    """A level that moves by nothing, read as 0, 1, nothing, 1 with e = 1/2: w = 1/2, so that p = 3/2
    and the share 2/5 first, which believes 3/5; then p = 3/5 + 1/2, and 1/2 more for the gap: 8/5
    and the share 5/13 of the next surprise 2/5. A recording that begins with a gap has its first
    reading later. Without gaps beliefs are the usual ones."""
    config = LatentModel(latent=1, hidden=(), dynamics="linear", missing=True)
    net = LatentNetwork(1, 0, config, 0.1)
    with torch.no_grad():
        net.flat.zero_()
        net.encoder.last.weight[0, 0, 0] = 1.0
    net.dynamics.share.fill_(0.5)
    y = torch.tensor([[0.0, 1.0, NAN, 1.0], [NAN, 0.0, 1.0, NAN], [0.0, 1.0, 1.0, 1.0]])
    y = y.view(1, 3, 4, 1)
    found = beliefs(net, y, no_actions(y))[0, :, :, 0].T
    assert found[0].tolist() == pytest.approx([0, 3 / 5, 3 / 5, 1 - 5 / 13 * 2 / 5])
    assert found[1].tolist() == pytest.approx([0, 0, 3 / 5, 3 / 5])
    usual = beliefs(net, y[:, 2:], no_actions(y[:, 2:]))[0, :, 0, 0]
    assert found[2].tolist() == pytest.approx(usual.tolist())
    ahead = forecasts(net, y[:, :1], y.new_zeros(1, 1, 4, 0), 1)
    readings = net.dynamics.predict(found[0].view(1, 4, 1), y.new_zeros(1, 4, 0))[0]
    assert ahead[0, 0, :, 0] == pytest.approx(net.decode(readings)[0].detach())


# fits and numbers


def test_states_that_are_much_less_sure_than_most_are_no_ground_for_dynamics() -> None:
    y = np.array([[1.0, 2.0], [NAN, 1.0], [NAN, 1.0], [NAN, NAN], [1.0, 1.0]])
    variance = np.array([[1.0], [3.0], [5.0], [1.0], [9.0]])
    # the usual variance is 4, of the rows that were read: 1, 3, 5, 9
    assert reliable_rows(y, variance / 4 * 1.0).tolist() == [True, True, True, False, True]
    assert reliable_rows(y, np.array([[1.0], [1.0], [17.0], [1.0], [1.0]])).tolist() == [
        True,
        True,
        False,
        False,
        True,
    ]


def test_r2_counts_what_was_seen() -> None:
    following = np.array([[[0.0, NAN]], [[2.0, 4.0]], [[NAN, 8.0]]])
    found = np.array([[[0.5, 99.0]], [[2.0, 5.0]], [[-99.0, 8.0]]])
    # errors 0.25 + 1, variances (1 + 1) + (4 + 4)
    assert observed_r2(found, following).tolist() == pytest.approx([1 - 1.25 / 10])


def test_the_last_value_repeated_is_the_last_that_was_seen() -> None:
    y = np.array([[[1.0], [NAN], [3.0], [NAN]]])
    assert forward_fill(
        np.array([9.0, 2.0, 7.0, 5.0]), np.array([True, False, True, False])
    ).tolist() == [
        2.0,
        2.0,
        2.0,
        5.0,
    ]
    # from rows 0 (1) and 2 (3), which were read: row 1 and row 3 were not, and nothing is counted
    assert repeated_r2(y, 1).tolist() == [0.0]
    z = np.array([[[1.0, 0.0], [NAN, 2.0], [3.0, NAN], [5.0, 4.0]]])
    # channel 0: 3 from 1, 5 from 3; channel 1: 2 from 0, 4 from 2; means 4 and 3
    assert repeated_r2(z, 1).tolist() == pytest.approx([1 - (4 + 4 + 4 + 4) / 4])
    # a channel of which these rows have nothing, as of another session's, changes nothing
    both = np.concatenate((z, np.full((1, 4, 1), NAN)), -1)
    assert repeated_r2(both, 1).tolist() == repeated_r2(z, 1).tolist()


def spiral(steps: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A damped rotation under random pushes, through six channels."""
    rng = np.random.default_rng(seed)
    z, y, a = np.zeros(2), [], rng.uniform(-1, 1, (steps, 2))
    read = rng.normal(size=(2, 6))
    for t in range(steps):
        y.append(z @ read + 0.02 * rng.normal(size=6))
        z = z + 0.1 * (z @ np.array([[-0.2, 1.5], [-1.5, -0.2]]) + a[t])
    return np.stack(y), a


def with_gaps(y: np.ndarray, share: float, seed: int = 1) -> np.ndarray:
    return np.where(np.random.default_rng(seed).random(y.shape) < share, np.nan, y)


TINY = {
    "steps": 30,
    "eval_every": 15,
    "checkpoint_every": 15,
    "keep": 3,
    "agent": {
        "length": 8,
        "refit": 10,
        "model": {"dynamics": "linear", "hidden": (8,), "steps": 2, "samples": 2},
    },
}


@pytest.fixture
def gappy(tmp_path: Path) -> Path:
    y, a = spiral(200)
    y = with_gaps(y, 0.2)
    y[50:53] = np.nan
    np.savez(tmp_path / "gappy.npz", observations=y, actions=a, dt=0.1)
    return tmp_path / "gappy.npz"


def test_a_recording_with_gaps_is_fitted_counted_asked_and_resumed(
    gappy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = int(np.isnan(np.load(gappy)["observations"]).sum())
    said = f"{missing:,} of 1,200 values ({missing / 12:.1f} %) are not observed"
    result = ten.fit(gappy, tmp_path / "whole", settings=TINY, quiet=True)
    assert said in capsys.readouterr().err
    assert said in (result.path / "report.html").read_text()
    agent = ten.load(result.path, checkpoint="last")
    assert agent.config.model.missing  # type: ignore[union-attr]
    y, a = (np.load(gappy)[name] for name in ("observations", "actions"))
    states, ahead = agent.encode(y), agent.forecast(y, a, 3)  # type: ignore[union-attr]
    assert np.isnan(states[50:53]).all() and np.isfinite(np.delete(states, range(50, 53), 0)).all()
    assert np.isfinite(ahead).all()
    few = agent.forecast(y, a[:40], 3)  # type: ignore[union-attr]
    assert np.allclose(few, ahead[:38], rtol=1e-5, atol=1e-6)  # as many as have actions
    assert np.isfinite(agent.act(y[51])).all()  # type: ignore[union-attr]
    assert np.isfinite(ten.evaluate(result.path).r2).all()  # type: ignore[union-attr]
    ten.fit(gappy, tmp_path / "half", settings=TINY | {"steps": 15}, quiet=True)
    ten.resume(tmp_path / "half", steps=30, quiet=True)
    both = [
        read_arrays(path / "checkpoints" / f"step-{checkpoint_steps(path)[-1]:012d}.safetensors")[0]
        for path in (tmp_path / "whole", tmp_path / "half")
    ]
    assert both[0].keys() == both[1].keys()
    for name in both[0]:
        assert np.array_equal(
            both[0][name], both[1][name], equal_nan=both[0][name].dtype.kind == "f"
        )


def test_counts_with_gaps_are_fitted(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rate = np.exp(np.sin(np.arange(200) * 0.2)[:, None] * rng.normal(size=5))
    np.savez(tmp_path / "counts.npz", observations=with_gaps(rng.poisson(rate), 0.2), dt=0.1)
    model = TINY["agent"]["model"] | {"noise": "poisson", "decoder": "loglinear"}  # type: ignore[index]
    settings = TINY | {"agent": TINY["agent"] | {"model": model}}  # type: ignore[operator]
    result = ten.fit(tmp_path / "counts.npz", tmp_path / "run", settings=settings, quiet=True)
    assert np.isfinite(ten.evaluate(result.path).r2).all()  # type: ignore[union-attr]


def test_what_cannot_be_missing_is_refused_where_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    y, a = spiral(60)
    for change, words in (
        ({"actions": with_gaps(a, 0.1)}, r"actions, episode 0, row \d+, number \d \(nan\)"),
        (
            {"observations": np.where(y == y.max(), np.inf, y)},
            r"number \d \(inf\) is missing or not",
        ),
        ({"observations": y * np.array([1, 1, NAN, 1, 1, 1])}, "number 2 is never observed"),
    ):
        np.savez(tmp_path / "bad.npz", **({"observations": y, "actions": a, "dt": 0.1} | change))
        with pytest.raises(UserError, match=words):
            read_recording(tmp_path / "bad.npz")
    (tmp_path / "bad.csv").write_text("y0,y1\n1,2\n3,\n5,off\n")
    with pytest.raises(
        UserError, match=r"bad\.csv, line 4, column y1, has 'off', which is no number"
    ):
        read_recording(tmp_path / "bad.csv", 0.1)
    (tmp_path / "good.csv").write_text("y0,y1\n1,2\n3,\nNA,nan\n4,5\n")
    found = read_recording(tmp_path / "good.csv", 0.1)
    assert found.missing == 3 and found.notes == ("3 of 8 values (37.5 %) are not observed",)
    np.savez(tmp_path / "data.npz", observations=with_gaps(y, 0.1), actions=a, dt=0.1)
    flags = ["--agent.model.missing", "false", "--agent.length", "8", "--steps", "3"]
    assert main(["fit", str(tmp_path / "data.npz"), "--out", str(tmp_path / "no"), *flags]) == 2
    assert "agent.model.missing = false does not fit" in capsys.readouterr().err


def test_a_model_of_whole_rows_refuses_gaps_in_what_it_is_asked(tmp_path: Path) -> None:
    y, a = spiral(120)
    np.savez(tmp_path / "whole.npz", observations=y, actions=a, dt=0.1)
    result = ten.fit(tmp_path / "whole.npz", tmp_path / "run", settings=TINY, quiet=True)
    agent = ten.load(result.path)
    with pytest.raises(ValueError, match=r"agent\.model\.missing=true"):
        agent.encode(with_gaps(y, 0.1))  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="not finite"):
        agent.act(with_gaps(y, 0.9)[0])  # type: ignore[union-attr]


# what a fifth of the values is worth


def error_of_fit(
    path: Path, y: np.ndarray, a: np.ndarray, whole: np.ndarray, z: np.ndarray
) -> float:
    """Of the field, on a grid around the true states z of the recording."""
    np.savez(path.with_suffix(".npz"), observations=y, actions=a, dt=0.1)
    settings = {"steps": 1000, "eval_every": 1000}
    ten.fit(path.with_suffix(".npz"), path, settings=settings, quiet=True)
    agent = ten.load(path, checkpoint="last")
    agent.maps = [align(agent.encode(whole), z)]  # type: ignore[union-attr]
    points = z[::5]
    system = FieldState(Field.named("tenfold/LimitCycle-v0"), [(0, 0)])
    return field_error(agent.field(points, true=True), system.velocity(points))  # type: ignore[union-attr]


@pytest.mark.slow
def test_a_fit_without_a_fifth_of_the_values_is_nearly_that_of_the_whole(tmp_path: Path) -> None:
    lanes = FieldState(Field.named("tenfold/LimitCycle-v0"), [(0, 0)])
    rng, steps = np.random.default_rng(0), 2000
    y, z, a = np.zeros((steps, 20), np.float32), np.zeros((steps, 2)), np.zeros((steps, 2))
    lanes.begin(0)
    for t in range(steps):
        a[t] = rng.uniform(-1, 1, 2) if t % 5 == 0 else a[t - 1]
        lanes.observe(y[t : t + 1])
        z[t] = lanes.z[0]
        lanes.advance(a[t : t + 1])
    gaps = with_gaps(y.astype(float), 0.2)
    whole = error_of_fit(tmp_path / "whole", y.astype(float), a, y, z)
    part = error_of_fit(tmp_path / "part", gaps, a, y, z)
    assert whole < 0.12 and part < whole + 0.02
    # rows without a gap are one in a hundred: too few to train on at all
    assert (~np.isnan(gaps).any(1)).mean() < 0.02


def test_factors_are_saved_with_the_model_and_learned_by_name() -> None:
    net = LatentNetwork(3, 1, LatentModel(missing=True), 0.1)
    net.fill.learn(Factors(np.ones((1, 3)), np.full((1, 3, 2), 2.0), np.full((1, 3), 0.5)))
    assert net.fill.factors.loading.shape == (1, 3, 2) and net.fill.mean.dtype == torch.float32


def test_what_shorter_trials_are_filled_up_with_is_left_out(tmp_path: Path) -> None:
    y = np.random.default_rng(0).normal(size=(3, 60, 2))
    y[0, 20:30] = np.nan  # a gap within stays
    y[1, 40:] = np.nan
    y[1, 45, 0] = 1.0  # its last observation
    y[2] = np.nan
    file = tmp_path / "padded.npz"
    np.savez(file, observations=y, actions=np.ones((3, 60, 1)), dt=0.1)
    found = read_recording(file)
    assert [len(seen) for seen, _ in found.episodes] == [60, 46]
    assert [len(done) for _, done in found.episodes] == [60, 46]
    assert "74 rows are left out behind the last observation of an episode" in found.notes
    assert found.missing == 2 * 10 + 2 * 5 + 1  # the gap, the second trial's, and beside its last
    for pieces, _ in found.divided()[1:]:
        assert not np.isnan(pieces).all((1, 2)).any()

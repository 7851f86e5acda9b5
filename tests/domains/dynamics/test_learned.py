"""What a model has learned, read as numbers: systems whose fixed points and eigenvalues are known by
hand, in the units outside."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tenfold as ten
from tenfold.cli.main import main
from tenfold.core.errors import UserError
from tenfold.domains.dynamics.agent import ExplorerAgent
from tenfold.domains.dynamics.config import Explorer, LatentModel
from tenfold.domains.dynamics.coordinates import Channels
from tenfold.domains.dynamics.identified import IdentifiedSystem
from tenfold.domains.dynamics.learned import estimate, fixed_point_words, kind_of
from tenfold.domains.dynamics.phase_portrait import learned_section, learned_tables

DT = 0.5  # outside; a step takes 0.1 inside, so that a velocity is a fifth of what it is there

# a line of the page: in continuous time, then of steps
EIGENVALUES = r"<td>{0} turning {0}</td><td>{0} turning {0}</td>".format(r"(\S+) ± [^ <]+")


def system(members: int = 1, actions: int = 1, **model: Any) -> IdentifiedSystem:
    config = Explorer(model=LatentModel(**({"hidden": (), "latent": 2} | model)))
    found = IdentifiedSystem(config, 3, actions, DT, tuple(range(members)), "cpu")
    found.units.bound(-2 * np.ones(actions), 2 * np.ones(actions))
    return found


def decoding(agent: IdentifiedSystem) -> Any:
    return agent.online.decoder.layers[0]


def put(tensor: torch.Tensor, value: object) -> None:
    with torch.no_grad():
        tensor.copy_(torch.tensor(value))


def test_a_linear_system_by_hand() -> None:
    """Inside f = [[−1, −2], [2, −1]] (z − (1, 2)): eigenvalues −1 ± 2i, a fifth of that outside.
    Steps of 0.1 multiply by 0.9 ± 0.2i, whose logarithm is log √0.85 ± i·atan(2/9), for 0.5 units
    of time."""
    agent = system(dynamics="linear")
    put(agent.online.dynamics.weight[0, 0], [[-1.0, -2.0, 5.0], [2.0, -1.0, 0.0]])
    (found,) = agent.fixed_points()
    assert found.point.mean == pytest.approx([1, 2]) and found.kind == "stable focus"
    assert found.jacobian.mean == pytest.approx(np.array([[-0.2, -0.4], [0.4, -0.2]]))
    assert found.eigenvalues.mean == pytest.approx([-0.2 + 0.4j, -0.2 - 0.4j])
    rate, turn = np.log(0.85) / 2 / DT, np.arctan(2 / 9) / DT
    assert found.continuous.mean == pytest.approx([rate + 1j * turn, rate - 1j * turn])
    assert np.isnan(found.point.std).all() and found.support == 1  # one model: not known
    assert fixed_point_words(found) == (
        "stable focus at (1.000, 2.000), eigenvalues in continuous time -0.163 turning 0.437"
    )


def test_uncertainty_is_the_deviation_between_the_models() -> None:
    agent = system(dynamics="linear", ensemble=3)
    for n, shift in enumerate((-0.5, 0.0, 0.5)):
        put(agent.online.dynamics.weight[0, n], [[-1.0 + shift, 0.0, 1.0 - shift], [0.0, 3.0, 0.0]])
    put(agent.online.dynamics.action_weight[0], [[[1.0], [0.0]], [[2.0], [0.0]], [[3.0], [4.0]]])
    (found,) = agent.fixed_points()
    assert found.kind == "saddle" and found.eigenvalues.mean == pytest.approx([0.6, -0.2])
    assert found.eigenvalues.std == pytest.approx([0, 0.1]) and found.point.std == pytest.approx(
        [0, 0]
    )
    assert found.eigenvalues.models[:, 1] == pytest.approx([-0.3, -0.2, -0.1])
    pushed = agent.input_matrix()
    # an action of 1 outside is half of what is 1 inside, and velocities are a fifth
    assert pushed.mean == pytest.approx(np.array([[0.2], [4 / 30]]))
    assert pushed.std == pytest.approx(np.array([[0.1], [0.1 * 4 / np.sqrt(3)]]))


def test_several_fixed_points_of_a_field_are_found_and_told_apart() -> None:
    """f = sin(2z)-like along one number: 0 is left and ±π/2 are approached."""
    agent = system(latent=1, grid=14, dynamics="rbf")
    axis = agent.online.dynamics.axis.double().numpy()
    z = np.linspace(-3, 3, 400)[:, None]
    weight = np.linalg.lstsq(agent.features(z), np.sin(2 * z), rcond=1e-7)[0].T
    assert len(axis) == 14
    put(agent.online.dynamics.weight[0, 0], weight.tolist())
    found = agent.fixed_points()
    points = [float(one.point.mean[0]) for one in found]
    assert points[0] == pytest.approx(0, abs=1e-2)
    assert sorted(points[1:]) == pytest.approx([-np.pi / 2, np.pi / 2], abs=1e-2)
    assert [one.kind for one in found] == ["unstable node", "stable node", "stable node"]
    assert found[0].eigenvalues.mean[0] == pytest.approx(2 / 5, rel=0.02)
    assert found[1].eigenvalues.mean[0] == pytest.approx(-2 / 5, rel=0.02)


def test_a_point_that_most_models_do_not_have_is_left_out() -> None:
    agent = system(latent=1, grid=3, dynamics="rbf", ensemble=3)
    put(agent.online.dynamics.weight[0], [[[1.0, 0.0, -1.0]], [[2.0, 1.9, 1.8]], [[2.0, 1.9, 1.8]]])
    assert not any(abs(one.point.mean[0]) < 2 for one in agent.fixed_points())


def test_loadings_are_in_units_of_the_channels_and_spread_by_rows() -> None:
    agent = system(dynamics="linear", ensemble=4, decoder="linear")
    agent.units.channels = Channels(
        np.zeros((1, 3)), np.array([[1.0, 10.0, 0.1]]), np.ones((1, 3), np.bool_)
    )
    put(decoding(agent).weight[0], [[1.0, 0.0], [2.0, 1.0], [0.0, -1.0]])
    alone = agent.loadings()
    assert alone.mean == pytest.approx(np.array([[1, 0], [20, 10], [0, -0.1]]))
    assert np.isnan(alone.std).all()
    rng = np.random.default_rng(0)
    few, many = (agent.loadings(rng.normal(size=(n, 3)) * [1, 10, 0.1]) for n in (100, 1_600))
    assert few.mean == pytest.approx(alone.mean) and (few.std > 0).all()
    assert 2 < np.mean(few.std / many.std) < 8  # four times, by the root of the rows


def test_loadings_by_rows_with_gaps_leave_out_what_was_not_observed() -> None:
    agent = system(dynamics="linear", ensemble=4, decoder="linear", missing=True)
    rows = np.random.default_rng(0).normal(size=(200, 3))
    rows[::3, 1], rows[50:60] = np.nan, np.nan
    found = agent.loadings(rows)
    assert np.isfinite(found.std).all() and (found.std > 0).all()


def test_loadings_of_counts_have_the_error_of_a_regression() -> None:
    """A state that is always 0 but for its constant cannot be told; here it is drawn, and the
    deviation is that of a Poisson regression, 1 / √(rows · rate · variance of the state)."""
    agent = system(latent=1, dynamics="linear", ensemble=60, decoder="loglinear", noise="poisson")
    put(decoding(agent).weight[0], [[0.0], [0.0], [0.0]])
    put(decoding(agent).bias[0], [0.0, 0.0, 0.0])
    y = np.random.default_rng(1).poisson(1.0, (2_000, 3)).astype(float)
    spread = agent.encode(y).std()
    assert agent.loadings(y).std[:, 0] == pytest.approx(1 / np.sqrt(2_000) / spread, rel=0.5)


def test_other_decoders_say_why_they_have_no_loadings() -> None:
    with pytest.raises(UserError, match=r"mlp has no loadings.*use agent\.model\.decoder=linear"):
        system(dynamics="linear", decoder="mlp", hidden=(4,)).loadings()
    with pytest.raises(UserError, match="map from the model's coordinates"):
        system(dynamics="linear").input_matrix(true=True)


def test_several_members_answer_one_by_one() -> None:
    agent = system(members=2, dynamics="linear")
    assert [one.mean.shape for one in agent.input_matrix()] == [(2, 1)] * 2
    assert len(agent.fixed_points()) == len(agent.loadings()) == 2


def test_complex_numbers_spread_in_both_parts() -> None:
    found = estimate(np.array([[1 + 2j], [3 + 2j]]))
    assert found.mean == pytest.approx([2 + 2j]) and found.std == pytest.approx([np.sqrt(2) + 0j])
    # −25 is fast: a step of 0.1 goes beyond the point and farther away
    assert kind_of(np.array([-25.0 + 0j])) == "unstable node"


def test_a_known_rotation_is_read_from_a_recording(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """dz/dt of steps: eigenvalues −0.2 ± i, pushed by actions as they are; `eval` says it too."""
    rng = np.random.default_rng(0)
    z, seen, a = np.array([1.0, 0.0]), [], rng.uniform(-1, 1, (600, 2))
    for t in range(600):
        seen.append(z)
        z = z + 0.1 * (np.array([[-0.2, -1.0], [1.0, -0.2]]) @ z + a[t])
    np.savez(tmp_path / "data.npz", observations=np.array(seen), actions=a, dt=0.1)
    model = {"dynamics": "linear", "hidden": (), "ensemble": 3, "samples": 1}
    settings = {"steps": 500, "eval_every": 500, "agent": {"model": model, "lr": 1e-2}}
    result = ten.fit(tmp_path / "data.npz", tmp_path / "run", settings=settings, quiet=True)
    agent: Any = ten.load(result.path)
    (found,) = agent.fixed_points()
    # the last of the steps is a fit in closed form; before it, gradients have damped by 0.03
    assert found.eigenvalues.mean[0] == pytest.approx(-0.2 + 1j, abs=0.01)
    # whatever the model's coordinates are: what an action adds to each channel
    assert agent.loadings().mean @ agent.input_matrix().mean == pytest.approx(np.eye(2), abs=0.1)
    page = (result.path / "report.html").read_text()
    assert "What was learned, as numbers" in page and "<td>stable focus</td>" in page
    told = re.search(EIGENVALUES, page)
    assert told is not None
    lasting = np.log(1 + 0.1 * (-0.2 + 1j)) / 0.1  # in continuous time
    assert [*map(float, told.groups())] == pytest.approx(
        [lasting.real, lasting.imag, -0.2, 1], abs=0.01
    )
    assert main(["eval", str(result.path)]) == 0
    words = capsys.readouterr().out
    assert "fixed point: stable focus at (" in words and "input matrix: " in words
    assert main(["eval", str(result.path), "--json"]) == 0
    learned = json.loads(capsys.readouterr().out)["learned"][0]
    told = learned["fixed_points"][0]["eigenvalues"]["mean"][0]
    assert told == pytest.approx([found.eigenvalues.mean[0].real, found.eigenvalues.mean[0].imag])


# on the page


def explorer(decoder: str = "linear", members: int = 1, missing: bool = False) -> ExplorerAgent:
    """It saw 30 rows of 13 channels, of which two miss a value where values may be missing."""
    hidden = (4,) if decoder == "mlp" else ()
    given: dict[str, Any] = {"hidden": hidden, "decoder": decoder, "missing": missing}
    model = LatentModel(dynamics="linear", ensemble=3, **given)
    config = Explorer(model=model, window=50)
    agent = ExplorerAgent(config, 13, -np.ones(1), np.ones(1), DT, tuple(range(members)))
    rows = np.random.default_rng(0).normal(size=(30, members, 13))
    if missing:
        rows[[4, 9], :, 3] = np.nan
    for t, y in enumerate(rows):
        agent.window.append(y, np.zeros((members, 1)), np.full(members, t == 0))
    agent.fit_units(30)
    put(agent.online.dynamics.weight[0], [[[-1.0, -2.0, 5.0], [2.0, -1.0, 0.0]]] * 3)
    return agent


@pytest.mark.parametrize(
    ("decoder", "members", "missing"),
    [("linear", 1, False), ("linear", 2, True), ("mlp", 1, False)],
)
def test_tables_of_the_page_hold_what_the_model_answers(
    decoder: str, members: int, missing: bool
) -> None:
    agent = explorer(decoder, members, missing)
    assert not learned_tables(agent)  # it was never trained
    agent.training.updates = 1
    points, pushed, *loads = learned_tables(agent)
    assert points["title"].endswith("in the model's own coordinates")
    assert points["lines"][0][:2] == ["stable focus", "(1 ± 0, 2 ± 0)"]
    assert points["lines"][0][3:] == ["-0.2 ± 0 turning 0.4 ± 0", "100%"]
    assert pushed["head"] == ["", "a₁"] and [line[0] for line in pushed["lines"]] == ["z₁", "z₂"]
    assert len(loads) == (decoder == "linear")  # an mlp has none
    for table in loads:
        rows = agent.window.obs[0, agent.window.rows()]
        rows = rows[~np.isnan(rows).any(-1)]
        assert len(rows) == 30 - 2 * missing
        answer = agent.loadings(rows)
        mean = (answer[0] if members > 1 else answer).mean
        shown = [[float(cell.split(" ± ")[0]) for cell in line[1:]] for line in table["lines"]]
        assert np.array(shown) == pytest.approx(mean, rel=1e-3)
        assert table["lines"][12][0] == "y₁₃" and all("±" in cell for cell in table["lines"][0][1:])


def test_long_tables_are_folded_and_text_is_escaped() -> None:
    few = {"title": "few <b>", "head": ["", "z₁"], "lines": [["y₁", "<i>"]]}
    many = {"title": "many", "head": ["", "z₁"], "lines": [["y", "1"]] * 13}
    (section,) = learned_section([few, many], "seed 3, the first of 2: ")
    assert "few &lt;b&gt;" in section.body and "&lt;i&gt;" in section.body
    assert section.body.count("<details>") == 1 and "<summary>many" in section.body
    assert section.body.startswith("<p>seed 3, the first of 2: ± is one standard error")
    assert learned_section([], "") == []

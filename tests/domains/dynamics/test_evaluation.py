"""Hidden systems from the command line and from Python: train, resume, eval, compare, fit, report,
questions."""

import json
from pathlib import Path

import numpy as np
import pytest

import tenfold as ten
from tenfold.cli.main import main
from tenfold.config.files import named, presets
from tenfold.config.run import Run
from tenfold.config.schema import to_mapping
from tenfold.core.errors import UserError
from tenfold.domains.dynamics.compare import Comparison, compare, table_of
from tenfold.domains.dynamics.recording import read_recording
from tenfold.runs.metrics import read_rows
from tenfold.runs.reporter import reporter_of
from tenfold.runs.seeds import SeedsFolder
from tenfold.runs.storage import read_arrays

FIELDS = (
    "limit-cycle",
    "double-limit-cycle",
    "van-der-pol",
    "duffing",
    "snowman",
    "multi-attractor",
)
QUICK = {
    "env": "tenfold/LimitCycle-v0(size=5, limit=40)",
    "steps": 45,
    "eval_every": 15,
    "eval_episodes": 4,
    "checkpoint_every": 20,
    "log_every": 10,
    "agent": {
        "window": 100,
        "length": 6,
        "batch_size": 2,
        "learning_starts": 10,
        "first_updates": 3,
        "model": {"grid": 4, "ensemble": 2},
        "planner": {"samples": 6, "iterations": 2, "elites": 3},
    },
}


def quick(**more: object) -> Run:
    return named("limit-cycle", QUICK | more)


def rows_of(path: Path) -> list[dict[str, object]]:
    return [
        {k: v for k, v in row.items() if k != "timing"} for row in read_rows(path / "metrics.jsonl")
    ]


@pytest.mark.usefixtures("pictures")
def test_a_run_is_judged_drawn_loaded_and_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = ten.train(quick(), tmp_path / "run", quiet=True)
    fits = [row for row in rows_of(result.path) if row["kind"] == "fit"]
    assert [row["step"] for row in fits] == [15, 30, 45] and set(fits[0]) >= {
        "field_error",
        "r2",
        "elbo",
        "arx_r2",
        "aligned",
    }
    assert result.best_evaluation == pytest.approx(max(row["score"] for row in fits))  # type: ignore[type-var]
    portrait = read_arrays(result.path / "portrait.safetensors")[0]
    assert set(portrait) == {"x", "y", "true", "learned", "information", "visited"} and portrait[
        "visited"
    ].shape == (45, 2)
    x, y = portrait["x"][3], portrait["y"][20]
    assert portrait["true"][20, 3] == pytest.approx(
        [x * (1 - x * x - y * y) - y, y * (1 - x * x - y * y) + x]
    )
    page = (result.path / "report.html").read_text()
    assert (
        "What was identified" in page
        and "error of the field" in page
        and page.count("data:image/png") == 1
        and '"title":"R\\u00b2 of observations"' in page
    )
    agent = ten.load(result.path)
    points = np.stack(np.meshgrid(portrait["x"], portrait["y"]), -1).reshape(-1, 2)
    assert agent.field(points, true=True).reshape(25, 25, 2) == pytest.approx(
        portrait["learned"], abs=1e-5
    )  # type: ignore[union-attr]
    best = ten.load(result.path, "best")
    assert best.field(points).shape == (625, 2)  # type: ignore[union-attr]
    assert main(["eval", str(result.path), "--episodes", "5", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["field_error"] > 0 and len(found["r2"]) == 10
    assert main(["eval", str(result.path)]) == 0 and "error of the field" in capsys.readouterr().out
    assert main(["report", str(result.path)]) == 0
    assert main(["eval", str(result.path), "--video"]) == 2


def test_a_stopped_run_is_resumed_as_if_it_had_never_stopped(tmp_path: Path) -> None:
    whole = ten.train(quick(members=2), tmp_path / "whole", quiet=True)
    ten.train(quick(members=2, steps=20), tmp_path / "part", quiet=True)
    resumed = ten.resume(tmp_path / "part", 45, quiet=True)
    after = [row for row in rows_of(resumed.path) if (row["kind"], row["step"]) != ("fit", 20)]
    assert rows_of(whole.path) == after  # but for the evaluation of the end that it once had
    names = [max((r.path / "checkpoints").glob("step-*")) for r in (whole, resumed)]
    one, other = (read_arrays(name)[0] for name in names)
    assert one.keys() == other.keys() and all(np.array_equal(one[k], other[k]) for k in one)


def test_many_seeds_are_runs_like_any_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = ten.train_seeds(quick(steps=30), 2, tmp_path / "seeds", jobs=1, quiet=True)
    fits = [
        [row for row in rows_of(tmp_path / "seeds" / f"seed-{s}") if row["kind"] == "fit"]
        for s in range(2)
    ]
    errors = [[row["field_error"] for row in own] for own in fits]
    assert result.summary["seeds"][1] == {
        "step": 30,
        "field_error": errors[1][-1],
        "least_field_error": min(errors[1]),
    }  # type: ignore[type-var]
    assert result.summary["field_error"]["mean"] == pytest.approx(
        (errors[0][-1] + errors[1][-1]) / 2
    )  # type: ignore[operator]
    assert "<th>error of the field</th>" in (tmp_path / "seeds" / "report.html").read_text()
    folder = SeedsFolder.open(tmp_path / "seeds")
    shown = reporter_of(folder.run).progress(folder.members)
    assert shown == {"errors of the field": f"{errors[0][-1]:.3f} {errors[1][-1]:.3f}"}
    assert main(["eval", str(tmp_path / "seeds"), "--episodes", "4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    alone = ten.evaluate(tmp_path / "seeds" / "seed-1", 4, seed=0).row()  # type: ignore[union-attr]
    assert (
        found["members"][1]["field_error"] == alone["field_error"]
        and found["members"][1]["r2"] == alone["r2"]
    )
    assert found["field_error"]["mean"] == pytest.approx(
        np.mean([row["field_error"] for row in found["members"]])
    )
    assert main(["eval", str(tmp_path / "seeds"), "--episodes", "4"]) == 0
    words = capsys.readouterr().out
    assert (
        f"error of the field {alone['field_error']:.3f}" in words
        and "R²: mean" in words
        and "seed 1" in words
    )


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    return compare(
        quick(),
        ("active", "zero"),
        2,
        tmp_path_factory.mktemp("compared") / "all",
        jobs=1,
        quiet=True,
    )


@pytest.mark.usefixtures("pictures")
def test_policies_are_compared_in_a_table_and_a_figure_and_go_on_where_they_stopped(
    compared: Comparison, capsys: pytest.CaptureFixture[str]
) -> None:
    found = compared
    assert set(found.rows) == {"active", "zero"} and found.rows["zero"]["field_error"]["seeds"] == 2
    assert "error of the field" not in (found.path / "compare.json").read_text()
    head, *lines = table_of(found.rows)
    assert head[:4] == ["policy", "steps", "field error", "95 % interval"]
    assert [line[0] for line in lines] == [
        "active",
        "zero",
        "ARX, data of active",
        "ARX, data of zero",
    ]
    fitted = [row for row in rows_of(found.path / "zero") if row["kind"] == "fit"]
    error = np.mean(fitted[-1]["field_errors"])  # type: ignore[call-overload]
    assert lines[1][2] == f"{error:.3f}"  # of two seeds the interquartile mean is the mean
    assert lines[1][3] == "takes 5 seeds"  # an interval
    written = {
        policy: (found.path / policy / "metrics.jsonl").read_bytes()
        for policy in ("active", "zero")
    }
    more = compare(quick(), ("active", "zero", "random"), 2, found.path, jobs=1, quiet=True)
    assert (
        list(more.rows) == ["active", "zero", "random"]
        and (found.path / "compare.png").stat().st_size > 1000
    )
    assert all(
        (found.path / policy / "metrics.jsonl").read_bytes() == content
        for policy, content in written.items()
    )
    # all that are there stay
    fewer = compare(quick(), ("random",), 2, found.path, jobs=1, quiet=True)
    about = json.loads((found.path / "compare.json").read_text())
    assert (
        list(fewer.rows)
        == list(about["results"])
        == about["policies"]
        == ["active", "zero", "random"]
    )
    assert all(
        f"{policy}/report.html" in (found.path / "report.html").read_text()
        for policy in about["policies"]
    )
    assert (
        main(["eval", str(found.path)]) == 2
        and f"name one of them, {found.path / 'active'} or" in capsys.readouterr().err
    )
    with pytest.raises(UserError, match=r"holds a comparison with another agent\.lr"):
        compare(quick(agent=QUICK["agent"] | {"lr": 0.5}), ("zero",), 2, found.path, quiet=True)  # type: ignore[operator]


def test_members_of_a_comparison_equal_runs_of_their_seeds(
    compared: Comparison, tmp_path: Path
) -> None:
    alone = ten.train(quick(seed=1), tmp_path / "alone", quiet=True)
    stacked = [
        row["field_errors"][1] for row in rows_of(compared.path / "active") if row["kind"] == "fit"
    ]  # type: ignore[index]
    assert stacked == pytest.approx(
        [row["field_error"] for row in rows_of(alone.path) if row["kind"] == "fit"], rel=1e-4
    )


def test_every_field_has_a_preset_that_fits(capsys: pytest.CaptureFixture[str]) -> None:
    assert set(FIELDS) <= set(presets())
    for field in FIELDS:
        run = named(field)
        assert run.agent.name == "explorer" and Run.of(to_mapping(run)) == run
    for command, words in (
        (("compare", "cartpole"), "compare runs policies of agent explorer"),
        (("compare", "limit-cycle", "--policies", "activ"), "did you mean active"),
        (("compare", "limit-cycle", "--seeds", "0"), "--seeds = 0 is out of range"),
        (
            ("train", "limit-cycle", "--agent.planner.elites", "99"),
            "agent.planner.elites = 99 is more than",
        ),
        (
            ("train", "explorer", "--env", "tenfold/Field-v0(field=limit-cicle)"),
            "did you mean limit-cycle",
        ),
        (("fit", "nothing.npz"), "nothing.npz is not there"),
    ):
        assert main(command) == 2 and words in capsys.readouterr().err


# recordings


def spiral(steps: int, episodes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """y = C z of a damped rotation under random pushes."""
    rng = np.random.default_rng(0)
    z, y, a = rng.normal(size=(episodes, 2)), [], rng.uniform(-1, 1, (episodes, steps, 2))
    for t in range(steps):
        y.append(z @ np.array([[1.0, 0.5, -0.3], [0.2, -1.0, 0.7]]))
        z = z + 0.1 * (z @ np.array([[-0.2, 1.0], [-1.0, -0.2]]) + a[:, t])
    return np.stack(y, 1), a


def test_recordings_train_a_model_from_npz_csv_and_a_run(tmp_path: Path) -> None:
    y, a = spiral(60)
    np.savez(tmp_path / "data.npz", observations=y, actions=a, dt=0.1)
    lines = [",".join(["episode", "time", *(f"y{k}" for k in range(3)), "a0", "a1"])]
    lines += [
        ",".join(map(repr, [e, 0.1 * t, *y[e, t].tolist(), *a[e, t].tolist()]))
        for e in range(3)
        for t in range(60)
    ]
    (tmp_path / "data.csv").write_text("\n".join(lines))
    both = [read_recording(tmp_path / name) for name in ("data.npz", "data.csv")]
    assert (
        both[0].dt == 0.1
        and both[1].dt == pytest.approx(0.1)
        and both[0].sizes == both[1].sizes == (3, 2)
    )
    for (y1, a1), (y2, a2) in zip(both[0].episodes, both[1].episodes, strict=True):
        assert np.array_equal(y1, y2) and np.array_equal(a1, a2)
    settings = {
        "steps": 150,
        "eval_every": 75,
        "log_every": 50,
        "agent": {"length": 10, "model": {"dynamics": "linear", "hidden": (), "steps": 2}},
    }
    result = ten.fit(tmp_path / "data.npz", tmp_path / "run", settings=settings, quiet=True)
    fits = [row for row in rows_of(result.path) if row["kind"] == "fit"]
    assert (
        fits[-1]["r2"][0] > fits[0]["r2"][0]
        and fits[-1]["arx_r2"][0] > 0.99
        and "field_error" not in fits[-1]
    )  # type: ignore[index]
    (tmp_path / "data.npz").unlink()
    assert ten.load(result.path).field([[0.0, 1.0]]).shape == (1, 2)  # type: ignore[union-attr]  # asked without the file
    explored = ten.train(quick(), tmp_path / "explored", quiet=True)
    again = ten.fit(
        explored.path, tmp_path / "again", settings={"steps": 5, "agent": {"length": 5}}, quiet=True
    )
    assert again.step == 5


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"observations": np.where(np.arange(50)[:, None] == 7, np.inf, np.ones((50, 2)))},
            "observations, episode 0, row 7, number 0 \\(inf\\) is",
        ),
        ({"actions": np.ones((49, 1))}, "do not fit together"),
        (
            {"actions": np.full((50, 1), np.inf)},
            "actions, episode 0, row 0, number 0 \\(inf\\) is missing or not finite",
        ),
        (
            {"time": np.cumsum(np.resize([0.1, 0.14], 50)), "dt": None},
            "49 % of its steps in time are no multiples of the usual one, 0.14",
        ),
        ({"dt": -1.0}, "does not say a dt above 0, but its dt is -1"),
        ({"dt": np.zeros(0)}, r"dt has the shape \(0,\)"),
        ({"observations": np.ones(50)}, r"observations has the shape \(50,\)"),
        ({"observations": None}, "has no array observations"),
    ],
)
def test_recordings_that_cannot_be_trained_on_are_refused(
    tmp_path: Path, change: dict[str, object], words: str
) -> None:
    arrays = {
        "observations": np.arange(100.0).reshape(50, 2),
        "actions": np.ones((50, 1)),
        "dt": 0.1,
    } | change
    np.savez(tmp_path / "data.npz", **{k: v for k, v in arrays.items() if v is not None})  # type: ignore[arg-type]
    with pytest.raises(UserError, match=words):
        read_recording(tmp_path / "data.npz")


def test_tables_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    for content, words in (
        ("y0,a0\n1,2\n3\n", "line 3, has 1 cells, and the head 2"),
        ("x,a0\n1,2\n", "has no columns y0, y1"),
        ("y0,a0\n1,\n2,1\n", "actions, episode 0, row 0, number 0 \\(nan\\) is missing"),
        ("y0,a0\n1,2\n3,4\n", "dt above 0"),
        ("", "is empty"),
    ):
        (tmp_path / "data.csv").write_text(content)
        with pytest.raises(UserError, match=words):
            read_recording(tmp_path / "data.csv")
    with pytest.raises(UserError, match="no format that is known"):
        (tmp_path / "data.txt").write_text("1")
        read_recording(tmp_path / "data.txt")

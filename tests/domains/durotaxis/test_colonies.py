"""What `tenfold eval`, the report and the benchmark say of colonies: which checkpoint, which
episodes, beside whom."""

import importlib.util
import json
import shutil
import sys
import warnings
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tenfold as ten
from tenfold.algorithms.ppo_learner import PPOLearner
from tenfold.cli.closing import finish_seeds
from tenfold.cli.main import main
from tenfold.core.errors import UserError
from tenfold.domains.durotaxis.arguments import Deployment
from tenfold.domains.durotaxis.evaluation import (
    evaluation_section,
    mean_numbers,
    paths_figure,
    pool_scores,
    tables_folder,
)
from tenfold.domains.durotaxis.setting import ACTIONS, WEIGHTS
from tenfold.domains.durotaxis.view import TRAJECTORY
from tenfold.evaluation import video as filming
from tenfold.evaluation.player import Score
from tenfold.runs.folder import RunFolder
from tenfold.runs.report import write_seeds_report
from tenfold.runs.seeds import SeedsFolder, summarise
from tenfold.training.learners import agent_of

TINY = [
    "--num-envs",
    "4",
    "--agent.horizon",
    "16",
    "--agent.net.hidden",
    "16,16",
    "--agent.minibatches",
    "2",
    "--log-every",
    "64",
    "--checkpoint-every",
    "128",
    "--eval-every",
    "128",
    "--eval-episodes",
    "2",
    "--keep",
    "9",
    "--quiet",
]


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("colony") / "run"
    assert main(["train", "durotaxis", *TINY, "--steps", "256", "--out", str(out)]) == 0
    return out


@pytest.fixture
def run(once: Path, tmp_path: Path) -> Path:
    shutil.copytree(once, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture(autouse=True)
def few_scripted_episodes_and_short_films(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = filming.write_gif
    monkeypatch.setattr("tenfold.domains.durotaxis.evaluation.YARDSTICK", 64)
    monkeypatch.setattr(
        filming, "write_gif", lambda path, frames, rate: whole(path, frames[:2], rate)
    )


def test_tables_of_other_checkpoints_seeds_and_episodes_stand_side_by_side(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trials = [
        ["--checkpoint", "128"],
        ["--checkpoint", "last"],
        ["--seed", "5"],
        ["--episodes", "3"],
    ]
    for more in trials:
        assert main(["eval", str(run), "--episodes", "2", "--json", *more]) == 0
    found = {
        path.name: json.loads((path / "episodes.json").read_text())
        for path in (run / "eval").iterdir()
    }
    assert set(found) == {
        f"as-trained-step-{step}-seed-{seed}-{n}-episodes"
        for step, seed, n in ((128, 0, 2), (256, 0, 2), (256, 5, 2), (256, 0, 3))
    }
    early = found["as-trained-step-128-seed-0-2-episodes"]
    assert (early["checkpoint"], early["step"], early["seed"], early["episodes"]) == (
        "128",
        128,
        0,
        2,
    )
    assert (early["policy"], early["rounding"]) == ("greedy", "stochastic") and early[
        "env"
    ].startswith("tenfold/Durotaxis-v0(substrate=random,")
    assert early["weights"] == WEIGHTS | {"survival": -0.1, "population": 0.01, "termination": 10.0}
    assert "checkpoint of step" not in (run / "report.html").read_text()
    assert main(["report", str(run)]) == 0
    page = (run / "report.html").read_text()
    assert "<h2>Evaluation: as trained, checkpoint of step 128, seed 0, 2 episodes</h2>" in page
    assert (
        page.count("<h2>Evaluation: as trained, checkpoint of step 256") == 3
        and "<th>untrained</th><td>success " in page
    )
    steps = early["steps_to_goal"]
    assert steps is None or f"{steps:.1f} steps to the goal" in page


def test_an_untrained_checkpoint_is_called_so_on_the_page(tmp_path: Path) -> None:
    own = {"success_rate": 1.0, "steps_to_goal": 61.333333333333336, "episodes": 4}
    said = own | {
        "where": "bend",
        "step": 0,
        "seed": 5,
        "policy": "greedy",
        "rounding": "floor",
        "yardsticks": {"random": own},
    }
    (tmp_path / "episodes.json").write_text(json.dumps(said))
    (tmp_path / "paths.png").write_bytes(b"picture")
    shown = evaluation_section(tmp_path / "paths.png")
    assert (
        shown.title == "Evaluation: bend, checkpoint of step 0 (untrained), seed 5, 4 episodes"
        and "<th>trained" not in shown.body
    )
    assert "success 100.0% of 4 episodes, 61.3 steps to the goal" in shown.body


def test_a_file_is_named_by_its_content_and_never_by_a_leading_dash(tmp_path: Path) -> None:
    names = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        file = tmp_path / folder / "my.npy"
        np.save(file, np.full((200, 300), 1.0 + len(names)))
        options = {"substrate": str(file)}
        assert str(file) in Deployment.of(options).env("tenfold/Durotaxis-v0")
        played: Any = SimpleNamespace(path=tmp_path, options=options, step=10, seed=0, episodes=20)
        names.append(tables_folder(played).name)
    assert names[0] != names[1] and all(
        name.startswith("my-") and name.endswith("-step-10-seed-0-20-episodes") for name in names
    )


def test_the_untrained_yardstick_is_the_runs_first_network_on_the_same_episodes(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = RunFolder.open(run)[1]
    first = PPOLearner(settings).agent
    assert np.array_equal(
        agent_of(settings).online.flat.detach().numpy(), first.online.flat.detach().numpy()
    )
    assert not np.array_equal(ten.load(run).online.flat.numpy(), first.online.flat.detach().numpy())
    capsys.readouterr()
    assert main(["eval", str(run), "--episodes", "3", "--deterministic"]) == 0
    shown = capsys.readouterr().out
    said = json.loads(next(run.glob("eval/*/episodes.json")).read_text())
    assert (
        said["yardsticks"]["untrained"]["episodes"] == 3
        and said["yardsticks"]["random"]["episodes"] == 64
    )
    lines = {line.split()[0]: line for line in shown.splitlines() if line.endswith("episodes")}
    assert lines["untrained"].endswith("of 3 episodes") and lines["follower"].endswith(
        "of 64 episodes"
    )
    assert "100.0%" in lines["follower"] and "(step 256)" in shown


def test_python_tries_a_colony_elsewhere_as_the_command_line_does(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert (
        main(
            [
                "eval",
                str(run),
                "--episodes",
                "2",
                "--substrate",
                "exponential",
                "--size",
                "300x200",
                "--nodes",
                "12",
                "--deterministic",
                "--json",
            ]
        )
        == 0
    )
    told = json.loads(capsys.readouterr().out)
    score = ten.evaluate(
        run, 2, substrate="exponential", size=(300, 200), nodes=12, deterministic=True
    )
    assert (
        isinstance(score, Score)
        and score.returns == told["returns"]
        and score.steps_to_goal == told["steps_to_goal"]
    )
    assert score.returns != ten.evaluate(run, 2).returns  # type: ignore[union-attr]
    with pytest.raises(UserError, match=r"numpy\.save"):
        ten.evaluate(run, 2, substrate=np.ones((300, 200)))  # type: ignore[arg-type]


def test_a_size_of_one_number_is_one_sentence_and_help_names_files(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", str(run), "--size", "900"]) == 2
    assert (
        capsys.readouterr().err
        == "tenfold: --size 900 is not a width and a height: write both, such as 900x300.\n"
    )
    with pytest.raises(SystemExit):
        main(["eval", "--help"])
    assert "--substrate KIND|FILE.npy" in capsys.readouterr().out


def test_a_number_that_no_step_had_is_null_without_a_warning() -> None:
    way = np.zeros((3, len(TRAJECTORY)))
    first = TRAJECTORY.index(ACTIONS[0])
    way[:, first : first + len(ACTIONS)] = [
        [np.nan] * 5,
        [0.5, np.nan, np.nan, np.nan, 0.1],
        [0.7, np.nan, np.nan, np.nan, np.nan],
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert mean_numbers(way) == {
            "delete_ratio": pytest.approx(0.6),
            "gamma": None,
            "alpha": None,
            "noise": None,
            "theta": 0.1,
        }


def test_colonies_that_never_spawn_leave_tables_that_are_json(tmp_path: Path) -> None:
    env = "tenfold/Durotaxis-v0(mode=nodes,max_nodes=1,init_nodes=1,max_steps=3)"
    assert (
        main(
            [
                "train",
                "durotaxis-nodes",
                *TINY,
                "--env",
                env,
                "--steps",
                "64",
                "--out",
                str(tmp_path / "run"),
            ]
        )
        == 0
    )
    assert main(["eval", str(tmp_path / "run"), "--episodes", "2", "--json"]) == 0

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    said = json.loads(
        next(tmp_path.glob("run/eval/*/episodes.json")).read_text(), parse_constant=refuse
    )
    assert [own["gamma"] for own in said["each"]] == [None, None]


def test_ways_are_drawn_with_names_axes_and_a_scale(tmp_path: Path) -> None:
    played: Any = SimpleNamespace(
        env="tenfold/Durotaxis-v0(substrate=random)",
        options={"substrate": "random"},
        step=1024,
        seed=3,
        policy="greedy",
    )
    ways = [np.tile(np.linspace(10, 300, 6)[:, None], len(TRAJECTORY)) for _ in range(4)]
    figure = paths_figure(played, ways, ["goal"] * 4)
    *panels, scale = figure.axes
    assert len(panels) == 4 and all(
        (axes.get_xlabel(), axes.get_ylabel()) == ("x", "y") for axes in panels
    )
    kinds = {axes.get_title().split(": ")[0].split(", ")[1] for axes in panels}
    assert kinds == {"linear", "exponential"}  # this seed draws both
    assert "intensity" in scale.get_ylabel() and "checkpoint of step 1,024" in figure.get_suptitle()


# many seeds


def evaluated(step: int, mean: float, rate: float, steps: float | None) -> dict[str, Any]:
    more = {} if steps is None else {"steps_to_goal": steps}
    return {
        "kind": "eval",
        "step": step,
        "episodes": 4,
        "mean_return": mean,
        "std_return": 0.0,
        "success_rate": rate,
        "merit": rate,
        **more,
    }


def written(tmp_path: Path, run: Path, members: dict[int, list[dict[str, Any]]]) -> SeedsFolder:
    folder = SeedsFolder.create(tmp_path / "many", RunFolder.open(run)[1], tuple(members))
    for seed, rows in members.items():
        folder.member(seed).mkdir()
        parts = {"reward/goal": 0.1 * seed, "reward/goal/std": 0.0, "action/gamma": 5.0}
        trained = [
            {"kind": "train", "step": step, "updates": 1, "timing": {}, "return": 1.0, **parts}
            for step in (100, 200)
        ]
        (folder.member(seed) / "metrics.jsonl").write_text(
            "".join(json.dumps(row) + "\n" for row in [*trained, *rows])
        )
    return folder


@pytest.mark.usefixtures("pictures")
def test_seeds_tell_successes_and_steps_to_the_goal(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = written(
        tmp_path,
        run,
        {
            0: [evaluated(100, 3.0, 0.5, 60.0), evaluated(200, 9.0, 0.25, 30.0)],
            1: [evaluated(100, 1.0, 1.0, 40.0), evaluated(200, 2.0, 0.0, None)],
        },
    )
    found = summarise(folder)
    assert found["seeds"][0] == {
        "step": 200,
        "return": 1.0,
        "last_evaluation": 9.0,
        "best_evaluation": 3.0,
        "success_rate": 0.5,
        # of the evaluation whose checkpoint is the best one
        "steps_to_goal": 60.0,
    }
    assert found["success_rate"]["iqm"] == 0.75 and found["steps_to_goal"]["iqm"] == 50.0
    page = write_seeds_report(folder).read_text()
    assert (
        "75.0% (interquartile mean of 2 seeds; an interval takes 5)" in page
        and "<td>40.0</td>" in page
    )
    assert "<h2>Components</h2>" in page and '"title":"reward: ' in page
    result = SimpleNamespace(
        path=folder.path, interrupted=0, summary=found, run=folder.run, seeds=(0, 1), failed={}
    )
    capsys.readouterr()
    assert finish_seeds(result) == 0
    shown = capsys.readouterr().out
    assert (
        "success rate 50.0%, steps to goal 60.0" in shown
        and "success rate     75.0% (interquartile mean of 2 seeds" in shown
    )


def test_a_folder_of_seeds_is_evaluated_with_yardsticks_once_and_says_where_tables_are(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = SeedsFolder.create(tmp_path / "many", RunFolder.open(run)[1], (0, 1))
    for seed in (0, 1):
        shutil.copytree(run, folder.member(seed))
    capsys.readouterr()
    assert main(["eval", str(folder.path), "--episodes", "2"]) == 0
    shown = capsys.readouterr().out
    words = [line.split()[0] for line in shown.splitlines()]
    assert all(words.count(name) == 1 for name in ("untrained", "follower", "constant"))
    assert "of 4 episodes" in next(
        line for line in shown.splitlines() if line.split()[0] == "untrained"
    )
    for seed in (0, 1):
        tables = folder.member(seed) / "eval" / "as-trained-step-256-seed-0-2-episodes"
        assert str(tables) in shown and (tables / "episodes.json").exists()


def test_successes_of_several_policies_count_by_their_episodes() -> None:
    each = [
        {"success_rate": 0.5, "steps_to_goal": 40.0, "episodes": 4},
        {"success_rate": 1.0, "steps_to_goal": 70.0, "episodes": 1},
        {"success_rate": 0.0, "steps_to_goal": None, "episodes": 5},
    ]
    assert pool_scores(each) == {"success_rate": 0.3, "steps_to_goal": 50.0, "episodes": 10}


# the benchmark


def bench_file(name: str) -> ModuleType:
    path = Path(__file__).parents[3] / "bench" / f"{name}.py"
    if str(path.parent) not in sys.path:  # files there import one another
        sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(f"bench_{name}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("given", [[], ["--help"]])
def test_the_benchmark_without_runs_writes_nothing(
    given: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = bench_file("durotaxis")
    monkeypatch.setattr(bench, "write", lambda *_: pytest.fail("it wrote"))
    monkeypatch.setattr("sys.argv", ["durotaxis.py", *given])
    with pytest.raises(SystemExit) as left:
        bench.main()
    assert left.value.code == (0 if given else 2)


def test_rows_of_a_run_replace_its_own_and_no_others() -> None:
    def row(on: str, mode: str, seed: int, success: float, **more: str) -> dict[str, Any]:
        return {
            **more,
            "trained_on": on,
            "mode": mode,
            "seed": seed,
            "substrate": "linear",
            "success": success,
        }

    follower = {"yardstick": "follower", "mode": "ratio", "substrate": "linear", "success": 1.0}
    old = [
        row("random", "ratio", 0, 0.1),
        row("random", "ratio", 1, 0.2),
        row("bend", "nodes", 0, 0.3),
        follower,
    ]
    new = [row("random", "ratio", 0, 0.8), row("random", "ratio", 0, 0.9, yardstick="untrained")]
    found = bench_file("durotaxis").merged(old, [*new, follower | {"success": 0.99}])
    assert [own["success"] for own in found] == [0.8, 0.9, 0.2, 0.3, 0.99]


def test_a_run_is_benchmarked_beside_its_untrained_network(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = bench_file("durotaxis")
    monkeypatch.setattr(bench, "EPISODES", 2)
    rows = bench.rows_of(run)
    # 2 substrates, rounded twice
    assert len(rows) == 8 and sum(row.get("yardstick") == "untrained" for row in rows) == 4
    assert {row["steps"] for row in rows if "yardstick" not in row} == {256} and all(
        row["episodes"] == 2 for row in rows
    )


def test_the_readme_shows_the_untrained_network_where_it_was_played(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tables = bench_file("field_tables")
    learned = {
        "trained_on": "random",
        "mode": "ratio",
        "seed": 0,
        "substrate": "linear",
        "rounding": "stochastic",
        "policy": "greedy",
        "success": 1.0,
        "steps_to_goal": 38.0,
    }
    before = learned | {"yardstick": "untrained", "steps_to_goal": 68.5}

    def shown(rows: list[dict[str, Any]]) -> str:
        monkeypatch.setattr(tables, "rows_of", lambda _: rows)
        return tables.colonies()

    assert shown([learned]).endswith("| random, ratio | linear (greedy) | 100.0% | 38.0 |  |  |")
    assert shown([learned, before]).endswith(
        "| random, ratio | linear (greedy) | 100.0% | 38.0 | 100.0%; 68.5 |  |  |"
    )


# the benchmark of starts


def start_row(nodes: Any, size: str, success: float, seed: int, starts: str) -> dict[str, Any]:
    name = f"tenfold/Durotaxis-v0(substrate=random{starts})"
    told = {"substrate": "random", "mode": "ratio", "env": name, "seed": seed, "steps": 5000}
    return told | {"nodes": nodes, "size": size, "success": success}


def test_a_run_is_tried_in_every_cell_and_as_it_was_trained(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = bench_file("durotaxis_starts")
    monkeypatch.setattr(bench, "NODES", (1, 6))
    monkeypatch.setattr(bench, "SIZES", ("300x200",))
    file = tmp_path / "rows.json"
    asked = ["starts", str(run), "--episodes", "2", "--into", str(file)]
    monkeypatch.setattr("sys.argv", asked)
    assert bench.main() == 0
    rows = json.loads(file.read_text())["rows"]
    assert [(row["size"], row["nodes"]) for row in rows] == [
        ("as trained", "as trained"),
        ("300x200", 1),
        ("300x200", 6),
    ]
    assert all(row["episodes"] == sum(row["endings"].values()) == 2 for row in rows)
    # gathered from the file, beside the scripted policies of its cells
    kept: list[Any] = []
    monkeypatch.setattr(bench, "SCRIPTED", 64)
    monkeypatch.setattr(bench, "RESULTS", tmp_path / "none.json")
    monkeypatch.setattr(bench, "write", lambda name, rows: kept.append((name, rows)))
    monkeypatch.setattr("sys.argv", ["starts", str(file)])
    assert bench.main() == 0
    [(name, found)] = kept
    assert name == "durotaxis-starts" and found[:3] == rows and len(found) == 3 + 2 * 2
    assert {row["success"] for row in found if row.get("yardstick") == "follower"} == {1.0}
    file.write_text("{}")
    capsys.readouterr()
    assert bench.main() == 2
    assert capsys.readouterr().err == f"{file} holds no rows of this benchmark.\n"


def test_rows_of_a_start_replace_those_of_the_same_run() -> None:
    wide, fixed = ", init_nodes=1..60", ""
    old = [start_row(1, "300x200", 0.1, 0, wide), start_row(1, "300x200", 0.2, 1, wide)]
    old += [start_row(1, "300x200", 0.3, 0, fixed)]
    new = [start_row(1, "300x200", 0.9, 0, wide)]
    follower = {"yardstick": "follower", "substrate": "random", "success": 1.0}
    found = bench_file("durotaxis_starts").merged([*old, follower], new)
    assert [row["success"] for row in found] == [0.3, 0.9, 0.2, 1.0]


def test_the_table_of_starts_has_a_line_for_a_size_and_a_number_for_a_seed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tables = bench_file("field_tables")
    wide = ", init_nodes=1..60"
    rows = [start_row("as trained", "as trained", 1.0, seed, wide) for seed in (0, 1)]
    rows += [start_row(n, "300x200", rate, 0, wide) for n, rate in ((1, 0.955), (60, 1.0))]
    rows += [start_row(1, "300x200", 0.9, 1, wide), start_row(1, "900x300", 0.8, 1, wide)]
    rows += [start_row(n, "300x200", rate, 0, "") for n, rate in ((1, 0.7), (60, 0.38))]
    monkeypatch.setattr(tables, "rows_of", lambda _: rows)
    monkeypatch.setattr(Path, "exists", lambda _: True)
    assert tables.starts().splitlines() == [
        "| trained on, mode, first nodes | thousand steps | tried on | as trained | 1 node "
        "| 60 nodes |",
        "|---|---|---|---|---|---|",
        "| random, ratio, 1..60 | 5, 5 | 300x200 | 100, 100 % | 96, 90 % | 100, – % |",
        "|  |  | 900x300 |  | –, 80 % |  |",
        "| random, ratio, 5 | 5 | 300x200 |  | 70 % | 38 % |",
    ]

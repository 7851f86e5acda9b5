"""Whatever stands in the files of a run's folder: reading them ends well or with one sentence,
never with a traceback."""

import copy
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tenfold.cli.main import main
from tenfold.config.run import Run
from tenfold.config.schema import to_mapping
from tenfold.core.errors import CheckpointError, UserError
from tenfold.core.system import machine_card, versions
from tenfold.domains.durotaxis.evaluation import sections as colony_sections
from tenfold.domains.dynamics.compare import policies_in
from tenfold.domains.dynamics.recording import run_recording
from tenfold.domains.jobshop.tables import sections as shop_sections
from tenfold.evaluation.evaluate import much_better_checkpoint
from tenfold.runs.checkpoint import Checkpoints
from tenfold.runs.file_schema import NOTE, NUMBER, ROWS, RUN, WHOLE, misfit, parsed, read_json
from tenfold.runs.folder import COMPARE_KIND, RunFolder
from tenfold.runs.metrics import read_rows
from tenfold.runs.report import write_report, write_seeds_report
from tenfold.runs.seeds import SeedsFolder, describe_run, describe_seeds, summarise
from tenfold.runs.storage import read_arrays, write_arrays
from tenfold.training import learners
from tenfold.training import loop as training
from tenfold.training.learners import load
from tenfold.training.loop import resume

DRAWS = int(os.environ.get("TENFOLD_DRAWS", "24"))
DEEP: Any = []
for _ in range(200):
    DEEP = [DEEP]
JUNK = [
    None,
    True,
    False,
    -1,
    0,
    1,
    3.5,
    -0.5,
    "x",
    "",
    "\ud800",
    "../x",
    "\0",
    [],
    {},
    [1],
    [[1, 2], [3]],
    {"a": 1},
    math.nan,
    math.inf,
    10**400,
    -(10**400),
    10**30,
    -(10**30),
    1e308,
    -1e308,
    5e-324,
    DEEP,
    [{}],
    "1e5",
    2**63,
    2**64,
]
FIT = {
    "score": 0.5,
    "elbo": 1.0,
    "elbos": [1.0, 1.5],
    "r2": [0.9, 0.8, 0.7],
    "r2s": [[0.9, 0.8, 0.7], [0.8, 0.7, 0.6]],
    "field_error": 0.4,
    "field_errors": [0.4, 0.5],
    "aligned": 0.9,
    "arx_r2": [0.5, 0.4, 0.3],
}


class Read(Exception):
    """Everything was read, and training would begin."""


@pytest.fixture(scope="module")
def folders(finished_once: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """runs/ with a run, a run of two seeds, and a comparison with an explorer's run that has no
    checkpoint."""
    runs = tmp_path_factory.mktemp("kinds") / "runs"
    run = RunFolder.open(finished_once)[1]
    shutil.copytree(finished_once, runs / "one")
    SeedsFolder.create(runs / "many", run, (0, 1)).lock.release()  # type: ignore[union-attr]
    for seed in (0, 1):
        shutil.copytree(finished_once, runs / "many" / f"seed-{seed}")
    explorer = Run.of({"env": "tenfold/LimitCycle-v0", "agent": {"name": "explorer"}, "members": 2})
    RunFolder.create(runs / "pair" / "active", explorer).__exit__()
    about = {
        "kind": COMPARE_KIND,
        "policies": ["active"],
        "versions": versions(),
        "machine": machine_card(),
    }
    (runs / "pair" / "compare.json").write_text(json.dumps(about))
    (runs / "pair" / "config.yaml").write_text(yaml.safe_dump(to_mapping(explorer)))
    rows = [{"kind": "fit", "step": step, **FIT} for step in (100, 200)] + [
        {
            "kind": "train",
            "step": 200,
            "updates": 9,
            "elbo": 1.0,
            "reward/x": 1.0,
            "reward/x/std": 0.5,
            "timing": {"steps_per_second": 5.0, "shares": {"env": 1.0}},
        }
    ]
    (runs / "pair" / "active" / "metrics.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in rows)
    )
    with (runs / "one" / "metrics.jsonl").open("a") as file:
        file.writelines(
            json.dumps(row) + "\n"
            for row in [
                rows[-1],
                {
                    "kind": "eval",
                    "step": 200,
                    "episodes": 2,
                    "mean_return": 1.0,
                    "std_return": 0.0,
                    "success_rate": 0.5,
                    "merit": 0.4,
                    "mean_length": 5.0,
                    "steps_to_goal": None,
                },
            ]
        )
    (runs / "one" / "makespans.json").write_text(
        json.dumps(
            {
                "samples": 64,
                "best_makespan": 55,
                "greedy_makespan": 57,
                "optimum": None,
                "rules": {"spt": 60},
                "untrained_best_makespan": 70,
            }
        )
    )
    (runs / "one" / "gantt.png").write_bytes(b"png")
    own = {"success_rate": 0.5, "episodes": 2, "steps_to_goal": None}
    (runs / "one" / "eval" / "as-trained").mkdir(parents=True)
    (runs / "one" / "eval" / "as-trained" / "paths.png").write_bytes(b"png")
    (runs / "one" / "eval" / "as-trained" / "episodes.json").write_text(
        json.dumps(
            own
            | {
                "where": "as trained",
                "step": 5,
                "seed": 0,
                "policy": "greedy",
                "rounding": "floor",
                "yardsticks": {"random": own},
            }
        )
    )
    return runs


@pytest.fixture(autouse=True)
def no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*parts: Any) -> None:
        parts[1].close()  # the metrics
        raise Read

    monkeypatch.setattr(training.Session, "run_session", read)
    monkeypatch.setattr(learners, "warm_up", lambda *_: None)


def places_in(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value in nested tables and lists."""
    yield at
    for key, own in (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    ):
        yield from places_in(own, (*at, key))


def changed(data: st.DataObject, document: Any) -> Any:
    """The same with something else somewhere, or with something lost."""
    document = copy.deepcopy(document)
    at = data.draw(st.sampled_from(sorted(places_in(document), key=str)))
    if not at:
        return data.draw(st.sampled_from(JUNK))
    inner = document
    for key in at[:-1]:
        inner = inner[key]
    if data.draw(st.integers(0, 3)) == 0:
        del inner[at[-1]]
    else:
        inner[at[-1]] = data.draw(st.sampled_from(JUNK))
    return document


def spoil_json(path: Path, data: st.DataObject) -> None:
    path.write_text(json.dumps(changed(data, json.loads(path.read_text()))))


def spoil_row(path: Path, data: st.DataObject) -> None:
    """A row of metrics, which of its kind drawn first: most are episodes."""
    lines = path.read_text().splitlines()
    kind = data.draw(st.sampled_from(sorted({json.loads(line)["kind"] for line in lines})))
    spoilt = data.draw(
        st.sampled_from(
            [i for i, line in enumerate(lines) if json.loads(line)["kind"] == kind][-3:]
        )
    )
    lines[spoilt] = json.dumps(changed(data, json.loads(lines[spoilt])))
    path.write_text("\n".join(lines) + "\n")


def spoil_settings(path: Path, data: st.DataObject) -> None:
    document = changed(data, yaml.safe_load(path.read_text()))
    path.write_text(
        yaml.safe_dump(document, allow_unicode=False)
        if document is not DEEP
        else "[" * 300 + "]" * 300
    )


def spoil_note(path: Path, data: st.DataObject) -> None:
    """Of a checkpoint, with a digest that fits."""
    arrays, note = read_arrays(path)
    write_arrays(path, arrays, changed(data, note))


def ends_well(action: Callable[[], Any]) -> None:
    try:
        action()
    except UserError as error:
        assert "\n" not in str(error)
    except Read:
        pass


FILES: dict[str, Callable[[Path, st.DataObject], None]] = {
    "one/run.json": spoil_json,
    "one/metrics.jsonl": spoil_row,
    "one/config.yaml": spoil_settings,
    "one/checkpoints/step-000000000600.safetensors": spoil_note,
    "one/checkpoints/best.safetensors": spoil_note,
    "many/seeds.json": spoil_json,
    "many/config.yaml": spoil_settings,
    "many/seed-1/metrics.jsonl": spoil_row,
    "pair/compare.json": spoil_json,
    "pair/active/metrics.jsonl": spoil_row,
    "pair/active/run.json": spoil_json,
}
PLAYED = {"step": 600, "episodes": 20, "mean_return": 9.0, "std_return": 1.0}
DRAWN = {
    "one/run.json": spoil_json,
    "one/metrics.jsonl": spoil_row,
    "one/makespans.json": spoil_json,
    "one/eval/as-trained/episodes.json": spoil_json,
    "many/seeds.json": spoil_json,
    "many/seed-1/metrics.jsonl": spoil_row,
    "pair/active/metrics.jsonl": spoil_row,
    "pair/active/run.json": spoil_json,
}


@settings(
    max_examples=DRAWS,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_whatever_a_file_holds_reading_it_ends_well_or_with_a_sentence(
    data: st.DataObject, folders: Path, tmp_path: Path
) -> None:
    shutil.rmtree(tmp_path / "runs", ignore_errors=True)
    shutil.copytree(folders, tmp_path / "runs")
    file = data.draw(st.sampled_from(list(FILES)))
    FILES[file](tmp_path / "runs" / file, data)
    one, many, pair = (tmp_path / "runs" / name for name in ("one", "many", "pair"))
    own = {
        "one": (
            lambda: load(one),
            lambda: load(one, "best"),
            lambda: describe_run(one),
            lambda: run_recording(one),
            lambda: much_better_checkpoint(RunFolder.open(one)[0], PLAYED),
            lambda: resume(one, 700, quiet=True),
        ),
        "many": (
            lambda: describe_seeds(many),
            lambda: summarise(SeedsFolder.open(many)),
            lambda: describe_run(many / "seed-1"),
        ),
        "pair": (
            lambda: policies_in(pair),
            lambda: describe_run(pair / "active"),
            lambda: RunFolder.open(pair),
        ),
    }
    for action in own[file.split("/")[0]]:
        ends_well(action)


@settings(
    max_examples=DRAWS // 6,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_whatever_a_file_holds_a_report_of_it_ends_well_or_with_a_sentence(
    data: st.DataObject, folders: Path, tmp_path: Path
) -> None:
    shutil.rmtree(tmp_path / "runs", ignore_errors=True)
    shutil.copytree(folders, tmp_path / "runs")
    file = data.draw(st.sampled_from(list(DRAWN)))
    DRAWN[file](tmp_path / "runs" / file, data)
    folder = tmp_path / "runs" / Path(file).parts[0]
    for sections in (shop_sections, colony_sections):  # of a run in their domains
        ends_well(lambda own=sections: own(folder))
    if folder.name == "many":
        ends_well(lambda: write_seeds_report(SeedsFolder.open(folder)))
    else:
        ends_well(
            lambda: write_report(
                *RunFolder.open(folder if folder.name == "one" else folder / "active")
            )
        )


def test_everything_a_run_writes_is_of_the_schema(finished_once: Path) -> None:
    lines = (finished_once / "metrics.jsonl").read_text().splitlines()
    assert {json.loads(line)["kind"] for line in lines} == {"episode", "train", "eval"}
    assert (
        [misfit(row, ROWS[row["kind"]]) for row in map(json.loads, lines)]
        == [""] * len(lines)
        == [""] * len(list(read_rows(finished_once / "metrics.jsonl")))
    )
    read_json(finished_once / "run.json", RUN, "")
    for step in finished_once.glob("checkpoints/step-*"):
        assert misfit(read_arrays(step)[1], NOTE) == ""


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"a": 1, "b": [0.5]}, ""),
        ({"a": 1}, "b is missing"),
        ({"a": -1, "b": []}, "a is -1 and must be a whole number from 0 on"),
        ({"a": 1, "b": [1, "x"]}, 'b[1] is "x" and must be a finite number'),
        ({"a": True, "b": []}, "a is true and must be a whole number from 0 on"),
        ({"a": 1, "b": {"c": 1}}, "b is a table and must be a list"),
        ([], "it is [] and must be a table of keys and values"),
        ({"a": 1, "b": [], "c": {"d": "e"}}, 'c.d is "e" and must be a finite number'),
        ({"a": 1, "b": [math.nan]}, "b[0] is NaN and must be a finite number"),
    ],
)
def test_a_misfit_names_the_key_what_was_found_and_what_is_expected(value: Any, words: str) -> None:
    assert misfit(value, {"a": WHOLE, "b": [NUMBER], "c?": {...: NUMBER}}) == words


def test_what_is_nested_without_end_is_no_json_of_ours() -> None:
    for text in ("[" * 100 + "]" * 100, "[" * 100_000 + "]" * 100_000):
        with pytest.raises(ValueError, match="nested too deeply"):
            parsed(text)


@pytest.fixture
def finished(finished_once: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished_once, tmp_path / "run")
    return tmp_path / "run"


def alter(path: Path, **changes: Callable[[np.ndarray], None]) -> None:
    """Arrays of a checkpoint, with a digest that fits."""
    arrays, note = read_arrays(path)
    for name, change in changes.items():
        arrays[name] = arrays[name].copy()
        change(arrays[name])
    write_arrays(path, arrays, note)


def test_a_wrong_run_json_is_named_with_its_key(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    about = json.loads((finished / "run.json").read_text())
    about["sessions"][0]["from_step"] = []
    (finished / "run.json").write_text(json.dumps(about))
    assert main(["report", str(finished)]) == 2
    assert (
        "run.json: sessions[0].from_step is [] and must be a whole number from 0 on; put back"
        in capsys.readouterr().err
    )


def test_a_report_says_how_many_rows_of_metrics_are_damaged(finished: Path) -> None:
    assert (
        main(["report", str(finished)]) == 0
        and "hold no row" not in (finished / "report.html").read_text()
    )
    with (finished / "metrics.jsonl").open("a") as file:
        # the last one is being written
        file.write('{"kind": "episode", "step": -3}\nno row\n{"kind": "ep')
    assert main(["report", str(finished)]) == 0
    assert (
        "2 lines of metrics.jsonl hold no row and were passed over"
        in (finished / "report.html").read_text()
    )


def test_weights_that_are_not_finite_are_refused_by_name_and_the_checkpoint_before_is_taken(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, last = (
        finished / "checkpoints" / f"step-{step:012d}.safetensors" for step in (400, 600)
    )
    alter(last, **{"agent.online": lambda flat: flat.__setitem__(3, np.nan)})
    load(finished)
    assert (
        f"Note: {last} is damaged: its weights are not finite (agent.online has nan at place 3). The one of step 400 is taken"
        in capsys.readouterr().err
    )
    with pytest.raises(CheckpointError, match="its weights are not finite"):
        load(finished, 600)
    with pytest.raises(Read):
        resume(finished, 700, quiet=True)
    assert not last.exists() and Checkpoints(RunFolder.open(finished)[0], 2).steps() == [400]
    alter(first, **{"agent.target": lambda flat: flat.__setitem__(0, np.inf)})
    for action in (lambda: load(finished), lambda: resume(finished, 700, quiet=True)):
        with pytest.raises(
            CheckpointError, match=r"weights are not finite \(agent.target has inf at place 0\)"
        ):
            action()
    alter(
        finished / "checkpoints" / "best.safetensors",
        **{"agent.online": lambda flat: flat.__setitem__(0, np.nan)},
    )
    with pytest.raises(
        CheckpointError, match=r"best.safetensors is damaged: its weights are not finite"
    ):
        load(finished, "best")


def test_an_impossible_stored_action_is_refused_by_name_and_the_checkpoint_before_is_taken(
    finished: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said: list[str] = []
    monkeypatch.setattr(
        training.Session,
        "run_session",
        lambda *found: (said.extend(found[3]), found[1].close()),
    )
    last = finished / "checkpoints" / "step-000000000600.safetensors"
    alter(last, **{"envs.actions": lambda actions: actions.fill(7)})
    resume(finished, 700, quiet=True)
    assert said == [
        f"{last} is damaged: CartPole-v1, environment 0, episode {said[0].split('episode ')[1].split(',')[0]}, step 0: the checkpoint holds action 7, "
        f"which Discrete(2) does not have. It was set aside as {last.name}.damaged."
    ]


def test_impossible_actions_in_the_replay_memory_are_refused_by_name(finished: Path) -> None:
    last = finished / "checkpoints" / "step-000000000600.safetensors"
    arrays, note = read_arrays(last)
    rows = finished / "replay" / note["rows"][-1]["file"]
    alter(rows, action=lambda actions: actions.__setitem__(0, 9))
    note["rows"][-1]["digest"] = write_arrays(rows, *read_arrays(rows))
    write_arrays(last, arrays, note)
    (finished / "checkpoints" / "step-000000000400.safetensors").unlink()
    with pytest.raises(
        CheckpointError,
        match=r"step-000000000600.safetensors is damaged: the replay memory holds action 9, and there are 2, from 0 on\.",
    ):
        resume(finished, 700, quiet=True)


def test_arrays_of_another_run_are_refused_though_their_digest_fits(finished: Path) -> None:
    last = finished / "checkpoints" / "step-000000000600.safetensors"
    (finished / "checkpoints" / "step-000000000400.safetensors").unlink()
    arrays, note = read_arrays(last)
    for lost in ("agent.square", "engine.sums", "serial.step", "envs.obs", "replay.head"):
        write_arrays(last, {name: array for name, array in arrays.items() if name != lost}, note)
        with pytest.raises(CheckpointError, match="what it holds is not what this run saves"):
            resume(finished, 700, quiet=True)
    write_arrays(last, arrays | {"serial.step": np.array(-5)}, note)
    with pytest.raises(CheckpointError, match="its note does not tell of what it holds"):
        resume(finished, 700, quiet=True)

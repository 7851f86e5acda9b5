"""Pages are lists of sections; what belongs to an algorithm or a domain comes from there."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tenfold.algorithms.dqn_settings import QLearning
from tenfold.cli.main import main
from tenfold.config.run import Run
from tenfold.core import registry
from tenfold.core.errors import UserError
from tenfold.runs.charts import Curve
from tenfold.runs.file_schema import NUMBER, WHOLE
from tenfold.runs.folder import RunFolder
from tenfold.runs.metrics import Metrics, latest_row, rank, read_rows, row_schemas
from tenfold.runs.page import Link, Section, grid, image, page, paragraph, table
from tenfold.runs.report import write_report, write_seeds_report
from tenfold.runs.reporter import Number, Reporter, reporter_of
from tenfold.runs.seeds import SeedsFolder, summarise
from tenfold.training.run_group import GroupRun, RunGroup, train_group

SHOP = "tenfold/JobShop-v0"


def test_a_page_is_its_sections_in_order_with_everything_escaped_and_nothing_to_load() -> None:
    text = page(
        "<a> & b",
        [
            Section("", table({"<k>": 1, "where": Link("<l>", "seed-0/report.html")})),
            Section(
                "Second <one>", image(b"png", 'says "what"') + paragraph("1 < 2", Link("r", "r"))
            ),
            Section("Last", grid(["seed", "x"], [[Link(0, "seed-0/report.html"), "–"]])),
        ],
    ).decode()
    assert text.count("<title>&lt;a&gt; &amp; b</title>") == text.count("<h1>&lt;a&gt;") == 1
    parts = [
        "<th>&lt;k&gt;</th><td>1</td>",
        '<td><a href="seed-0/report.html">&lt;l&gt;</a></td>',
        "<h2>Second &lt;one&gt;</h2>",
        'alt="says &quot;what&quot;" src="data:image/png;base64,cG5n"',
        '<p>1 &lt; 2 · <a href="r">r</a></p>',
        '<h2>Last</h2><div class="wide"><table class="grid"><tr><th>seed</th><th>x</th></tr>',
        '<tr><td><a href="seed-0/report.html">0</a></td><td>–</td></tr>',
    ]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    assert not re.search(r"<script|<link|src=\"http|@import", text)


@pytest.mark.parametrize(
    ("env", "shown"), [(f"{SHOP}(instance=ft06)", True), ("CartPole-v1", False)]
)
def test_the_page_of_a_run_has_the_sections_of_its_domain(
    env: str, shown: bool, tmp_path: Path
) -> None:
    with RunFolder.create(tmp_path / "run", Run(env=env)) as folder:
        makespans = {
            "samples": 64,
            "best_makespan": 55,
            "greedy_makespan": 57,
            "optimum": None,
            "untrained_best_makespan": 70,
            "rules": {"spt": 60},
        }
        (folder.path / "makespans.json").write_text(json.dumps(makespans))
        (folder.path / "gantt.png").write_bytes(b"png")
        text = write_report(folder, Run(env=env)).read_text()
        assert ("<h2>Schedule</h2>" in text) == ("<th>rule spt</th><td>60</td>" in text) == shown
        assert (folder.path / "curve.png").exists()
        (folder.path / "makespans.json").write_text("{}")
        text = write_report(folder, Run(env=env)).read_text()
        assert ("makespans.json: samples is missing" in text) == shown


class ProbeReporter(Reporter):
    rows = {"probe": {"step": WHOLE, "score": NUMBER}}
    numbers = {"step": Number("step"), "probed": Number("what was probed", ".1f")}
    course = "probed"

    def summary(self, rows: list[dict[str, Any]], run: Run) -> dict[str, Any]:
        return {"probes": len(rows)}

    def sections(self, path: Path, rows: list[dict[str, Any]], run: Run) -> list[Section]:
        return [Section("Probes", paragraph(rows[-1]["score"]))]

    def last_numbers(self, rows: list[dict[str, Any]]) -> dict[str, float | None]:
        return {"step": rows[-1]["step"], "probed": rows[-1]["score"]}

    def curves(self, run: Run) -> tuple[Curve, ...]:
        return (Curve("probe", "score", "C0", "probes"),)


class Probing(QLearning):
    def make_reporter(self) -> Reporter:
        return ProbeReporter()


@pytest.fixture
def probing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The algorithm dqn has results of its own kind."""
    monkeypatch.setattr(
        registry, "discover", lambda what: (Probing(),) if what == "ALGORITHMS" else ()
    )
    row_schemas.cache_clear()
    yield
    row_schemas.cache_clear()


ROWS = [{"kind": "probe", "step": step, "score": score} for step, score in ((1, 5.0), (2, 3.0))]


def write_rows(path: Path) -> None:
    (path / "metrics.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in [*ROWS, {"kind": "probe", "step": 3}])
    )


@pytest.mark.usefixtures("probing")
def test_an_algorithm_describes_rows_numbers_and_page_of_its_own(tmp_path: Path) -> None:
    run = Run()
    assert isinstance(reporter_of(run), ProbeReporter)
    with RunFolder.create(tmp_path / "run", run) as folder:
        write_rows(folder.path)
        assert list(read_rows(folder.metrics)) == ROWS  # the third has lost its score
        assert latest_row(folder.metrics, "probe") == ROWS[-1]
        metrics = Metrics(folder, folder.metrics.stat().st_size)
        metrics.close()
        assert metrics.best_row == ROWS[0] and metrics.best == rank(ROWS[0]) == (0.0, 5.0)
        text = write_report(folder, run).read_text()
    assert "<th>probes</th><td>2</td>" in text and "<h2>Probes</h2><p>3.0</p>" in text
    assert '"name":"probes"' in text and '"y":[5,3]' in text  # its own curve, over steps 1 and 2
    assert '"y":"probed"' in text and "evaluation (greedy)" not in text


@pytest.mark.usefixtures("probing")
def test_many_seeds_are_told_by_the_numbers_of_their_algorithm(tmp_path: Path) -> None:
    folder = SeedsFolder.create(tmp_path / "many", Run(), (0, 1))
    for member in folder.members:
        RunFolder.create(member, Run()).__exit__()
        write_rows(member)
        (member / "report.html").touch()
    found = summarise(folder)
    assert found["seeds"][1] == {"step": 2, "probed": 3.0} and found["probed"]["mean"] == 3.0
    text = write_seeds_report(folder).read_text()
    assert "<th>what was probed</th><td>3.0 (interquartile mean of 2 seeds" in text
    assert '<a href="seed-1/report.html">1</a></td><td>2</td><td>3.0</td>' in text


def test_without_its_algorithm_a_kind_of_row_is_none(tmp_path: Path) -> None:
    write_rows(tmp_path)
    assert list(read_rows(tmp_path / "metrics.jsonl")) == []


class Failing:
    """In place of processes: the second task fails, the first has been saved."""

    def __init__(self, work: Any, tasks: list[Any]) -> None:
        self.tasks, self.errors = tasks, {1: "it broke."}

    def run(self, workers: int, look: Any) -> int:
        (Path(self.tasks[0][1]) / "checkpoints").mkdir(parents=True)
        (Path(self.tasks[0][1]) / "checkpoints" / "step-000000000007.safetensors").touch()
        look(1)
        return 0


def test_the_one_runner_names_the_run_that_failed_and_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tenfold.training.worker_pool.Pool", Failing)
    monkeypatch.setattr("tenfold.training.display.LINE_SECONDS", 0.0)
    runs = RunGroup(
        "two policies",
        "policies",
        [GroupRun(f"policy {name}", Run(steps=10), tmp_path / name) for name in ("one", "two")],
        tmp_path,
        "The same command goes on.",
        {},
    )
    with pytest.raises(UserError, match=r"^Policy two: it broke\. The same command goes on\.$"):
        train_group(runs, 1, False, lambda: {"one": "0.5"})
    said = capsys.readouterr().err
    assert f"two policies (1 at a time) -> {tmp_path}" in said
    assert "step 0 of 20" in said and "done 1 of 2 policies  one 0.5" in said
    assert runs.saved == {"policy one": 7}


def test_a_report_goes_where_the_command_says(
    finished_once: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(finished_once)]) == 0
    assert capsys.readouterr().out == f"{finished_once}/report.html\n"

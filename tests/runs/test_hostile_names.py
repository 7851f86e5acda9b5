"""Whatever a run, an environment, a metric, an error or a sweep is called is text: on pages, on
terminals, in cards and in TensorBoard's files."""

import io
import json
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt
from rich.console import Console
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

import tenfold as ten
from tenfold.cli.flags import print_table
from tenfold.cli.results import write_page
from tenfold.config.run import Run
from tenfold.runs.folder import RunFolder
from tenfold.runs.metrics import EventFile
from tenfold.runs.report import write_report, write_sweep_report
from tenfold.runs.seeds import describe_run
from tenfold.runs.sweep_folder import SweepFolder, SweepPlan
from tenfold.shipping.card import Card, card
from tenfold.training.display import Display
from tenfold.training.loop import train
from tenfold.training.watch import RunWatcher, Screen

HOSTILE = "</title></script><script>alert('x')</script>[red]x[/red]<img src=//evil.example/a>"
NAME = HOSTILE.replace("/", "|")  # as a file may be called


class Tags(HTMLParser):
    """Elements of a page and where they lead, and the words that a person sees."""

    def __init__(self, page: Path) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []
        self.addresses: list[str] = []
        self.words = ""
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.words += data


def require_text(page: Path) -> str:
    tags, text = Tags(page), page.read_text()
    inert = text.count('<script type="application/json">')
    assert tags.found.count("script") == inert + 1 and tags.found.count("title") == 1
    assert "img" not in tags.found
    assert not any(address.startswith(("//", "http", "javascript")) for address in tags.addresses)
    assert "<script>alert" not in text and "evil.example/a>" not in text
    return tags.words


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A run of which everything that others may name is markup."""
    folder = RunFolder.create(tmp_path / NAME, Run.of({"env": HOSTILE, "steps": 1000}))
    session = {"from_step": 0, "engine": HOSTILE, "device": HOSTILE, "where": HOSTILE}
    folder.about |= {"sessions": [session | {"failed": HOSTILE}], "command": [HOSTILE]}
    folder.about["versions"][HOSTILE] = HOSTILE
    folder.write_about()
    timing = {"seconds": 1.0, "steps_per_second": 9.0, "shares": {HOSTILE: 1.0}}
    rows: list[dict[str, Any]] = []
    for step in (100, 200):
        row = {"kind": "train", "step": step, "updates": 1, "episodes": 1, "return": 1.0}
        rows.append(row | {HOSTILE: 1.0, "timing": timing})
        judged = {"kind": "eval", "step": step, "episodes": 1, "mean_return": 1.0}
        rows.append(judged | {"std_return": 0.0, HOSTILE: 2.0})
    folder.metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
    folder.__exit__()
    return folder.path


def test_the_page_of_a_run_and_that_of_several(hostile: Path, tmp_path: Path) -> None:
    words = require_text(write_report(*RunFolder.open(hostile)))
    assert words.count(HOSTILE) >= 6 and f"failed: {HOSTILE}" in words
    other = RunFolder.create(tmp_path / "other", Run.of({"env": HOSTILE, "steps": 1000}))
    other.metrics.write_bytes((hostile / "metrics.jsonl").read_bytes())
    other.__exit__()
    watcher = RunWatcher([hostile, other.path])
    watcher.refresh()
    words = require_text(write_page(watcher, tmp_path / "both.html"))
    assert NAME in words and HOSTILE in words


def test_the_page_of_a_sweep(tmp_path: Path) -> None:
    run = Run.of({"env": HOSTILE, "steps": 1000})
    plan = SweepPlan({"agent.lr": "log(1e-4,1e-2)"}, 2, (0,), (), "median")
    folder = SweepFolder.create(tmp_path / NAME, run, plan)
    folder.write_best(run)
    row = {"params": {"agent.lr": 1e-3, HOSTILE: HOSTILE}, "scores": [1.0]}
    trials = [
        row | {"number": 0, "state": "complete", "value": 1.0, "values": {"9": 1.0}, "why": ""},
        row | {"number": 1, "state": "fail", "value": None, "values": {}, "why": HOSTILE},
    ]
    results = {"trials": trials, "winner": 0, "verdict": HOSTILE, "importance": {}}
    folder.write_results(results | {"confirmed": {}})
    words = require_text(write_sweep_report(folder))
    assert words.count(HOSTILE) >= 5


def test_terminals(hostile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(width=1000, record=True, file=io.StringIO())
    console.print(Screen([hostile]).render(0, keys=False))
    shown = console.export_text()
    assert f"{NAME} failed: {HOSTILE}" in shown and f"{HOSTILE} 100%" in shown
    assert f"dqn on {HOSTILE}, at 200 of 1,000, failed: {HOSTILE}" in describe_run(hostile)
    print_table(("pair",), [(HOSTILE,)])
    assert HOSTILE in capsys.readouterr().out


def test_the_panel_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    display = Display(HOSTILE, 100, 0)
    display.console = Console(width=1000, record=True, file=io.StringIO())

    class Panel:
        def update(self, drawn: Any) -> None:
            display.console.print(drawn)

    monkeypatch.setattr(display, "live", Panel())
    display.show(50, {HOSTILE: HOSTILE}, HOSTILE)
    assert display.console.export_text().count(HOSTILE) == 4


def test_the_card_of_a_packed_run(hostile: Path) -> None:
    folder, run = RunFolder.open(hostile)
    rows = [json.loads(line) for line in folder.metrics.read_text().splitlines()]
    settings = (hostile / "config.yaml").read_text()
    content = Card(
        run, folder.about, rows, settings, HOSTILE, HOSTILE, HOSTILE, evaluation=[HOSTILE]
    )
    page = MarkdownIt("commonmark", {"html": True}).enable("table").render(card(content))
    assert "<script" not in page and "<img src=//" not in page and "</title" not in page
    assert page.count("alert(") >= 5  # all of it is there, as text


def test_tags_of_tensorboard(tmp_path: Path) -> None:
    events = EventFile(tmp_path / "board")
    events.add({"kind": "train", "step": 1, HOSTILE: 3.0})
    events.flush()
    events = list(EventFileLoader(str(events.path)).Load())
    assert [value.tag for event in events for value in event.summary.value] == [f"train/{HOSTILE}"]
    # numbers, no texts or plugins of one's own
    assert not any(value.metadata.plugin_data.plugin_name not in ("", "scalars")
                   for event in events for value in event.summary.value)  # fmt: skip


def test_a_callbacks_metric(small_run: Callable[..., Run], tmp_path: Path) -> None:
    class Adds(ten.Callback):
        def on_log(self, training: Any, row: dict[str, Any]) -> None:
            row[HOSTILE] = 1.0

    train(small_run(steps=80, eval_every=0), tmp_path / "run", quiet=True, callbacks=[Adds()])
    assert "evil.example" in require_text(tmp_path / "run" / "report.html")

"""Pages as data: what a browser is given to draw, side by side or alone, and nothing but text of
what others named. What it makes of them is `test_browser`."""

import errno
import fcntl
import html
import io
import json
import os
import pty
import re
import signal
import struct
import sys
import termios
import threading
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import tenfold as ten
from tenfold.cli.results import write_page
from tenfold.config.run import Run
from tenfold.core.errors import UserError
from tenfold.runs.charts import Chart, Line
from tenfold.runs.folder import RunFolder
from tenfold.runs.page import Link, Section, as_json, chart, intervals, page, table
from tenfold.runs.seeds import SeedsFolder
from tenfold.runs.storage import FolderLock
from tenfold.training.display import sparkline
from tenfold.training.loop import resume as train_on
from tenfold.training.loop import train
from tenfold.training.watch import RunWatcher, Screen, activity, locked_inodes, watch_runs

NASTY = '<img src=x onerror="alert(1)">&[red]'


class Reader(HTMLParser):
    """Tags with their attributes, and every chart's data."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.charts: list[dict[str, Any]] = []
        self.words, self.inside = "", ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        kind = dict(attrs).get("type")
        self.inside = (
            "data" if kind == "application/json" else tag if tag in ("script", "style") else ""
        )

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside == "data":
            self.charts.append(json.loads(data))
        elif not self.inside:
            self.words += data


def written(path: Path, rows: list[dict[str, Any]]) -> None:
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def rows_of(gain: float, seed: int = 0, steps: int = 1000) -> list[dict[str, Any]]:
    """A run that gets better by `gain` a step."""
    rng, rows = np.random.default_rng(seed), []
    for step in range(100, steps + 1, 100):
        value = gain * step + float(rng.normal(0, 5))
        rows.append({"kind": "episode", "step": step, "env": 0, "return": value, "length": 9})
        shares = {"env": 0.25, "update": 0.75}
        timing = {"seconds": 1.0, "steps_per_second": 50.0, "shares": shares}
        more = {"episodes": step // 100, "return": value, "loss": 1 / step, NASTY: 1.0}
        rows.append({"kind": "train", "step": step, "updates": step, **more, "timing": timing})
        if step % 200 == 0:
            judged = {"episodes": 5, "mean_return": value, "std_return": 2.0}
            rows.append({"kind": "eval", "step": step, **judged})
    return rows


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """Two experiments of five seeds each, one much better than the other, in a folder with a name
    that is markup."""
    home = tmp_path / NASTY.replace("/", "")
    home.mkdir()
    for name, gain, lr in (("good", 1.0, 1e-3), ("bad", 0.1, 2e-3)):
        run = Run.of({"env": "CartPole-v1", "steps": 1000, "agent": {"lr": lr}})
        folder = SeedsFolder.create(home / f"{name}<b>", run, (0, 1, 2, 3, 4))
        for seed in folder.seeds:
            RunFolder.create(folder.member(seed), folder.run_of(seed)).__exit__()
            written(folder.member(seed), rows_of(gain, seed))
        assert folder.lock
        folder.lock.release()
    return home


def test_a_chart_is_data_that_no_name_in_it_can_leave() -> None:
    drawn = Chart("</script><script>alert(1)</script>", [Line("<b>&", [1, 2], [np.nan, 1 / 3])])
    text = as_json(drawn)
    assert not set("<>&") & set(text) and json.loads(text)["title"] == drawn.title
    (line,) = json.loads(text)["lines"]
    assert line["y"] == [None, 0.333333] and line["name"] == "<b>&"
    found = Reader(page("x", [Section("", chart(drawn))]).decode())
    assert [tag for tag, _ in found.tags].count("script") == 2 and len(found.charts) == 1


def test_a_page_allows_nothing_but_its_own_script() -> None:
    import base64
    import hashlib

    text = page(NASTY, [Section(NASTY, table({NASTY: Link(NASTY, "javascript:alert(1)")}))])
    found = Reader(text.decode())
    policy = next(own["content"] for tag, own in found.tags if "http-equiv" in own)
    assert policy and "default-src 'none'" in policy and "unsafe-eval" not in policy
    assert not [
        tag for tag, _ in found.tags if tag in ("img", "script", "b")
    ]  # no chart, no script
    assert found.words.count(NASTY) == 5  # title, heading, and three in the table's row
    (link,) = [own["href"] for tag, own in found.tags if tag == "a"]
    assert link == "javascript%3Aalert%281%29"  # a file's name, not a program
    drawn = page("x", [Section("", chart(Chart("", [])))]).decode()
    script = re.search(r"<script>(.*)</script>", drawn, re.DOTALL)
    assert script and "</script" not in script[1]
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    for pattern in (r"https?:", r"//[a-z]", r"@import", r"url\((?!#)"):
        assert not re.search(pattern, re.sub(r"//.*", "", drawn)), pattern


def test_intervals_stand_where_their_numbers_are() -> None:
    text = intervals([("a", 5.0, 4.0, 7.0)], 0.0, 10.0)
    assert "left:40.00%;width:30.00%" in text and '<b style="left:50.00%' in text
    assert "5.00 (4.00 to 7.00)" in text


def test_a_folder_of_experiments_is_compared(
    two: Path, here: Callable[..., Any], tmp_path: Path
) -> None:
    done = here("report", two)
    assert done.returncode == 0 and done.stdout == f"{two}/report.html\n", done.stderr
    found = Reader((two / "report.html").read_text())
    assert not [tag for tag, _ in found.tags if tag in ("img", "b") and "style" not in dict(_)]
    titles = [own["title"] for own in found.charts]
    assert "Sample efficiency: evaluation (greedy)" in titles and "Performance profiles" in titles
    course = next(own for own in found.charts if own["title"].startswith("Sample"))
    whole = {line["name"]: line for line in course["lines"] if line["style"] != "thin"}
    assert set(whole) == {"good<b>", "bad<b>"} and len(course["lines"]) == 2 + 10
    xs = course["xs"][whole["good<b>"]["x"]]
    assert xs == [200, 400, 600, 800, 1000]
    # each seed's last evaluation, the middle two of four
    last = sorted(rows_of(1.0, seed)[-1]["mean_return"] for seed in range(5))
    assert whole["good<b>"]["y"][-1] == pytest.approx(sum(last[1:4]) / 3, rel=1e-4)
    assert last[0] < whole["good<b>"]["low"][-1] < whole["good<b>"]["high"][-1] < last[4]
    for words in ("agent.lr", "0.002", "good<b> over bad<b>1.00 (1.00 to 1.00)", "5 seeds"):
        assert words in found.words, words
    assert "update 75.0% · env 25.0%" in found.words
    assert NASTY in titles  # a column's name


def test_a_page_goes_where_it_is_told_and_over_nothing_else(
    two: Path, here: Callable[..., Any], tmp_path: Path
) -> None:
    one, other = sorted(path for path in two.iterdir() if path.is_dir())
    assert here("report", one, other).stdout == "report.html\n"
    assert here("report", one / "seed-0", "--out", "mine.html").stdout == "mine.html\n"
    assert not (one / "seed-0" / "report.html").exists()
    assert here("report", one, "--out", "mine.html").returncode == 0  # ours
    (tmp_path / "notes.html").write_text("mine")
    refused = here("report", one, "--out", "notes.html")
    assert refused.returncode == 2 and "is no report of tenfold" in refused.stderr
    assert (tmp_path / "notes.html").read_text() == "mine"
    assert "is a folder: name a file" in here("report", one, "--out", ".").stderr
    assert "there is no folder away" in here("report", one, "--out", "away/x.html").stderr
    (tmp_path / "empty").mkdir()
    assert "is not a tenfold run, and holds none" in here("report", "empty").stderr
    assert "--live = 0 is out of range" in here("report", one, "--live", "0").stderr
    assert "is not being trained" not in here("report", one, "--live").stdout


def test_a_page_that_cannot_be_put_there_is_one_sentence_that_names_a_way_out(
    two: Path, here: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = two / "bad<b>" / "seed-0"
    (run / "report.html").mkdir()
    done = here("report", run)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "is a folder, where the page goes" in done.stderr and "--out FILE" in done.stderr
    assert here("report", run, "--out", "mine.html").returncode == 0

    def refuse(path: Path, content: bytes) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    (run / "report.html").rmdir()
    monkeypatch.setattr("tenfold.runs.report.replace_file", refuse)
    done = here("report", run)
    words = f"{run / 'report.html'} cannot be written (Read-only file system): --out FILE puts"
    assert done.returncode == 2 and words in done.stderr


def test_runs_that_end_at_different_steps_are_compared_where_all_have_been(two: Path) -> None:
    """And two runs have no interval."""
    run = Run.of({"env": "CartPole-v1", "steps": 1000})
    short = SeedsFolder.create(two / "short", run, (0, 1))
    for seed, gain in ((0, 2.0), (1, 4.0)):
        RunFolder.create(short.member(seed), short.run_of(seed)).__exit__()
        rows = [{"kind": "eval", "step": s, "episodes": 5, "std_return": 0.0} for s in (200, 400)]
        written(
            short.member(seed),
            [
                *rows_of(0.0, steps=400),
                *(row | {"mean_return": gain * row["step"]} for row in rows),
            ],
        )
    watcher = RunWatcher([two])
    watcher.refresh()
    found = Reader(write_page(watcher).read_text())
    ends = "bad<b> at step 1,000, good<b> at step 1,000, short at step 400"
    assert f"The runs end at different steps ({ends}): scores are those at step 400" in found.words
    (good,) = (line for line in re.findall(r"good<b>dqn.*?of 1,000([\d.]+)", found.words))
    assert 380 < float(good) < 420 and "of 1,0001,200.00" in found.words  # (2 + 4) / 2 · 400
    assert "No interval for short (2): it takes 5 runs." in found.words
    assert not re.search(r"short1,200 \(", found.words)
    (drawn,) = (one for one in found.charts if one["title"].startswith("Performance"))
    bands = {line["name"]: line["low"] is not None for line in drawn["lines"]}
    assert bands == {"bad<b>": True, "good<b>": True, "short": False}


def test_experiments_are_compared_by_successes_and_by_returns_never_by_both_in_one_number(
    two: Path,
) -> None:
    """An environment that tells of successes only when there are some: the better runs succeed in
    half of their episodes and return less, the others never do."""
    for number, member in enumerate(sorted((two / "good<b>").glob("seed-*"))):
        rows = rows_of(0.01, number)
        better = {"success_rate": 0.5, "merit": 0.4999, "mean_length": 100.0, "steps_to_goal": 90.0}
        written(member, [row | (better if row["kind"] == "eval" else {}) for row in rows])
    watcher = RunWatcher([two])
    watcher.refresh()
    found = Reader(write_page(watcher).read_text())
    assert re.search(r"good<b>dqn.*?of 1,00050\.0%, \d", found.words)
    by_success, by_return = found.words.split("Probability of improvement: success")[1].split(
        "Probability of improvement: return"
    )
    assert "good<b> over bad<b>1.00" in by_success and "bad<b> over good<b>1.00" in by_return
    assert "Scores: success" in found.words and "Scores: return" in found.words


def test_settings_are_told_by_what_differs_from_the_defaults(two: Path) -> None:
    from tenfold.runs.report import write_report

    text = write_report(*RunFolder.open(two / "bad<b>" / "seed-1")).read_text()
    rows = re.findall(r"<tr><td>([\w.]+)</td><td>(.*?)</td><td>(.*?)</td></tr>", text)
    told = {name: (here, default) for name, here, default in rows}
    assert told == {"agent.lr": ("0.002", "0.0005")}
    for name, value in (("env", "CartPole-v1"), ("agent.name", "dqn"), ("seed", "1")):
        assert (
            f"<tr><th>{name}</th><td>{value}</td></tr>" in text
        )  # the run, which is no difference
    assert "agent.gamma" not in told and "gamma: 0.99" in text  # among all, as YAML


# runs that go on


def test_a_run_goes_on_where_its_lock_is_held_and_nobody_is_disturbed(two: Path) -> None:
    member = two / "good<b>" / "seed-2"
    assert locked_inodes() is not None and activity(member, locked_inodes()) == "stopped"
    with FolderLock(member):
        assert activity(member, locked_inodes()) == "running"
    with FolderLock(two / "good<b>"):  # the experiment's: its rows come from elsewhere, or not yet
        assert activity(member, locked_inodes()) == "running"
        os.utime(member / "metrics.jsonl", (0, 0))
        assert activity(member, locked_inodes()) == "waiting"
        assert activity(two / "good<b>" / "seed-9", locked_inodes()) == "waiting"
    assert activity(member, locked_inodes()) == "stopped"
    assert activity(member, None) == "stopped"  # the kernel tells nothing, and the row is old
    os.utime(member / "metrics.jsonl")
    assert activity(member, None) == "running"


def test_a_live_page_is_written_again_until_the_run_ends(
    two: Path, here: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    member = two / "good<b>" / "seed-0"
    written(member, rows_of(1.0, 0, steps=500))
    lock, pages = FolderLock(member), []

    def wait(seconds: float, called: Callable[[], bool]) -> None:
        pages.append((member / "report.html").read_text())
        written(member, rows_of(1.0, 0, steps=500 + 250 * len(pages)))

    monkeypatch.setattr("tenfold.cli.results.wait", wait)
    done = here("report", member, "--live", "3")
    lock.release()
    assert done.returncode == 0 and done.stdout == f"{member}/report.html\n"
    pages.append((member / "report.html").read_text())
    assert [re.findall(r'data-live="(\d)"', text) for text in pages] == [["3"], ["3"], ["0"]]
    ends = [max(Reader(text).charts[0]["xs"][0]) for text in pages]
    assert ends == [500, 700, 1000]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_live_page_as_one_that_stays(
    two: Path, here: Callable[..., Any], number: int
) -> None:
    member = two / "good<b>" / "seed-0"
    written(member, rows_of(1.0, 0, steps=500))
    with FolderLock(member):
        signalling = threading.Timer(0.5, lambda: os.kill(os.getpid(), number))
        signalling.start()
        done = here("report", member, "--live", "60")
        signalling.join()
    assert done.returncode == 0 and 'data-live="0"' in (member / "report.html").read_text()


def test_the_screen_shows_every_run_and_what_is_new(two: Path) -> None:
    screen, member = Screen([two]), two / "good<b>" / "seed-0"

    def shown(height: int = 60) -> str:
        console = Console(width=200, height=height, record=True, file=io.StringIO())
        console.print(screen.render(height))
        return console.export_text()

    text = shown()
    assert "10 finished" in text and text.count("1,000") == 10 and "good<b> seed-0" not in text
    assert "good<b> seed 0" in text and "update 75% env 25%" in text and "▁" in text
    lock = FolderLock(member)
    written(member, rows_of(1.0, 0, steps=400))
    screen.refresh()
    written(member, rows_of(1.0, 0, steps=600))
    screen.refresh()
    text = shown()
    assert "1 running" in text and "good<b> seed 0  running at step 400" in text
    assert "good<b> seed 0  evaluated at step 600: " in text
    lock.release()
    screen.refresh()
    assert "stopped at step 600" in shown()
    assert "runs 1 to 3 of 10" in shown(height=16)
    screen.first += 2
    assert "runs 3 to 5 of 10" in shown(height=16)


def test_names_move_no_cursor(tmp_path: Path) -> None:
    path = tmp_path / "a\x1b[2Jb"
    RunFolder.create(path, Run()).__exit__()
    written(path, rows_of(1.0))
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(Screen([path]).render(0))
    assert "a\N{REPLACEMENT CHARACTER}[2Jb" in console.export_text()


def test_a_curve_in_a_line() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7]) == "▁▂▃▄▅▆▇█"
    assert sparkline([5, 5]) == "▁▁" and sparkline([]) == "" and len(sparkline(range(999))) == 24


def test_watch_prints_one_screen_where_there_is_no_terminal(
    two: Path, here: Callable[..., Any]
) -> None:
    before = {path: path.stat().st_mtime_ns for path in two.rglob("*")}
    done = here("watch", two)
    assert done.returncode == 0 and "10 finished" in done.stdout and "bad<b> seed 4" in done.stdout
    assert {path: path.stat().st_mtime_ns for path in two.rglob("*")} == before


class Breaks(ten.Callback):
    def on_log(self, training: Any, row: dict[str, Any]) -> None:
        raise ValueError("no [red]more[/red] <b>disk")


def test_a_run_that_failed_is_told_with_its_sentence_until_it_goes_on(
    small_run: Callable[..., Run], here: Callable[..., Any]
) -> None:
    run = small_run(eval_every=0)
    with pytest.raises(UserError):
        train(run, "runs/one", quiet=True, callbacks=[Breaks()])
    words = "Breaks.on_log raised ValueError: no [red]more[/red] <b>disk in test_reports.py, line"
    shown = here("watch", "runs/one").stdout
    assert "1 failed" in shown and f"one failed: {words}" in shown and "stopped" not in shown
    assert f"at 0 of 600, failed: {words}" in here("list").stdout
    here("report", "runs/one")
    page = Path("runs/one/report.html").read_text()
    assert html.escape(words) in page and "<b>disk" not in page
    train_on("runs/one", quiet=True)
    assert "1 finished" in here("watch", "runs/one").stdout


def test_no_column_is_cut_where_a_window_is_narrow_and_none_left_out_where_there_is_none(
    two: Path, here: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    (two / "good<b>").rename(two / f"{'long-' * 9}name")
    narrow = Console(width=80, record=True, file=io.StringIO())
    narrow.print(Screen([two]).render(0, keys=False, width=80))
    text = narrow.export_text()
    assert "…" not in text and "1,000" in text and "finished" in text
    assert all(len(line) <= 80 for line in text.splitlines())
    assert re.search("bad<b> seed 0 +1,000 +[0-9]+.[0-9]", text)
    monkeypatch.setenv("COLUMNS", "60")
    whole = here("watch", two).stdout
    assert f"{'long-' * 9}name seed 0 " in whole and "update 75% env 25%" in whole


def test_q_ends_watching_and_leaves_the_terminal_as_it_was(
    two: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, follower = pty.openpty()
    fcntl.ioctl(leader, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 160, 0, 0))
    before, seen, typed = termios.tcgetattr(follower), [], []

    def read() -> None:
        while not seen or b"\x1b[?1049l" not in seen[-1]:
            seen.append(os.read(leader, 2**16))
            if b"q quits" in b"".join(seen) and not typed:
                typed.append(os.write(leader, b"jq"))  # one line down, then the end

    files = {path: path.stat().st_mtime_ns for path in two.rglob("*")}
    with os.fdopen(follower, "r+b", buffering=0) as raw, io.TextIOWrapper(raw) as terminal:
        for name in ("stdin", "stdout"):
            monkeypatch.setattr(sys, name, terminal)
        for name, value in (("TERM", "xterm"), ("COLUMNS", "160"), ("LINES", "30")):
            monkeypatch.setenv(name, value)
        reader = threading.Thread(target=read)
        reader.start()
        watch_runs([two])
        terminal.flush()
        reader.join(20)
        monkeypatch.undo()
        assert termios.tcgetattr(terminal) == before
    os.close(leader)
    shown = b"".join(seen).decode()
    assert "good<b> seed 4" in shown and "10 finished" in shown and "q quits" in shown
    assert shown.index("\x1b[?1049h") < shown.index("\x1b[?1049l")  # the other screen, and back
    assert {path: path.stat().st_mtime_ns for path in two.rglob("*")} == files


def test_folders_that_appear_join_those_that_are_looked_at(two: Path) -> None:
    watcher = RunWatcher([two])
    assert [group.name for group in watcher.refresh()] == ["bad<b>", "good<b>"]
    RunFolder.create(two / "new", Run()).__exit__()
    assert [group.name for group in watcher.refresh()] == ["bad<b>", "good<b>", "new"]


def test_a_folder_that_cannot_be_read_is_left_out_with_its_sentence_unless_it_was_named(
    two: Path, here: Callable[..., Any]
) -> None:
    RunFolder.create(two / "lost", Run()).__exit__()
    (two / "lost" / "config.yaml").unlink()
    assert here("report", two).returncode == 0
    found = Reader((two / "report.html").read_text())
    assert "Left out" in found.words and "has lost its config.yaml" in found.words
    assert "good<b>" in found.words
    named = here("report", two / "good<b>", two / "lost")
    assert named.returncode == 2 and "has lost its config.yaml" in named.stderr
    assert "10 finished" in here("watch", two).stdout

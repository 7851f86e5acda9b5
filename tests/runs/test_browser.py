"""Pages in a real browser: they load without a word on the console and without asking for anything,
curves are drawn, hovering shows values, toggles hide curves, zoom, scales and smoothing work; on a
phone, in the dark, printed; and no name in them is anything but text."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import Browser, found
from unpainted import PIXEL

from tenfold.config.run import Run
from tenfold.runs.charts import Chart, Line
from tenfold.runs.comparison import write_comparison
from tenfold.runs.folder import RunFolder
from tenfold.runs.page import Section, bar, chart, charts, grid, image, intervals, page
from tenfold.runs.report import group_of_seeds
from tenfold.runs.seeds import SeedsFolder

pytestmark = pytest.mark.skipif(
    not found(), reason="no browser is installed here (Debian: apt-get install chromium)"
)
NASTY = "<img src=x onerror=\"document.title='gone'\"><script>document.title='gone'</script>"
STEPS = np.arange(0, 1001, 10)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as started:
        yield started


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A large chart of a straight line from 0 to 2000 with a band, a level one, three thin ones and
    one named like an attack; a small one; and everything else a page may hold."""
    thin = [Line(f"seed {k}", STEPS, 100.0 * k + STEPS, None, 0, "thin", "mine") for k in range(3)]
    lines = [
        *thin,
        Line("straight", STEPS, 2.0 * STEPS, (2.0 * STEPS - 50, 2.0 * STEPS + 50), 0, "", "mine"),
        Line("level", STEPS, np.full(len(STEPS), 500.0), None, 1, "", "other"),
        Line(NASTY, STEPS, np.full(len(STEPS), 600.0), None, 2, "dash", NASTY),
    ]
    bars = Line("bars", [0, 1, 2, 2], [0.0, 0.25, 0.75, 0.0], None, 3, "steps")
    wide = grid([f"a column with a long name {k}" for k in range(12)], [range(12)])
    path = tmp_path_factory.mktemp("pages") / "page.html"
    sections = [
        Section(NASTY, chart(Chart("returns", lines, "environment steps", "return"))),
        Section("", charts([Chart(NASTY, [bars], NASTY, NASTY, small=True)])),
        Section("Time", bar({NASTY: 0.7, "env": 0.3})),
        Section("Scores", intervals([(NASTY, 1.0, 0.5, 1.5), ("b", 2.0, 1.5, 3.0)], 0.0, 4.0)),
        Section("Table", wide + image(PIXEL, "a pixel")),
    ]
    path.write_bytes(page(NASTY, sections))
    return path


@pytest.fixture
def opened(browser: Browser, written: Path) -> Browser:
    browser.complaints.clear()
    browser.asked.clear()
    browser.window(1000, 900)
    browser.appear()
    browser.open(written)
    browser.run("sessionStorage.clear()")
    browser.open(written)
    return browser


FIGURE = "document.querySelector('figure.chart')"


def names(browser: Browser) -> list[str]:
    """Of the curves that are drawn on the first chart."""
    return browser.run(
        f"[...{FIGURE}.querySelectorAll('path.curve')].map((path) => path.dataset.name)"
    )


def ticks(browser: Browser, along: str) -> list[str]:
    """The words beside an axis of the first chart, without its name."""
    kind = {"y": "end", "x": "middle"}[along]
    return browser.run(
        f"[...{FIGURE}.querySelectorAll('.axes text[text-anchor={kind}]')]"
        ".map((text) => text.textContent).filter((words) => /^[-\\d.]+(e-?\\d+)?[kMG]?$/.test(words))"
    )


def place(browser: Browser, x: float, y: float) -> tuple[float, float]:
    """In the window, of shares of the first chart's inner rectangle."""
    box = browser.run(
        f"(() => {{ const one = {FIGURE}.querySelector('clipPath rect'), "
        f"svg = {FIGURE}.querySelector('svg').getBoundingClientRect(); "
        "return [svg.left + +one.getAttribute('x'), svg.top + +one.getAttribute('y'), "
        "+one.getAttribute('width'), +one.getAttribute('height')]; })()"
    )
    return box[0] + x * box[2], box[1] + y * box[3]


def press(browser: Browser, words: str, within: str = FIGURE) -> None:
    browser.run(
        f"[...{within}.querySelectorAll('button')]"
        f".find((one) => one.textContent.trim() === {json.dumps(words)}).click()"
    )


def tip(browser: Browser) -> str:
    return browser.run(
        f"(() => {{ const tip = {FIGURE}.querySelector('.tip'); return tip.hidden ? '' : tip.innerText; }})()"
    )


def test_a_page_loads_in_silence_and_draws_every_curve(opened: Browser, written: Path) -> None:
    assert opened.complaints == []
    outside = [url for url in opened.asked if not url.startswith("data:")]
    assert set(outside) == {written.as_uri()}
    assert sorted(names(opened)) == sorted(
        ["seed 0", "seed 1", "seed 2", "straight", "level", NASTY]
    )
    points = opened.run(
        f"{FIGURE}.querySelector('path[data-name=straight]').getAttribute('d').split('L').length"
    )
    assert points == len(STEPS) and ticks(opened, "x")[-1] == "1k" and "2k" in ticks(opened, "y")
    assert opened.run("document.querySelectorAll('.band').length") == 1
    step = opened.run("document.querySelectorAll('path.curve.steps')[0].getAttribute('d')")
    assert step.count("H") == step.count("V") == 3


def test_names_are_text_wherever_they_stand(opened: Browser) -> None:
    assert opened.run("document.title") == NASTY
    assert opened.run("document.querySelectorAll('img').length") == 1  # ours
    assert opened.run("document.querySelectorAll('script:not([type])').length") == 1
    whole = opened.run("document.body.innerText")
    # heading, title of the page, toggle of the run, its line, a bar, an interval, a chart's title
    assert whole.count(NASTY) >= 7


def test_hovering_shows_the_values_there(opened: Browser) -> None:
    opened.mouse("mouseMoved", *place(opened, 0.5, 0.5))
    words = tip(opened)
    assert "environment steps 500" in words and "straight 1,000 (950 to 1,050)" in words
    assert "level 500" in words and f"{NASTY} 600" in words
    opened.mouse("mouseMoved", *place(opened, 0.5, 0.63))  # of -134 to 2134: 705
    assert "seed 2 700" in tip(opened) and "seed 0" not in tip(opened)
    opened.mouse("mouseMoved", 5, 5)
    assert tip(opened) == ""


def test_toggles_hide_a_curve_a_run_and_each_of_many(opened: Browser) -> None:
    press(opened, "level")
    assert "level" not in names(opened) and "straight" in names(opened)
    opened.mouse("mouseMoved", *place(opened, 0.5, 0.5))
    assert "level" not in tip(opened)
    press(opened, "level")
    assert "level" in names(opened)
    bar = "document.getElementById('controls')"
    press(opened, "each run", bar)
    assert not [name for name in names(opened) if name.startswith("seed")]
    press(opened, "mine", bar)
    assert sorted(names(opened)) == sorted(["level", NASTY])
    assert float(ticks(opened, "y")[-1]) <= 610  # the scale follows what is left


def test_a_drag_zooms_and_two_clicks_show_everything(opened: Browser) -> None:
    opened.drag(place(opened, 0.25, 0.5), place(opened, 0.5, 0.5))
    shown = [float(words) for words in ticks(opened, "x")]
    assert min(shown) >= 250 and max(shown) <= 500 and len(shown) > 1
    assert float(ticks(opened, "y")[-1].replace("k", "e3")) <= 1100  # up to 1050 there
    opened.drag(place(opened, 0.2, 0.2), place(opened, 0.8, 0.6))  # a box
    box = [float(words.replace("k", "e3")) for words in ticks(opened, "y")]
    assert min(box) > 300 and max(box) < 1000
    here = place(opened, 0.5, 0.5)
    for count in (1, 2):
        opened.mouse("mousePressed", *here, "left", count)
        opened.mouse("mouseReleased", *here, "left", count)
    assert ticks(opened, "x")[-1] == "1k"


def test_scales_and_smoothing_change_the_curves(opened: Browser) -> None:
    press(opened, "log y")
    assert ticks(opened, "y") == ["10", "100", "1k"]
    press(opened, "log x")
    assert ticks(opened, "x") == ["10", "100", "1k"]
    press(opened, "log x")
    press(opened, "log y")
    assert ticks(opened, "y")[0] == "0"
    slider = "document.querySelector('#controls input')"
    opened.run(f"{slider}.value = 0.9; {slider}.oninput()")
    opened.mouse("mouseMoved", *place(opened, 1.0, 0.5))
    # an exponential mean of 0, 20, …, 2000, each 0.9 of the next one's weight
    weights = 0.9 ** np.arange(len(STEPS))[::-1]
    expected = float((weights * 2.0 * STEPS).sum() / weights.sum())
    (shown,) = re.findall(r"straight ([\d,.]+)", tip(opened))
    assert float(shown.replace(",", "")) == pytest.approx(expected, rel=1e-4)


def test_a_level_curve_is_drawn_on_a_scale_around_it(opened: Browser) -> None:
    """Also smoothed, where its values differ in their last digits."""
    for words in ("each run", "mine", NASTY):
        press(opened, words, "document.getElementById('controls')")
    assert names(opened) == ["level"]
    slider = "document.querySelector('#controls input')"
    opened.run(f"{slider}.value = 0.5; {slider}.oninput()")
    assert ticks(opened, "y") == ["300", "400", "500", "600", "700"]  # half of it below and above
    assert opened.complaints == []


def test_what_was_chosen_is_kept_when_a_page_is_read_again(opened: Browser, written: Path) -> None:
    press(opened, "level")
    opened.open(written)
    assert "level" not in names(opened)


@pytest.mark.parametrize(("width", "phone"), [(360, True), (1400, False)])
def test_nothing_sticks_out_of_a_phone_or_a_large_window(
    width: int, phone: bool, opened: Browser, written: Path
) -> None:
    opened.window(width, 700, phone)
    opened.open(written)
    assert opened.run("document.documentElement.scrollWidth") <= width
    inner = opened.run(f"{FIGURE}.querySelector('clipPath rect').getAttribute('width')")
    assert 0.6 * width < float(inner) < width or width > 1152  # the page is no wider than it reads


def test_the_dark_and_the_printed_page_have_colours_of_their_own(opened: Browser) -> None:
    def colours() -> list[str]:
        return opened.run(
            "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color,"
            f" getComputedStyle({FIGURE}.querySelector('path[data-name=straight]')).stroke]"
        )

    light = colours()
    assert light[0] == "rgb(255, 255, 255)"
    opened.appear("dark")
    dark = colours()
    assert all(one != other for one, other in zip(light, dark, strict=True))
    opened.appear("dark", "print")
    assert colours() == light  # paper is white
    assert opened.run("getComputedStyle(document.getElementById('controls')).display") == "none"
    assert opened.printed().startswith(b"%PDF")


def test_the_page_of_experiments_is_drawn_whole(browser: Browser, tmp_path: Path) -> None:
    groups = []
    for name, gain in (("a", 1.0), ("b", 0.5)):
        run = Run.of({"env": "CartPole-v1", "steps": 1000})
        folder = SeedsFolder.create(tmp_path / name, run, (0, 1, 2))
        for seed in folder.seeds:
            RunFolder.create(folder.member(seed), folder.run_of(seed)).__exit__()
            rows: list[dict[str, Any]] = []
            for step in range(100, 1001, 100):
                value = gain * step + 20 * seed
                rows.append(
                    {"kind": "episode", "step": step, "env": 0, "return": value, "length": 9}
                )
                timing = {"steps_per_second": 10.0, "shares": {"env": 1.0}}
                more = {"episodes": 1, "return": value, "kl": 0.1, "entropy": 1.0, "loss": 1 / step}
                rows.append({"kind": "train", "step": step, "updates": 1, **more, "timing": timing})
            text = "".join(json.dumps(row) + "\n" for row in rows)
            (folder.member(seed) / "metrics.jsonl").write_text(text)
        groups.append(group_of_seeds(folder, name=name))
    browser.complaints.clear()
    browser.window(1000, 900)
    browser.open(write_comparison(groups, tmp_path / "report.html"))
    assert browser.complaints == []
    drawn = browser.run(
        "[...document.querySelectorAll('figure.chart')].map((one) => +one.dataset.lines)"
    )
    # the curves of two groups of three, the profiles, loss, KL, entropy, two histograms, speed
    assert drawn == [8, 2, 2, 2, 2, 2, 2, 2]
    assert browser.run("document.querySelectorAll('.track').length") == 4 * 2 + 1


def test_a_live_page_follows_its_file_and_keeps_what_was_chosen(
    browser: Browser, tmp_path: Path
) -> None:
    lines = [Line(name, [0, 1], [0.0, 1.0], None, k) for k, name in enumerate(("a", "b"))]
    drawn = [Section("", chart(Chart("returns", lines)))]
    path = tmp_path / "report.html"
    path.write_bytes(page("before", drawn, live=1))
    browser.complaints.clear()
    browser.open(path)
    press(browser, "a")
    browser.events.clear()
    path.write_bytes(page("after", drawn))
    browser.wait_for_load()
    assert browser.run("document.title") == "after" and names(browser) == ["b"]
    assert browser.complaints == []

"""The film on the docs' start page: what a terminal would show, at the times it showed it."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def film() -> ModuleType:
    spec = importlib.util.spec_from_file_location("film", DOCS / "film.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def letters(film: ModuleType, text: str) -> list[str]:
    terminal = film.Terminal()
    terminal.write(text)
    return ["".join(letter for letter, _ in line) for line in terminal.screen()]


def test_a_terminal_shows_what_was_written_last(film: ModuleType) -> None:
    # a panel of two lines, then the same two again after going up one and erasing
    assert letters(film, "one\r\ntwo\r\x1b[2K\x1b[1A\x1b[2KONE\r\nTWO") == ["ONE", "TWO"]
    assert letters(film, "12345\r\x1b[2Cx\x1b[K") == ["12x"]
    assert letters(film, "a\r\nb\r\nc\x1b[2A\x1b[J") == ["a"]
    assert letters(film, "a  \x1b[?25l \r\n") == ["a", ""]
    wide = letters(film, "w" * (film.WIDTH + 3))
    assert [len(line) for line in wide] == [film.WIDTH, 3]
    rows = letters(film, "\r\n".join(map(str, range(40))))
    assert rows[0] == str(40 - film.HEIGHT) and rows[-1] == "39"  # it scrolls
    with pytest.raises(ValueError, match="not known here: 5n"):
        letters(film, "\x1b[5n")


def test_colours_are_those_of_the_terminal(film: ModuleType) -> None:
    terminal = film.Terminal()
    terminal.write("\x1b[1;31ma\x1b[39mb\x1b[22mc\x1b[38;5;197md\x1b[0me")
    assert [look for _, look in terminal.screen()[0]] == ["b c1", "b", "", "x197", ""]
    # 197 = 16 + 36·5 + 6·0 + 1: red 255, green 0, blue 95
    assert film.colour_of(197) == "#ff005f" and film.colour_of(237) == "#3a3a3a"


def test_long_commands_are_shown_faster_and_waits_are_cut(film: ModuleType) -> None:
    short, speed = film.paced([(1.0, "a"), (30.0, "b")])
    assert speed == 1 and [at for at, _ in short] == pytest.approx([1.0, 1.0 + film.IDLE])
    long, speed = film.paced([(float(k), "x") for k in range(1, 35)])  # 34 s without a wait
    assert speed == pytest.approx(34 / film.LONGEST) and long[-1][0] == pytest.approx(film.LONGEST)


def test_frames_follow_one_another_at_their_times(film: ModuleType) -> None:
    shown = film.thinned(list(film.frames({"ls": [(0.5, "file & <more>\r\n")]})))
    texts = ["|".join("".join(c for c, _ in line) for line in one.screen) for one in shown]
    assert texts[0] == "$" and texts[-1] == "$ ls|file & <more>|"
    # typed: BEFORE, two letters; then half a second
    found = next(one for one, text in zip(shown, texts, strict=True) if "file" in text)
    assert found.at == pytest.approx(film.BEFORE + 2 * film.TYPING + 0.5)
    picture = ElementTree.fromstring(film.drawn(shown, "ls"))
    strip = picture.findall(".//*[@class='film']/*")
    assert len(strip) == len(shown)
    style = picture.findtext("{http://www.w3.org/2000/svg}style") or ""
    places = [float(p) for p in re.findall(r"([\d.]+)%\{transform", style)]
    seconds = shown[-1].at + film.HOLD
    assert places == pytest.approx([100 * one.at / seconds for one in shown], abs=0.01)
    assert "file & <more>" in "".join(picture.itertext())


def test_the_film_of_the_start_page_is_small_loads_nothing_and_can_stand_still(
    film: ModuleType,
) -> None:
    page = (DOCS / "index.md").read_text()
    for name in ("film.svg", "film-end.svg"):
        path = DOCS / "pictures" / name
        text = path.read_text()
        assert f'"pictures/{name}"' in page and path.stat().st_size < 300_000
        picture = ElementTree.fromstring(text)
        assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
        assert "<script" not in text and "url(" not in text
        title = picture.findtext("{http://www.w3.org/2000/svg}title") or ""
        assert all(command in title for command in film.COMMANDS)
        assert "prefers-reduced-motion" in text
    assert "(prefers-reduced-motion: reduce)" in page
    seconds = re.search(r"animation:film ([\d.]+)s", (DOCS / "pictures/film.svg").read_text())
    assert seconds and 30 < float(seconds[1]) <= 70

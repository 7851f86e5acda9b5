"""The builder of all pages: a title, sections, charts and pictures, self-contained. All text is
escaped: names and settings may hold any characters.

A page says itself that nothing may be loaded, and that no script may run but the one that draws its
charts (`Content-Security-Policy`).
"""

import base64
import hashlib
import html
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import yaml

from tenfold.config.notation import dotted, show
from tenfold.config.run import Run
from tenfold.config.schema import to_mapping
from tenfold.core.errors import UserError
from tenfold.runs.charts import Chart

GENERATOR = '<meta name="generator" content="tenfold">'
DIGITS = 6  # of a number on a page
FILMS = {".gif": "image/gif", ".mp4": "video/mp4"}
LARGEST_FILM = 8 * 2**20  # bytes; a larger one is linked
IDENTITY = ("env", "agent.name", "steps", "seed")  # settings that say which run it is
SHOWN = 0.02  # share of a bar from which on its name is written on it


@dataclass(frozen=True)
class Section:
    """A part of a page: its title ("" for none), and HTML made by the functions below."""

    title: str
    body: str


@dataclass(frozen=True)
class Link:
    """A link in a table cell or a paragraph."""

    text: Any
    to: str


@cache
def part(name: str) -> str:
    """The style or the script of every page."""
    return (Path(__file__).parent / name).read_text()


@cache
def policy() -> str:
    """The content security policy: no loading, and only the page's own script."""
    digest = base64.b64encode(hashlib.sha256(part("page.js").encode()).digest()).decode()
    return (
        "default-src 'none'; img-src data:; media-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'"
    )


def page(title: str, sections: Iterable[Section], live: float = 0.0) -> bytes:
    """`live`: seconds after which the page reloads its file."""
    bodies = [
        (f"<h2>{html.escape(section.title)}</h2>" if section.title else "") + section.body
        for section in sections
    ]
    head = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy()}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">{GENERATOR}'
        f"<title>{html.escape(title)}</title><style>{part('page.css')}</style></head>"
    )
    body = "\n".join(bodies)
    drawn = f"<script>{part('page.js')}</script>" if '<figure class="chart">' in body else ""
    text = (
        f'{head}\n<body data-live="{live:g}">\n<h1>{html.escape(title)}</h1>\n'
        f'<div id="controls"></div>\n{body}\n{drawn}</body></html>\n'
    )
    return text.encode(errors="replace")


def inline(value: Any) -> str:
    """A value as escaped text, a link as a link."""
    if isinstance(value, Link):
        return f'<a href="{quote(value.to)}">{html.escape(str(value.text))}</a>'
    return html.escape(str(value))


def table(cells: Mapping[Any, Any]) -> str:
    """Two columns: names and values."""
    lines = "".join(
        f"<tr><th>{inline(name)}</th><td>{inline(value)}</td></tr>" for name, value in cells.items()
    )
    return f"<table>{lines}</table>"


def grid(head: Sequence[Any], lines: Iterable[Sequence[Any]]) -> str:
    """A table with a header row."""
    names = "".join(f"<th>{inline(name)}</th>" for name in head)
    rows = "\n".join(
        f"<tr>{''.join(f'<td>{inline(value)}</td>' for value in line)}</tr>" for line in lines
    )
    return f'<div class="wide"><table class="grid"><tr>{names}</tr>\n{rows}</table></div>\n'


def image(picture: bytes, alt: str) -> str:
    """A PNG with its alternative text."""
    inside = base64.b64encode(picture).decode()
    source = f"data:image/png;base64,{inside}"
    return f'<p><img class="figure" alt="{html.escape(alt)}" src="{source}"></p>\n'


def film(path: Path, near: Path) -> str:
    """A GIF or an MP4, embedded unless it is large; `near` is the page's folder."""
    name = path.relative_to(near) if path.is_relative_to(near) else path
    if path.stat().st_size > LARGEST_FILM:
        return paragraph(Link(f"{name} ({path.stat().st_size / 2**20:.0f} MiB)", name.as_posix()))
    kind = FILMS[path.suffix]
    source = f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"
    element = (
        f'<img alt="{inline(name)}" src="{source}">'
        if kind.startswith("image")
        else f'<video controls loop muted playsinline src="{source}"></video>'
    )
    return f"<p>{element}<br>{inline(name)}</p>\n"


@dataclass
class SharedArrays:
    """Arrays that several lines share, each stored once."""

    kept: list[list[float | None]] = field(default_factory=list)
    indices: dict[bytes, int] = field(default_factory=dict)

    def index(self, values: Any) -> int:
        key = np.asarray(values, float).tobytes()
        if key not in self.indices:
            self.indices[key] = len(self.kept)
            self.kept.append(numbers(values))
        return self.indices[key]


def numbers(values: Any) -> list[float | None]:
    """Rounded numbers for JSON; None for values that are not finite."""
    values_rounded = [float(f"{value:.{DIGITS}g}") for value in np.asarray(values, float).tolist()]
    return [
        None if abs(v) == np.inf or v != v else int(v) if v == int(v) else v for v in values_rounded
    ]


def as_json(chart: Chart) -> str:
    """The data of a chart as JSON that is safe inside HTML."""
    xs = SharedArrays()
    lines = []
    for line in chart.lines:
        low, high = line.band or (None, None)
        lines.append(
            {
                "name": line.name,
                "run": line.run,
                "x": xs.index(line.x),
                "y": numbers(line.y),
                "low": None if low is None else numbers(low),
                "high": None if high is None else numbers(high),
                "colour": line.colour,
                "style": line.style,
            }
        )
    text = json.dumps(
        {
            "title": chart.title,
            "x": chart.x,
            "y": chart.y,
            "log": chart.log,
            "small": chart.small,
            "ticks": list(chart.ticks),
            "notes": [[float(x), float(y), label] for x, y, label in chart.notes],
            "bounds": chart.bounds,
            "xs": xs.kept,
            "lines": lines,
        },
        separators=(",", ":"),
    )
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def chart(drawn: Chart) -> str:
    """A chart to hover over, to zoom into and to hide lines of."""
    return (
        f'<figure class="chart"><script type="application/json">{as_json(drawn)}</script></figure>'
    )


def charts(drawn: Iterable[Chart]) -> str:
    """Small charts side by side."""
    return f'<div class="charts">{"".join(map(chart, drawn))}</div>\n'


def bar(shares: Mapping[str, float]) -> str:
    """Shares of a whole as a bar, the largest first, and as text."""
    ordered = sorted(shares.items(), key=lambda share: -share[1])
    spans = "".join(
        f'<span style="flex:{share:.4f};background:var(--c{number % 10})" '
        f'title="{inline(name)} {share:.1%}">{inline(name) if share >= SHOWN else ""}</span>'
        for number, (name, share) in enumerate(ordered)
    )
    return f'<div class="bar">{spans}</div>' + paragraph(*(f"{n} {s:.1%}" for n, s in ordered))


def intervals(
    rows: Sequence[tuple[str, float, float, float]],
    low: float,
    high: float,
    form: str = ",.2f",
    with_numbers: bool = True,
) -> str:
    """Numbers with their intervals, if any, on one scale; `with_numbers`: the intervals also as
    text."""
    span = high - low or 1.0

    def percent(value: float) -> str:
        return f"{min(max((value - low) / span, 0.0), 1.0):.2%}"

    body = ""
    for number, (name, middle, least, most) in enumerate(rows):
        colour = f"background:var(--c{number % 10})"
        bar = between = ""
        if least <= most:
            width = min(max((most - least) / span, 0.0), 1.0)
            bar = f'<i style="left:{percent(least)};width:{width:.2%};{colour}"></i>'
            between = f" ({least:{form}} to {most:{form}})" if with_numbers else ""
        body += (
            f'<span>{inline(name)}</span><span class="track">{bar}'
            f'<b style="left:{percent(middle)};{colour}"></b></span>'
            f"<span>{middle:{form}}{between}</span>"
        )
    return f'<div class="intervals">{body}</div>\n'


def paragraph(*items: Any) -> str:
    return f"<p>{' · '.join(map(inline, items))}</p>\n"


def preformatted(text: str) -> str:
    return f"<pre>{html.escape(text)}</pre>"


def folded(summary: str, body: str) -> str:
    """Content that is shown on demand."""
    return f"<details><summary>{inline(summary)}</summary>{body}</details>\n"


# what every page tells of runs


def settings_section(run: Run, more: Mapping[str, Any] | None = None) -> Section:
    """The run's identity, its settings that differ from the defaults, `more` about them, and all
    settings as YAML."""
    usual = dotted(to_mapping(Run.of({"env": run.env, "agent": {"name": run.agent.name}})))
    every = dotted(to_mapping(run))
    lines = [
        (name, show(value), show(usual.get(name, "")))
        for name, value in every.items()
        if name not in IDENTITY and value != usual.get(name)
    ]
    text = yaml.safe_dump(to_mapping(run), sort_keys=False)
    body = paragraph("The run") + table({name: show(every[name]) for name in IDENTITY})
    body += paragraph("Settings other than the defaults" + ": none." * (not lines))
    body += grid(["setting", "here", "default"], lines) if lines else ""
    body += table(more) if more else ""
    return Section("Settings", body + folded("all settings", preformatted(text)))


def origin_sections(about: Mapping[str, Any]) -> list[Section]:
    """Versions, machine and command, as `run.json` records them."""
    machine = about.get("versions", {}) | about.get("machine", {})
    return [
        Section("Versions and machine", table(machine)),
        Section("Command", preformatted(json.dumps(about.get("command", "")))),
    ]


def require_page(path: Path) -> Path:
    """Refuses to overwrite a file that is no page of tenfold, and a path without a folder."""
    if not path.parent.is_dir():
        raise UserError(f"--out {path} cannot be written: there is no folder {path.parent}.")
    if path.is_dir():
        raise UserError(f"--out {path} is a folder: name a file, such as {path / 'report.html'}.")
    if path.exists() and GENERATOR.encode() not in path.read_bytes()[:4096]:
        raise UserError(f"--out {path} exists and is no report of tenfold: name another file.")
    return path

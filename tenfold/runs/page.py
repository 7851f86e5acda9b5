"""ONE builder of pages: a title, sections, pictures inside, nothing to load from elsewhere."""

import base64
import html
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from tenfold.config.mappings import to_mapping
from tenfold.config.run import Run

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222;
       max-width: 60em; margin: 2em auto; padding: 0 1em }
img { max-width: 100% }
table { border-collapse: collapse }
td, th { padding: .2em 1em .2em 0; text-align: left; vertical-align: top }
pre { background: #f5f5f5; padding: 1em; overflow: auto }
"""


@dataclass(frozen=True)
class Section:
    """A part of a page: its title ("" for none), and HTML made by the functions below."""

    title: str
    body: str


@dataclass(frozen=True)
class Link:
    """In a cell of a table, or in a paragraph."""

    text: Any
    to: str


def page(title: str, sections: Iterable[Section]) -> bytes:
    parts = [
        (f"<h2>{html.escape(section.title)}</h2>" if section.title else "") + section.body
        for section in sections
    ]
    head = (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        f"<title>{html.escape(title)}</title><style>{STYLE}</style>"
    )
    body = "\n".join(parts)
    text = f"{head}\n<h1>{html.escape(title)}</h1>\n{body}</html>\n"
    return text.encode(errors="replace")


def inline(value: Any) -> str:
    """Anything as text, a link as a link."""
    if isinstance(value, Link):
        return f'<a href="{html.escape(value.to)}">{html.escape(str(value.text))}</a>'
    return html.escape(str(value))


def table(cells: Mapping[Any, Any]) -> str:
    """Two columns: names and what is said of them."""
    lines = "".join(
        f"<tr><th>{inline(name)}</th><td>{inline(value)}</td></tr>" for name, value in cells.items()
    )
    return f"<table>{lines}</table>"


def grid(head: Sequence[Any], lines: Iterable[Sequence[Any]]) -> str:
    """A table of any number of columns under their names."""
    names = "".join(f"<th>{inline(name)}</th>" for name in head)
    rows = "\n".join(
        f"<tr>{''.join(f'<td>{inline(value)}</td>' for value in line)}</tr>" for line in lines
    )
    return f"<table><tr>{names}</tr>\n{rows}</table>\n"


def image(picture: bytes, words: str) -> str:
    """A PNG, and what it shows for those who cannot see it."""
    inside = base64.b64encode(picture).decode()
    return f'<p><img alt="{html.escape(words)}" src="data:image/png;base64,{inside}"></p>\n'


def paragraph(*parts: Any) -> str:
    return f"<p>{' · '.join(map(inline, parts))}</p>\n"


def preformatted(text: str) -> str:
    return f"<pre>{html.escape(text)}</pre>"


def settings_section(run: Run, more: Mapping[str, Any] | None = None) -> Section:
    """All settings of a run as YAML, and what else there is to say about them."""
    text = yaml.safe_dump(to_mapping(run), sort_keys=False)
    return Section("Settings", preformatted(text) + (table(more) if more else ""))


def origin_sections(about: Mapping[str, Any]) -> list[Section]:
    """Where a result comes from, as `run.json` and its like tell it."""
    machine = about.get("versions", {}) | about.get("machine", {})
    return [
        Section("Versions and machine", table(machine)),
        Section("Command", preformatted(json.dumps(about.get("command", "")))),
    ]

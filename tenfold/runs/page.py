"""ONE builder of pages: a title, sections, pictures inside, nothing to load from elsewhere."""

import base64
import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#222}
img{max-width:100%}table{border-collapse:collapse}td,th{padding:.2em 1em .2em 0;text-align:left;vertical-align:top}
pre{background:#f5f5f5;padding:1em;overflow:auto}"""  # noqa: E501


@dataclass(frozen=True)
class Section:
    """A part of a page: its title ("" for none), and HTML made by the functions below."""

    title: str
    body: str


def page(title: str, sections: Sequence[Section]) -> bytes:
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


def table(cells: Mapping[Any, Any]) -> str:
    """Two columns: names and what is said of them."""
    lines = "".join(
        f"<tr><th>{html.escape(str(k))}</th><td>{html.escape(str(v))}</td></tr>"
        for k, v in cells.items()
    )
    return f"<table>{lines}</table>"


def image(picture: bytes, words: str) -> str:
    """A PNG, and what it shows for those who cannot see it."""
    inside = base64.b64encode(picture).decode()
    return f'<p><img alt="{html.escape(words)}" src="data:image/png;base64,{inside}"></p>\n'


def paragraph(text: str) -> str:
    return f"<p>{html.escape(text)}</p>\n"


def preformatted(text: str) -> str:
    return f"<pre>{html.escape(text)}</pre>"

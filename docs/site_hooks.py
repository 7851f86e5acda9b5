"""What the site adds to docs/: the repository's own pages, and a page for each file of code that a
page links to, so that every link works without a network and without the repository.

MkDocs calls `on_files` and `on_page_markdown`; links and blank lines are as GitHub reads them.
"""

import json
import re
from pathlib import Path
from posixpath import dirname, normpath
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
# pages outside of docs/, and what they are called here
OWN = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "bench/README.md": "measurements.md",
}
LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")
KINDS = {".py": "python", ".yml": "yaml", ".toml": "toml", ".txt": "text"}


def place(path: str) -> str:
    """Where a file of the repository is on the site."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return OWN.get(path) or ("index.md" if path == "README.md" else f"source/{path}.md")


def relinked(text: str, page: str, base: str = "docs") -> str:
    """Links of a page, from the place it has on the site. `base` is the folder that its links are
    written from."""

    def put(found: re.Match[str]) -> str:
        opening, link, anchor, closing = found.groups()
        if "://" in link:
            return found[0]
        up = "../" * page.count("/")
        return f"{opening}{up}{place(normpath(f'{base}/{link}'))}{anchor or ''}{closing}"

    return LINK.sub(put, text)


def on_files(files: Files, config: Any) -> Files:
    for name, here in OWN.items():
        text = relinked((ROOT / name).read_text(), here, base=dirname(name) or ".")
        files.append(File.generated(config, here, content=text))
    sources = set()
    for file in list(files.documentation_pages()):
        name = next((name for name, here in OWN.items() if here == file.src_uri), "")
        base = dirname(name) or "." if name else "docs"
        text = (ROOT / name).read_text() if name else file.content_string
        for _, link, _, _ in LINK.findall(text):
            path = None if "://" in link else normpath(f"{base}/{link}")
            if path and place(path).startswith("source/") and (ROOT / path).is_file():
                sources.add(path)
    for path in sorted(sources):
        text = notebook(path) if path.endswith(".ipynb") else fenced(path)
        files.append(File.generated(config, f"source/{path}.md", content=text))
    return files


FENCE = "~" * 8


def fenced(path: str) -> str:
    """A file of code as a page."""
    kind = KINDS.get(Path(path).suffix, "text")
    return f"# `{path}`\n\n{FENCE}{kind}\n{(ROOT / path).read_text()}\n{FENCE}\n"


def notebook(path: str) -> str:
    """A notebook as a page: its words and its code."""
    parts = []
    for cell in json.loads((ROOT / path).read_text())["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"{FENCE}python\n{text}\n{FENCE}")
    parts.insert(1, f"This is the notebook `{path}`: open it in Jupyter, or in an editor.")
    return "\n\n".join(parts) + "\n"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    uri = page.file.src_uri
    if uri.startswith("source/"):
        return markdown
    text = markdown if uri in OWN.values() else relinked(markdown, uri)
    return spaced(text)


def spaced(text: str) -> str:
    """A blank line before every list and table and after a comment: GitHub needs none, MkDocs
    does."""
    lines, fenced, before = [], False, ""
    for line in text.splitlines():
        code, fenced = fenced, fenced != line.startswith("```")
        item, table = re.match(r"(- |\d+\. )", line), line.startswith("|")
        follows = before.strip() and not before.startswith((" ", "#"))
        if (
            not code
            and follows
            and (
                (item and not re.match(r"(- |\d+\. )", before) and not inside(lines))
                or (table and not before.startswith("|"))
                or before.endswith("-->")
            )
        ):
            lines.append("")
        lines.append(line)
        before = line
    return "\n".join(lines) + "\n"


def inside(lines: list[str]) -> bool:
    """Whether the last lines are those of a list's item."""
    for line in reversed(lines):
        if not line.strip():
            return False
        if re.match(r"(- |\d+\. )", line):
            return True
    return False

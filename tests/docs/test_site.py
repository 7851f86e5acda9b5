"""The site: every page has a place in it, every public name a paragraph; built without warnings and
searched without a network."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import tenfold as ten

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


class Loader(yaml.SafeLoader):
    """Passes over what only MkDocs makes."""


Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)
SETTINGS = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader)  # a SafeLoader


def places(nav: list | dict | str) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    inner = nav.values() if isinstance(nav, dict) else nav
    return [place for part in inner for place in places(part)]


def test_every_page_has_one_place_in_the_site() -> None:
    generated = ["contributing.md", "changelog.md", "measurements.md"]
    pages = [page.name for page in DOCS.glob("*.md")]
    assert sorted(places(SETTINGS["nav"])) == sorted(pages + generated)


def test_every_example_is_listed() -> None:
    told = re.findall(r"\]\(\.\./examples/([\w.]+)\)", (DOCS / "examples.md").read_text())
    assert sorted(told) == sorted(path.name for path in (ROOT / "examples").glob("*.py"))


def test_every_public_name_has_its_paragraph() -> None:
    told = re.findall(r"^::: tenfold\.(\S+)$", (DOCS / "api.md").read_text(), re.MULTILINE)
    from tenfold import ops

    names = {f"{home}.{name}" for name, home in ten.HOMES.items()}
    names |= {f"ops.{home}.{name}" for name, home in ops.HOMES.items()}
    names |= {"nets.mlp"}
    assert sorted(told) == sorted(names)


def test_lists_tables_and_comments_get_the_blank_lines_that_mkdocs_needs() -> None:
    spec = importlib.util.spec_from_file_location("site_hooks", DOCS / "site_hooks.py")
    assert spec and spec.loader
    hooks = importlib.util.module_from_spec(spec)
    pytest.importorskip("mkdocs")
    spec.loader.exec_module(hooks)
    written = "so:\n- one\n  more\n- two\n\n<!-- x -->\n| a |\n|---|\n<!-- /x -->\n```\nno:\n- list\n```\n"
    read = "so:\n\n- one\n  more\n- two\n\n<!-- x -->\n\n| a |\n|---|\n<!-- /x -->\n\n```\nno:\n- list\n```\n"
    assert hooks.spaced(written) == read
    links = "[a](../examples/demo.py) [b](gpu.md#x) [c](https://a.b/c.md) [d](../CHANGELOG.md)"
    assert hooks.relinked(links, "index.md") == (
        "[a](source/examples/demo.py.md) [b](gpu.md#x) [c](https://a.b/c.md) [d](changelog.md)"
    )


@pytest.mark.slow  # builds the site; a browser looks into it
def test_the_site_is_built_without_warnings_and_searched_from_its_files(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert built.returncode == 0 and "WARNING" not in built.stderr, built.stderr
    for page in tmp_path.rglob("*.html"):
        loaded = re.findall(
            r'<(?:script|link|img|iframe)\b[^>]*"(https?://[^"]*)"', page.read_text()
        )
        assert not loaded, page
    assert (tmp_path / "source/examples/reinforce.py.html").is_file()
    browser = shutil.which("chromium")
    if browser is None:
        pytest.skip("there is no chromium: search was not tried")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=15000"]
    address = f"file://{tmp_path}/index.html?q=prioritised"
    dom = subprocess.run(
        [browser, *options, f"--user-data-dir={tmp_path}/browser", "--dump-dom", address],
        capture_output=True,
        text=True,
        timeout=120,
    ).stdout
    found = re.search(r'md-search-result__meta">\s*(\d+) matching', dom)
    assert found and int(found[1]) > 2 and "learning.html" in dom

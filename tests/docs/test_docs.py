"""README and docs: short enough, and every link in them leads somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").glob("*.md")),
]


def anchors(page: Path) -> set[str]:
    """What GitHub makes of headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_readme_is_about_one_screen() -> None:
    assert len((ROOT / "README.md").read_bytes()) <= 10_000


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" not in link:
            name, _, anchor = link.partition("#")
            target = page.parent / name if name else page
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), link


def test_every_page_is_linked_from_the_readme_or_a_page_it_links_to() -> None:
    linked = {
        link.partition("#")[0].removeprefix("docs/")
        for page in (ROOT / "README.md", ROOT / "docs" / "using.md")
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text())
    }
    assert {page.name for page in (ROOT / "docs").glob("*.md")} <= linked


def test_the_size_that_the_docs_say_is_the_size() -> None:
    from size import rooms, totals

    page = (ROOT / "docs" / "design.md").read_text()
    for name, count in totals(rooms()).items():
        said = re.search(rf"\*\*{name}\*\* \| \*\*([\d,]+)\*\*", page)
        assert said, name
        assert abs(int(said[1].replace(",", "")) - count) < 0.03 * count, "tests/size.py --write"

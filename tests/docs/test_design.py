"""What docs/design.md and docs/index.md say of the code is so."""

import ast
import re
from functools import cache
from pathlib import Path

from tenfold.core.registry import algorithms

ROOT = Path(__file__).parent.parent.parent
DESIGN = (ROOT / "docs" / "design.md").read_text()
WALK = DESIGN[DESIGN.index("## The walk") : DESIGN.index("## Size")]


@cache
def defined(file: Path) -> set[str]:
    """Functions and classes of a module, and Class.method."""
    found = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{n.name}" for n in node.body if isinstance(n, ast.FunctionDef)}
    return found


def test_every_name_of_the_walk_is_defined_in_the_file_before_it() -> None:
    file, checked = None, 0
    for token in re.findall(r"`([^`]+)`", WALK):
        if token.endswith(".py"):
            file = ROOT / "tenfold" / token
            assert file.is_file(), token
        elif re.fullmatch(r"[A-Za-z_][\w.]*", token):
            assert file and token in defined(file), (token, file)
            checked += 1
    assert checked > 50


def test_the_files_that_one_transition_opens_are_counted() -> None:
    """Each line of the walk names its path: whoever moves a function mends the line and its number."""
    counts = {}
    for path, count, steps in re.findall(
        r"^- \*\*(.+?)\*\*, (\d+) files: ((?:.+\n)+?)(?=- |\n)", WALK, re.M
    ):
        files = {token for token in re.findall(r"`([^`]+)`", steps) if token.endswith(".py")}
        assert int(count) == len(files), (path, len(files))
        counts[path] = len(files)
    paths = {
        f"{agent}, {engine}" for agent in ("dqn", "ppo", "sac") for engine in ("plain", "fused")
    }
    assert {*counts} == paths | {"argv to the loop"}


def test_every_room_and_link_of_the_page_is_there() -> None:
    rooms = re.findall(r"^\| `(\w+)/` \|", DESIGN[: DESIGN.index("| interface")], re.MULTILINE)
    assert {*rooms} == {path.parent.name for path in (ROOT / "tenfold").glob("*/__init__.py")}
    for link in re.findall(r"\]\((\.\./[^)#]+)\)", DESIGN):
        assert (ROOT / "docs" / link).exists(), link


def test_the_first_page_counts_the_algorithms() -> None:
    page = (ROOT / "docs" / "index.md").read_text()
    numbers = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    counted = re.search(r"there are (\w+) algorithms\s+\(([^)]+)\)", page)
    assert counted and counted[1] == numbers[len(algorithms())]
    assert set(re.findall(r"`(\w+)`", counted[2])) == {*algorithms()}

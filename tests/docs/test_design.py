"""What docs/design.md and docs/index.md say of the code is so."""

import ast
import re
import sys
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tenfold.config.run import Run
from tenfold.core.registry import algorithms
from tenfold.training.learners import make_learner

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


def walks() -> dict[str, tuple[int, set[str]]]:
    """The paths of the walk: the number that each tells, and its files."""
    lines = re.findall(r"^- \*\*(.+?)\*\*, (\d+) files: ((?:.+\n)+?)(?=- |\n)", WALK, re.M)
    return {
        path: (int(count), {t for t in re.findall(r"`([^`]+)`", steps) if t.endswith(".py")})
        for path, count, steps in lines
    }


def test_the_files_that_one_round_opens_are_counted() -> None:
    """Each line of the walk names its path: whoever moves a function mends the line and its number."""
    for path, (count, files) in walks().items():
        assert count == len(files), (path, len(files))
    paths = {
        f"{agent}, {engine}" for agent in ("dqn", "ppo", "sac") for engine in ("plain", "fused")
    }
    assert {*walks()} == paths | {"argv to the loop"}


# what passes things on, as the page says
PASSING_ON = re.compile(
    r"(core|config)/.*|algorithms/(agent|learner|\w+_settings)\.py|nets/layers\.py"
    r"|memory/(frames|staging)\.py|ops/moments\.py|ops/device/__init__\.py|envs/faults\.py"
    r"|actors/actor\.py"
)
ROUNDS = {
    "dqn": ({"learning_starts": 10, "distribution": "none"}, "CartPole-v1"),
    "sac": ({"learning_starts": 10}, "Pendulum-v1"),
    "ppo": ({"horizon": 4, "minibatches": 2}, "CartPole-v1"),
}


@pytest.mark.parametrize("name", ROUNDS)
def test_a_plain_round_runs_through_the_files_of_its_walk_and_no_others(name: str) -> None:
    settings, env = ROUNDS[name]
    run = Run.of({"env": env, "engine": "plain", "agent": {"name": name} | settings})
    learner, files = make_learner(run), set()

    def look(frame: FrameType, event: str, argument: Any) -> None:
        files.add(frame.f_code.co_filename)

    for _ in range(14):
        learner.round()
    before = sys.getprofile()
    sys.setprofile(look)
    try:
        for _ in range(4):
            learner.round()
    finally:
        sys.setprofile(before)
    learner.close()
    package = f"{ROOT / 'tenfold'}/"
    opened = {file.removeprefix(package) for file in files if file.startswith(package)}
    walked = walks()[f"{name}, plain"][1]
    assert {file for file in opened if not PASSING_ON.fullmatch(file)} == walked


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

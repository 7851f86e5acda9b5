"""The arrows between modules, lazy imports, and what the package must never contain."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "tenfold"
# who may import whom, besides core and config
ARROWS = {
    "core": set(),
    "config": set(),
    "ops": set(),
    "nets": {"ops"},
    "memory": {"ops"},
    "envs": {"ops"},
    "runs": {"memory", "envs"},
    "engines": {"ops", "nets", "memory", "envs"},
    "actors": {"ops", "memory", "envs", "engines"},
    "algorithms": {"ops", "nets", "memory", "envs", "engines", "actors", "evaluation"},
    "evaluation": {"ops", "memory", "envs", "runs", "training"},
    "training": {"ops", "memory", "envs", "actors", "runs", "evaluation"},
    "shipping": {"envs", "evaluation", "runs", "training"},
    "cli": {"envs", "evaluation", "runs", "shipping", "training", "__main__"},
    "domains": {
        "ops",
        "nets",
        "memory",
        "envs",
        "actors",
        "algorithms",
        "evaluation",
        "runs",
        "training",
        "cli",  # commands of a domain
    },
    "integrations": {
        "ops",
        "nets",
        "memory",
        "envs",
        "actors",
        "evaluation",
        "runs",
        "training",
        "cli",  # commands of a library's own
    },
    "__main__": {"cli"},
    "__init__": {"domains", "evaluation", "shipping", "training"},
}

# words of one domain
DOMAIN_WORDS = re.compile(
    "colony|colonies|durotaxis|job.?shop|schedule of a shop|treasure|explorer|recording", re.I
)


@cache
def nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text())))


def imports(path: Path) -> set[str]:
    """The rooms that a file imports from when it runs; what is only for types is not counted."""
    found = set()
    typing = {
        id(inner)
        for node in nodes(path)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    for node in nodes(path):
        if id(node) in typing:
            continue
        names = []
        if isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        found |= {n.split(".")[1] for n in names if n.startswith("tenfold.")}
    return found


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE))
)
def test_imports_follow_the_arrows(path: Path) -> None:
    name = str(path.relative_to(PACKAGE))
    room = name.split("/")[0].removesuffix(".py")
    allowed = {room, "core", "config"} - ({"config"} if room == "core" else set())
    assert imports(path) <= allowed | ARROWS[room]


def test_general_code_mentions_no_domain() -> None:
    found = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if path.relative_to(PACKAGE).parts[0] != "domains" and DOMAIN_WORDS.search(path.read_text())
    }
    assert found == set()


def test_every_compiled_function_is_a_kernel() -> None:
    assert [path.name for path in PACKAGE.rglob("*.py") if "njit(" in path.read_text()] == [
        "kernels.py"
    ]


def test_domains_never_import_one_another() -> None:
    for path in (PACKAGE / "domains").rglob("*.py"):
        own = path.relative_to(PACKAGE / "domains").parts[0]
        others = {p.name for p in (PACKAGE / "domains").iterdir() if p.is_dir()} - {own}
        text = path.read_text()
        assert not [other for other in others if f"tenfold.domains.{other}" in text], path


def test_algorithms_never_import_one_another() -> None:
    """A file belongs to the algorithms that its path names, one of two to both; code of all
    algorithms to none."""
    names, folder = {"dqn", "ppo", "sac", "td3"}, PACKAGE / "algorithms"
    for path in folder.rglob("*.py"):
        own = names & set(re.split(r"[/_.]", str(path.relative_to(folder))))
        used = re.findall(r"tenfold\.algorithms\.([\w.]+)", path.read_text())
        owners = [names & set(re.split(r"[_.]", module)) for module in used]
        foreign = [module for module, of in zip(used, owners, strict=True) if of and not of & own]
        assert not foreign, path


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE))
)
def test_nothing_is_pickled_or_evaluated(path: Path) -> None:
    for node in nodes(path):
        if isinstance(node, ast.Import | ast.ImportFrom):
            assert not {a.name for a in node.names} & {"pickle", "shelve", "dill", "cloudpickle"}
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in ("eval", "exec")


def fresh(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_help_needs_neither_torch_nor_numpy() -> None:
    code = "import sys, tenfold.cli.main as c\ntry: c.main(['train', '--help'])\nexcept SystemExit: pass\nprint({'torch', 'numpy'} & set(sys.modules))"
    assert fresh(code).endswith("set()")


@pytest.mark.slow  # one of them is below
@pytest.mark.parametrize(
    "first",
    [
        "tenfold.training.loop",
        "tenfold.evaluation.player",
        "tenfold.cli.main",
        "tenfold.config.run",
    ],
)
def test_public_names_are_there_whatever_was_imported_first(first: str) -> None:
    code = f"import {first}, tenfold as ten\nprint(all(callable(getattr(ten, n)) for n in ('train', 'evaluate', 'load', 'resume', 'Run', 'DQN')))"
    assert fresh(code) == "True"


def test_every_public_name_is_there() -> None:
    assert (
        fresh(
            "import tenfold.training.loop, tenfold as ten\nprint(sorted(set(ten.__all__) - set(dir(ten)) - {n for n in ten.__all__ if getattr(ten, n)}))"
        )
        == "[]"
    )


def test_importing_the_environments_registers_them_with_gymnasium() -> None:
    assert (
        fresh(
            "import gymnasium, tenfold.envs\nprint(gymnasium.make('tenfold/Catch-v0').reset(seed=0)[0].shape)"
        )
        == "(10, 10)"
    )


def test_importing_tenfold_imports_nothing_heavy() -> None:
    assert (
        fresh(
            "import sys, tenfold\nprint({'gymnasium', 'numpy', 'torch', 'numba'} & set(sys.modules))"
        )
        == "set()"
    )


def test_the_package_runs_as_a_module() -> None:
    assert subprocess.run(
        [sys.executable, "-m", "tenfold", "--help"], capture_output=True, text=True, check=True
    ).stdout.startswith("usage: tenfold ")

"""The arrows between modules, lazy imports, and what the package must never contain."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "tenfold"
# who may import whom; everything may use config, both settings, what of them can change, errors,
# spaces
COMMON = {
    "config",
    "lent",
    "settings",
    "resuming",
    "explorer_settings",
    "graph_spaces",
    "errors",
    "spaces",
}
ARROWS = {
    "ops": {"ops"},
    "nets": {"ops", "nets"},
    "memory": {"ops", "memory"},
    "envs": {"ops", "envs"},
    "agents": {"ops", "nets", "memory", "agents"},
    "record": {"record", "memory", "envs"},
    "engines": {"agents", "nets", "ops", "memory", "record", "engines", "envs"},
    "places": {"agents", "engines", "envs", "memory", "ops", "record", "places"},
    "playing": {"agents", "envs", "memory", "ops"},
    "filming": {"agents", "envs", "memory", "ops", "playing", "record"},
    "training": {
        "agents",
        "envs",
        "engines",
        "places",
        "record",
        "memory",
        "playing",
        "ops",
        "validation",
        "portrait",
    },
    "recordings": {"envs", "places", "training"},
    "compare": {"training", "seeds", "places", "record"},
    "validation": {"agents", "envs", "nets", "ops", "places"},
    "portrait": {"agents", "ops", "record", "validation"},
    "jobshops": {"agents", "envs", "playing", "training"},
    "identified": {"judging", "record"},
    "colonies": {"envs", "ops", "playing", "record"},
    "judging": {
        "agents",
        "colonies",
        "envs",
        "filming",
        "jobshops",
        "ops",
        "playing",
        "record",
        "training",
        "validation",
    },
    "seeds": {"training", "places", "record"},
    "measure": {"ops", "record"},
    "profiling": {"places", "record", "training"},
    "integrations": {"ops", "nets", "integrations"},
    "config": {"words"},
    "words": set(),
    "flags": {"config", "words"},
    "lent": {"errors"},
    "errors": set(),
    "resuming": set(),
    "settings": {"config", "errors"},
    "explorer_settings": {"config", "errors"},
    "spaces": {"errors"},
    "graph_spaces": {"errors"},
    "cli": {
        "flags",
        "training",
        "validation",
        "identified",
        "judging",
        "compare",
        "recordings",
        "jobshops",
        "colonies",
        "seeds",
        "measure",
        "profiling",
        "engines",
        "playing",
        "record",
        "envs",
        "ops",
        "__main__",
    },
    "__main__": {"cli"},
    "__init__": {"ops", "training", "judging", "seeds", "recordings", "compare"},
}


@cache
def nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text())))


def imports(path: Path) -> set[str]:
    found = set()
    for node in nodes(path):
        names = (
            [a.name for a in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
        found |= {n.split(".")[1] for n in names if n.startswith("tenfold.")}
    return found


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE))
)
def test_imports_follow_the_arrows(path: Path) -> None:
    place = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    assert imports(path) <= ARROWS[place] | COMMON


def test_every_compiled_function_is_a_kernel() -> None:
    assert [path.name for path in PACKAGE.rglob("*.py") if "njit(" in path.read_text()] == [
        "kernels.py"
    ]


def test_agents_never_import_one_another() -> None:
    for path in (PACKAGE / "agents").glob("[a-z]*.py"):
        assert "tenfold.agents" not in path.read_text()


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


def test_help_needs_no_torch() -> None:
    code = "import sys, tenfold.cli.main as c\ntry: c.main(['train', '--help'])\nexcept SystemExit: pass\nprint('torch' in sys.modules)"
    assert fresh(code).endswith("False")


@pytest.mark.slow  # one of them is below
@pytest.mark.parametrize(
    "first",
    [
        "tenfold.training.loop",
        "tenfold.evaluation.player",
        "tenfold.cli.main",
        "tenfold.config.schema.run",
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

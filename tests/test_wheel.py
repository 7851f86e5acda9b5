"""The wheel and the source archive: what is in them, and that they run outside the checkout."""

import email
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

import tenfold as ten

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# the package's files that are not Python, and what never belongs into a wheel
ASSETS = (".yaml", ".txt", ".css", ".js", ".html", ".typed")
FOREIGN = re.compile(
    r"(^|/)(tests|bench|docs|examples|notebooks|runs|__pycache__)/|\.(pyc|nbi|nbc|so)$"
)


def build(what: str, source: Path, out: Path) -> Path:
    """`python -m build` without its frame: setuptools makes one archive of a source folder."""
    out.mkdir(exist_ok=True)
    code = f"from setuptools import build_meta; build_meta.build_{what}({str(out)!r})"
    done = subprocess.run([sys.executable, "-c", code], cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (made,) = out.iterdir()
    return made


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a copy of the package: a build leaves folders behind."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(
        ROOT / "tenfold", source / "tenfold", ignore=shutil.ignore_patterns("__pycache__")
    )
    # what may lie beside a package when its author builds it
    for litter in (
        "tests/test_x.py",
        "bench/x.py",
        "notebooks/x.ipynb",
        "runs/x/report.html",
        "tenfold/runs/x.pyc",
    ):
        (source / litter).parent.mkdir(parents=True, exist_ok=True)
        (source / litter).write_text("")
    return build("wheel", source, source / "dist")


def test_the_wheel_holds_all_of_the_package_and_nothing_else(wheel: Path) -> None:
    names = {n for n in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in n}
    package = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "tenfold").rglob("*")
        if path.suffix in (".py", *ASSETS) and "__pycache__" not in path.parts
    }
    assert names == package
    for needed in (
        "tenfold/py.typed",
        "tenfold/config/presets/cartpole.yaml",
        "tenfold/domains/durotaxis/presets/durotaxis-bend.yaml",
        "tenfold/domains/jobshop/data/ft06.txt",
        "tenfold/domains/jobshop/data/bounds.txt",
        "tenfold/domains/jobshop/data/taillard.txt",
    ):
        assert needed in names
    inside = {n.removeprefix("tenfold/runs/") for n in names if n.startswith("tenfold/runs/")}
    foreign = [n for n in names if FOREIGN.search(n) and not n.startswith("tenfold/runs/")]
    assert not foreign and "x.pyc" not in inside


def test_every_file_of_the_package_is_of_a_kind_that_the_wheel_takes() -> None:
    others = {
        path.name
        for path in (ROOT / "tenfold").rglob("*")
        if path.is_file()
        and path.suffix not in (".py", *ASSETS)
        and "__pycache__" not in path.parts
    }
    assert not others, "pyproject.toml, package-data"


def test_the_wheel_says_what_it_is(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (path,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
    about = email.message_from_string(archive.read(path).decode())
    assert about["Name"] == "tenfold" and about["Version"] == ten.__version__
    assert about["Description-Content-Type"] == "text/markdown"
    assert about["License-Expression"] == "MIT" and "LICENSE" in about["License-File"]
    assert str(about.get_payload()).startswith("# tenfold")
    (entries,) = (n for n in archive.namelist() if n.endswith("entry_points.txt"))
    assert b"tenfold = tenfold.__main__:main" in archive.read(entries)
    assert any(n.endswith("licenses/LICENSE") for n in archive.namelist())


def test_one_version_everywhere() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert PROJECT["version"] == ten.__version__ == str(cited["version"])
    assert re.search(
        rf"^## {re.escape(ten.__version__)}\b", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )
    assert cited["license"] == PROJECT["license"]


def test_workflows_call_make_without_secrets_and_with_pinned_actions() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    called = set()
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        text = path.read_text()
        assert "secrets." not in text and yaml.safe_load(text)["permissions"] == {
            "contents": "read"
        }
        for job in yaml.safe_load(text)["jobs"].values():
            for step in job["steps"]:
                if "uses" in step:
                    assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", step["uses"]), step["uses"]
                else:
                    make, target = step["run"].split()
                    assert make == "make" and target in targets
                    called.add(target)
    assert called == {"test", "docs", "test-docs", "package"}


def test_paths_and_versions_that_the_workflows_name_are_there() -> None:
    recipes = (ROOT / "Makefile").read_text()
    site = re.findall(r"^site_dir: (\w+)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    made = {("site", *site), ("dist", *re.findall(r"--outdir (\w+)", recipes))}
    needs = re.findall(r"\d+\.\d+", PROJECT["requires-python"])
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        (job,) = yaml.safe_load(path.read_text())["jobs"].values()
        given = [step["with"] for step in job["steps"] if "with" in step]
        assert job["runs-on"] and job["timeout-minutes"] <= 60
        assert [one["python-version"] for one in given if "python-version" in one] == needs
        for artifact in (one for one in given if "path" in one):
            assert (artifact["name"], artifact["path"]) in made
    # every file and script that a target runs
    for script in re.findall(r"(?:bench|tests|examples)/[\w/]+(?:\.py|\.txt)?", recipes):
        assert (ROOT / script).exists(), script
    phony = re.search(r"^\.PHONY: (.*)$", recipes, re.MULTILINE)
    assert phony and set(phony[1].split()) == set(re.findall(r"^([a-z][\w-]*):", recipes, re.M))


INSTRUCTIONS = {"FROM", "ARG", "RUN", "COPY", "WORKDIR", "ENTRYPOINT"}


def test_the_image_copies_what_there_is_and_what_is_not_ignored() -> None:
    recipe = (ROOT / "Dockerfile").read_text()
    lines = [line for line in recipe.splitlines() if line and not line.startswith("#")]
    assert lines[0].startswith("FROM ") and {line.split()[0] for line in lines} <= INSTRUCTIONS
    (start,) = (line for line in lines if line.startswith("ENTRYPOINT "))
    assert json.loads(start.removeprefix("ENTRYPOINT ")) == list(PROJECT["scripts"])
    used = set(re.findall(r"\$\{(\w+)\}", recipe))
    assert used == {line.split()[1].split("=")[0] for line in lines if line.startswith("ARG ")}
    copied = [
        name for line in re.findall(r"^COPY (.*)$", recipe, re.M) for name in line.split()[:-1]
    ]
    let_in = {
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[0] == "!"
    }
    assert set(copied) == let_in and all((ROOT / name).exists() for name in copied)
    pinned = re.search(r"^torch==(.*)$", (ROOT / "constraints.txt").read_text(), re.M)
    assert pinned and f"torch=={pinned[1]} " in recipe


@pytest.fixture(scope="module")
def distribution(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both archives: that of `make package`, or one made here."""
    if "DIST" in os.environ:
        return (ROOT / os.environ["DIST"]).resolve()
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.mark.slow
def test_the_source_archive_gives_the_same_wheel(distribution: Path, tmp_path: Path) -> None:
    (archive,) = distribution.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    for needed in ("LICENSE", "CHANGELOG.md", "Makefile", "docs/design.md", "tests/conftest.py"):
        assert (source / needed).is_file()
    assert not list(source.rglob("*.pyc")) and not (source / "runs").exists()
    again = build("wheel", source, tmp_path / "again")
    (made,) = distribution.glob("*.whl")
    assert zipfile.ZipFile(again).namelist() == zipfile.ZipFile(made).namelist()


@pytest.mark.slow  # compiles every kernel anew: minutes
def test_the_wheel_runs_in_a_clean_environment_and_another_folder(
    distribution: Path, tmp_path: Path
) -> None:
    """Dependencies are the checkout's own, by a line in a .pth file: torch alone would take minutes
    to install. Such a line adds a folder to the path and runs nothing in it, so the checkout that
    is installed there is not found by it."""
    for needed in map(Requirement, PROJECT["dependencies"]):
        assert needed.specifier.contains(version(needed.name)), needed
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "TRITON"))}
    home = tmp_path / "clean"
    venv.create(home, with_pip=False)
    (made,) = distribution.glob("*.whl")
    install = ["-m", "pip", "--python", str(home), "install", "--no-deps", "--no-index", str(made)]
    done = subprocess.run(
        [sys.executable, *install], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    (packages,) = (home / "lib").glob("python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    away = tmp_path / "elsewhere"
    away.mkdir()

    def run(*command: str) -> str:
        done = subprocess.run(
            command, cwd=away, env=environment, capture_output=True, text=True, timeout=1200
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    where = run(f"{home}/bin/python", "-c", "import tenfold; print(tenfold.__file__)").strip()
    assert Path(where).is_relative_to(packages)
    run(f"{home}/bin/tenfold", "train", "cartpole", "--steps", "3k")
    assert (away / "runs/cartpole/report.html").is_file()
    assert "jobshop-ft06" in run(f"{home}/bin/tenfold", "list")
    equal = re.search(
        r"^(\d+) of (\d+) fast paths equal", run(f"{home}/bin/tenfold", "check"), re.M
    )
    assert equal and equal[1] == equal[2] and int(equal[1]) > 50

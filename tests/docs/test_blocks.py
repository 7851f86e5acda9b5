"""Every command and every block of code in README and docs: parsed in `make test`, run with short
settings in `make test-slow`."""

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
import yaml
from blocks import ELSEWHERE, PAGES, ROOT, UNRUN, blocks, commands, furnish, python_of, short

import tenfold as ten
from tenfold.cli.flags import settings_given
from tenfold.cli.main import main, parser
from tenfold.config.files import named
from tenfold.config.run import Run
from tenfold.core.errors import UserError

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
EXAMPLES = {path.read_text() for path in (ROOT / "examples").glob("*.py")}
OTHERS = {".", "ray"}  # commands that are neither ours nor pip, make, python or docker
BASH = [page for page in PAGES if blocks(page, "bash")]
PYTHON = [page for page in PAGES if blocks(page, "python")]


def agent_of(words: list[str]) -> str:
    """The agent that a command trains; flags and settings of it are read on the way."""
    found = parser(words).understand(words)
    if words[0] not in ("train", "profile"):
        return ""
    return named(found.what, settings_given(found)).agent.name


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    furnish(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    before, registered = set(sys.modules), dict(gymnasium.registry)
    yield tmp_path
    for name in set(gymnasium.registry) - set(registered):
        del gymnasium.registry[name]
    for name in set(sys.modules) - before:
        if (tmp_path / f"{name}.py").exists():
            del sys.modules[name]


def test_blocks_that_are_not_run_say_why() -> None:
    for page in PAGES:
        for kind in ("bash", "python", "yaml"):
            for block in blocks(page, kind):
                assert block.run or UNRUN.fullmatch(block.title), (page.name, block.title)
        fences = re.findall(r"^```(\w.*)$", page.read_text(), re.MULTILINE)
        known = [
            fence for fence in fences if re.fullmatch(r'(bash|python|yaml)( title="[^"]*")?', fence)
        ]
        assert fences == known, page.name


@pytest.mark.parametrize("page", BASH, ids=lambda page: page.name)
def test_every_command_is_one(page: Path, folder: Path) -> None:
    """Flags and values are read by the command line's own parser, whether a line can run here or
    not."""
    for block in blocks(page, "bash"):
        for program, *words in commands(block.text):
            if program == "tenfold":
                agent_of([word for word in words if word != "…"])
            elif program == "make":
                assert words[0] in TARGETS, words
            elif program == "pip":
                asked = [
                    name
                    for found in re.findall(r"\[(.*?)\]", " ".join(words))
                    for name in found.split(",")
                ]
                assert words[0] == "install" and set(asked) <= set(EXTRAS), words
            elif program == "python":
                assert words[0] == "-m" or (ROOT / words[0]).is_file(), words
            else:
                assert program in OTHERS, program


@pytest.mark.parametrize(
    "page", [p for p in PAGES if blocks(p, "yaml")], ids=lambda page: page.name
)
def test_every_yaml_is_a_run(page: Path, folder: Path) -> None:
    for block in blocks(page, "yaml"):
        if block.run:
            (folder / "block.yaml").write_text(block.text)
            assert isinstance(named("block.yaml", {}), Run)
        else:
            assert yaml.safe_load(block.text)


@pytest.mark.parametrize("page", PYTHON, ids=lambda page: page.name)
def test_every_block_of_python_is_python(page: Path) -> None:
    for block in blocks(page, "python"):
        compile(block.text, str(page), "exec")


SHIPPED = {
    "cartpole.zip": ["pack", "runs/cartpole"],
    "policy.pt2": ["export", "runs/cartpole", "--format", "torch", "--out", "policy.pt2"],
}


def runs_first(words: list[str]) -> None:
    """The runs that a command speaks of, trained for a moment: a preset by its name, else one of
    CartPole. A folder of seeds is one."""
    for word in words:
        if word in SHIPPED and not Path(word).exists():
            runs_first(["runs/cartpole"])
            assert main(SHIPPED[word]) == 0
        path = Path(word)
        if path.parts[:1] != ("runs",) or path.exists() or len(path.parts) == 1:
            continue
        name = path.name if path.name not in ("latest", "valley") else "cartpole"
        try:
            named(name, {})
        except UserError:
            name = "cartpole"
        command = ["train", name, "--out", str(path) if path.name != "latest" else "runs/cartpole"]
        assert main(short(command, agent_of(command))) == 0, command


@pytest.mark.slow
@pytest.mark.parametrize("page", BASH, ids=lambda page: page.name)
def test_every_command_runs(page: Path, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ran = 0
    for block in blocks(page, "bash"):
        for program, *words in commands(block.text):
            if not block.run or ELSEWHERE.search(" ".join(words)):
                continue
            if program == "python" and words[0] == "-m":
                done = subprocess.run([sys.executable, *words], capture_output=True, text=True)
                assert done.returncode == 0, (words, done.stderr)
            if program != "tenfold":
                continue
            if words[0] not in ("train", "sweep", "profile", "compare", "fit"):
                runs_first(
                    words
                    if any(w.startswith(("runs/", "cartpole.")) for w in words)
                    else ["runs/latest"]
                )
            if "--init" in words:
                runs_first([words[words.index("--init") + 1]])
            again = ["--overwrite"] if words[0] in ("train", "sweep") and "--out" in words else []
            code = main([*short(words, agent_of(words)), *again])
            assert code == 0, (words, capfd.readouterr().err)
            ran += 1
    said = [w for block in blocks(page, "bash") for w in commands(block.text) if w[0] == "tenfold"]
    assert ran or all(ELSEWHERE.search(" ".join(words)) for words in said)


# what stands for the reader's own numbers
GIVEN: dict[str, Callable[[], dict[str, Any]]] = {
    "README.md": lambda: {"obs": np.zeros(4, np.float32)},
    "using.md": lambda: {"obs": np.zeros(4, np.float32)},
    "continuous.md": lambda: {"obs": np.zeros(3, np.float32)},
    "export.md": lambda: {"obs": np.zeros((3, 4), np.float32)},
    "extending.md": lambda: {"ten": ten, "torch": torch},
    "actors.md": lambda: {"ten": ten},
    "policies.md": lambda: {
        "ten": ten,
        **dict.fromkeys(
            ("reward", "value", "next_value", "boundary"), np.zeros((5, 2), np.float32)
        ),
        "discount": np.full((5, 2), 0.9, np.float32),
        "logits": torch.zeros(4, 8),
        "mask": torch.ones(4, 8, dtype=torch.bool),
    },
}
# numbers that make a block long
SHORTER = {
    "20_000": "600",
    "4_000": "300",
    "5000": "5",
    "1_000": "5",
    "trials=20": "trials=2",
    "seeds=3,": "seeds=2,\n        confirm=1,",
    "range(50)": "range(15)",
}


@pytest.mark.slow
@pytest.mark.parametrize("page", PYTHON, ids=lambda page: page.name)
def test_every_block_of_python_runs(
    page: Path, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The blocks of a page one after another, in one namespace."""
    space: dict[str, Any] = {"__name__": "__main__"} | GIVEN.get(page.name, dict)()
    for block in blocks(page, "python"):
        if not block.run or block.text in EXAMPLES:  # which have tests of their own
            continue
        text = block.text
        for long, less in SHORTER.items():
            text = text.replace(long, less)
        if page.name == "dynamics.md":
            text = text.replace('"latent": 3', '"latent": 2')
        made = set(re.findall(r'out="([^"]+)"', text)) | {"runs/mine"}
        runs_first(
            [
                w
                for w in re.findall(r'"(runs/[\w-]+|cartpole\.zip|policy\.pt2)', text)
                if w not in made
            ]
        )
        exec(compile(text, str(page), "exec"), space)


def test_a_wrong_flag_in_a_page_would_be_found(folder: Path) -> None:
    words = commands('tenfold train cartpole --agent.n-steps 3   # "three"\n')[0][1:]
    with pytest.raises(UserError, match=r"agent\.n-step"):
        agent_of(words)
    assert "register" in python_of("extending.md", "Corridor") and os.path.exists("corridor.py")

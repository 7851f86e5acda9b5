"""What docs/durotaxis.md says is so."""

import json
from dataclasses import fields
from pathlib import Path

import pytest

import tenfold as ten
from tenfold.cli.main import main
from tenfold.domains.durotaxis.setting import ACTIONS, WEIGHTS, Setting

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "durotaxis.md").read_text()
SNIPPETS = [part.split("```")[0] for part in TEXT.split("```python\n")[1:]]
SMALL = [
    "--num-envs",
    "4",
    "--agent.horizon",
    "16",
    "--agent.minibatches",
    "2",
    "--agent.net.hidden",
    "8,8",
    "--eval-every",
    "0",
    "--quiet",
]


def test_every_argument_stands_in_the_table_with_its_default() -> None:
    rows = [
        line.strip("| ").split(" | ")
        for line in TEXT.split("## Arguments")[1].split("## ")[0].splitlines()
        if line.startswith("| ")
    ]
    told = {
        name: default
        for names, defaults, *_ in rows[1:]
        for name, default in zip(names.split(", "), defaults.split(", "), strict=False)
    }
    assert set(told) == {f.name for f in fields(Setting) if f.init} - {"weights"} | {
        f"w_{name}" for name in WEIGHTS
    }
    for name, weight in WEIGHTS.items():
        assert float(told[f"w_{name}"]) == weight
    for f in fields(Setting):
        if f.name in told and isinstance(f.default, int | float | str):
            assert told[f.name] == (
                f.default if isinstance(f.default, str) else f"{f.default:g}"
            ), f.name
    assert {"gamma", "alpha", "noise", "theta"} == set(ACTIONS[1:])


def test_the_random_policys_script_plays_both_modes(capsys: pytest.CaptureFixture[str]) -> None:
    exec(SNIPPETS[0], {})
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["ratio", "nodes"]


def test_a_function_as_substrate_is_trained_evaluated_loaded_and_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my_ground.py").write_text(SNIPPETS[1])
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert (
        main(
            [
                "train",
                "durotaxis",
                "--env",
                "my_ground:Valley-v0",
                "--steps",
                "128",
                *SMALL,
                "--out",
                "runs/valley",
            ]
        )
        == 0
    )
    assert main(["eval", "runs/valley", "--episodes", "2"]) == 0
    assert "my_ground:Valley-v0" in capsys.readouterr().out
    assert main(["resume", "runs/valley", "--steps", "256", "--quiet"]) == 0
    assert ten.load("runs/valley").online.flat.numel() > 0


def test_the_random_policies_do_as_measured() -> None:
    rows = json.loads((ROOT / "bench" / "results" / "durotaxis-baselines.json").read_text())["rows"]
    found = {
        (
            row["policy"],
            *row["env"].split("mode=")[1].strip(")").split(", substrate="),
        ): f"{row['success']:.0%}".replace("%", " %")
        for row in rows
    }
    kinds = ("linear", "exponential", "random", "bend")
    near = [found["random, delete_ratio 0.45 to 0.55", "ratio", kind] for kind in kinds]
    assert "{} on linear, {} on exponential, {} on random and {} on bend".format(*near) in " ".join(
        TEXT.split()
    )
    assert [found["random", mode, kind] for mode in ("ratio", "nodes") for kind in kinds] == [
        "0 %"
    ] * 4 + ["6 %"] * 3 + ["0 %"]

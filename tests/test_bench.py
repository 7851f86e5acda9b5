"""bench/all.py: rows that can be trusted, names, errors. No timing is asserted."""

import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tenfold.core.pairs import PAIRS, Pair, all_pairs

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))
import measure

bench = importlib.import_module("all")  # not `import all`: that is a function of Python's

KEYS = {
    "name",
    "setting",
    "baseline",
    "candidate",
    "baseline_us",
    "candidate_us",
    "ratio",
    "equal",
    "max_diff",
    "baseline_bytes",
    "candidate_bytes",
}


def test_a_pair_is_timed_with_its_equality_and_its_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(measure, "TURN_SECONDS", 0.002)
    assert bench.main(["ops.adam.adam_numba", "--json", str(tmp_path / "rows.json")]) == 0
    found = json.loads((tmp_path / "rows.json").read_text())
    (row,) = found["rows"]
    assert set(row) == KEYS and row["equal"] is True and row["setting"]["numbers"] == 4000
    assert row["ratio"] == pytest.approx(row["baseline_us"] / row["candidate_us"], rel=0.01)
    assert found["machine"]["cores"] >= 1 and "torch" in found["versions"]
    shown = capsys.readouterr().out
    # the table, not Python's own notation
    assert "ops.adam.adam_numba" in shown and "{'name'" not in shown
    assert bench.main(["ops.adam.adam_numba", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["name"] == "ops.adam.adam_numba"


def test_a_pair_that_is_not_equal_is_said_and_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(measure, "TURN_SECONDS", 0.002)
    all_pairs()
    true = PAIRS["ops.adam.adam_numba"]

    def wrong(flat, grad, mean, square, step, lr, *more):
        return true.fast(flat, grad, mean, square, step, 2 * lr, *more)

    monkeypatch.setitem(
        PAIRS,
        true.name,
        Pair(
            true.name,
            wrong,
            *[
                getattr(true, f)
                for f in ("reference", "example", "rtol", "atol", "dtypes", "gradients")
            ],
        ),
    )
    assert bench.main([true.name]) == 1
    assert "NO" in capsys.readouterr().out


def test_the_update_benchmark_compares_parameters_with_the_frozen_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a small case: twenty updates of the fused engine against eager PyTorch."""
    monkeypatch.setattr(measure, "TURN_SECONDS", 0.002)
    update = next(module for module in bench.benchmark_modules() if "dqn-update" in module.NAMES)
    monkeypatch.setattr(update, "FILLED", 500)
    for options in ({}, update.FULL):
        row = update.compare_and_time("dqn-update", "fused", 16, (12, 7), options)
        assert set(row) == KEYS and row["equal"] is True and row["max_diff"] < 1e-5
        assert row["candidate_bytes"] < row["baseline_bytes"]


def test_the_benchmark_of_sac_compares_parameters_with_its_frozen_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Twenty updates with the same noise: actor, critics, their targets and the temperature."""
    monkeypatch.setattr(measure, "TURN_SECONDS", 0.002)
    sac = next(module for module in bench.benchmark_modules() if "sac-update" in module.NAMES)
    monkeypatch.setattr(sac, "FILLED", 300)
    row = sac.compare_and_time("sac-update", "fused", 16, (12, 7))
    assert set(row) == KEYS and row["equal"] is True and row["max_diff"] < 1e-6
    assert row["candidate_bytes"] < row["baseline_bytes"]
    place = sac.ready("fused", 16, (12, 7))
    eager = sac.eager_like(place)
    eager.tau = 0.5
    assert sac.compared(place, eager)[1] > sac.TOLERANCE


def test_names_are_listed_and_an_unknown_one_names_the_nearest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert bench.main(["--list"]) == 0
    listed = capsys.readouterr().out.split("\n")
    assert {
        "dqn-update",
        "dqn-update-full",
        "per",
        "cartpole-dqn",
        "eight-seeds",
        "ops.mlp.mlp_forward",
    } <= set(listed)
    assert bench.main(["dqn-updat"]) == 2
    assert "did you mean dqn-update" in capsys.readouterr().err


def test_the_command_of_former_versions_says_where_benchmarks_are(
    here: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = here("bench", "dqn-update", "--peers")
    assert done.returncode == 2 and "`python bench/all.py` runs them" in done.stderr


@pytest.mark.parametrize("file", ["nowhere/x.json", "."])
def test_a_result_that_cannot_be_written_is_refused_before_anything_is_measured(
    file: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(bench, "run_all", lambda *_: pytest.fail("it was measured"))
    assert bench.main(["--json", str(tmp_path / file)]) == 2
    assert f"--json {tmp_path / file} cannot be written" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_what_is_allocated_is_counted() -> None:
    import numpy as np
    import torch

    assert measure.allocated(lambda: np.zeros(100_000, np.uint8)) >= 100_000
    assert measure.allocated(lambda: torch.zeros(100_000, dtype=torch.uint8)) >= 100_000
    assert measure.allocated(lambda: None) < 1000


def test_the_colony_benchmarks_compare_equal_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    """On few colonies: the step, the features, the selection and the reward's record."""
    monkeypatch.setattr(measure, "TURN_SECONDS", 0.002)
    colony = next(module for module in bench.benchmark_modules() if "colony-step" in module.NAMES)
    monkeypatch.setattr(colony, "COLONIES", 3)
    monkeypatch.setattr(colony, "NODES", 12)
    for work in colony.NAMES.values():
        for row in work():
            assert set(row) == KEYS and row["equal"] is True
            assert row["candidate_bytes"] < 8_000  # nothing is made anew each time


def a_checkout(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one benchmark that needs a GPU and one that does not."""
    (folder / "bench").mkdir()
    (folder / "bench" / "one.py").write_text(
        "from measure import timed_row\n"
        "work = lambda: [timed_row('cuda-x', {'seeds': 4}, ('eager', 6.0), ('ours', 0.0015))]\n"
        "NAMES = {'x': None}\nCUDA = {'cuda-x': work}\n"
    )
    monkeypatch.setattr(measure, "FOLDER", folder / "bench")


def gpu_tables(root: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module that makes the docs' tables of GPUs, of another checkout."""
    monkeypatch.setattr(importlib.import_module("tables"), "RESULTS", root / "bench" / "results")
    return importlib.import_module("machine_tables")


def test_what_needs_a_gpu_is_refused_in_one_sentence_without_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    a_checkout(tmp_path, monkeypatch)
    assert bench.main(["--cuda", "--list"]) == 0
    assert capsys.readouterr().out.split("\n")[:-1] == ["cuda-x"]
    assert bench.main(["--cuda"]) == 2
    said = capsys.readouterr().err
    assert "--cuda needs a CUDA device" in said and len(said.strip().split("\n")) == 1
    assert bench.main(["--cuda", "x"]) == 2
    assert "`python bench/all.py --cuda --list` shows them all" in capsys.readouterr().err
    assert not (tmp_path / "bench" / "results").exists()


def test_what_was_measured_on_a_gpu_is_kept_with_its_card_and_shown_on_the_page(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    a_checkout(tmp_path, monkeypatch)
    page = gpu_tables(tmp_path, monkeypatch)
    assert page.cuda() == "Not measured yet."
    card = {"gpu": "H200", "gpu_memory_gb": 139.8, "driver": "570.86", "cuda": "12.8"}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(measure, "gpu_card", lambda: card)
    assert bench.main(["--cuda"]) == 0
    found = json.loads((tmp_path / "bench" / "results" / "cuda-x.json").read_text())
    assert found["machine"].items() >= card.items() and found["rows"][0]["ratio"] == 4000
    assert {"torch", "triton", "jax"} <= set(found["versions"])
    shown = page.cuda()
    assert "| cuda-x | 4 seeds | eager: 166,667 | ours: 666,666,667 | **4000** |  |" in shown
    assert "H200 (139.8 GB, driver 570.86, CUDA 12.8)" in shown


def test_the_gpu_benchmark_of_ppo_takes_turns_on_equal_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On the CPU, with the plain engine on both sides: the harness, not a result."""
    ppo = next(
        module for module in bench.benchmark_modules() if "cuda-ppo" in getattr(module, "CUDA", {})
    )
    for name, value in {"DEVICE": "cpu", "SIZES": ((3, 4, 8),), "TURNS": 1}.items():
        monkeypatch.setattr(ppo, name, value)
    monkeypatch.setattr(ppo.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(ppo, "ours", ppo.eager)
    monkeypatch.setattr(ppo, "difference", lambda: 1e-6)
    rows = ppo.ppo()
    assert [row["setting"]["precision"] for row in rows] == ["fp32", "tf32"]
    for row in rows:
        assert set(row) == KEYS | {"baseline_per_second", "candidate_per_second"}
        assert (row["baseline"], row["candidate"]) == ("eager PyTorch", "resident")
        assert row["setting"].items() >= {"seeds": 3, "worlds": 4, "steps": 8}.items()
        # TF32 is another precision than that of the engine it is held to
        same = row["setting"]["precision"] == "fp32"
        assert (row["equal"], row["max_diff"]) == ((True, 1e-6) if same else (None, None))


def test_commands_and_curves_on_a_gpu_are_tables_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    page = gpu_tables(Path(__file__).parents[1], monkeypatch)
    command = {"command": "tenfold train x --device cuda"}
    row = {"setting": command, "seconds": 4.71, "training_seconds": 0.987, "first_seconds": 30.2}
    assert "| `tenfold train x --device cuda` | 4.7 | 0.99 | 30.2 | 499.5 |" in page.cuda_commands(
        [row | {"return": 499.5}]
    )
    curve = {"setting": {"preset": "x", "step": 20_480}, "overlap": False}
    shown = page.cuda_curves([curve | {"resident": [10, 9, 11.5], "fused": [20, 19, 21]}])
    assert "| x | 20,480 | 10.0 (9.0 to 11.5) | 20.0 (19.0 to 21.0) | NO |" in shown

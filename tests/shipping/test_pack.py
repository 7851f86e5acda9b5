"""A run as one archive: what is in it, and who takes it by its path."""

import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from markdown_it import MarkdownIt

import tenfold as ten
from tenfold.config.run import Run
from tenfold.core.errors import ConfigError, UserError
from tenfold.runs.archive import opened
from tenfold.shipping.card import fenced, interval, text
from tenfold.training.loop import train


@pytest.fixture(scope="module")
def archive(finished_once: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("packed") / "cart.zip"
    return ten.pack(finished_once, file, licence="MIT", episodes=2)


def test_an_archive_acts_as_the_run_it_was_made_of(archive: Path, finished_once: Path) -> None:
    obs = np.random.default_rng(0).normal(size=(100, 4)).astype(np.float32)
    for checkpoint in ("last", "best"):
        mine, packed = ten.load(finished_once, checkpoint), ten.load(archive, checkpoint)
        np.testing.assert_array_equal(packed.act(obs), mine.act(obs))
        np.testing.assert_array_equal(packed.online.flat, mine.online.flat)
    step = ten.load(archive, 600)
    np.testing.assert_array_equal(step.online.flat, ten.load(finished_once).online.flat)
    scores = [ten.evaluate(one, episodes=3, seed=5).returns for one in (archive, finished_once)]
    assert scores[0] == scores[1]


def test_an_archive_holds_what_acting_needs_and_no_replay(archive: Path) -> None:
    with zipfile.ZipFile(archive) as content:
        names = content.namelist()
    assert sorted(names) == [
        "README.md", "checkpoints/best.safetensors", "checkpoints/step-000000000600.safetensors",
        "config.yaml", "curve.png", "metrics.jsonl", "pack.json", "run.json",
    ]  # fmt: skip
    from safetensors import safe_open

    with opened(archive) as folder:
        with safe_open(folder / "checkpoints" / "best.safetensors", "numpy") as file:
            assert list(file.keys()) == ["agent.online"]
        assert '"kind": "episode"' not in (folder / "metrics.jsonl").read_text()
        card = (folder / "README.md").read_text()
    for said in (
        "# dqn on CartPole-v1",
        "![Returns over environment steps](curve.png)",
        'license: "MIT"',
        "| licence | MIT |",
        "| last checkpoint, greedy | 600 |",
        "| best checkpoint, greedy |",
        "| random actions | – |",
        "95 % interval",
        "best evaluation",
        "tenfold eval cart.zip",
        "batch_size: 8",
        "| torch | 2.13",
    ):
        assert said in card, said


def test_commands_take_an_archive_by_its_path(
    archive: Path, here: Callable[..., Any], tmp_path: Path
) -> None:
    shutil.copy(archive, tmp_path / "cart.zip")
    done = here("eval", "cart.zip", "--episodes", "2", "--checkpoint", "best")
    assert done.returncode == 0 and done.stdout.startswith("CartPole-v1, checkpoint best")
    told = here("eval", "cart.zip", "--episodes", "1", "--json").stdout
    assert '"run": "cart.zip"' in told and "/tmp/tenfold-" not in told
    done = here("eval", "cart.zip", "--checkpoint", "7")
    assert (
        "--checkpoint 7 is not in cart.zip: an archive holds the last and the best one"
        in done.stderr
    )
    assert done.returncode == 2 and "choose best, last or one of 600" in done.stderr
    done = here("resume", "cart.zip")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cart.zip"]


def test_a_film_of_an_archive_stays(
    archive: Path, here: Callable[..., Any], tmp_path: Path
) -> None:
    shutil.copy(archive, tmp_path / "cart.zip")
    done = here("eval", "cart.zip", "--episodes", "1", "--video")
    assert "cart-files/video.gif" in done.stdout
    assert (tmp_path / "cart-files" / "video.gif").stat().st_size > 1000


def test_an_archive_is_packed_by_the_command(
    finished_once: Path, here: Callable[..., Any], tmp_path: Path
) -> None:
    done = here("pack", finished_once, "--episodes", "0", "--licence", "CC-BY-4.0")
    assert done.returncode == 0 and done.stdout.startswith("run.zip (")
    assert ten.load(tmp_path / "run.zip").actions.n == 2
    wrong = {
        ("pack", "run.zip"): "what is packed is a run's folder",
        ("pack", finished_once, "--licence", "a\nb"): "--licence must be one line",
        ("pack", finished_once, "--out", "no/where.zip"): "--out no/where.zip cannot be written",
        ("pack", "nowhere"): "nowhere does not exist",
    }
    for words, said in wrong.items():
        done = here(*words)
        assert done.returncode == 2 and said in done.stderr and done.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["run.zip"]


def test_one_of_several_seeds_is_packed_with_what_all_came_to(
    small_run: Callable[..., Run], tmp_path: Path
) -> None:
    run = small_run(steps=200, log_every=100)
    ten.train_seeds(run, 2, tmp_path / "two", quiet=True, jobs=1)
    with pytest.raises(UserError, match=r"two holds several seeds.*two/seed-0"):
        ten.pack(tmp_path / "two", tmp_path / "all.zip")
    with pytest.raises(UserError, match=r"two holds several seeds.*two/seed-0"):
        ten.export(tmp_path / "two", "torch", tmp_path / "all.pt2")
    file = ten.pack(tmp_path / "two" / "seed-1", tmp_path / "one.zip", episodes=0)
    with opened(file) as folder:
        card = (folder / "README.md").read_text()
    assert "interquartile mean of 2 seeds; an interval takes 5" in card
    assert not list(tmp_path.glob("all.*"))


def test_modules_are_imported_with_trust_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, here: Callable[..., Any]
) -> None:
    """Also of one's own archives: anybody could have written one that names the same modules."""
    name = f"theirs_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(
        f"from pathlib import Path\nPath({str(tmp_path / 'trace')!r}).touch()\n"
        "def half(step, lr): return lr / 2\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    agent = {"name": "dqn", "lr": f"{name}:half(1e-3)", "learning_starts": 50}
    train(Run.of({"agent": agent, "steps": 100, "eval_every": 0}), tmp_path / "run", quiet=True)
    file = ten.pack(tmp_path / "run", tmp_path / "theirs.zip", episodes=0)
    (tmp_path / "trace").unlink()
    for words in (("eval", file), ("export", file, "--format", "torch")):
        done = here(*words)
        assert done.returncode == 2 and "give --trust (in Python trust=True)" in done.stderr
        assert f"theirs.zip names {name}, which would be imported" in done.stderr
    for ask in (ten.load, ten.evaluate):
        with pytest.raises(UserError, match="--trust"):
            ask(file)
    assert not (tmp_path / "trace").exists() and not list(tmp_path.glob("*.pt2"))
    assert here("eval", file, "--episodes", "1", "--trust").returncode == 0
    assert ten.load(file, trust=True).actions.n == 2
    with pytest.raises(UserError, match="--trust"):  # trust is not kept
        ten.load(file)


def test_names_with_markup_are_text_on_the_card() -> None:
    page = MarkdownIt("gfm-like", {"html": True, "linkify": False})
    for name in (
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "[press](javascript:alert(1))",
        "![x](http://evil/x.png)",
        "`code` *bold* __under__ ~~gone~~",
        "a | b\nc",
        "&lt;b&gt;",
        "\x1b[31mred",
    ):
        shown = page.render(f"| a |\n| --- |\n| {text(name)} |\n")
        inside = shown.split("<td>")[1].split("</td>")[0]
        assert "<" not in inside, inside
        assert "\x1b" not in shown
    for content in ("plain", "``` a fence\n<script>", "````\n"):
        shown = page.render(fenced(content))
        assert shown.startswith("<pre><code>") and shown.count("<code>") == 1
        assert "<script>" not in shown


def test_the_interval_of_a_mean_is_about_two_standard_errors() -> None:
    values = np.random.default_rng(1).normal(10, 2, 400)
    low, high = (float(word) for word in interval(values).split(" to "))
    half = 1.96 * values.std() / 20
    assert low == pytest.approx(values.mean() - half, abs=0.02)
    assert high == pytest.approx(values.mean() + half, abs=0.02)


@pytest.mark.slow
def test_an_archive_needs_no_environment_variable_or_module_of_the_tests(archive: Path) -> None:
    """In a process of its own, as somebody else would."""
    code = f"import tenfold as ten; print(ten.load({str(archive)!r}).act([0.0] * 4))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() in "01"


@pytest.mark.slow
def test_an_explorer_is_packed_with_what_it_says_of_itself(tmp_path: Path) -> None:
    run = ten.named("limit-cycle", {"steps": 400, "eval_every": 200, "checkpoint_every": 200})
    train(run, tmp_path / "run", quiet=True)
    file = ten.pack(tmp_path / "run", tmp_path / "explorer.zip", episodes=1)
    mine, packed = ten.load(tmp_path / "run"), ten.load(file)
    np.testing.assert_array_equal(packed.online.flat, mine.online.flat)
    with opened(file) as folder:
        assert (
            "last checkpoint (step 400)\nerror of the field" in (folder / "README.md").read_text()
        )
    with pytest.raises(UserError, match="Runs of explorer cannot be exported"):
        ten.export(tmp_path / "run", "torch", tmp_path / "explorer.pt2")


@pytest.mark.parametrize("name", ["x.tar.gz", "x.TGZ", "x.onnx"])
def test_a_name_of_another_kind_of_file_is_refused(
    name: str, finished_once: Path, tmp_path: Path
) -> None:
    with pytest.raises(
        ConfigError, match=r"--out = .*as another kind of file, .* name it .*/x\.zip\."
    ):
        ten.pack(finished_once, tmp_path / name, episodes=0)
    assert not list(tmp_path.iterdir())
    assert ten.pack(finished_once, tmp_path / "x.of-mine", episodes=0).exists()

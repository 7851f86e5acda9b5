"""Classes and functions from Python, where the command line has names of them."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

import tenfold as ten
from tenfold.config.changes import advice
from tenfold.config.schema import to_mapping
from tenfold.core.errors import ConfigError, UserError
from tenfold.training.loop import resume, train
from tenfold.training.run_group import SeedsResult
from tenfold.training.sweep import SweepResult

QUIET: dict[str, Any] = {"quiet": True, "report": False}


class Wide(nn.Module):
    """A network of one's own."""

    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(shape[0], outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def halved(step: int) -> float:
    return 1e-3 / (1 + step)


def small(**agent: Any) -> ten.Run:
    return ten.Run(agent=ten.DQN(learning_starts=10, capacity=200, **agent), steps=40, eval_every=0)


def test_a_class_is_a_network_and_a_function_a_schedule_by_their_names(tmp_path: Path) -> None:
    run = small(net=ten.Net(module=Wide), lr=halved)  # type: ignore[arg-type]
    net = to_mapping(run)["agent"]["net"]["module"]
    assert net == f"{__name__}:Wide" and str(run.agent.lr) == f"{__name__}:halved"  # type: ignore[attr-defined]
    assert ten.Run.of(to_mapping(run)) == run and advice(run) == []
    result = ten.train("dqn", tmp_path / "run", steps=30, eval_every=0, agent={"net": {"module": Wide}, "lr": halved}, **QUIET)  # fmt: skip
    assert resume(result, more=10, **QUIET).step == 40
    assert ten.load(result).online.flat.numel() == 4 * 2 + 2


def test_a_result_is_printed_on_one_line(tmp_path: Path) -> None:
    result = ten.train(small(), tmp_path / "run", **QUIET)
    assert (
        repr(result)
        == f"<{tmp_path}/run: dqn on CartPole-v1, seed 0, 40 of 40 steps{score_of(result)}>"
    )
    found = {"trials": [{}, {}], "winner": 1}
    assert repr(SweepResult(Path("s"), found)) == "<s: sweep of 2 trials, trial 1 is the winner>"
    seeds = SeedsResult(Path("m"), small(), (0, 1), {}, failed={"seed 1": "it broke"})
    assert repr(seeds) == "<m: dqn on CartPole-v1, 2 seeds, 1 failed>"


def score_of(result: Any) -> str:
    return "" if result.mean_return is None else f", mean return {result.mean_return:.2f}"


def test_what_has_no_name_of_its_own_is_refused() -> None:
    class Inside(Wide):
        pass

    for given, what in ((Inside, "class"), (lambda shape, outputs: None, "function")):
        with pytest.raises(ConfigError, match=rf"module = .* put the {what} into a module of its"):
            ten.Net(module=given)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"lr = <function .* put the function into a module"):
        ten.DQN(lr=lambda step: 1e-3)  # type: ignore[arg-type]


def test_a_class_of_the_running_program_trains_and_it_is_said_that_only_this_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = ModuleType("__main__")
    program.Mine = type("Mine", (Wide,), {"__module__": "__main__"})  # type: ignore[attr-defined]
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "__main__", program)
        run = small(net=ten.Net(module=program.Mine))
        train(run, tmp_path / "run", report=False)
        words = "agent.net.module = __main__:Mine: only this program has it, so `tenfold resume` "
        assert words in capsys.readouterr().err
        assert resume(tmp_path / "run", more=10, **QUIET).step == 50
    with pytest.raises(UserError, match=r"__main__:Mine was in the program that trained, and is not"):  # fmt: skip
        ten.load(tmp_path / "run")


class Rows:
    seen: list[int] = []

    def on_log(self, training: Any, row: dict[str, Any]) -> None:
        self.seen.append(row["step"])


def test_callbacks_may_be_objects_classes_and_functions(
    small_run: Callable[..., ten.Run], tmp_path: Path
) -> None:
    rows: list[int] = []

    def note(training: Any, row: dict[str, Any]) -> None:
        rows.append(row["step"])
        row["twice"] = 2 * row["step"]

    Rows.seen = []
    train(small_run(steps=150, eval_every=0), tmp_path / "run", callbacks=[Rows, note], **QUIET)
    assert Rows.seen == rows == [70, 140, 150]
    assert '"twice":140' in (tmp_path / "run" / "metrics.jsonl").read_text().replace(" ", "")


def test_what_is_no_callback_is_answered(tmp_path: Path) -> None:
    def wrong(training: Any, row: Any) -> None:
        raise ValueError("no")

    for given, words in (
        (object(), r"object is no callback: derive it from tenfold\.Callback"),
        (Wide, r"Wide\(\) raised TypeError"),
        (wrong, r"wrong raised ValueError: no in test_python_values\.py"),
    ):
        with pytest.raises(UserError, match=words):
            train(small(), tmp_path / "run", overwrite=True, callbacks=[given], **QUIET)


def test_trackers_are_named_from_python(tmp_path: Path) -> None:
    for given in ("mlfow", ["tensorboard", "mlfow"]):
        with pytest.raises(UserError, match="--track mlfow is not known: it can be wandb"):
            ten.train(small(), tmp_path / "run", track=given, quiet=True)
    assert not (tmp_path / "run").exists()
    result = ten.train(small(), tmp_path / "run", track="tensorboard", **QUIET)
    with pytest.raises(UserError, match="--track mlfow is not known"):
        ten.resume(result, more=10, track="mlfow")

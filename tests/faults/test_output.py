"""What a run is told about by its outputs and limits: nobody reads it any more, it cannot show a
letter, its folder is gone, no more files may be opened."""

import errno
import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tenfold.cli.closing import finish
from tenfold.cli.main import main
from tenfold.config.run import Run
from tenfold.core.processes import Interrupt, guarded_output
from tenfold.runs.checkpoint import checkpoint_steps
from tenfold.training.loop import resume, train

WORDS = ["dqn", "--agent.net.hidden", "8", "--agent.capacity", "500", "--steps", "400"]


@pytest.fixture
def unread() -> Iterator[Any]:
    """An output like that of `tenfold … | head` when head has ended."""
    read, write = os.pipe()
    os.close(read)
    with open(write, "w", buffering=1) as stream:
        yield stream


def test_a_run_whose_output_nobody_reads_is_saved_and_stops(
    small_run: Callable[..., Run],
    unread: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", unread)
        result = train(small_run(checkpoint_every=0), tmp_path / "run", report=False)
        assert sys.stderr is unread
        unread.write("nor is this an error")
    assert result.interrupted == signal.SIGPIPE and result.step < 600 and not result.unsaved
    assert checkpoint_steps(result.path)[-1] == result.step
    assert finish(result) == 128 + signal.SIGPIPE
    assert "Go on with: tenfold resume" in capsys.readouterr().out
    assert resume(result.path, quiet=True, report=False).step == 600


def test_an_error_of_another_kind_is_not_taken_for_a_lost_reader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard: list[int] = []
    with open("/dev/full", "w", buffering=1) as full:
        monkeypatch.setattr(sys, "stdout", full)
        with guarded_output(heard.append), pytest.raises(OSError, match="No space"):
            print("words")
        monkeypatch.undo()
        os.dup2(os.open(os.devnull, os.O_WRONLY), full.fileno())
    assert heard == []


def test_a_closed_terminal_stops_as_the_signal_of_its_end_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Closed(io.StringIO):
        def write(self, words: str) -> int:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(sys, "stdout", Closed())
    told: list[int] = []
    with Interrupt(lambda: told.append(1)) as interrupt:
        print("words")
        print("more words")
    assert (interrupt.signal, told) == (signal.SIGHUP, [1])


def test_a_list_that_nobody_reads_to_its_end_is_no_error(
    unread: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", unread)
    assert main(["list"]) == 0
    unread.flush()  # as the interpreter does when it ends


def test_an_output_without_our_letters_shows_others(
    finished_once: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LC_ALL=C: curves and deviations are written in ASCII."""
    for command, words in (
        (["watch", "--once"], "1 finished"),
        (["eval", "--episodes", "2"], "+- "),
    ):
        shown = io.TextIOWrapper(io.BytesIO(), "ascii", write_through=True)
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", shown)
            assert main([*command, str(finished_once)]) == 0
        shown.seek(0)
        assert words in shown.read()


def test_a_command_in_a_folder_that_was_removed_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert main(["list"]) == 2
    assert capsys.readouterr().err == (
        "tenfold: The folder you are in does not exist any more: change to one that does (cd).\n"
    )


def test_actors_that_need_more_files_than_are_allowed_are_told_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """ulimit -n 20."""

    def refuse(*given: Any) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "eventfd", refuse)
    assert main(["train", *WORDS, "--where", "processes", "--actors", "2", "--out", "run"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("tenfold: too many files are open at the same time")
    assert "allow more with `ulimit -n 4096`, or use fewer --actors" in told
    assert not Path("run").exists()

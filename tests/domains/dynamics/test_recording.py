"""Recordings of one's own: what is read from a file, what is held back, what is refused, and what
`tenfold fit` says."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tenfold as ten
from tenfold.cli.main import main
from tenfold.config.files import named
from tenfold.config.run import Run
from tenfold.core.errors import UserError
from tenfold.core.random import Purpose
from tenfold.domains.dynamics.learner import RecordingLearner
from tenfold.domains.dynamics.recording import Recording, parse_recording_id, read_recording
from tenfold.domains.dynamics.recording_table import Selection
from tenfold.domains.dynamics.validation import random_recordings

SHORT = ("--steps", "3", "--eval-every", "3", "--agent.length", "10")
TINY = {"steps": 3, "eval_every": 3, "agent": {"length": 10}}


def walk(steps: int, size: int = 2, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(steps, size)).cumsum(0) * 0.1


def recording_of(*lengths: int) -> Recording:
    """Observation and action of row k, counted over all episodes, are k."""
    rows = np.split(np.arange(sum(lengths), dtype=np.float32)[:, None], np.cumsum(lengths)[:-1])
    return Recording(tuple((own, own) for own in rows), 0.1)


def npz(path: Path, **arrays: object) -> Path:
    usual = {"observations": walk(100), "actions": walk(100, 1, 1), "dt": 0.1} | arrays
    np.savez(path, **{name: array for name, array in usual.items() if array is not None})  # type: ignore[arg-type]
    return path


def table(
    path: Path, head: str, rows: np.ndarray | Sequence[Sequence[object]], encoding: str = "utf-8"
) -> Path:
    path.write_text(
        "\n".join([head, *(",".join(map(str, row)) for row in rows)]) + "\n", encoding=encoding
    )
    return path


def refused(capsys: pytest.CaptureFixture[str], path: Path, *flags: str) -> str:
    """The sentence with which `tenfold fit` refuses a file; nothing is left behind."""
    out = path.parent / "refused"
    capsys.readouterr()
    assert main(["fit", str(path), "--out", str(out), *SHORT, *flags]) == 2
    said = capsys.readouterr().err
    assert not out.exists() and said.count("\n") == 1 and said.startswith("tenfold: ")
    return said


# held back


@pytest.mark.parametrize(
    ("lengths", "kept"),
    [
        ((1000, 10), [900, 10]),
        ((30, 500), [30, 440]),
        ((1000, 1000, 10), [900, 900, 10]),
        ((19, 19, 19, 500), [19, 19, 19, 440]),
        ((45,), [33]),
        ((40, 5), [28, 5]),
        ((20,) * 10, [20, 20, 20, 7, 20, 20, 20, 20, 20, 7]),
        ((15,) * 40, None),
        ((10,) * 100 + (1000,), None),
        ((300,), None),
    ],
)
def test_about_a_tenth_is_held_back_whatever_the_lengths(
    lengths: tuple[int, ...], kept: list[int] | None
) -> None:
    recording = recording_of(*lengths)
    division = recording.divided()
    held = np.concatenate(
        [
            part.ravel()
            for part in (
                [division.choosing[0]]
                if division.alone
                else [division.choosing[0], division.judging[0]]
            )
        ]
    )
    trained = np.concatenate([y.ravel() for y, _ in division.kept.episodes])
    assert len(held) + len(trained) == sum(lengths) and not set(held) & set(trained)
    if sum(lengths) >= 100:
        assert 0.05 <= len(held) / sum(lengths) <= 0.15
    assert kept is None or [len(y) for y, _ in division.kept.episodes] == kept
    for pieces in division[1:]:
        # no piece crosses from one episode to another
        assert (np.diff(pieces[0], axis=1) == 1).all() and np.array_equal(*pieces)
    assert division.alone or not set(division.choosing[0].ravel()) & set(
        division.judging[0].ravel()
    )


def test_recordings_too_short_to_hold_anything_back_are_refused() -> None:
    for lengths in ((13,), (11, 11, 11)):
        with pytest.raises(UserError, match="too short to hold steps back"):
            recording_of(*lengths).divided()
    still = recording_of(200).episodes[0][0].copy()
    still[150:] = 7
    with pytest.raises(UserError, match="never change in the steps that are held back"):
        Recording(((still, still),), 0.1).divided()


def test_no_training_sequence_crosses_a_cut(tmp_path: Path) -> None:
    file = npz(
        tmp_path / "data.npz",
        observations=np.arange(400.0)[:, None].repeat(2, 1),
        actions=np.zeros((400, 1)),
    )
    ten.fit(file, tmp_path / "run", settings=TINY, quiet=True)
    place = RecordingLearner(run_of(tmp_path / "run"))
    y, a = np.zeros((1, 500, 10, 2)), np.zeros((1, 500, 10, 1))
    place.agent.window.sample(y, a)
    assert (np.diff(y, axis=2) == 1).all() and y.max() < 360


def run_of(path: Path) -> Run:
    return named(str(path / "config.yaml"))


def test_other_steps_judge_than_those_that_choose(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    y = walk(400)
    ten.fit(
        npz(tmp_path / "data.npz", observations=y, actions=None), tmp_path / "run", settings=TINY
    )
    assert (
        "360 steps train, 40 are held back (20 choose the best checkpoint, 20 are for `tenfold eval`)"
        in capsys.readouterr().err
    )
    env = run_of(tmp_path / "run").env
    choosing, judging = (
        random_recordings(env, 4, purpose).y for purpose in (Purpose.SELECT, Purpose.EVALUATE)
    )
    assert np.array_equal(choosing[0], y[360:380]) and np.array_equal(judging[0], y[380:])
    assert main(["eval", str(tmp_path / "run")]) == 0
    assert "on 20 steps held back from training that chose nothing" in capsys.readouterr().out
    ten.fit(npz(tmp_path / "short.npz"), tmp_path / "short", settings=TINY)
    assert (
        "85 steps train, 15 are held back, so few that the same choose and judge"
        in capsys.readouterr().err
    )
    assert (
        main(["eval", str(tmp_path / "short")]) == 0
        and "that also chose the best checkpoint" in capsys.readouterr().out
    )


# what is read


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path: Path) -> None:
    rows = np.round(walk(50, 3), 3)
    one, other = (
        read_recording(table(tmp_path / "data.csv", "y0,y1,a0", rows, encoding), 0.1)
        for encoding in ("utf-8", "utf-8-sig")
    )
    assert one.sizes == other.sizes == (2, 1) and one.digest == other.digest


@pytest.mark.parametrize("name", ["episode", "trial", "trial_id"])
def test_trials_are_episodes_by_number_or_text(tmp_path: Path, name: str) -> None:
    y = np.round(walk(9, 1), 3)
    for ids in (
        [0, 0, 0, 1, 1, 1, 1, 2, 2],
        ["left 1"] * 3 + ["right"] * 4 + ["left 2"] * 2,
        ["1", "1.0", "01", *"2222", *"33"],
    ):
        read = read_recording(
            table(
                tmp_path / "data.csv",
                f"{name},y0",
                [[own, *row] for own, row in zip(ids, y.tolist(), strict=True)],
            ),
            0.1,
        )
        assert [len(own) for own, _ in read.episodes] == [3, 4, 2] and read.sizes == (1, 0)
        assert np.array_equal(np.concatenate([own for own, _ in read.episodes]), y)


def test_episodes_of_different_length_are_rows_with_an_episode_in_npz(tmp_path: Path) -> None:
    y, a, time = walk(9), walk(9, 1, 1), np.r_[0:3, 0:4, 0:2] * 0.5
    for ids in (np.array([0, 0, 0, 1, 1, 1, 1, 2, 2]), np.array(["x"] * 3 + ["y"] * 4 + ["z"] * 2)):
        read = read_recording(
            npz(tmp_path / "data.npz", observations=y, actions=a, dt=None, time=time, episode=ids)
        )
        assert read.dt == 0.5 and [own.shape for own, _ in read.episodes] == [
            (3, 2),
            (4, 2),
            (2, 2),
        ]
        assert np.array_equal(read.episodes[1][1], a[3:7])
    for change, words in (
        ({"episode": ids[:8]}, "must name the episode of each of the 9 rows"),
        ({"time": time[:8]}, "8 of time do not fit the 9"),
        ({"actions": a[:8]}, "8 of actions"),
        ({"trial": ids}, "both episode and trial"),
        (
            {"time": None, "dt": 0.1, "episode": np.array([0, 0, 0, 1, 1, 1, 1, 0, 0])},
            "episode 0 goes on at row 7",
        ),
    ):
        arrays = {
            "observations": y,
            "actions": a,
            "dt": None,
            "time": time,
            "episode": ids,
        } | change
        with pytest.raises(UserError, match=words):
            read_recording(npz(tmp_path / "data.npz", **arrays))
    ragged = np.empty(2, object)
    ragged[:] = [y[:5], y[5:]]
    with pytest.raises(
        UserError, match=r"holds Python objects.* give them as rows, .* with an array episode \[N\]"
    ):
        read_recording(npz(tmp_path / "data.npz", observations=ragged))


def test_recordings_without_actions_train(tmp_path: Path) -> None:
    npz(tmp_path / "data.npz", actions=None)
    table(tmp_path / "data.csv", "time,y0,y1", np.c_[np.arange(100) * 0.1, walk(100)])
    for name in ("data.npz", "data.csv"):
        for policy in ("random", "active"):
            settings = {
                "steps": 3,
                "eval_every": 3,
                "members": 2,
                "agent": {"length": 10, "planner": {"policy": policy}},
            }
            run = ten.fit(
                tmp_path / name, tmp_path / "run", settings=settings, quiet=True, overwrite=True
            )
        assert parse_recording_id(run.run.env)[1:3] == (2, 0)
        assert ten.load(run.path).field([[0.0, 1.0]]).shape == (2, 1, 2)  # type: ignore[union-attr]
        agent: Any = ten.load(run.path)
        within, on = (agent.forecast(walk(20), a, 5) for a in (None, np.zeros((23, 0))))
        # [t, k - 1] is of observation t + k: the last of 20 is the last that is foretold
        assert within.shape == (2, 15, 5, 2) and on.shape == (2, 19, 5, 2)
        assert np.allclose(within, on[:, :15], rtol=1e-5, atol=1e-6)
        for steps in (0, 20):
            with pytest.raises(ValueError, match="do not lie within 20 observations"):
                agent.forecast(walk(20), None, steps)
        assert len(ten.evaluate(run).r2[0]) == 10  # type: ignore[union-attr]
        assert ten.resume(run.path, 5, quiet=True).step == 5


def test_columns_are_named_by_a_list_or_by_how_they_begin(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = np.round(walk(100, 6), 3)
    file = table(tmp_path / "wide.csv", "neuron_0,neuron_1,neuron_10,stim (mV),stim_1,heart", rows)
    said = refused(capsys, file, "--dt", "0.1")
    assert (
        "has no columns y0, y1, … of observations" in said
        and "name yours with --observations" in said
    )
    begun = read_recording(file, 0.1, Selection(("neuron_",), ("stim",)))
    assert np.array_equal(np.c_[begun.episodes[0]], rows[:, :5]) and begun.left_out == ("heart",)
    exact = read_recording(file, 0.1, Selection(("neuron_1",), ("heart", "stim_1")))
    assert np.array_equal(np.c_[exact.episodes[0]], rows[:, [1, 5, 4]])
    flags = [
        "--dt",
        "0.1",
        "--observations",
        "neuron_",
        "--actions",
        "stim (mV),stim_1",
        "--quiet",
        "--out",
        str(tmp_path / "run"),
    ]
    assert (
        main(["fit", str(file), *flags, *SHORT]) == 0
        and "left out: heart." in capsys.readouterr().err
    )
    assert parse_recording_id(run_of(tmp_path / "run").env).selection == Selection(
        ("neuron_",), ("stim (mV)", "stim_1")
    )
    assert ten.resume(tmp_path / "run", 5, quiet=True).step == 5  # reads the same columns
    again = ten.fit(
        file,
        tmp_path / "again",
        dt=np.float64(0.1),
        observations="neuron_",
        actions=["stim (mV)", "stim_1"],
        settings=TINY,
        quiet=True,
    )
    assert again.run.env == run_of(tmp_path / "run").env
    for names, words in (
        (("spike_",), "has no column spike_ of observations"),
        (("neuron_0", "x"), "has no column x of observations"),
        (("stim_1",), "stim_1 cannot be both an observation and an action"),
    ):
        with pytest.raises(UserError, match=words):
            read_recording(file, 0.1, Selection(names, ("stim_1",)))


def test_arrays_of_npz_are_named_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    y, b, a = walk(100, 3), walk(100, 1, 2), walk(100, 2, 1)
    file = npz(
        tmp_path / "data.npz",
        observations=None,
        actions=None,
        spikes=y,
        lfp=b,
        stim=a,
        units=np.array(["a", "b"]),
    )
    read = read_recording(file, None, Selection(("spikes", "lfp"), ("stim",)))
    assert np.array_equal(np.c_[read.episodes[0]], np.c_[y, b, a]) and read.left_out == ("units",)
    assert (
        "has no array observations, only dt, spikes, lfp, stim, units: name yours with --observations"
        in refused(capsys, file)
    )
    assert "has no array light" in refused(
        capsys, file, "--observations", "spikes", "--actions", "light"
    )


def test_names_of_files_may_be_in_capitals_and_other_arrays_are_left_out_aloud(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    npz(tmp_path / "data.npz", names=np.array(["a", "b"]), note=np.array("text")).rename(
        tmp_path / "DATA.NPZ"
    )
    assert (
        main(["fit", str(tmp_path / "DATA.NPZ"), "--out", str(tmp_path / "run"), *SHORT, "--quiet"])
        == 0
    )
    assert "left out: names, note." in capsys.readouterr().err
    table(tmp_path / "data.csv", "y0", walk(50, 1)).rename(tmp_path / "DATA.CSV")
    assert read_recording(tmp_path / "DATA.CSV", 0.1).steps == 50


# refused


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"observations": np.zeros((0, 50, 4)), "actions": None}, "has no rows"),
        ({"observations": np.zeros((0, 4)), "actions": None}, "has no rows"),
        ({"observations": np.zeros((100, 0))}, "its observations have no numbers"),
        ({"observations": walk(100) + 1j}, "observations holds complex numbers"),
        ({"observations": walk(100).astype(str)}, "observations holds text"),
        ({"observations": walk(100) * 1e300}, "is beyond ±1e+18"),
        ({"observations": np.ones((100, 3))}, "none of its observations ever changes"),
        ({"observations": np.full((100, 3), np.nan)}, "none of its observations was observed"),
        (
            {"observations": walk(8), "actions": None},
            "data.npz has 8 steps, and a sequence that is trained on takes agent.length = 10",
        ),
        ({"dt": np.full(100, 0.1)}, "dt has the shape (100,); it must be one number"),
        ({"dt": np.array("0.1")}, "dt holds text"),
        (
            {"time": np.stack([np.arange(100) * 0.1] * 5)},
            "5 of [100, 100, 100, 100, 100] times do not fit together",
        ),
        ({"time": np.zeros((2, 3, 4))}, "time has the shape (2, 3, 4)"),
        ({"time": 0.1}, "time has the shape ()"),
        ({"time": np.arange(100) * 0.2}, "its dt says 0.1 for a step and its time 0.2"),
        (
            {"time": -np.arange(100) * 0.1},
            "time, episode 0, does not grow after row 0, from 0 to -0.1",
        ),
        (
            {"time": np.where(np.arange(100) == 50, np.nan, np.arange(100) * 0.1)},
            "time, episode 0, row 50 is missing or no number",
        ),
    ],
)
def test_arrays_that_cannot_be_trained_on_are_refused_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arrays: dict[str, object], words: str
) -> None:
    assert words in refused(capsys, npz(tmp_path / "data.npz", **arrays))


def test_a_column_that_never_changes_beside_others_is_kept_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = npz(tmp_path / "data.npz", observations=np.c_[walk(100), np.full(100, 5)])
    assert read_recording(file).sizes == (3, 1)
    ten.fit(file, tmp_path / "run", settings=TINY, quiet=True)
    assert "observations, number 2, never changes (5 in every row)" in capsys.readouterr().err
    silent = np.c_[walk(100), np.zeros((100, 2))]
    (note,) = read_recording(npz(tmp_path / "silent.npz", observations=silent)).notes
    assert note.startswith("2 of 4 observations never change, such as number 2 (0 in every row)")
    assert not read_recording(npz(tmp_path / "moving.npz")).notes


def test_trials_of_one_row_are_counted_and_take_no_part(tmp_path: Path) -> None:
    """400 of them beside a trial of 100 rows: a tenth of the 100 is held back, not of all 500, which
    would be half of what can be trained on."""
    episode = np.r_[np.zeros(100), np.arange(1, 401)]
    found = read_recording(npz(tmp_path / "data.npz", **rows_in(episode)))
    assert found.notes == (
        "400 episodes have one row and are not trained on, since nothing follows it",
    )
    division = found.divided()
    assert division.kept.steps + len(division.choosing[0]) * division.choosing[0].shape[1] == 100
    assert division.kept.steps >= 80
    alone = read_recording(npz(tmp_path / "alone.npz", **rows_in(np.arange(500))))
    with pytest.raises(UserError, match="None of the 500 episodes has more than one row"):
        alone.divided()


def rows_in(episode: np.ndarray) -> dict[str, Any]:
    rows = walk(len(episode))
    return {"observations": rows, "actions": None, "episode": episode}


def test_files_that_are_not_what_their_name_says_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty.npz").touch()
    np.save(tmp_path / "bare.npy", walk(50))
    (tmp_path / "bare.npy").rename(tmp_path / "bare.npz")
    whole = npz(tmp_path / "whole.npz").read_bytes()
    (tmp_path / "half.npz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "empty.csv").touch()
    table(tmp_path / "head.csv", "time,y0,a0", [])
    table(tmp_path / "long.csv", "y0,a0", [["1" * 200_000, 1]])
    table(tmp_path / "twice.csv", "time,y0,y0,a0", walk(50, 4))
    table(tmp_path / "semicolons.csv", "y0;a0", [["1;2"]] * 50)
    (tmp_path / "folder").mkdir()
    for name, words in (
        ("empty.npz", "is empty"),
        ("bare.npz", "is one bare array (NPY)"),
        ("half.npz", "cannot be read as NPZ"),
        ("empty.csv", "is empty"),
        ("head.csv", "has no rows"),
        ("long.csv", "cannot be read as CSV (field larger"),
        ("twice.csv", "has two columns y0"),
        ("semicolons.csv", "put commas in place of the semicolons"),
        ("folder", "is a folder, and not one of a run"),
    ):
        assert words in refused(capsys, tmp_path / name), name


def test_columns_that_nobody_asked_for_are_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = walk(50, 4)
    said = refused(capsys, table(tmp_path / "data.csv", "session,y0,a0,", rows), "--dt", "0.1")
    assert (
        "none of y0, y1, …, a0, a1, …, time and episode: session, one without a name. Remove them, or say which to take: --observations"
        in said
    )
    assert "both episode and trial" in refused(
        capsys, table(tmp_path / "data.csv", "episode,y0,trial,a0", rows), "--dt", "0.1"
    )
    blank = [["" if k == 4 else "x", *row] for k, row in enumerate(rows.tolist())]
    assert "line 6, does not say its trial" in refused(
        capsys, table(tmp_path / "data.csv", "trial,y0,y1,y2,y3", blank), "--dt", "0.1"
    )


def test_what_is_said_of_dt_must_agree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = npz(tmp_path / "data.npz")
    assert "its dt says 0.1 for a step and --dt 0.5: leave one out" in refused(
        capsys, file, "--dt", "0.5"
    )
    timed = table(tmp_path / "data.csv", "time,y0,y1", np.c_[np.arange(100) * 0.1, walk(100)])
    assert "--dt says 0.5 for a step and its time 0.1" in refused(capsys, timed, "--dt", "0.5")
    assert "--dt is -0.1: put it right" in refused(capsys, file, "--dt=-0.1")
    assert read_recording(file, 0.1 * (1 + 1e-7)).dt == 0.1 and read_recording(timed, 0.1).dt == 0.1
    words = table(
        tmp_path / "words.csv",
        "time,y0,y1",
        [["noon" if k == 5 else 0.1 * k, k, 0] for k in range(50)],
    )
    assert "line 7, column time, has 'noon', which is no number" in refused(capsys, words)
    for dt in ("0.1", True, [0.1]):
        with pytest.raises(UserError, match="is no number: give the time of a step"):
            ten.fit(npz(tmp_path / "plain.npz", dt=None), tmp_path / "run", dt=dt)  # type: ignore[arg-type]
    assert (
        ten.fit(
            tmp_path / "plain.npz", tmp_path / "run", dt=np.float64(0.1), settings=TINY, quiet=True
        ).step
        == 3
    )


def test_poisson_noise_needs_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    counts = np.random.default_rng(0).poisson(2.0, (200, 3)).astype(float)
    flags = ("--agent.model.noise", "poisson", "--agent.model.decoder", "loglinear")
    for wrong in (-1.0, 0.5):
        spoiled = counts.copy()
        spoiled[7, 2] = wrong
        said = refused(
            capsys, npz(tmp_path / "data.npz", observations=spoiled, actions=None), *flags
        )
        assert (
            f"observations, episode 0, row 7, number 2 ({wrong:g}) is no count" in said
            and "use gaussian" in said
        )
    file = npz(tmp_path / "data.npz", observations=counts, actions=None)
    assert main(["fit", str(file), "--out", str(tmp_path / "run"), *SHORT, *flags, "--quiet"]) == 0


# runs


def test_a_run_notices_that_its_recording_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, run = npz(tmp_path / "data.npz"), str(tmp_path / "run")
    before = file.read_bytes()
    ten.fit(file, run, settings=TINY, quiet=True)
    npz(file, observations=walk(100, seed=5))
    for command in (("resume", run, "--steps", "5"), ("eval", run)):
        assert (
            main(command) == 2
            and "data.npz is no longer what this run was trained on" in capsys.readouterr().err
        )
    file.write_bytes(before)
    assert main(("resume", run, "--steps", "5", "--quiet")) == 0


def test_the_folder_of_a_fit_is_its_recording_and_other_folders_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = ten.fit(
        npz(tmp_path / "data.npz"), tmp_path / "runs" / "first", settings=TINY, quiet=True
    )
    second = ten.fit(
        first.path, tmp_path / "second", settings={**TINY, "agent": {"length": 5}}, quiet=True
    )
    assert parse_recording_id(first.run.env).digest == parse_recording_id(second.run.env).digest
    assert ten.resume(second.path, 5, quiet=True).step == 5
    assert f"holds runs and is none itself: give one of them, such as {first.path}" in refused(
        capsys, tmp_path / "runs"
    )
    assert "--dt says 0.5: leave --dt out" in refused(capsys, first.path, "--dt", "0.5")
    assert "--observations, --actions and --bin are for files" in refused(
        capsys, first.path, "--observations", "x"
    )


def test_an_explorers_run_with_a_short_last_episode_is_trained_on_whole(tmp_path: Path) -> None:
    small = {
        "env": "tenfold/LimitCycle-v0(size=5, limit=100)",
        "steps": 105,
        "eval_every": 0,
        "log_every": 50,
        "agent": {
            "window": 200,
            "length": 20,
            "batch_size": 2,
            "planner": {"policy": "random"},
            "model": {"grid": 4},
        },
    }
    explored = ten.train(named("explorer", small), tmp_path / "explored", quiet=True)
    run = ten.fit(explored.path, tmp_path / "run", settings={"steps": 2}, quiet=True)
    # sequences of 20 fit; the rest is 15 steps
    assert [len(y) for y, _ in RecordingLearner(run.run).division.kept.episodes] == [85, 5]


def test_a_fit_speaks_of_gradient_steps_and_of_what_can_be_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenfold.training.display.LINE_SECONDS", 0.0)
    run = tmp_path / "run"
    assert (
        main(
            ["fit", str(npz(tmp_path / "data.npz")), "--out", str(run), *SHORT, "--log-every", "1"]
        )
        == 0
    )
    said = capsys.readouterr()
    assert (
        "step 2 of 3" in said.err and "belief" not in said.err + (run / "metrics.jsonl").read_text()
    )
    assert (
        "play it" not in said.out
        and f'judge it: tenfold eval {run}   ask it: tenfold.load("{run}").field(z)' in said.out
    )
    assert "on steps that choose the best checkpoint:" in said.out
    page = (run / "report.html").read_text()
    assert "gradient steps" in page and "environment steps" not in page
    assert "--members 8 trains 8 seeds" in refused(capsys, tmp_path / "data.npz", "--seeds", "3")


def test_the_help_of_fit_names_settings_that_recordings_have(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["fit", "--help"])
    flags = {
        word.strip("[],")
        for word in capsys.readouterr().out.split()
        if word.strip("[],").startswith("--agent.")
    }
    assert {"--agent.model.latent", "--agent.refit", "--agent.lr"} <= flags
    assert not {
        flag for flag in flags if "gamma" in flag or "planner" in flag or "net" in flag.split(".")
    }


def test_dynamics_are_fitted_to_recordings_in_closed_form(tmp_path: Path) -> None:
    """A step of Adam moves a weight by about the learning rate; the fit, where it is due, by as
    much as the data say."""
    run = ten.fit(
        npz(tmp_path / "data.npz"),
        tmp_path / "run",
        quiet=True,
        settings={
            "steps": 1,
            "eval_every": 0,
            "agent": {"length": 10, "refit": 5, "learning_starts": 0, "lr": 1e-3},
        },
    )
    place = RecordingLearner(run.run)
    moved = []
    for _ in range(6):
        before = place.agent.online.dynamics.weight.detach().clone()
        place.round()
        moved.append(float((place.agent.online.dynamics.weight - before).abs().max().detach()))
    assert max(moved[:4]) < 5e-3 and moved[4] > 0.05 and moved[5] < 5e-3

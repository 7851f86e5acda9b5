"""Recordings in the formats of their fields: each is written here, read back, and equal; bad files
are refused in a sentence that says where."""

import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest
from scipy.io import savemat
from scipy.sparse import csc_matrix

import tenfold as ten
from tenfold.cli.main import main
from tenfold.core.errors import ConfigError, UserError
from tenfold.domains.dynamics.recording import Recording, load_recording, read_recording
from tenfold.domains.dynamics.recording_formats import read_parts
from tenfold.domains.dynamics.recording_nwb import Series, SpikeUnits, bin_series, joined_spans
from tenfold.domains.dynamics.recording_table import Selection, read_frame

TINY = {"steps": 3, "eval_every": 3, "agent": {"length": 10}}
Y = np.random.default_rng(0).normal(size=(4, 30, 3)).cumsum(1)  # [E, T, Y]
A = np.random.default_rng(1).normal(size=(4, 30, 2))
LENGTHS = (12, 30, 25)
EPISODES = [(Y[k, :n], A[k, :n]) for k, n in enumerate(LENGTHS)]


def equal(read: Recording, episodes: Any, dt: float = 0.1) -> bool:
    assert read.dt == pytest.approx(dt, rel=1e-9) and len(read.episodes) == len(episodes)
    return all(
        np.array_equal(found, own)
        for pair, wanted in zip(read.episodes, episodes, strict=True)
        for found, own in zip(pair, wanted, strict=True)
    )


def whole(trials: np.ndarray = Y, actions: np.ndarray = A) -> list[tuple[np.ndarray, np.ndarray]]:
    return list(zip(trials, actions, strict=True))


def h5(path: Path, **arrays: Any) -> Path:
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[name] = array
    return path


# HDF5


def test_hdf5_has_the_names_of_npz_in_groups_too(tmp_path: Path) -> None:
    assert equal(read_recording(h5(tmp_path / "a.h5", observations=Y, actions=A, dt=0.1)), whole())
    rows, acts = (np.concatenate([pair[k] for pair in EPISODES]) for k in (0, 1))
    names = np.repeat(["left", "right", "rest"], LENGTHS).astype("S5")
    file = h5(tmp_path / "b.hdf5", **{"area/spikes": rows, "area/push": acts, "trial": names})
    with h5py.File(file, "a") as open_file:
        open_file.attrs["dt"] = 0.1
    read = read_recording(file, None, Selection(("area/spikes",), ("area/push",)))
    assert equal(read, EPISODES) and not read.left_out


def test_names_of_lfads_are_known(tmp_path: Path) -> None:
    """Trials of both parts in the order in which they were recorded; recon before encod."""
    order = np.array([2, 0, 3, 1])  # train is trials 2, 0, 3
    parts = {
        f"{part}_{kind}": rows[order[own]]
        for part, own in (("train", slice(3)), ("valid", slice(3, 4)))
        for kind, rows in (
            ("recon_data", Y),
            ("encod_data", Y[:, :20, :2]),
            ("ext_input", A),
            ("inds", np.arange(4)),
        )
    }
    read = read_recording(h5(tmp_path / "lfads.h5", **parts), 0.1)
    assert equal(read, whole()) and read.left_out == ("encod_data",)
    chosen = read_recording(tmp_path / "lfads.h5", 0.1, Selection(("encod_data",)))
    assert equal(chosen, whole(Y[:, :20, :2], A[:, :20]))


def test_old_names_of_lfads_too_and_without_order_train_comes_first(tmp_path: Path) -> None:
    file = h5(tmp_path / "old.h5", train_data=Y[1:], valid_data=Y[:1], dt=0.01)
    wanted = [(own, np.zeros((30, 0))) for own in Y[[1, 2, 3, 0]]]
    assert equal(read_recording(file), wanted, 0.01)
    torn = h5(tmp_path / "bad.h5", train_data=Y[1:], valid_data=Y[:1, :, :2], dt=0.01)
    with pytest.raises(
        UserError, match=r"train_data has the shape \(3, 30, 3\) and valid_data .*\(1, 30, 2\)"
    ):
        read_recording(torn)


def test_hdf5_that_is_none_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "no.h5").write_text("spikes")
    (tmp_path / "no.nwb").touch()
    file = h5(tmp_path / "half.h5", observations=Y, dt=0.1)
    file.write_bytes(file.read_bytes()[:900])
    h5(tmp_path / "plain.nwb", observations=Y)
    h5(tmp_path / "text.h5", observations=np.array([[b"a"] * 3] * 30), dt=0.1)
    h5(tmp_path / "flat.h5", observations=Y[0, :, 0], dt=0.1)
    for name, words in (
        ("no.h5", "no HDF5 file, or its head is torn"),
        ("no.nwb", "is empty"),
        ("half.h5", "cannot be read as HDF5"),
        ("plain.nwb", "no attribute nwb_version"),
        ("text.h5", "observations holds text"),
        ("flat.h5", r"observations has the shape \(30,\); it must be \[T, numbers\]"),
    ):
        with pytest.raises(UserError, match=words):
            read_recording(tmp_path / name)
    with pytest.raises(UserError, match="--bin is for NWB"):
        read_parts(h5(tmp_path / "good.h5", observations=Y, dt=0.1), Selection(bin=0.02))
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(UserError, match=r"pip install 'tenfold\[nwb\]'"):
        read_recording(tmp_path / "good.h5")


# MATLAB


def cells(values: list[np.ndarray]) -> np.ndarray:
    found = np.empty((1, len(values)), object)
    found[0] = values
    return found


def test_matlab_files_have_arrays_cells_structs_and_sparse_matrices(tmp_path: Path) -> None:
    savemat(tmp_path / "a.mat", {"observations": Y, "actions": A, "dt": 0.1})
    assert equal(read_recording(tmp_path / "a.mat"), whole())
    y, a = ([pair[k] for pair in EPISODES] for k in (0, 1))
    savemat(tmp_path / "b.mat", {"observations": cells(y), "actions": cells(a), "dt": 0.1})
    assert equal(read_recording(tmp_path / "b.mat"), EPISODES)
    trials = np.array(list(zip(y, a, strict=True)), dtype=[("spikes", object), ("push", object)])
    savemat(tmp_path / "c.mat", {"trial": trials, "note": "text"})
    read = read_recording(tmp_path / "c.mat", 0.1, Selection(("trial.spikes",), ("trial.push",)))
    assert equal(read, EPISODES) and read.left_out == ("note",)
    time = np.arange(30) * 0.1
    savemat(
        tmp_path / "d.mat", {"data": {"y": csc_matrix(np.round(Y[0])), "a": A[0]}, "time": time}
    )
    read = read_recording(tmp_path / "d.mat", None, Selection(("data.y",), ("data.a",)))
    assert equal(read, [(np.round(Y[0]), A[0])])


def mat73(path: Path, **arrays: Any) -> Path:
    """As MATLAB 7.3 writes: HDF5 behind a head of 512 bytes, every array transposed, cells as
    references."""
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, value in arrays.items():
            if isinstance(value, list):
                places = [
                    file.create_dataset(f"#refs#/{name}{k}", data=own.T)
                    for k, own in enumerate(value)
                ]
                refs = np.array([[own.ref] for own in places], dtype=h5py.ref_dtype)
                file.create_dataset(name, data=refs).attrs["MATLAB_class"] = np.bytes_("cell")
            else:
                file.create_dataset(name, data=np.atleast_2d(value).T)
                file[name].attrs["MATLAB_class"] = np.bytes_("double")
    with path.open("r+b") as stream:
        stream.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(128, b" "))
    return path


def test_matlab_7_3_is_read_too(tmp_path: Path) -> None:
    assert equal(
        read_recording(mat73(tmp_path / "a.mat", observations=Y, actions=A, dt=0.1)), whole()
    )
    y, a = ([pair[k] for pair in EPISODES] for k in (0, 1))
    file = mat73(tmp_path / "b.mat", observations=y, actions=a, dt=0.1)
    assert equal(read_recording(file), EPISODES)
    sparse = csc_matrix(np.round(Y[0]))
    with h5py.File(mat73(tmp_path / "c.mat", dt=0.1), "a") as made:
        group = made.create_group("observations")
        group.attrs["MATLAB_sparse"] = np.uint64(30)
        group["data"], group["ir"], group["jc"] = sparse.data, sparse.indices, sparse.indptr
    assert equal(read_recording(tmp_path / "c.mat"), [(np.round(Y[0]), np.zeros((30, 0)))])


def test_bad_matlab_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "no.mat").write_text("nothing of MATLAB's")
    savemat(tmp_path / "a.mat", {"spikes": Y[0]})
    savemat(tmp_path / "b.mat", {"observations": cells([Y[0], Y[1][:, :2]]), "dt": 0.1})
    savemat(
        tmp_path / "c.mat", {"observations": cells([*Y]), "actions": cells([*A[:, 1:]]), "dt": 0.1}
    )
    for name, words in (
        ("no.mat", "cannot be read as a MATLAB file"),
        ("a.mat", "has no array observations, only spikes: name yours with --observations"),
        ("b.mat", r"cell 2 of observations has the shape \(30, 2\), cell 1 \(30, 3\)"),
        ("c.mat", "the cells of actions have 29, 29, 29, 29 rows"),
    ):
        with pytest.raises(UserError, match=words):
            read_recording(tmp_path / name)


# frames


def framed() -> pd.DataFrame:
    rows = np.concatenate([np.c_[y, a] for y, a in EPISODES])
    frame = pd.DataFrame(rows, columns=["n_a", "n_b", "n_c", "left", "right"])
    return frame.assign(trial=np.repeat(["x", "y", "z"], LENGTHS), note="text")


def test_columns_of_a_frame_are_chosen_by_name_and_trials_are_episodes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ten.fit(
        framed(), tmp_path / "run", settings=TINY, dt=0.1,
        observations="n_", actions=["left", "right"], quiet=True,
    )  # fmt: skip
    assert "the frame also holds what is left out: note." in capsys.readouterr().err
    assert equal(load_recording(run.run.env), EPISODES)  # what eval and resume will read
    assert main(["eval", str(tmp_path / "run")]) == 0


def test_the_index_of_a_frame_says_trial_and_time() -> None:
    clock = np.concatenate([np.arange(n) for n in LENGTHS])
    plain = framed().drop(columns=["note", "trial"])
    for time in (
        clock * 0.1,
        pd.to_timedelta(clock * 100, "ms"),
        pd.Timestamp("2026-01-01") + pd.to_timedelta(clock * 100, "ms"),
    ):
        index = pd.MultiIndex.from_arrays(
            [np.repeat([7, 3, 5], LENGTHS), time], names=["trial_id", "time"]
        )
        parts = read_frame(plain.set_index(index), Selection(("n_",), ("left", "right")))
        assert parts.time is not None
        np.testing.assert_allclose(np.concatenate(parts.time), clock * 0.1, atol=1e-12)
        assert all(np.array_equal(own, y) for own, (y, _) in zip(parts.y, EPISODES, strict=True))
    several = plain.copy()
    several.columns = pd.MultiIndex.from_tuples(
        [("spikes", 1), ("spikes", 2), ("spikes", 10), ("hand", "x"), ("hand", "y")]
    )
    parts = read_frame(several, Selection(("spikes",), ("hand_x", "hand_y")))
    assert parts.y[0].shape == (sum(LENGTHS), 3) and parts.a[0].shape == (sum(LENGTHS), 2)


def test_bad_frames_are_refused(tmp_path: Path) -> None:
    frame = framed()
    texts = frame.assign(n_b=frame.n_b.astype(object))
    texts.iloc[4, 1] = "many"
    with pytest.raises(UserError, match=r"column n_b, row 4 \('many'\) is no number"):
        read_frame(texts, Selection(("n_",)))
    with pytest.raises(UserError, match=r"none of y0, y1.*: left, right, note"):
        read_frame(frame.rename(columns={"n_a": "y0", "n_b": "y1", "n_c": "y2"}))
    with pytest.raises(UserError, match="has no column m_ of observations"):
        read_frame(frame, Selection(("m_",)))
    with pytest.raises(UserError, match="has two columns n_a"):
        read_frame(frame.rename(columns={"n_b": "n_a"}), Selection(("n_",)))
    lost = frame.assign(trial=frame.trial.where(frame.index != 3))
    with pytest.raises(UserError, match="row 3, does not say its trial"):
        read_frame(lost, Selection(("n_",)))
    with pytest.raises(UserError, match="with shared=True"):
        ten.fit([frame, frame], tmp_path / "run", dt=0.1)
    with pytest.raises(ConfigError, match="bin = -1"):
        ten.fit(frame, tmp_path / "run", dt=0.1, bin=-1)
    with pytest.raises(UserError, match="The frame has no rows"):
        ten.fit(frame.iloc[:0].assign(time=0.0), tmp_path / "run", observations="n_")
    for other in (np.zeros((50, 3)), {"observations": np.zeros((50, 3))}):
        with pytest.raises(UserError, match=r"not (ndarray|dict): save arrays by np.savez"):
            ten.fit(other, tmp_path / "run", dt=0.1)


# NWB


def nwb(path: Path, trials: Any = ((0.5, 1.1), (2.003, 2.6)), **more: Any) -> Path:
    """Two units, whose spikes and intervals are worked out by hand, and two series."""
    with h5py.File(path, "w") as file:
        file.attrs["nwb_version"] = "2.7.0"
        units = file.create_group("units")
        first, second = [0.5, 0.55, 0.7, 2.003, 2.1], [0.65, 2.59, 1.05]
        units["spike_times"] = more.get("spikes", np.array(first + second))
        units["spike_times_index"] = more.get("ends", np.array([5, 8], np.uint8))
        if "observed" in more:
            units["obs_intervals"] = more["observed"]
            units["obs_intervals_index"] = np.arange(1, len(more["observed"]) + 1)
        if trials is not None:
            table = np.array(trials, float).reshape(-1, 2)
            file["intervals/trials/start_time"], file["intervals/trials/stop_time"] = table.T
        hand = file.create_group("processing/behavior/hand")
        hand["data"] = np.arange(30)
        hand["data"].attrs["conversion"], hand["data"].attrs["offset"] = 0.5, 1.0
        hand["starting_time"] = 0.0
        hand["starting_time"].attrs["rate"] = 10.0
        light = file.create_group("stimulus/presentation/light")
        light["data"] = np.array([[0.0, 1.0], [4.0, 1.0]])
        light["timestamps"] = more.get("stamps", np.array([0.0, 4.0]))
    return path


def test_spikes_are_counted_in_bins_of_any_width_from_the_start_of_each_trial(
    tmp_path: Path,
) -> None:
    read = read_recording(nwb(tmp_path / "a.nwb"), None, Selection(bin=0.2))
    first, second = (y for y, _ in read.episodes)
    # [0.5, 0.7) has 0.5, 0.55 and 0.65; 0.7 begins the second bin
    assert first.tolist() == [[2, 1], [1, 0], [0, 1]] and read.dt == 0.2
    assert second.tolist() == [[2, 0], [0, 0]]  # what is left of 2.003 … 2.6 is no whole bin
    assert read.left_out == ("processing/behavior/hand", "stimulus/presentation/light")
    # 3 · 0.1 rounds to more than 0.3, which begins the fourth bin all the same
    spikes = {"spikes": np.array([0.3, 0.3]), "ends": np.array([1, 2])}
    fourth = read_recording(nwb(tmp_path / "b.nwb", [(0, 0.6)], **spikes), None, Selection(bin=0.1))
    assert fourth.episodes[0][0][:, 0].tolist() == [0, 0, 0, 1, 0, 0]
    odd = read_recording(tmp_path / "a.nwb", None, Selection(bin=0.0731))
    assert [len(y) for y, _ in odd.episodes] == [8, 8] and odd.episodes[0][0].sum() == 5


def test_series_are_actions_or_observations_by_name_on_clocks_of_their_own(tmp_path: Path) -> None:
    file = nwb(tmp_path / "a.nwb")
    read = read_recording(file, None, Selection(("units", "hand"), ("light",), 0.2))
    y, a = read.episodes[0]
    # samples at 0.5 and 0.6, at 0.7 and 0.8, at 0.9 and 1.0: halves of 5.5, 7.5, 9.5 and 1 more
    np.testing.assert_allclose(y[:, 2], [3.75, 4.75, 5.75])
    # none in a bin: between 0 at 0 s and 4 at 4 s, at the middle
    np.testing.assert_allclose(a, [[0.6, 1], [0.8, 1], [1.0, 1]])
    read = read_recording(file, None, Selection(("processing/behavior/hand",), (), 0.1))
    np.testing.assert_allclose(read.episodes[0][0][:, 0], 0.5 * np.arange(5, 11) + 1)


def test_where_a_unit_was_not_observed_counts_are_missing(tmp_path: Path) -> None:
    file = nwb(tmp_path / "a.nwb", observed=np.array([[0.0, 3.0], [0.6, 3.0]]))
    first = read_parts(file, Selection(bin=0.2)).y[0]
    np.testing.assert_array_equal(first, [[2, np.nan], [1, 0], [0, 1]])
    spans = nwb(tmp_path / "b.nwb", None, observed=np.array([[0.5, 1.1], [0.5, 1.1]]))
    assert np.array_equal(read_parts(spans, Selection(bin=0.2)).y[0], [[2, 1], [1, 0], [0, 1]])
    none = read_parts(nwb(tmp_path / "c.nwb", None), Selection(bin=0.1)).y
    assert len(none) == 1 and len(none[0]) == 20 and none[0][:, 0].sum() == 5


def test_counts_and_means_of_bins_are_those_of_each_bin_alone() -> None:
    """Spans that touch, overlap and end within a bin; samples that are missing, or none in a bin."""
    rng = np.random.default_rng(0)
    starts = rng.uniform(0, 20, 12)
    spans = np.stack((starts, starts + rng.uniform(0.1, 3, 12)), 1)
    observed = np.array(joined_spans(spans))
    edges = 2.0 + 0.25 * np.arange(61)
    counts = SpikeUnits([np.sort(rng.uniform(0, 20, 300))], [observed]).counted(edges)
    for low, high, (found,) in zip(edges, edges[1:], counts, strict=False):
        inside = any(start <= low and high <= stop for start, stop in observed)
        assert np.isnan(found) == (not inside)
    assert 0 < np.isnan(counts).sum() < 60
    assert np.isnan(SpikeUnits([np.zeros(0)], [np.zeros((0, 2))]).counted(edges)).all()
    time = np.sort(rng.uniform(0, 20, 90))
    values = rng.normal(size=(90, 2))
    values[rng.random((90, 2)) < 0.2] = np.nan
    values[:, 1] = np.where(time < 12, values[:, 1], np.nan)
    means = bin_series(Series(time, values), edges)
    for k, column in enumerate(values.T):
        known = np.isfinite(column)
        for low, high, found in zip(edges, edges[1:], means[:, k], strict=False):
            own = column[(time >= low) & (time < high)]
            wanted = np.mean(own[np.isfinite(own)]) if np.isfinite(own).any() else np.nan
            if not len(own):
                wanted = np.interp((low + high) / 2, time[known], column[known])
            assert found == pytest.approx(wanted, nan_ok=True)


def test_trials_that_overlap_or_lack_an_end_are_cut_or_left_out_aloud(tmp_path: Path) -> None:
    trials = [(2.0, 2.6), (0.5, 1.1), (0.9, 1.7), (np.nan, 3.0), (1.8, 1.9)]
    parts = read_parts(nwb(tmp_path / "a.nwb", trials), Selection(bin=0.2))
    assert [len(y) for y in parts.y] == [3, 3, 3]  # 0.5 … 1.1, 1.1 … 1.7, 2.0 … 2.6
    assert parts.left_out[:3] == (
        "1 trials without start or stop",
        "what 1 trials share with those before them",
        "1 trials of less than 2 bins",
    )


@pytest.mark.parametrize(
    ("more", "columns", "words"),
    [
        ({}, Selection(), "say the width of a bin in seconds, such as --bin 0.02"),
        ({}, Selection(bin=9.0), "none of its 2 trials is as long as 2 bins of 9 s"),
        ({}, Selection((), ("foot",), 0.1), "of series with the name foot it has none, only units, proc"),
        ({"trials": [(0.5, 0.2)]}, Selection(bin=0.1), "intervals/trials, row 0, stops at 0.2, not after"),
        ({"spikes": np.array([1, 2, np.nan, 4, 5, 6, 7, 8])}, Selection(bin=0.1), "unit 0, row 2 is no finite time"),
        ({"ends": np.array([5, 9])}, Selection(bin=0.1), "spike_times_index, row 1, points to 9 of 8 values"),
        ({"stamps": np.array([4.0, 0.0])}, Selection((), ("light",), 0.1), "light/timestamps, row 1, is missing or before"),
        ({"stamps": np.array([4.0])}, Selection((), ("light",), 0.1), "light has 2 values and 1 timestamps"),
    ],
)  # fmt: skip
def test_bad_nwb_files_are_refused(
    tmp_path: Path, more: dict[str, Any], columns: Selection, words: str
) -> None:
    with pytest.raises(UserError, match=words):
        read_recording(nwb(tmp_path / "a.nwb", **more), None, columns)


def test_a_fit_of_nwb_remembers_bins_and_names(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    times = [np.sort(rng.uniform(0, 8, 400)) for _ in range(2)]
    file = nwb(
        tmp_path / "a.nwb",
        [(0, 4), (4, 8)],
        spikes=np.concatenate(times),
        ends=np.array([400, 800]),
        stamps=np.array([0.0, 8.0]),
    )
    flags = ["--bin", "0.05", "--actions", "light", "--agent.model.noise", "poisson"]
    short = ["--steps", "3", "--eval-every", "3", "--agent.length", "10", "--quiet"]
    assert main(["fit", str(file), "--out", str(tmp_path / "run"), *flags, *short]) == 0
    assert main(["eval", str(tmp_path / "run")]) == 0
    agent: Any = ten.load(tmp_path / "run")
    assert agent.dt == 0.05 and agent.online.observations == 2 and agent.online.actions == 2

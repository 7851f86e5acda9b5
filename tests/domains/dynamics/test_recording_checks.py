"""Times as they are recorded: what is moved to a regular clock, what becomes a gap, and what an
episode of its own."""

from pathlib import Path

import numpy as np
import pytest

import tenfold as ten
from tenfold.core.errors import UserError
from tenfold.domains.dynamics.recording import Recording, read_recording
from tenfold.domains.dynamics.recording_checks import (
    estimate_clock,
    interpolate_parabolic,
    regularise,
    resample,
)

NAN = float("nan")


def recording(
    path: Path, y: np.ndarray, time: np.ndarray, actions: np.ndarray | None = None, **more: object
) -> Recording:
    arrays = {"observations": y, "time": time, "actions": actions} | more
    np.savez(path / "data.npz", **{k: v for k, v in arrays.items() if v is not None})  # type: ignore[arg-type]
    return read_recording(path / "data.npz")


def wave(time: np.ndarray) -> np.ndarray:
    return np.stack([np.sin(time), np.cos(0.7 * time)], -1)


def test_even_times_leave_every_number_as_it_is(tmp_path: Path) -> None:
    time = np.arange(100) * 0.1 + np.random.default_rng(0).uniform(-4e-5, 4e-5, 100)
    found = recording(tmp_path, wave(time), time)
    assert np.array_equal(found.episodes[0][0], wave(time)) and not found.notes
    assert found.dt == np.diff(time).mean()


def test_a_parabola_is_moved_exactly_and_a_line_where_a_neighbour_is_missing() -> None:
    time, moments = np.array([0.0, 0.9, 2.1, 3.0]), np.array([0.0, 1.0, 2.0, 3.0])
    square = (1 + 2 * time + 3 * time**2)[:, None]
    # at the ends a line through the last two: rows 0 and 3 are where they should be
    assert interpolate_parabolic(square, time, moments, 1.0)[:, 0] == pytest.approx([1, 6, 17, 34])
    gap = np.array([[0.0], [0.9], [NAN], [3.0]])
    found = interpolate_parabolic(gap, time, moments, 1.0)[:, 0]
    assert found[:2] == pytest.approx([0.0, 1.0]) and np.isnan(found[2]) and found[3] == 3.0


@pytest.mark.parametrize("jitter", [0.01, 0.05])
@pytest.mark.parametrize("walking", [False, True])
def test_jitter_is_taken_out_and_noise_stays_what_it_is(
    tmp_path: Path, jitter: float, walking: bool
) -> None:
    rng, dt = np.random.default_rng(0), 0.1
    steps = dt * (1 + jitter * rng.uniform(-1, 1, 2000))
    regular = np.arange(2000) * dt
    time = np.cumsum(steps) if walking else regular + dt * jitter / 2 * rng.uniform(-1, 1, 2000)
    found = recording(tmp_path, wave(time), time)
    (y, _), clock = found.episodes[0], found.dt
    assert clock == pytest.approx(dt, rel=2e-3) and abs(len(y) - 2000) <= 1
    first = (time - np.arange(2000) * clock).mean()
    ticks = first + clock * (np.arange(len(y)) + round((time[0] - first) / clock))
    off = np.abs(y - wave(ticks))[1:-1].max()
    taken_as_is = np.abs(wave(time)[: len(y)] - wave(ticks[:2000]))[1:-1].max()
    assert off < 2e-4 and off < taken_as_is / 5
    assert f"off {clock:g} by" in found.notes[0] and "parabolas" in found.notes[0]
    noise = rng.normal(size=(2000, 2))
    left = resample(noise, np.zeros((2000, 0)), time, np.arange(2000), clock)[0]
    assert left.std() == pytest.approx(noise.std(), rel=0.05)
    # by w² on the mean; a line would make neighbours correlate by w(1 − w), 0.17 of a walking clock
    assert abs((left[1:] * left[:-1]).mean()) < 0.1


def test_an_action_is_averaged_over_the_clocks_step() -> None:
    time, a = np.array([0.0, 1.1, 2.0, 3.0]), np.array([[1.0], [2.0], [3.0], [4.0]])
    # the clock that fits best begins at 0.025; from there until 1.025 the first action holds, and
    # of the second step 0.075 more of it
    found = resample(np.zeros((4, 1)), a, time, np.arange(4), 1.0)[1][:, 0]
    assert found == pytest.approx([1.0, 0.075 + 2 * 0.925, 3 - 0.0 + 0.025 * 1, 4.0], abs=0.03)
    assert found[1] == pytest.approx(0.075 * 1 + 0.9 * 2 + 0.025 * 3)


def test_whole_gaps_become_rows_without_observations_where_nothing_was_done(
    tmp_path: Path,
) -> None:
    places = np.r_[0:30, 33:60, 90:120]
    found = recording(tmp_path, wave(places * 0.1), places * 0.1)
    assert [len(y) for y, _ in found.episodes] == [60, 30]  # 30 steps are too long to fill
    assert np.isnan(found.episodes[0][0][30:33]).all() and found.missing == 6
    assert np.array_equal(found.episodes[0][0][33:], wave(np.arange(33, 60) * 0.1))
    assert found.notes == (
        "6 of 180 values (3.3 %) are not observed",
        "1 gap in time is filled by 3 rows of which nothing was observed",
        "an episode begins after each of 1 gap in time",
    )


def test_a_gap_in_which_something_may_have_been_done_begins_an_episode(tmp_path: Path) -> None:
    places = np.r_[0:30, 33:60, 60.5]
    found = recording(tmp_path, wave(places * 0.1), places * 0.1, np.ones((len(places), 1)))
    assert [len(y) for y, _ in found.episodes] == [30, 27] and not found.missing
    assert found.notes == (
        "an episode begins after each of 2 gaps in time; 1 rows that stand alone between gaps are "
        "left out",
    )


def test_an_episode_without_rows_is_none_on_the_clock() -> None:
    """As a trial without samples is, among others whose times jitter."""
    time = 0.1 * np.arange(30) + 0.005 * np.sin(np.arange(30.0))
    whole, none = np.sin(time)[:, None], np.zeros((0, 1))
    clock = estimate_clock(Path("x"), [time, time[:0]], 1e-6)
    assert clock is not None
    for y in (whole, np.round(whole + 2)):  # moved, and counts, which stay where they are
        episodes = ((y, np.zeros((30, 0))), (none, np.zeros((0, 0))))
        found, _ = regularise(episodes, [time, time[:0]], clock)
        assert [len(seen) for seen, _ in found] == [30]


def test_counts_stay_in_their_bins(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    time = np.arange(200) * 0.1 + rng.uniform(-0.004, 0.004, 200)
    counts = rng.poisson(2.0, (200, 3))
    found = recording(tmp_path, counts, time)
    assert np.array_equal(found.episodes[0][0], counts)
    assert "counts are taken as if they were not" in found.notes[0]


def test_what_is_said_of_dt_may_differ_by_what_jitter_explains(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    time = np.cumsum(0.1 * (1 + 0.05 * rng.uniform(-1, 1, 500)))
    assert recording(tmp_path, wave(time), time, dt=0.1).dt == 0.1
    with pytest.raises(UserError, match=r"its dt says 0\.11 for a step and its time 0\.1003"):
        recording(tmp_path, wave(time), time, dt=0.11)


def test_times_without_a_clock_are_refused(tmp_path: Path) -> None:
    time = np.cumsum(np.random.default_rng(0).exponential(0.1, 300))
    with pytest.raises(UserError, match="% of its steps in time are no multiples of the usual one"):
        recording(tmp_path, wave(time), time)


def test_a_recording_with_jitter_is_fitted_and_read_the_same_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    time = np.cumsum(0.1 * (1 + 0.02 * rng.uniform(-1, 1, 200)))
    np.savez(tmp_path / "data.npz", observations=wave(time), time=time)
    small = {"length": 8, "model": {"dynamics": "linear", "hidden": (4,)}}
    settings = {"steps": 4, "eval_every": 4, "agent": small}
    result = ten.fit(tmp_path / "data.npz", tmp_path / "run", settings=settings, quiet=True)
    assert "rows are moved to a regular clock" in capsys.readouterr().err
    assert "moved to a regular clock" in (result.path / "report.html").read_text()
    assert ten.resume(result.path, steps=8, quiet=True).step == 8  # its digest is the same
    clock = estimate_clock(Path("x"), [time], 1e-6)
    assert clock is not None and clock.most < 0.022
    episodes, _ = regularise(((wave(time), np.zeros((200, 0))),), [time], clock)
    again = read_recording(tmp_path / "data.npz").episodes
    assert np.array_equal(episodes[0][0], again[0][0])


@pytest.mark.slow
@pytest.mark.parametrize("jitter", [0.01, 0.05])
def test_a_fit_to_jittered_times_is_that_to_even_ones(tmp_path: Path, jitter: float) -> None:
    """A damped rotation, −0.2 ± 2i, through eight channels with noise: by its eigenvalues."""
    rng, dt = np.random.default_rng(0), 0.1
    read = rng.normal(size=(8, 2))

    def eigenvalue(time: np.ndarray, name: str) -> complex:
        states = []
        for start in range(0, len(time), 100):
            t = time[start : start + 100] - time[start]
            wave = np.exp((-0.2 + 2j) * t) * 2 * np.exp(1j * start)
            states.append(np.stack([wave.real, wave.imag], -1))
        y = np.concatenate(states) @ read.T
        y += 0.05 * np.random.default_rng(1).normal(size=y.shape)
        episode = np.repeat(np.arange(len(time) // 100), 100)
        np.savez(tmp_path / f"{name}.npz", observations=y, time=time, episode=episode)
        model = {"dynamics": "linear"}
        settings = {"steps": 600, "eval_every": 600, "agent": {"model": model}}
        ten.fit(tmp_path / f"{name}.npz", tmp_path / name, settings=settings, quiet=True)
        agent = ten.load(tmp_path / name, checkpoint="last")
        size = 1e-3
        corners = np.array([[0, 0], [size, 0], [0, size]])
        found = agent.field(corners, instantaneous=True)  # type: ignore[union-attr]
        slope = (found[1:] - found[0]).T / size
        return complex(next(v for v in np.linalg.eigvals(slope) if v.imag > 0))

    even = np.arange(2000) * dt
    shaken = even + dt * jitter * rng.uniform(-1, 1, 2000)
    both = eigenvalue(even, "even"), eigenvalue(shaken, "shaken")
    assert abs(both[0] - both[1]) < 0.05 and abs(both[1] - (-0.2 + 2j)) < 0.15

"""Metrics in bounded memory: numbers worked out by hand, extremes kept, files that are being
written, and what several runs say together."""

import itertools
import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tenfold.runs import digest as module
from tenfold.runs.digest import BINS, KEPT, Course, Digest, Histogram, aligned, merged
from tenfold.runs.statistics import (
    LEAST,
    LEAST_MEDIAN,
    aggregates,
    bootstrap_interval,
    improvement,
    interquartile_mean,
    interval_of,
    profile,
    sentence,
    together,
)


def episode(step: int, ret: float, length: int = 1, **more: Any) -> dict[str, Any]:
    return {"kind": "episode", "step": step, "env": 0, "return": ret, "length": length, **more}


def trained(step: int, **more: float) -> dict[str, Any]:
    return {"kind": "train", "step": step, "updates": step, "timing": {}, **more}


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.mkdir(exist_ok=True)
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_course_is_exact_as_long_as_bins_hold_one_value_and_keeps_extremes_beyond() -> None:
    course = Course()
    course.add(np.array([3, 7]), np.array([1.0, 5.0]))
    steps, mean, low, high = course.points()
    assert steps.tolist() == [3, 7] and mean.tolist() == low.tolist() == high.tolist() == [1.0, 5.0]
    values = np.zeros(10 * BINS)
    values[1234], values[4321] = 99.0, -77.0
    course.add(np.arange(10 * BINS), values)
    steps, mean, low, high = course.points()
    assert course.width == 16 and len(steps) == 10 * BINS // 16
    assert high.max() == 99.0 and low.min() == -77.0
    assert high[1234 // 16] == 99.0 and mean[1234 // 16] == pytest.approx(99 / 16)
    # the first bin has the 16 zeros of the second call, and 1 and 5 of the first
    assert mean[0] == pytest.approx(6 / 18) and steps[0] == pytest.approx((120 + 10) / 18)


def test_in_what_order_values_come_does_not_matter_to_a_histogram() -> None:
    rng = np.random.default_rng(0)
    values, parts = rng.normal(0, 50, 3000), rng.integers(0, 4, 3000)
    values[7] = 5000.0  # wider than any that was there before
    whole, piecewise = Histogram(), Histogram()
    whole.add(values, parts)
    for k in range(0, 3000, 7):
        piecewise.add(values[k : k + 7], parts[k : k + 7])
    assert piecewise.counts.sum() == whole.counts.sum() == 3000
    assert piecewise.counts.shape[1] <= 64 and whole.counts.shape[1] <= 64
    for own in (whole, piecewise):
        found = [np.histogram(values[parts == part], own.edges)[0] for part in range(4)]
        assert np.array_equal(own.counts, found)
    both = merged([whole, whole])
    assert np.array_equal(both.counts, 2 * whole.counts) and both.edges[0] == whole.edges[0]


def test_a_digest_has_what_the_rows_say(tmp_path: Path) -> None:
    rows = [
        episode(10, 4.0, 2),
        episode(20, 8.0, 6, success=True),
        trained(30, loss=0.5, **{"return": 6.0}),
        episode(40, 9.0, 3, each=[4.0, 5.0]),
        {"kind": "eval", "step": 50, "episodes": 2, "mean_return": 7.0, "std_return": 1.0},
        {"kind": "eval", "step": 60, "episodes": 2, "mean_return": 3.0, "std_return": 1.0},
    ]
    path = written(tmp_path / "run", rows)
    with (path / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "train"}\nnothing\n{"kind": "eval", "st')  # the last is being written
    found = Digest(path, 100).read()
    assert (found.episodes, found.damaged) == (3, 2)
    assert found.courses["episode", "return"].points()[1].tolist() == [4.0, 8.0, 9.0]
    assert found.courses["episode", "success"].points()[1].tolist() == [1.0]
    assert found.courses["train", "loss"].points()[0].tolist() == [30]
    assert found.best["step"] == 50 and found.last["return"] == 6.0
    assert [row["step"] for row in found.rows] == [30, 50, 60]
    assert found.returns.counts.sum(axis=1).tolist() == [2, 1, 0, 0]  # steps 10, 20; 40 of 100


def test_an_episodes_numbers_are_read_as_json_reads_them(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [
        episode(int(rng.integers(2**40)), float(rng.normal() * 10.0 ** rng.integers(-20, 20)), 3)
        for _ in range(200)
    ]
    rows += [episode(1, 0.0, success=False), episode(2, -1e-05, success=True), episode(3, 7)]
    path = written(tmp_path / "run", rows)
    lines = (path / "metrics.jsonl").read_text().splitlines()
    spaced = [line.replace('": ', '":') for line in lines]  # as nothing of ours writes it
    torn = [
        "",
        '{"kind": "episode", "step": 5, "env"',
        lines[0][:-1],
        lines[0].replace("3}", "-3}"),
    ]
    too_much = [json.dumps(episode(4, 1e101)), lines[-1].replace("7", "NaN")]
    (path / "metrics.jsonl").write_text("\n".join([*lines, *spaced, *torn, *too_much]) + "\n")
    found = Digest(path, 100)
    taken: list[Any] = []
    found.add_episodes = lambda *columns: taken.append(columns)  # type: ignore[method-assign]
    found.read()
    for step, ret, length, success in taken:
        assert step.tolist() == [row["step"] for row in rows]
        assert ret.tolist() == [row["return"] for row in rows]
        assert length.tolist() == [row["length"] for row in rows]
        assert success.tolist() == [-1] * 200 + [0, 1, -1]
    assert len(taken) == 2 and found.damaged == len(torn) + len(too_much)


def test_a_file_that_grows_is_read_on_and_one_that_was_cut_anew(tmp_path: Path) -> None:
    path = written(tmp_path / "run", [episode(1, 1.0), trained(2, **{"return": 1.0})])
    found = Digest(path, 100).read()
    with (path / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(episode(3, 5.0)) + "\n" + json.dumps(trained(4))[:9])
    assert found.read().episodes == 2 and found.last["step"] == 2
    with (path / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(trained(4))[9:] + "\n")
    assert found.read().last["step"] == 4 and found.damaged == 0
    written(path, [episode(1, 7.0)])  # a resume from an earlier checkpoint
    assert found.read().episodes == 1 and found.last == {}
    assert found.courses["episode", "return"].points()[1].tolist() == [7.0]


def test_a_long_file_takes_no_more_memory_than_a_short_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK", 2**16)
    peaks = []
    for count in (20_000, 60_000):
        rows = [episode(k, float(k % 7)) for k in range(count)]
        path = written(
            tmp_path / f"{count}", rows + [trained(k, loss=1.0) for k in range(0, count, 8)]
        )
        Digest(path, count).read()  # compiled
        tracemalloc.start()
        found = Digest(path, count).read()
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert found.episodes == count and len(found.rows) <= 2 * KEPT + 2
        assert found.last["step"] == count - 8
    assert peaks[1] < 1.25 * peaks[0]


def test_runs_that_log_at_other_steps_are_compared_at_the_same_ones() -> None:
    one, other = Course(), Course()
    one.add(np.array([0, 100, 200, 300]), np.array([0.0, 1.0, 2.0, 3.0]))
    other.add(np.array([50, 150, 250]), np.array([5.0, 6.0, 7.0]))
    steps, values = aligned([one, other])
    assert steps.tolist() == [50, 150, 250]
    assert values.tolist() == [[0.5, 1.5, 2.5], [5.0, 6.0, 7.0]]
    late = Course()
    late.add(np.array([103, 203]), np.array([8.0, 9.0]))  # a few steps later, and not as far
    assert aligned([one, late])[0].tolist() == [103, 203]
    assert aligned([one, Course()])[1].shape == (2, 0)


def test_the_interval_is_that_of_resampled_members() -> None:
    """Against the definition: means of resamples without their outer quarters."""
    values = np.random.default_rng(3).normal(size=(9, 2)) * [1.0, 50.0]
    drawn = np.random.default_rng(7).integers(9, size=(20_000, 9))
    means = interquartile_mean(np.moveaxis(values[drawn], 1, 0))
    low, high = np.quantile(means, [0.025, 0.975], axis=0)
    apart = np.abs(np.array(bootstrap_interval(values)) - [low, high])
    assert (apart < 0.1 * values.std(axis=0)).all()


def test_of_few_seeds_the_ends_are_those_of_all_resamples_there_are() -> None:
    """All 5⁵ of five seeds, each as likely: of the sorted means the 79th from either side, since
    2.5 % of 3,125 are 78.1. And twice the values have twice the interval."""
    values = np.array([201.8, 215.3, 303.0, 352.0, 408.9])
    means = np.sort(
        [interquartile_mean(values[[*k]]) for k in itertools.product(range(5), repeat=5)]
    )
    low, high = bootstrap_interval(values)
    assert (low, high) == (pytest.approx(means[78]), pytest.approx(means[-79]))
    both = bootstrap_interval(np.stack([values, 2 * values], axis=1))
    assert np.allclose(both, [[low, 2 * low], [high, 2 * high]])


@pytest.mark.parametrize("seeds", [9, 12, 64])
def test_the_ends_of_an_interval_are_stable_to_a_hundredth_of_it(seeds: int) -> None:
    values = np.random.default_rng(seeds).normal(300, 50, seeds)
    drawn = np.random.default_rng(7).integers(seeds, size=(100_000, seeds))
    low, high = np.quantile(interquartile_mean(values[drawn].T), [0.025, 0.975])
    apart = np.abs(np.array(bootstrap_interval(values)) - [low, high])
    assert (apart < 0.01 * (high - low)).all()


@pytest.mark.parametrize("seeds", [1, 2, 3, 4])
def test_fewer_than_five_seeds_carry_no_interval(seeds: int) -> None:
    """Of three, 1 resample of 27 is the lowest seed three times; of four, 13 of 256 hold it at
    least three times, and the quarters are cut: more than 2.5 %, so the ends would be least and
    most."""
    values = [100.0 * seed for seed in range(seeds)]
    found = together(values)
    assert found["interval"] is None and np.isnan(bootstrap_interval(np.array(values))).all()
    assert sentence(found).endswith("; an interval takes 5)") and "95 %" not in sentence(found)
    assert np.isnan(interval_of(np.mean, np.array(values))[1:]).all()


def test_an_interval_reaches_neither_the_least_nor_the_most_of_different_seeds() -> None:
    for name, estimate in aggregates(20.0).items():
        least = LEAST_MEDIAN if name == "median" else LEAST
        for seeds in (least, least + 1, 12):
            values = np.arange(seeds, dtype=float)
            _, low, high = interval_of(estimate, values, least)
            ends = sorted((estimate(values[:1]), estimate(values[-1:])))
            assert ends[0] < low < high < ends[1], (name, seeds)


def test_groups_of_scores_side_by_side() -> None:
    good, bad = np.repeat([3.0, 4.0, 5.0, 6.0], 2), np.repeat([1.0, 2.0, 3.0, 10.0], 2)
    # of 16 kinds of pairs 11 are won and one is even: 3 over 1, 2; 4, 5, 6 over 1, 2, 3; never over 10
    middle, low, high = improvement(good, bad)
    assert middle == (11 + 0.5) / 16 and 0 <= low <= middle <= high <= 1
    assert improvement(good, good + 100)[:2] == (0.0, 0.0)
    told = {name: interval_of(own, bad) for name, own in aggregates(10.0).items()}
    assert [told[name][0] for name in told] == [2.5, 2.5, 4.0, 6.0]
    assert all(low <= middle <= high for middle, low, high in told.values())
    shares, low, high = profile(bad, np.array([0.0, 1.0, 2.5, 10.0]))
    assert shares.tolist() == [1.0, 0.75, 0.5, 0.0]
    assert (low <= shares).all() and (shares <= high).all()

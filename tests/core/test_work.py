"""Kernels that share work with the team of threads: every index once, with any arguments."""

import os

import numpy as np
import pytest

from tenfold.core import threads as module
from tenfold.core.kernels import kernel
from tenfold.core.threads import UPDATES, set_team_limit, share_machine, team_threads
from tenfold.core.work import (
    LONGEST,
    NO_TEAM,
    SHORTEST,
    THREADS,
    TRIALS,
    bounds_of,
    choose_threads,
    pieces_of,
    share_work,
    team_of,
)


@kernel
def fill(index, rows, numbers, added):
    for j in range(rows.shape[1]):
        rows[index, j] += numbers[index] + added


@kernel
def fill_all(team, rows, numbers, added):
    share_work(team, rows.shape[0], fill, (rows, numbers, added))


@pytest.mark.parametrize("threads", [0, 1, 2, 5])
def test_a_kernel_is_called_once_for_each_index_with_its_arguments(threads: int) -> None:
    team = team_of(threads) if threads else NO_TEAM
    numbers = np.arange(40.0)
    for count in (0, 1, 2, 40):
        rows = np.zeros((count, 3))
        for added in (1, 10):
            fill_all(team, rows, numbers, added)
        expected = np.repeat(2 * np.arange(count) + 11.0, 3).reshape(count, 3)
        np.testing.assert_array_equal(rows, expected)


def test_pieces_are_whole_and_the_last_takes_what_is_left() -> None:
    for size, piece, expected in ((100, 32, [32, 32, 36]), (64, 32, [32, 32]), (5, 32, [5])):
        bounds = [bounds_of(i, size, piece) for i in range(pieces_of(size, piece))]
        assert [count for _, count in bounds] == expected
        assert [first for first, _ in bounds] == [32 * i for i in range(len(expected))]


@pytest.mark.parametrize(("by_all", "expected"), [(50, 3), (150, 1)])
def test_a_team_that_measures_takes_part_while_that_is_quicker(by_all: int, expected: int) -> None:
    """One thread takes 100: the quickest of four trials counts. Periods become longer."""
    team = team_of(3, measures=True)
    address, lengths, doers = team[0], [], []
    assert address and team_of(3)[THREADS] == 3 and not team_of(3)[2:6].any()
    for number in range(4 * SHORTEST):
        doers.append(int(team[THREADS]))
        assert team[0] == (address if doers[-1] == 3 else 0)
        late = 1000 if number % SHORTEST == 0 else 0  # once the others slept
        choose_threads(team, late + (by_all if doers[-1] == 3 else 100))
        lengths.append(int(team[5]))
    rest = SHORTEST - 2 * TRIALS
    assert doers[:SHORTEST] == [3] * TRIALS + [1] * TRIALS + [expected] * rest
    assert doers[SHORTEST : SHORTEST + 2 * TRIALS] == [3] * TRIALS + [1] * TRIALS
    assert doers[SHORTEST + 2 * TRIALS : 3 * SHORTEST] == [expected] * (rest + SHORTEST)
    assert lengths[0] == SHORTEST and lengths[SHORTEST] == 2 * SHORTEST < LONGEST


def test_updates_have_a_limit_of_their_own_and_a_shared_machine_gives_one_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(16)))
    monkeypatch.setattr(module, "LIMITS", {})
    monkeypatch.setattr(module, "SHARED", [])
    set_team_limit(3, UPDATES)
    assert (team_threads(64, UPDATES), team_threads(64)) == (3, 16)
    share_machine("another")
    assert (team_threads(64, UPDATES), team_threads(64)) == (3, 1)  # what is asked for is done
    set_team_limit(0, UPDATES)
    assert team_threads(64, UPDATES) == 1

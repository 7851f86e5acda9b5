"""The window of latest steps: what is in it, what is drawn from it, and what an append writes."""

import numpy as np
import pytest

from tenfold.core.errors import UserError
from tenfold.domains.dynamics.training import Window


def filled(
    capacity: int, length: int, rows: int, episode: int, seeds: tuple[int, ...] = (0,)
) -> Window:
    """Row r shows r, and is followed by action -r; episodes have `episode` rows."""
    window = Window(list(seeds), capacity, length, 1, 1)
    for row in range(rows):
        shown = np.full((len(seeds), 1), row, np.float32)
        window.append(shown, -shown, np.full(len(seeds), row % episode == 0))
    return window


def draw(window: Window, batch: int) -> tuple[np.ndarray, np.ndarray]:
    members = len(window.obs)
    out, acts = (np.zeros((members, batch, window.length, 1), np.float32) for _ in range(2))
    window.sample(out, acts)
    return out[..., 0], acts[..., 0]


def test_sequences_are_whole_and_all_of_them_are_drawn_equally_often() -> None:
    window = filled(capacity=10, length=3, rows=25, episode=7)
    # rows 15 … 24 are alive; episodes begin at 14 and 21: sequences end at 17, 18, 19, 20 and 23,
    # 24
    drawn, acts = draw(window, 6000)
    assert np.array_equal(drawn, -acts) and np.array_equal(
        np.diff(drawn[0], axis=-1), np.ones((6000, 2))
    )
    ends, counts = np.unique(drawn[0, :, -1], return_counts=True)
    assert ends.tolist() == [17, 18, 19, 20, 23, 24] and counts.min() > 900 and counts.max() < 1100


def test_members_draw_what_their_seed_draws_alone_and_go_on_after_a_restore() -> None:
    both, alone = filled(50, 4, 80, 30, (3, 8)), filled(50, 4, 80, 30, (8,))
    assert np.array_equal(draw(both, 9)[0][1], draw(alone, 9)[0][0])
    again = Window([3, 8], 50, 4, 1, 1)
    again.load_state({name: value.copy() for name, value in both.state().items()})
    assert np.array_equal(draw(both, 5), draw(again, 5))


def test_nothing_can_be_drawn_before_a_sequence_is_whole() -> None:
    assert not filled(10, 4, 3, 100).ready and filled(10, 4, 4, 100).ready
    assert not filled(10, 4, 40, 3).ready  # episodes are too short
    with pytest.raises(UserError, match=r"agent\.length = 20 is more than agent\.window = 10"):
        Window([0], 10, 20, 1, 1)


def test_a_window_too_large_for_memory_names_the_setting_that_explorers_have() -> None:
    with pytest.raises(
        UserError,
        match=r"The window of latest steps needs [0-9,]+ bytes and .* are free .*: lower agent\.window\.",
    ):
        Window([0], 10**12, 20, 2, 1)


@pytest.mark.parametrize("capacity", [20, 2_000])
def test_an_append_writes_one_row_whatever_the_window_holds(capacity: int) -> None:
    """Nothing is moved: what it takes is a row of bench/explorer.py."""
    window = filled(capacity, 5, capacity + 1, 10_000)
    arrays = window.obs, window.action, window.first, window.ends
    for number in range(3):
        before = [array.copy() for array in arrays]
        row = np.full((1, 1), 0.5 + number, np.float32)
        window.append(row, row, np.zeros(1, np.bool_))
        written = [
            (old != new).reshape(capacity, -1).any(1)
            for old, new in zip(before, arrays, strict=True)
        ]
        assert np.flatnonzero(written[0]).tolist() == [(capacity + 1 + number) % capacity]
        assert [int(changed.sum()) for changed in written] == [1, 1, 0, 1]
    assert all(
        new is old
        for new, old in zip(
            (window.obs, window.action, window.first, window.ends), arrays, strict=True
        )
    )

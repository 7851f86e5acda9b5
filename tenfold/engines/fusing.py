"""What the fused engines share."""

import numpy as np

from tenfold.core.kernels import kernel, nanoseconds

# parts of a round, to be added up
STORE, UPDATE, ACT = 1, 2, 4
# typed: Numba compiles a function once more for each literal number it is called with
WHOLE, ONE_FRAME, FIRST_LANE = np.int64(7), np.int64(1), np.int64(0)
# places in `counter`, before those of SPENT
STEP, ROUNDS, DUE = range(3)
# seconds until a run of rounds returns, so that Ctrl-C is heard where environments are slow
PATIENCE = 0.05
# what a compiled round knows of its time, in the last places of its `counter`: nanoseconds by stage
SPENT = ("store", "update", "act")
STORED, UPDATED, ACTED = -3, -2, -1
TIMED = 8  # one round in so many looks at the clock, for the parts that take less than a few µs


@kernel
def looks(rounds):
    """The time where a round is timed, else 0."""
    return nanoseconds() if rounds % TIMED == 0 else 0


@kernel
def note(counter, stage, began):
    """What passed since `looks`, for all the rounds it stands for."""
    if began:
        counter[stage] += (nanoseconds() - began) * TIMED


@kernel(inline="always")
def many_rounds(play, moves, one_round, parts, most, given):
    """Steps `play(*moves)` of a compiled environment, each with a round of these parts, until an
    episode ends or `most` rounds are done. Returns what `play` gave: the number of episodes that
    ended, or less than 0 for a number that is not finite."""
    ended = 0
    while ended == 0 and most > 0:
        ended = play(*moves)
        if ended >= 0:
            one_round(parts, *given)
        most -= 1
    return ended


@kernel
def turn_rows(rows, scale, inputs):
    """Rows [B, features] as the network takes them, [features, B], scaled (1/255 for images)."""
    factor = np.float32(scale)
    for i in range(rows.shape[0]):
        for j in range(rows.shape[1]):
            inputs[j, i] = rows[i, j] * factor


def zeros(*shape: int) -> np.ndarray:
    """Zeros that begin with a line of the cache, 64 bytes: a vector that crosses two of them takes
    twice as long to load."""
    size = int(np.prod(shape))
    room = np.zeros(size + 16, np.float32)
    first = -room.ctypes.data % 64 // 4
    return room[first : first + size].reshape(shape)

"""Lanes of a device environment inside a kernel: what they see as rows, episodes that end and
begin.

Numbers of a lane are tensors [lanes], or scalars where there is one lane only: these cost no
exchange between threads.
"""

import triton.language as tl

from tenfold.ops.device.language import gpu_kernel


@gpu_kernel
def lane_numbers(ENVS: tl.constexpr, LANES: tl.constexpr):
    if ENVS == 1:
        return tl.program_id(0) * 0
    else:
        return tl.arange(0, LANES)


@gpu_kernel
def total(x, ENVS: tl.constexpr):
    """Σ over the lanes."""
    if ENVS == 1:
        return x
    else:
        return tl.sum(x, 0)


@gpu_kernel
def any_of(x, ENVS: tl.constexpr):
    return total(x.to(tl.int32), ENVS) > 0


@gpu_kernel
def of_lane(x, ENVS: tl.constexpr):
    """Numbers [rows] of a network's output as those of the lanes; of one lane all rows are
    alike."""
    if ENVS == 1:
        return tl.max(x, 0)
    else:
        return x


@gpu_kernel
def as_rows(x, ENVS: tl.constexpr):
    """To stand beside the columns of rows."""
    if ENVS == 1:
        return x
    else:
        return x[:, None]


@gpu_kernel
def rows_of(
    seen, ENVS: tl.constexpr, LANES: tl.constexpr, WIDTH: tl.constexpr, COUNT: tl.constexpr
):
    """A tuple of COUNT numbers per lane as rows [LANES, WIDTH], float32."""
    column = tl.arange(0, WIDTH)[None, :]
    rows = tl.zeros((LANES, WIDTH), tl.float32)
    for j in tl.static_range(COUNT):
        rows = tl.where(column == j, as_rows(seen[j].to(tl.float32), ENVS), rows)
    return rows


@gpu_kernel
def load_state(states, lane, live, STATES: tl.constexpr, WIDTH: tl.constexpr):
    """The first numbers of rows [lanes, WIDTH] in memory as a tuple."""
    state = ()
    for j in tl.static_range(STATES):
        state = state + (tl.load(states + lane * WIDTH + j, mask=live, other=0.0),)
    return state


@gpu_kernel
def store_state(states, state, lane, live, STATES: tl.constexpr, WIDTH: tl.constexpr):
    for j in tl.static_range(STATES):
        tl.store(states + lane * WIDTH + j, state[j], mask=live)


@gpu_kernel
def load_action(actions, lane, live, TASK: tl.constexpr):
    """What `advance` takes, of rows [lanes, parts]."""
    if TASK.parts == 1:
        return tl.load(actions + lane, mask=live, other=0)
    else:
        found = ()
        parts: tl.constexpr = TASK.parts
        for j in tl.static_range(parts):
            found = found + (tl.load(actions + lane * parts + j, mask=live, other=0),)
        return found


@gpu_kernel
def store_numbers(rows, numbers, lane, live, COUNT: tl.constexpr):
    """A tuple of numbers into rows [lanes, COUNT], of the rows' type."""
    for j in tl.static_range(COUNT):
        number = (numbers[j] + lane * 0).to(rows.dtype.element_ty)
        tl.store(rows + lane * COUNT + j, number, mask=live)


@gpu_kernel
def renewed(ended, fresh, state, STATES: tl.constexpr):
    """`fresh` where an episode ended."""
    found = ()
    for j in tl.static_range(STATES):
        found = found + (tl.where(ended, fresh[j], state[j]),)
    return found


@gpu_kernel
def note_ended(ended, lane, ret, length, record, count, MOST: tl.constexpr, ENVS: tl.constexpr):
    """Lane, return and length of episodes that ended, behind the `count` rows of three that are
    there; how many there are then."""
    over = ended.to(tl.int64)
    place = count
    if ENVS > 1:
        place = count + tl.cumsum(over, 0) - 1
    row, there = record + place * 3, ended & (place < MOST)
    tl.store(row, lane.to(tl.float64), mask=there)
    tl.store(row + 1, ret, mask=there)
    tl.store(row + 2, length.to(tl.float64), mask=there)
    return count + total(over, ENVS)

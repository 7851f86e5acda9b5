"""A round of an actor with critics inside compiled code: all that is done between two environment
steps. `sac` and `td3` bring what an update does and how actions are chosen; all of it is compiled
into the kernel that calls it."""

from tenfold.algorithms.fused_acting import scale_actions
from tenfold.algorithms.fused_arrays import open_arrays
from tenfold.algorithms.fused_critics import store_last
from tenfold.core.kernels import kernel, nanoseconds
from tenfold.engines.fusing import (
    ACT,
    ACTED,
    DUE,
    ROUNDS,
    STORE,
    STORED,
    UPDATE,
    UPDATED,
    looks,
    note,
)


@kernel(inline="always")
def one_round(update, choose, parts, table, m_obs, m_action, e_action, e_obs, e_final_obs):
    """Store the step just made, run the updates that are due, choose the next action: those of the
    three in `parts`."""
    a = open_arrays(table)
    if parts & STORE:
        began = looks(a.counter[ROUNDS])
        store_last(table, m_obs, m_action, e_action, e_obs, e_final_obs)
        note(a.counter, STORED, began)
    if parts & UPDATE and a.counter[DUE]:
        began = nanoseconds()
        for _ in range(a.counter[DUE]):
            update(table, m_obs, m_action)
        a.counter[DUE] = 0
        a.counter[UPDATED] += nanoseconds() - began
    if parts & ACT:
        began = looks(a.counter[ROUNDS])
        choose(table, e_action, e_obs)
        scale_actions(table, e_action)
        note(a.counter, ACTED, began)

"""Replay: what comes out is what happened, across episode ends, time limits and the ring's wrap."""

import tracemalloc
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenfold.algorithms.dqn_settings import DQN
from tenfold.core.errors import UserError
from tenfold.core.layout import ObsLayout
from tenfold.memory.replay import Replay, replay_bytes
from tenfold.memory.replay_rows import FINAL

ONE = ObsLayout((1,), np.dtype(np.float32), (1,), 1.0)


def make(lanes: int = 1, **agent: object) -> Replay:
    memory = Replay(
        DQN(**({"batch_size": 64, "capacity": 100, "gamma": 0.5} | agent)), ONE, lanes, seed=3
    )  # type: ignore[arg-type]
    memory.begin(np.zeros((lanes, 1), np.float32))
    return memory


def add(
    memory: Replay,
    reward: float,
    obs: float,
    *,
    action: int = 0,
    terminated: bool = False,
    truncated: bool = False,
    final: float = -1.0,
    skipped: bool = False,
) -> None:
    one = np.float32([[obs]])
    memory.add(
        np.array([action]),
        np.array([reward]),
        np.array([terminated]),
        np.array([truncated]),
        np.array([skipped]),
        one,
        np.float32([[final]]),
    )


def transitions(memory: Replay) -> dict[float, tuple[int, float, float, float]]:
    """obs -> (action, n-step reward, discount, next obs), from many draws."""
    found = {}
    for _ in range(20):
        b = memory.sample()
        for i in range(len(b.row)):
            found[float(b.obs[i, 0])] = (
                int(b.action[i]),
                float(b.reward[i]),
                float(b.discount[i]),
                float(b.next_obs[i, 0]),
            )
    return found


def test_one_step_transitions_by_hand() -> None:
    memory = make()
    add(memory, 1.0, 1, action=2)
    # 100 is the next episode's first observation
    add(memory, 2.0, 100, action=3, terminated=True, final=50)
    add(memory, 4.0, 101, action=1)
    assert transitions(memory) == {
        0: (2, 1.0, 0.5, 1),
        1: (3, 2.0, 0.0, 50),
        100: (1, 4.0, 0.5, 101),
    }


def test_a_time_limit_bootstraps_from_the_true_final_observation() -> None:
    memory = make()
    add(memory, 1.0, 100, truncated=True, final=50)
    assert transitions(memory) == {0: (0, 1.0, 0.5, 50)}


def test_n_step_returns_by_hand() -> None:
    """γ = ½, n = 3. Rewards 1, 2, 4, 8 and the episode terminates: 1 + 1 + 1 = 3 from s0, 2 + 2 + 2
    = 6 from s1, …"""
    memory = make(n_step=3)
    for step, reward in enumerate((1.0, 2.0, 4.0)):
        add(memory, reward, step + 1)
    # s1 and s2 are not ready: their third reward is to come
    assert transitions(memory) == {0: (0, 3.0, 0.125, 3)}
    add(memory, 8.0, 100, terminated=True, final=50)
    assert transitions(memory) == {
        0: (0, 3.0, 0.125, 3),
        1: (0, 6.0, 0.0, 50),
        2: (0, 8.0, 0.0, 50),
        3: (0, 8.0, 0.0, 50),
    }


def test_n_step_returns_cut_by_a_time_limit_use_the_steps_there_were() -> None:
    memory = make(n_step=3)
    add(memory, 1.0, 1)
    add(memory, 2.0, 100, truncated=True, final=50)
    add(memory, 64.0, 101)
    assert transitions(memory) == {0: (0, 2.0, 0.25, 50), 1: (0, 2.0, 0.5, 50)}


def test_the_wrap_of_the_ring_neither_joins_old_and_new_nor_loses_the_newest() -> None:
    memory = make(capacity=6, batch_size=4)
    for step in range(1, 10):
        add(memory, float(step), step)
    # rows hold s4 … s9; s9 is pending, s4 … s8 can be drawn
    assert transitions(memory) == {s: (0, s + 1.0, 0.5, s + 1.0) for s in range(4, 9)}


def test_rows_of_the_reset_step_of_next_step_classes_are_not_stored() -> None:
    memory = make()
    add(memory, 1.0, 50, terminated=True, final=50)  # the adapter still shows the final observation
    add(memory, 0.0, 7, skipped=True)  # the ignored action: only the new first observation counts
    add(memory, 3.0, 8)
    assert transitions(memory) == {0: (0, 1.0, 0.0, 50), 7: (0, 3.0, 0.5, 8)}


def test_final_observations_are_never_drawn_as_states() -> None:
    memory = make()
    for step in range(40):
        add(memory, 0.0, 2 * step, terminated=True, final=-5)
    for _ in range(10):
        assert -5 not in memory.sample().obs
        assert not (memory.kind[memory.batch.row] == FINAL).any()


@dataclass
class Oracle:
    """What the memory must hold, from lists of whole episodes."""

    gamma: float
    n: int
    # obs, a, r, term, trunc, next obs
    steps: list[tuple[float, int, float, bool, bool, float]] = field(default_factory=list)

    def expected(self, start: int) -> tuple[int, float, float, float] | None:
        """None while the n-step return cannot be known."""
        total, discount = 0.0, 1.0
        for j in range(start, start + self.n):
            if j >= len(self.steps):
                return None
            _, _, reward, terminated, truncated, after = self.steps[j]
            total += discount * reward
            discount *= self.gamma
            if terminated or truncated:
                return self.steps[start][1], total, 0.0 if terminated else discount, after
        return self.steps[start][1], total, discount, self.steps[start + self.n - 1][5]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32),
    st.integers(1, 3),
    st.integers(1, 6),
    st.integers(8, 40),
    st.integers(1, 120),
    st.booleans(),
)
def test_every_draw_is_a_transition_that_happened(
    seed: int, lanes: int, n: int, lane_rows: int, steps: int, prioritized: bool
) -> None:
    rng = np.random.default_rng(seed)
    memory = make(
        lanes,
        n_step=n,
        capacity=lane_rows * lanes + lanes - 1,
        batch_size=8,
        replay="prioritized" if prioritized else "uniform",
    )
    oracles = [Oracle(0.5, n) for _ in range(lanes)]
    current, name = np.zeros(lanes), 0.0  # every observation gets a name of its own
    start = {(lane, 0.0): 0 for lane in range(lanes)}
    for _ in range(steps):
        terminated, truncated = rng.random(lanes) < 0.1, rng.random(lanes) < 0.1
        action, reward = rng.integers(0, 9, lanes), rng.integers(-8, 8, lanes).astype(float)
        final, following = np.zeros(lanes), np.zeros(lanes)
        for lane in range(lanes):
            name += 2
            final[lane], following[lane] = name, name + 1
            ended = terminated[lane] or truncated[lane]
            oracles[lane].steps.append(
                (
                    current[lane],
                    int(action[lane]),
                    reward[lane],
                    bool(terminated[lane]),
                    bool(truncated[lane]),
                    name if ended else name + 1,
                )
            )
            start[lane, name + 1] = len(oracles[lane].steps)
        memory.add(
            action,
            reward,
            terminated,
            truncated,
            np.zeros(lanes, bool),
            following[:, None].astype(np.float32),
            final[:, None].astype(np.float32),
        )
        current = following
    ready = sum(
        oracle.expected(i) is not None for oracle in oracles for i in range(len(oracle.steps))
    )
    assert memory.rows <= ready
    assert memory.rows == memory.ready.sum()
    if steps * 2 < lane_rows:
        assert memory.rows == ready  # before the wrap nothing is lost
    if memory.rows:
        for _ in range(5):
            b = memory.sample(0.5)
            for i, row in enumerate(b.row):
                lane = int(row) // memory.lane_rows
                expected = oracles[lane].expected(start[lane, float(b.obs[i, 0])])
                assert expected is not None
                assert (
                    int(b.action[i]),
                    float(b.reward[i]),
                    float(b.discount[i]),
                    float(b.next_obs[i, 0]),
                ) == expected


def test_uniform_draws_are_even_over_lanes_that_hold_unequal_numbers_of_rows() -> None:
    memory = make(2, batch_size=50, capacity=60)
    skip_second = np.array([False, True])
    for step in range(20):  # lane 1 gets a quarter of the rows of lane 0
        ones = np.full((2, 1), step, np.float32)
        memory.add(
            np.zeros(2, int),
            np.zeros(2),
            np.zeros(2, bool),
            np.zeros(2, bool),
            skip_second if step % 4 else ~np.ones(2, bool),
            ones,
            ones,
        )
    counts = np.zeros(60)
    for _ in range(2000):
        counts += np.bincount(memory.sample().row, minlength=60)
    drawn = counts[counts > 0]
    assert drawn.size == memory.rows == 25
    expected = 100_000 / 25
    assert ((drawn - expected) ** 2 / expected).sum() == pytest.approx(24, abs=4.5 * np.sqrt(48))


def test_prioritised_draws_follow_the_td_errors_and_weights_correct_them() -> None:
    memory = make(replay="prioritized(alpha=0.5, beta=1, eps=0.0001)", batch_size=16, capacity=40)
    for step in range(20):
        add(memory, 0.0, step + 1)
    for _ in range(200):  # row r gets TD error r + 1
        memory.prioritise((memory.sample(1.0).row + 1).astype(np.float32))
    counts, weights = np.zeros(20), np.zeros(20)
    for _ in range(4000):
        b = memory.sample(1.0)
        counts += np.bincount(b.row, minlength=20)[:20]
        # undo the normalisation by the batch's maximum
        weights[b.row] = b.weight / memory.draw.min()
        assert b.weight.max() == 1.0
    share = np.sqrt(np.arange(1, 21) + 1e-4)
    share /= share.sum()
    assert np.abs(counts / counts.sum() - share).max() < 0.002
    assert weights * share == pytest.approx(np.full(20, weights[0] * share[0]), rel=1e-4)


def test_new_rows_get_the_largest_priority_so_far() -> None:
    memory = make(replay="prioritized(alpha=1, beta=1, eps=0.001)", batch_size=4, capacity=40)
    add(memory, 0.0, 1)
    memory.sample(1.0)
    memory.prioritise(np.float32([0.5, 0.5, 0.5, 7.0]))
    add(memory, 0.0, 2)
    leaf = memory.tree[memory.tree.size // 2 :]
    assert leaf[0] == pytest.approx(7.001) and leaf[1] == pytest.approx(7.001)


def test_stratified_draws_take_one_item_from_each_equal_part() -> None:
    memory = make(replay="prioritized(alpha=1)", batch_size=10, capacity=40)
    for step in range(10):
        add(memory, 0.0, step + 1)
    for _ in range(20):
        assert memory.sample().row.tolist() == list(range(10))


@pytest.mark.parametrize("replay", ["uniform", "prioritized"])
def test_adding_and_sampling_allocate_nothing_after_warm_up(replay: str) -> None:
    layout = ObsLayout((64,), np.dtype(np.float32), (64,), 1.0)
    memory = Replay(DQN(capacity=5000, n_step=3, replay=replay), layout, 4, 0)  # type: ignore[arg-type]
    obs, action, reward = np.zeros((4, 64), np.float32), np.zeros(4, np.int64), np.zeros(4)
    ended, never = np.array([True, False, False, False]), np.zeros(4, bool)

    def work() -> None:
        for _ in range(2000):
            memory.add(action, reward, ended, never, never, obs, obs)
            memory.sample(0.4)
            if memory.priorities:
                memory.prioritise(memory.batch.reward)

    work()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    work()
    after, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 2_000  # not one row of 256 bytes a step: 2,000 steps would be 512,000
    assert peak - before < 8_000


def test_memory_is_computed_beforehand_and_refused_when_it_cannot_fit() -> None:
    layout = ObsLayout((4,), np.dtype(np.float32), (4,), 1.0)
    assert replay_bytes(DQN(capacity=1000), layout, 1) == 1000 * (4 * 4 + 10)
    memory = Replay(DQN(capacity=1000, replay="prioritized"), layout, 1, 0)  # type: ignore[arg-type]
    held = (
        memory.obs.nbytes
        + memory.action.nbytes
        + memory.reward.nbytes
        + memory.kind.nbytes
        + memory.ready.nbytes
    )
    assert (
        replay_bytes(DQN(capacity=1000, replay="prioritized"), layout, 1)
        == held + memory.tree.nbytes
    )  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"needs 26,000,000,000,000 bytes and [\d,]+ are free"):
        Replay(DQN(capacity=10**12), layout, 1, 0)


def test_images_stay_uint8_and_are_stored_once() -> None:
    layout = ObsLayout((10, 10), np.dtype(np.uint8), (1, 10, 10), 1 / 255)
    memory = Replay(DQN(capacity=1000, batch_size=32), layout, 1, 0)
    assert memory.obs.dtype == np.uint8 and memory.obs.nbytes == 1000 * 100
    assert memory.batch.obs.dtype == np.uint8 and memory.batch.obs.shape == (32, 10, 10)
    assert memory.batch.action.dtype == np.int64  # torch indexes by int64


def test_cut_ends_running_episodes_as_a_time_limit_does() -> None:
    memory = make(n_step=3, replay="prioritized")
    add(memory, 1.0, 1)
    add(memory, 2.0, 2)
    memory.cut(np.float32([[9.0]]))
    add(memory, 4.0, 10)
    assert transitions(memory) == {0: (0, 2.0, 0.25, 2), 1: (0, 2.0, 0.5, 2)}
    assert memory.rows == memory.ready.sum() == 2


def test_cut_after_many_steps_counts_each_row_once() -> None:
    memory = make(n_step=3)
    for step in range(20):
        add(memory, 1.0, step + 1)
    memory.cut(np.float32([[99.0]]))
    assert memory.rows == memory.ready.sum() == 20
    assert transitions(memory)[19] == (0, 1.0, 0.5, 20.0)

"""Several frames: what the learner finds in its memory is what was acted on at that step."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tenfold.algorithms.dqn_settings import DQN
from tenfold.algorithms.off_policy import OffPolicyLearner
from tenfold.config.run import Run
from tenfold.core.errors import UserError
from tenfold.core.layout import ObsLayout
from tenfold.evaluation.player import play
from tenfold.memory.frames import FrameRing
from tenfold.memory.replay import Replay

NUMBER = ObsLayout((1,), np.dtype(np.float32), (1,), 1.0)


def step(frames: FrameRing, obs: float, final: float | None = None) -> list[float]:
    frames.push(
        np.array([final is not None]),
        np.array([False]),
        np.array([[obs]], np.float32),
        np.array([[final or 0]], np.float32),
    )
    return frames.stacked[0, :, 0].tolist()


def test_frames_are_those_of_the_episode_oldest_first_and_its_first_one_is_repeated() -> None:
    frames = FrameRing(3, NUMBER, 1)
    frames.begin(np.array([[1.0]], np.float32))
    assert frames.stacked[0, :, 0].tolist() == [1, 1, 1]
    assert step(frames, 2) == [1, 1, 2]
    assert step(frames, 3) == [1, 2, 3]
    assert step(frames, 4) == [2, 3, 4]
    assert step(frames, 10, final=5) == [10, 10, 10]  # never across episodes
    assert step(frames, 11) == [10, 10, 11]


@settings(max_examples=40, deadline=None)
@given(
    frames=st.integers(1, 6),
    n_step=st.integers(1, 4),
    lanes=st.integers(1, 3),
    rows=st.integers(12, 25),
    seed=st.integers(0, 10**6),
    steps=st.integers(1, 90),
)
def test_the_learner_sees_what_was_acted_on(
    frames: int, n_step: int, lanes: int, rows: int, seed: int, steps: int
) -> None:
    """Every row that can be drawn, before and after the memory is full: its frames, and those n
    steps later."""
    rng = np.random.default_rng(seed)
    memory = Replay(
        DQN(capacity=rows * lanes, batch_size=1, frames=frames, n_step=n_step), NUMBER, lanes, seed
    )
    acting = FrameRing(frames, NUMBER, lanes)
    obs = rng.random((lanes, 1), np.float32)
    memory.begin(obs)
    acting.begin(obs)
    # by the latest frame, which is unique
    seen: list[dict[float, list[float]]] = [{} for _ in range(lanes)]
    # final observations with the frames before them
    after: list[dict[float, list[float]]] = [{} for _ in range(lanes)]
    for _ in range(steps):
        for lane in range(lanes):
            seen[lane][float(acting.stacked[lane, -1, 0])] = acting.stacked[lane, :, 0].tolist()
        ended = rng.random(lanes) < 0.15
        obs, final = rng.random((lanes, 1), np.float32), rng.random((lanes, 1), np.float32)
        for lane in np.flatnonzero(ended):
            after[lane][float(final[lane, 0])] = [
                *acting.stacked[lane, 1:, 0].tolist(),
                float(final[lane, 0]),
            ]
        never = np.zeros(lanes, np.bool_)
        memory.add(np.zeros(lanes, np.int64), np.zeros(lanes), never, ended, never, obs, final)
        acting.push(ended, never, obs, final)
    for lane in range(lanes):
        seen[lane][float(acting.stacked[lane, -1, 0])] = acting.stacked[lane, :, 0].tolist()
    drawn = set()
    for _ in range(60 if memory.rows else 0):
        b = memory.sample()
        lane = int(b.row[0]) // memory.lane_rows
        found, later = b.obs.reshape(-1).tolist(), b.next_obs.reshape(-1).tolist()
        assert found == seen[lane][found[-1]]
        assert later == (seen[lane] | after[lane])[later[-1]]
        drawn.add(int(b.row[0]))
    assert bool(drawn) == bool(memory.rows)


def test_rows_whose_frames_are_gone_cannot_be_drawn() -> None:
    """A lane of 10 rows holds 10 observations; with 4 frames the 3 oldest have lost some, and the
    newest waits for its action."""
    memory = Replay(DQN(capacity=10, batch_size=1, frames=4), NUMBER, 1, 0)
    memory.begin(np.zeros((1, 1), np.float32))
    never = np.zeros(1, np.bool_)
    for t in range(1, 31):
        memory.add(
            np.zeros(1, np.int64),
            np.zeros(1),
            never,
            never,
            never,
            np.full((1, 1), t, np.float32),
            np.zeros((1, 1), np.float32),
        )
    assert sorted(memory.obs[memory.ready, 0].tolist()) == [24, 25, 26, 27, 28, 29]
    assert memory.rows == 6


SMALL = {
    "name": "dqn",
    "learning_starts": 20,
    "batch_size": 8,
    "capacity": 80,
    "frames": 3,
    "n_step": 2,
    "net": {"hidden": [16]},
}


@pytest.mark.parametrize("env", ["CartPole-v1", "tenfold/Catch-v0"])
def test_training_with_frames_resumes_as_if_never_stopped(env: str) -> None:
    """Catch has images: frames become channels."""

    def place() -> OffPolicyLearner:
        return OffPolicyLearner(Run.of({"env": env, "num_envs": 2, "agent": SMALL}))

    whole = place()
    while whole.step < 70:
        whole.round()
    state = {
        part: {
            k: torch.as_tensor(v).clone() if part in ("agent", "engine") else np.array(v)
            for k, v in values.items()
        }
        for part, values in whole.state().items()
    }
    again = place()
    again.replay.load_rows(whole.replay.written(np.zeros(2, np.int64)))
    assert again.load_state(state)
    for p in (whole, again):
        while p.step < 200:
            p.round()
    assert torch.equal(whole.agent.online.flat, again.agent.online.flat)
    score = play(env, whole.agent, whole.agent.policy("greedy"), 3, 0)
    assert score.episodes == 3 and score == play(
        env, again.agent, again.agent.policy("greedy"), 3, 0
    )


def test_an_agent_with_frames_acts_on_them() -> None:
    agent = OffPolicyLearner(Run.of({"env": "CartPole-v1", "agent": SMALL})).agent
    rows = np.random.default_rng(0).normal(size=(5, 3, 4)).astype(np.float32)
    assert (
        agent.act(rows).tolist()
        == [agent.act(row) for row in rows]
        == agent.values(rows).argmax(-1).tolist()
    )
    with pytest.raises(UserError, match=r"shape \(4,\); this agent takes \(3, 4\)"):
        agent.act(rows[0, 0])

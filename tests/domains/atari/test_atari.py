"""Atari games: rows by hand at the end of a game and of a life, true scores, exact resume, and runs
of both presets that step and update."""

import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tenfold as ten
from tenfold.cli.main import main
from tenfold.config.files import named
from tenfold.core.errors import EnvironmentFault, UserError
from tenfold.domains.atari.games import AtariEnvironments, Game
from tenfold.envs.making import make_env, make_environments
from tenfold.training.learners import make_learner

BREAKOUT = "tenfold/Atari-v0(game=breakout)"
# of both presets' agents, so small that a CPU updates them at once
TINY = {"net": {"encoder": "nature", "hidden": [8]}}


def actions(steps: int, lanes: int, most: int = 4) -> np.ndarray:
    return np.random.default_rng(3).integers(0, most, (steps, lanes))


def by_hand(envs: AtariEnvironments, lane: int, taken: np.ndarray) -> list[tuple[Any, ...]]:
    """The same lane's first game, alone and by ALE's interface: observation, score, whether it is
    over, lives."""
    alone = Game(game="breakout").make(1, 1)
    envs.episode[lane] = 0
    first, info = alone.reset(seed=np.array([envs.episode_seed(lane)]))
    rows = [(first[0, 0].copy(), 0.0, False, int(info["lives"][0]))]
    for action in taken[:, lane]:
        obs, score, over, _, info = alone.step(np.array([action]))
        rows.append((obs[0, 0].copy(), float(score[0]), bool(over[0]), int(info["lives"][0])))
        if over[0]:
            break
    return rows


def test_lives_and_games_end_with_their_true_last_observation_and_the_next_one_follows() -> None:
    envs = make_environments(BREAKOUT, 2, 5)
    assert isinstance(envs, AtariEnvironments)
    taken, lost, rows, games = actions(200, 2), 0, [], []
    for given in taken:
        envs.step(given)
        rows.append(
            [getattr(envs, name)[0].copy() for name in ("obs", "final_obs", "reward", "terminated")]
        )
        games += [game for game in envs.finished if game.env == 0]
    hand = by_hand(envs, 0, taken)
    assert len(games) == 1 and len(hand) == games[0].length + 1 < 200
    assert games[0].ret == sum(score for _, score, _, _ in hand)
    for t, (before, after) in enumerate(pairwise(hand)):
        obs, final_obs, reward, terminated = rows[t]
        ended = after[3] < before[3]  # the game's end is that of the last life
        lost += ended
        assert terminated == ended and reward == np.clip(after[1], -1, 1)
        if ended:
            np.testing.assert_array_equal(final_obs, after[0])
        if after[2]:  # the next game's first observation, by its own seed
            fresh, _ = Game(game="breakout").make(1, 1).reset(seed=np.array([second_seed(envs)]))
            np.testing.assert_array_equal(obs, fresh[0, 0])
        else:
            np.testing.assert_array_equal(obs, after[0])
    assert lost == 5
    envs.close()


def second_seed(envs: AtariEnvironments) -> int:
    """Of lane 0's second game."""
    envs.episode[0] = 1
    return envs.episode_seed(0)


def test_a_game_that_is_cut_is_truncated_and_no_life_ends_where_that_is_not_wanted() -> None:
    envs = make_environments(
        "tenfold/Atari-v0(game=breakout, life_ends=false, max_frames=400)", 1, 0
    )
    ends = []
    for t, given in enumerate(actions(120, 1)):
        envs.step(given)
        if envs.terminated[0] or envs.truncated[0]:
            ends.append((t, bool(envs.terminated[0]), bool(envs.truncated[0])))
            assert envs.finished[0].length == t + 1
            assert not np.array_equal(envs.final_obs, envs.obs)
    assert len(ends) == 1 and ends[0][1:] == (False, True)
    envs.close()


def test_learners_see_clipped_rewards_and_people_the_true_scores() -> None:
    true, clipped = (
        make_environments(
            f"tenfold/Atari-v0(game=ms_pacman, max_frames=600, clip={clip}, life_ends=false)",
            2,
            1,
        )
        for clip in ("false", "true")
    )
    sums, games = np.zeros(2), []
    for given in actions(150, 2, most=9):
        for envs in (true, clipped):
            envs.step(given)
        assert np.array_equal(clipped.reward, np.clip(true.reward, -1, 1))
        sums += true.reward
        games += clipped.finished
        if games:
            break
    assert games[0].ret == sums[games[0].env] >= 20  # dots are worth 10
    true.close(), clipped.close()


def test_an_evaluation_plays_whole_games_for_their_true_score() -> None:
    env, total, lives = make_env(BREAKOUT), 0.0, set()
    env.reset(seed=3)
    for given in actions(1000, 1)[:, 0]:
        obs, reward, terminated, _, info = env.step(int(given))
        total += float(reward)
        lives.add(info["lives"])
        assert obs.shape == (84, 84) and obs.dtype == np.uint8
        if terminated:
            break
    assert lives == {0, 1, 2, 3, 4, 5}
    picture: Any = env.render()
    assert picture.shape == (336, 336, 3)
    with pytest.raises(ValueError, match="there is no action 4"):
        env.step(4)
    env.close()


def test_games_of_different_lengths_are_restored_to_the_same_frame() -> None:
    taken = actions(260, 3)
    envs, other = (make_environments(BREAKOUT, 3, 7) for _ in range(2))
    for given in taken[:220]:
        envs.step(given)
    assert len(set(envs.length)) > 1 and 1 in envs.episode
    assert other.restore(envs.state())
    assert other.length == envs.length and other.ret == envs.ret
    for given in taken[220:]:
        envs.step(given), other.step(given)
        for name in ("obs", "final_obs", "reward", "terminated"):
            if name != "final_obs" or envs.terminated.any():
                ended = envs.terminated if name == "final_obs" else slice(None)
                np.testing.assert_array_equal(
                    getattr(envs, name)[ended], getattr(other, name)[ended]
                )
    wrong = envs.state()
    wrong["obs"] = wrong["obs"] + np.uint8(1)
    assert not other.restore(wrong)
    envs.close(), other.close()


def short(preset: str, **agent: Any) -> ten.Run:
    return named(preset, {"num_envs": 2, "eval_every": 0, "agent": {**TINY, **agent}})


def test_pong_is_learned_by_dqn_from_frames_that_are_stored_once_as_bytes() -> None:
    run = short("pong", learning_starts=20, capacity=200, batch_size=4)
    learner: Any = make_learner(run)
    assert learner.replay.obs.dtype == np.uint8 and learner.replay.obs.shape == (200, 84 * 84)
    before = learner.agent.online.flat.clone()
    for _ in range(20):
        learner.round()
    assert learner.replay.batch.obs.shape == (4, 4, 84, 84)
    assert learner.agent.updates == 3 * 2  # at 24, 32 and 40 steps: two every eight
    assert not before.equal(learner.agent.online.flat)
    learner.close()


def test_pong_is_learned_by_ppo() -> None:
    learner: Any = make_learner(short("pong-ppo", horizon=8))
    before = learner.agent.online.flat.clone()
    for _ in range(8):
        learner.round()
    assert learner.agent.updates == 16 and not before.equal(learner.agent.online.flat)
    learner.close()


def test_a_resumed_run_equals_one_that_never_stopped(tmp_path: Path) -> None:
    run = short("pong", learning_starts=20, capacity=300, batch_size=4)
    run = ten.Run(**{**vars(run), "steps": 120, "checkpoint_every": 60, "keep": 5})
    whole = ten.load(ten.train(run, out=tmp_path / "whole", quiet=True).path)
    ten.train(ten.Run(**{**vars(run), "steps": 60}), out=tmp_path / "half", quiet=True)
    again = ten.load(ten.resume(tmp_path / "half", steps=120, quiet=True).path)
    assert whole.online.flat.equal(again.online.flat)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("game=pang", "there is no game pang: the nearest are "),
        ("game=pong, sticky=2", "sticky must be a probability between 0 and 1"),
        ("game=pong, frames=0", "frames must be a whole number of at least 1"),
        ("game=pong, clip=3", "clip must be true or false"),
        ("gmae=pong", "cannot be made"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(arguments: str, said: str) -> None:
    for make in (lambda name: make_environments(name, 1, 0), make_env):
        with pytest.raises(UserError, match=said):
            make(f"tenfold/Atari-v0({arguments})")


def test_without_ale_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for module in ("ale_py", "ale_py.vector_env"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(EnvironmentFault, match=r"ale_py.*: pip install 'tenfold\[atari\]'"):
        make_environments("tenfold/Atari-v0", 1, 0)
    assert main(["train", "pong", "--out", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err
    assert "pip install 'tenfold[atari]'" in said and len(said.strip().splitlines()) == 1

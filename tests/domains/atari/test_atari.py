"""Atari games: rows by hand at the end of a game and of a life, true scores, exact resume, and runs
of both presets that step and update."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tenfold as ten
from tenfold.actors import lane_workers
from tenfold.cli.main import main
from tenfold.config.files import named
from tenfold.core.errors import CheckpointError, EnvironmentFault, UserError
from tenfold.core.registry import algorithm
from tenfold.core.threads import set_team_limit
from tenfold.domains.atari import lanes
from tenfold.domains.atari.games import Game
from tenfold.domains.atari.lanes import AtariEnvironments
from tenfold.envs.halves import FIELDS, HalvedEnvironments
from tenfold.envs.making import make_env, make_environments
from tenfold.training.learners import make_learner

BREAKOUT = "tenfold/Atari-v0(game=breakout)"
# of both presets' agents, so small that a CPU updates them at once
TINY = {"net": {"encoder": "nature", "hidden": [8]}}


def actions(steps: int, count: int, most: int = 4) -> np.ndarray:
    return np.random.default_rng(3).integers(0, most, (steps, count))


class ByHand:
    """A lane alone, by ALE's interface: what its steps bring, where nobody but this says what a
    life, an episode and the fire button are."""

    def __init__(self, seed: int, **game: Any) -> None:
        self.ale, self.press, self.seed = Game(**game).make(1, 1), False, seed
        obs, info = self.ale.reset(seed=np.array([seed]))
        self.obs, self.lives = obs[0, 0].copy(), int(info["lives"][0])

    def step(self, action: int) -> dict[str, Any]:
        pressed = self.press
        obs, score, over, _, info = self.ale.step(np.array([1 if pressed else action]))
        final, before, self.lives = obs[0, 0].copy(), self.lives, int(info["lives"][0])
        self.press = bool(not over[0] and self.lives < before)
        if over[0]:  # without a seed
            obs, info = self.ale.reset()
            self.lives = int(info["lives"][0])
        ended = bool(over[0] or self.press) and not pressed
        return {
            "obs": obs[0, 0].copy(),
            "final_obs": final,
            "score": float(score[0]),
            "reward": 0.0 if pressed else float(np.sign(score[0])),
            "terminated": ended,
            "skipped": pressed,
            "over": bool(over[0]),
        }


def test_lives_and_games_end_with_their_last_observation_and_fire_and_the_next_one_follow() -> None:
    envs = make_environments(BREAKOUT, 2, 5)
    assert isinstance(envs, AtariEnvironments)
    hand = ByHand(envs.episode_seed(0), game="breakout")
    np.testing.assert_array_equal(envs.obs[0], hand.obs)
    lengths, scores, games, lost, pressed = [0], [0.0], [], 0, 0
    for chosen in actions(700, 2):
        envs.step(chosen)
        step = hand.step(int(chosen[0]))
        for name in ("obs", "reward", "terminated", "skipped"):
            np.testing.assert_array_equal(getattr(envs, name)[0], step[name])
        if step["terminated"]:
            np.testing.assert_array_equal(envs.final_obs[0], step["final_obs"])
        lost, pressed = lost + step["terminated"], pressed + step["skipped"]
        lengths[-1], scores[-1] = lengths[-1] + 1, scores[-1] + step["score"]
        if step["over"]:
            lengths.append(0), scores.append(0.0)
        games += [game for game in envs.finished if game.env == 0]
    assert [game.length for game in games] == lengths[:-1]
    assert [game.ret for game in games] == scores[:-1] and sum(scores) > 0
    # five lives a game, four of which are followed by the button
    assert len(games) >= 3 and lost >= 5 * len(games) and pressed >= 4 * len(games)
    envs.close()


def test_the_fire_button_brings_the_next_ball_in_training_and_in_evaluations() -> None:
    """Whoever only waits loses all balls with it, and none after the first one without it."""
    for fire, games in (("true", 1), ("false", 0)):
        name = f"tenfold/Atari-v0(game=breakout, fire={fire}, noops=0)"
        envs, env = make_environments(name, 1, 0), make_env(name)
        waiting, ends, over = np.zeros(1, np.int64), 0, False
        env.reset(seed=1)
        for _ in range(200):
            envs.step(waiting)
            ends += len(envs.finished)
            if not over:
                over = env.step(0)[2]
        assert (ends >= games and over) if games else (ends == 0 and not over)
        envs.close(), env.close()


@pytest.mark.parametrize(
    "name",
    [
        "tenfold/Atari-v0(game=ms_pacman)",  # knows no button
        "tenfold/Atari-v0(game=breakout, life_ends=false)",
    ],
)
def test_nobody_presses_fire_where_no_life_ends_an_episode_or_there_is_no_button(name: str) -> None:
    envs = make_environments(name, 1, 0)
    lives = set()
    for chosen in actions(500, 1):
        envs.step(chosen)
        lives.add(int(envs.lives[0]))  # type: ignore[attr-defined]
        assert not envs.skipped.any()
    assert len(lives) > 2
    envs.close()


def test_a_lane_is_seeded_once_for_many_games(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, seeded in ((256, []), (2, [2, 4])):
        monkeypatch.setattr(lanes, "GAMES", limit)
        envs: Any = make_environments(BREAKOUT, 1, 5)
        seeds, reset = [], envs.ale.reset
        monkeypatch.setattr(
            envs.ale,
            "reset",
            lambda reset=reset, seeds=seeds, **k: [seeds.append(k), reset(**k)][1],
        )
        for chosen in actions(900, 1):
            envs.step(chosen)
        assert 4 <= envs.episode[0] < 6 and len(seeds) == len(seeded)
        for games, call in zip(seeded, seeds, strict=True):
            envs.episode[0] = games
            assert call["seed"] == [envs.episode_seed(0)]
        envs.close()


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


def same_steps(envs: Any, other: Any, taken: np.ndarray) -> None:
    """Both go on alike, in every bit."""
    assert other.length == envs.length and other.ret == envs.ret
    for chosen in taken:
        envs.step(chosen), other.step(chosen)
        for name in ("obs", "reward", "terminated", "truncated", "skipped"):
            np.testing.assert_array_equal(getattr(envs, name), getattr(other, name))
        ended = envs.terminated | envs.truncated
        np.testing.assert_array_equal(envs.final_obs[ended], other.final_obs[ended])
        assert envs.finished == other.finished


@pytest.mark.parametrize("count", [1, 3])
def test_games_are_restored_on_any_number_of_threads_before_and_after_a_lost_life(
    count: int,
) -> None:
    envs, other = (
        make_environments(
            f"tenfold/Atari-v0(game=breakout, max_frames=700, threads={threads})", count, 7
        )
        for threads in (1, 2)
    )
    taken, states = actions(700, count), []
    for chosen in taken:
        before = envs.state()
        envs.step(chosen)
        if min(envs.episode) > 1 and envs.terminated[0] and not envs.finished:
            states = [before, envs.state()]
            point = actions(1, count)  # where fire is due in a lane
            envs.step(point[0]), states.append(envs.state())
            break
    assert len(states) == 3
    # from each of the three moments both play the same
    for state in states:
        assert envs.restore(state) and other.restore(state)
        assert min(envs.episode) > 1 and len(set(state["length"])) == count
        same_steps(envs, other, taken[:60])
    wrong = envs.state()
    wrong["obs"] = wrong["obs"] + np.uint8(1)
    assert not other.restore(wrong)
    envs.close(), other.close()


@pytest.mark.parametrize(
    "name",
    [
        "tenfold/Atari-v0(game=breakout, max_frames=500)",
        "tenfold/Atari-v0(game=breakout, sticky=0.25, max_frames=500)",
        "tenfold/Atari-v0(game=breakout, frames=4, max_frames=500)",
        # a game depends on the one before
        "tenfold/Atari-v0(game=sir_lancelot, max_frames=500)",
    ],
)
def test_a_run_goes_on_exactly_wherever_its_lanes_were_seeded(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "GAMES", 2)
    monkeypatch.setattr(lanes, "STEPS", 150)
    taken = actions(510, 2)
    envs, other = (make_environments(name, 2, 3) for _ in range(2))
    for start, stop, after in ((0, 380, 30), (410, 450, 60)):  # a game and a seed end in the second
        for chosen in taken[start:stop]:
            envs.step(chosen)
        state = envs.state()
        assert (state["seeded"] > 0).any() and (state["episode"] > state["seeded"]).any()
        assert other.restore(state)
        same_steps(envs, other, taken[stop : stop + after])
    envs.close(), other.close()


def test_most_games_of_a_resume_are_begun_in_all_lanes_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    envs, other = (make_environments(BREAKOUT, 3, 7) for _ in range(2))
    for chosen in actions(130, 3):
        envs.step(chosen)
    for _ in range(20):
        envs.begin(np.ones(3, np.bool_))  # type: ignore[attr-defined]
    envs.episode = [20, 20, 20]
    for chosen in actions(30, 3):
        envs.step(chosen)
    state, calls, reset = envs.state(), [], other.ale.reset  # type: ignore[attr-defined]
    monkeypatch.setattr(
        other.ale,  # type: ignore[attr-defined]
        "reset",
        lambda **k: [calls.append(int(k["options"]["reset_mask"].sum())), reset(**k)][1],
    )
    other.restore(state)
    assert calls.count(3) > 15


def test_a_checkpoint_of_earlier_versions_goes_on_and_an_impossible_one_is_refused() -> None:
    envs, other = (make_environments(BREAKOUT, 2, 7) for _ in range(2))
    for chosen in actions(60, 2):
        envs.step(chosen)
    state = envs.state()
    old = {name: state[name] for name in ("episode", "length", "actions", "obs")}
    assert state["seeded"].tolist() == old["episode"].tolist() == [0, 0]
    assert other.restore(old | {"actions": old["actions"].astype(np.int64)})
    same_steps(envs, other, actions(20, 2))
    for name, change in (
        ("length", -1),
        ("length", 1),
        ("stored", 1000),
        ("seeded", 1),
        ("episode", 256),
    ):
        wrong = {key: value.copy() for key, value in state.items()}
        wrong[name] = wrong[name] + change
        with pytest.raises(CheckpointError, match="tenfold did not write that"):
            other.restore(wrong)
    with pytest.raises(UserError):
        other.restore(state | {"actions": state["actions"] + np.uint8(4)})
    envs.close(), other.close()


def test_threads_are_the_runs_and_no_more_than_games() -> None:
    try:
        for limit, form in ((1, "3 games on 1 thread of ALE"), (2, "3 games on 2 threads of ALE")):
            set_team_limit(limit)
            envs = make_environments(BREAKOUT, 3, 7)
            assert envs.form == form
            envs.close()
        set_team_limit(64)
        one = make_environments(BREAKOUT, 1, 7)
        assert one.form == "1 game on 1 thread of ALE"
        one.close()
    finally:
        set_team_limit(0)


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
    assert learner.agent.updates == 4  # at 32 steps: four every sixteen
    assert not before.equal(learner.agent.online.flat)
    learner.close()


def test_pong_is_learned_by_ppo() -> None:
    learner: Any = make_learner(short("pong-ppo", horizon=8))
    before = learner.agent.online.flat.clone()
    for _ in range(8):
        learner.round()
    assert learner.agent.updates == 16 and not before.equal(learner.agent.online.flat)
    learner.close()


def test_two_halves_are_one_adapter_of_all_games() -> None:
    name = "tenfold/Atari-v0(game=breakout, max_frames=300)"
    whole = make_environments(name, 3, 7)

    def halved() -> Any:
        return HalvedEnvironments(lambda n, first: make_environments(name, n, 7, first=first), 3, 0)

    halves, again = halved(), halved()
    ended = []
    for t, chosen in enumerate(actions(160, 3)):
        whole.step(chosen), halves.step(chosen)
        for field in FIELDS:
            np.testing.assert_array_equal(getattr(whole, field), getattr(halves, field))
        assert whole.finished == halves.finished
        assert whole.location(2) == halves.location(2)
        ended += [episode.env for episode in whole.finished]
        if t == 120:
            state = whole.state()
            assert all((halves.state()[key] == array).all() for key, array in state.items())
            assert again.restore(state)
        elif t > 120:
            again.step(chosen)
            np.testing.assert_array_equal(again.obs, whole.obs)
    assert set(ended) == {0, 1, 2}
    for envs in (whole, halves, again):
        envs.close()


def test_one_half_steps_while_the_policy_acts_for_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the recorded engine, which does its work on a CPU here: actions and what is learned are
    those of one batch of all games."""
    engines = algorithm("ppo").engines
    monkeypatch.setitem(engines, "cudagraph", replace(engines["cudagraph"], device=""))
    run = replace(short("breakout-ppo", horizon=6), num_envs=3, engine="cudagraph")
    whole: Any = make_learner(run)
    monkeypatch.setattr(lane_workers, "in_halves", lambda *_: True)
    halves: Any = make_learner(run)
    assert halves.pool.halves is halves.engine and not whole.pool.halves
    first, second = halves.engine.acting
    begun: list[tuple[Any, int]] = []
    for acting in (first, second):
        begin = acting.begin
        monkeypatch.setattr(
            acting,
            "begin",
            lambda rounds, *rest, acting=acting, begin=begin: (
                begun.append((acting, halves.rounds)),
                begin(rounds, *rest),
            ),
        )
    for _ in range(14):
        whole.round(), halves.round()
        np.testing.assert_array_equal(whole.rollout.chosen, halves.rollout.chosen)
        np.testing.assert_array_equal(whole.rollout.obs, halves.rollout.obs)
    assert halves.agent.updates == whole.agent.updates == 32
    torch.testing.assert_close(
        halves.agent.online.flat, whole.agent.online.flat, rtol=1e-4, atol=1e-6
    )
    # a half is acted for before its round begins, but where the policy learns in between
    rounds = [0, 0, 1, 2, 3, 4, 6, 6, 7, 8, 9, 10, 12, 12, 13]
    for acting in (first, second):
        assert [r for half, r in begun if half is acting] == rounds
    whole.close(), halves.close()


DQN = {"learning_starts": 20, "capacity": 900, "batch_size": 4}


@pytest.mark.parametrize(
    ("preset", "agent", "half"),
    [
        ("pong", DQN, 60),
        pytest.param("breakout", DQN, 260, marks=pytest.mark.slow),
        ("breakout-ppo", {"horizon": 8, "epochs": 1, "minibatches": 1}, 260),
    ],
)
def test_a_resumed_run_equals_one_that_never_stopped(
    preset: str, agent: dict[str, Any], half: int, tmp_path: Path
) -> None:
    """Breakout's balls are lost, and games, before and after the middle."""
    run, end = short(preset, **agent), 2 * half
    run = ten.Run(**{**vars(run), "steps": end, "checkpoint_every": half, "keep": 5})
    whole = ten.load(ten.train(run, out=tmp_path / "whole", quiet=True).path)
    ten.train(ten.Run(**{**vars(run), "steps": half}), out=tmp_path / "half", quiet=True)
    again = ten.load(ten.resume(tmp_path / "half", steps=end, quiet=True).path)
    assert whole.online.flat.equal(again.online.flat)  # type: ignore[attr-defined]


def test_the_step_that_presses_fire_is_no_row_of_dqn_and_of_no_weight_for_ppo() -> None:
    dqn: Any = make_learner(short("breakout", learning_starts=10_000, capacity=900, batch_size=4))
    pressed = 0
    for _ in range(60):
        dqn.round()
        pressed += int(dqn.envs.skipped.sum())
    assert pressed > 1 and dqn.step == 2 * 60 - pressed
    kinds = np.bincount(dqn.replay.kind, minlength=5)
    assert kinds[1] + kinds[2] == dqn.step and kinds[2] >= pressed
    dqn.close()
    ppo: Any = make_learner(short("breakout-ppo", horizon=64))
    for _ in range(63):
        ppo.round()
    weight = ppo.rollout.weight[:63]
    assert (weight == 0).sum() == 2 * 63 - ppo.step > 0
    ended = ppo.rollout.discount[:63] == 0  # a lost life, then the button
    assert (ended[:-1] | (weight[1:] == 1)).all()
    ppo.close()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("game=pang", "there is no game pang: the nearest are "),
        ("game=combat", "combat is for several players"),  # ALE would end the process
        ("game=pong, threads=1025", "threads must be a whole number of at least 0 and at most"),
        ("game=pong, fire=2", "fire must be true or false"),
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

"""Whole runs in environments of tensors, from Python and from the command line: train, resume,
evaluate, act; evaluations in other worlds and in training's own."""

import json
import signal
import time
from pathlib import Path
from typing import Any

import drifting
import numpy as np
import pytest
import torch

import tenfold as ten
from tenfold.core.errors import EnvironmentFault
from tenfold.envs.tensor_sources import IDLE, TRAINING
from tenfold.runs.checkpoint import Checkpoints, nested_state
from tenfold.runs.folder import RunFolder
from tenfold.training.learners import make_learner

NET = {"net": {"hidden": [8]}}
AGENTS: dict[str, dict[str, Any]] = {
    "ppo": {"name": "ppo", "horizon": 10, "minibatches": 2, "epochs": 2, **NET},
    "sac": {"name": "sac", "learning_starts": 60, "every": 6, "batch_size": 8, **NET},
    "td3": {"name": "td3", "learning_starts": 60, "every": 6, "batch_size": 8, **NET},
}


@pytest.fixture(autouse=True)
def nothing_open(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(drifting.__file__).parent))
    yield
    left = list(TRAINING)
    TRAINING.clear(), IDLE.clear()
    assert not left


def run_of(name: str, **more: Any) -> Any:
    return ten.Run.of(
        {
            "env": "drifting:make(kind=missing)",
            "num_envs": 6,
            "agent": AGENTS[name],
            "steps": 300,
            "log_every": 60,
            "eval_every": 120,
            "eval_episodes": 3,
            "checkpoint_every": 120,
        }
        | more
    )


def rows_of(path: Path, kind: str) -> list[dict[str, Any]]:
    rows = map(json.loads, (path / "metrics.jsonl").read_text().splitlines())
    return [row for row in rows if row["kind"] == kind]


@pytest.mark.parametrize("name", list(AGENTS))
def test_a_run_trains_is_equal_again_goes_on_and_acts(name: str, tmp_path: Path) -> None:
    results = [ten.train(run_of(name), tmp_path / out, quiet=True) for out in ("one", "two")]
    one, two = results
    assert one.step == 300 and one.episodes and one.best_evaluation is not None
    kinds = ("train", "episode", "eval")
    drop = {"timing"}
    rows = [
        [{k: v for k, v in row.items() if k not in drop} for row in rows_of(r.path, kind)]
        for r in results
        for kind in kinds
    ]
    assert rows[:3] == rows[3:] and all(rows)  # a deterministic simulator, the same seed
    assert ten.evaluate(one, episodes=20).returns == ten.evaluate(two, episodes=20).returns

    on = ten.resume(one.path, steps=480, quiet=True)
    assert on.step == 480 and rows_of(on.path, "train")[-1]["updates"] > rows[0][-1]["updates"]
    session = json.loads((on.path / "run.json").read_text())["sessions"][-1]
    assert session["exact_resume"] is False and session["where"] == "6 worlds of tensors"
    assert "last observation" in " ".join(session["notes"])
    assert "stands for it" in (on.path / "report.html").read_text()

    agent = ten.load(on.path)
    obs = torch.randn(4, 3)
    actions = agent.act(obs)
    assert isinstance(actions, torch.Tensor) and actions.shape == (4, 2)
    np.testing.assert_allclose(actions.numpy(), agent.act(obs.numpy()), rtol=1e-6)
    assert agent.act(obs[0]).shape == (2,)


def test_a_checkpoint_holds_what_was_learned_and_the_rows_it_was_learned_from(
    tmp_path: Path,
) -> None:
    """All that is saved comes back; only the worlds begin anew, by another seed."""
    run = run_of("sac", agent={**AGENTS["sac"], "normalize_obs": True}, eval_every=0)
    result = ten.train(run, tmp_path / "run", quiet=True)
    arrays, rows, _ = Checkpoints(RunFolder.open(result.path)[0], 2).read(300)
    learner = make_learner(run)
    for piece in rows:
        learner.load_rows(piece)
    before = learner.envs.env.seed
    assert learner.load_state(nested_state(arrays)) is False
    assert (learner.step, learner.rounds, learner.memory.rows) == (300, 50, 50)
    assert learner.memory.boundary[49].all() and learner.envs.env.seed != before
    assert learner.agent.updates == 40 and int(learner.engine.norm.count) == 300 + 6 + 6
    np.testing.assert_array_equal(learner.agent.norm.moments, learner.engine.norm.moments)
    learner.close()


def test_evaluations_make_worlds_of_their_own_once_and_close_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def worlds(num_envs: int) -> Any:
        made.append(drifting.make(num_envs))
        return made[-1]

    run = run_of("ppo", env=worlds)
    ten.train(run, tmp_path / "run", quiet=True)
    assert [env.num_envs for env in made] == [6, 3]
    assert [env.closed for env in made] == [1, 1]


@pytest.mark.parametrize("name", ["ppo", "sac"])
def test_evaluations_in_the_only_worlds_end_their_episodes(name: str, tmp_path: Path) -> None:
    """Which is said, and what is learned from goes nowhere beyond that."""
    env = drifting.make()
    learner = make_learner(run_of(name, env=env, num_envs=1))
    assert "training's own worlds" in learner.description.notes[0]
    learner.round(60)
    first = int(learner.memory.head[0]) - 1 if name == "sac" else 0
    learner.envs.reset(7)  # as an evaluation does
    assert env.seed == 7
    begun = learner.begun
    learner.round(120)
    assert learner.begun == begun + 1 and env.seed != 7
    if name == "sac":
        assert learner.memory.boundary[first].all()
    learner.close()
    assert env.closed == 0  # it is the user's

    result = ten.train(run_of(name, env=env, num_envs=1), tmp_path / "run", quiet=True)
    assert len(rows_of(result.path, "eval")) >= 3
    assert ten.resume(result.path, steps=400, env=env, quiet=True).step >= 400
    assert len(ten.evaluate(result, episodes=9, env=env).returns) == 9


def test_a_function_without_num_envs_is_called_once(tmp_path: Path) -> None:
    calls = []

    def one() -> Any:
        calls.append(drifting.make())
        return calls[-1]

    result = ten.train(run_of("ppo", env=one, num_envs=1), tmp_path / "run", quiet=True)
    assert ten.evaluate(result, episodes=4).episodes == 4 and len(calls) == 1

    same = drifting.make()
    with pytest.raises(EnvironmentFault, match="the function gave the same environment twice"):
        ten.train(run_of("ppo", env=lambda num_envs: same), tmp_path / "same", quiet=True)


def test_an_evaluation_cut_by_its_limit_says_how_many_it_played(tmp_path: Path) -> None:
    """A world that was cut cannot begin anew by itself: its lane plays no other episode."""
    env = drifting.Endless()
    run = run_of("ppo", env=env, num_envs=1, episode_limit=7)
    result = ten.train(run, tmp_path / "run", quiet=True)
    score = ten.evaluate(result, episodes=20, env=env)
    assert (score.lengths, score.cut) == ([7] * 6, 6)


def test_the_number_of_worlds_in_a_name_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """For minibatches, and for whether an episode has had time to end: those of 6,000 steps are 30
    of each world."""
    agent = AGENTS["ppo"] | {"minibatches": 50, "epochs": 1}
    env = "drifting:make(num_envs=200,kind=endless)"
    run = run_of("ppo", env=env, num_envs=1, agent=agent, steps=6_000, eval_every=0)
    assert run.lanes == 200
    ten.train(run, tmp_path / "run")
    said = capsys.readouterr().err
    assert "200 worlds of tensors" in said and "has ended in" not in said


def test_the_command_line(here: Any, tmp_path: Path) -> None:
    (tmp_path / "settings.yaml").write_text(
        "agent: {name: ppo, horizon: 10, minibatches: 2, net: {hidden: [8]}}\nsteps: 240\n"
    )
    env = "drifting:make(kind=missing,num_envs=6)"
    done = here("train", "settings.yaml", "--env", env, "--out", "run")
    assert done.returncode == 0
    for sentence in (
        "6 worlds of tensors",
        "Note: the last observation of an episode that a time limit cuts has not been given so far",
        "Note: the state of these worlds is not saved, and episodes begin anew: a resume will not",
        "Note: evaluations play in other worlds, which the same function makes.",
        "were cut by a time limit without their last observation",
    ):
        assert sentence in done.stderr, sentence
    assert here("eval", "run", "--episodes", "4").returncode == 0
    assert here("resume", "run", "--more", "60").returncode == 0
    for more, sentence in (
        (("--agent", "dqn"), "is not for environments of tensors"),
        (("--actors", "2"), "actors = 2 is not for environments of tensors"),
    ):
        name = "dqn" if "dqn" in more else "settings.yaml"
        done = here("train", name, "--env", env, "--out", "bad", *more[2 * (name == "dqn") :])
        assert done.returncode == 2 and sentence in done.stderr and not Path("bad").exists()
    done = here("train", "ppo", "--env", "drifting:nowhere", "--out", "bad")
    assert done.returncode == 2 and "has no function nowhere" in done.stderr


def test_a_stopped_run_goes_on(begin: Any, tmp_path: Path, here: Any) -> None:
    (tmp_path / "mine.py").write_text(Path(drifting.__file__).read_text())
    words = ("train", "ppo", "--env", "mine:make", "--num-envs", "6", "--steps", "1M")
    more = ("--agent.horizon", "10", "--checkpoint-every", "600", "--eval-every", "0")
    command = begin(*words, *more, "--out", "run")
    folder = tmp_path / "run" / "checkpoints"
    while not len(list(folder.glob("step-*"))) > 1 and command.poll() is None:
        time.sleep(0.05)
    command.send_signal(signal.SIGINT)
    command.communicate()
    assert command.returncode == 130
    steps = sorted(folder.glob("step-*"))
    reached = int(steps[-1].stem[5:])
    done = here("resume", "run", "--steps", str(reached + 60))
    assert done.returncode == 0 and f"going on from step {reached:,}" in done.stderr

"""Resume = never stopped, to the last bit, for every option; the same seed twice is the same
run."""

import hashlib
import json
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tenfold.actors.pool import SerialActors
from tenfold.algorithms.off_policy import OffPolicyLearner
from tenfold.config.run import Run
from tenfold.evaluation.player import Score
from tenfold.runs.checkpoint import Checkpoints, flat_state
from tenfold.runs.folder import RunFolder
from tenfold.runs.metrics import rank, read_rows
from tenfold.runs.storage import read_arrays
from tenfold.training.learners import make_learner
from tenfold.training.loop import resume, train

OPTIONS: list[dict[str, object]] = [
    {},
    {"double": False},
    {"dueling": True},
    {"n_step": 3},
    {"replay": "prioritized"},
    {"distribution": "quantile(4)"},
    {"distribution": "implicit(4, 4)"},
    {"explore": "noisy"},
    {"explore": "boltzmann(1)"},
    {"target": "polyak(0.05)"},
    {"loss": "huber", "clip_norm": 0.5},
    {"accumulate": 2},
    {"lr": "linear(1e-2, 1e-3, 500)", "every": 16, "updates": 8},
    {"capacity": 120, "n_step": 4},
    {
        "double": True,
        "dueling": True,
        "n_step": 3,
        "replay": "prioritized",
        "distribution": "quantile(4)",
        "explore": "noisy",
    },
    {
        "double": True,
        "dueling": True,
        "n_step": 3,
        "replay": "prioritized",
        "distribution": "implicit(4, 3)",
        "explore": "noisy",
    },
    {
        "dueling": True,
        "n_step": 3,
        "replay": "prioritized",
        "distribution": "categorical(5, 0, 20)",
        "explore": "noisy",
    },
]
# without a state of their own, and in the two with everything
COVERED: list[dict[str, object]] = [
    {"double": False},
    {"dueling": True},
    {"n_step": 3},
    {"distribution": "quantile(4)"},
    {"explore": "noisy"},
]


def whole(path: Path) -> tuple[str, list[dict[str, object]]]:
    """A digest of the last checkpoint (parameters, optimiser, replay with its rows, counters,
    environments), and the metrics."""
    folder, run = RunFolder.open(path)
    arrays, rows, note, complaints = Checkpoints(folder, run.keep).latest()
    assert complaints == [] and note["step"] == run.steps
    replay = make_learner(run).replay
    for piece in rows:
        replay.load_rows(piece)
    contents = arrays | {
        "rows.obs": replay.obs,
        "rows.action": replay.action,
        "rows.reward": replay.reward,
    }
    total = hashlib.sha256()
    for name in sorted(contents):
        total.update(name.encode() + np.ascontiguousarray(contents[name]).tobytes())
    metrics = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return total.hexdigest(), [
        {k: v for k, v in row.items() if k != "timing" and not k.startswith("actors_")}
        for row in metrics
    ]


def stop_at(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process ends at `step` without a word, as after kill -9: nothing is saved that was not
    saved before."""
    original = OffPolicyLearner.round

    def round_or_die(self: OffPolicyLearner, until: int | None = None):
        if self.step >= step:
            raise SystemExit("killed")
        return original(self, until)

    monkeypatch.setattr(OffPolicyLearner, "round", round_or_die)


@pytest.mark.parametrize(
    "option",
    [pytest.param(o, marks=pytest.mark.slow) if o in COVERED else o for o in OPTIONS],
    ids=lambda o: ",".join(o) or "defaults",
)
def test_a_run_that_was_killed_and_resumed_equals_one_that_never_stopped(
    option: dict[str, object],
    small_run: Callable[..., Run],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = small_run(option)
    train(run, tmp_path / "straight", quiet=True)
    with monkeypatch.context() as patch:
        stop_at(337, patch)
        with pytest.raises(SystemExit):
            train(run, tmp_path / "broken", quiet=True)
    with monkeypatch.context() as patch:
        stop_at(511, patch)
        with pytest.raises(SystemExit):
            resume(tmp_path / "broken", quiet=True)
    resume(tmp_path / "broken", quiet=True)
    assert whole(tmp_path / "broken") == whole(tmp_path / "straight")


ACTORS = {
    "sac": ("Pendulum-v1", {"name": "sac", "replay": "prioritized", "n_step": 3}),
    "sac, two lanes": (
        "tenfold/Pendulum-v1",
        {"name": "sac", "updates": 2, "temperature": 0.2, "normalize_obs": True},
    ),
    "sac, discrete": ("CartPole-v1", {"name": "sac"}),
    "td3": (
        "Pendulum-v1",
        {"name": "td3", "policy_delay": 3, "noise": "linear(1, 0, 500)", "normalize_obs": True},
    ),
}


@pytest.mark.parametrize("case", ACTORS)
def test_agents_with_critics_resume_exactly_too(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env, agent = ACTORS[case]
    agent |= {"batch_size": 8, "learning_starts": 50, "every": 4, "capacity": 400}
    agent |= {"net": {"hidden": [16]}, "lr": "linear(1e-2, 1e-3, 500)"}
    run = Run.of(
        {"env": env, "agent": agent, "num_envs": 1 + ("lanes" in case), "steps": 600}
        | {"eval_every": 200, "eval_episodes": 2, "checkpoint_every": 200, "log_every": 70}
    )
    train(run, tmp_path / "straight", quiet=True)
    with monkeypatch.context() as patch:
        stop_at(337, patch)
        with pytest.raises(SystemExit):
            train(run, tmp_path / "broken", quiet=True)
    resume(tmp_path / "broken", quiet=True)
    assert whole(tmp_path / "broken") == whole(tmp_path / "straight")
    rows = [r for r in read_rows(tmp_path / "straight" / "metrics.jsonl") if r["kind"] == "train"]
    assert rows[-1]["updates"] > 100 and np.isfinite(rows[-1]["actor_loss"])


@pytest.mark.parametrize(
    "changes",
    [
        {"env": "LunarLander-v3"},
        {"env": "tenfold/Catch-v0", "num_envs": 2},
        {"env": "FrozenLake-v1"},
        {"num_envs": 3},
    ],
    ids=str,
)
def test_other_environments_resume_exactly_too(
    changes: dict[str, object],
    small_run: Callable[..., Run],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = small_run({"n_step": 2}, **changes)
    train(run, tmp_path / "straight", quiet=True)
    with monkeypatch.context() as patch:
        stop_at(450, patch)
        with pytest.raises(SystemExit):
            train(run, tmp_path / "broken", quiet=True)
    resume(tmp_path / "broken", quiet=True)
    assert whole(tmp_path / "broken") == whole(tmp_path / "straight")


def test_kill_9_of_the_real_process_and_resume(
    here: Callable[..., Any], begin: Callable[..., Any], tmp_path: Path
) -> None:
    flags = [
        "train",
        "dqn",
        "--env",
        "LunarLander-v3",
        "--steps",
        "1800",
        "--agent.learning-starts",
        "200",
        "--checkpoint-every",
        "300",
        "--eval-every",
        "900",
        "--eval-episodes",
        "1",
        "--log-every",
        "100",
        "--agent.replay",
        "prioritized",
        "--agent.n-step",
        "3",
    ]
    assert here(*flags, "--out", "straight", "--quiet").returncode == 0
    process = begin(*flags, "--out", "broken", "--quiet")
    saved = tmp_path / "broken" / "checkpoints"
    deadline = time.monotonic() + 120
    while len(list(saved.glob("step-*"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert max(int(p.stem[5:]) for p in saved.glob("step-*")) < 1800
    done = here("resume", "broken", "--quiet")
    assert done.returncode == 0 and "mean return" in done.stdout
    assert whole(tmp_path / "broken") == whole(tmp_path / "straight")


def test_the_same_seed_twice_is_the_same_run_and_another_seed_is_another(
    small_run: Callable[..., Run], tmp_path: Path
) -> None:
    for name, seed in (("one", 5), ("two", 5), ("three", 6)):
        train(small_run(seed=seed), tmp_path / name, quiet=True)
    assert whole(tmp_path / "one") == whole(tmp_path / "two")
    assert whole(tmp_path / "one")[0] != whole(tmp_path / "three")[0]


def test_checkpoints_do_not_change_the_run(small_run: Callable[..., Run], tmp_path: Path) -> None:
    train(small_run(checkpoint_every=50, keep=5), tmp_path / "often", quiet=True)
    train(small_run(checkpoint_every=0), tmp_path / "never", quiet=True)
    assert whole(tmp_path / "often") == whole(tmp_path / "never")


def test_a_new_end_goes_on_from_the_old_one(small_run: Callable[..., Run], tmp_path: Path) -> None:
    train(small_run(steps=400), tmp_path / "shorter", quiet=True)
    train(small_run(steps=600), tmp_path / "longer", quiet=True)
    # every 70 steps a row and one where it ended, which is gone when it goes on
    rows = [row["step"] for row in whole(tmp_path / "shorter")[1] if row["kind"] == "train"]
    assert rows == [70, 140, 210, 280, 350, 400]
    result = resume(tmp_path / "shorter", 600, quiet=True)
    assert result.step == 600
    assert whole(tmp_path / "shorter") == whole(tmp_path / "longer")


def test_replay_rows_are_saved_once_and_old_files_are_removed(
    small_run: Callable[..., Run], tmp_path: Path
) -> None:
    run = small_run({"capacity": 150}, checkpoint_every=50)
    train(run, tmp_path / "run", quiet=True)
    files = sorted((tmp_path / "run" / "replay").glob("rows-*"))
    # 150 rows at about 55 rows a file: what two kept checkpoints need, and nothing older
    assert 3 <= len(files) <= 6
    assert [p.name for p in sorted((tmp_path / "run" / "checkpoints").glob("step-*"))] == [
        "step-000000000550.safetensors",
        "step-000000000600.safetensors",
    ]
    sizes = [len(read_arrays(path)[0]["place"]) for path in files]
    assert max(sizes) < 70  # never the whole memory again


def test_the_state_covers_everything_that_changes(small_run: Callable[..., Run]) -> None:
    """Two rounds of a restored place equal two rounds of the original, in every array of the
    state."""
    first = OffPolicyLearner(small_run({"replay": "prioritized", "n_step": 3}))
    while first.step < 300:
        first.round()
    state = {
        part: {k: (v.clone() if hasattr(v, "clone") else np.array(v)) for k, v in values.items()}
        for part, values in first.state().items()
    }
    second = OffPolicyLearner(first.run)
    second.replay.load_rows(first.replay.written(np.zeros_like(first.replay.head)))
    assert second.load_state(state)
    for _ in range(50):
        first.round()
        second.round()
    one, two = flat_state(first.state()), flat_state(second.state())
    assert {k: v.tolist() for k, v in one.items()} == {k: v.tolist() for k, v in two.items()}


def test_what_is_due_when_actors_are_ahead_at_a_checkpoint_is_done_and_not_lost_by_a_resume(
    small_run: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Actors that always have a row ready when a checkpoint is made, as in processes of their own:
    rows at 200, a checkpoint of 202, with the log of 201 and the update of 202 still due."""
    monkeypatch.setattr(
        SerialActors,
        "drain",
        lambda crew: crew.batches(0, 1) if 0 < crew.actors[0].rounds < 240 else iter(()),
    )
    run = small_run(
        {"every": 2},
        actors=2,
        where="serial",
        engine="plain",
        steps=500,
        checkpoint_every=200,
        log_every=67,
        eval_every=201,
    )
    train(run, tmp_path / "straight", quiet=True)
    rows = whole(tmp_path / "straight")[1]
    # boundaries that were passed in a save, and the end
    assert [row["step"] for row in rows if row["kind"] == "eval"] == [202, 402, 500]
    assert [row["step"] for row in rows if row["kind"] == "train"][:6] == [
        68,
        134,
        202,
        268,
        336,
        402,
    ]
    assert (
        next(row["updates"] for row in rows if row["kind"] == "train" and row["step"] == 268)
        == (268 - 50) // 2
    )
    with monkeypatch.context() as patch:
        stop_at(204, patch)
        with pytest.raises(SystemExit):
            train(run, tmp_path / "broken", quiet=True)
    resume(tmp_path / "broken", quiet=True)
    assert whole(tmp_path / "broken") == whole(tmp_path / "straight")


def test_a_best_policy_of_steps_that_are_played_again_is_forgotten(
    finished_once: Path, tmp_path: Path
) -> None:
    """A run is killed after an evaluation and before the next checkpoint; then it goes on in
    another way."""
    shutil.copytree(finished_once, tmp_path / "run")
    folder, run = RunFolder.open(tmp_path / "run")
    checkpoints = Checkpoints(folder, run.keep)
    policy, step = checkpoints.policy("best")
    for late in (640, 650):  # two evaluations, both better
        checkpoints.save_best(policy, late, 1e9)
    assert checkpoints.policy("best")[1] == 650
    checkpoints.forget_best_after(600, checkpoints.read(600)[2]["best"])
    assert checkpoints.policy("best")[1] == step <= 600
    checkpoints.save_best(policy, 650, 1e9)
    resume(tmp_path / "run", 620, quiet=True)
    assert checkpoints.policy("best")[1] <= 620
    best = max((row for row in read_rows(folder.metrics) if row["kind"] == "eval"), key=rank)
    assert checkpoints.policy("best")[1] == best["step"]
    (folder.checkpoints / "best.safetensors").unlink()
    checkpoints.save_best(policy, 650, 1e9)  # the first of all
    checkpoints.forget_best_after(620, None)
    assert sorted(path.name for path in folder.checkpoints.glob("best*")) == []


def test_the_best_is_the_most_successful_where_an_environment_tells_only_of_successes(
    small_run: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = iter(
        [
            Score([90.0], [5], [{}]),
            Score([7.0, 8.0], [9, 9], [{"success": True}, {}]),
            Score([95.0], [5], [{}]),
            Score([1.0], [9], [{"success": True}]),
            Score([99.0], [5], [{}]),
        ]
    )
    monkeypatch.setattr("tenfold.evaluation.evaluator.play", lambda *_: next(told))
    run = small_run(
        {"learning_starts": 8},  # a policy that has not changed would not be played again
        engine="plain",
        steps=60,
        eval_every=20,
        log_every=20,
        checkpoint_every=20,
    )
    result = train(run, tmp_path, overwrite=True, quiet=True)
    folder = RunFolder.open(tmp_path)[0]
    assert result.best_success == 0.5 and Checkpoints(folder, 2).policy("best")[1] == 40
    assert "best evaluation, successes" in (tmp_path / "report.html").read_text()
    result = resume(tmp_path, 100, quiet=True)
    assert result.best_success == 1.0 and Checkpoints(folder, 2).policy("best")[1] == 80

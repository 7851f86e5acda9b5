"""Every setting that can change, for every kind of agent: a resume goes on with it, or refuses in
one sentence and leaves the folder as it was."""

import hashlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tenfold.config.changes import CHANGEABLE, STATE_HOLDERS, changed_run
from tenfold.config.files import named
from tenfold.config.notation import nested
from tenfold.config.run import Run
from tenfold.core.errors import UserError
from tenfold.core.registry import algorithm, import_by_name
from tenfold.runs.checkpoint import Checkpoints, nested_state
from tenfold.runs.folder import RunFolder
from tenfold.runs.storage import read_arrays, write_arrays
from tenfold.training.learners import make_learner
from tenfold.training.loop import resume, train
from tenfold.training.run_group import resume_seeds, train_seeds

EXAMPLES = Path(__file__).parents[2] / "examples"
REPLAY = {"batch_size": 8, "learning_starts": 20, "capacity": 200, "net.hidden": [8]}
POLICY = {"horizon": 16, "minibatches": 2, "epochs": 1, "net.hidden": [8]}
SHORT = {"eval_every": 40, "eval_episodes": 1, "eval_steps": 50, "log_every": 20, "keep": 1}
# what, other settings, those of the agent
KINDS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "dqn": ("dqn", {"steps": 60}, REPLAY | {"every": 2}),
    "dqn, compiled world": ("dqn", {"steps": 60, "env": "tenfold/CartPole-v1"}, REPLAY),
    "dqn, two actors": ("dqn", {"steps": 60, "actors": 2, "where": "serial"}, REPLAY),
    "team, one after another": (
        "treasure-small",
        {"steps": 60, "eval_episodes": 1, "eval_steps": 50},
        REPLAY | {"distribution": "none", "explore": "epsilon(0.1)", "frames": 1},
    ),
    "team, in one call": (
        "treasure-small",
        {"steps": 60, "stack": "together", "eval_steps": 50},
        REPLAY | {"distribution": "none", "explore": "epsilon(0.1)", "frames": 1},
    ),
    "team that shares": (
        "treasure-small",
        {"steps": 60, "share": True, "eval_steps": 50},
        REPLAY | {"distribution": "none", "explore": "epsilon(0.1)", "frames": 1},
    ),
    "ppo": ("ppo", {"steps": 64, "num_envs": 2}, POLICY),
    "ppo that remembers": (
        "ppo",
        {"steps": 64, "num_envs": 2},
        POLICY | {"net.memory": "gru(4)"},
    ),
    "sac": ("sac", {"steps": 60, "env": "Pendulum-v1"}, REPLAY),
    "td3": ("td3", {"steps": 60, "env": "Pendulum-v1"}, REPLAY),
    "mujoco": ("td3", {"steps": 60, "env": "InvertedPendulum-v5", "num_envs": 2}, REPLAY),
    "explorer": (
        "limit-cycle",
        {"steps": 20, "env": "tenfold/LimitCycle-v0(size=5,limit=40)", "eval_every": 10},
        {
            "window": 40,
            "length": 6,
            "batch_size": 2,
            "learning_starts": 10,
            "first_updates": 1,
            "model.grid": 4,
            "model.ensemble": 2,
            "planner.samples": 6,
            "planner.iterations": 2,
            "planner.elites": 3,
        },
    ),
    "dispatcher": (
        "dispatcher",
        {"steps": 32, "env": "tenfold/JobShop-v0(random=3..5x2..4)", "eval_every": 0},
        {"shops": 8, "samples": 8, "width": 8},
    ),
    "colony": (
        "durotaxis",
        {"steps": 64, "num_envs": 2},
        {"horizon": 16, "net.hidden": [8, 8], "minibatches": 2},
    ),
    "own": ("reinforce:Reinforce", {"steps": 64, "num_envs": 2}, {"horizon": 16}),
}
# settings that change nothing in what is saved: all at once
HARMLESS: dict[str, Any] = {
    "eval_every": 0,
    "eval_episodes": 2,
    "eval_steps": 60,
    "episode_limit": 50,
    "checkpoint_every": 0,
    "keep": 3,
    "log_every": 7,
    "patience": 30.0,
    "threads": 2,
    "env_threads": 2,
    "address": "127.0.0.1:1",
    "on_death": "restart",
}
OTHERS: dict[str, tuple[Any, ...]] = {
    "eval_policy": ("sampled",),
    "env_form": ("gymnasium",),
    "where": ("serial", "auto"),
    "ahead": (0,),
    "stack": ("together", "apart"),
    "verify": (2,),
    "device": ("cpu", "cuda"),
}


@pytest.fixture(scope="module", autouse=True)
def beside() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLES))
        yield


def run_of(kind: str) -> Run:
    what, settings, agent = KINDS[kind]
    return named(what, nested(SHORT | settings | {f"agent.{k}": v for k, v in agent.items()}))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    known: dict[str, Path] = {}

    def folder(kind: str) -> Path:
        if kind not in known:
            known[kind] = tmp_path_factory.mktemp("trained") / "run"
            train(run_of(kind), known[kind], quiet=True, report=False)
        return known[kind]

    return folder


def changes_of(run: Run) -> Iterator[dict[str, Any]]:
    """One after another, those that change nothing in what is saved together."""
    agents = [name for name in CHANGEABLE if name.startswith("agent.")]
    known = {name: getattr(run.agent, name.removeprefix("agent."), None) for name in agents}
    halves = {name: value / 2 for name, value in known.items() if isinstance(value, float)}
    yield HARMLESS | halves
    for name, values in OTHERS.items():
        yield from ({name: value} for value in values if getattr(run, name) != value)
    for name, entry in algorithm(run.agent.name).engines.items():
        if name != "compiled" and entry.device in ("", "cpu"):
            yield {"engine": name}


def contents(path: Path) -> dict[str, str]:
    return {
        str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(path.rglob("*"))
        if file.is_file() and file.name != ".lock"
    }


def go_on(path: Path, steps: int, **settings: Any) -> Any:
    return resume(path, steps, settings=settings, quiet=True, report=False)


def test_every_setting_that_can_change_is_tried() -> None:
    tried = {*HARMLESS, *OTHERS, "steps", "engine"}
    assert {name for name in CHANGEABLE if not name.startswith("agent.")} == tried
    assert set(STATE_HOLDERS) <= set(CHANGEABLE)


@pytest.mark.parametrize("kind", KINDS)
def test_every_change_goes_on_or_leaves_the_folder_as_it_was(
    kind: str, trained: Callable[[str], Path], tmp_path: Path
) -> None:
    before, run = trained(kind), run_of(kind)
    saved, end = contents(before), run.steps + 20
    for number, change in enumerate(changes_of(run)):
        path = shutil.copytree(before, tmp_path / str(number))
        try:
            result = go_on(path, end, **change)
        except UserError as error:
            assert "damaged" not in str(error) and "\n" not in str(error), change
            assert contents(path) == saved, change
            if number == len(STATE_HOLDERS):  # of one of them, for time
                assert go_on(path, end).step >= end, change
        else:
            assert result.step >= end and not list(path.rglob("*.damaged")), change
        shutil.rmtree(path)


# A checkpoint that does not fit who is to hold it


def kind_of(engine: str) -> Any:
    return import_by_name(algorithm("dqn").engines[engine].home)


def no_longer_fits(monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    """As where an engine keeps something of another shape."""

    def refuse(self: Any, state: Any) -> None:
        raise RuntimeError("expand(torch.FloatTensor{[5, 5]}, size=[5])")

    monkeypatch.setattr(kind_of(engine), "load_state", refuse)


def test_what_does_not_fit_another_engine_is_not_damaged(
    trained: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shutil.copytree(trained("dqn"), tmp_path / "run")
    saved = contents(path)
    with monkeypatch.context() as patch:
        no_longer_fits(patch, "plain")
        with pytest.raises(UserError, match="cannot go on with engine auto → plain: its check"):
            go_on(path, 80, engine="plain")
        assert contents(path) == saved
        patch.setattr(kind_of("fused"), "why_not", lambda *given: "it is not installed here")
        with pytest.raises(UserError, match="trained by engine fused, and here plain is chosen"):
            go_on(path, 80)
        assert contents(path) == saved
    assert go_on(path, 80).step == 80


def test_what_fits_nothing_is_damaged_as_before(
    trained: Callable[[str], Path], tmp_path: Path
) -> None:
    path = shutil.copytree(trained("dqn"), tmp_path / "run")
    newest = sorted((path / "checkpoints").glob("step-*"))[-1]
    arrays, note = read_arrays(newest)
    write_arrays(newest, arrays | {"engine.sums": np.zeros((3, 2, 2), np.float32)}, note)
    with pytest.raises(UserError, match="is damaged: what it holds is not what this run saves"):
        go_on(path, 80)


def test_seeds_keep_their_settings_where_a_member_does_not_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_seeds(run_of("dqn"), 1, tmp_path / "seeds", jobs=1, quiet=True)
    saved = contents(tmp_path / "seeds")
    with monkeypatch.context() as patch:
        no_longer_fits(patch, "plain")
        with pytest.raises(UserError, match="cannot go on with engine auto → plain"):
            resume_seeds(tmp_path / "seeds", 80, settings={"engine": "plain"}, jobs=1, quiet=True)
    assert contents(tmp_path / "seeds") == saved
    assert (
        resume_seeds(tmp_path / "seeds", 80, jobs=1, quiet=True).summary["seeds"][0]["step"] == 80
    )


def test_agents_that_go_on_in_one_call_keep_their_numbers(
    trained: Callable[[str], Path], tmp_path: Path
) -> None:
    """What one agent after another has summed for the next row of metrics, as one call has it."""
    folder, run = RunFolder.open(trained("team, one after another"))
    arrays, rows, _, _ = Checkpoints(folder, run.keep).latest()
    sums = np.arange(25, dtype=np.float32).reshape(5, 5)
    state = nested_state(arrays | {"engine.sums": sums})
    together = make_learner(changed_run(run, {"stack": "together"}))
    for piece in rows or []:
        together.load_rows(piece)
    assert together.load_state(state)
    assert together.state()["engine"]["sums"].tolist() == sums.mean(0).tolist()
    apart = make_learner(run)
    for piece in rows or []:
        apart.load_rows(piece)
    assert apart.load_state(together.state())
    assert apart.state()["engine"]["sums"].tolist() == [sums.mean(0).tolist()] * 5
    for name in ("online", "target", "mean", "square"):
        mine, others = (one.state()["agent"][name] for one in (apart, together))
        assert mine.tolist() == others.tolist() == state["agent"][name].tolist()

"""Modules that somebody else's run names are not imported unless the user says so."""

import json
import os
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import tenfold as ten
from tenfold.config.files import mark_of, named, require_trust
from tenfold.config.run import Run
from tenfold.core.errors import UserError
from tenfold.runs.folder import mark_modules, read_settings, trusted_modules, write_settings
from tenfold.runs.seeds import SeedsFolder
from tenfold.runs.storage import read_arrays, write_arrays
from tenfold.runs.sweep_folder import SweepFolder, SweepPlan
from tenfold.training.loop import resume, train
from tenfold.training.run_group import train_seeds


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module that leaves a trace when it is imported, beside where the user is."""
    name = f"theirs_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(
        "from pathlib import Path\n"
        f"Path({str(tmp_path / 'trace')!r}).touch()\n"
        "def half(step, lr): return lr / 2\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def run_with(module: str, **more: Any) -> ten.Run:
    agent = {"name": "dqn", "lr": f"{module}:half(1e-3)", "learning_starts": 50}
    return ten.Run.of({"agent": agent, "steps": 200, "eval_every": 0} | more)


def test_ones_own_run_is_resumed_and_judged_without_a_word(tmp_path: Path, module: str) -> None:
    train(run_with(module), tmp_path / "mine", quiet=True)
    assert resume(tmp_path / "mine", 300, quiet=True).step == 300
    assert ten.evaluate(tmp_path / "mine", episodes=1).episodes == 1


def test_somebody_elses_run_imports_nothing_and_says_how(
    tmp_path: Path, module: str, monkeypatch: pytest.MonkeyPatch, here: Callable[..., Any]
) -> None:
    theirs = tmp_path / "theirs"
    with monkeypatch.context() as patch:  # another person, with a key of their own
        patch.setenv("XDG_STATE_HOME", str(tmp_path / "their-home"))
        train(run_with(module), theirs, quiet=True)
    (tmp_path / "trace").unlink()
    for command in (("eval", theirs), ("resume", theirs, "--steps", "300"), ("report", theirs)):
        done = here(*command)
        assert done.returncode == 2 and "give --trust" in done.stderr
        assert f"names {module}, which would be imported" in done.stderr
    assert not (tmp_path / "trace").exists()
    monkeypatch.setenv("TENFOLD_TRUST", "1")  # of earlier versions: it trusted every thread
    assert here("eval", theirs, "--episodes", "1").returncode == 2
    assert here("eval", theirs, "--episodes", "1", "--trust").returncode == 0
    assert here("report", theirs).returncode == 2  # trust is not kept
    assert here("report", theirs, "--trust").returncode == 0
    assert here("watch", theirs, "--once", "--trust").returncode == 0
    assert here("pack", theirs, "--episodes", "0", "--trust").returncode == 0
    assert here("resume", theirs, "--steps", "300", "--trust").returncode == 0
    assert here("resume", theirs, "--steps", "400").returncode == 0  # its settings are ours now


def test_trust_of_one_thread_is_not_that_of_others(
    tmp_path: Path, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path / "their-home"))
        train(run_with(module), tmp_path / "theirs", quiet=True)
    refused = []

    class Elsewhere:
        """Another thread opens somebody's run while this one goes on with one that is trusted."""

        def on_start(self, training: Any) -> None:
            with ThreadPoolExecutor() as threads:
                refused.append(threads.submit(ten.load, tmp_path / "theirs").exception())
            refused.append(os.environ.get("TENFOLD_TRUST"))

    shutil.copytree(tmp_path / "theirs", tmp_path / "copy")
    resume(tmp_path / "copy", 300, quiet=True, trust=True, callbacks=[Elsewhere()])
    assert isinstance(refused[0], UserError) and refused[1] is None


def test_a_cluster_that_somebody_elses_run_names_is_not_joined(
    tmp_path: Path, small_run: Callable[..., Run], here: Callable[..., Any]
) -> None:
    run = small_run(steps=200, eval_every=0)
    train(run, tmp_path / "run", quiet=True)
    train_seeds(run, 2, tmp_path / "seeds", quiet=True)
    for path in (tmp_path / "run", tmp_path / "seeds"):
        config = path / "config.yaml"
        text = config.read_text().replace("address: ''", "address: 127.0.0.1:1")
        config.write_text(text.replace("where: auto", "where: ray"))
        before = sorted((file, file.stat().st_mtime_ns) for file in path.rglob("*.yaml"))
        refused = here("resume", path, "--steps", "300")
        assert refused.returncode == 2 and "names ray 127.0.0.1:1, a cluster" in refused.stderr
        assert sorted((file, file.stat().st_mtime_ns) for file in path.rglob("*.yaml")) == before
        for trusted in (("--trust",), ("--address", "127.0.0.1:1")):
            tried = here("resume", path, "--steps", "300", *trusted)
            assert tried.returncode == 2 and "No Ray cluster answers" in tried.stderr
        mark_modules(path, {"address": "127.0.0.1:1"})  # as a run of one's own is
        assert "No Ray cluster answers" in here("resume", path, "--steps", "300").stderr


def test_settings_that_were_changed_to_name_another_module_are_not_trusted(
    tmp_path: Path, module: str
) -> None:
    train(run_with(module), tmp_path / "run", quiet=True)
    shutil.copy(tmp_path / f"{module}.py", tmp_path / f"{module}_evil.py")
    config = tmp_path / "run" / "config.yaml"
    config.write_text(config.read_text().replace(f"{module}:half", f"{module}_evil:half"))
    with pytest.raises(UserError, match=f"names {module}_evil"):
        ten.load(tmp_path / "run")


def test_a_run_that_names_no_module_needs_no_mark(finished_once: Path) -> None:
    assert not (finished_once / ".modules").exists()
    assert ten.load(finished_once).updates == 0


# Every file of a folder that can carry a setting


@pytest.fixture(scope="module")
def innocent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, seeds, a sweep and a comparison that name no module."""
    home, plain = tmp_path_factory.mktemp("innocent"), {"engine": "plain", "checkpoint_every": 100}
    agent = {"name": "dqn", "learning_starts": 50, "net": {"hidden": [4]}}
    run = ten.Run.of({"agent": agent, "steps": 200, "eval_every": 100, "eval_episodes": 1} | plain)
    train(run, home / "run", quiet=True)
    seeds = SeedsFolder.create(home / "seeds", run, (0,))
    shutil.copytree(home / "run", seeds.member(0))
    plan = SweepPlan({"agent.lr": ["0.001", "0.002"]}, 1, (0,), (), "none")
    sweep = SweepFolder.create(home / "sweep", run, plan)
    trial = sweep.seeds_in("trial-0", run, (0,))
    shutil.copytree(home / "run", trial.member(0))
    sweep.write_best(run)
    (home / "compare").mkdir()
    shutil.copy(home / "run" / "config.yaml", home / "compare")
    kind = {"kind": "tenfold-compare", "policies": []}
    (home / "compare" / "compare.json").write_text(json.dumps(kind))
    return home


def in_yaml(old: str, new: str) -> Callable[[Path], None]:
    def plant(file: Path) -> None:
        assert old in file.read_text()
        file.write_text(file.read_text().replace(old, new, 1))

    return plant


def in_json(*keys: str, value: Any) -> Callable[[Path], None]:
    def plant(file: Path) -> None:
        whole = level = json.loads(file.read_text())
        for key in keys[:-1]:
            level = level.setdefault(key, {})
        level[keys[-1]] = value
        file.write_text(json.dumps(whole))

    return plant


def in_note(file: Path) -> None:
    arrays, note = read_arrays(file)
    note["settings"]["agent"] |= {"name": "evil:Agent"}
    write_arrays(file, arrays, note)


def in_study(file: Path) -> None:
    """A study whose only trial won with what the sweep never searched over."""
    import optuna

    study = optuna.create_study(
        storage=f"sqlite:///{file}", study_name="sweep", direction="maximize"
    )
    choice = optuna.distributions.CategoricalDistribution(("evil:f(1)", "0.001"))
    trial = optuna.trial.create_trial(
        params={"agent.lr": "evil:f(1)"},
        distributions={"agent.lr": choice},
        value=1.0,
        intermediate_values={100: 1.0},
    )
    study.add_trial(trial)


LR, ENV, NET = (
    in_yaml("lr: 0.0005", "lr: evil:f(1)"),
    in_yaml("env: CartPole-v1", "env: evil:CartPole-v1"),
    in_yaml("module: ''", "module: evil:Net"),
)
AGENT = in_yaml("name: dqn", "name: evil:Agent")
STEP = "checkpoints/step-000000000200.safetensors"
# file of a folder -> how a setting is planted in it
CARRIERS: dict[str, tuple[Callable[[Path], None], ...]] = {
    "run/config.yaml": (LR, ENV, NET, AGENT),
    f"run/{STEP}": (in_note,),
    "seeds/config.yaml": (LR, AGENT),
    "seeds/seeds.json": (in_json("changes", "agent", value={"lr": "evil:f(1)"}),),
    "seeds/seed-0/config.yaml": (LR, AGENT),
    f"seeds/seed-0/{STEP}": (in_note,),
    "sweep/config.yaml": (LR, AGENT),
    "sweep/best.yaml": (LR, AGENT),
    "sweep/sweep.json": (
        in_json("plan", "search", value={"agent.lr": ["evil:f(1)", "evil:f(2)"]}),
        in_json("plan", "search", value={"agent.lr": "evil:f(range(1, 2))"}),
        in_json("plan", "search", value={"agent.net.module": ["evil:Net", "evil:Other"]}),
    ),
    "sweep/study.db": (in_study,),
    "sweep/trial-0/config.yaml": (LR, AGENT),
    "sweep/trial-0/seeds.json": (in_json("changes", "agent", value={"lr": "evil:f(1)"}),),
    "sweep/trial-0/seed-0/config.yaml": (LR, AGENT),
    f"sweep/trial-0/seed-0/{STEP}": (in_note,),
    "compare/config.yaml": (AGENT,),
}
REFUSED = ("names evil, which", "searched over", "drawn from another space")
# what a folder holds and no setting is read from
OTHERS = {"run.json", "metrics.jsonl", "summary.json", "results.json", "compare.json", ".lock"}


def test_no_file_of_a_folder_was_forgotten(innocent: Path) -> None:
    names = {Path(name).name for name in CARRIERS} | OTHERS | {"report.html", "curve.png"}
    for file in innocent.rglob("*"):
        known = file.is_dir() or file.name in names
        assert known or file.parent.name in ("checkpoints", "replay", "tensorboard"), file


@pytest.mark.parametrize(
    ("name", "number"), [(name, n) for name, own in CARRIERS.items() for n in range(len(own))]
)
def test_no_file_has_modules_of_the_current_folder_imported(
    innocent: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    here: Callable[..., Any],
    name: str,
    number: int,
) -> None:
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'trace')!r}, 'w')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    top, inside = name.split("/", 1)
    folder = tmp_path / top
    shutil.copytree(innocent / top, folder)
    CARRIERS[name][number](folder / inside)
    parents = [path for path in (folder / inside).parents if path.is_relative_to(folder)]
    refused = 0
    for path in parents:
        everything: list[tuple[Any, ...]] = [
            ("resume", path, *([] if top == "sweep" else ["--steps", "300"]), "--quiet"),
            ("report", path),
            ("eval", path, "--episodes", "1"),
            ("watch", path, "--once"),
            ("export", path),
            ("pack", path),
        ]
        commands = everything if number == 0 and inside == "config.yaml" else everything[:2]
        if inside == "best.yaml":  # others do not read it, and a resume writes it anew
            commands = [("train", folder / inside)]
        if top == "compare":
            new = ("compare", "limit-cycle", "--steps", "1", "--out", path)
            commands = [*commands, new]
        for command in commands:
            done = here(*command)
            refused += any(words in done.stderr for words in REFUSED)
            assert done.returncode in (0, 2) and not (tmp_path / "trace").exists(), command
    here("list")
    assert refused and not (tmp_path / "trace").exists()
    assert "evil" not in sys.modules


def test_ones_own_seeds_and_sweeps_that_name_modules_are_opened(
    tmp_path: Path, module: str
) -> None:
    run = run_with(module)
    seeds = SeedsFolder.create(tmp_path / "seeds", ten.Run(), (0,))
    seeds.changed({"agent": {"lr": f"{module}:half(1)"}})
    assert SeedsFolder.open(tmp_path / "seeds").changes["agent"]["lr"] == f"{module}:half(1)"
    plan = SweepPlan(
        {"agent.lr": [f"{module}:half(1)", "other_module:half(1)"]}, 1, (0,), (), "none"
    )
    sweep = SweepFolder.create(tmp_path / "sweep", run, plan)
    sweep.write_best(run)
    assert SweepFolder.open(tmp_path / "sweep").plan == plan
    assert named(str(tmp_path / "sweep" / "best.yaml")) == run


def test_marks_of_earlier_versions_hold(tmp_path: Path, module: str) -> None:
    """They were of all modules of config.yaml together."""
    settings = {"agent": {"name": "dqn", "lr": f"{module}:half(1)"}, "env": "their_envs:It-v0"}
    (tmp_path / ".modules").write_text(mark_of(module, "their_envs"))
    require_trust(tmp_path, settings, False)
    with pytest.raises(UserError, match=f"names {module}, which"):
        require_trust(tmp_path, settings["agent"], False)


def test_what_a_run_elsewhere_may_import_is_what_this_user_named(
    tmp_path: Path, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:  # another person's
        patch.setenv("XDG_STATE_HOME", str(tmp_path / "their-home"))
        write_settings(tmp_path, run_with(module))
    settings = {"agent": {"lr": "mine:f(1)"}}
    assert trusted_modules(tmp_path, settings) == {"mine"}
    with pytest.raises(UserError, match=f"names {module}, which"):
        read_settings(tmp_path, trusted_modules(tmp_path, settings))
    mark_modules(tmp_path, {"lr": f"{module}:half"})
    assert trusted_modules(tmp_path, settings) == {"mine", module}

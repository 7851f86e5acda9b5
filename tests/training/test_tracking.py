"""`--track`: what clients are told of runs. Most are stand-ins that write down what they are given;
the clients themselves, offline, are `make test-track`."""

import importlib.util
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tenfold.config.run import Run
from tenfold.core.errors import UserError
from tenfold.runs.metrics import read_rows
from tenfold.training import callbacks
from tenfold.training.callbacks import TrackedRun, trackers_named
from tenfold.training.loop import resume, train
from tenfold.training.run_group import train_seeds


class Client:
    """In place of one: into a file, since seeds are other processes."""

    def __init__(self, told: TrackedRun) -> None:
        self.file = Path(os.environ["TOLD"]) / f"{told.name.replace('/', '-')}.jsonl"
        self.where = "a file"
        self.write({"told": [told.id, told.name, told.group, told.settings["env"]]})

    def write(self, row: dict[str, Any]) -> None:
        with self.file.open("a") as file:
            file.write(json.dumps(row) + "\n")

    def log(self, numbers: dict[str, float], step: int) -> None:
        self.write({"step": step, **numbers})

    def close(self, finished: bool) -> None:
        self.write({"finished": finished})


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[dict[str, Any]]]:
    monkeypatch.setenv("TOLD", str(tmp_path))
    monkeypatch.setitem(callbacks.CLIENTS, "trackio", Client)
    monkeypatch.setattr(callbacks, "find_spec", lambda name: object())
    return lambda name: [
        json.loads(line) for line in (tmp_path / f"{name}.jsonl").read_text().splitlines()
    ]


def test_a_tracker_is_sent_what_tensorboard_has(
    small_run: Callable[..., Run], tmp_path: Path, told: Any
) -> None:
    train(small_run(), tmp_path / "run<b>", quiet=True, callbacks=trackers_named("trackio"))
    first, *rows, last = told("run<b>")
    about = json.loads((tmp_path / "run<b>" / "run.json").read_text())
    assert first["told"] == [about["id"], "run<b>", "", "CartPole-v1"]
    assert last == {"finished": True}
    written = [
        r for r in read_rows(tmp_path / "run<b>" / "metrics.jsonl") if r["kind"] != "episode"
    ]
    assert [row["step"] for row in rows] == [row["step"] for row in written]
    for sent, row in zip(rows, written, strict=True):
        numbers = {k: v for k, v in row.items() if isinstance(v, int | float) and k != "step"}
        assert sent == {"step": row["step"]} | {f"{row['kind']}/{k}": v for k, v in numbers.items()}
    with pytest.raises(UserError):  # finished: nothing more is sent
        resume(tmp_path / "run<b>", quiet=True, callbacks=trackers_named("trackio"))
    resume(tmp_path / "run<b>", 700, quiet=True, callbacks=trackers_named("trackio"))
    assert told("run<b>")[len(rows) + 2]["told"] == first["told"]  # the same run, going on


def test_seeds_are_tracked_in_their_own_processes_and_named_together(
    small_run: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: Any
) -> None:
    given = []
    monkeypatch.setattr(
        "tenfold.training.run_group.train_group", lambda group, *_: given.append(group) or 15
    )
    train_seeds(small_run(), 2, tmp_path / "many", quiet=True, track="trackio")
    (tracker,) = given[0].callbacks
    import pickle

    again = pickle.loads(pickle.dumps(tracker))  # as it travels
    assert (again.name, again.group) == ("trackio", "many")
    from tenfold.training.run_group import train_member

    settings = json.loads(json.dumps(callbacks.to_mapping(small_run(steps=100))))
    train_member(settings, str(tmp_path / "elsewhere" / "seed-1"), {}, (again,))
    assert told("many-seed-1")[0]["told"][1:3] == ["many/seed-1", "many"]


def test_a_client_that_fails_is_told_of_and_the_run_goes_on(
    small_run: Callable[..., Run], tmp_path: Path, told: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    class Broken(Client):
        def log(self, numbers: dict[str, float], step: int) -> None:
            print("noise of the client")
            raise ConnectionError("nobody is there")

    callbacks.CLIENTS["trackio"] = Broken
    result = train(small_run(), tmp_path / "run", callbacks=trackers_named("trackio"))
    said = capsys.readouterr()
    assert result.step == 600 and "noise" not in said.out + said.err
    assert said.err.count("trackio could not be sent to (ConnectionError: nobody is there)") == 1
    assert len(told("run")) == 1  # no more was tried


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("wandbx", "--track wandbx is not known: it can be wandb, trackio, mlflow, tensorboard."),
        ("", "--track is empty"),
        ("tensorboard,nothing", "--track nothing is not known"),
    ],
)
def test_a_wrong_tracker_is_one_sentence(text: str, words: str, here: Callable[..., Any]) -> None:
    done = here("train", "cartpole", "--track", text, "--out", "run")
    assert done.returncode == 2 and words in done.stderr and not Path("run").exists()
    assert words in here("train", "cartpole", "--track", text, "--seeds", "2").stderr


def test_one_that_is_not_installed_is_named_with_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, here: Callable[..., Any]
) -> None:
    monkeypatch.setattr(callbacks, "find_spec", lambda name: None)
    done = here("train", "cartpole", "--track", "mlflow")
    assert "--track mlflow needs the package mlflow: pip install 'tenfold[mlflow]'." in done.stderr


def test_tensorboard_is_no_client_and_one_name_is_one_client(told: Any) -> None:
    assert trackers_named("tensorboard") == () == trackers_named(None)
    assert [one.name for one in trackers_named("trackio,tensorboard,trackio")] == ["trackio"]


# the clients' own names and arguments, without them


def asked(monkeypatch: pytest.MonkeyPatch, **modules: Any) -> None:
    for name, contents in modules.items():
        module = ModuleType(name)
        vars(module).update(contents)
        monkeypatch.setitem(sys.modules, name.replace("_", "."), module)


def some_run(tmp_path: Path) -> TrackedRun:
    return TrackedRun("f00", "many/seed-1", "many", {"env": "<b>", "agent": {"lr": 1e-3}}, tmp_path)


def test_weights_and_biases_without_a_key_is_offline_and_asks_for_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {}
    run = SimpleNamespace(
        define_metric=lambda *a, **k: given.update(metric=(a, k)),
        log=lambda row: given.update(row=row),
        finish=lambda: given.update(ended=True),
    )
    asked(
        monkeypatch,
        wandb={"init": lambda **own: given.update(own) or run, "Settings": lambda **own: own},
    )
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("WANDB_MODE", "WANDB_API_KEY", "WANDB_PROJECT", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    client = callbacks.Wandb(some_run(tmp_path))
    assert given["mode"] == "offline" and given["resume"] == "allow" and given["id"] == "f00"
    assert (
        given["dir"] == str(tmp_path) and given["group"] == "many" and "wandb sync" in client.where
    )
    client.log({"train/loss": 2.0}, 7)
    client.close(True)
    assert given["row"] == {"train/loss": 2.0, "step": 7} and given["ended"]
    assert given["metric"] == (("*",), {"step_metric": "step"})
    (tmp_path / ".netrc").write_text("machine api.wandb.ai login user password secret\n")
    (tmp_path / ".netrc").chmod(0o600)
    run.url = "somewhere"
    assert callbacks.Wandb(some_run(tmp_path)).where == "somewhere" and given["mode"] == "online"
    assert "secret" not in json.dumps(given, default=str)


def test_mlflow_takes_any_name_and_finds_a_run_again() -> None:
    assert callbacks.fit("train/a<b>[c]:d é.e-f_g") == "train/a_b__c__d é.e-f_g"


# the clients themselves


@pytest.mark.track
@pytest.mark.parametrize("name", ["wandb", "trackio", "mlflow"])
def test_a_client_keeps_a_run_offline(
    name: str, small_run: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert importlib.util.find_spec(callbacks.PACKAGES[name]), "make test-track installs it"
    run = small_run(steps=300, seed=3)
    path = tmp_path / "a<b>"
    config = tmp_path / "mine.yaml"
    import yaml

    from tenfold.config.schema import to_mapping

    config.write_text(yaml.safe_dump(to_mapping(run)))
    kept = {
        "WANDB_MODE": "offline",
        "TRACKIO_DIR": str(tmp_path / "trackio"),
        "HOME": str(tmp_path),
    }
    for command in (
        ["train", str(config), "--out", str(path), "--track", name],
        ["resume", str(path), "--steps", "500", "--track", name],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "tenfold", *command],
            cwd=tmp_path,
            env=os.environ | kept,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        assert f"tracked by {name}: " in done.stderr and "could not be" not in done.stderr
        assert done.stdout.startswith("mean return") and "rackio" not in done.stdout
    rows = [row for row in read_rows(path / "metrics.jsonl") if row["kind"] == "train"]
    if name == "wandb":
        assert len(list((path / "wandb").glob("offline-run-*/*.wandb"))) == 2
    elif name == "trackio":
        with sqlite3.connect(tmp_path / "trackio" / "tenfold.db") as base:
            found = base.execute("select run_name, step, metrics from metrics").fetchall()
        sent = {step: json.loads(text) for run, step, text in found if run == "a<b>"}
        assert sent[rows[-1]["step"]]["train/updates"] == rows[-1]["updates"]
    else:
        with sqlite3.connect(tmp_path / "mlflow.db") as base:
            runs = base.execute("select run_uuid, name, status from runs").fetchall()
            found = base.execute("select key, step, value from metrics").fetchall()
        assert [own[1:] for own in runs] == [("a<b>", "FINISHED")]  # one, also after the resume
        assert ("train/updates", rows[-1]["step"], rows[-1]["updates"]) in found

"""A search over settings: how spaces are written, what trials are ranked and pruned by, what
survives a kill, and what is said about the winner."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_seeds import contents

import tenfold as ten
from tenfold.config.files import named
from tenfold.config.run import Run
from tenfold.config.schema import to_mapping
from tenfold.config.search import Choices, Interval, drawn_run, parse_search, searches
from tenfold.core.errors import UserError
from tenfold.runs.seeds import SeedsFolder
from tenfold.runs.statistics import interquartile_mean, together
from tenfold.runs.sweep_folder import SweepFolder, outcomes_of
from tenfold.training import trials as trials_module
from tenfold.training.display import Display
from tenfold.training.loop import train
from tenfold.training.study import open_study
from tenfold.training.sweep import resume_sweep, sweep, verdict, with_evaluations
from tenfold.training.trials import Trials, pruning_steps
from tenfold.training.worker_pool import Pool, Tasks

SPACES = [
    ("agent.lr=log(1e-4,1e-2)", Interval(1e-4, 1e-2, log=True)),
    ("agent.gamma=range(0.9, 0.99)", Interval(0.9, 0.99)),
    ("--agent.gamma=linear(0.9, 0.99)", Interval(0.9, 0.99)),
    ("agent.n-step=int(1,5)", Interval(1, 5, whole=True)),
    ("agent.batch_size=log(16, 256)", Interval(16, 256, log=True, whole=True)),
    ("agent.capacity=range(1k, 10k)", Interval(1_000, 10_000, whole=True)),
    ("agent.n_step=[1, 3, 5]", Choices((1, 3, 5))),
    ("agent.double=[true, false]", Choices((True, False))),
    ("agent.net.hidden=[[64,64],[256]]", Choices(("64,64", "256"))),
    (
        "agent.target=[hard(500), polyak(0.005)]",
        Choices(("hard(every=500, steps=none, tau=1)", "polyak(tau=0.005)")),
    ),
]


@pytest.mark.parametrize(("text", "space"), SPACES)
def test_a_space_is_read_in_values_of_its_setting(text: str, space: object) -> None:
    path, written = parse_search(text)
    (found,) = searches(Run(), {path: written})
    assert found.spaces == {path: space}


def test_spaces_stand_inside_calls() -> None:
    wanted = searches(Run(), {"agent.explore": "epsilon(linear(1, [0.01, 0.05], int(5k, 20k)))"})
    names = [name for one in wanted for name in one.spaces]
    assert names == ["agent.explore.1", "agent.explore.2"]
    run: Any = drawn_run(Run(), wanted, {"agent.explore.1": "0.05", "agent.explore.2": 7000})
    assert str(run.agent.explore) == "epsilon(schedule=linear(start=1, end=0.05, steps=7000))"


@pytest.mark.parametrize(
    ("search", "words"),
    [
        ({"agent.lrr": "log(1e-4,1e-2)"}, "agent.lrr is not a setting that can be searched over (did you mean agent.lr?)."),
        ({"lr": "log(1e-4,1e-2)"}, ": write agent.lr."),
        ({"agent.learning_rate": "log(1e-4,1e-2)"}, "tenfold calls it agent.lr"),
        ({"agent.clip": "range(0.1,0.2)"}, "agent.clip is not a setting"),  # it is PPO's
        ({"agent.lr": "log(1e-2,1e-4)"}, "agent.lr = log(1e-2,1e-4) is an empty range"),
        ({"agent.lr": "log(0,1e-4)"}, "a logarithmic range lies above 0"),
        ({"agent.lr": "log(1e-4)"}, "write two numbers"),
        ({"agent.gamma": "range(0.9,1.5)"}, "agent.gamma = 1.5 is out of range: it must be between 0 and 1."),
        ({"agent.n_step": "range(0.5,3)"}, "agent.n_step = 0.5 is not a whole number"),
        ({"agent.n_step": "[0,1]"}, "agent.n_step = 0 is out of range"),
        ({"agent.n_step": "[]"}, "is no choice: give two values at least"),
        ({"agent.n_step": "[3,3]"}, "is no choice"),
        ({"agent.lr": "1e-3"}, "leaves nothing to search over"),
        ({"seed": "int(0,9)"}, "seed cannot be searched over"),
        ({}, "There is nothing to search over"),
        ({"agent.net.hidden": "[[64,64], [32]"}, "cannot be read: write it as a name or a call"),
    ],
)  # fmt: skip
def test_what_cannot_be_searched_over_is_one_sentence(search: dict[str, str], words: str) -> None:
    with pytest.raises(UserError) as error:
        searches(Run(), search)
    assert words in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--search", "agent.lr"], "--search agent.lr cannot be read: write SETTING=SPACE"),
        (["--search", "agent.lr=[1,2]", "--search", "agent.lr=[1,3]"], "agent.lr is searched over twice"),
        (["--search", "agent.lr=[1,2]", "--trials", "0"], "--trials = 0 is out of range"),
        (["--search", "agent.lr=[1,2]", "--pruner", "mean"], "pruner = mean is not one of median"),
        (["--search", "agent.lr=[1,2]", "--eval-every", "0"], "eval_every = 0 leaves a run of 50,000 steps without an evaluation"),
        ([], "There is nothing to search over"),
    ],
)  # fmt: skip
def test_a_command_that_cannot_be_ends_with_a_sentence(
    arguments: list[str], words: str, here: Callable[..., Any], tmp_path: Path
) -> None:
    found = here("sweep", "cartpole", *arguments)
    assert found.returncode == 2 and words in found.stderr and not (tmp_path / "runs").exists()


def test_a_run_that_would_end_before_its_first_evaluation_is_evaluated_five_times(
    small_run: Callable[..., Run], capsys: pytest.CaptureFixture[str]
) -> None:
    """As a preset that evaluates every 10,000 steps and is made short; and it is said."""
    run = with_evaluations(named("cartpole", {"steps": "3k"}), quiet=False)
    assert (run.steps, run.eval_every) == (3_000, 600)
    said = capsys.readouterr().err
    assert said.startswith("Note: eval_every is 600 here, a fifth of the 3,000 steps: ")
    assert with_evaluations(small_run(steps=3, eval_every=9), quiet=True).eval_every == 1
    usual = small_run()
    assert with_evaluations(usual, quiet=False) is usual and not capsys.readouterr().err


def test_without_optuna_the_extra_is_named(
    here: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    found = here("sweep", "cartpole", "--search", "agent.lr=[1,2]")
    assert found.returncode == 2 and "pip install 'tenfold[sweep]'" in found.stderr


# a whole sweep

SEARCH = {"agent.lr": "log(1e-4, 1e-2)", "agent.n_step": [1, 3]}


@pytest.fixture(scope="module")
def swept(small_run: Callable[..., Run], tmp_path_factory: pytest.TempPathFactory) -> Any:
    run = small_run({"lr": 1e-3})
    out = tmp_path_factory.mktemp("sweep") / "four"
    return ten.sweep(run, SEARCH, 4, 3, out, confirm=2, jobs=2, pruner="none", quiet=True)


def test_trials_are_ranked_by_the_interquartile_mean_of_their_seeds(swept: Any) -> None:
    rows = swept.results["trials"]
    assert [row["number"] for row in rows] == [0, 1, 2, 3]
    for row in rows:
        members = SeedsFolder.open(swept.path / f"trial-{row['number']}").members
        last = np.array([outcomes_of(path)[600][1] for path in members])
        assert row["value"] == pytest.approx(interquartile_mean(last)) and len(last) == 3
        assert row["scores"] == last.tolist() and list(row["values"]) == ["200", "400", "600"]
    winner = rows[swept.results["winner"]]
    assert winner["value"] == max(row["value"] for row in rows)


def test_the_first_trial_is_the_run_as_it_is(swept: Any) -> None:
    assert swept.results["trials"][0]["params"] == {"agent.lr": 1e-3, "agent.n_step": 1}


def test_a_seed_of_a_trial_is_the_run_it_would_be_alone(swept: Any, tmp_path: Path) -> None:
    """Though it was stopped at each rung."""
    run = SeedsFolder.open(swept.path / "trial-1").run_of(2)
    alone = train(run, tmp_path / "alone", quiet=True)
    assert pruning_steps(run, "median") == [200, 400, 600]
    assert contents(alone.path) == contents(swept.path / "trial-1" / "seed-2")


def test_the_winner_and_the_default_are_told_on_the_same_held_out_seeds(
    swept: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    from tenfold.cli.search_command import finish_sweep

    for name in swept.results["confirmed"]:
        folder = SeedsFolder.open(swept.path / name)
        assert folder.seeds == (3, 4)
        scores = [outcomes_of(path)[600][1] for path in folder.members]
        assert swept.results["confirmed"][name] == together(scores) | {"failed": {}}
    assert finish_sweep(swept) == 0
    said = capsys.readouterr().out
    assert swept.results["verdict"] in said and "default, held out" in said
    assert said.count("an interval takes 5") >= len(
        swept.results["confirmed"]
    )  # two seeds have none


def test_best_yaml_is_what_train_takes(swept: Any) -> None:
    run: Any = named(str(swept.path / "best.yaml"))
    winner = swept.results["trials"][swept.results["winner"]]
    assert run == swept.best and run.agent.lr == winner["params"]["agent.lr"]
    assert run.agent.n_step == winner["params"]["agent.n_step"] and run.steps == 600


def test_the_page_holds_all_it_shows(swept: Any) -> None:
    text = (swept.path / "report.html").read_text()
    for title in ("Over training", "Parallel coordinates", "Importance", "Trials", "Winner"):
        assert f"<h2>{title}</h2>" in text
    assert text.count('<figure class="chart">') == 2 and "http:" not in text
    assert "https:" not in text and text.count('<span class="track">') == len(SEARCH)
    assert swept.results["verdict"] in text


def test_optuna_opens_the_study(swept: Any) -> None:
    import optuna

    study = optuna.load_study(study_name=None, storage=SweepFolder.open(swept.path).study)
    values = [trial.value for trial in study.trials]
    assert values == [row["value"] for row in swept.results["trials"]]
    assert study.trials[0].intermediate_values.keys() == {200, 400, 600}


def test_a_sweep_that_is_finished_is_told_again_and_more_trials_join_it(
    swept: Any, small_run: Callable[..., Run]
) -> None:
    run = small_run({"lr": 1e-3})
    same = sweep(run, SEARCH, 4, 3, swept.path, confirm=2, pruner="none", quiet=True)
    assert same.results == swept.results
    with pytest.raises(UserError, match="holds a sweep with another search"):
        sweep(run, {"agent.lr": "[1, 2]"}, 4, 3, swept.path, confirm=2, pruner="none")
    with pytest.raises(UserError, match=r"with another agent\.gamma"):
        sweep(small_run({"gamma": 0.9}), SEARCH, 4, 3, swept.path, confirm=2, pruner="none")


def test_lists_and_words_about_a_sweep(
    swept: Any, here: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "sweep").symlink_to(swept.path)
    listed = [line for line in here("list").stdout.splitlines() if "runs/" in line]
    assert len(listed) <= 1
    found = here("eval", str(swept.path))
    assert found.returncode == 2 and "is a sweep: name one of its folders of seeds" in found.stderr
    told = [
        word.strip(",;") for word in found.stderr.split() if "trial-" in word or "winner" in word
    ]
    assert told and all(Path(word).is_dir() for word in told)
    assert here("report", str(swept.path)).stdout == f"{swept.path / 'report.html'}\n"
    watched = here("watch", str(tmp_path / "runs" / "sweep")).stdout
    assert "trial-0 seed 0" in watched and "winner seed" in watched


def test_a_trial_that_fails_is_told_with_its_sentence_and_the_others_go_on(
    small_run: Callable[..., Run], tmp_path: Path
) -> None:
    found = sweep(
        small_run(), {"agent.lr": [5e-4, 1e18]}, 5, 2, tmp_path / "s", confirm=0, jobs=2, quiet=True
    )
    states = {row["params"]["agent.lr"]: row for row in found.results["trials"]}
    assert states[5e-4]["state"] == "complete" and states[1e18]["state"] == "fail"
    assert "no longer finite" in states[1e18]["why"] and len(found.results["trials"]) == 5
    assert (
        found.best is not None
        and found.results["verdict"] == "No trial beat the default settings: they are the winner."
    )
    assert "no longer finite" in (tmp_path / "s" / "report.html").read_text()


def test_settings_that_do_not_fit_one_another_fail_their_trial_alone(
    small_run: Callable[..., Run], tmp_path: Path
) -> None:
    """Updates by episodes are for one environment."""
    search = {"agent.every": "[episodes(1), episodes(2)]"}
    with pytest.raises(UserError, match=r"All 2 trials failed\. The first: .*agent\.every"):
        sweep(small_run(num_envs=2), search, 2, 1, tmp_path / "s", quiet=True)


# pruning


def test_a_trial_is_pruned_by_the_interquartile_mean_and_not_by_the_mean(
    small_run: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four trials of scores 100; then one whose three poor seeds an outlier lifts above that."""
    run, wanted = small_run(), searches(small_run(), {"agent.lr": "log(1e-4, 1e-2)"})
    plan = trials_plan()
    folder = SweepFolder.create(tmp_path / "s", run, plan)
    study = open_study(folder, wanted)
    asked: list[tuple[int, int]] = []

    def scripted(members: list[Path]) -> list[tuple[int, list[Any]]]:
        number = int(members[0].parent.name.removeprefix("trial-"))
        scores = [10.0, 10.0, 10.0, 900.0] if number == 5 else [100.0 + number] * 4
        return [(step, [(None, score) for score in scores]) for step in (200, 400, 600)][
            : tasks.running[number].rung + 1
        ]

    monkeypatch.setattr(trials_module, "evaluations", scripted)
    tasks = Trials(folder, study, wanted, Display("", 0, 0, quiet=True))
    while task := tasks.next():
        asked.append((task[0][0], task[1][3][0].step))
        tasks.ended(task[0], "")
    states = [trial.state.name for trial in study.trials]
    assert states == ["COMPLETE"] * 5 + ["PRUNED"]
    assert [until for number, until in asked if number == 5] == [200] * 4  # and no step further


def trials_plan() -> Any:
    from tenfold.runs.sweep_folder import SweepPlan

    return SweepPlan({"agent.lr": "log(1e-4, 1e-2)"}, 6, (0, 1, 2, 3), (), "median")


def test_rungs_are_evaluations_and_not_too_many(small_run: Callable[..., Run]) -> None:
    assert pruning_steps(small_run(steps=600, eval_every=200), "median") == [200, 400, 600]
    assert pruning_steps(small_run(steps=650, eval_every=200), "median") == [200, 400, 650]
    assert pruning_steps(small_run(steps=200, eval_every=200), "median") == [200]
    many = pruning_steps(small_run(steps=100_000, eval_every=1_000), "hyperband")
    assert many == [*range(10_000, 100_001, 10_000)]
    # nobody waits where nothing is pruned
    assert pruning_steps(small_run(steps=600, eval_every=200), "none") == [600]


@pytest.mark.parametrize(
    ("winner", "default", "words"),
    [
        ((100, [90, 110]), (50, [40, 60]), "The winner beat the default settings on held-out seeds."),
        ((100, [90, 110]), (95, [85, 105]), "though their intervals overlap."),
        ((100, [90, 110]), (100, [90, 110]), "The winner did not beat the default settings"),
        ((90, [80, 100]), (100, [90, 110]), "The winner did not beat the default settings"),
    ],
)  # fmt: skip
def test_the_verdict_says_whether_the_winner_beat_the_default(
    winner: Any, default: Any, words: str
) -> None:
    found = {
        name: {"iqm": iqm, "interval": interval, "failed": {}}
        for name, (iqm, interval) in (("winner", winner), ("default", default))
    }
    assert words in verdict({"confirmed": found}, same=False)


# kills


def written(run: Run, path: Path) -> str:
    path.write_text(json.dumps(to_mapping(run)))
    return str(path)


def wait_for(path: Path, process: Any) -> None:
    deadline = time.monotonic() + 120
    while not path.exists():
        assert time.monotonic() < deadline and process.poll() is None, process.communicate()
        time.sleep(0.02)


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_a_sweep_that_was_stopped_goes_on(
    number: int, small_run: Callable[..., Run], begin: Callable[..., Any], tmp_path: Path
) -> None:
    import optuna

    file = written(small_run(), tmp_path / "run.yaml")
    search = {"agent.lr": "log(1e-4,1e-2)"}
    how = ["--search", "agent.lr=log(1e-4,1e-2)", "--trials", "3", "--seeds", "2"]
    command = ["sweep", file, *how, "--confirm", "0", "--jobs", "1", "--out", "s", "--quiet"]
    process = begin(*command)
    wait_for(tmp_path / "s" / "trial-1" / "seed-1" / "metrics.jsonl", process)
    process.send_signal(number)
    said = process.communicate()
    if number == signal.SIGINT:
        assert process.returncode == 130 and "Go on with: tenfold resume s" in said[0], said
    time.sleep(0.5)  # the kernel ends the workers with their parent
    study = optuna.load_study(study_name=None, storage=SweepFolder.open(tmp_path / "s").study)
    before = study.trials
    assert len(before) < 3 or not all(trial.state.is_finished() for trial in before)
    if number == signal.SIGKILL:  # the same once more
        sweep(small_run(), search, 3, 2, tmp_path / "s", confirm=0, jobs=1, quiet=True)
    else:
        resume_sweep(tmp_path / "s", jobs=1, quiet=True)
    after = study.get_trials()
    assert [trial.number for trial in after] == [0, 1, 2]
    for old, new in zip(before, after, strict=False):  # none was begun anew
        assert old.params == new.params and new.state.name != "FAIL"
    run = SeedsFolder.open(tmp_path / "s" / "trial-1").run_of(1)
    alone = train(run, tmp_path / "alone", quiet=True)
    assert contents(alone.path) == contents(tmp_path / "s" / "trial-1" / "seed-1")


def deed(what: str) -> tuple[str, int]:
    if what == "is killed":
        os.kill(os.getpid(), signal.SIGKILL)
    return ("it fails" if what == "fails" else ""), 0


class Patient(Tasks):
    """Goes on whatever happens."""

    def ended(self, name: Any, error: str) -> bool:
        super().ended(name, error)
        return True


def test_who_dies_is_replaced_where_the_others_go_on() -> None:
    tasks = Patient([("is killed",), ("a",), ("fails",), ("b",)])
    pool = Pool(deed, tasks)
    assert pool.run(1, lambda done: None) == 0 and pool.done == 4
    assert tasks.errors == {0: "its process was killed by SIGKILL", 2: "it fails"}


def test_the_command_says_what_was_found_and_once_more_finds_it_done(
    small_run: Callable[..., Run], here: Callable[..., Any], tmp_path: Path
) -> None:
    file = written(small_run({"lr": 1e-3}), tmp_path / "mine.yaml")
    search = ["--search", "agent.lr=log(1e-4,1e-2)", "--search", "agent.n-step=[1,3]"]
    how = ["--trials", "5", "--seeds", "2", "--confirm", "1", "--pruner", "hyperband", "--quiet"]
    first = here("sweep", file, *search, *how, "--where", "local")
    assert first.returncode == 0, first.stderr
    assert first.stdout.startswith("5 trials: ") and "winner, trial " in first.stdout
    assert "train it: tenfold train runs/sweep-mine/best.yaml" in first.stdout
    assert here("sweep", file, *search, *how).stdout == first.stdout
    assert here("resume", "runs/sweep-mine", "--quiet").stdout == first.stdout
    listed = [line for line in here("list").stdout.splitlines() if "runs/" in line]
    assert len(listed) == 1 and "sweep of dqn on CartPole-v1: 5 trials of 2 seeds" in listed[0]
    other = here("sweep", file, "--search", "agent.gamma=[0.9,0.99]", *how, "--trials", "1")
    assert "runs/sweep-mine-2/best.yaml" in other.stdout
    found = here("resume", "runs/sweep-mine", "--steps", "900")
    assert found.returncode == 2 and "whose settings stay as they are" in found.stderr
    found = here("sweep", file, *search, "--where", "cloud")
    assert found.returncode == 2 and "--where = cloud is not one of local, ray" in found.stderr

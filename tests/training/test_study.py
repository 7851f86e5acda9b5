"""The study of a sweep: what trials are ranked and pruned by, what a trial draws whenever the sweep
was killed, where the study is kept, and what is said where its files are not what they were."""

import contextlib
import itertools
import json
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest

from tenfold.config.run import Run
from tenfold.config.search import searches
from tenfold.core.errors import UserError
from tenfold.runs.metrics import outcome
from tenfold.runs.report import trials_table, write_sweep_report
from tenfold.runs.reporter import parallel_coordinates, score_text
from tenfold.runs.seeds import SeedsFolder
from tenfold.runs.statistics import pooled
from tenfold.runs.storage import read_arrays, write_arrays
from tenfold.runs.sweep_folder import SweepFolder, SweepPlan, require_metrics
from tenfold.training import study as study_module
from tenfold.training import trials as trials_module
from tenfold.training.display import Display
from tenfold.training.study import as_number, distributions, draw, finished_rows, open_study
from tenfold.training.sweep import importances, resume_sweep, verdict, winner_of
from tenfold.training.trials import Trials

SEARCH = {"agent.lr": "log(1e-4, 1e-2)", "agent.n_step": [1, 3, 5]}
SEEDS = (0, 1, 2, 3)
# by trials: the share of successes (None where none are told of) and the return, of all seeds
OUTCOMES = [(None, 200.0), (1.0, 1.0), (0.5, 90.0), (1.0, -3.0), (None, 210.0), (0.0, 205.0)]


def plan_of(trials: int, pruner: str = "none") -> SweepPlan:
    return SweepPlan(SEARCH, trials, SEEDS, (), pruner)


def played(
    folder: SweepFolder, monkeypatch: pytest.MonkeyPatch, outcomes: Any, stop: int = 10**6
) -> Any:
    """The study after its trials came to these outcomes, without training; at most so many tasks.
    Both evaluations of a trial on its way are like its last."""
    wanted = searches(folder.run, SEARCH)
    study = open_study(folder, wanted)

    def scripted(members: list[Path]) -> list[tuple[int, list[Any]]]:
        number = int(members[0].parent.name.removeprefix("trial-"))
        reached = tasks.rungs[: tasks.running[number].rung + 1]
        steps = [step for step in (200, 400, 600) if step <= reached[-1]]
        return [(step, [outcomes(number)] * len(members)) for step in steps]

    monkeypatch.setattr(trials_module, "evaluations", scripted)
    tasks = Trials(folder, study, wanted, Display("", 0, 0, quiet=True))
    for task in itertools.islice(iter(tasks.next, None), stop):
        tasks.ended(task[0], "")
    return study


@pytest.fixture(autouse=True, scope="module")
def without_waiting_for_the_disk() -> Iterator[None]:
    usual = study_module.connection

    def connection(path: Path) -> sqlite3.Connection:
        found = usual(path)
        found.execute("PRAGMA synchronous = OFF")
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study_module, "connection", connection)
        yield


@pytest.fixture(scope="module")
def ranked_once(small_run: Callable[..., Run], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ranked") / "s"
    folder = SweepFolder.create(path, small_run(), plan_of(len(OUTCOMES)))
    with pytest.MonkeyPatch.context() as patch:
        played(folder, patch, lambda number: OUTCOMES[number])
    assert folder.lock
    folder.lock.release()
    return path


@pytest.fixture
def ranked(ranked_once: Path, tmp_path: Path) -> SweepFolder:
    """A sweep whose trials came to those outcomes."""
    return SweepFolder.open(Path(shutil.copytree(ranked_once, tmp_path / "s")))


@pytest.fixture(scope="module")
def trained_once(small_run: Callable[..., Run], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep of one trial and one seed, whose run is at its end and was not yet looked at."""
    path = tmp_path_factory.mktemp("trained") / "s"
    folder = SweepFolder.create(path, small_run(), SweepPlan(SEARCH, 1, (0,), (), "none"))
    wanted = searches(folder.run, SEARCH)
    tasks = Trials(folder, open_study(folder, wanted), wanted, Display("", 0, 0, quiet=True))
    task = tasks.next()
    assert task and trials_module.train_member(*task[1]) == ("", 0)
    return path


def test_a_trial_that_succeeds_beats_those_that_never_do_whatever_they_return(
    ranked: SweepFolder,
) -> None:
    """And of two that always succeed the one that returns more: in the table, in the winner, in
    Optuna's best trial, and on all axes of the page."""
    study = open_study(ranked, searches(ranked.run, SEARCH))
    rows = finished_rows(study)
    best = winner_of(rows)
    assert best and best["number"] == 1 == study.best_trial.number
    values = [trial.value for trial in study.trials]
    order = [1, 3, 2, 4, 5, 0]
    assert np.argsort(values)[::-1].tolist() == order
    table = trials_table(rows, 1)
    assert sorted(order, key=lambda k: table.index(f'"trial-{k}/"')) == order
    assert [score_text(rows[k]) for k in (1, 4)] == ["success 100.0%, 1.00", "210.00"]
    drawn = parallel_coordinates(rows, {"agent.lr"})
    assert [line.name.split(":")[0] for line in drawn.lines] == [f"trial {k}" for k in order[::-1]]
    assert [line.colour for line in drawn.lines][-1] == "hsl(0 75% 50%)"
    assert drawn.ticks == ["agent.lr", "agent.n_step", "success", "evaluation"]


def test_importances_are_of_the_order_that_the_winner_is_chosen_by(
    small_run: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Successes follow the first parameter alone, returns the other, the other way round."""
    folder = SweepFolder.create(tmp_path / "s", small_run(), plan_of(16))

    def follow(number: int) -> tuple[float, float]:
        params = json.loads((folder.path / "drawn.json").read_text())[str(number)]
        return float(params["agent.lr"] > 1e-3), -100.0 * params["agent.n_step"]

    drawn: dict[str, Any] = {}
    usual = trials_module.draw

    def noted(study: Any, own: SweepFolder, trial: Any, spaces: Any) -> Any:
        drawn[str(trial.number)] = found = usual(study, own, trial, spaces)
        (folder.path / "drawn.json").write_text(json.dumps(drawn))
        return found

    monkeypatch.setattr(trials_module, "draw", noted)
    shares = importances(played(folder, monkeypatch, follow))
    assert shares["agent.lr"] > shares["agent.n_step"]


def test_a_trial_is_pruned_by_successes_first(
    small_run: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fifth returns most and never succeeds; the sixth succeeds like the others."""
    folder = SweepFolder.create(tmp_path / "s", small_run(), plan_of(6, "median"))
    study = played(folder, monkeypatch, lambda k: (None, 500.0) if k == 4 else (0.5 + k / 20, 1.0))
    assert [trial.state.name for trial in study.trials] == ["COMPLETE"] * 4 + ["PRUNED", "COMPLETE"]
    assert finished_rows(study)[4]["value"] == 500.0 and study.trials[4].last_step == 200


def test_the_number_that_optuna_sees_is_in_the_order_of_the_pairs() -> None:
    rates = [0.0, 1 / 80, 0.5, 0.5 + 1 / 80, 79 / 80, 1.0]
    returns = [-1e100, -1e9, -2e6, -500.0, 0.0, 0.001, 200.0, 1e6, 1e6 + 1, 3e6]
    pairs = list(itertools.product(rates, returns))
    numbers = [as_number(*pair) for pair in pairs]
    assert all(np.diff(numbers) > 0)
    assert as_number(None, 200.0) == as_number(0.0, 200.0) == 200.0


def test_seeds_are_pooled_without_mixing_rates_and_returns() -> None:
    """Where one of four seeds tells of no success, it had none."""
    seeds = [(1.0, 10.0), (None, -200.0), (0.5, 20.0), (0.25, 30.0)]
    assert pooled(seeds) == ((0.25 + 0.5) / 2, 15.0)
    assert pooled([(None, 1.0), (None, 3.0)]) == (None, 2.0)
    row = {"mean_return": 7.0, "success_rate": 0.5, "merit": 0.4999}
    assert outcome(row) == (0.5, 7.0) and outcome({"mean_return": 7.0}) == (None, 7.0)
    assert outcome({"score": 0.3}) == (None, 0.3)


@pytest.mark.parametrize(
    ("winner", "default", "words"),
    [
        ((1.0, 5.0), (0.5, 90.0), "The winner beat the default settings on held-out seeds."),
        ((0.5, 90.0), (1.0, 5.0), "did not beat"),
        ((1.0, 5.0), (1.0, 4.0), "though their intervals overlap."),
    ],
)
def test_the_verdict_compares_successes_first(winner: Any, default: Any, words: str) -> None:
    def told(rate: float, score: float) -> dict[str, Any]:
        success = {"iqm": rate, "interval": [rate, rate]}
        return {"iqm": score, "interval": [0.0, 100.0], "success": success, "failed": {}}

    held_out = {"winner": told(*winner), "default": told(*default)}
    assert words in verdict({"confirmed": held_out}, same=False)


def test_the_verdict_of_few_held_out_seeds_says_that_they_carry_no_interval() -> None:
    told = [{"iqm": iqm, "interval": None, "failed": {}} for iqm in (2.0, 1.0)]
    words = verdict({"confirmed": dict(zip(("winner", "default"), told, strict=True))}, same=False)
    assert words.endswith("held-out seeds, which may be chance: an interval takes 5 of them.")


# what is drawn


def test_a_sweep_that_is_killed_again_and_again_draws_what_it_would_have_drawn(
    small_run: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the first four trials, which are random, so that what was before counts too; once
    between two settings of one trial."""

    def outcomes(number: int) -> tuple[None, float]:
        return None, float(7 * number % 5)

    whole = SweepFolder.create(tmp_path / "whole", small_run(), plan_of(9, "median"))
    drawn = [trial.params for trial in played(whole, monkeypatch, outcomes).trials]
    assert len(drawn) == 9 and len({json.dumps(params) for params in drawn}) == 9
    killed = SweepFolder.create(tmp_path / "killed", small_run(), plan_of(9, "median"))
    for stop in (3, 1, 7, 2):
        played(killed, monkeypatch, outcomes, stop)
    wanted = searches(killed.run, SEARCH)
    study, spaces = open_study(killed, wanted), distributions(wanted)
    running = [t for t in study.trials if t.state.name == "RUNNING"]
    for trial in running:  # ended by hand, so that the next one is asked for
        study.tell(trial.number, outcomes(trial.number)[1])
    next_one = study.ask()
    first = dict([next(iter(spaces.items()))])
    assert draw(study, killed, next_one, first)["agent.lr"] == drawn[next_one.number]["agent.lr"]
    again = played(killed, monkeypatch, outcomes).trials
    assert [trial.params for trial in again][: next_one.number + 1] == drawn[: next_one.number + 1]


# where it is


@pytest.mark.parametrize("name", ["why?", "50%41", "a{b}c", "with space#1", "é"])
def test_the_study_is_in_the_sweeps_folder_whatever_that_is_called(
    name: str, small_run: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = SweepFolder.create(tmp_path / name, small_run(), plan_of(2))
    played(folder, monkeypatch, lambda number: (None, float(number)))
    assert (tmp_path / name / "study.db").is_file() and [*tmp_path.iterdir()] == [tmp_path / name]
    study = open_study(SweepFolder.open(tmp_path / name), searches(small_run(), SEARCH))
    assert [trial.value for trial in study.trials] == [0.0, 1.0]
    if "{" not in name:  # which Optuna's own URLs cannot hold
        assert len(optuna.load_study(study_name=None, storage=folder.study).trials) == 2


# what is damaged


def sql(*statements: str) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        with contextlib.closing(sqlite3.connect(path)) as file:
            for statement in statements:
                file.execute(statement)
            file.commit()

    return damage


def writes(content: bytes) -> Callable[[Path], None]:
    return lambda path: void(path.write_bytes(content))


def void(_: object) -> None:
    """Of what is done for its effect."""


def halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def turn_to_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def foreign(path: Path) -> None:
    path.unlink()
    sql("CREATE TABLE mine (a)", "INSERT INTO mine VALUES (1)")(path)


ATTRIBUTE = "UPDATE trial_user_attributes SET value_json = '{}' WHERE key = 'evaluations'"  # of all
STUDIES = {
    "empty": writes(b""),
    "half of it": halve,
    "JSON": writes(b"{}"),
    "a folder": turn_to_folder,
    "gone": Path.unlink,
    "another database": foreign,
    "without a table": sql("DROP TABLE study_directions"),
    "without its study": sql("UPDATE studies SET study_name = 'x'"),
    "without its trials": sql("DELETE FROM trials"),
    "without a trial": sql("DELETE FROM trials WHERE number = 1"),
    "trials of one number": sql("UPDATE trials SET number = 0"),
    "values of text": sql("UPDATE trial_values SET value = 'x'"),
    "without values": sql("DELETE FROM trial_values"),
    "other values": sql("UPDATE trial_values SET value = 5"),
    "without parameters": sql("DELETE FROM trial_params"),
    "parameters out of their space": sql("UPDATE trial_params SET param_value = 99"),
    "spaces that are no JSON": sql("UPDATE trial_params SET distribution_json = 'x'"),
    "a state that is none": sql("UPDATE trials SET state = 'x'"),
    "the least wanted": sql("UPDATE study_directions SET direction = 'MINIMIZE'"),
    "evaluations that are none": sql(ATTRIBUTE.format("[]")),
    "no evaluations": sql(ATTRIBUTE.format("{}")),
    "pairs that are none": sql(ATTRIBUTE.format('{"1": 2}')),
    "written by another version": sql("UPDATE alembic_version SET version_num = 'x'"),
}


@pytest.mark.parametrize("what", STUDIES)
def test_a_study_that_is_not_what_it_was_is_one_sentence_and_stays_as_it_is(
    what: str, ranked: SweepFolder
) -> None:
    path = ranked.path / "study.db"
    STUDIES[what](path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(UserError) as error:
        open_study(ranked, searches(ranked.run, SEARCH))
    words = str(error.value)
    assert str(path) in words and "put back what was there" in words and "\n" not in words
    assert before == (path.read_bytes() if path.is_file() else None)


def test_a_study_that_is_whole_and_cannot_be_used_just_now_is_another_sentence(
    ranked: SweepFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, wanted = ranked.path / "study.db", searches(ranked.run, SEARCH)
    with monkeypatch.context() as patch:
        read_only = f"{path.as_uri()}?mode=ro"
        patch.setattr(study_module, "connection", lambda _: sqlite3.connect(read_only, uri=True))
        with pytest.raises(UserError, match=r"readonly database\): what was trained is kept"):
            open_study(ranked, wanted)
    monkeypatch.setattr(study_module, "PATIENCE", 0.0)
    study = open_study(ranked, wanted)
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN EXCLUSIVE")
        words = (
            r"database is locked\): what was trained is kept, and `tenfold resume .*` goes on once"
        )
        with pytest.raises(UserError, match=words), study_module.study_file(path):
            study.get_trials()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (b"", "sweep.json is damaged"),
        (b'{"kind": "\xff"}', "sweep.json is damaged"),
        (b"[]", "it is [] and must be a table"),
        ({"pruner": "mean"}, 'plan.pruner is "mean" and must be one of median, hyperband, none'),
        ({"trials": 10**9}, "plan.trials is 1000000000 and must be a whole number from 1 to"),
        ({"search": {"agent.lr": {"a": 1}}}, "plan.search.agent.lr is a table and must be a space"),
        ({"search": {"agent.lr": None}}, "plan.search.agent.lr is null"),
        ({"search": {}}, "There is nothing to search over"),
        ({"search": {"agent.lrr": "[1, 2]"}}, "agent.lrr is not a setting"),
        ({"seeds": [0, 0]}, "a seed is there twice"),
        ({"held_out": [0]}, "a seed is there twice"),
        ({"search": {"agent.lr": [[1], [2]]}}, "agent.lr"),
    ],
)
def test_a_plan_that_is_not_what_it_was_is_one_sentence(
    damage: Any, words: str, small_run: Callable[..., Run], tmp_path: Path
) -> None:
    folder = SweepFolder.create(tmp_path / "s", small_run(), plan_of(2))
    assert folder.lock
    folder.lock.release()
    file = folder.path / "sweep.json"
    if isinstance(damage, dict):
        about = json.loads(file.read_text())
        damage = json.dumps(about | {"plan": about["plan"] | damage}).encode()
    file.write_bytes(damage)
    with pytest.raises(UserError) as error:
        resume_sweep(folder.path, quiet=True)
    assert words in str(error.value) and "\n" not in str(error.value)
    assert file.read_bytes() == damage


@pytest.mark.parametrize("name", ["best.yaml", "results.json"])
def test_a_result_that_cannot_be_written_is_one_sentence(name: str, ranked: SweepFolder) -> None:
    (ranked.path / name).mkdir()
    with pytest.raises(UserError, match=f"{name} cannot be written: Is a directory"):
        ranked.write_best(ranked.run) if name == "best.yaml" else ranked.write_results({})


def test_a_report_of_a_sweep_that_has_not_ended_says_so(
    small_run: Callable[..., Run], tmp_path: Path
) -> None:
    folder = SweepFolder.create(tmp_path / "s", small_run(), plan_of(2))
    with pytest.raises(
        UserError, match=r"s is a sweep that has not ended.*tenfold resume .*s` goes"
    ):
        write_sweep_report(folder)


def test_what_a_sweep_of_another_version_knew_besides_is_passed_over(
    small_run: Callable[..., Run], tmp_path: Path
) -> None:
    folder = SweepFolder.create(tmp_path / "s", small_run(), plan_of(2))
    about = json.loads((folder.path / "sweep.json").read_text())
    about["plan"]["later"] = [1]
    (folder.path / "sweep.json").write_text(json.dumps(about))
    assert SweepFolder.open(folder.path).plan == folder.plan


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("seeds.json", "holds no seeds that can be read"),
        ("config.yaml", "was trained with another agent.gamma than drawn"),
        ("seed-0/run.json", "holds no run that can be read (run.json)"),
        ("seed-0/metrics.jsonl", "has lost evaluations"),
    ],
)
def test_a_trial_that_was_damaged_is_neither_replaced_nor_failed(
    what: str, words: str, trained_once: Path, tmp_path: Path
) -> None:
    """Whoever puts back what was there loses nothing."""
    folder = SweepFolder.open(Path(shutil.copytree(trained_once, tmp_path / "s")))
    wanted = searches(folder.run, SEARCH)
    file = folder.path / "trial-0" / what
    text = file.read_text()
    file.write_text(text.replace("gamma: 0.99", "gamma: 0.5") if "yaml" in what else "")
    again = open_study(folder, wanted)
    with pytest.raises(UserError, match=re.escape(words)):
        tasks = Trials(folder, again, wanted, Display("", 0, 0, quiet=True))
        while task := tasks.next():
            tasks.ended(task[0], trials_module.train_member(*task[1])[0])
    assert [trial.state.name for trial in again.trials] == ["RUNNING"]
    file.write_text(text)
    Trials(folder, again, wanted, Display("", 0, 0, quiet=True))
    assert [trial.state.name for trial in again.trials] == ["COMPLETE"]


def test_a_run_stopped_in_its_last_evaluation_has_lost_none(
    trained_once: Path, tmp_path: Path
) -> None:
    """Its checkpoint says that the evaluation is still to come."""
    folder = SweepFolder.open(Path(shutil.copytree(trained_once, tmp_path / "s")))
    seeds = SeedsFolder.open(folder.path / "trial-0")
    (member,), until = seeds.members, folder.run.steps
    rows = (member / "metrics.jsonl").read_text().splitlines(keepends=True)
    last = max(i for i, row in enumerate(rows) if json.loads(row)["kind"] == "eval")
    (member / "metrics.jsonl").write_text("".join(rows[:last]))
    with pytest.raises(UserError, match="has lost evaluations"):
        require_metrics(seeds, until)
    checkpoint = member / "checkpoints" / f"step-{until:012d}.safetensors"
    arrays, note = read_arrays(checkpoint)
    write_arrays(checkpoint, arrays, note | {"owes_evaluation": True})
    require_metrics(seeds, until)


@pytest.mark.parametrize(
    ("where", "value", "words"),
    [
        (("winner",), 99, "the winner, trial 99, is none of its trials that have a value"),
        (("winner",), None, "winner is null"),
        (("trials",), [], "is none of its trials"),
        (("trials", 0, "state"), "x", 'trials[0].state is "x"'),
        (("trials", 0, "params"), {}, "trial 0 has other parameters than the winner"),
        (("trials", 0, "params", "agent.lr"), [1], "trial 0 has a parameter that is no value"),
        (("trials", 0, "number"), 1, "a trial is there twice"),
        (("trials", 0, "values"), {"a": 1.0}, "trial 0 has a step that is no number"),
        (("confirmed",), {"winner": {"iqm": 1.0, "failed": {}}}, "confirmed.winner.seeds is missing"),
        (("confirmed",), {"winner": {}}, "confirmed.winner.failed is missing"),
    ],
)  # fmt: skip
def test_results_that_do_not_go_together_are_one_sentence_and_odd_ones_a_page(
    where: tuple[Any, ...], value: Any, words: str, ranked: SweepFolder
) -> None:
    rows = finished_rows(open_study(ranked, searches(ranked.run, SEARCH)))
    found = {"trials": rows, "winner": 1, "importance": {}, "confirmed": {}, "verdict": ""}
    ranked.write_results(found)
    ranked.write_best(ranked.run)
    rows[0]["params"]["agent.lr"] = -1  # on a logarithmic axis
    ranked.write_results(found)
    assert "success 100.0%, 1.00" in write_sweep_report(ranked).read_text()
    place: Any = found
    for key in where[:-1]:
        place = place[key]
    place[where[-1]] = value
    ranked.write_results(found)
    with pytest.raises(UserError) as error:
        write_sweep_report(ranked)
    assert words in str(error.value) and "`tenfold resume" in str(error.value)

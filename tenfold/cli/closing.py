"""The closing summary lines of runs."""

import sys
from typing import Any

NAMED = 8  # runs that are named one by one
LISTED = 32  # seeds whose numbers are shown; summary.json has all


def finish(result: Any) -> int:
    """Closing summary lines of a run."""
    if result.unsaved:
        print(
            f"tenfold: the end of the run could not be saved: {result.unsaved}; free some space "
            f"and `tenfold resume {result.path}` goes on from the last checkpoint.",
            file=sys.stderr,
        )
        return 2
    if result.interrupted:
        print(
            f"Stopped at step {result.step:,}, the last one, and saved: the run is finished. "
            f"Results: {result.path}"
            if result.finished
            else f"Stopped at step {result.step:,} and saved. Go on with: tenfold resume "
            f"{result.path}"
        )
        return 128 + result.interrupted
    from tenfold.evaluation.evaluate import evaluation_of
    from tenfold.runs.folder import RunFolder
    from tenfold.runs.reporter import measure_lines, source_measures

    how = evaluation_of(result.run)
    if result.mean_return is not None:
        print(
            f"mean return of the last {result.episodes} training episodes: "
            f"{result.mean_return:.2f} (exploring)"
        )
    measures = source_measures(RunFolder.open(result.path, True)[0].about, [result.path])
    for line in (*how.conclusion(result), *measure_lines(measures)):
        print(line)
    more = how.next_steps(result.path)
    print(f"results: {result.path}   report: {result.path / 'report.html'}   {more}")
    return 0


def finish_seeds(result: Any) -> int:
    """Closing summary lines of a run of many seeds."""
    if result.interrupted:
        print(f"{stopped(result.saved)} Go on with: tenfold resume {result.path}")
        return 128 + result.interrupted
    from tenfold.evaluation.evaluate import evaluation_of
    from tenfold.runs.reporter import measure_lines, reporter_of
    from tenfold.runs.seeds import SeedsFolder, summary_sentences

    reporter = reporter_of(result.run)
    folder = SeedsFolder(result.path, result.run, result.seeds)
    members = result.summary["seeds"] if len(result.summary["seeds"]) <= LISTED else {}
    for seed, member in members.items():
        numbers = ", ".join(
            f"{name.replace('_', ' ')} {reporter.numbers[name].text(value)}"
            for name, value in member.items()
            if name != "step" and value is not None
        )
        print(f"  seed {seed:<4} {numbers}")
    for name, text in summary_sentences(reporter, result.summary).items():
        print(f"{name.replace('_', ' '):16} {text}")
    for line in measure_lines(result.summary.get("measures", {})):
        print(line)
    for seed in folder.seeds if result.run.where == "ray" else ():  # others have said it here
        if text := reporter.warning(folder.member(seed)):
            print(f"  seed {seed:<4} {text}")
    more = evaluation_of(result.run).next_steps(result.path, many=True)
    print(f"results: {result.path}   report: {result.path / 'report.html'}   {more}")
    for name, text in result.failed.items():
        print(f"tenfold: {name}: {text}", file=sys.stderr)
    return 2 if result.failed else 0


def stopped(saved: dict[str, int]) -> str:
    """A sentence about the last checkpoints of several stopped runs."""
    if not saved:
        return "Stopped before anything was saved."
    if len(saved) <= NAMED:
        return (
            "Stopped and saved: "
            f"{', '.join(f'{name} at step {step:,}' for name, step in saved.items())}."
        )
    return (
        f"Stopped and saved: {len(saved)} runs at steps {min(saved.values()):,} to "
        f"{max(saved.values()):,}."
    )

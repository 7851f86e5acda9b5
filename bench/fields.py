"""Which experiments identify a hidden system best? Six fields × four policies × eight stacked
seeds: the field's error and k-step R² after 2,000 and 10,000 steps, with bootstrap intervals. Every
part is written as it ends, and again at each mark; a second call does what is missing. Writes
bench/results/fields.json with the machine card.

    python bench/fields.py [--jobs 16] [--stack 4] [--fields A,B] [--policies A,B] [--seeds 8]
    [--steps 10000] [--minutes 11]
    python bench/fields.py --show        # the committed results as tables and as
    docs/pictures/fields.png
"""

import argparse
import json
import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

# before anything loads a BLAS
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np  # noqa: E402

from tenfold.config.files import named  # noqa: E402
from tenfold.core.system import (  # noqa: E402
    machine_card,
    set_threads,
    versions,
)
from tenfold.domains.dynamics.learner import ExplorerLearner  # noqa: E402
from tenfold.domains.dynamics.model_metrics import evaluate_model  # noqa: E402
from tenfold.domains.dynamics.validation import random_recordings  # noqa: E402

RESULTS = Path(__file__).parent / "results" / "fields.json"
FIELDS = (
    "limit-cycle",
    "double-limit-cycle",
    "van-der-pol",
    "duffing",
    "snowman",
    "multi-attractor",
)
POLICIES = ("active", "disagreement", "random", "zero")  # the slow ones first
MARKS = (2_000, 10_000)
CURVE = 500  # steps between looks
RECORDINGS = 128
RESAMPLES = 10_000


def part(
    field: str, policy: str, first: int, seeds: int, steps: int, folder: str, deadline: float
) -> dict[str, Any]:
    """One policy on one field, seeds first, first + 1, … stacked: errors [steps, seeds] and R² at
    every look."""
    set_threads(1)
    run = named(
        field,
        {"seed": first, "members": seeds, "steps": steps, "agent": {"planner": {"policy": policy}}},
    )
    place = ExplorerLearner(run)
    recordings = random_recordings(run.env, RECORDINGS)
    found: dict[str, Any] = {"field": field, "policy": policy, "first": first, "seeds": seeds}
    found |= {name: [] for name in ("steps", "errors", "r2", "arx_r2", "elbo")}
    start, busy = time.monotonic(), time.process_time()
    while place.step < steps and time.monotonic() < deadline:
        place.round()
        if place.step % CURVE == 0 or place.step == steps:
            verdict = evaluate_model(place.agent, recordings, arx=place.step in (*MARKS, steps))
            assert verdict.field_error is not None
            found["steps"].append(place.step)
            found["errors"].append(np.round(verdict.field_error, 5).tolist())
            found["r2"].append(np.round(verdict.r2, 5).tolist())
            found["elbo"].append(np.round(verdict.elbo, 4).tolist())
            found["arx_r2"].append(
                None if verdict.arx_r2 is None else np.round(verdict.arx_r2, 5).tolist()
            )
            found |= {
                "seconds": round(time.monotonic() - start, 1),
                "busy_seconds": round(time.process_time() - busy, 1),
                "finished": place.step >= steps,
            }
            file = Path(folder) / f"{field}-{policy}-{first}.json"
            temporary = file.with_suffix(".tmp")
            temporary.write_text(json.dumps(found))
            temporary.replace(file)
    return found


def interval(values: np.ndarray) -> list[float]:
    """The mean over seeds and its 95 % bootstrap interval."""
    drawn = np.random.default_rng(0).integers(len(values), size=(RESAMPLES, len(values)))
    low, high = np.quantile(values[drawn].mean(1), (0.025, 0.975))
    return [round(float(number), 4) for number in (values.mean(), low, high)]


def joined(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Parts of the same field and policy as one: seeds side by side at the steps that all of them
    reached."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for own in sorted(parts, key=lambda p: p["first"]):
        which = own["field"], own["policy"]
        if which not in found:
            found[which] = {k: v for k, v in own.items() if k != "first"}
            continue
        whole = found[which]
        steps = [step for step in whole["steps"] if step in own["steps"]]
        for name in ("errors", "r2", "arx_r2", "elbo"):
            halves = [[p[name][p["steps"].index(step)] for step in steps] for p in (whole, own)]
            whole[name] = [
                None if one is None or other is None else one + other
                for one, other in zip(*halves, strict=True)
            ]
        whole["steps"], whole["seeds"] = steps, whole["seeds"] + own["seeds"]
        whole |= {name: whole[name] + own[name] for name in ("seconds", "busy_seconds")}
        whole["finished"] = whole["finished"] and own["finished"]
    return list(found.values())


def table(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row for each field, policy and mark: 2,000 and 10,000 steps where they were reached, and
    the last step that all policies of a field reached; beside it the paired difference to random at
    the same mark."""
    rows = []
    by = {(p["field"], p["policy"]): p for p in parts if p["steps"]}
    for (field, policy), found in by.items():
        common = min(own["steps"][-1] for (where, _), own in by.items() if where == field)
        for mark in sorted({*MARKS, common}):
            if mark not in found["steps"]:
                continue
            k = found["steps"].index(mark)
            errors, r2 = np.array(found["errors"][k]), np.array(found["r2"][k])
            row = {
                "field": field,
                "policy": policy,
                "step": mark,
                "error": interval(errors),
                "r2": {str(ahead): interval(r2[:, ahead - 1]) for ahead in (1, 5, 10)},
            }
            if found["arx_r2"][k] is not None:
                row["arx_r2"] = {
                    str(ahead): interval(np.array(found["arx_r2"][k])[:, ahead - 1])
                    for ahead in (1, 5, 10)
                }
            other = by.get((field, "random"))
            if (
                other
                and mark in other["steps"]
                and other["seeds"] == found["seeds"]
                and policy != "random"
            ):
                row["less_than_random"] = interval(
                    np.array(other["errors"][other["steps"].index(mark)]) - errors
                )
            rows.append(row)
    return rows


def write(folder: Path, out: Path, setting: dict[str, Any]) -> list[dict[str, Any]]:
    parts = joined([json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))])
    rows = table(parts)
    content = {
        "machine": machine_card(),
        "versions": versions(),
        "setting": setting,
        "rows": rows,
        "parts": parts,
    }
    write_content(content, out)
    return rows


def write_content(content: dict[str, Any], out: Path) -> None:
    """A line for each row and each part: a part has thousands of numbers."""
    lists = [
        f' "{name}": [\n' + ",\n".join(f"  {json.dumps(one)}" for one in content[name]) + "\n ]"
        for name in ("rows", "parts")
    ]
    rest = [
        f' "{name}": {json.dumps(value)}'
        for name, value in content.items()
        if name not in ("rows", "parts")
    ]
    out.write_text("{\n" + ",\n".join([*rest, *lists]) + "\n}\n")


def show(results: Path, picture: Path) -> None:
    """The results as Markdown, and their curves."""
    found = json.loads(results.read_text())
    rows = {(row["field"], row["policy"], row["step"]): row for row in found["rows"]}
    print(f"Error of the field (mean of {found['setting']['seeds']} seeds, 95 % interval)\n")
    print(
        f"| field | steps | {' | '.join(POLICIES)} | active less than random by |\n"
        f"|---|---|{'---|' * (len(POLICIES) + 1)}"
    )
    marks = sorted({(FIELDS.index(field), step) for field, _, step in rows})
    for place, mark in marks:
        own = [rows.get((FIELDS[place], policy, mark)) for policy in POLICIES]
        less = shown(own[0]["less_than_random"]) if own[0] and "less_than_random" in own[0] else "–"
        print(
            f"| {FIELDS[place]} | {mark:,} | "
            f"{' | '.join(shown(row['error']) if row else '–' for row in own)} | {less} |"
        )
    print("\nR² of observations 1, 5 and 10 steps ahead; ARX fitted to the same data\n")
    print(
        f"| field | steps | {' | '.join(POLICIES)} | ARX, active's data |\n"
        f"|---|---|{'---|' * (len(POLICIES) + 1)}"
    )
    for place, mark in marks:
        own = [rows.get((FIELDS[place], policy, mark)) for policy in POLICIES]
        cells = [ahead(row["r2"]) if row else "–" for row in own]
        arx = ahead(own[0]["arx_r2"]) if own[0] and "arx_r2" in own[0] else "–"
        print(f"| {FIELDS[place]} | {mark:,} | {' | '.join(cells)} | {arx} |")
    draw(found["parts"], picture)


def draw(parts: list[dict[str, Any]], picture: Path) -> None:
    # here: only drawing needs matplotlib
    from tenfold.runs.charts import as_png, new_figure

    figure = new_figure(11, 6)
    for axes, field in zip(figure.subplots(2, 3).ravel(), FIELDS, strict=True):
        for colour, policy in enumerate(POLICIES):
            for own in (p for p in parts if (p["field"], p["policy"]) == (field, policy)):
                bands = np.array([interval(np.array(errors)) for errors in own["errors"]])
                axes.plot(own["steps"], bands[:, 0], color=f"C{colour}", label=policy)
                axes.fill_between(
                    own["steps"],
                    bands[:, 1],
                    bands[:, 2],
                    color=f"C{colour}",
                    alpha=0.2,
                    linewidth=0,
                )
        axes.set(title=field, yscale="log")
        axes.title.set_fontsize(10)
    figure.supxlabel("environment steps", fontsize=9)
    figure.supylabel("error of the field (1: a field of zeros)", fontsize=9)
    next(axes for axes in figure.axes if axes.lines).legend(fontsize=8)
    picture.parent.mkdir(exist_ok=True)
    picture.write_bytes(as_png(figure))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--fields", default=",".join(FIELDS))
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument(
        "--first",
        type=int,
        default=200,
        help="the first of them: settings were chosen looking at others",
    )
    parser.add_argument("--stack", type=int, default=4, help="seeds of one process")
    parser.add_argument("--steps", type=int, default=MARKS[-1])
    parser.add_argument(
        "--minutes", type=float, default=1e6, help="parts stop after this, with what they have"
    )
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--anew", action="store_true", help="forget the parts that are there")
    parser.add_argument("--show", action="store_true", help="only show what is there")
    arguments = parser.parse_args()
    if arguments.show:
        show(arguments.out, Path(__file__).parent.parent / "docs" / "pictures" / "fields.png")
        return
    began, folder = time.monotonic(), arguments.out.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [
        (field, policy, arguments.first + at, min(arguments.stack, arguments.seeds - at))
        for policy in arguments.policies.split(",")
        for field in arguments.fields.split(",")
        for at in range(0, arguments.seeds, arguments.stack)
    ]
    for file in folder.glob("*.json"):
        done = json.loads(file.read_text())
        which = done["field"], done["policy"], done["first"], done["seeds"]
        if arguments.anew or not done["finished"] or done["steps"][-1] < arguments.steps:
            file.unlink()
        elif which in wanted:
            wanted.remove(which)
    setting = {
        "seeds": arguments.seeds,
        "first": arguments.first,
        "steps": arguments.steps,
        "recordings": RECORDINGS,
        "presets": list(FIELDS),
    }
    # compiles once, here
    for policy, field in {policy: field for field, policy, _, _ in wanted}.items():
        ExplorerLearner(named(field, {"agent": {"planner": {"policy": policy}}})).warm_up()
    print(
        f"{len(wanted)} parts, {arguments.jobs} at a time; compiled after "
        f"{time.monotonic() - began:.0f} s",
        flush=True,
    )
    deadline = began + 60 * arguments.minutes
    with ProcessPoolExecutor(arguments.jobs, multiprocessing.get_context("spawn")) as pool:
        running = [
            pool.submit(part, *which, arguments.steps, str(folder), deadline) for which in wanted
        ]
        for done in as_completed(running):
            found = done.result()
            if found["steps"]:
                write(folder, arguments.out, setting)
                print(
                    f"{found['field']:20} {found['policy']:13} from seed {found['first']}, step "
                    f"{found['steps'][-1]:6,}  error {np.mean(found['errors'][-1]):.3f}  "
                    f"{found['seconds']:.0f} s ({found['busy_seconds']:.0f} s busy)  after "
                    f"{time.monotonic() - began:.0f} s",
                    flush=True,
                )
    for row in write(folder, arguments.out, setting):
        beside = (
            f"  less than random by {shown(row['less_than_random'])}"
            if "less_than_random" in row
            else ""
        )
        print(
            f"{row['field']:20} {row['policy']:13} {row['step']:6,}  error {shown(row['error'])}  "
            f"R² 5 ahead {row['r2']['5'][0]:.3f}{beside}"
        )


def ahead(r2: dict[str, list[float]]) -> str:
    return " ".join(f"{r2[k][0]:.3f}" for k in ("1", "5", "10"))


def shown(found: list[float]) -> str:
    return f"{found[0]:.3f} [{found[1]:.3f}, {found[2]:.3f}]"


if __name__ == "__main__":
    main()

"""Tables of docs/cluster.md from what was measured on Ray."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def read(name: str) -> dict[str, Any]:
    file = RESULTS / f"{name}.json"
    return json.loads(file.read_text()) if file.exists() else {"rows": []}


def machine(found: dict[str, Any]) -> str:
    m, v = found["machine"], found["versions"]
    return f"Machine: {m['cpu']}, {m['cores']} cores, Python {m['python']}, torch {v['torch']}."


def table(*head: str) -> list[str]:
    return [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]


def rayactors() -> str:
    found = read("ray-actors")
    if not found["rows"]:
        return "Not measured yet."
    lines = table(
        "an environment's step",
        "`--ahead`",
        "updates",
        "rows in a call",
        "steps/s, processes",
        "steps/s, Ray",
        "ratio",
        "driver, share of a core: processes",
        "Ray",
        "oldest policy, versions",
    )
    for r in found["rows"]:
        s = r["setting"]
        lines.append(
            f"| {s['work'].removeprefix('a step burns ')} | {s['ahead']} | "
            f"{'every 4 steps' if s['updates'] else 'none'} | {r['rows_in_a_call']:g} of "
            f"{r['row_bytes']:,} bytes | {r['baseline_per_second']:,} | "
            f"{r['candidate_per_second']:,} | **{r['ratio']:g}** | "
            f"{r['processes_driver_share']:.0%} | {r['ray_driver_share']:.0%} | "
            f"{r['policy_age_most']:g} |"
        )
    for r in read("ray-seeds")["rows"]:
        s = r["setting"]
        turns = "; ".join(
            f"{place}: {', '.join(f'{t:.0f}' for t in times)} s"
            for place, times in r["seconds"].items()
        )
        lines += [
            "",
            f"{s['seeds']} seeds of {s['env']}, {s['steps']:,} steps each, whole commands: "
            f"{r['baseline_us'] / 1e6:.1f} s with `--jobs 2`, {r['candidate_us'] / 1e6:.1f} s with "
            f"`--where ray`, ratio **{r['ratio']:g}** (medians of {len(r['seconds']['--jobs 2'])}, "
            f"in turns: {turns}; 2 to 3 s of it are the start and the end of Ray).",
        ]
    return "\n".join([*lines, "", machine(found)])


def scaling() -> str:
    found = read("scaling")
    if not found["rows"]:
        return "Not measured yet."
    by = {row["name"]: row for row in found["rows"]}
    actors, seeds = by["actors expected"], by["seeds expected"]
    return "\n\n".join(
        [
            measured(by),
            f"Actors whose environments take {1e3 * actors['step']:g} ms a step, `--ahead 32`:",
            "\n".join(expected_actors(actors["rows"])),
            f"Seeds that train for {seeds['length'] / 60:g} minutes each, all at once:",
            "\n".join(expected_seeds(seeds["rows"])),
            machine(found),
        ]
    )


def measured(by: dict[str, Any]) -> str:
    lines = table("measured", "")
    for r in by["sizes"]["rows"]:
        lines.append(
            f"| {r['what']} | a row {r['row_bytes']:,} bytes, weights {r['weight_bytes']:,} |"
        )
    for r in by["calls"]["rows"]:
        lines.append(
            f"| calls of {r['rows_in_a_call']:g} rows, {r['num_envs']} environments in each | at "
            f"most {r['calls_per_second']:,} calls/s, {r['rows_per_second']:,} rows/s; "
            f"{r['driver_us_a_call']:,} µs of the driver a call |"
        )
    lines.append(
        f"| of which | {by['calls']['call_us']:,} µs a call, {by['calls']['row_us']:g} µs a row |"
    )
    looks = ", ".join(f"{r['us']:,} µs at {r['calls']:,}" for r in by["looks"]["rows"])
    lines.append(f"| one look at all calls under way | {looks} |")
    s = by["seeds"]
    lines.append(
        f"| a seed of {s['steps']:,} steps | {s['driver_seconds_a_seed']:g} s of the driver, "
        f"{s['bytes_a_seed'] / 1e6:.1f} MB |"
    )
    return "\n".join(lines)


def expected_actors(rows: list[dict[str, Any]]) -> list[str]:
    lines = table(
        "actors",
        "driver, share of a core with one environment an actor",
        "so take `--num-envs`",
        "calls/s",
        "driver's share then",
        "steps/s",
        "MB/s",
        "bottleneck",
    )
    for r in rows:
        lines.append(
            f"| {r['actors']:,} | {r['share_with_one_environment']:g} | {r['num_envs']} | "
            f"{r['calls_per_second']:,} | {r['driver_share']:g} | {r['steps_per_second']:,} | "
            f"{r['bytes_per_second'] / 1e6:.1f} | {r['bottleneck']} |"
        )
    return lines


def expected_seeds(rows: list[dict[str, Any]]) -> list[str]:
    lines = table("seeds", "driver, share of a core", "MB/s", "bottleneck")
    for r in rows:
        lines.append(
            f"| {r['seeds']:,} | {r['driver_share']:g} | {r['bytes_per_second'] / 1e6:.1f} | "
            f"{r['bottleneck']} |"
        )
    return lines


TABLES: dict[str, Callable[[], str]] = {
    "rayactors": rayactors,
    "scaling": scaling,
}

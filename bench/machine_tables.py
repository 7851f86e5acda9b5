"""Tables of what was measured on GPUs and on Ray."""

from collections.abc import Callable

import tables
from tables import Row, equality, render, results

# what was measured on GPUs

CUDA = {
    "cuda-dqn": "DQN, an update a step",
    "cuda-gae": "generalised advantages",
    "cuda-graph-dqn": "cudagraph, DQN's updates",
    "cuda-graph-images": "cudagraph, DQN's updates from images",
    "cuda-graph-ppo": "cudagraph, PPO's learning phases",
    "cuda-graph-recurrent": "cudagraph, PPO with a memory",
    "cuda-graph-sac": "cudagraph, updates of SAC and TD3",
    "cuda-graph-team": "cudagraph, updates of a team",
    "cuda-ppo": "PPO",
}


def cuda() -> str:
    """What was measured on a GPU, by the machines it was measured on."""
    files = [results(file.stem) for file in sorted(tables.RESULTS.glob("cuda-*.json"))]
    if not files:
        return "Not measured yet."
    rows = [row for file in files for row in file["rows"]]
    kinds = {"ratio": cuda_ratios, "seconds": cuda_commands, "overlap": cuda_curves}
    chosen = ((table, [row for row in rows if key in row]) for key, table in kinds.items())
    machines = dict.fromkeys(gpu_machine(file["machine"], file["versions"]) for file in files)
    return "\n\n".join([*(table(some) for table, some in chosen if some), *machines])


def cuda_short() -> str:
    rows = [{**row, "title": title} for name, title in CUDA.items() for row in tables.rows_of(name)]
    return tables.shortened(row for row in rows if "ratio" in row)


def cuda_ratios(rows: list[Row]) -> str:
    def setting(row: Row) -> str:
        values = {k: v for k, v in row["setting"].items() if k != "gpu"}
        return ", ".join(
            f"{v} {k}" if isinstance(v, int) else f"{k} {v}" for k, v in values.items()
        )

    def rate(row: Row, side: str) -> str:
        return f"{row[side]}: {row.get(f'{side}_per_second') or 1e6 / row[f'{side}_us']:,.0f}"

    return render(
        "what | setting | baseline, a second | tenfold, a second | ratio | equal",
        (
            rows,
            lambda row: CUDA.get(row["name"], row["name"]),
            setting,
            lambda row: rate(row, "baseline"),
            lambda row: rate(row, "candidate"),
            "**{ratio:g}**",
            equality,
        ),
    )


def cuda_commands(rows: list[Row]) -> str:
    return render(
        "command, kernels on disk | seconds | of them rounds | the first time | return",
        (
            rows,
            "`{setting[command]}`",
            "{seconds:.1f}",
            "{training_seconds:.2f}",
            "{first_seconds:.1f}",
            "{return:.1f}",
        ),
    )


def cuda_curves(rows: list[Row]) -> str:
    def interval(side: str) -> str:
        return f"{{{side}[0]:.1f}} ({{{side}[1]:.1f}} to {{{side}[2]:.1f}})"

    return render(
        "preset | step | resident, GPU | fused, CPU | intervals overlap",
        (
            rows,
            "{setting[preset]}",
            "{setting[step]:,}",
            interval("resident"),
            interval("fused"),
            lambda row: "yes" if row["overlap"] else "NO",
        ),
    )


def gpu_machine(m: Row, versions: Row) -> str:
    jax = versions.get("jax", "not installed")
    beside = "" if jax == "not installed" else f", JAX {jax}"
    return (
        f"Machine: {m['gpu']} ({m['gpu_memory_gb']} GB, driver {m['driver']}, CUDA {m['cuda']}), "
        f"{m['cpu']}, {m['cores']} cores, Python {m['python']}, torch {versions['torch']}, Triton "
        f"{versions['triton']}{beside}."
    )


# what was measured on Ray


def cpu_machine(found: Row) -> str:
    form = "Machine: {machine[cpu]}, {machine[cores]} cores, Python {machine[python]}, torch "
    return (form + "{versions[torch]}.").format_map(found)


def rayactors() -> str:
    found = results("ray-actors")
    if not found["rows"]:
        return "Not measured yet."
    table = render(
        "an environment's step | `--ahead` | updates | rows in a call | steps/s, processes | "
        "steps/s, Ray | ratio | driver, share of a core: processes | Ray | oldest policy, versions",
        (
            found["rows"],
            lambda row: row["setting"]["work"].removeprefix("a step burns "),
            "{setting[ahead]}",
            lambda row: "every 4 steps" if row["setting"]["updates"] else "none",
            "{rows_in_a_call:g} of {row_bytes:,} bytes",
            "{baseline_per_second:,}",
            "{candidate_per_second:,}",
            "**{ratio:g}**",
            "{processes_driver_share:.0%}",
            "{ray_driver_share:.0%}",
            "{policy_age_most:g}",
        ),
    )
    return "\n\n".join([table, *map(ray_seeds, results("ray-seeds")["rows"]), cpu_machine(found)])


def ray_seeds(row: Row) -> str:
    turns = "; ".join(
        f"{way}: {', '.join(f'{seconds:.0f}' for seconds in times)} s"
        for way, times in row["seconds"].items()
    )
    return (
        "{setting[seeds]} seeds of {setting[env]}, {setting[steps]:,} steps each, whole commands: "
    ).format_map(row) + (
        f"{row['baseline_us'] / 1e6:.1f} s with `--jobs 2`, {row['candidate_us'] / 1e6:.1f} s with "
        f"`--where ray`, ratio **{row['ratio']:g}** (medians of {len(row['seconds']['--jobs 2'])}, "
        f"in turns: {turns}; 2 to 3 s of it are the start and the end of Ray)."
    )


def scaling() -> str:
    found = results("scaling")
    if not found["rows"]:
        return "Not measured yet."
    by = {row["name"]: row for row in found["rows"]}
    actors, seeds, looks = by["actors expected"], by["seeds expected"], by["looks"]["rows"]
    measured = render(
        "measured | ",
        (by["sizes"]["rows"], "{what}", "a row {row_bytes:,} bytes, weights {weight_bytes:,}"),
        (
            by["calls"]["rows"],
            "calls of {rows_in_a_call:g} rows, {num_envs} environments in each",
            "at most {calls_per_second:,} calls/s, {rows_per_second:,} rows/s; "
            "{driver_us_a_call:,} µs of the driver a call",
        ),
        ([by["calls"]], "of which", "{call_us:,} µs a call, {row_us:g} µs a row"),
        (
            [{"looks": ", ".join("{us:,} µs at {calls:,}".format_map(row) for row in looks)}],
            "one look at all calls under way",
            "{looks}",
        ),
        (
            [by["seeds"]],
            "a seed of {steps:,} steps",
            lambda row: (
                f"{row['driver_seconds_a_seed']:g} s of the driver, "
                f"{row['bytes_a_seed'] / 1e6:.1f} MB"
            ),
        ),
    )

    def megabytes(row: Row) -> str:
        return f"{row['bytes_per_second'] / 1e6:.1f}"

    expected_actors = render(
        "actors | driver, share of a core with one environment an actor | so take `--num-envs` | "
        "calls/s | driver's share then | steps/s | MB/s | bottleneck",
        (
            actors["rows"],
            "{actors:,}",
            "{share_with_one_environment:g}",
            "{num_envs}",
            "{calls_per_second:,}",
            "{driver_share:g}",
            "{steps_per_second:,}",
            megabytes,
            "{bottleneck}",
        ),
    )
    expected_seeds = render(
        "seeds | driver, share of a core | MB/s | bottleneck",
        (seeds["rows"], "{seeds:,}", "{driver_share:g}", megabytes, "{bottleneck}"),
    )
    return "\n\n".join(
        [
            measured,
            f"Actors whose environments take {1e3 * actors['step']:g} ms a step, `--ahead 32`:",
            expected_actors,
            f"Seeds that train for {seeds['length'] / 60:g} minutes each, all at once:",
            expected_seeds,
            cpu_machine(found),
        ]
    )


TABLES: dict[str, Callable[[], str]] = {
    "cuda": cuda,
    "cuda_short": cuda_short,
    "rayactors": rayactors,
    "scaling": scaling,
}

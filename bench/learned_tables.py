"""Tables of what is learned: returns by seed, and beside other libraries."""

from tables import INTERVAL, Row, grouped, listed, render, results, rows_of


def learning() -> str:
    def case(rows: list[Row]) -> Row:
        returns, (first, *_) = [row["mean_return"] for row in rows], rows
        return first | {
            "returns": listed(returns, ".2f" if first["bar"] < 1 else ".1f"),
            "solved": f"{sum(row['solved'] for row in rows)} of {len(rows)}",
            "seconds": sum(row["seconds"] for row in rows) / len(rows),
        }

    cases = map(case, grouped(rows_of("learning"), "case").values())
    return render(
        "run | returns by seed | solved is | solved | seconds a run (two at a time)",
        (cases, "{case}", "{returns}", "≥ {bar:g}", "{solved}", "{seconds:.0f}"),
    )


def solved() -> str:
    """Presets whose last checkpoints were judged on many seeds that nothing was chosen by."""

    def seeds(row: Row) -> str:
        return f"{row['first_seed']} to {row['first_seed'] + len(row['reached']) - 1}"

    def bar(row: Row) -> str:
        return ("return ≥ {bar:g}" if row["more_is_better"] else "makespan ≤ {bar:g}").format(**row)

    return render(
        "command | seeds | solved is | solved | least, most of them | CPU seconds a run",
        (
            rows_of("solved"),
            "`tenfold train {name}`",
            seeds,
            bar,
            lambda row: f"{row['solved']} of {len(row['reached'])}",
            lambda row: listed((min(row["reached"]), max(row["reached"])), "g"),
            "{cpu_seconds:.0f}",
        ),
    )


def learning_starts() -> str:
    """What waiting before the first update costs short tasks."""

    def case(rows: list[Row]) -> Row:
        columns = zip(*(row["greedy"] for row in rows), strict=True)
        means = (round(sum(column) / len(column)) for column in columns)
        training = (row["training"] for row in rows)
        return rows[0] | {"means": listed(means, ","), "by_seed": listed(training, ",.0f")}

    cases = grouped(rows_of("learning-starts"), "agent", "env", "steps", "starts").values()
    return render(
        "agent, environment, steps | `learning_starts` | greedy return at a quarter, a half, three "
        "quarters, the end: mean of the seeds | mean return of training, by seed",
        (map(case, cases), "{agent}, {env}, {steps:,}", "{starts:,}", "{means}", "{by_seed}"),
    )


def published() -> str:
    """Against SLM-Lab's published averages, as it reports them."""
    return render(
        "command | frames, seeds | mean of the last 100 training episodes | interquartile mean, "
        "95 % interval | lowest, highest seed | SLM-Lab: DQN, double + prioritised | bar, goal | "
        "minutes | SB3's minutes",
        (
            rows_of("published"),
            "`{command}`",
            "{steps:,}, {seeds}",
            "{mean:.1f}",
            INTERVAL,
            "{min:.1f}, {max:.1f}",
            "{slm_dqn:g}, {slm_ddqn_per:g}",
            "{bar:g}, {goal:g}",
            "{minutes:.1f}",
            "{sb3_minutes:.0f}",
        ),
    )


def of_presets(rows: list[Row]) -> str:
    return render(
        "preset | steps | greedy return of each seed | mean | bar | others | where, minutes",
        (
            rows,
            "`{name}`",
            "{steps:,}",
            lambda row: listed(row["returns"], ",.0f"),
            "**{mean:,.1f}**",
            "≥ {bar:,}",
            "{others}",
            lambda row: row["where"] + (f", {row['minutes']:.1f}" if row["minutes"] else ""),
        ),
    )


def locomotion() -> str:
    """What presets for MuJoCo reach."""
    tasks = ("halfcheetah", "hopper", "walker2d", "ant", "humanoid")
    return of_presets([row for row in rows_of("continuous") if row["name"].startswith(tasks)])


def continuous() -> str:
    """What presets of continuous control reach."""
    table = of_presets(rows_of("continuous"))
    side = "{iqm} ({interval[0]} to {interval[1]})"
    for row in rows_of("sac-curves"):
        ours, theirs = (side.format(**row[name]) for name in ("tenfold", "stable_baselines3"))
        table += (
            f"\n\nWith equal settings on {row['setting']['env']}, {row['setting']['steps']:,} "
            "steps, eight seeds each, interquartile means of final greedy returns and their 95 % "
            f"intervals: tenfold {ours}, Stable-Baselines3 {theirs}."
        )
    return table


def defaults() -> str:
    """Defaults against defaults; a task that one side has not played yet stays out."""
    return render(
        "command | seeds | tenfold: interquartile mean, 95 % interval | Stable-Baselines3 | "
        "intervals (or seeds) overlap, or ours is above",
        (
            [row for row in results("defaults").get("table", ()) if "at_least" in row],
            lambda row: f"`tenfold train {task(row)}`",
            "{tenfold[seeds]}",
            lambda row: score(row["tenfold"]),
            lambda row: score(row["sb3"]),
            lambda row: "yes" if row["at_least"] else "NO",
        ),
    )


def task(row: Row) -> str:
    return f"{row['agent']} --env {row['env']} --steps {row['steps'] // 1000}k"


def score(side: Row) -> str:
    """An interquartile mean with its interval or, where the seeds are too few for one, the lowest
    and the highest of them."""
    if side["interval"]:
        return INTERVAL.format(**side)
    low, high = min(side["returns"]), max(side["returns"])
    return f"{side['iqm']:.1f}, no interval (seeds {low:.1f} to {high:.1f})"


TABLES = {
    "learning": learning,
    "solved": solved,
    "learning_starts": learning_starts,
    "published": published,
    "continuous": continuous,
    "locomotion": locomotion,
    "defaults": defaults,
}

"""Tables of what is learned: returns by seed, and beside other libraries."""

from table_parts import RESULTS, results


def learning() -> str:
    found = results("learning")
    cases: dict[str, list[dict]] = {}
    for row in found["rows"]:
        cases.setdefault(row["case"], []).append(row)
    lines = [
        "| run | returns by seed | solved is | solved | seconds a run (two at a time) |",
        "|---|---|---|---|---|",
    ]
    for case, rows in cases.items():
        returns = ", ".join(
            f"{r['mean_return']:.2f}" if r["bar"] < 1 else f"{r['mean_return']:.1f}" for r in rows
        )
        solved = f"{sum(r['solved'] for r in rows)} of {len(rows)}"
        seconds = sum(r["seconds"] for r in rows) / len(rows)
        lines.append(f"| {case} | {returns} | ≥ {rows[0]['bar']:g} | {solved} | {seconds:.0f} |")
    return "\n".join(lines)


def solved() -> str:
    """Presets whose last checkpoints were judged on many seeds that nothing was chosen by."""
    lines = ["| command | seeds | solved is | solved | least, most of them | CPU seconds a run |"]
    lines.append("|---" * 6 + "|")
    for r in results("solved")["rows"]:
        reached, first = r["reached"], r["first_seed"]
        bar = f"return ≥ {r['bar']:g}" if r["more_is_better"] else f"makespan ≤ {r['bar']:g}"
        lines.append(
            f"| `tenfold train {r['name']}` | {first} to {first + len(reached) - 1} | {bar} | "
            f"{r['solved']} of {len(reached)} | {min(reached):g}, {max(reached):g} | "
            f"{r['cpu_seconds']:.0f} |"
        )
    return "\n".join(lines)


def learning_starts() -> str:
    """What waiting before the first update costs short tasks."""
    lines = [
        "| agent, environment, steps | `learning_starts` | greedy return at a quarter, a half, "
        "three quarters, the end: mean of the seeds | mean return of training, by seed |"
    ]
    lines.append("|---" * 4 + "|")
    cases: dict[tuple, list[dict]] = {}
    for row in results("learning-starts")["rows"]:
        key = row["agent"], row["env"], row["steps"], row["starts"]
        cases.setdefault(key, []).append(row)
    for (agent, env, steps, first), rows in cases.items():
        columns = zip(*(row["greedy"] for row in rows), strict=True)
        greedy = ", ".join(f"{round(sum(c) / len(c)):,}" for c in columns)
        training = ", ".join(f"{row['training']:,.0f}" for row in rows)
        lines.append(f"| {agent}, {env}, {steps:,} | {first:,} | {greedy} | {training} |")
    return "\n".join(lines)


def published() -> str:
    """Against SLM-Lab's published averages, as it reports them."""
    if not (RESULTS / "published.json").exists():
        return ""
    lines = [
        "| command | frames, seeds | mean of the last 100 training episodes | interquartile mean, "
        "95 % interval | lowest, highest seed | SLM-Lab: DQN, double + prioritised | bar, goal | "
        "minutes | SB3's minutes |",
        "|---" * 9 + "|",
    ]
    for r in results("published")["rows"]:
        low, high = r["interval"]
        lines.append(
            f"| `{r['command']}` | {r['steps']:,}, {r['seeds']} | {r['mean']:.1f} | "
            f"{r['iqm']:.1f}, {low:.1f} to {high:.1f} | {r['min']:.1f}, {r['max']:.1f} | "
            f"{r['slm_dqn']:g}, {r['slm_ddqn_per']:g} | {r['bar']:g}, {r['goal']:g} | "
            f"{r['minutes']:.1f} | {r['sb3_minutes']:.0f} |"
        )
    return "\n".join(lines)


def continuous() -> str:
    """What presets of soft actor-critic reach."""
    lines = [
        "| preset | steps | greedy return of each seed | mean | bar | others | where, minutes |",
        "|---" * 7 + "|",
    ]
    for r in results("continuous")["rows"]:
        each = ", ".join(f"{value:,.0f}" for value in r["returns"])
        took = "" if r["minutes"] is None else f", {r['minutes']:.1f}"
        lines.append(
            f"| `{r['name']}` | {r['steps']:,} | {each} | **{r['mean']:,.1f}** | "
            f"≥ {r['bar']:,} | {r['others']} | {r['where']}{took} |"
        )
    if (RESULTS / "sac-curves.json").exists():
        (r,) = results("sac-curves")["rows"]
        told = [
            f"{who} {side['iqm']} ({side['interval'][0]} to {side['interval'][1]})"
            for who, side in (
                ("tenfold", r["tenfold"]),
                ("Stable-Baselines3", r["stable_baselines3"]),
            )
        ]
        lines += [
            "",
            f"With equal settings on {r['setting']['env']}, {r['setting']['steps']:,} steps, eight "
            f"seeds each, interquartile means of final greedy returns and their 95 % intervals: "
            f"{', '.join(told)}.",
        ]
    return "\n".join(lines)


def defaults() -> str:
    """Defaults against defaults; a task that one side has not played yet stays out."""
    if not (RESULTS / "defaults.json").exists():
        return ""
    lines = [
        "| command | seeds | tenfold: interquartile mean, 95 % interval | Stable-Baselines3 | "
        "intervals (or seeds) overlap, or ours is above |",
        "|---" * 5 + "|",
    ]
    for r in results("defaults")["table"]:
        if "at_least" in r:
            ours, theirs = r["tenfold"], r["sb3"]
            told = [score_words(side) for side in (ours, theirs)]
            lines.append(
                f"| `tenfold train {r['agent']} --env {r['env']} --steps {r['steps'] // 1000}k` | "
                f"{ours['seeds']} | {' | '.join(told)} | {'yes' if r['at_least'] else 'NO'} |"
            )
    return "\n".join(lines)


def score_words(side: dict) -> str:
    """An interquartile mean with its interval or, where the seeds are too few for one, the lowest
    and the highest of them."""
    if side["interval"]:
        return "{:.1f}, {:.1f} to {:.1f}".format(side["iqm"], *side["interval"])
    low, high = min(side["returns"]), max(side["returns"])
    return f"{side['iqm']:.1f}, no interval (seeds {low:.1f} to {high:.1f})"


def learns() -> str:
    lines = ["| `tenfold train …` | tenfold | Stable-Baselines3 |", "|---|---|---|"]
    for r in results("defaults")["table"]:
        task = f"{r['agent']} --env {r['env']} --steps {r['steps'] // 1000}k"
        lines.append(f"| `{task}` | {r['tenfold']['iqm']:.0f} | {r['sb3']['iqm']:.0f} |")
    return "\n".join(lines)


TABLES = {
    "learning": learning,
    "solved": solved,
    "learning_starts": learning_starts,
    "published": published,
    "continuous": continuous,
    "defaults": defaults,
    "learns": learns,
}

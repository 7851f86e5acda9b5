"""Tables of environments of one field each: job shops, treasure, colonies, hidden systems."""

import re
from functools import partial
from typing import Any

from tables import INTERVAL, Row, grouped, listed, render, rows_of


def policies() -> str:
    """PPO's returns beside SLM-Lab's, then makespans."""
    rows = rows_of("policies")

    def rules(row: Row) -> str:
        return ", ".join(str(row["rules"][rule]) for rule in ("SPT", "MWKR", "FIFO", "random"))

    returns = render(
        "command | frames | interquartile mean, 95 % interval | lowest, highest seed | "
        "SLM-Lab's PPO | bar | minutes",
        (
            [row for row in rows if "iqm" in row],
            "`{command}`",
            "{steps:,}",
            INTERVAL,
            "{min:.1f}, {max:.1f}",
            lambda row: "" if row["slm_ppo"] is None else f"{row['slm_ppo']:g}",
            lambda row: "" if row["bar"] is None else f"{row['bar']:g}",
            "{minutes:.1f}",
        ),
    )
    makespans = render(
        "command | best of 64 samples, by seed | greedy | untrained, best of 64 | SPT, MWKR, FIFO, "
        "random (best of 64) | optimum | minutes",
        (
            [row for row in rows if "optimum" in row],
            "`{command}`",
            lambda row: listed(row["best_makespan"], ""),
            lambda row: listed(row["greedy_makespan"], ""),
            lambda row: listed(row["untrained_best_makespan"], ""),
            rules,
            "{optimum}",
            "{minutes:.1f}",
        ),
    )
    return f"{returns}\n\n{makespans}"


def worlds() -> str:
    """What agents of one world learn."""
    return render(
        "command | steps | mean return of an agent, by seed | random | scripted | closed of the "
        "gap between (least) | bar | minutes",
        (
            rows_of("worlds"),
            "`{command}`",
            "{steps:,}",
            lambda row: listed(row["returns"]),
            "{random:.1f}",
            "{scripted:.1f}",
            "{closed:.0%} ({least_closed:.0%})",
            "{bar:.0%}",
            "{minutes:.1f}",
        ),
    )


def colonies() -> str:
    """What colonies learn, on substrates that no training saw; the network before training beside
    it, where it was played."""
    rows = rows_of("durotaxis")
    kind = "trained_on", "mode", "substrate", "rounding", "policy"
    by_seed = [row for row in rows if "seed" in row]
    learned = grouped((row for row in by_seed if "yardstick" not in row), *kind)
    untrained = grouped((row for row in by_seed if "yardstick" in row), *kind)
    scripted = {
        (row["yardstick"], row["mode"], row["substrate"]): row
        for row in rows
        if "yardstick" in row and "seed" not in row
    }

    def successes(rows: list[Row]) -> tuple[str, str]:
        steps = (row["steps_to_goal"] for row in rows)
        return listed((row["success"] for row in rows), ".1%"), ", ".join(
            "–" if number is None else f"{number:.1f}" for number in steps
        )

    def line(key: tuple[Any, ...]) -> Row:
        success, steps = successes(learned[key])
        before = "; ".join(successes(untrained[key])) if key in untrained else ""
        yardsticks = [scripted.get((name, *key[1:3])) for name in ("constant", "follower")]
        constant, follower = (
            f"{row['success']:.1%}, {row['steps_to_goal']:.1f}" if row else "" for row in yardsticks
        )
        down = ", deletions rounded down" if key[3] == "floor" else ""
        return {"key": key, "down": down, "success": success, "steps": steps, "before": before} | {
            "constant": constant,
            "follower": follower,
        }

    heads = "trained on, mode | tried on | successes by seed | steps to the goal by seed | "
    cells = ["{key[0]}, {key[1]}", "{key[2]} ({key[4]}{down})", "{success}", "{steps}"]
    if untrained:
        heads, cells = heads + "untrained, by seed | ", [*cells, "{before}"]
    return render(
        heads + "constant action | follower",
        (map(line, learned), *cells, "{constant}", "{follower}"),
    )


def fields(name: str = "fields") -> str:
    """Which experiments identify a hidden system best."""
    rows = rows_of(name)
    policies = dict.fromkeys(row["policy"] for row in rows)

    def interval(policy: str, key: str, row: Row) -> str:
        values = row["by"].get(policy, {}).get(key)
        return "{:.3f} ({:.3f} to {:.3f})".format(*values) if values else ""

    def r2(key: str, row: Row) -> str:
        values = row["by"].get("active", {}).get(key)
        return listed((values[ahead][0] for ahead in ("1", "5", "10")), ".3f") if values else ""

    cases = (
        {"field": field, "step": step, "by": {row["policy"]: row for row in those}}
        for (field, step), those in sorted(grouped(rows, "field", "step").items())
    )
    return render(
        f"field | steps | {' | '.join(policies)} | random − active | R² of observations 1, 5, 10 "
        "ahead (active) | the same of ARX on these data",
        (
            cases,
            "{field}",
            "{step:,}",
            *(partial(interval, policy, "error") for policy in policies),
            partial(interval, "active", "less_than_random"),
            partial(r2, "r2"),
            partial(r2, "arx_r2"),
        ),
    )


def starts() -> str:
    """How far colonies' policies carry: successes by seed for every size and number of first
    nodes; a dash for a seed that was not played there."""
    rows = rows_of("durotaxis-starts")
    numbers = sorted({row["nodes"] for row in rows if row["nodes"] != "as trained"})

    def policy(row: Row) -> str:
        first = re.search(r"init_nodes=([\d.]+)", row.get("env", ""))
        if "seed" not in row:
            return f"{row.get('yardstick')}, on {row['substrate']}"
        return f"{row['substrate']}, {row.get('mode')}, {first[1] if first else 5}"

    def success(nodes: Any, row: Row) -> str:
        if nodes == "as trained" and not row["whose"]:
            return ""
        size = "as trained" if nodes == "as trained" else row["size"]
        cells = [row["played"].get((size, nodes, seed), "–") for seed in row["seeds"]]
        return "" if set(cells) == {"–"} else f"{', '.join(cells)} %"

    lines = []
    for (whose,), those in grouped(({**r, "whose": policy(r)} for r in rows), "whose").items():
        steps = {row.get("seed"): f"{row.get('steps', 0) / 1000:.0f}" for row in those}
        played = {
            (row["size"], row["nodes"], row.get("seed")): f"{100 * row['success']:.0f}"
            for row in those
        }
        for size in dict.fromkeys(r["size"] for r in those if r["size"] != "as trained"):
            line = {"whose": whose, "size": size, "seeds": [*steps], "played": played}
            lines.append(line | {"steps": ", ".join(steps.values()) if None not in steps else ""})
            whose, steps = "", dict.fromkeys(steps, "")
            lines[-1]["steps"] = lines[-1]["steps"] if lines[-1]["whose"] else ""
    return render(
        "trained on, mode, first nodes | thousand steps | tried on | as trained | "
        + " | ".join(f"{n} node{'s' * (n > 1)}" for n in numbers),
        (
            lines,
            "{whose}",
            "{steps}",
            "{size}",
            partial(success, "as trained"),
            *(partial(success, nodes) for nodes in numbers),
        ),
    )


def shops() -> str:
    """Gaps of one policy of any job shop, in percent."""
    rows = rows_of("shops")
    first = rows[0]
    best = next(name for name in first["gaps"] if name.startswith("best of"))
    rules = [name for name in first["gaps"] if name not in ("greedy", best)]
    table = render(
        f"instances | greedy | {best} | bars | {' | '.join(rules)} | others, greedy / {best}",
        (
            rows,
            "`{name}` ({instances})",
            "**{gaps[greedy]:.1f}**",
            f"**{{gaps[{best}]:.1f}}**",
            "{bars[0]}, {bars[1]}",
            *(f"{{gaps[{rule}]:.1f}}" for rule in rules),
            "{others}",
        ),
    )
    took = "" if first["minutes"] is None else f" in {first['minutes']:g} minutes"
    table += f"\n\nMean gaps in percent. The policy was trained on {first['trained']}{took}."
    if "again" in first:
        pairs = ", ".join("`{}` {:.1f} / {:.1f}".format(r["name"], *r["again"]) for r in rows)
        table += f" A second training with another seed, greedy / {best}: {pairs}."
    return table


TABLES = {
    "policies": policies,
    "worlds": worlds,
    "colonies": colonies,
    "starts": starts,
    "fields": fields,
    "fields_again": partial(fields, "fields-again"),
    "shops": shops,
}

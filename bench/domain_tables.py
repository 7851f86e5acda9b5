"""Tables of environments of one field each: job shops, treasure, colonies, hidden systems."""

import re
from functools import partial

from table_parts import RESULTS, results


def policies() -> str:
    """PPO's returns beside SLM-Lab's, then makespans."""
    if not (RESULTS / "policies.json").exists():
        return ""
    rows = results("policies")["rows"]
    lines = [
        "| command | frames | interquartile mean, 95 % interval | lowest, highest seed | "
        "SLM-Lab's PPO | bar | minutes |",
        "|---" * 7 + "|",
    ]
    for r in rows:
        if "iqm" in r:
            low, high = r["interval"]
            published, bar = ("" if r[k] is None else f"{r[k]:g}" for k in ("slm_ppo", "bar"))
            lines.append(
                f"| `{r['command']}` | {r['steps']:,} | {r['iqm']:.1f}, {low:.1f} to {high:.1f} | "
                f"{r['min']:.1f}, {r['max']:.1f} | {published} | {bar} | {r['minutes']:.1f} |"
            )
    lines += [
        "",
        "| command | best of 64 samples, by seed | greedy | untrained, best of 64 | SPT, MWKR, "
        "FIFO, random (best of 64) | optimum | minutes |",
        "|---" * 7 + "|",
    ]
    for r in rows:
        if "optimum" in r:
            best, greedy, before = (
                ", ".join(map(str, r[k]))
                for k in ("best_makespan", "greedy_makespan", "untrained_best_makespan")
            )
            rules = ", ".join(str(r["rules"][rule]) for rule in ("SPT", "MWKR", "FIFO", "random"))
            lines.append(
                f"| `{r['command']}` | {best} | {greedy} | {before} | {rules} | {r['optimum']} | "
                f"{r['minutes']:.1f} |"
            )
    return "\n".join(lines)


def worlds() -> str:
    """What agents of one world learn."""
    if not (RESULTS / "worlds.json").exists():
        return ""
    lines = [
        "| command | steps | mean return of an agent, by seed | random | scripted | closed of the "
        "gap between (least) | bar | minutes |",
        "|---" * 8 + "|",
    ]
    for r in results("worlds")["rows"]:
        returns = ", ".join(f"{value:.1f}" for value in r["returns"])
        lines.append(
            f"| `{r['command']}` | {r['steps']:,} | {returns} | {r['random']:.1f} | "
            f"{r['scripted']:.1f} | {r['closed']:.0%} ({r['least_closed']:.0%}) | {r['bar']:.0%} | "
            f"{r['minutes']:.1f} |"
        )
    return "\n".join(lines)


def colonies() -> str:
    """What colonies learn, on substrates that no training saw; the network before training beside
    it, where it was played."""
    if not (RESULTS / "durotaxis.json").exists():
        return ""
    rows = results("durotaxis")["rows"]
    scripted = {
        (r["yardstick"], r["mode"], r["substrate"]): r
        for r in rows
        if "yardstick" in r and "seed" not in r
    }
    learned, untrained = ({}, {})
    for r in rows:
        if "seed" in r:
            which = tuple(
                r[name] for name in ("trained_on", "mode", "substrate", "rounding", "policy")
            )
            (untrained if "yardstick" in r else learned).setdefault(which, []).append(r)
    before = " untrained, by seed |" if untrained else ""
    lines = [
        f"| trained on, mode | tried on | successes by seed | steps to the goal by seed |{before} "
        "constant action | follower |",
        "|---" * (7 if untrained else 6) + "|",
    ]
    for kind, own in learned.items():
        success, steps = by_seed(own)
        beside = [scripted.get((name, kind[1], kind[2])) for name in ("constant", "follower")]
        cells = " | ".join(
            "" if r is None else f"{r['success']:.1%}, {r['steps_to_goal']:.1f}" for r in beside
        )
        if untrained:
            cells = f"{'; '.join(by_seed(untrained[kind])) if kind in untrained else ''} | {cells}"
        down = ", deletions rounded down" if kind[3] == "floor" else ""
        lines.append(
            f"| {kind[0]}, {kind[1]} | {kind[2]} ({kind[4]}{down}) | {success} | {steps} | {cells} "
            "|"
        )
    return "\n".join(lines)


def by_seed(rows: list[dict]) -> tuple[str, str]:
    """Successes, and steps to the goal."""
    return (
        ", ".join(f"{r['success']:.1%}" for r in rows),
        ", ".join("–" if r["steps_to_goal"] is None else f"{r['steps_to_goal']:.1f}" for r in rows),
    )


def fields(name: str = "fields") -> str:
    """Which experiments identify a hidden system best."""
    if not (RESULTS / f"{name}.json").exists():
        return ""
    rows = results(name)["rows"]
    policies = list(dict.fromkeys(r["policy"] for r in rows))
    lines = [
        f"| field | steps | {' | '.join(policies)} | random − active | R² of observations 1, 5, 10 "
        "ahead (active) | the same of ARX on these data |",
        "|---" * (5 + len(policies)) + "|",
    ]
    for field, step in sorted({(r["field"], r["step"]) for r in rows}):
        own = {r["policy"]: r for r in rows if (r["field"], r["step"]) == (field, step)}
        cells = " | ".join(
            "{:.3f} ({:.3f} to {:.3f})".format(*own[p]["error"]) if p in own else ""
            for p in policies
        )
        active = own.get("active", {})
        less = (
            "{:.3f} ({:.3f} to {:.3f})".format(*active["less_than_random"])
            if "less_than_random" in active
            else ""
        )
        r2 = " | ".join(
            ", ".join(f"{active[of][k][0]:.3f}" for k in ("1", "5", "10")) if of in active else ""
            for of in ("r2", "arx_r2")
        )
        lines.append(f"| {field} | {step:,} | {cells} | {less} | {r2} |")
    return "\n".join(lines)


def starts() -> str:
    """How far colonies' policies carry: successes by seed for every size and number of first
    nodes; a dash for a seed that was not played there."""
    if not (RESULTS / "durotaxis-starts.json").exists():
        return ""
    rows = results("durotaxis-starts")["rows"]
    numbers = sorted({r["nodes"] for r in rows if r["nodes"] != "as trained"})
    heads = ["trained on, mode, first nodes", "thousand steps", "tried on", "as trained"]
    heads += [f"{n} node{'s' * (n > 1)}" for n in numbers]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    policies: dict[str, list[dict]] = {}
    for r in rows:
        first = re.search(r"init_nodes=([\d.]+)", r.get("env", ""))
        trained = f"{r['substrate']}, {r.get('mode')}, {first[1] if first else 5}"
        scripted = f"{r.get('yardstick')}, on {r['substrate']}"
        policies.setdefault(trained if "seed" in r else scripted, []).append(r)
    for whose, own in policies.items():
        played = {(r["size"], r["nodes"], r.get("seed")): f"{100 * r['success']:.0f}" for r in own}
        steps = {r.get("seed"): f"{r.get('steps', 0) / 1000:.0f}" for r in own}

        def cell(size: str, nodes: int | str, played=played, steps=steps) -> str:
            each = [played.get((size, nodes, seed), "–") for seed in steps]
            return "" if set(each) == {"–"} else f"{', '.join(each)} %"

        trained = [
            ", ".join(steps.values()) if None not in steps else "",
            cell(*["as trained"] * 2),
        ]
        for size in dict.fromkeys(r["size"] for r in own if r["size"] != "as trained"):
            cells = " | ".join(cell(size, n) for n in numbers)
            lines.append(f"| {whose} | {trained[0]} | {size} | {trained[1]} | {cells} |")
            whose, trained = "", ["", ""]
    return "\n".join(lines)


def shops() -> str:
    """Gaps of one policy of any job shop, in percent."""
    rows = results("shops")["rows"]
    best = next(name for name in rows[0]["gaps"] if name.startswith("best of"))
    rules = [name for name in rows[0]["gaps"] if name not in ("greedy", best)]
    lines = [
        f"| instances | greedy | {best} | bars | {' | '.join(rules)} | others, greedy / {best} |",
        "|---" * (5 + len(rules)) + "|",
    ]
    for r in rows:
        gaps, (greedy, most) = r["gaps"], r["bars"]
        others = " | ".join(f"{gaps[name]:.1f}" for name in rules)
        lines.append(
            f"| `{r['name']}` ({r['instances']}) | **{gaps['greedy']:.1f}** | **{gaps[best]:.1f}** "
            f"| {greedy}, {most} | {others} | {r['others']} |"
        )
    took = "" if rows[0]["minutes"] is None else f" in {rows[0]['minutes']:g} minutes"
    lines += ["", f"Mean gaps in percent. The policy was trained on {rows[0]['trained']}{took}."]
    if "again" in rows[0]:
        pairs = ", ".join("`{}` {:.1f} / {:.1f}".format(r["name"], *r["again"]) for r in rows)
        lines[-1] += f" A second training with another seed, greedy / {best}: {pairs}."
    return "\n".join(lines)


TABLES = {
    "policies": policies,
    "worlds": worlds,
    "colonies": colonies,
    "starts": starts,
    "fields": fields,
    "fields_again": partial(fields, "fields-again"),
    "shops": shops,
}

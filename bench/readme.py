"""Writes the tables of README.md from bench/results/*.json; with --check it only says whether they are fresh."""

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def results(name: str) -> dict:
    return json.loads((ROOT / "bench" / "results" / f"{name}.json").read_text())


def learning() -> str:
    found = results("learning")
    cases: dict[str, list[dict]] = {}
    for row in found["rows"]:
        cases.setdefault(row["case"], []).append(row)
    lines = ["| run | returns by seed | solved is | solved | seconds a run (loaded machine) |", "|---|---|---|---|---|"]
    for case, rows in cases.items():
        returns = ", ".join(f"{r['mean_return']:.2f}" if r["bar"] < 1 else f"{r['mean_return']:.1f}" for r in rows)
        solved = f"{sum(r['solved'] for r in rows)} of {len(rows)}"
        seconds = sum(r["seconds"] for r in rows) / len(rows)
        lines.append(f"| {case} | {returns} | ≥ {rows[0]['bar']:g} | {solved} | {seconds:.0f} |")
    return "\n".join(lines)


def bench() -> str:
    adapter, startup = results("adapter"), results("startup")
    lines = ["| what | measured | bar |", "|---|---|---|"]
    for r in adapter["rows"]:
        s = r["setting"]
        lines.append(f"| adapter, {s['env']} × {s['num_envs']}: a step over the environment itself | {r['overhead_us']:.2f} µs "
                     f"({r['adapter_us']:.2f} against {r['environment_us']:.2f}; Gymnasium's SyncVectorEnv "
                     f"{r['sync_vector_us']:.2f}) | {r['bar_us']:g} µs |")
    for r in startup["rows"]:
        lines.append(f"| {r['name']} | {r['seconds']:.2f} s | {r['bar']:g} s |")
    m = adapter["machine"]
    return "\n".join([*lines, "", f"Machine: {m['cpu']}, {m['cores']} cores, {m['memory_gb']} GB, Python {m['python']}, "
                                  f"torch {adapter['versions']['torch']}."])


def main() -> int:
    path = ROOT / "README.md"
    text = fresh = path.read_text()
    for name, table in (("learning", learning()), ("bench", bench())):
        fresh = re.sub(f"(<!-- {name} -->\n).*?(<!-- /{name} -->)", lambda m, t=table: f"{m[1]}{t}\n{m[2]}", fresh,
                       flags=re.DOTALL)
    if "--check" in sys.argv:
        print("README is fresh" if fresh == text else "README is stale: run python bench/readme.py")
        return int(fresh != text)
    path.write_text(fresh)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Writes the tables of README.md, bench/README.md and docs/*.md from bench/results/*.json; with
--check it only says whether they are fresh."""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import field_tables
import learned_tables
import machine_tables
import sb3_tables
import tables

ROOT = Path(__file__).parent.parent


TABLES = {
    **tables.TABLES,
    **machine_tables.TABLES,
    **learned_tables.TABLES,
    **field_tables.TABLES,
    **sb3_tables.TABLES,
}


def main() -> int:
    stale = []
    for path in (
        ROOT / "README.md",
        ROOT / "bench" / "README.md",
        *sorted((ROOT / "docs").glob("*.md")),
    ):
        text = path.read_text()
        fresh = re.sub(
            r"(<!-- (\w+) -->\n).*?(<!-- /\2 -->)",
            lambda m: f"{m[1]}{TABLES[m[2]]()}\n{m[3]}",
            text,
            flags=re.DOTALL,
        )
        if fresh != text:
            stale.append(path.name)
            if "--check" not in sys.argv:
                path.write_text(fresh)
    if "--check" in sys.argv:
        print(
            f"{', '.join(stale)} stale: run python bench/readme.py"
            if stale
            else "the docs' tables are fresh"
        )
        return len(stale)
    return 0


if __name__ == "__main__":
    sys.exit(main())

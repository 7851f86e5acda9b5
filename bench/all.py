"""The benchmarks: every registered pair, and the files of this folder, each with a table NAMES of
functions that return rows (PEERS: with other people's packages, CUDA: on a GPU).

    python bench/all.py dqn-update          # shows ratios on this machine; --list shows the names
    python bench/all.py --write [--peers]   # all of them into bench/results, then the docs' tables
    python bench/all.py --cuda              # what needs a GPU, into bench/results/cuda-*.json
"""

import argparse
import importlib.util
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import measure
import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tenfold.config.notation import nearest
from tenfold.core.errors import UserError
from tenfold.core.pairs import all_pairs
from tenfold.core.system import set_threads
from tenfold.runs.storage import for_writing

Benchmark = Callable[[], list[dict[str, Any]]]  # returns the rows it measured
SCRIPTS = ("adapter", "timers", "startup", "reports")  # write their results themselves


def benchmark_modules() -> Iterator[Any]:
    sys.path.insert(0, str(measure.FOLDER))
    for path in sorted(measure.FOLDER.glob("*.py")):
        if "\nNAMES = {" in path.read_text():
            spec = importlib.util.spec_from_file_location(f"bench_{path.stem}", path)
            assert spec and spec.loader
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            yield module


def benchmarks(peers: bool = False, cuda: bool = False) -> dict[str, Benchmark]:
    """All by name. Those that need other people's packages only with `peers`; with `cuda` those
    that need a GPU, and no others."""
    tables = ["CUDA"] if cuda else ["NAMES", "PEERS"] if peers else ["NAMES"]
    known: dict[str, Benchmark] = {}
    for module in benchmark_modules():
        for table in tables:
            known |= getattr(module, table, {})
    pairs = () if cuda else all_pairs()
    return known | {
        tested.name: (lambda tested=tested: [measure.pair_row(tested)]) for tested in pairs
    }


def choose(names: list[str], peers: bool, cuda: bool) -> dict[str, Benchmark]:
    """Those of these names, `pairs` for every registered pair; all where there are none."""
    known, pairs = benchmarks(peers, cuda), {tested.name for tested in all_pairs()}
    for name in names:
        if name not in {"pairs", *SCRIPTS, *known}:
            flag = " --cuda" if cuda else ""
            raise UserError(
                f"There is no benchmark {name}{nearest(name, list(known))}: "
                f"`python bench/all.py{flag} --list` shows them all."
            )
    return {
        name: work
        for name, work in known.items()
        if not names or name in names or ("pairs" in names and name in pairs)
    }


def require_cuda() -> None:
    if not torch.cuda.is_available():
        raise UserError(
            "--cuda needs a CUDA device and PyTorch's CUDA build, and PyTorch "
            f"{torch.__version__} finds no device here."
        )


def run_all(chosen: dict[str, Benchmark], write: bool = False) -> list[dict[str, Any]]:
    """The rows of all, one benchmark after another; says on the terminal which one it is at.
    `write`: into bench/results as soon as they are measured, those of all pairs into one file."""
    rows, of_pairs = [], []
    pairs = {tested.name for tested in all_pairs()}
    with Console(stderr=True).status("") as status:
        for number, (name, work) in enumerate(chosen.items(), 1):
            status.update(Text(f"{number} of {len(chosen)}: {name}"))
            rows += (measured := work())
            if name in pairs:
                of_pairs += measured
            elif write:
                measure.keep_rows(name, measured)
    if write and len(of_pairs) == len(pairs):
        measure.keep_rows("pairs", of_pairs)
    return rows


def show_rows(rows: list[dict[str, Any]]) -> None:
    table = Table("benchmark", "setting", "baseline", "candidate", "ratio", "equal", "bytes")
    console = Console(width=None if sys.stdout.isatty() else 200)
    for row in rows:
        setting = " ".join(f"{k}={v}" for k, v in row["setting"].items())
        if "baseline" not in row:  # nothing is compared in it
            rest = {name: value for name, value in row.items() if name not in ("name", "setting")}
            console.print(f"{row['name']} {setting}: {rest}", markup=False, highlight=False)
            continue
        equal = {True: Text("yes", "green"), False: Text("NO", "red"), None: "–"}[row["equal"]]
        table.add_row(
            Text(row["name"]),
            Text(setting),
            f"{row['baseline']} {row['baseline_us']:,.1f} µs",
            f"{row['candidate']} {row['candidate_us']:,.1f} µs",
            f"{row['ratio']:.2f}",
            equal,
            f"{row['baseline_bytes']:,} → {row['candidate_bytes']:,}"
            if row["candidate_bytes"] is not None
            else "–",
        )
    if table.row_count:
        console.print(table)


def run_scripts(names: list[str]) -> None:
    """What is measured by processes of its own, and the docs' tables."""
    for script in SCRIPTS:
        if not names or script in names:
            subprocess.run([sys.executable, str(measure.FOLDER / f"{script}.py")], check=True)
    subprocess.run([sys.executable, str(measure.FOLDER / "readme.py")], check=True)


def arguments_of(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench/all.py", description="Times every fast path against its baseline here."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="which (all); pairs: every pair")
    parser.add_argument("--peers", action="store_true", help="other people's packages too")
    parser.add_argument("--cuda", action="store_true", help="what needs a GPU, written as well")
    parser.add_argument("--write", action="store_true", help="into bench/results and the docs")
    parser.add_argument(
        "--json", nargs="?", const="", metavar="FILE", help="rows and machine card, or print them"
    )
    parser.add_argument("--list", action="store_true", help="show the names")
    return parser.parse_args(given)


def run(given: list[str] | None) -> int:
    arguments = arguments_of(given)
    chosen = choose(arguments.names, arguments.peers, arguments.cuda)
    if arguments.list:
        print("\n".join(chosen))
        return 0
    if arguments.cuda:
        require_cuda()
    file = for_writing(Path(arguments.json), "--json") if arguments.json else None
    set_threads(1)
    rows = run_all(chosen, arguments.cuda or arguments.write)
    if arguments.json == "":
        print(measure.as_json(rows))
    else:
        show_rows(rows)
    if file:
        file.write_text(measure.as_json(rows) + "\n")
    if arguments.write:
        run_scripts(arguments.names)
    return 1 if any(row.get("equal") is False for row in rows) else 0


def main(given: list[str] | None = None) -> int:
    """Exit codes: 0 done, 1 two sides are not equal, 2 a mistake of the caller's."""
    try:
        return run(given)
    except UserError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())

"""Every benchmark into bench/results, then the tables of README.md and docs.    python bench/all.py
[--peers] [--cuda] [NAME …]"""

import subprocess
import sys
from pathlib import Path

from tenfold.cli.measure import bench_modules, pair_row, write
from tenfold.core.pairs import all_pairs
from tenfold.core.system import set_threads

HERE = Path(__file__).parent
SCRIPTS = ("adapter", "timers", "startup", "reports")


def main() -> None:
    set_threads(1)
    wanted = [name for name in sys.argv[1:] if not name.startswith("-")]
    peers, cuda = "--peers" in sys.argv, "--cuda" in sys.argv
    for script in SCRIPTS:
        if not wanted or script in wanted:
            subprocess.run([sys.executable, str(HERE / f"{script}.py")], check=True)
    for module in bench_modules():
        chosen = module.NAMES | (getattr(module, "PEERS", {}) if peers else {})
        chosen |= getattr(module, "CUDA", {}) if cuda else {}
        for name, work in chosen.items():
            if not wanted or name in wanted:
                write(name, work())
    if not wanted or "pairs" in wanted:
        write("pairs", [pair_row(tested) for tested in all_pairs()])
    subprocess.run([sys.executable, str(HERE / "readme.py")], check=True)


if __name__ == "__main__":
    main()

"""How long a person waits: `import tenfold` after torch, and `tenfold --help`, each in fresh processes."""

import subprocess
import sys
import time

from tenfold.measure import interleave, write

COUNT = "import torch, time; t = time.perf_counter(); {}; print(time.perf_counter() - t)"


def seconds(*command: str) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - start


def main() -> None:
    everything = "import tenfold; tenfold.train; tenfold.Run; tenfold.load"
    after_torch = [float(subprocess.run([sys.executable, "-c", COUNT.format(everything)], check=True, capture_output=True,
                                        text=True).stdout) for _ in range(5)]
    found = interleave({"--help": lambda: seconds(sys.executable, "-m", "tenfold.cli", "--help") and 1,
                        "train --help": lambda: seconds(sys.executable, "-m", "tenfold.cli", "train", "--help") and 1}, 5)
    rows = [{"name": "import after torch", "seconds": round(sorted(after_torch)[2], 3), "bar": 1.5}]
    rows += [{"name": f"tenfold {name}", "seconds": round(us / 1e6, 3), "bar": 1.0} for name, us in found.items()]
    write("startup", rows)


if __name__ == "__main__":
    main()

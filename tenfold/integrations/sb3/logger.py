"""The logger of a model where Stable-Baselines3 is not installed: the same methods and table."""

from collections import defaultdict
from pathlib import Path
from typing import Any

from tenfold.integrations.sb3.vec_env import sb3


class TableLogger:
    """Values by key, means of several, and a table of them."""

    def __init__(self, folder: Path | None, prints: bool) -> None:
        self.name_to_value: dict[str, Any] = defaultdict(float)
        self.name_to_count: dict[str, int] = defaultdict(int)
        self.excluded: dict[str, tuple[str, ...]] = {}
        self.dir, self.prints = str(folder) if folder else None, prints
        self.writer: Any = None
        if folder:
            from torch.utils.tensorboard.writer import SummaryWriter  # here: slow to import

            self.writer = SummaryWriter(self.dir)

    def get_dir(self) -> str | None:
        return self.dir

    def record(self, key: str, value: Any, exclude: str | tuple[str, ...] | None = None) -> None:
        """The value of a key in the next table; `exclude`: stdout or tensorboard."""
        self.name_to_value[key] = value
        self.excluded[key] = (exclude,) if isinstance(exclude, str) else exclude or ()

    def record_mean(
        self, key: str, value: Any, exclude: str | tuple[str, ...] | None = None
    ) -> None:
        """As `record`, but the mean of all values until the next table."""
        if value is None:
            self.name_to_value[key] = None
            return
        count, mean = self.name_to_count[key], self.name_to_value[key]
        self.record(key, mean * count / (count + 1) + value / (count + 1), exclude)
        self.name_to_count[key] = count + 1

    def dump(self, step: int = 0) -> None:
        """Prints and writes what was recorded, and begins anew."""
        if self.prints:
            print(self.table())
        for key, value in self.name_to_value.items():
            if self.writer and "tensorboard" not in self.excluded[key]:
                if isinstance(value, str):
                    self.writer.add_text(key, value, step)
                else:
                    self.writer.add_scalar(key, value, step)
        if self.writer:
            self.writer.flush()
        self.name_to_value.clear()
        self.name_to_count.clear()
        self.excluded.clear()

    def table(self) -> str:
        """Keys in the groups before their slash, values beside."""
        rows, group = list[tuple[str, str]](), ""
        for key, value in sorted(self.name_to_value.items()):
            if "stdout" in self.excluded[key]:
                continue
            before, slash, name = key.partition("/")
            if slash and before != group:
                group = before
                rows.append((f"{group}/", ""))
            text = f"{value:<8.3g}" if isinstance(value, float) else str(value)
            rows.append((f"   {name}" if slash else key, text.rstrip()))
        wide = [max((len(row[column]) for row in rows), default=0) for column in range(2)]
        line = "-" * (sum(wide) + 7)
        body = (f"| {key:<{wide[0]}} | {value:<{wide[1]}} |" for key, value in rows)
        return "\n".join([line, *body, line])

    def close(self) -> None:
        if self.writer:
            self.writer.close()


def logger_for(verbose: int, folder: str | None, name: str, fresh: bool) -> Any:
    """The logger of a training: `folder/name_n` for TensorBoard, n one higher than what is there,
    unless an earlier training is continued."""
    configure = sb3("common.utils", "configure_logger")
    if configure:
        return configure(verbose, folder, name, fresh)
    if folder is None:
        return TableLogger(None, verbose > 0)
    numbers = [
        int(path.name.rpartition("_")[2])
        for path in Path(folder).glob(f"{name}_*")
        if path.name.rpartition("_")[2].isdigit()
    ]
    number = max(numbers, default=0) + (1 if fresh or not numbers else 0)
    return TableLogger(Path(folder) / f"{name}_{number}", verbose > 0)

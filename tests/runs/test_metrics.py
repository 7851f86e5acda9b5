"""Rows of metrics: thousands of episodes between two log rows have not all a row of their own."""

from pathlib import Path

from tenfold.config.run import Run
from tenfold.envs.adapter import Episode
from tenfold.runs.folder import RunFolder
from tenfold.runs.metrics import KEPT, Metrics, read_rows


def test_of_many_episodes_the_latest_are_kept_and_all_are_counted(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "run", Run.of({})) as folder:
        metrics = Metrics(folder)
        for number in range(KEPT + 50):
            metrics.episode(number, Episode(0, float(number), 1))
        metrics.add(
            {"kind": "train", "step": KEPT + 50, "updates": 0, "timing": {}, **metrics.recent()}
        )
        size = metrics.flush()
        rows = list(read_rows(metrics.path))
        assert [row["return"] for row in rows[:-1]] == list(range(50, KEPT + 50))
        assert rows[-1]["kind"] == "train" and rows[-1]["episodes"] == KEPT + 50
        again = Metrics(folder, size, KEPT + 50)
        assert again.episodes == KEPT + 50 and again.recent() == metrics.recent()

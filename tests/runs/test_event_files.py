"""What TensorBoard reads of a run: the numbers of its rows, over steps, also after a resume."""

from pathlib import Path

import pytest

from tenfold.envs.adapter import Episode
from tenfold.runs.folder import RunFolder
from tenfold.runs.metrics import EventFile, Metrics, read_rows


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder), purge_orphaned_data=True)
    found.Reload()
    return {
        tag: [(one.step, one.value) for one in found.Scalars(tag)]
        for tag in found.Tags()["scalars"]
    }


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_reads_every_number_and_forgets_what_a_resume_does_anew(tmp_path: Path) -> None:
    events = EventFile(tmp_path / "board")
    train = {"kind": "train", "step": 100, "loss": 0.5, "timing": {"seconds": 1.0}}
    events.add(train | {"return": 20})
    events.add(train | {"step": 200, "return": -3.25})
    events.add({"kind": "eval", "step": 200, "mean_return": 1e300})
    events.flush()
    events.add(train | {"step": 2**40, "loss": float("nan")})
    events.flush()
    found = scalars(tmp_path / "board")
    assert found["train/return"] == [(100, 20.0), (200, -3.25)]
    assert found["eval/mean_return"] == [(200, float("inf"))]
    assert found["train/loss"][:2] == [(100, 0.5), (200, 0.5)]
    assert found["train/loss"][2][0] == 2**40 and set(found) == {
        "train/return",
        "train/loss",
        "eval/mean_return",
    }
    again = EventFile(tmp_path / "board", purge_step=101)
    again.path = again.path.with_name(again.path.name + "9")  # it is the later one
    again.add(train | {"step": 200, "loss": 7.0})
    again.flush()
    assert scalars(tmp_path / "board")["train/loss"] == [(100, 0.5), (200, 7.0)]


def test_episodes_are_written_as_ever_and_rows_wait_as_long_as_told(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    metrics = Metrics(folder)
    metrics.episode(5, Episode(1, 12.5, 4))
    metrics.episode(5, Episode(0, -1.0, 2, step=3))
    metrics.episode(6, Episode(0, 2.0, 2, success=True))
    metrics.pause = 1000.0
    metrics.flush_if_due()
    assert not folder.metrics.exists()
    metrics.pause = 0.0
    metrics.flush_if_due()
    episode = {"kind": "episode", "step": 5, "env": 1, "return": 12.5, "length": 4}
    assert list(read_rows(folder.metrics)) == [
        episode,
        episode | {"step": 3, "env": 0, "return": -1.0, "length": 2},
        episode | {"step": 6, "env": 0, "return": 2.0, "length": 2, "success": True},
    ]
    assert list(read_rows(folder.metrics, episodes=False)) == []
    assert metrics.recent() == {"episodes": 3, "return": 4.5, "success": 1.0}

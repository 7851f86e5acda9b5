"""Checkpoints: one file with all state except replay rows, which are appended in files of their
own.

`checkpoints/step-N.safetensors` names the files in `replay/` that hold the rows alive at step N,
each with its digest. Row files never change, so earlier checkpoints stay whole; they are removed
when no kept checkpoint needs them. `checkpoints/best.safetensors` is the policy with the best
evaluation so far.
"""

import contextlib
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tenfold.core.errors import CheckpointError
from tenfold.runs.archive import MANIFEST
from tenfold.runs.file_schema import NOTE, POLICY, Schema
from tenfold.runs.folder import RunFolder
from tenfold.runs.storage import Arrays, read_arrays, read_note, replace_file, write_arrays

# the latter as of the last checkpoint, where it is another
BEST, BEFORE = "best.safetensors", "best-before.safetensors"
WEIGHTS = ("agent.online", "agent.target", "agent.norm_")


def flat_state(state: dict[str, dict[str, Any]]) -> Arrays:
    """Nested state as one mapping of arrays with dotted names."""
    return {
        f"{part}.{name}": value.detach().cpu().numpy()
        if isinstance(value, torch.Tensor)
        else np.asarray(value)
        for part, values in state.items()
        for name, value in values.items()
    }


def nested_state(arrays: Arrays) -> dict[str, dict[str, Any]]:
    state: dict[str, dict[str, Any]] = {}
    for dotted, array in arrays.items():
        part, name = dotted.split(".", 1)
        state.setdefault(part, {})[name] = (
            torch.from_numpy(array) if part in ("agent", "engine") else array
        )
    return state


def checkpoint_steps(path: Path) -> list[int]:
    """The steps of the checkpoints in a run's folder, in order."""
    return sorted(
        int(p.stem[len("step-") :])
        for p in RunFolder(path).checkpoints.glob("step-*.safetensors")
        if re.fullmatch(r"step-[0-9]{12}", p.stem)
    )


def require_weights(path: Path, arrays: Arrays) -> None:
    """Refuses files without an agent's parameters, and parameters that are not finite."""
    if "agent.online" not in arrays or not all("." in name for name in arrays):
        raise CheckpointError(f"{path} is damaged: it holds no weights of an agent (agent.online).")
    for name, array in arrays.items():
        if name.startswith(WEIGHTS) and not np.isfinite(array).all():
            raise CheckpointError(
                f"{path} is damaged: its weights are not finite ({name} has "
                f"{array.ravel()[np.argmin(np.isfinite(array))]} at place "
                f"{np.argmin(np.isfinite(array))})."
            )


def set_aside(path: Path) -> None:
    path.rename(path.with_name(path.name + ".damaged"))


@dataclass
class Checkpoints:
    """Writes and finds the checkpoints of one run; tracks which rows are on disk."""

    folder: RunFolder
    keep: int
    heads: np.ndarray | None = None
    # row files of the current rows: file, digest, heads at its end
    chain: list[dict[str, Any]] = field(default_factory=list)
    # the step whose state is on disk, and how much of the metrics it knows
    saved: tuple[int, int] | None = None
    files: dict[int, set[str]] = field(default_factory=dict)  # of rows, by checkpoints' steps
    # where the best policy is written with the next checkpoint only: it, its step and score
    lazily: bool = False
    waiting: tuple[Arrays, int, float] | None = None

    def save(self, learner: Any, note: dict[str, Any]) -> None:
        """Raises OSError if the disk refuses; the previous checkpoint then stays."""
        self.close()
        now = learner.step, note["metrics_bytes"]
        if self.saved == now:
            return
        chain, heads = self.chain, self.heads
        if learner.rows and (heads is None or not np.array_equal(learner.rows.head, heads)):
            heads = learner.rows.head.copy()
            oldest = heads - learner.rows.lane_rows + 1
            alive = [link for link in chain if (np.array(link["heads"]) >= oldest).any()]
            chain = [*alive, self.save_rows(learner.step, learner.rows, heads)]
        write_arrays(
            self.path(learner.step),
            flat_state(learner.state()),
            {"run": self.folder.id, "step": learner.step, "rows": chain, **note},
        )
        self.heads, self.chain, self.saved = heads, chain, now
        self.files[learner.step] = {link["file"] for link in chain}
        (self.folder.checkpoints / BEFORE).unlink(missing_ok=True)
        self.prune()

    def save_rows(self, step: int, replay: Any, heads: np.ndarray) -> dict[str, Any]:
        """Writes the rows since the last checkpoint into a new file."""
        rows = self.folder.rows / f"rows-{step:012d}.safetensors"
        since = np.zeros_like(heads) if self.heads is None else self.heads
        about = {"run": self.folder.id, "heads": heads.tolist()}
        rows.parent.mkdir(exist_ok=True)  # who deletes the rows to save space may go on
        return {
            "file": rows.name,
            "digest": write_arrays(rows, replay.written(since), about),
            "heads": heads.tolist(),
        }

    def save_best(self, policy_state: dict[str, Any], step: int, score: float) -> None:
        arrays = flat_state({"agent": policy_state})
        self.waiting = {name: array.copy() for name, array in arrays.items()}, step, score
        if not self.lazily:
            self.close()

    def close(self) -> None:
        """Writes the pending best policy, unless the disk is still full."""
        if not self.waiting:
            return
        arrays, step, score = self.waiting
        best, before = (self.folder.checkpoints / name for name in (BEST, BEFORE))
        if best.exists() and not before.exists():
            replace_file(before, best.read_bytes())
        write_arrays(best, arrays, {"run": self.folder.id, "step": step, "score": score})
        self.waiting = None

    def best_step(self) -> int | None:
        """The step of the saved best policy; None if there is no intact one."""
        path = self.folder.checkpoints / BEST
        with contextlib.suppress(CheckpointError):
            return self.read_state(path, POLICY)[1]["step"] if path.exists() else None
        return None

    def forget_best_after(self, step: int, score: float | None) -> None:
        """Discards a best policy that is newer than the checkpoint at `step`, whose best score was
        `score`; restores the one before it."""
        best, before = (self.folder.checkpoints / name for name in (BEST, BEFORE))
        # of a damaged one eval says so, to whoever asks for it
        with contextlib.suppress(CheckpointError):
            for path in filter(Path.exists, (best, before)):
                note = self.read_state(path, POLICY)[1]
                saved_score = note.get("score", score)
                if note["step"] > step or (note["step"] == step and saved_score != score):
                    path.unlink()
            if before.exists() and not best.exists():
                before.replace(best)
        before.unlink(missing_ok=True)

    def prune(self) -> None:
        """Keeps the latest `keep` checkpoints and their row files; removes temporary files of a
        killed process."""
        for left in [*self.folder.checkpoints.glob(".*.tmp"), *self.folder.rows.glob(".*.tmp")]:
            left.unlink(missing_ok=True)
        steps = self.steps()
        for step in steps[: -self.keep]:
            self.path(step).unlink(missing_ok=True)
        needed: set[str] = set()
        for step in steps[-self.keep :]:
            try:
                needed |= self.rows_of(step)
            except CheckpointError:
                return  # leave everything where a person may want to look
        for rows in self.folder.rows.glob("rows-*.safetensors"):
            if rows.name not in needed:
                rows.unlink(missing_ok=True)

    def rows_of(self, step: int) -> set[str]:
        """The row files of a checkpoint. Reads the note of older checkpoints once, and nothing else
        of them."""
        if step not in self.files:
            note = read_note(self.path(step), NOTE)
            self.files[step] = {link["file"] for link in note["rows"]}
        return self.files[step]

    def steps(self) -> list[int]:
        return checkpoint_steps(self.folder.path)

    def path(self, step: int) -> Path:
        return self.folder.checkpoints / f"step-{step:012d}.safetensors"

    def read_state(
        self, path: Path, schema: Schema, step: int | None = None
    ) -> tuple[Arrays, dict[str, Any]]:
        arrays, note = read_arrays(path, schema=schema)
        if note["run"] != self.folder.id or step not in (None, note["step"]):
            raise CheckpointError(f"{path} belongs to another run or another step.")
        require_weights(path, arrays)
        return arrays, note

    def read(self, step: int) -> tuple[Arrays, list[Arrays], dict[str, Any]]:
        """State, replay rows in order, and note of one checkpoint; CheckpointError if any file is
        damaged."""
        arrays, note = self.read_state(self.path(step), NOTE, step)
        rows = [
            read_arrays(self.folder.rows / link["file"], link["digest"])[0] for link in note["rows"]
        ]
        return arrays, rows, note

    def latest(self) -> tuple[Arrays, list[Arrays] | None, dict[str, Any], list[str]]:
        """The newest intact checkpoint, and a warning for each newer damaged one, which is set
        aside as *.damaged.

        Where all are whole but for rows they share, the newest without its rows (None): better than
        nothing at all.
        """
        complaints: list[str] = []
        damaged: list[Path] = []
        for step in reversed(self.steps()):
            try:
                checkpoint = self.read(step)
            except CheckpointError as error:
                complaints.append(f"{error} It was set aside as {self.path(step).name}.damaged.")
                damaged.append(self.path(step))
                continue
            for path in damaged:
                set_aside(path)
            arrays, rows, note = checkpoint
            self.chain = note["rows"]
            self.heads = np.array(note["rows"][-1]["heads"]) if note["rows"] else None
            self.saved = None if note["owes_evaluation"] else (step, note["metrics_bytes"])
            return arrays, rows, note, complaints
        for step in reversed(self.steps()):
            with contextlib.suppress(CheckpointError):
                arrays, note = self.read_state(self.path(step), NOTE, step)
                lost = complaints[0].split(" It was")[0]
                return (
                    arrays,
                    None,
                    note,
                    [f"{lost} The replay memory starts empty, so this resume is not exact."],
                )
        if complaints:
            raise CheckpointError(
                f"No checkpoint of {self.folder.path} is whole: {complaints[0].split(' It was')[0]}"
            )
        raise CheckpointError(
            f"{self.folder.path} has no checkpoint yet: start it again with `tenfold train` and "
            "--overwrite."
        )

    def policy(self, which: str) -> tuple[dict[str, torch.Tensor], int]:
        """The agent's state of `best` (policy only), `last` or a step, and the step it was saved
        at. `last` is the last intact one; a warning names damaged ones after it."""
        steps, best = self.steps(), self.folder.checkpoints / BEST
        if which == "best" and not best.exists():
            raise CheckpointError(
                f"{self.folder.path} has no best checkpoint (no evaluation ran, or the disk was "
                "full): use last."
            )
        if which == "last" and not steps:
            raise CheckpointError(f"{self.folder.path} has no checkpoint yet.")
        if which == "last":
            return self.last_policy(steps)
        if which != "best" and which not in map(str, steps):
            where = "there"
            if (self.folder.path / MANIFEST).exists():
                where = f"in {self.folder.path}: an archive holds the last and the best one"
            raise CheckpointError(
                f"--checkpoint {which} is not {where}: choose best, last or one of "
                f"{', '.join(map(str, steps))}."
            )
        return self.read_policy(best if which == "best" else self.path(int(which)))

    def read_policy(self, path: Path) -> tuple[dict[str, torch.Tensor], int]:
        arrays, note = self.read_state(path, POLICY)
        return nested_state(arrays)["agent"], note["step"]

    def last_policy(self, steps: list[int]) -> tuple[dict[str, torch.Tensor], int]:
        newest: CheckpointError | None = None
        for step in reversed(steps):
            try:
                policy = self.read_policy(self.path(step))
            except CheckpointError as error:
                newest = newest or error
                continue
            if newest:
                note = f"Note: {newest} The one of step {step:,} is taken instead."
                print(note, file=sys.stderr)
            return policy
        assert newest
        raise newest

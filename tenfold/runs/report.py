"""A run on one page: `report.html`, self-contained, and its picture `curve.png`."""

from pathlib import Path
from typing import Any

from tenfold.config.changes import told_changes
from tenfold.config.run import Run
from tenfold.core.registry import domain_of
from tenfold.runs.files import replace_file
from tenfold.runs.folder import RunFolder
from tenfold.runs.metrics import read_rows
from tenfold.runs.page import Section, origin_sections, page, settings_section, table
from tenfold.runs.reporter import reporter_of


def write_report(folder: RunFolder, run: Run) -> Path:
    """Reads the metrics and writes the pictures and the page."""
    rows, reporter = list(read_rows(folder.metrics)), reporter_of(run)
    summary = reporter.summary(rows, run) | damaged(folder.metrics, len(rows))
    sections = [
        Section("", table(summary)),
        *reporter.sections(folder.path, rows, run),
        *domain_of(run.env).sections(folder.path, rows),
        Section("Engine", table(sessions(folder.about))),
        Section("Time", table(time_shares(rows))),
        settings_section(run),
        *origin_sections(folder.about),
    ]
    title = f"{run.agent.name} on {run.env}, seed {run.seed}"
    replace_file(folder.report, page(title, sections))
    return folder.report


def damaged(metrics: Path, rows: int) -> dict[str, str]:
    """A line about lines of the metrics that hold no row, whole ones only: the last may just be
    being written."""
    count = metrics.read_bytes().count(b"\n") - rows if metrics.is_file() else 0
    if count <= 0:
        return {}
    return {"damaged": f"{count:,} lines of {metrics.name} hold no row and were passed over"}


def sessions(about: dict[str, Any]) -> dict[str, str]:
    """How it ran from its start, and from every resume on: the engine and why, where the actors
    were, what was verified, which settings changed."""
    found = {}
    for session in about.get("sessions", []):
        words = (
            session["engine"],
            f"on {session['device']}",
            session["where"],
            session.get("verify", ""),
            told_changes(session.get("changed", {})),
        )
        found[f"from step {session['from_step']:,}"] = "; ".join(filter(None, words))
    return found


def time_shares(rows: list[dict[str, Any]]) -> dict[str, str]:
    last = next((row for row in reversed(rows) if row["kind"] == "train"), {"timing": {}})
    shares = last["timing"].get("shares", {})
    return {stage: f"{share:.1%}" for stage, share in sorted(shares.items(), key=lambda s: -s[1])}

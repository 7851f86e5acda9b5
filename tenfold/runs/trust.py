"""Marks of modules and clusters that this user's settings name (`config.trust`)."""

from pathlib import Path
from typing import Any

from tenfold.config.mappings import read_yaml
from tenfold.config.trust import MARK, clusters_in, distrusted, mark_of, marks_in, modules_in
from tenfold.core.errors import ConfigError
from tenfold.runs.files import replace_file


def mark_modules(folder: Path, settings: Any) -> None:
    """Notes that this user wrote these settings, where they name modules or a cluster; beside those
    of others that the folder holds."""
    names = sorted({*modules_in(settings), *clusters_in(settings)})
    if not names:
        return
    marks = marks_in(folder)
    new = [mark for mark in map(mark_of, names) if mark and mark not in marks]
    if new:
        replace_file(folder / MARK, "".join(f"{mark}\n" for mark in [*marks, *new]).encode())


def trusted_modules(folder: Path, settings: Any) -> frozenset[str]:
    """What another machine, which has no key of this user, may import for a run: what its settings
    name, which come from here, and what this user has marked in its folder."""
    try:
        named = set(modules_in(read_yaml(folder / "config.yaml")))
    except ConfigError:
        named = set()
    return frozenset(modules_in(settings)) | (named - set(distrusted(folder, named)))

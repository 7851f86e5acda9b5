"""A run as one file, `tenfold pack`: a zip of settings, metrics, the policies of its checkpoints
(safetensors), and a model card. Nothing in it is pickled.

Whoever opens one may have it from anybody. So only files with names that are known here are taken
out, into a new folder, by names that are ours; sizes are limited before and while they are read;
every file must have the digest that `pack.json` says; YAML has no tags and no aliases. What the
settings name is imported only where the user trusts them (`config.files`).
"""

import hashlib
import io
import os
import re
import shutil
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tenfold.core.errors import UserError
from tenfold.runs.file_schema import TEXT, Schema, misfit, parsed
from tenfold.runs.storage import writing

KIND, FORMAT = "tenfold-pack", 1
MANIFEST, CARD, CURVE = "pack.json", "README.md", "curve.png"
MEGABYTE = 2**20
# what may be in an archive, and how large it may be when it is unpacked
LIMITS = {
    MANIFEST: MEGABYTE,
    CARD: MEGABYTE,
    "config.yaml": MEGABYTE // 16,
    "run.json": MEGABYTE,
    CURVE: 16 * MEGABYTE,
    "metrics.jsonl": 64 * MEGABYTE,
}
REQUIRED = (MANIFEST, CARD, "config.yaml", "run.json")
# these are stored as they are, so that none is larger than the archive
WEIGHTS = re.compile(r"checkpoints/(best|step-[0-9]{12})\.safetensors")
ENTRIES = 32
HEADER = MEGABYTE  # of weights: their names, shapes and note, which are read as JSON
METRICS = "metrics.jsonl"
LINES, LONGEST = 250_000, 4 * MEGABYTE  # of metrics, and bytes of one
LARGEST = 2 * MEGABYTE  # bytes read in one call, such as the list of the files
FORMS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
DEPTH = 20  # of settings in settings
PACK: Schema = {
    "kind": TEXT,
    "licence": TEXT,
    "files": {...: TEXT},
}


@contextmanager
def opened(path: Path) -> Iterator[Path]:
    """The folder of a run: the path itself, or that of an archive, which is unpacked into a
    temporary folder."""
    if not path.is_file():
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="tenfold-") as parent:
        folder = Path(parent) / "run"
        unpack(path, folder)
        try:
            yield folder
        except UserError as error:  # the person knows the archive, and no other place
            if str(folder) not in str(error):
                raise
            raise UserError(str(error).replace(str(folder), str(path))) from None


class Bounded(io.BufferedReader):
    """An archive with a limit on the bytes of one read: its list of files could otherwise be as
    long as the file."""

    def __init__(self, path: Path) -> None:
        super().__init__(io.FileIO(path))

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or size < 0:
            size = os.fstat(self.fileno()).st_size - self.tell()
        if size > LARGEST:
            raise zipfile.BadZipFile(f"{size:,} bytes of it belong together")
        return super().read(size)


def unpack(path: Path, folder: Path) -> None:
    """Unpacks an archive into a new folder; on a UserError no file remains in use."""
    try:
        with Bounded(path) as source, zipfile.ZipFile(source) as archive:
            entries = checked_entries(archive, path)
            (folder / "checkpoints").mkdir(parents=True)
            digests = {
                name: extract(archive, entry, folder / name) for name, entry in entries.items()
            }
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise UserError(
            f"{path} is neither a run's folder nor a whole archive of one, as `tenfold pack` makes "
            f"it ({' '.join(str(error).split()) or type(error).__name__:.100})."
        ) from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be unpacked ({error}).") from None
    for name in entries:
        require_bounds(path, name, folder / name)
    require_manifest(path, (folder / MANIFEST).read_bytes(), digests)
    require_plain_yaml(path, folder / "config.yaml")


def checked_entries(archive: zipfile.ZipFile, path: Path) -> dict[str, zipfile.ZipInfo]:
    """The entries by name; refuses names, types and sizes that `tenfold pack` does not write."""
    entries: dict[str, zipfile.ZipInfo] = {}
    infos = archive.infolist()
    if len(infos) > ENTRIES:
        raise UserError(f"{path} holds {len(infos):,} files, more than any archive of a run.")
    if {"data", "policy.pth"} <= {entry.filename for entry in infos}:
        raise UserError(
            f"{path} is a model of Stable-Baselines3: `tenfold import {path} --env ID` makes a run "
            "of it, which can be played, resumed and exported."
        )
    for entry in infos:
        name, weights = entry.filename, WEIGHTS.fullmatch(entry.filename)
        limit = LIMITS.get(name, 0)
        mode = entry.external_attr >> 16
        if not (weights or limit) or (mode and stat.S_IFMT(mode) not in (0, stat.S_IFREG)):
            raise UserError(f"{path} holds {quoted(name)}, which is no file of a packed run.")
        if name in entries:
            raise UserError(f"{path} holds {quoted(name)} twice.")
        if entry.flag_bits & 1:
            raise UserError(f"{path} is encrypted, which archives of runs are not.")
        forms = FORMS[:1] if weights else FORMS
        whole = entry.file_size == entry.compress_size
        if entry.compress_type not in forms or (weights and not whole):
            raise UserError(f"{path} holds {name} in another form than `tenfold pack` writes.")
        if limit and entry.file_size > limit:
            raise UserError(
                f"{path} holds {name} of {entry.file_size:,} bytes, more than the {limit:,} that "
                "are read."
            )
        entries[name] = entry
    if lost := [name for name in REQUIRED if name not in entries]:
        raise UserError(f"{path} is no archive of a run: it has no {lost[0]}.")
    return entries


def extract(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, file: Path) -> str:
    """Writes a file and returns its digest. zipfile reads no more bytes than the entry declares."""
    with archive.open(entry) as source, file.open("x+b") as target:
        shutil.copyfileobj(source, target)
        if target.tell() < entry.file_size:
            raise zipfile.BadZipFile(f"{entry.filename} ends early")
        target.seek(0)
        return hashlib.file_digest(target, "sha256").hexdigest()


def require_bounds(path: Path, name: str, file: Path) -> None:
    """Refuses files that are small in the archive but slow to parse."""
    if WEIGHTS.fullmatch(name):
        with file.open("rb") as weights:
            size = int.from_bytes(weights.read(8), "little")
        if size > HEADER:
            raise UserError(
                f"{path} holds {name} with a header of {size:,} bytes, more than the {HEADER:,} "
                "that are read."
            )
    if name == METRICS and not readable(file.read_bytes()):
        raise UserError(
            f"{path} holds {name} with more than {LINES:,} lines, or one of more than {LONGEST:,} "
            "bytes, which are not read."
        )


def readable(metrics: bytes) -> bool:
    """Whether metrics are within the limits of an archive."""
    if len(metrics) > LIMITS[METRICS] or metrics.count(b"\n") > LINES:
        return False
    return max(map(len, metrics.split(b"\n"))) <= LONGEST


def require_manifest(path: Path, content: bytes, digests: dict[str, str]) -> None:
    """Refuses files that differ from their digests in `pack.json`."""
    try:
        about = parsed(content)
    except ValueError as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path} is damaged: {MANIFEST} cannot be read ({reason}).") from None
    if not isinstance(about, dict) or about.get("kind") != KIND:
        raise UserError(f"{path} is no archive of a run: {MANIFEST} does not say so.")
    if about.get("format") != FORMAT:
        raise UserError(
            f"{path} is an archive of format {quoted(about.get('format'))}, and this tenfold "
            f"reads {FORMAT}: use a newer one."
        )
    if wrong := misfit(about, PACK):
        raise UserError(f"{path} is damaged: in {MANIFEST} {wrong}.")
    expected = about["files"]
    for name in sorted({*expected, *digests} - {MANIFEST}):
        if expected.get(name) != digests.get(name):
            raise UserError(f"{path} is damaged: {quoted(name)} is not what {MANIFEST} says it is.")


def require_plain_yaml(path: Path, file: Path) -> None:
    """Refuses YAML with tags, aliases (which can expand to billions of values) or deep nesting."""
    depth = 0
    try:
        for event in yaml.parse(file.read_text(), yaml.SafeLoader):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            tagged = getattr(event, "tag", None) or getattr(event, "anchor", None)
            if tagged or isinstance(event, yaml.AliasEvent) or depth > DEPTH:
                raise UserError(
                    f"{path}: its config.yaml has a tag or an alias ({quoted(tagged or '*')}), "
                    "or is too deep: it was not written by tenfold."
                )
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path}: its config.yaml is no YAML ({reason:.200}).") from None


def keep_outputs(folder: Path, path: Path) -> Path:
    """Copies the outputs (tables, films) from an unpacked archive to a folder that stays, and
    returns it."""
    kept = Path(f"{path.stem}-files")
    ours = {Path(name).parts[0] for name in (*LIMITS, "checkpoints")}
    if {path.name for path in folder.iterdir()} - ours:
        with writing(kept):
            skipped = lambda parent, names: ours if Path(parent) == folder else ()  # noqa: E731
            shutil.copytree(folder, kept, ignore=skipped, dirs_exist_ok=True)
    return kept


def quoted(value: Any) -> str:
    """Foreign text, escaped and shortened for an error message."""
    text = ascii(value)
    return text if len(text) <= 80 else f"{text[:79]}…"

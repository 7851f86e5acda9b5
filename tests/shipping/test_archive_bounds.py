"""What of an archive is read at all: how much, and numbers of which types."""

import json
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load, save
from test_hostile_archives import (  # noqa: F401  two are fixtures
    WEIGHTS,
    Files,
    good_files,
    nothing_is_left,
    refused,
    vouched,
    zipped,
)

import tenfold as ten
from tenfold.runs import archive, metrics
from tenfold.runs.archive import MEGABYTE
from tenfold.runs.storage import digest


def weights_of(files: Files, change: Callable[[dict[str, Any]], Any]) -> bytes:
    """Those of an archive with their tensors changed, and with the digest that belongs to them."""
    content = files[WEIGHTS]
    size = struct.unpack("<Q", content[:8])[0]
    about = json.loads(content[8 : 8 + size])["__metadata__"]
    arrays = change(load(content))
    text = about["note"]
    return save(arrays, {**about, "digest": digest(arrays, text)})


@pytest.mark.parametrize(
    "kind", ["bool", "int8", "uint8", "int64", "float16", "float64", "complex64"]
)
def test_weights_of_another_type_are_another_policy(
    files: Files, tmp_path: Path, kind: str
) -> None:
    """They would be rounded, cut, or be imaginary, without a word."""

    def change(arrays: dict[str, Any]) -> dict[str, Any]:
        return arrays | {"agent.online": arrays["agent.online"].astype(kind)}

    same = weights_of(files, lambda arrays: arrays)
    assert ten.load(zipped(tmp_path / "good.zip", vouched(files | {WEIGHTS: same}))).actions.n == 2
    path = zipped(tmp_path / "x.zip", vouched(files | {WEIGHTS: weights_of(files, change)}))
    refused(path, f"holds online as {kind} and not as float32: tenfold did not write it like that")


@pytest.mark.parametrize("kind", ["F8_E4M3", "F8_E5M2", "F8_E8M0", "F4", "F6_E2M3", "BF16", "X"])
def test_types_that_numpy_has_no_name_for_are_refused(
    files: Files, tmp_path: Path, kind: str
) -> None:
    bits = {"F4": 4, "BF16": 16, "F6_E2M3": 6}.get(kind, 8)
    shape = [128 // bits // 4 * 4]
    size = shape[0] * bits // 8
    about = {"agent.online": {"dtype": kind, "shape": shape, "data_offsets": [0, size]}}
    text = json.dumps(about | {"__metadata__": {"format": "tenfold-1"}}).encode()
    weights = struct.pack("<Q", len(text)) + text + b"\0" * size
    refused(zipped(tmp_path / "x.zip", vouched(files | {WEIGHTS: weights})), "x.zip")


@pytest.mark.parametrize("form", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
@pytest.mark.parametrize("flipped", [False, True])
def test_entries_packed_in_other_forms_are_refused_whole_or_damaged(
    files: Files, tmp_path: Path, form: int, flipped: bool
) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            how = form if name == "metrics.jsonl" else zipfile.ZIP_STORED
            archive.writestr(name, content, how)
        entry = archive.getinfo("metrics.jsonl")
    if flipped:
        content = bytearray(path.read_bytes())
        content[entry.header_offset + 30 + len(entry.filename) + entry.compress_size // 2] ^= 0xFF
        path.write_bytes(bytes(content))
    refused(path, "holds metrics.jsonl in another form than `tenfold pack` writes")


LONG: dict[str, tuple[str, bytes, str]] = {
    "blank lines": ("metrics.jsonl", b"\n" * (60 * MEGABYTE), "more than 250,000 lines"),
    "lines of nothing": ("metrics.jsonl", b"{}\n" * 300_000, "more than 250,000 lines"),
    "one line": ("metrics.jsonl", b"[" + b"{}," * (2 * MEGABYTE), "one of more than 4,194,304"),
    "settings": ("config.yaml", b"[[],[],[]]\n" * 10_000, "config.yaml of 110,000 bytes, more"),
    "the names of tensors": (
        WEIGHTS,
        struct.pack("<Q", 2 * MEGABYTE) + b" " * 2 * MEGABYTE,
        "with a header of 2,097,152 bytes",
    ),
}


@pytest.mark.parametrize("kind", LONG)
def test_what_would_take_long_to_read_is_refused_unread(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    name, content, words = LONG[kind]
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for own, old in vouched(files | {name: content}).items():
            how = zipfile.ZIP_DEFLATED if own == "metrics.jsonl" else zipfile.ZIP_STORED
            archive.writestr(own, old, how, 1)
    monkeypatch.setattr(metrics, "row_in", lambda line: pytest.fail("a row was read"))
    refused(path, words)


def test_a_list_of_very_many_files_is_refused_unread(files: Files, tmp_path: Path) -> None:
    path = zipped(tmp_path / "x.zip", {"a" * 60_000 + str(k): b"" for k in range(40)})
    refused(path, "belong together")


def test_metrics_that_no_archive_may_hold_are_left_out_of_it(
    finished_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "LINES", 5)
    file = ten.pack(finished_once, tmp_path / "x.zip", episodes=0)
    with zipfile.ZipFile(file) as packed:
        assert "metrics.jsonl" not in packed.namelist()
    assert ten.load(file).actions.n == 2

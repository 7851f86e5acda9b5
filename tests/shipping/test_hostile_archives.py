"""Archives that somebody made to do harm: one sentence, nothing run, nothing left behind."""

import hashlib
import json
import stat
import struct
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import tenfold as ten
from tenfold.core.errors import UserError
from tenfold.runs.archive import MEGABYTE

Files = dict[str, bytes]
WEIGHTS = "checkpoints/step-000000000600.safetensors"


@pytest.fixture(scope="module", name="files")
def good_files(finished_once: Path, tmp_path_factory: pytest.TempPathFactory) -> Files:
    """Of a good archive."""
    file = ten.pack(finished_once, tmp_path_factory.mktemp("good") / "good.zip", episodes=0)
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Temporary files go to a folder that must be empty afterwards."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    yield
    assert list(place.iterdir()) == []


def vouched(files: Files) -> Files:
    """With the digests that a careful attacker writes."""
    about = json.loads(files["pack.json"])
    about["files"] = {
        name: hashlib.sha256(content).hexdigest()
        for name, content in files.items()
        if name != "pack.json"
    }
    return files | {"pack.json": json.dumps(about).encode()}


def zipped(path: Path, files: Files, *more: tuple[zipfile.ZipInfo | str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in (*files.items(), *more):
            archive.writestr(name, content)
    return path


def refused(path: Path, words: str) -> None:
    for ask in (ten.load, ten.evaluate):
        with pytest.raises(UserError, match=words) as error:
            ask(path)
        sentence = str(error.value)
        assert "\n" not in sentence and "\x1b" not in sentence and len(sentence) < 500
        assert "temporary" not in sentence  # the archive is named, and no place that is gone


def test_the_archive_that_the_others_are_made_of_is_good(files: Files, tmp_path: Path) -> None:
    assert ten.load(zipped(tmp_path / "x.zip", vouched(dict(files)))).actions.n == 2


@pytest.mark.parametrize(
    "name",
    [
        "../evil.py", "checkpoints/../../evil.py", "/tmp/evil.py", "C:\\evil.py", "evil.py", "a/b",
        ".modules", "checkpoints/", "checkpoints/step-1.safetensors", "README.md/x", "",
        "checkpoints/best.safetensors\x00.py", "\x1b[31m<script>alert(1)</script>" + "x" * 300,
    ],
)  # fmt: skip
def test_names_that_are_not_ours_are_refused(files: Files, tmp_path: Path, name: str) -> None:
    entry = zipfile.ZipInfo("x")
    entry.filename = name  # the constructor would mend it
    refused(zipped(tmp_path / "x.zip", files, (entry, b"import os")), "x.zip (holds|cannot be|is)")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["temporary", "x.zip"]
    assert not Path("/tmp/evil.py").exists()


def test_links_are_refused(files: Files, tmp_path: Path) -> None:
    for kind in (stat.S_IFLNK, stat.S_IFIFO, stat.S_IFDIR):
        entry = zipfile.ZipInfo("config.yaml")
        entry.external_attr = (kind | 0o777) << 16
        others = {name: own for name, own in files.items() if name != "config.yaml"}
        path = zipped(tmp_path / "x.zip", others, (entry, b"/etc/passwd"))
        refused(path, "holds 'config.yaml', which is no file of a packed run")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_twice_is_refused(files: Files, tmp_path: Path) -> None:
    path = zipped(tmp_path / "x.zip", files, ("config.yaml", b"env: CartPole-v1"))
    refused(path, "holds 'config.yaml' twice")


def test_bombs_are_refused_by_what_they_say_and_by_what_they_hold(
    files: Files, tmp_path: Path
) -> None:
    big = b"\n" * (65 * MEGABYTE)
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in (files | {"metrics.jsonl": big}).items():
            how = zipfile.ZIP_DEFLATED if name == "metrics.jsonl" else zipfile.ZIP_STORED
            archive.writestr(name, content, how)
    assert path.stat().st_size < MEGABYTE
    refused(path, r"metrics.jsonl of 68,157,440 bytes, more than the 67,108,864")
    lie = path.read_bytes().replace(struct.pack("<I", len(big)), struct.pack("<I", 1000))
    path.write_bytes(lie)  # the headers say 1,000 bytes
    refused(path, "x.zip is (neither|damaged)")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in (files | {WEIGHTS: b"\0" * MEGABYTE}).items():
            archive.writestr(name, content)
    refused(path, "in another form than `tenfold pack` writes")
    refused(zipped(path, files | {f"{k}": b"" for k in range(40)}), "holds 48 files, more than any")


def test_damage_and_foreign_files_are_refused(files: Files, tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    whole = zipped(path, files).read_bytes()
    for content in (b"", b"PK\x03\x04", whole[:-30], whole[: len(whole) // 2], b"hello"):
        path.write_bytes(content)
        refused(path, "neither a run's folder nor a whole archive")
    changed = bytearray(whole)
    changed[whole.index(b"CartPole-v1")] ^= 1
    path.write_bytes(bytes(changed))
    refused(path, "x.zip is (neither|damaged)")
    refused(zipped(path, files | {"config.yaml": b"env: Acrobot-v1"}), "is not what pack.json says")
    fewer = {name: own for name, own in files.items() if name != "run.json"}
    refused(zipped(path, fewer), "it has no run.json")
    fewer = {name: own for name, own in files.items() if name != "metrics.jsonl"}
    refused(zipped(path, fewer), "'metrics.jsonl' is not what pack.json says")
    for about in (b"[]", b"{}", b"{", b'{"kind": "tenfold-pack", "format": 1}', b"[" * 100_000):
        refused(zipped(path, files | {"pack.json": about}), "pack.json|is damaged")
    newer = json.dumps(json.loads(files["pack.json"]) | {"format": 2}).encode()
    refused(zipped(path, files | {"pack.json": newer}), "format 2, and this tenfold reads 1")


def header(shape: list[int], size: int = 16) -> bytes:
    about = {"agent.online": {"dtype": "F32", "shape": shape, "data_offsets": [0, size]}}
    text = json.dumps(about).encode()
    return struct.pack("<Q", len(text)) + text + b"\0" * 16


@pytest.mark.parametrize(
    "weights",
    [
        header([10**12]), header([2**40, 2**40]), header([4], 2**60), header([4]),
        struct.pack("<Q", 2**63) + b"{}", struct.pack("<Q", 10**9) + b"{}", b"", b"\x80\x04cos\nsystem",
    ],
)  # fmt: skip
def test_tensors_that_are_not_what_they_say_are_refused(
    files: Files, tmp_path: Path, weights: bytes
) -> None:
    refused(zipped(tmp_path / "x.zip", vouched(files | {WEIGHTS: weights})), "x.zip")


def test_settings_that_ask_for_more_memory_than_the_weights_are_refused(
    files: Files, tmp_path: Path
) -> None:
    text = files["config.yaml"].decode()
    assert "  - 16\n" in text
    layers = text.replace("    - 16\n", "    - 16384\n" * 1000)
    path = zipped(tmp_path / "x.zip", vouched(files | {"config.yaml": layers.encode()}))
    refused(path, "holds 114 parameters and its settings ask for 268,")


YAMLS = {
    "a tag": "!!python/object/apply:os.system ['touch {trace}']",
    "a tag inside": "env: !!python/name:os.system\n",
    "an alias": "a: &a [1, 1]\nb: [*a, *a]\n",
    "depth": "a: " + "[" * 50 + "]" * 50,
    "no YAML": "a: [",
    "control characters": "a: \x01",
}


@pytest.mark.parametrize("kind", YAMLS)
def test_yaml_that_is_more_than_settings_is_refused(
    files: Files, tmp_path: Path, kind: str
) -> None:
    text = YAMLS[kind].replace("{trace}", str(tmp_path / "trace"))
    path = zipped(tmp_path / "x.zip", vouched(files | {"config.yaml": text.encode()}))
    refused(path, "its config.yaml")
    assert not (tmp_path / "trace").exists()


SETTINGS: dict[str, Callable[[str], dict[str, str]]] = {
    "an environment": lambda m: {"env: CartPole-v1": f"env: '{m}:Mine-v0'"},
    "an odd module": lambda m: {"env: CartPole-v1": f"env: '{m}-odd:Mine-v0'"},
    "a world": lambda m: {"env: CartPole-v1": f"env: 'pettingzoo/{m}'"},
    "a call": lambda m: {"env: CartPole-v1": f"env: 'pettingzoo/os:system(command=touch {m})'"},
    "an algorithm": lambda m: {"name: dqn": f"name: '{m}:Mine'"},
    "a network": lambda m: {"module: ''": f"module: '{m}:Mine'"},
    "a schedule": lambda m: {"lr: 0.0005": f"lr: '{m}:mine(1)'"},
    "a schedule inside": lambda m: {"explore: ": f"explore: 'epsilon(schedule={m}:mine(1))' # "},
}


@pytest.mark.parametrize("kind", SETTINGS)
def test_modules_that_settings_name_are_not_imported(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    module = f"evil_{tmp_path.name.replace('-', '_')}"
    for name in (module, f"{module}-odd"):
        (tmp_path / f"{name}.py").write_text(
            f"from pathlib import Path\nPath({str(tmp_path / 'trace')!r}).touch()\n"
        )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    text = files["config.yaml"].decode()
    for old, new in SETTINGS[kind](module).items():
        assert old in text
        text = text.replace(old, new, 1)
    path = zipped(tmp_path / "x.zip", vouched(files | {"config.yaml": text.encode()}))
    refused(path, "which would be imported and run, and was not made by you")
    assert not (tmp_path / "trace").exists() and not (tmp_path / module).exists()
    with suppress(UserError):  # what the test would notice
        ten.load(path, trust=True)
    # a schedule is asked when a run trains
    assert "schedule" in kind or (tmp_path / "trace").exists() or (tmp_path / module).exists()


def test_markup_in_settings_is_text_in_sentences(files: Files, tmp_path: Path) -> None:
    text = files["config.yaml"].decode().replace("CartPole-v1", "<b>CartPole</b>", 1)
    path = zipped(tmp_path / "x.zip", vouched(files | {"config.yaml": text.encode()}))
    refused(path, "<b>CartPole</b> cannot be made")


def test_a_mark_in_an_archive_is_not_heeded(files: Files, tmp_path: Path) -> None:
    """It may have been copied from an archive that its owner made."""
    refused(zipped(tmp_path / "x.zip", vouched(files | {".modules": b"x"})), "no file of a packed")


def test_commands_refuse_in_one_line(
    files: Files, tmp_path: Path, here: Callable[..., Any]
) -> None:
    zipped(tmp_path / "x.zip", files, ("../evil", b""))
    for command in ("eval", "export", "pack"):
        done = here(command, "x.zip")
        assert done.returncode == 2 and done.stderr.count("\n") == 1 and not done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["temporary", "x.zip"]

"""Tensor files are whole or refused."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from tenfold.core.errors import CheckpointError
from tenfold.runs.storage import read_arrays, replace_file, write_arrays

ARRAYS = {
    "a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "scalar": np.array(7),
    "none": np.zeros((0, 4), np.uint8),
    "flags": np.array([True, False]),
    "strided": np.arange(10)[::2],
}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_arrays(tmp_path / "x", ARRAYS, {"step": 3})
    found, note = read_arrays(tmp_path / "x")
    assert note == {"step": 3}
    for name, array in ARRAYS.items():
        assert (
            found[name].dtype == array.dtype
            and found[name].shape == array.shape
            and np.array_equal(found[name], array)
        )


def test_a_file_is_whole_on_the_disk_before_it_takes_the_place_of_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, moments, replace = tmp_path / "x", [], os.replace
    path.write_bytes(b"before")

    def sync(descriptor: int) -> None:
        written = Path(os.readlink(f"/proc/self/fd/{descriptor}")).read_bytes()
        moments.append(("sync", written, path.read_bytes()))

    def rename(source: Path, target: Path) -> None:
        moments.append(("replace", source.read_bytes(), target.read_bytes()))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", rename)
    replace_file(path, b"after")
    assert moments == [("sync", b"after", b"before"), ("replace", b"after", b"before")]
    assert path.read_bytes() == b"after" and list(tmp_path.iterdir()) == [path]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_flipped_bit_and_any_cut_is_refused(data: st.DataObject) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x"
        write_arrays(path, ARRAYS, {"step": 3})
        content = bytearray(path.read_bytes())
        place = data.draw(st.integers(0, len(content) - 1))
        if data.draw(st.booleans()):
            content[place] ^= 1 << data.draw(st.integers(0, 7))
        else:
            del content[place:]
        path.write_bytes(content)
        try:
            found, note = read_arrays(path)
        except CheckpointError as error:
            assert "\n" not in str(error)
            return
        # bits that carry no meaning (padding of the header) may flip; what is read must then be
        # what was written
        assert note == {"step": 3} and all(np.array_equal(found[n], a) for n, a in ARRAYS.items())


def test_files_of_other_programs_are_refused(tmp_path: Path) -> None:
    save_file({"weight": np.zeros(3)}, tmp_path / "theirs")
    with pytest.raises(CheckpointError, match="was not written by tenfold"):
        read_arrays(tmp_path / "theirs")
    with pytest.raises(CheckpointError, match="is missing"):
        read_arrays(tmp_path / "nothing")
    with pytest.raises(CheckpointError, match="damaged or no tenfold file"):
        read_arrays(tmp_path)


def test_a_file_swapped_for_another_whole_one_is_refused(tmp_path: Path) -> None:
    digest = write_arrays(tmp_path / "x", ARRAYS, {"step": 3})
    write_arrays(tmp_path / "x", ARRAYS, {"step": 4})
    with pytest.raises(CheckpointError, match="checksum"):
        read_arrays(tmp_path / "x", digest)

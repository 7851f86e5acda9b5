"""Reading Stable-Baselines3's model files, and ours under the same name, without unpickling.

A file may come from anybody. Of Stable-Baselines3's, the JSON is read, and tensors by
`torch.load(weights_only=True)`; the pickles inside the JSON (":serialized:") are never touched:
what stood only in them is looked for in the text beside them, or said to be missing. Ours holds
JSON and safetensors. Sizes are limited before anything is unpacked.
"""

import io
import json
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from tenfold.core.errors import UserError
from tenfold.runs.archive import quoted
from tenfold.runs.file_schema import parsed

DATA, VARIABLES, VERSION = "data", "pytorch_variables.pth", "_stable_baselines3_version"
OLD_VARIABLES = "tensors.pth"
OURS, TENSORS = "tenfold_model", "tensors.safetensors"  # members of our own files
FORMAT = "tenfold-sb3-1"
MEGABYTE = 2**20
MEMBERS = 64
TEXT_LIMIT = 64 * MEGABYTE  # of the JSON
TENSOR_LIMIT = 2048 * MEGABYTE  # of all tensors together
RATIO = 20  # unpacked to packed bytes; weights do not shrink
DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError)


class MissingFile(UserError, FileNotFoundError):
    """A path where there is no file."""


Source = str | Path | BinaryIO
TensorDict = dict[str, torch.Tensor]


@dataclass(frozen=True)
class ModelFile:
    """What a file holds: plain attributes of the model (pickles are left as tables of what stands
    beside them), state dicts by object, variables, and which version wrote it."""

    name: str  # of the file, for sentences
    attributes: dict[str, Any]
    parameters: dict[str, Any]
    variables: TensorDict = field(default_factory=dict)
    version: str = ""
    class_name: str = ""  # in our own files


def path_of(source: Source) -> Any:
    """A path with `.zip` added where that is what exists; an open file as it is."""
    if not isinstance(source, str | Path):
        return source
    path = Path(source)
    added = path.with_name(f"{path.name}.zip")
    path = path if path.is_file() or not added.is_file() else added
    if not path.is_file():
        raise MissingFile(f"{path} does not exist: give the path of a model's file.")
    return path


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Errors of damaged files as one sentence."""
    try:
        yield
    except UserError:
        raise
    except (OSError, SafetensorError, *DAMAGE) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(
            f"{name} is damaged or no model of Stable-Baselines3 ({reason:.160})."
        ) from None


def read_model(source: Source) -> ModelFile:
    """Reads a model's file; a UserError says what is wrong with it."""
    path = path_of(source)
    name = str(path) if isinstance(path, Path) else "the open file"
    with reading(name), zipfile.ZipFile(path) as archive:
        members = checked_members(archive, name)
        attributes = read_table(archive, DATA, name)
        if OURS in members:
            return read_ours(archive, attributes, name)
        objects = {
            member: read_tensors(archive.read(member), f"{name}: {member}")
            for member in members
            if member.endswith(".pth")
        }
        version = (
            archive.read(VERSION)[:40].decode("ascii", "replace") if VERSION in members else ""
        )
    variables = next((objects.pop(n) for n in (VARIABLES, OLD_VARIABLES) if n in objects), None)
    variables = {} if variables is None else variables
    parameters = {member.removesuffix(".pth"): values for member, values in objects.items()}
    require_tensors(name, "policy", parameters.get("policy"))
    if isinstance(variables, dict):  # what a model does not learn is None
        variables = {key: value for key, value in variables.items() if value is not None}
    require_tensors(name, VARIABLES, variables)
    return ModelFile(name, attributes, parameters, variables, version.strip())


def checked_members(archive: zipfile.ZipFile, name: str) -> list[str]:
    """The members' names; refuses what no model's file holds, and what would not fit in memory."""
    infos = archive.infolist()
    members = [info.filename for info in infos]
    if len(infos) > MEMBERS or len(set(members)) < len(members):
        raise UserError(f"{name} holds {len(infos):,} files or one twice: no model's file does.")
    total = 0
    for info in infos:
        total += info.file_size
        text = not info.filename.endswith((".pth", ".safetensors"))
        limit = TEXT_LIMIT if text else TENSOR_LIMIT
        if info.file_size > limit or total > TENSOR_LIMIT + TEXT_LIMIT:
            raise UserError(
                f"{name} holds {quoted(info.filename)} of {info.file_size:,} bytes, more than the "
                f"{limit:,} that are read."
            )
        if not text and info.file_size > MEGABYTE + RATIO * info.compress_size:
            raise UserError(
                f"{name} holds {quoted(info.filename)} that grows from {info.compress_size:,} to "
                f"{info.file_size:,} bytes, which weights do not."
            )
        if info.flag_bits & 1:
            raise UserError(f"{name} is encrypted, which models' files are not.")
    if DATA not in members or not {"policy.pth", OURS} & set(members):
        raise UserError(
            f"{name} is no model of Stable-Baselines3: it has no data or no policy.pth."
        )
    return members


def read_table(archive: zipfile.ZipFile, member: str, name: str) -> dict[str, Any]:
    try:
        table = parsed(archive.read(member))
    except ValueError as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{name} is damaged: {member} is no JSON ({reason:.100}).") from None
    if not isinstance(table, dict):
        raise UserError(f"{name} is damaged: {member} is no table of names and values.")
    return table


def read_tensors(content: bytes, what: str) -> Any:
    """What torch saved: containers of tensors and plain values alone."""
    try:
        if zipfile.is_zipfile(io.BytesIO(content)):  # as torch writes it, but for old versions
            with zipfile.ZipFile(io.BytesIO(content)) as inner:
                if sum(info.file_size for info in inner.infolist()) > len(content) + MEGABYTE:
                    raise UserError(f"{what} is packed, which torch does not do.")
        return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except UserError:
        raise
    except Exception as error:  # torch's reader may complain in any way
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(
            f"{what} cannot be read as tensors ({reason:.100}): nothing of it was run."
        ) from None


def require_tensors(name: str, what: str, values: Any) -> None:
    """Refuses what is no table of dense, finite tensors."""
    if not isinstance(values, dict):
        raise UserError(f"{name} is damaged: {what} is no table of tensors.")
    for key, value in values.items():
        require_tensor(name, f"{what}: {quoted(key)}", value)


def require_tensor(name: str, what: str, value: Any) -> None:
    dense = isinstance(value, torch.Tensor) and value.layout == torch.strided
    if not dense or value.is_quantized or value.is_complex() or not value.is_cpu:
        raise UserError(f"{name} is damaged: {what} is no dense tensor.")
    # a few numbers may pose as many
    if value.numel() > max(1, value.untyped_storage().nbytes() // value.element_size()):
        raise UserError(f"{name} is damaged: {what} has more numbers than are stored.")
    if not torch.isfinite(value).all():
        raise UserError(f"{name} is damaged: {what} is not finite.")


# our own files, for where Stable-Baselines3 is not installed


def write_ours(
    target: Any,
    class_name: str,
    attributes: dict[str, Any],
    parameters: dict[str, Any],
    variables: TensorDict,
) -> None:
    """The same contents as JSON and safetensors. `attributes` are plain values."""
    tensors, groups = {}, {}
    for name, values in parameters.items():
        if "param_groups" in values:  # an optimiser's
            groups[name] = values["param_groups"]
            values = {
                f"{number}.{key}": value
                for number, state in values["state"].items()
                for key, value in state.items()
            }
        tensors |= {f"{name}/{key}": value for key, value in values.items()}
    tensors |= {f"variables/{key}": value for key, value in variables.items()}
    dense = {key: value.detach().cpu().contiguous().clone() for key, value in tensors.items()}
    about = {"format": FORMAT, "class": class_name, "param_groups": groups}
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr(DATA, json.dumps(attributes, indent=1))
        archive.writestr(OURS, json.dumps(about))
        archive.writestr(TENSORS, save_tensors(dense))


def read_ours(archive: zipfile.ZipFile, attributes: dict[str, Any], name: str) -> ModelFile:
    about = read_table(archive, OURS, name)
    if about.get("format") != FORMAT:
        raise UserError(
            f"{name} is of format {quoted(about.get('format'))}, and this tenfold reads {FORMAT}: "
            "use a newer one."
        )
    groups = about.get("param_groups")
    if not isinstance(groups, dict) or TENSORS not in archive.namelist():
        raise UserError(f"{name} is damaged: {OURS} has no param_groups, or there are no tensors.")
    parameters: dict[str, Any] = {
        key: {"state": {}, "param_groups": group} for key, group in groups.items()
    }
    variables: TensorDict = {}
    tensors = load_tensors(archive.read(TENSORS))
    require_tensors(name, TENSORS, tensors)
    for key, value in tensors.items():
        object_name, _, inside = key.partition("/")
        number, _, moment = inside.partition(".")
        if object_name == "variables":
            variables[inside] = value
        elif object_name in groups and number.isdigit():
            parameters[object_name]["state"].setdefault(int(number), {})[moment] = value
        else:
            parameters.setdefault(object_name, {})[inside] = value
    if "policy" not in parameters:
        raise UserError(f"{name} is damaged: it holds no policy.")
    class_name = str(about.get("class"))
    return ModelFile(name, attributes, parameters, variables, "", class_name)

"""Spaces of Gymnasium from what a model's file says of them in text: Stable-Baselines3 pickles a
space and writes its attributes beside it, arrays as they are printed."""

import re
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from tenfold.core.errors import UserError

NUMBER = re.compile(r"-?inf|nan|[-+]?[0-9.]+(?:e[-+]?[0-9]+)?")
WHOLE = re.compile(r"-?[0-9]+")
KIND = re.compile(r"<class '(?:gym|gymnasium)\.spaces\.\w+\.(\w+)'>")
PRINTED = 1e-6  # relative precision of a number that was printed with eight digits
MOST = 2**24  # numbers of a space
FLOATS = ("float16", "float32", "float64")
TYPES = (*FLOATS, "uint8", "int8", "int16", "int32", "int64")


class UnreadSpace(UserError):
    """A space that the file does not tell in text; the environment says it."""


def saved_space(file: str, what: str, table: Any) -> gym.Space[Any]:
    """The space that a model's attribute describes."""
    if not isinstance(table, dict):
        raise UserError(f"{file} is damaged: {what} describes no space.")
    kind = KIND.fullmatch(str(table.get(":type:")))
    readers = {
        "Box": box,
        "Discrete": discrete,
        "MultiDiscrete": multi_discrete,
        "MultiBinary": multi_binary,
    }
    if not kind or kind[1] not in readers:
        raise UnreadSpace(
            f"{file}: {what} is {kind[1] if kind else 'of an unknown kind'}, which the file does "
            "not tell in text: give the environment with env=… (--env)."
        )
    try:
        return readers[kind[1]](table)
    except UnreadSpace:
        raise UnreadSpace(
            f"{file}: {what} has more numbers than the file tells in text: give the environment "
            "with env=… (--env)."
        ) from None
    except (ValueError, TypeError, KeyError, AssertionError, OverflowError) as error:
        reason = " ".join(str(error).split())
        raise UserError(
            f"{file} is damaged: {what} is no space that can be ({reason:.80})."
        ) from None


def shape_of(table: dict[str, Any]) -> tuple[int, ...]:
    shape = tuple(map(int, table.get("_shape") or table.get("shape") or ()))
    if any(side < 1 for side in shape) or np.prod(shape, dtype=float) > MOST:
        raise ValueError(f"its shape is {shape}")
    return shape


def numbers(printed: Any, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An array as NumPy prints it, as JSON has it, or one number for all."""
    text = str(printed)
    if "..." in text:
        raise UnreadSpace
    values = np.array([float(word) for word in NUMBER.findall(text)])
    count = int(np.prod(shape))
    if len(values) not in (1, count):
        raise ValueError(f"it has {len(values)} numbers of {count}")
    return np.broadcast_to(values, count).reshape(shape).astype(dtype)


def whole_number_of(printed: Any, usual: int = 0) -> int:
    digits = WHOLE.findall(str(usual if printed is None else printed))
    if len(digits) != 1:
        raise ValueError(f"{printed!a:.40} is no whole number")
    return int(digits[0])


def box(table: dict[str, Any]) -> spaces.Box:
    shape, kind = shape_of(table), str(table.get("dtype"))
    if kind not in TYPES:
        raise ValueError(f"its numbers are of type {kind:.20}")
    dtype = np.dtype(kind)
    low, high = (
        numbers(
            table.get(f"{name}_repr", "...") if "..." in str(table[name]) else table[name],
            shape,
            dtype,
        )
        for name in ("low", "high")
    )
    return spaces.Box(low, high, shape, dtype.type)


def discrete(table: dict[str, Any]) -> spaces.Discrete:
    count = whole_number_of(table["n"])
    if not 0 < count <= MOST:
        raise ValueError(f"it has {count} options")
    return spaces.Discrete(count, start=whole_number_of(table.get("start")))


def multi_discrete(table: dict[str, Any]) -> spaces.MultiDiscrete:
    nvec = np.array([int(word) for word in WHOLE.findall(str(table["nvec"]))])
    if "..." in str(table["nvec"]):
        raise UnreadSpace
    if not len(nvec) or nvec.max() > MOST:
        raise ValueError(f"it has {nvec} options")
    shape = shape_of(table) or nvec.shape
    start = numbers(table.get("start", 0), shape, np.int64)
    return spaces.MultiDiscrete(nvec.reshape(shape), start=start)


def multi_binary(table: dict[str, Any]) -> spaces.MultiBinary:
    shape = shape_of(table)
    if not shape:
        raise ValueError("it has no size")
    return spaces.MultiBinary(list(shape) if len(shape) > 1 else next(iter(shape)))


def require_same_space(what: str, saved: gym.Space[Any], here: gym.Space[Any]) -> None:
    """Refuses an environment whose space is another one; bounds may differ by what printing cuts
    off."""
    if isinstance(saved, spaces.Box) and isinstance(here, spaces.Box):
        same = saved.shape == here.shape and saved.dtype == here.dtype
        same = same and all(
            np.allclose(getattr(saved, name), getattr(here, name), rtol=PRINTED, atol=PRINTED)
            for name in ("low", "high")
        )
    else:
        same = saved == here
    if not same:
        raise OtherSpace(
            f"{what} of the environment is {here}, and the model was trained with {saved}: use an "
            "environment of the same spaces."
        )


class OtherSpace(UserError, ValueError):
    """An environment that a model was not trained in."""

"""The constants of C components with n₁ … n_C options each as NumPy arrays, for compiled code, and
how a bad value is named."""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple, TypeVar

import numpy as np
import torch

OnEmpty = Literal["raise", "absent"] | int
RAISE = -1  # the `fallback` of a component for which having no allowed option is an error
LOWEST = np.float32(np.finfo(np.float32).min)
Heads = TypeVar("Heads")


class HeadTables(NamedTuple):
    """The constants as NumPy arrays, for compiled code."""

    offsets: np.ndarray  # [C + 1], where each component begins; the last is M
    fallback: np.ndarray  # [C], the option that is left when every one is masked, or RAISE
    absent: bool  # such a component is no part of the action, rather than one that does its no-op

    @classmethod
    def of(cls, sizes: Sequence[int], on_empty: OnEmpty = "raise") -> "HeadTables":
        if not len(sizes) or any(int(n) != n or n < 1 for n in sizes):
            raise ValueError(
                "sizes must be whole numbers of at least 1, one for each component; they are "
                f"{tuple(sizes)}"
            )
        if isinstance(on_empty, str):
            if on_empty not in ("raise", "absent"):
                raise ValueError(
                    'on_empty must be "raise", "absent" or the index of a no-op; it is '
                    f"{on_empty!r}"
                )
            fallback = [RAISE if on_empty == "raise" else 0] * len(sizes)
        else:
            for i, n in enumerate(sizes):
                if not -n <= on_empty < n:
                    raise ValueError(
                        f"on_empty = {on_empty} is no option of component {i}, which has {n}"
                    )
            fallback = [on_empty % n for n in sizes]  # −1 is the last option
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        return cls(offsets, np.array(fallback, np.int64), on_empty == "absent")


def some_mask(
    rng: np.random.Generator, sizes: Sequence[int], rows: tuple[int, ...], empty: bool
) -> torch.Tensor:
    """About half the options, at least one of each component; with `empty` a third of the
    components have none."""
    masks = []
    for n in sizes:
        mask = rng.random((*rows, n)) < 0.5
        np.put_along_axis(mask, rng.integers(0, n, (*rows, 1)), True, -1)
        masks.append(mask & (rng.random((*rows, 1)) > 0.33) if empty else mask)
    return torch.from_numpy(np.concatenate(masks, -1))


def cases(
    rng: np.random.Generator, dtype: str, make: Callable[[Sequence[int], OnEmpty], Heads]
) -> Iterator[tuple[Heads, torch.Tensor, torch.Tensor | None]]:
    """Heads, logits and mask: equal and ragged, one option, batch 1, sequences, no mask, empty
    components."""
    settings: list[tuple[tuple[int, ...], tuple[int, ...], OnEmpty]] = [
        ((3,), (1,), "raise"),
        ((4, 4, 4), (5,), "raise"),
        ((2, 5, 1, 3), (4,), "raise"),
        ((2, 5, 1, 3), (2, 3), "absent"),
        ((3, 3), (6,), "absent"),
        ((2, 4), (5,), -1),
        ((8,) * 10, (8,), "raise"),
    ]
    for sizes, rows, on_empty in settings:
        heads = make(sizes, on_empty)
        logits = torch.from_numpy(3 * rng.normal(size=(*rows, sum(sizes)))).to(
            getattr(torch, dtype)
        )
        yield heads, logits, some_mask(rng, sizes, rows, on_empty != "raise")
        if on_empty == "raise":
            yield heads, 3 * logits, None


# where compiled code may look


def on_cpu(tensor: torch.Tensor) -> bool:
    """Whether compiled code may look at its memory."""
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling()


def compiled(logits: torch.Tensor) -> bool:
    return (
        logits.dtype == torch.float32
        and on_cpu(logits)
        and not (logits.requires_grad and torch.is_grad_enabled())
    )


# the sentence of an error


def first_bad(bad: torch.Tensor) -> tuple[int | tuple[int, ...], int]:
    """(row, column) of the first True; the row is a tuple when there are several leading
    dimensions."""
    *row, column = bad.nonzero()[0].tolist()
    return row[0] if len(row) == 1 else tuple(row), column


def describe_first(bad: torch.Tensor) -> str:
    row, component = first_bad(bad)
    return f"row {row}, component {component}"

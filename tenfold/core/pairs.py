"""The registry of pairs: every fast path with its plain reference, its tolerance and the inputs to
try.

`tests/core/test_pairs.py` and `tenfold check` walk this one list. `pair` returns the very function
it is given, so that other compiled code can call it.
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch

Function = TypeVar("Function", bound=Callable[..., Any])
Example = Callable[[np.random.Generator, str], Iterator[tuple[Any, ...]]]


@dataclass(frozen=True)
class Pair:
    """`fast(*inputs)` equals `reference(*inputs)` within |difference| ≤ atol + rtol·|reference|,
    for all examples."""

    name: str
    fast: Callable[..., Any]
    reference: Callable[..., Any]
    example: Example
    rtol: float
    atol: float
    dtypes: tuple[str, ...]
    gradients: tuple[int, ...]
    when: Callable[[], bool] = lambda: True


@dataclass(frozen=True)
class Verdict:
    """The largest excess over tolerance found: `worst` ≤ 1 is equal. `difference` is the largest
    absolute difference."""

    name: str
    difference: float
    worst: float
    tolerance: str
    cases: int

    @property
    def equal(self) -> bool:
        return self.worst <= 1.0


PAIRS: dict[str, Pair] = {}


def pair(
    reference: Callable[..., Any],
    example: Example,
    *,
    name: str = "",
    rtol: float = 0.0,
    atol: float = 0.0,
    dtypes: tuple[str, ...] = ("float32",),
    gradients: tuple[int, ...] = (),
    when: Callable[[], bool] = lambda: True,
) -> Callable[[Function], Function]:
    """Registers the decorated function as the fast form of `reference`.

    `example(rng, dtype)` yields argument tuples: odd shapes, batch 1, edges. Tensors at the
    positions in `gradients` are differentiated on both sides and their gradients compared too. A
    function that works in place returns what it changed. `when` says whether it can run here.
    """

    def register(fast: Function) -> Function:
        label = name or f"{fast.__module__.removeprefix('tenfold.')}.{fast.__name__}"
        PAIRS[label] = Pair(label, fast, reference, example, rtol, atol, dtypes, gradients, when)
        return fast

    return register


def all_pairs() -> list[Pair]:
    """Every pair of the package; importing a module registers its pairs."""
    rooms = (
        "ops",
        "nets",
        "memory",
        "envs",
        "runs",
        "algorithms",
        "domains",
        "integrations.masked",
    )
    for folder in rooms:
        package = importlib.import_module(f"tenfold.{folder}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            try:
                importlib.import_module(module.name)
            except ModuleNotFoundError as error:
                if error.name != "triton":  # what runs on a GPU alone is not there without it
                    raise
    return [PAIRS[name] for name in sorted(PAIRS) if PAIRS[name].when()]


def check_pair(tested: Pair, seed: int = 0) -> Verdict:
    """Runs both sides on every example, twice in a row, and compares results and gradients."""
    difference = worst = 0.0
    cases = 0
    for dtype in tested.dtypes:
        for _repeat in range(2):
            for inputs in tested.example(np.random.default_rng(seed), dtype):
                expected = outcome(tested.reference, inputs, tested.gradients)
                actual = outcome(tested.fast, inputs, tested.gradients)
                cases += 1
                if len(expected) != len(actual):
                    return Verdict(tested.name, np.inf, np.inf, "number of results differs", cases)
                for e, f in zip(expected, actual, strict=True):
                    error, excess = compare(e, f, tested.rtol, tested.atol)
                    difference, worst = max(difference, error), max(worst, excess)
    exact = tested.rtol == 0 and tested.atol == 0
    return Verdict(
        tested.name,
        difference,
        worst,
        "exact" if exact else f"{tested.rtol:g} rel {tested.atol:g} abs",
        cases,
    )


def outcome(
    function: Callable[..., Any], inputs: tuple[Any, ...], gradients: tuple[int, ...]
) -> list[np.ndarray]:
    """Results as arrays, then the gradients of a fixed weighted sum of the first result."""
    arguments = [fresh(value, position in gradients) for position, value in enumerate(inputs)]
    result = function(*arguments)
    results = list(result) if isinstance(result, tuple | list) else [result]
    arrays = [to_array(r) for r in results]
    if gradients:
        weights = torch.linspace(0.5, 1.5, results[0].numel(), dtype=results[0].dtype).view_as(
            results[0]
        )
        (results[0] * weights).sum().backward()
        arrays += [to_array(arguments[g].grad) for g in gradients]
    return arrays


def fresh(value: Any, differentiate: bool) -> Any:
    """A copy, since either side may work in place."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone().requires_grad_(differentiate)
    return value.copy() if isinstance(value, np.ndarray) else value


def to_array(value: Any) -> np.ndarray:
    if not isinstance(value, torch.Tensor):
        return np.asarray(value)
    value = value.detach().cpu()
    return value.double().numpy() if value.is_floating_point() else value.numpy()


def compare(
    expected: np.ndarray, actual: np.ndarray, rtol: float, atol: float
) -> tuple[float, float]:
    """(largest absolute difference, largest difference in units of the tolerance); shapes and NaN
    must agree."""
    if expected.shape != actual.shape:
        return np.inf, np.inf
    if expected.dtype.kind in "iub" or actual.dtype.kind in "iub":
        different = float(np.max(expected != actual, initial=0))
        return different, different * 2
    expected, actual = expected.astype(np.float64), actual.astype(np.float64)
    if not np.array_equal(np.isfinite(expected), np.isfinite(actual)):
        return np.inf, np.inf
    error = np.abs(np.where(np.isfinite(expected), expected - actual, 0.0))
    allowed = atol + rtol * np.abs(expected)
    with np.errstate(divide="ignore", invalid="ignore"):
        excess = np.where(error == 0, 0.0, error / allowed)
    return float(np.max(error, initial=0)), float(np.max(excess, initial=0))

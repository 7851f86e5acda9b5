"""Networks. `ten.nets.mlp(…)` is the plain one, for algorithms and networks of one's own."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tenfold.nets.perceptron import mlp as mlp

__all__ = ["mlp"]


def __getattr__(name: str) -> Any:
    if name != "mlp":
        raise AttributeError(f"module 'tenfold.nets' has no attribute {name!r}")
    return import_module("tenfold.nets.perceptron").mlp

"""How every compiled function is compiled: once, kept on disk, with NumPy's rules of arithmetic."""

from typing import Any

from numba import njit


def kernel(function: Any = None, **options: Any) -> Any:
    """Numba's `njit` with our options, and more of them where a function asks. The wrapper for
    calls from C, which nobody makes, is not compiled."""
    ours: dict[str, Any] = {"error_model": "numpy", "no_cfunc_wrapper": True} | options

    def compiled(function: Any) -> Any:
        try:
            return njit(cache=True, **ours)(function)
        except RuntimeError:  # neither the package's folder nor the user's can be written to
            return njit(**ours)(function)

    return compiled(function) if function else compiled

"""Compiled functions where nothing compiled can be kept."""

from typing import Any

import pytest

from tenfold.core import kernels


def test_where_no_folder_can_be_written_to_functions_compile_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = kernels.njit

    def nowhere(*given: Any, cache: bool = False, **options: Any) -> Any:
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return real(*given, **options)

    monkeypatch.setattr(kernels, "njit", nowhere)

    @kernels.kernel
    def twice(x):
        return 2 * x

    @kernels.kernel(inline="always")
    def thrice(x):
        return 3 * x

    assert twice(4) == 8 and thrice(5) == 15

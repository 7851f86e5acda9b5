"""Graphs are recorded while nothing is collected."""

import gc
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from tenfold.core.capture import capturing


def test_no_garbage_is_collected_while_a_graph_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    graph: Any = object()
    asked: list[tuple[Any, ...]] = []

    def of_torch(*given: Any, **named: Any) -> Any:
        asked.append((*given, named["pool"]))
        return nullcontext()

    monkeypatch.setattr(torch.cuda, "graph", of_torch)
    before = gc.isenabled()
    try:
        for collects in (True, False):  # it is as it was afterwards, also behind an error
            (gc.enable if collects else gc.disable)()
            with pytest.raises(RuntimeError, match="not recorded"), capturing(graph, "pool"):
                assert not gc.isenabled()
                raise RuntimeError("not recorded")
            assert gc.isenabled() == collects
    finally:
        (gc.enable if before else gc.disable)()
    assert asked == [(graph, "pool")] * 2

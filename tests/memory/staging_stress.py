"""A stress of the way to a device, for the CPU and for CUDA."""

import torch

from tenfold.memory.staging import Staging

SIZES = (3, 4096, 17, 100_000)


def stress(staging: Staging, batches: int) -> None:
    """Batches whose numbers all equal their index are sent one after another, their source spoiled
    at once; none arrives torn."""
    device = staging.device
    source = {
        "obs": torch.zeros(max(SIZES), 3),
        "action": torch.zeros(max(SIZES), dtype=torch.int64),
    }
    weight = torch.randn(512, 512, device=device) if device.type == "cuda" else None
    seen = []
    for number in range(batches):
        size = SIZES[number % len(SIZES)]
        rows = {name: value[:size].fill_(number) for name, value in source.items()}
        index = torch.arange(size).flip(0) if number % 2 else None
        sent = staging.send(rows, index)
        if weight is not None:
            for _ in range(4):  # the device lags behind the host
                weight = (weight @ weight).tanh()
        seen.append(
            torch.stack(
                [
                    most(sent[name].double())
                    for name in ("obs", "action")
                    for most in (torch.amin, torch.amax)
                ]
            )
        )
        assert all(
            value.device.type == device.type and len(value) == size for value in sent.values()
        )
        for value in source.values():
            value.fill_(-1)
    assert torch.equal(
        torch.stack(seen).cpu(), torch.arange(batches, dtype=torch.float64)[:, None].expand(-1, 4)
    )

"""The machine: how many of its threads are used."""

import torch


def set_threads(count: int) -> None:
    """Threads of PyTorch, and of the BLAS inside compiled code, which is SciPy's and has a pool of
    its own."""
    torch.set_num_threads(count)
    import scipy.linalg.blas  # noqa: F401  it must be loaded to be told
    from threadpoolctl import threadpool_limits

    threadpool_limits(count, "blas")

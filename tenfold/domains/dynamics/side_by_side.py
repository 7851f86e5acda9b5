"""Small symmetric matrices of many samples side by side, [W, W, B], compiled: loops over samples
vectorise where one call for each sample does not."""

import numpy as np

from tenfold.core.kernels import kernel


@kernel
def inner(first, second, out):
    """Σ_p first·second of [P, B], for every sample; eight features at a time, so that a sum is
    loaded once for eight."""
    count, samples = first.shape
    whole = count - count % 8
    out[:] = 0.0
    for p in range(0, whole, 8):
        x, y = first[p : p + 8], second[p : p + 8]
        for b in range(samples):
            out[b] += (
                (x[0, b] * y[0, b] + x[1, b] * y[1, b])
                + (x[2, b] * y[2, b] + x[3, b] * y[3, b])
                + (
                    (x[4, b] * y[4, b] + x[5, b] * y[5, b])
                    + (x[6, b] * y[6, b] + x[7, b] * y[7, b])
                )
            )
    for p in range(whole, count):
        for b in range(samples):
            out[b] += first[p, b] * second[p, b]


@kernel
def factorise(small):
    """Cholesky L·Lᵀ of the lower halves of [W, W, B], all samples side by side: L in their place,
    its diagonal squared."""
    width, _, samples = small.shape
    root = np.empty(samples)
    for j in range(width):
        for k in range(j):
            for b in range(samples):
                small[j, j, b] -= small[j, k, b] * small[j, k, b]
        for b in range(samples):
            root[b] = 1 / np.sqrt(small[j, j, b])
        for i in range(j + 1, width):
            row = small[i, j]
            for k in range(j):
                for b in range(samples):
                    row[b] -= small[i, k, b] * small[j, k, b]
            for b in range(samples):
                row[b] *= root[b]


@kernel
def add_log_determinant(small, share, worth):
    """Adds share · log det of the symmetric matrices whose lower halves are given; they are
    overwritten."""
    factorise(small)
    for j in range(small.shape[0]):
        for b in range(small.shape[2]):
            worth[b] += share * np.log(small[j, j, b])


@kernel
def add_trace_of_solution(small, right, share, worth):
    """Adds share · tr(S⁻¹·R) = share · tr(L⁻¹·R·L⁻ᵀ), S = L·Lᵀ by its lower half and R symmetric;
    both are overwritten.

    By loops over all samples: for np.linalg.solve Numba compiles, for seconds, sentences about
    shapes that differ.
    """
    factorise(small)
    solve_lower(small, right)
    width, _, samples = right.shape
    for i in range(width):
        for j in range(i):
            for b in range(samples):
                right[i, j, b], right[j, i, b] = right[j, i, b], right[i, j, b]
    solve_lower(small, right)
    for j in range(width):
        for b in range(samples):
            worth[b] += share * right[j, j, b]


@kernel
def solve_lower(small, right):
    """right ← L⁻¹·right, L as `factorise` leaves it."""
    width, _, samples = right.shape
    for i in range(width):
        for j in range(width):
            for k in range(i):
                for b in range(samples):
                    right[i, j, b] -= small[i, k, b] * right[k, j, b]
            for b in range(samples):
                right[i, j, b] /= np.sqrt(small[i, i, b])

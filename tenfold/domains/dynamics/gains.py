"""What paths add to the information of weights on features, compiled: `full_gain` and
`diagonal_gain`.

Sensitivities need not be formed. S_{t+1} = J_t·S_t + dt·φ_t ⊗ I says N·S = dt·Φ ⊗ I with N
block-bidiagonal, 1 on its diagonal, so that det N = 1. With J̃ = V^(−½)·J·V^½ in N, and with G =
Φ·F⁻¹·Φᵀ [H, H], G₂ = Φ·F⁻²·Φᵀ,

    log det(A + U) − log det A = log det(N·Nᵀ + G ⊗ I)
    tr A⁻¹ − tr (A + U)⁻¹ = tr((N·Nᵀ + G ⊗ I)⁻¹·(G₂ ⊗ V/dt²))

which are H·D numbers wide; F⁻¹ meets each feature vector once. Small symmetric matrices of many
samples lie side by side, [W, W, B]: loops over samples vectorise where one call for each sample
does not.
"""

import numpy as np

from tenfold.core.kernels import kernel
from tenfold.domains.dynamics.information import D_OPTIMAL

# ratios, each a float32, multiplied before one logarithm is taken: their product fits a float64
FOLD = 8


@kernel
def diagonal_gain(known, variance, dt, phi, slope, criterion, share, worth):
    """Each parameter's sensitivity is a recursion of D numbers on its own: nothing of size K is
    kept for a sample. known [P], phi [H, P, B], slope [H, D, D, B]."""
    count, samples = phi.shape[1:]
    size = slope.shape[1]
    narrow = (1 / variance).astype(np.float32)
    # one array for all that is written: the compiler must show that what it reads and writes is
    # apart before it vectorises
    scratch, product = np.empty((2 * size + 1, samples), np.float32), np.ones(samples)
    added = scratch[2 * size]
    for d in range(size):
        for p in range(count):
            if size == 2:
                add_planar(d, p, dt, narrow, phi, slope, scratch)
            else:
                add_any(d, p, dt, narrow, phi, slope, scratch)
            before = known[p] * dt * dt * narrow[d]
            if criterion == D_OPTIMAL:
                for b in range(samples):
                    product[b] *= 1 + added[b] / before
                if p % FOLD == FOLD - 1 or p == count - 1:
                    for b in range(samples):
                        worth[b] += share * np.log(product[b])
                        product[b] = 1
            else:
                for b in range(samples):
                    worth[b] += share * (added[b] / (before * (before + added[b])))


@kernel
def add_planar(d, p, dt, narrow, phi, slope, scratch):
    """`add_any` for states of two numbers, in one loop: a quarter of its time."""
    s0, s1, added, n0, n1 = scratch[0], scratch[1], scratch[4], narrow[0], narrow[1]
    to0, to1 = dt * np.float32(d == 0), dt * np.float32(d == 1)
    samples = added.size
    scratch[:] = np.float32(0)
    for t in range(phi.shape[0]):
        j, f = slope[t], phi[t, p]
        for b in range(samples):
            x = j[0, 0, b] * s0[b] + j[0, 1, b] * s1[b] + to0 * f[b]
            y = j[1, 0, b] * s0[b] + j[1, 1, b] * s1[b] + to1 * f[b]
            s0[b], s1[b] = x, y
            added[b] += n0 * x * x + n1 * y * y


@kernel
def add_any(d, p, dt, narrow, phi, slope, scratch):
    """Σ_t S_tᵀ·V⁻¹·S_t of the weight of feature p in dimension d, for every sample, into the last
    row of `scratch`."""
    size, samples = slope.shape[1], scratch.shape[1]
    scratch[:] = np.float32(0)
    added = scratch[2 * size]
    for t in range(phi.shape[0]):
        s, after = scratch[t % 2 * size :], scratch[(t + 1) % 2 * size :]
        for i in range(size):
            row, scale = after[i], dt * np.float32(i == d)
            for b in range(samples):
                row[b] = scale * phi[t, p, b]
            for k in range(size):
                for b in range(samples):
                    row[b] += slope[t, i, k, b] * s[k, b]
            for b in range(samples):
                added[b] += narrow[i] * row[b] * row[b]


@kernel
def full_gain(known, variance, dt, phi, slope, criterion, share, worth):
    """known is F⁻¹ [P, P]; phi [H, P, B], slope [H, D, D, B]."""
    horizon, count, samples = phi.shape
    size = slope.shape[1]
    inverse, through = known.astype(np.float32), np.empty((horizon, count, samples), np.float32)
    for t in range(horizon):
        np.dot(inverse, phi[t], through[t])
    small = np.zeros((horizon * size, horizon * size, samples))
    products = np.empty(samples)
    for t in range(horizon):
        for s in range(t + 1):
            inner(phi[t], through[s], products)
            for d in range(size):
                for b in range(samples):
                    small[t * size + d, s * size + d, b] = products[b]
    add_recursion(variance, slope, small)
    if criterion == D_OPTIMAL:
        add_log_determinant(small, share, worth)
        return
    squares = np.zeros((horizon * size, horizon * size, samples))
    for t in range(horizon):
        for s in range(horizon):
            inner(through[t], through[s], products)
            for d in range(size):
                for b in range(samples):
                    squares[t * size + d, s * size + d, b] = products[b] * (variance[d] / (dt * dt))
    add_trace_of_solution(small, squares, share, worth)


@kernel
def add_recursion(variance, slope, small):
    """Adds the lower half of N·Nᵀ to `small` [H·D, H·D, B]: 1 + J̃·J̃ᵀ on the diagonal, −J̃ below
    it."""
    horizon, size, _, samples = slope.shape
    for t in range(horizon):
        for i in range(size):
            for b in range(samples):
                small[t * size + i, t * size + i, b] += 1
            for k in range(size if t else 0):
                scale = np.sqrt(variance[k] / variance[i])
                for b in range(samples):
                    small[t * size + i, (t - 1) * size + k, b] -= scale * slope[t, i, k, b]
            for j in range(i + 1 if t else 0):
                for k in range(size):
                    scale = variance[k] / np.sqrt(variance[i] * variance[j])
                    for b in range(samples):
                        small[t * size + i, t * size + j, b] += (
                            scale * slope[t, i, k, b] * slope[t, j, k, b]
                        )


# small symmetric matrices of many samples


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

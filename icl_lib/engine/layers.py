"""One transformer layer and its gradient over a block of prompts, compiled by Numba.

Linear self-attention has no softmax, so a layer needs no S × S product (eqs (9), (12)):

    H = Q A,   A = Σ_k (W3_k W1_k) (QᵀQ) W2_k,

one D × D matrix A for each prompt. A is linear in the Gram matrix QᵀQ, and so is the centring of layer norm,
which therefore costs nothing: it is folded into W2 (`maps.py`).

The first layer reads tokens instead of Q_1 = P W_inᵀ: its H = P A with A of shape (P, D), linear in the
tokens' moments PᵀP, which never change. So F, the width of what a layer reads, is P in the first layer and D
after it.

Every array is flat and holds a block of prompts with the prompt index innermost ("lanes"): cell (n, d) of
prompt i sits at `(n*D + d)*LANES + i`. The innermost loops run over independent prompts, so they vectorise
without reordering any sum, and a sum over rows is the same on every processor. Values used twice in a loop
are kept in tuples: these become registers, where an array would be written to memory and read back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numba
import numpy as np
from numba.cpython.unsafe.tuple import tuple_setitem as put

LANES = 32  # prompts side by side; a power of two, part of the definition of the result (it orders sums)

# error_model="numpy": a division must not branch. No fastmath: strict IEEE, no fused multiply-add. No cache
# on disk: it does not see changes in the functions that a function calls, and a stale kernel gives wrong
# numbers at full speed.
compiled = numba.njit(error_model="numpy")
# For what has one or two callers: merged into them, and compiled with them only.
inlined = numba.njit(error_model="numpy", inline="always")


class Layer(NamedTuple):
    """The compiled passes of one layer, see `make_layer`."""

    mix: Callable[..., None]
    mix_gradient: Callable[..., None]
    forward: Callable[..., None]
    backward: Callable[..., None]


def part(length: int, most: int = 16) -> int:
    """The largest divisor of a loop's length that is not above `most`."""
    return max(size for size in range(1, most + 1) if length % size == 0)


def make_layer(
    *, rows: int, width: int, dim: int, layer_norm: bool, eps: float, dtype: type, first: bool, last: bool
) -> Layer:
    """Compile a layer for fixed sizes.

    Args:
        rows: S, tokens of a prompt.
        width: F, numbers in a row of the layer's input x: P if `first`, else D.
        dim: D.
        layer_norm: normalise H.
        eps: layer norm's eps.
        dtype: np.float32 or np.float64.
        first: x holds tokens; the layer embeds them itself.
        last: the layer reads out instead of passing on.
    """
    S, F, D = rows, width, dim
    U, V = F * (F + 1) // 2, D * (D + 1) // 2  # cells of a symmetric F × F, D × D matrix
    EPS, ONE, INVERSE_D = dtype(eps), dtype(1.0), dtype(1.0 / dim)
    ZERO = dtype(-0.0)  # where sums start: x + (−0) is x for every x, so that the compiler drops it
    ROW_F, ROW_D = (ZERO,) * F, (ZERO,) * D

    # A lane loop is vectorised only if the loops inside it are unrolled whole, so long sums go in pieces.
    PART_U, PART_C = part(U), part(F * D)

    @compiled
    def mix(T, gram, A):  # type: ignore[no-untyped-def]
        """A = T·gram, one product for each prompt: T (F·D, U), gram (U, lanes), A (F·D, lanes)."""
        for c in range(F * D * LANES):
            A[c] = ZERO
        for c in range(F * D):
            for start in range(0, U, PART_U):
                for i in range(LANES):
                    s = A[c * LANES + i]
                    for u in range(PART_U):
                        s += T[c * U + start + u] * gram[(start + u) * LANES + i]
                    A[c * LANES + i] = s

    @compiled
    def mix_gradient(T, gram, dA, dT, dgram):  # type: ignore[no-untyped-def]
        """Add this block's share to dT (F·D·U, lanes); set dgram, laid out as a full symmetric F × F matrix.

        `dgram` is doubled on the diagonal, so that the gradient of QᵀQ is the plain product Q·dgram.
        """
        for c in range(F * D):
            for start in range(0, U, PART_U):
                for i in range(LANES):
                    a = dA[c * LANES + i]
                    for u in range(start, start + PART_U):
                        dT[(c * U + u) * LANES + i] += a * gram[u * LANES + i]
        if not first:  # the tokens' moments have no gradient
            u = 0
            for a in range(F):
                for b in range(a, F):
                    for i in range(LANES):
                        dgram[(a * F + b) * LANES + i] = ZERO
                    for start in range(0, F * D, PART_C):
                        for i in range(LANES):
                            s = dgram[(a * F + b) * LANES + i]
                            for c in range(start, start + PART_C):
                                s += T[c * U + u] * dA[c * LANES + i]
                            dgram[(a * F + b) * LANES + i] = s
                    for i in range(LANES):
                        s = dgram[(a * F + b) * LANES + i]
                        if a == b:
                            s = s + s
                        dgram[(a * F + b) * LANES + i] = s
                        dgram[(b * F + a) * LANES + i] = s
                    u += 1

    @compiled
    def forward(x, A, W_in, y, r, q, gram, W_out, out):  # type: ignore[no-untyped-def]
        """H = x A, its normal form y and divisor r, then Q_{l+1} and its Gram matrix, or the read-out.

        x (S·F, lanes); A (F·D, lanes); y, q (S·D, lanes); r (S, lanes) is 1/sqrt(variance + eps); gram (V,
        lanes); out (lanes,). Without layer norm y is H and r is not written. `last` writes out, all others q
        and gram.
        """
        if last:
            for i in range(LANES):
                out[i] = ZERO
        else:
            for c in range(V * LANES):
                gram[c] = ZERO
        for n in range(S):
            for i in range(LANES):
                p, h, variance = ROW_F, ROW_D, ZERO
                for f in range(F):
                    p = put(p, f, x[(n * F + f) * LANES + i])
                for d in range(D):
                    s = ZERO
                    for f in range(F):
                        s += p[f] * A[(f * D + d) * LANES + i]
                    h = put(h, d, s)
                    variance += s * s
                if layer_norm:
                    s = ONE / np.sqrt(variance * INVERSE_D + EPS)
                    r[n * LANES + i] = s
                    for d in range(D):
                        h = put(h, d, h[d] * s)
                for d in range(D):
                    y[(n * D + d) * LANES + i] = h[d]
                    if first:
                        s = ZERO
                        for f in range(F):
                            s += W_in[d * F + f] * p[f]
                    else:
                        s = p[d]
                    h = put(h, d, s + h[d])
                if last:
                    s = out[i]
                    for d in range(D):
                        s += W_out[n * D + d] * h[d]
                    out[i] = s
                else:
                    c = 0
                    for a in range(D):
                        q[(n * D + a) * LANES + i] = h[a]
                        for b in range(a, D):
                            gram[c * LANES + i] += h[a] * h[b]
                            c += 1

    @compiled
    def backward(x, A, W_in, y, r, q, dgram, dq, dA, dW_in, W_out, dout, dW_out):  # type: ignore[no-untyped-def]
        """The twin of `forward`: from dout, or dq and dgram of Q_{l+1}, to dA and to dq of Q_l.

        dq (S·D, lanes) comes in as the gradient of Q_{l+1} without its Gram matrix's share and leaves as that
        of Q_l. dA (F·D, lanes) is set; dW_in (D·P, lanes), dW_out (S·D, lanes) are added to.
        """
        for c in range(F * D * LANES):
            dA[c] = ZERO
        for n in range(S):
            for i in range(LANES):
                p, h, e = ROW_F, ROW_D, ROW_D
                for f in range(F):
                    p = put(p, f, x[(n * F + f) * LANES + i])
                for d in range(D):
                    h = put(h, d, y[(n * D + d) * LANES + i])
                if last:
                    g = dout[i]
                    for d in range(D):
                        if first:
                            s = ZERO
                            for f in range(F):
                                s += W_in[d * F + f] * p[f]
                        else:
                            s = p[d]
                        dW_out[(n * D + d) * LANES + i] += g * (s + h[d])
                        e = put(e, d, g * W_out[n * D + d])
                else:
                    z = ROW_D
                    for d in range(D):
                        z = put(z, d, q[(n * D + d) * LANES + i])
                    for d in range(D):
                        s = dq[(n * D + d) * LANES + i]
                        for b in range(D):
                            s += z[b] * dgram[(b * D + d) * LANES + i]
                        e = put(e, d, s)
                # e is the gradient of Q_{l+1} and of y; h turns from y into the gradient of H.
                if layer_norm:
                    s = ZERO
                    for d in range(D):
                        s += e[d] * h[d]
                    s = s * INVERSE_D
                    t = r[n * LANES + i]
                    for d in range(D):
                        h = put(h, d, t * (e[d] - s * h[d]))
                else:
                    h = e
                for f in range(F):
                    for d in range(D):
                        dA[(f * D + d) * LANES + i] += p[f] * h[d]
                if first:
                    for d in range(D):
                        for f in range(F):
                            dW_in[(d * F + f) * LANES + i] += e[d] * p[f]
                else:
                    for f in range(F):
                        s = e[f]
                        for d in range(D):
                            s += h[d] * A[(f * D + d) * LANES + i]
                        dq[(n * D + f) * LANES + i] = s

    return Layer(mix, mix_gradient, forward, backward)

"""From weights to each layer's linear map T from Gram matrix to mixing matrix, and back for gradients.

With B_k = W3_k W1_k and C_k = s·W2_k J, where s is the attention scale and J = I − 11ᵀ/D centres a row of H
for layer norm (J = I without it), a layer's mixing matrix is A = Σ_k left_k G right_k:

    first layer:   left = W_inᵀ B W_in  (P, P),   right = W_inᵀ C  (P, D),   G = PᵀP of the tokens;
    later layers:  left = B  (D, D),              right = C  (D, D),         G = QᵀQ.

G is symmetric, so A is read as a product T·g with its U = F(F+1)/2 distinct cells g: for any number of heads
a prompt pays for one such product. All of this happens once a step, not once a prompt.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numba
import numpy as np

from icl_lib.engine.layers import compiled, inlined


class Maps(NamedTuple):
    """The compiled passes of `make_maps`."""

    compose: Callable[..., None]
    gradient: Callable[..., None]


@lru_cache
def make_product(dtype: type) -> Callable[..., None]:
    """Compile the small matrix product, once for all maps."""
    matrix, flag = numba.from_dtype(np.dtype(dtype))[:, ::1], numba.boolean
    ZERO = dtype(0.0)

    @numba.njit(numba.void(matrix, matrix, matrix, flag, flag, flag), error_model="numpy")
    def product(a, b, out, flip_a, flip_b, add):  # type: ignore[no-untyped-def]
        """out = a b, or its sum with out if `add`; a flip transposes. Sums in index order, unlike BLAS."""
        rows, columns = out.shape
        inner = a.shape[0] if flip_a else a.shape[1]
        for i in range(rows):
            for j in range(columns):
                s = ZERO
                for k in range(inner):
                    s += (a[k, i] if flip_a else a[i, k]) * (b[j, k] if flip_b else b[k, j])
                out[i, j] = out[i, j] + s if add else s

    return product


def make_maps(
    *, features: int, dim: int, heads: int, layer_norm: bool, attention_scale: float, dtype: type, first: bool
) -> Maps:
    """Compile the map of one layer for fixed sizes; arguments as in `make_layer`."""
    P, D, K = features, dim, heads
    F = P if first else D
    U = F * (F + 1) // 2
    SCALE, INVERSE_D, ZERO = dtype(attention_scale), dtype(1.0 / dim), dtype(0.0)
    product = make_product(dtype)

    @inlined
    def centre(W, out):  # type: ignore[no-untyped-def]
        """out = s·W J, and just as well the gradient's way back, as J is symmetric."""
        for i in range(D):
            s = ZERO
            if layer_norm:
                for j in range(D):
                    s += W[i, j]
                s = s * INVERSE_D
            for j in range(D):
                out[i, j] = SCALE * (W[i, j] - s)

    @inlined
    def factors(W_in, W1, W2, W3, B, C, half, left, right):  # type: ignore[no-untyped-def]
        """Set B, C, left, right of one head; half (P, D) is scratch."""
        product(W3, W1, B, False, False, False)
        centre(W2, C)
        if first:
            product(W_in, B, half, True, False, False)
            product(half, W_in, left, False, False, False)
            product(W_in, C, right, True, False, False)
        else:
            for i in range(D):
                for j in range(D):
                    left[i, j] = B[i, j]
                    right[i, j] = C[i, j]

    @compiled
    def compose(W_in, W1, W2, W3, T):  # type: ignore[no-untyped-def]
        """Set T (F·D·U,) from W_in (D, P) and this layer's W1, W2, W3 (K, D, D)."""
        B, C, half = np.empty((D, D), dtype), np.empty((D, D), dtype), np.empty((P, D), dtype)
        left, right = np.empty((F, F), dtype), np.empty((F, D), dtype)
        for u in range(F * D * U):
            T[u] = ZERO
        for k in range(K):
            factors(W_in, W1[k], W2[k], W3[k], B, C, half, left, right)
            for i in range(F):
                for j in range(D):
                    u = (i * D + j) * U
                    for a in range(F):
                        T[u] += left[i, a] * right[a, j]
                        u += 1
                        for b in range(a + 1, F):
                            T[u] += left[i, a] * right[b, j] + left[i, b] * right[a, j]
                            u += 1

    @compiled
    def gradient(W_in, W1, W2, W3, dT, dW_in, dW1, dW2, dW3):  # type: ignore[no-untyped-def]
        """From dT to dW1, dW2, dW3 (set) and, in the first layer, dW_in (added to)."""
        B, C, half = np.empty((D, D), dtype), np.empty((D, D), dtype), np.empty((P, D), dtype)
        left, right = np.empty((F, F), dtype), np.empty((F, D), dtype)
        dB, dC, share = np.empty((D, D), dtype), np.empty((D, D), dtype), np.empty((D, P), dtype)
        dleft, dright = np.empty((F, F), dtype), np.empty((F, D), dtype)
        for k in range(K):
            factors(W_in, W1[k], W2[k], W3[k], B, C, half, left, right)
            for i in range(F):
                for j in range(F):
                    dleft[i, j] = ZERO
                for j in range(D):
                    dright[i, j] = ZERO
            for i in range(F):
                for j in range(D):
                    u = (i * D + j) * U
                    for a in range(F):
                        for b in range(a, F):
                            g = dT[u]
                            dleft[i, a] += g * right[b, j]
                            dright[b, j] += g * left[i, a]
                            if a != b:
                                dleft[i, b] += g * right[a, j]
                                dright[a, j] += g * left[i, b]
                            u += 1
            if first:
                product(W_in, dright, dC, False, False, False)
                product(W_in, dleft, share, False, False, False)
                product(share, W_in, dB, False, True, False)
                # left = W_inᵀ B W_in and right = W_inᵀ C give W_in three shares.
                product(B, share, dW_in, True, False, True)
                product(W_in, dleft, share, False, True, False)
                product(B, share, dW_in, False, False, True)
                product(C, dright, dW_in, False, True, True)
            else:
                for i in range(D):
                    for j in range(D):
                        dB[i, j] = dleft[i, j]
                        dC[i, j] = dright[i, j]
            product(dB, W1[k], dW3[k], False, True, False)
            product(W3[k], dB, dW1[k], True, False, False)
            centre(dC, dW2[k])

    return Maps(compose, gradient)

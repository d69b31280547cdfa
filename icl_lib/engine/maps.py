"""From weights to each layer's linear map T from Gram matrix to mixing matrix, and back for gradients.

With B_k = W3_k W1_k and C_k = s·W2_k J, where s is the attention scale and J = I − 11ᵀ/D centres a row of H for
layer norm (J = I without it), a layer's mixing matrix is A = Σ_k left_k G right_k:

    first layer:   left = W_inᵀ B W_in  (P, P),   right = W_inᵀ C  (P, D),   G = PᵀP of the tokens;
    later layers:  left = B  (D, D),              right = C  (D, D),         G = QᵀQ.

G is symmetric, so A is read as a product T·g with its U = F(F+1)/2 distinct cells g: for any number of heads a
prompt pays for one such product. All of this happens once a step, not once a prompt.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from icl_lib.engine.layers import compiled


class Maps(NamedTuple):
    """The compiled passes of `make_maps`."""

    compose: Callable[..., None]
    gradient: Callable[..., None]


def make_maps(
    *, features: int, dim: int, heads: int, layer_norm: bool, attention_scale: float, dtype: type, first: bool
) -> Maps:
    """Compile the map of one layer for fixed sizes; arguments as in `make_layer`."""
    P, D, K = features, dim, heads
    F = P if first else D
    U = F * (F + 1) // 2
    SCALE, INVERSE_D, ZERO = dtype(attention_scale), dtype(1.0 / dim), dtype(0.0)

    @compiled
    def product(a, b, out):  # type: ignore[no-untyped-def]
        """out = a b, sums in index order; NumPy's dot would leave the order to the processor's BLAS."""
        for i in range(a.shape[0]):
            for j in range(b.shape[1]):
                s = ZERO
                for k in range(a.shape[1]):
                    s += a[i, k] * b[k, j]
                out[i, j] = s

    @compiled
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

    @compiled
    def factors(W_in, W1, W2, W3, B, C, left, right):  # type: ignore[no-untyped-def]
        """B, C, left, right of one head."""
        product(W3, W1, B)
        centre(W2, C)
        if first:
            half = np.empty((P, D), dtype)
            product(W_in.T, B, half)
            product(half, W_in, left)
            product(W_in.T, C, right)
        else:
            left[:] = B
            right[:] = C

    @compiled
    def compose(W_in, W1, W2, W3, T):  # type: ignore[no-untyped-def]
        """Set T (F·D·U,) from W_in (D, P) and this layer's W1, W2, W3 (K, D, D)."""
        B, C = np.empty((D, D), dtype), np.empty((D, D), dtype)
        left, right = np.empty((F, F), dtype), np.empty((F, D), dtype)
        T[:] = ZERO
        for k in range(K):
            factors(W_in, W1[k], W2[k], W3[k], B, C, left, right)
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
        B, C = np.empty((D, D), dtype), np.empty((D, D), dtype)
        left, right = np.empty((F, F), dtype), np.empty((F, D), dtype)
        dB, dC = np.empty((D, D), dtype), np.empty((D, D), dtype)
        dleft, dright = np.empty((F, F), dtype), np.empty((F, D), dtype)
        half, other, share = np.empty((D, P), dtype), np.empty((D, P), dtype), np.empty((D, P), dtype)
        for k in range(K):
            factors(W_in, W1[k], W2[k], W3[k], B, C, left, right)
            dleft[:], dright[:] = ZERO, ZERO
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
                product(W_in, dleft, half)
                product(half, W_in.T, dB)
                product(W_in, dright, dC)
                # left = W_inᵀ B W_in and right = W_inᵀ C give W_in three shares.
                product(B.T, half, share)
                dW_in += share
                product(W_in, dleft.T, half)
                product(B, half, share)
                dW_in += share
                product(C, dright.T, other)
                dW_in += other
            else:
                dB[:], dC[:] = dleft, dright
            product(dB, W1[k].T, dW3[k])
            product(W3[k].T, dB, dW1[k])
            centre(dC, dW2[k])

    return Maps(compose, gradient)

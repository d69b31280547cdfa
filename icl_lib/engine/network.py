"""The whole network on a batch: prediction, loss and the gradient of every weight."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from icl_lib.engine.layers import LANES, compiled, inlined, make_layer
from icl_lib.engine.maps import make_maps
from icl_lib.transformer import Architecture


class Network(NamedTuple):
    """The compiled passes of `make_network`.

    predict(theta, records, index, out, work) sets out (n,) to the answers to the prompts index (n,) of
    records; gradient(theta, records, index, grad, work) returns their mean squared error and sets grad to its
    gradient.

    theta and grad are `Parameters`, records comes from `make_records`, work is a `Workspace`.
    """

    predict: Callable[..., None]
    gradient: Callable[..., float]


@lru_cache(maxsize=64)
def make_network(
    architecture: Architecture, *, eps: float, attention_scale: float, output_bias: bool, dtype: type
) -> Network:
    """Compile the network for one architecture; the same arguments give the same compiled functions.

    Args:
        architecture: sizes and switches.
        eps: layer norm's eps.
        attention_scale: s, multiplies H.
        output_bias: give b_out a gradient.
        dtype: np.float32 or np.float64.
    """
    S, P, D = architecture.rows, architecture.features, architecture.dim
    L, K, norm = architecture.layers, architecture.heads, architecture.layer_norm
    UP, UD = P * (P + 1) // 2, D * (D + 1) // 2
    MOMENTS, TARGET = S * P, S * P + UP  # where they start in a record
    END = L - 1  # index of the last layer
    ZERO, TWO = dtype(0.0), dtype(2.0)

    def layer_for(width: int, first: bool, last: bool):  # type: ignore[no-untyped-def]
        return make_layer(
            rows=S, width=width, dim=D, layer_norm=norm, eps=eps, dtype=dtype, first=first, last=last
        )

    def map_for(first: bool):  # type: ignore[no-untyped-def]
        return make_maps(
            features=P,
            dim=D,
            heads=K,
            layer_norm=norm,
            attention_scale=attention_scale,
            dtype=dtype,
            first=first,
        )

    first, middle, last = layer_for(P, True, L == 1), layer_for(D, False, False), layer_for(D, False, True)
    first_map, later_map = map_for(True), map_for(False)

    @compiled
    def clear(cells):  # type: ignore[no-untyped-def]
        for i in range(cells.shape[0]):
            cells[i] = ZERO

    @compiled
    def fold(lanes, out, count):  # type: ignore[no-untyped-def]
        """Sum each cell's lanes pairwise, halves onto halves; the lanes are used up."""
        for c in range(count):
            at = c * LANES
            half = LANES // 2
            while half:
                for i in range(half):
                    lanes[at + i] += lanes[at + half + i]
                half //= 2
            out[c] = lanes[at]

    @inlined
    def compose(theta, w):  # type: ignore[no-untyped-def]
        first_map.compose(theta.W_in, theta.W1[0], theta.W2[0], theta.W3[0], w.T[0])
        for l in range(1, L):
            later_map.compose(theta.W_in, theta.W1[l], theta.W2[l], theta.W3[l], w.T[l])

    @inlined
    def load(records, index, start, w):  # type: ignore[no-untyped-def]
        """Gather a block of prompts into lanes; lanes beyond the batch repeat a prompt, uncounted."""
        for i in range(LANES):
            m = index[start + i] if start + i < index.shape[0] else index[start]
            for c in range(TARGET):
                w.block[c * LANES + i] = records[m, c]

    # The two "if"s below are decided when compiling: a pass that no layer needs is not compiled.

    @inlined
    def forward(theta, w):  # type: ignore[no-untyped-def]
        W_in, W_out = theta.input, theta.output
        first.mix(w.T[0], w.block[MOMENTS * LANES :], w.A[0])
        first.forward(w.block, w.A[0], W_in, w.Y[0], w.R[0], w.Q[0], w.gram[min(1, END)], W_out, w.out)
        if L > 2:
            for l in range(1, END):
                x, q = w.Q[l - 1], w.Q[l]
                middle.mix(w.T[l], w.gram[l], w.A[l])
                middle.forward(x, w.A[l], W_in, w.Y[l], w.R[l], q, w.gram[l + 1], W_out, w.out)
        if L > 1:
            x, A, Y, R, gram = w.Q[END - 1], w.A[END], w.Y[END], w.R[END], w.gram[END]
            last.mix(w.T[END], gram, A)
            last.forward(x, A, W_in, Y, R, x, gram, W_out, w.out)

    @inlined
    def backward(theta, w):  # type: ignore[no-untyped-def]
        W_in, W_out, dW_in, dW_out = theta.input, theta.output, w.dW_in, w.dW_out
        dgram, dq, dA, dout = w.dgram, w.dq, w.dA, w.dout
        if L > 1:
            x, A, Y, R = w.Q[END - 1], w.A[END], w.Y[END], w.R[END]
            last.backward(x, A, W_in, Y, R, x, dgram, dq, dA, dW_in, W_out, dout, dW_out)
            last.mix_gradient(w.T[END], w.gram[END], dA, w.dT[END], dgram)
        if L > 2:
            for l in range(END - 1, 0, -1):
                x, A, Y, R, q = w.Q[l - 1], w.A[l], w.Y[l], w.R[l], w.Q[l]
                middle.backward(x, A, W_in, Y, R, q, dgram, dq, dA, dW_in, W_out, dout, dW_out)
                middle.mix_gradient(w.T[l], w.gram[l], dA, w.dT[l], dgram)
        x, A, Y, R, q = w.block, w.A[0], w.Y[0], w.R[0], w.Q[0]
        first.backward(x, A, W_in, Y, R, q, dgram, dq, dA, dW_in, W_out, dout, dW_out)
        first.mix_gradient(w.T[0], w.block[MOMENTS * LANES :], dA, w.dT[0], dgram)

    @compiled
    def predict(theta, records, index, out, w):  # type: ignore[no-untyped-def]
        compose(theta, w)
        for start in range(0, index.shape[0], LANES):
            load(records, index, start, w)
            forward(theta, w)
            for i in range(min(LANES, index.shape[0] - start)):
                out[start + i] = w.out[i] + theta.bias[0]

    @inlined
    def gradient(theta, records, index, grad, w):  # type: ignore[no-untyped-def]
        compose(theta, w)
        for l in range(L):
            clear(w.dT[l])
        clear(w.dW_in)
        clear(w.dW_out)
        grad.bias[0] = ZERO
        n, loss = index.shape[0], 0.0
        scale = TWO / dtype(n)
        for start in range(0, n, LANES):
            load(records, index, start, w)
            forward(theta, w)
            clear(w.dout)
            for i in range(min(LANES, n - start)):
                error = w.out[i] + theta.bias[0] - records[index[start + i], TARGET]
                w.dout[i] = scale * error
                if output_bias:
                    grad.bias[0] += scale * error
                loss += np.float64(error) * np.float64(error)
            backward(theta, w)
        fold(w.dW_in, grad.input, D * P)
        fold(w.dW_out, grad.output, S * D)
        fold(w.dT[0], w.sums, P * D * UP)
        W1, W2, W3, dW1, dW2, dW3 = theta.W1, theta.W2, theta.W3, grad.W1, grad.W2, grad.W3
        first_map.gradient(theta.W_in, W1[0], W2[0], W3[0], w.sums, grad.W_in, dW1[0], dW2[0], dW3[0])
        for l in range(1, L):
            fold(w.dT[l], w.sums, D * D * UD)
            later_map.gradient(theta.W_in, W1[l], W2[l], W3[l], w.sums, grad.W_in, dW1[l], dW2[l], dW3[l])
        return loss / n

    return Network(predict, gradient)

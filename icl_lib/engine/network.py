"""The whole network on a batch: prediction, loss and the gradient of every weight.

The weights are one flat vector theta in the order of `Architecture.shapes`: W_in, W1, W2, W3, W_out, b_out. The
prompts are `records` (M, S·P + U + 1): the tokens row by row, the U = P(P+1)/2 cells of PᵀP, the target.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from icl_lib.engine.layers import LANES, compiled, make_layer
from icl_lib.engine.maps import make_maps
from icl_lib.transformer import Architecture


class Network(NamedTuple):
    """Compiled passes: `predict(theta, records, out, work)`, `gradient(theta, records, index, grad, work)`."""

    predict: Callable[..., None]
    gradient: Callable[..., float]
    workspace: Callable[[], Workspace]


class Workspace(NamedTuple):
    """Buffers of one block of prompts (the layer index first where there is one); see `layers.py`."""

    block: np.ndarray  # tokens, then their moments
    Q: np.ndarray
    Y: np.ndarray
    R: np.ndarray
    A: np.ndarray
    gram: np.ndarray
    T: np.ndarray
    out: np.ndarray
    dout: np.ndarray
    dq: np.ndarray
    dA: np.ndarray
    dgram: np.ndarray
    dT: np.ndarray
    dW_in: np.ndarray
    dW_out: np.ndarray


def aligned(shape: tuple[int, ...], dtype: type) -> np.ndarray:
    """Zeros that start at a multiple of 64 bytes: a vector of prompts then never straddles two cache lines."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(dtype).reshape(shape)


def make_records(tokens: np.ndarray, targets: np.ndarray, dtype: type) -> np.ndarray:
    """Pack float64 tokens (M, S, P) and targets (M,) as the kernels read them, rounded once, at the end.

    Raises:
        ValueError: shapes that do not fit, or an entry that is not finite.
    """
    if tokens.ndim != 3 or targets.shape != tokens.shape[:1]:
        raise ValueError(f"tokens {tokens.shape} and targets {targets.shape}: expected (M, S, P) and (M,)")
    if not (np.isfinite(tokens).all() and np.isfinite(targets).all()):
        raise ValueError("tokens or targets hold NaN or infinite entries; every one must be finite")
    M, _, P = tokens.shape
    # Row after row, in order: a matrix product's order of sums would depend on the processor.
    moments = np.zeros((M, P, P))
    for row in tokens.transpose(1, 0, 2):
        moments += row[:, :, None] * row[:, None, :]
    upper = moments[:, *np.triu_indices(P)]
    return np.concatenate([tokens.reshape(M, -1), upper, targets[:, None]], axis=1).astype(dtype)


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
    L, K = architecture.layers, architecture.heads
    F = max(P, D)
    UP, UF = P * (P + 1) // 2, F * (F + 1) // 2
    SP, SD, LKDD = S * P, S * D, L * K * D * D
    W1_AT = D * P
    W2_AT, W3_AT, OUT_AT, BIAS_AT = W1_AT + LKDD, W1_AT + 2 * LKDD, W1_AT + 3 * LKDD, W1_AT + 3 * LKDD + SD
    HEADS = (L, K, D, D)
    ZERO, TWO = dtype(0.0), dtype(2.0)

    layer = {"rows": S, "dim": D, "layer_norm": architecture.layer_norm, "eps": eps, "dtype": dtype}
    first = make_layer(width=P, first=True, last=L == 1, **layer)
    middle = make_layer(width=D, first=False, last=False, **layer)
    last = make_layer(width=D, first=False, last=True, **layer)
    maps = {"features": P, "dim": D, "heads": K, "layer_norm": architecture.layer_norm}
    first_map = make_maps(first=True, attention_scale=attention_scale, dtype=dtype, **maps)
    later_map = make_maps(first=False, attention_scale=attention_scale, dtype=dtype, **maps)

    def workspace() -> Workspace:
        lanes = {
            "block": (SP + UP,),
            "Q": (max(L - 1, 1), SD),
            "Y": (L, SD),
            "R": (L, S),
            "A": (L, F * D),
            "gram": (L, UF),
            "out": (1,),
            "dout": (1,),
            "dq": (SD,),
            "dA": (F * D,),
            "dgram": (F * F,),
            "dT": (L, F * D * UF),
            "dW_in": (D * P,),
            "dW_out": (SD,),
        }
        buffers = {name: aligned((*s[:-1], s[-1] * LANES), dtype) for name, s in lanes.items()}
        return Workspace(T=aligned((L, F * D * UF), dtype), **buffers)

    @compiled
    def heads(theta, at):  # type: ignore[no-untyped-def]
        return theta[at : at + LKDD].reshape(HEADS)

    @compiled
    def compose(theta, w):  # type: ignore[no-untyped-def]
        W_in = theta[:W1_AT].reshape((D, P))
        W1, W2, W3 = heads(theta, W1_AT), heads(theta, W2_AT), heads(theta, W3_AT)
        first_map.compose(W_in, W1[0], W2[0], W3[0], w.T[0])
        for l in range(1, L):
            later_map.compose(W_in, W1[l], W2[l], W3[l], w.T[l])

    @compiled
    def load(records, index, start, w):  # type: ignore[no-untyped-def]
        """Gather a block of prompts into lanes; lanes beyond the batch repeat its first prompt."""
        for i in range(LANES):
            m = index[start + i] if start + i < index.shape[0] else index[start]
            record = records[m]
            for c in range(SP + UP):
                w.block[c * LANES + i] = record[c]

    @compiled
    def forward(theta, w):  # type: ignore[no-untyped-def]
        W_in, W_out = theta[:W1_AT], theta[OUT_AT:BIAS_AT]
        first.mix(w.T[0], w.block[SP * LANES :], w.A[0])
        first.forward(w.block, w.A[0], W_in, w.Y[0], w.R[0], w.Q[0], w.gram[min(1, L - 1)], W_out, w.out)
        for l in range(1, L - 1):
            middle.mix(w.T[l], w.gram[l], w.A[l])
            middle.forward(w.Q[l - 1], w.A[l], W_in, w.Y[l], w.R[l], w.Q[l], w.gram[l + 1], W_out, w.out)
        if L > 1:
            l = L - 1
            last.mix(w.T[l], w.gram[l], w.A[l])
            last.forward(w.Q[l - 1], w.A[l], W_in, w.Y[l], w.R[l], w.Q[l - 1], w.gram[l], W_out, w.out)

    @compiled
    def backward(theta, w):  # type: ignore[no-untyped-def]
        W_in, W_out = theta[:W1_AT], theta[OUT_AT:BIAS_AT]
        for back in range(L - 1):
            l = L - 1 - back
            x = w.Q[l - 1]
            if back == 0:
                last.backward(
                    x, w.A[l], W_in, w.Y[l], w.R[l], x, w.dgram, w.dq, w.dA, w.dW_in, W_out, w.dout, w.dW_out
                )
            else:
                middle.backward(
                    x, w.A[l], W_in, w.Y[l], w.R[l], w.Q[l], w.dgram, w.dq, w.dA, w.dW_in, W_out, w.dout, w.dW_out
                )
            middle.mix_gradient(w.T[l], w.gram[l], w.dA, w.dT[l], w.dgram)
        first.backward(
            w.block, w.A[0], W_in, w.Y[0], w.R[0], w.Q[0], w.dgram, w.dq, w.dA, w.dW_in, W_out, w.dout, w.dW_out
        )
        first.mix_gradient(w.T[0], w.block[SP * LANES :], w.dA, w.dT[0], w.dgram)

    @compiled
    def fold(lanes, out):  # type: ignore[no-untyped-def]
        """Sum each cell's lanes pairwise, halves onto halves; the lanes are used up."""
        for c in range(out.shape[0]):
            at = c * LANES
            half = LANES // 2
            while half:
                for i in range(half):
                    lanes[at + i] += lanes[at + half + i]
                half //= 2
            out[c] = lanes[at]

    @compiled
    def predict(theta, records, index, out, w):  # type: ignore[no-untyped-def]
        """Set out (n,) to the network's answers to the prompts `index` (n,) of `records`."""
        compose(theta, w)
        for start in range(0, index.shape[0], LANES):
            load(records, index, start, w)
            forward(theta, w)
            for i in range(min(LANES, index.shape[0] - start)):
                out[start + i] = w.out[i] + theta[BIAS_AT]

    @compiled
    def gradient(theta, records, index, grad, w):  # type: ignore[no-untyped-def]
        """Set grad to the gradient of the mean squared error over the prompts `index`; return that error."""
        compose(theta, w)
        w.dT[:], w.dW_in[:], w.dW_out[:], grad[BIAS_AT] = ZERO, ZERO, ZERO, ZERO
        n, loss = index.shape[0], 0.0
        scale = TWO / dtype(n)
        for start in range(0, n, LANES):
            load(records, index, start, w)
            forward(theta, w)
            for i in range(LANES):
                w.dout[i] = ZERO
            for i in range(min(LANES, n - start)):
                error = w.out[i] + theta[BIAS_AT] - records[index[start + i], SP + UP]
                w.dout[i] = scale * error
                if output_bias:
                    grad[BIAS_AT] += scale * error
                loss += np.float64(error) * np.float64(error)
            backward(theta, w)
        W_in, dW_in = theta[:W1_AT].reshape((D, P)), grad[:W1_AT].reshape((D, P))
        W1, W2, W3 = heads(theta, W1_AT), heads(theta, W2_AT), heads(theta, W3_AT)
        dW1, dW2, dW3 = heads(grad, W1_AT), heads(grad, W2_AT), heads(grad, W3_AT)
        fold(w.dW_in, grad[:W1_AT])
        fold(w.dW_out, grad[OUT_AT:BIAS_AT])
        dT = np.empty(F * D * UF, dtype)
        fold(w.dT[0], dT[: P * D * UP])
        first_map.gradient(W_in, W1[0], W2[0], W3[0], dT, dW_in, dW1[0], dW2[0], dW3[0])
        for l in range(1, L):
            fold(w.dT[l], dT[: D * D * (D * (D + 1) // 2)])
            later_map.gradient(W_in, W1[l], W2[l], W3[l], dT, dW_in, dW1[l], dW2[l], dW3[l])
        return loss / n

    return Network(predict, gradient, workspace)

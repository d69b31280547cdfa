"""The arrays that kernels read and write: prompts packed, weights flat, room for a block of prompts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from icl_lib.engine.layers import LANES
from icl_lib.transformer import Architecture


def make_records(tokens: np.ndarray, targets: np.ndarray, dtype: type) -> np.ndarray:
    """Pack prompts one a row, (M, S·P + U + 1): the tokens, the U = P(P+1)/2 cells of PᵀP, the target.

    Args:
        tokens: (M, S, P), float64.
        targets: (M,), float64.
        dtype: what to round to, once, at the end.

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


class Parameters(NamedTuple):
    """Weights or a gradient: one flat vector in the order of `Architecture.shapes`, and views of it."""

    flat: np.ndarray
    input: np.ndarray  # W_in, flat
    output: np.ndarray  # W_out, flat
    bias: np.ndarray  # b_out, one entry
    W_in: np.ndarray
    W1: np.ndarray
    W2: np.ndarray
    W3: np.ndarray


def make_parameters(flat: np.ndarray, architecture: Architecture) -> Parameters:
    """Views of a flat vector (n_weights + 1,); writing to one writes to all."""
    shapes, parts, at = architecture.shapes, {}, 0
    for name, shape in shapes.items():
        size = int(np.prod(shape))
        parts[name] = flat[at : at + size]
        at += size
    matrices = (parts[name].reshape(shapes[name]) for name in ("W_in", "W1", "W2", "W3"))
    return Parameters(flat, parts["W_in"], parts["W_out"], parts["b_out"], *matrices)


class Workspace(NamedTuple):
    """Room for one block of prompts; all but T and sums hold lanes, see `layers.py` for the shapes."""

    block: np.ndarray  # tokens, then their moments
    Q: np.ndarray  # of layers 2 to L
    Y: np.ndarray
    R: np.ndarray
    A: np.ndarray
    gram: np.ndarray
    out: np.ndarray
    dout: np.ndarray
    dq: np.ndarray
    dA: np.ndarray
    dgram: np.ndarray
    dT: np.ndarray
    dW_in: np.ndarray
    dW_out: np.ndarray
    T: np.ndarray
    sums: np.ndarray


def make_workspace(architecture: Architecture, dtype: type) -> Workspace:
    """Buffers for a network of this shape."""
    S, P, D, L = architecture.rows, architecture.features, architecture.dim, architecture.layers
    F = max(P, D)
    U = F * (F + 1) // 2
    cells = {
        "block": (S * P + P * (P + 1) // 2,),
        "Q": (max(L - 1, 1), S * D),
        "Y": (L, S * D),
        "R": (L, S),
        "A": (L, F * D),
        "gram": (L, U),
        "out": (1,),
        "dout": (1,),
        "dq": (S * D,),
        "dA": (F * D,),
        "dgram": (D * D,),
        "dT": (L, F * D * U),
        "dW_in": (D * P,),
        "dW_out": (S * D,),
    }
    lanes = {name: aligned((*shape[:-1], shape[-1] * LANES), dtype) for name, shape in cells.items()}
    return Workspace(**lanes, T=aligned((L, F * D * U), dtype), sums=aligned((F * D * U,), dtype))


def aligned(shape: tuple[int, ...], dtype: type) -> np.ndarray:
    """Zeros that start at a multiple of 64 bytes, so that no vector of prompts straddles a cache line."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(dtype).reshape(shape)

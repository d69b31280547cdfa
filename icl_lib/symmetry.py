"""What changes nothing in a TF(D, L, K), and the form of its weights in which only facts are left.

Four changes of the weights leave every answer as it is: (i) W3·A and A⁻¹·W1 in place of a head's W3 and W1;
(ii) any other set of heads with the same sum; (iii) adding a number to all columns of a row of W2, or scaling
a layer's W2 (layer norm removes both; the scale exactly so at eps = 0 alone); (iv) an orthogonal change of
basis of the embedding that fixes the ones-vector, permutations among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from icl_lib.weights import Weights


def rotate(weights: Weights, basis: Float64[np.ndarray, "D D"]) -> Weights:
    """The same network in another orthonormal basis of the embedding: Q → Q·basis in every layer.

    Args:
        weights: float64 weights (float32 ones are widened first).
        basis: orthogonal, with basisᵀ·1 = 1, so that layer norm commutes with it.

    Raises:
        ValueError: the basis is not orthogonal or moves the ones-vector.
    """
    dim = weights.architecture.dim
    if not np.allclose(basis.T @ basis, np.eye(dim), atol=1e-10):
        raise ValueError("basis is not orthogonal: basisᵀ·basis differs from the identity")
    if weights.layer_norm and not np.allclose(basis.sum(axis=0), 1.0, atol=1e-10):
        raise ValueError("basis moves the ones-vector: its columns must each sum to 1")
    return Weights(
        basis.T @ weights.W_in.astype(np.float64),
        weights.W1 @ basis,
        basis.T @ weights.W2 @ basis,
        basis.T @ weights.W3,
        weights.W_out @ basis,
        weights.b_out,
        weights.layer_norm,
        weights.eps,
    )


def permute(weights: Weights, order: Sequence[int]) -> Weights:
    """The same network with its embeddings renumbered: new embedding d is old `order[d]` (from 0)."""
    return rotate(weights, np.eye(weights.architecture.dim)[:, list(order)])


def query_cell_third(weights: Weights) -> Weights:
    """Embeddings swapped so that the query's largest absolute output weight is in the paper's cell (3, N+1).

    The other embeddings are then ordered by the input that is largest in them, as in the paper's Figure 2a: y
    first, then the constant, then x.
    """
    third = int(np.abs(weights.W_out[-1]).argmax())
    rest = [d for d in range(weights.architecture.dim) if d != third]
    share = np.abs(weights.W_in) / np.abs(weights.W_in).sum(axis=1, keepdims=True)
    first = max(rest, key=lambda d: share[d, 2])
    rest.remove(first)
    second = max(rest, key=lambda d: share[d, 0])
    rest.remove(second)
    return permute(weights, [first, second, third, *rest])


@dataclass(frozen=True, eq=False)
class Facts:
    """A network up to everything that changes nothing: two networks with equal facts are one function.

    Attributes:
        embedding: (D, 3) W_in in the canonical basis: row 0 is the component along the ones-vector (times
            √D), rows 1 to D−1 form an upper triangle with positive diagonal over the columns (1, x, y).
        maps: (L, D, D, D, D). H_l[n, d] = Σ Q[n, a] G[b, c] maps[l, a, b, c, d], symmetric in (b, c), without
            the component that layer norm removes.
        read_out: (S, D) W_out in the same basis.
    """

    embedding: Float64[np.ndarray, "D P"]
    maps: Float64[np.ndarray, "L D D D D"]
    read_out: Float64[np.ndarray, "S D"]


def helmert(dim: int) -> Float64[np.ndarray, "D D"]:
    """An orthonormal basis as columns, the first along the ones-vector."""
    basis, triangle = np.linalg.qr(np.column_stack([np.ones(dim), np.eye(dim)[:, : dim - 1]]))
    return basis * np.sign(np.diag(triangle))


def facts(weights: Weights) -> Facts:
    """Take out of the weights all that the symmetries leave free, but for a layer's scale (eps fixes it).

    The basis is the network's own: after the ones-vector it follows the directions in which the constant, x
    and y enter, in this order, so it exists where those are independent.

    Raises:
        ValueError: no layer norm (another group), or the centred embedding does not have rank D − 1.
    """
    dim = weights.architecture.dim
    if not weights.layer_norm:
        raise ValueError(
            "facts() needs layer norm: without it every invertible change of basis is a symmetry"
        )
    start = helmert(dim)
    W_in = weights.W_in.astype(np.float64)
    centred = start[:, 1:].T @ W_in  # (D−1, P)
    turn, triangle = np.linalg.qr(centred[:, : dim - 1])
    diagonal = np.diag(triangle)
    if dim - 1 > weights.architecture.features or np.abs(diagonal).min() < 1e-9 * np.abs(W_in).max():
        raise ValueError(
            "the constant, x and y do not span the centred embedding: it has no basis of its own"
        )
    basis = np.column_stack([start[:, 0], start[:, 1:] @ (turn * np.sign(diagonal))])
    W1, W2, W3 = (getattr(weights, name).astype(np.float64) for name in ("W1", "W2", "W3"))
    seen_by = basis.T @ W3 @ W1 @ basis  # U of each head, (L, K, D, D)
    written = basis.T @ W2 @ basis
    written[..., 0] = 0.0  # the component along the ones-vector: layer norm removes it
    maps = np.einsum("lkab,lkcd->labcd", seen_by, written)
    return Facts(basis.T @ W_in, (maps + maps.transpose(0, 1, 3, 2, 4)) / 2, weights.W_out @ basis)

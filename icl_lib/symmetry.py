"""What changes nothing in a TF(D, L, K) with layer norm, and the form in which only facts are left.

Six kinds of change leave every answer as it is, and chapter 1 shows that there are no others:

1. W3·A and A⁻¹·W1 in place of a head's W3 and W1;
2. any other set of heads with the same sum;
3. the size of a layer's W2, if eps follows it;
4. a number added to all columns of a row of W2;
5. another basis of the embedding: the space across the ones-vector turned, the ones-vector sent anywhere;
6. layer 1's weights along the direction of the embedding that no token has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float64
from numpy.random import PCG64, Generator
from scipy.linalg import expm
from scipy.stats import ortho_group

from icl_lib.weights import Weights

# -- changes -----------------------------------------------------------------------------------------------


def helmert(dim: int) -> Float64[np.ndarray, "D D"]:
    """An orthonormal basis as columns, the first along the ones-vector."""
    basis, triangle = np.linalg.qr(np.column_stack([np.ones(dim), np.eye(dim)[:, : dim - 1]]))
    return basis * np.sign(np.diag(triangle))


def layer_norm_basis(
    turn: Float64[np.ndarray, "D_minus_1 D_minus_1"], image: Float64[np.ndarray, "D"]
) -> Float64[np.ndarray, "D D"]:
    """The change of basis Q → Q·T with 1·T = `image` that is the orthogonal `turn` across the ones-vector.

    These are all that layer norm allows: it writes nothing along the ones-vector, whose image is free.
    """
    start = helmert(len(image))
    return np.tile(image / len(image), (len(image), 1)) + start[:, 1:] @ turn @ start[:, 1:].T


def change_basis(weights: Weights, T: Float64[np.ndarray, "D D"]) -> Weights:
    """The same network in another basis of the embedding: Q → Q·T in every layer.

    Under layer norm the row means of W2 are taken out: it would remove them, but only before T moves them.

    Args:
        weights: float64 weights (float32 ones are widened first).
        T: invertible; under layer norm one of `layer_norm_basis`.

    Raises:
        ValueError: T is no symmetry.
    """
    dim = weights.architecture.dim
    inside = helmert(dim).T @ T @ helmert(dim)
    W2 = weights.W2.astype(np.float64)
    if weights.layer_norm:
        if not np.allclose(inside[1:, 0], 0.0, atol=1e-10):
            raise ValueError("T sends vectors of mean zero elsewhere: layer norm would remove a part of them")
        if not np.allclose(inside[1:, 1:] @ inside[1:, 1:].T, np.eye(dim - 1), atol=1e-10):
            raise ValueError("T changes the lengths of vectors of mean zero: layer norm would see it")
        W2 = W2 - W2.mean(axis=-1, keepdims=True)
    if abs(np.linalg.det(T)) < 1e-10:
        raise ValueError("T is not invertible: it loses a direction of the embedding")
    back = np.linalg.inv(T)
    return replace(
        weights,
        W_in=T.T @ weights.W_in,
        W1=weights.W1 @ back.T,
        W2=back @ W2 @ T,
        W3=back @ weights.W3,
        W_out=weights.W_out @ back.T,
    )


def permute(weights: Weights, order: Sequence[int]) -> Weights:
    """The same network, bit for bit, with its embeddings renumbered: new d is old `order[d]` (from 0)."""
    order = list(order)
    return replace(
        weights,
        W_in=weights.W_in[order],
        W1=weights.W1[..., order],
        W2=weights.W2[..., order, :][..., order],
        W3=weights.W3[..., order, :],
        W_out=weights.W_out[:, order],
    )


def query_cell_third(weights: Weights) -> Weights:
    """Embeddings renumbered so that the query's largest |output weight| is in the paper's cell (3, N+1).

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


# -- the canonical form ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Facts:
    """A network without what its symmetries leave free: equal for all networks that the six changes connect.

    Facts are enough to run the network, so equal facts are equal functions. A row has one coordinate along
    the ones-vector and P across it, which belong to the token's features (1, x, y): in this basis the
    embedding is symmetric there.

    embedding: (D, P). Row 0, of length 1: the combination of features that lies along the ones-vector. Rows 1
        to P: a symmetric matrix without negative eigenvalues that is zero on this combination.
    first: (P, P, P, P), layer 1: H_1[n, d] ∝ Σ P[n, a] (PᵀP)[b, c] first[a, b, c, d], P the tokens.
    later: (L−1, D, D, D, P), the layers after it in the same way, with Q_l for P. Each layer's numbers are
        symmetric in (b, c), of length 1, and without the component that layer norm removes.
    floor: (L,). eps over the square of the length that the layer had.
    read_out: (S, D). W_out.
    b_out: output bias.
    """

    embedding: Float64[np.ndarray, "D P"]
    first: Float64[np.ndarray, "P P P P"]
    later: Float64[np.ndarray, "L_minus_1 D D D P"]
    floor: Float64[np.ndarray, "L"]
    read_out: Float64[np.ndarray, "S D"]
    b_out: float


def facts(weights: Weights) -> Facts:
    """Take out of the weights all that the six changes leave free.

    Raises:
        ValueError: no layer norm (another group); D is not P + 1; or the embedding has no basis of its own.
    """
    size = weights.architecture
    if not weights.layer_norm:
        raise ValueError(
            "facts() needs layer norm: without it every invertible change of basis is a symmetry"
        )
    if size.dim != size.features + 1:
        raise ValueError(f"facts() needs D = P + 1, these weights have D = {size.dim}, P = {size.features}")
    T = _own_basis(weights)
    back = np.linalg.inv(T)
    W_in, W2 = weights.W_in.astype(np.float64), weights.W2.astype(np.float64)
    W2 = W2 - W2.mean(axis=-1, keepdims=True)  # layer norm removes it before T moves it
    maps = []
    for layer in range(size.layers):
        # What the layer reads: tokens in layer 1, which sees no more of the embedding; later all its cells.
        reads = W_in.T if layer == 0 else back
        U = reads @ weights.W3[layer].astype(np.float64) @ weights.W1[layer] @ reads.T
        product = np.einsum("kab,kcd->abcd", U, reads @ W2[layer] @ T[:, 1:])
        maps.append((product + product.transpose(0, 2, 1, 3)) / 2)
    lengths = np.array([np.linalg.norm(each) for each in maps])
    first, *later = (each / length for each, length in zip(maps, lengths, strict=True))
    return Facts(
        T.T @ W_in,
        first,
        np.reshape(later, (size.layers - 1, *3 * (size.dim,), size.features)),
        weights.eps / lengths**2,
        weights.W_out @ back.T,
        weights.b_out,
    )


def _own_basis(weights: Weights) -> Float64[np.ndarray, "D D"]:
    """T such that the rows of Q·T have the coordinates of `Facts`."""
    start = helmert(weights.architecture.dim)
    inside = start.T @ weights.W_in
    least = 1e-9 * np.abs(inside).max()
    length = float(np.linalg.norm(inside[0]))
    if length < least:
        raise ValueError("the columns of W_in sum to zero: the embedding along the ones-vector is empty")
    length *= _sign(inside[0])
    along = inside[0] / length
    # Across the ones-vector, what is in step with the component along it is free: taken out.
    in_step = inside[1:] @ along
    u, s, vt = np.linalg.svd(inside[1:] - np.outer(in_step, along))
    if s[-2] < least:
        raise ValueError("the tokens do not span the embedding: it has no basis of its own")
    # The polar factor carries features to cells without stretching; the direction that no token has goes to
    # the combination of features that the ones-vector took.
    unseen = u[:, -1] * _sign(weights.W_out @ start[:, 1:] @ u[:, -1])
    turn = u[:, :-1] @ vt[:-1] + np.outer(unseen, along)
    top = np.concatenate([[1.0], -in_step @ turn]) / length
    return start @ np.vstack([top, np.column_stack([np.zeros(len(turn)), turn])])


def _sign(values: np.ndarray) -> float:
    """The sign of the entry of largest magnitude."""
    return float(np.sign(values[np.abs(values).argmax()]))


# -- the basis that the ℓ1 penalty would choose ------------------------------------------------------------


def l1_norm(weights: Weights) -> float:
    """What the paper's penalty multiplies: the sum of |w| over W_in and W_out. Symmetries change it."""
    return float(np.abs(weights.W_in).sum() + np.abs(weights.W_out).sum())


def sparsest(weights: Weights, *, starts: int, seed: int) -> Weights:
    """The same network in the basis of the smallest ℓ1 norm that descent finds, from its own and other bases.

    Args:
        weights: a trained network with layer norm. (Where most of W_out is zero, as in a construction,
            the norm may sink towards a singular basis and have no minimum.)
        starts: random bases to descend from, besides the network's own; the norm has several minima.
        seed: draws them.
    """
    rng, dim = Generator(PCG64(seed)), weights.architecture.dim
    bases = [np.eye(dim)]
    for _ in range(starts):
        image = np.ones(dim) + 0.5 * rng.standard_normal(dim)
        bases.append(layer_norm_basis(ortho_group.rvs(dim - 1, random_state=rng), image))
    found = [_descend(weights, T) for T in bases]
    return change_basis(weights, min(found, key=lambda T: np.abs(_penalised(weights, T)).sum()))


def _penalised(weights: Weights, T: Float64[np.ndarray, "D D"]) -> Float64[np.ndarray, "W"]:
    """The penalised weights in basis T as one vector."""
    return np.concatenate([(T.T @ weights.W_in).ravel(), (weights.W_out @ np.linalg.inv(T).T).ravel()])


def _directions(dim: int) -> Float64[np.ndarray, "G D D"]:
    """The ways to leave a basis: T·expm(direction) is again one that layer norm allows."""
    start, pairs = helmert(dim), [(0, j) for j in range(dim)]
    pairs += [(i, j) for i in range(1, dim) for j in range(i + 1, dim)]
    units = np.zeros((len(pairs), dim, dim))
    for unit, (i, j) in zip(units, pairs, strict=True):
        unit[i, j] = 1.0
        if i > 0:
            unit[j, i] = -1.0
    return start @ units @ start.T


def _descend(weights: Weights, T: Float64[np.ndarray, "D D"]) -> Float64[np.ndarray, "D D"]:
    """A local minimum of the ℓ1 norm over bases: damped, reweighted least squares on ever sharper corners."""
    directions = _directions(len(T))
    for corner in (1e-1, 1e-2, 1e-3, 1e-4, 1e-5):
        damping = 1e-3
        while damping < 1e6:
            now = _penalised(weights, T)
            A, B = T.T @ weights.W_in, weights.W_out @ np.linalg.inv(T).T
            slopes = np.array([np.concatenate([(X.T @ A).ravel(), -(B @ X.T).ravel()]) for X in directions])
            scaled = slopes / np.hypot(now, corner)
            normal = scaled @ slopes.T
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal) + 1e-9), -scaled @ now)
            step /= max(1.0, np.linalg.norm(step))
            trial = T @ expm(np.tensordot(step, directions, 1))
            before, after = (np.hypot(v, corner).sum() for v in (now, _penalised(weights, trial)))
            if after >= before:
                damping *= 4
                continue
            T, damping = trial, damping / 4
            if before - after < 1e-5 * before:
                break
    return T

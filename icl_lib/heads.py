"""Linear-attention heads written by their cells, the recursion behind them, and related papers' stacks.

A head **[q·k : f→t ×c]** adds to the cells t of row i the sum over rows j of (q_i·k_j) c f_j: the cells q
ask, the cells k are asked, the cells f move. In the paper's matrices W3 picks q, W1 picks k, W2 moves f to t.
There is no layer norm in this file: Q_{l+1} = Q_l + Σ_h LSA_h(Q_l). *Masked* means that the last row, the
query, is left out of the sums over rows; it still receives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from icl_lib.constructions import Head
from icl_lib.transformer import lsa

Stack = Sequence[Sequence[Head]]  # layers of heads, the first layer first


class Move(NamedTuple):
    """f→t ×c: cells are counted from 0; the factor is a number, or a matrix (cells of f, cells of t)."""

    source: Sequence[int]
    target: Sequence[int]
    factor: float | np.ndarray = 1.0


def head(
    dim: int, query: Sequence[int], key: Sequence[int], *moves: Move, score: np.ndarray | None = None
) -> Head:
    """The head [q·k : f→t ×c, …] of width `dim`.

    Args:
        dim: D, cells of a token.
        query, key: cells q and k, counted from 0.
        moves: what is copied, each cell of a source to the cell of its target in the same place.
        score: matrix B (cells of q, cells of k) of the score q_i B k_jᵀ; None is the identity.

    Raises:
        ValueError: a cell outside 0 … D − 1, or sizes that do not fit together.
    """
    cells = [*query, *key, *(cell for move in moves for cell in (*move.source, *move.target))]
    if wrong := [cell for cell in cells if not 0 <= cell < dim]:
        raise ValueError(f"cell {wrong[0]} does not exist, expected 0 to {dim - 1}")
    sizes = len(query), len(key)
    if score is None and sizes[0] != sizes[1]:
        raise ValueError(f"{sizes[0]} query cells and {sizes[1]} key cells: give a score matrix between them")
    W1, W2, W3 = np.zeros((3, dim, dim))
    W3[query, range(sizes[0])] = 1.0
    W1[np.ix_(range(sizes[0]), key)] = np.eye(sizes[0]) if score is None else _fitting("score", score, sizes)
    for source, target, factor in moves:
        if np.ndim(factor) == 0 and len(source) != len(target):
            raise ValueError(f"{len(source)} cells move to {len(target)}: give a matrix as their factor")
        block = np.asarray(factor) if np.ndim(factor) else factor * np.eye(len(source))
        W2[np.ix_(source, target)] += _fitting("factor", block, (len(source), len(target)))
    return Head(W1, W2, W3)


def _fitting(name: str, matrix: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    if np.shape(matrix) != shape:
        raise ValueError(f"{name} has shape {np.shape(matrix)}, expected {shape} to fit the cells")
    return np.asarray(matrix, dtype=np.float64)


# -- running a stack --------------------------------------------------------------------------------------


def run(
    tokens: Float64[np.ndarray, "M S D"], stack: Stack, *, masked: bool
) -> Float64[np.ndarray, "layers_and_1 M S D"]:
    """Q_0 … Q_L: the tokens before the first layer and after each one.

    Args:
        tokens: Q_0, the query in the last row.
        stack: layers of heads.
        masked: leave the last row out of all sums.
    """
    states = [tokens]
    for layer in stack:
        Q = states[-1]
        if masked:
            sums = gram(Q, masked=True)
            states.append(Q + sum(Q @ h.W3 @ (h.W1 @ sums @ h.W2) for h in layer))
        else:
            states.append(Q + sum(lsa(Q, *h) for h in layer))
    return np.stack(states)


def gram(tokens: Float64[np.ndarray, "M S D"], *, masked: bool) -> Float64[np.ndarray, "M D D"]:
    """S_0 = QᵀQ, without the last row if masked: all that the weights ever see of a prompt."""
    rows = tokens[:, :-1] if masked else tokens
    return rows.mT @ rows


def recursion(S_0: Float64[np.ndarray, "M D D"], stack: Stack) -> Float64[np.ndarray, "layers_and_1 M D D"]:
    """G_0 … G_L with Q_l = Q_0 G_l for every row: G_{l+1} = G_l (I + Σ_h A_h G_lᵀS_0G_l W2_h), A = W3 W1.

    The cost does not depend on the number of rows.
    """
    states = [np.broadcast_to(np.eye(S_0.shape[-1]), S_0.shape)]
    for layer in stack:
        G = states[-1]
        sums = G.mT @ S_0 @ G
        states.append(G + sum(G @ (h.W3 @ h.W1) @ sums @ h.W2 for h in layer))
    return np.stack(states)


def regression_tokens(
    X: Float64[np.ndarray, "M N d"], y: Float64[np.ndarray, "M N"], query: Float64[np.ndarray, "M d"]
) -> Float64[np.ndarray, "M S D"]:
    """Rows (x_n, y_n), then (x_q, 0): S = N + 1, D = d + 1."""
    rows = np.concatenate([X, y[..., None]], axis=2)
    last = np.concatenate([query, np.zeros((len(query), 1))], axis=1)
    return np.concatenate([rows, last[:, None]], axis=1)


# -- stacks for regression: cells x (0 … d−1) and y (d) ---------------------------------------------------


def preconditioned(
    A: Float64[np.ndarray, "L d d"], B: Float64[np.ndarray, "L d d"] | None = None
) -> list[list[Head]]:
    """[x A_l x : y→y ×(−1), x→x ×B_l], Ahn et al. (2023); the prediction is minus the query's y.

    With B = 0 layer l is the step w ← w + A_lᵀXᵀ(y − Xw) from w = 0. A = ηI is von Oswald et al. (2022), with
    B = −(γ/η)I their GD++: X ← X(I − γXᵀX).

    Raises:
        ValueError: A or B are not L matrices of size d × d.
    """
    if B is None:
        B = np.zeros_like(A)
    d = A.shape[-1]
    if A.shape != (len(A), d, d) or B.shape != A.shape:
        raise ValueError(f"A and B have shapes {A.shape} and {B.shape}, expected (L, d, d) both")
    x = range(d)
    return [
        [head(d + 1, x, x, Move([d], [d], -1.0), Move(x, x, B_l), score=A_l)]
        for A_l, B_l in zip(A, B, strict=True)
    ]


def newton_schulz(d: int, steps: int) -> list[list[Head]]:
    """Least squares in steps + 1 layers of width d + 1: [x·x : x→x ×(−(9/4)^k/3)], last [x·x : y→y ×(9/4)^K].

    X ← 1.5X − 0.5X XᵀX with X̂_k = X_k/1.5^k: the factor 1.5 needs no linear term. It converges if the largest
    singular value of X is below √3; the prediction is the query's y. GD++ with a γ that changes by layer.
    """
    x = range(d)
    shrink = [[head(d + 1, x, x, Move(x, x, -(2.25**k) / 3))] for k in range(steps)]
    return [*shrink, [head(d + 1, x, x, Move([d], [d], 2.25**steps))]]


def newton(d: int, steps: int) -> list[list[Head]]:
    """(XᵀX)⁻¹ by Newton's iteration in steps + 1 layers, cells x, y and z = αx: width 2d + 1.

    [z·x : z→z ×(−2^{k−1})], last [z·x : y→y ×2^K]: z_k = 2^k x M_k with M ← 2M − MSM, M_0 = αI and S = XᵀX.
    It converges if α is below 2 over the largest eigenvalue of S; the prediction is the query's y.
    """
    x, z = range(d), range(d + 1, 2 * d + 1)
    iterate = [[head(2 * d + 1, z, x, Move(z, z, -(2.0 ** (k - 1))))] for k in range(steps)]
    return [*iterate, [head(2 * d + 1, z, x, Move([d], [d], 2.0**steps))]]


def diagonal(d: int, omega: Float64[np.ndarray, "L 4"]) -> list[list[Head]]:
    """Two heads and four numbers a layer, Vladymyrov et al. (2024) with diagonal weights.

    [x·x : x→x ×ω_xx, y→y ×ω_xy] and [y·y : x→x ×ω_yx, y→y ×ω_yy]; the prediction is minus the query's y.

    Args:
        d: inputs.
        omega: rows (ω_xx, ω_xy, ω_yx, ω_yy).
    """
    x, y = range(d), [d]
    return [
        [
            head(d + 1, x, x, Move(x, x, xx), Move(y, y, xy)),
            head(d + 1, y, y, Move(x, x, yx), Move(y, y, yy)),
        ]
        for xx, xy, yx, yy in omega
    ]


def inverse(size: int, steps: int) -> list[list[Head]]:
    """A⁻¹ of a symmetric matrix in two layers a step, Giannou et al. (2024): cells (a, x, u, e).

    Token i holds row i of A, of the iterate X, of a work matrix U = 0 and of the identity.
    Layer 1 writes U = AX, [a·e : x→u]. Layer 2 makes X(2I − U): [x·e : u→x ×(−1)] subtracts XU, [e·e : x→x]
    doubles X, [e·e : u→u ×(−1)] clears U. No mask: there is no query.
    """
    a, x, u, e = (range(i * size, (i + 1) * size) for i in range(4))
    dim = 4 * size
    multiply = [head(dim, a, e, Move(x, u))]
    update = [head(dim, x, e, Move(u, x, -1.0)), head(dim, e, e, Move(x, x), Move(u, u, -1.0))]
    return [multiply, update] * steps


# -- stacks for sequences: cells 0 (empty), s_t, s_{t−1} --------------------------------------------------


def next_token(d: int, rate: float) -> list[list[Head]]:
    """[s_t·s_{t−1} : s_t→0 ×rate]: the last row receives rate·Σ s_i s_{i−1}ᵀ s_T, Sander et al. (2024).

    One step of descent from W = 0 on ½Σ|s_i − W s_{i−1}|², applied to s_T.
    """
    empty, now, before = (range(i * d, (i + 1) * d) for i in range(3))
    return [[head(3 * d, now, before, Move(now, empty, rate))]]


def next_complex_token(d: int, rate: float) -> list[list[Head]]:
    """The same for complex s, as (Re, Im) pairs of cells: rate·Σ s_i (s_{i−1}ᴴ s_T), Zheng et al. (2024).

    The complex score has a real and an imaginary part: one head each, the second with s multiplied by i.
    """
    empty, now, before = (range(2 * i * d, 2 * (i + 1) * d) for i in range(3))
    eye, nothing = np.eye(d), np.zeros((d, d))
    times_i = np.block([[nothing, eye], [-eye, nothing]])  # row vectors: (Re, Im) → (−Im, Re)
    real = head(6 * d, now, before, Move(now, empty, rate))
    imaginary = head(6 * d, now, before, Move(now, empty, rate * times_i), score=times_i.T)
    return [[real, imaginary]]


# -- stacks for graphs: a token is a vertex, its cells begin with its row of the incidence matrix B -------


def richardson(edges: int, vertices: int, steps: int, rate: float) -> list[list[Head]]:
    """L†ψ by φ ← φ + rate·(ψ − Lφ), Cheng et al. (2024): cells (b, e, r = ψ, φ = 0), no mask.

    [b·b : r→r ×(−rate)] keeps the residual, [e·e : r→φ ×rate] adds it; e is the vertex's one-hot vector.
    """
    b, e = range(edges), range(edges, edges + vertices)
    dim = edges + vertices + 2
    residual = head(dim, b, b, Move([dim - 2], [dim - 2], -rate))
    add = head(dim, e, e, Move([dim - 2], [dim - 1], rate))
    return [[residual, add]] * steps


def electric(edges: int, steps: int) -> list[list[Head]]:
    """L†ψ by Newton's iteration in steps + 1 layers, cells (b, z = αb, ψ, φ = 0), no mask and no one-hots.

    Layers of `newton` turn z into √L†'s rows over 2^K up to a rotation; [z·z : ψ→φ ×4^K] reads L†ψ.
    """
    b, z, dim = range(edges), range(edges, 2 * edges), 2 * edges + 2
    iterate = [[head(dim, z, b, Move(z, z, -(2.0 ** (k - 1))))] for k in range(steps)]
    return [*iterate, [head(dim, z, z, Move([dim - 2], [dim - 1], 4.0**steps))]]

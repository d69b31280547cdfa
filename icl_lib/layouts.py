"""Weights for prompts that keep the query out of the sums over the context, and the laws of their answers.

Layer norm without affine leaves the component of a row along e0 = (1, …, 1)/√D alone and puts the rest on the
sphere of radius √D. So y rides along e0 untouched, uncentred: C = mean((x − x̄) y) needs no centred y, and an
average over the context's rows reads ȳ there. Everything that layer norm divides by lies across e0.

A head adds q U QᵀQ W2 to row q, with W3 = U and W1 the identity. Every U and W2 here is a sum of outer
products of an orthonormal basis e0, v, w (, z): v carries the constant 1, w the input x, z the rest.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64

from icl_lib.constructions import check_settings
from icl_lib.prompts import Prompts
from icl_lib.weights import Weights

Pair = tuple[np.ndarray, np.ndarray]  # U and W2 of a head, (D, D) each

HADAMARD = np.array([[1, 1, 1, 1], [1, 1, -1, -1], [1, -1, 1, -1], [1, -1, -1, 1]]) / 2
HELMERT = np.array([[1, 1, 1], [1, 0, -1], [1, -2, 1]]) / np.sqrt([[3], [2], [6]])


def assemble(
    W_in: Float64[np.ndarray, "D P"],
    layers: Sequence[Sequence[Pair]],
    W_out: Float64[np.ndarray, "S D"],
    b_out: float = 0.0,
) -> Weights:
    """Weights from the U and W2 of every head; a layer with fewer heads than another gets zeros.

    Args:
        W_in: embedding.
        layers: for each layer its heads (U, W2), each (D, D); a head adds q U QᵀQ W2 to row q.
        W_out: output weights.
        b_out: output bias.
    """
    dim, heads = len(W_in), max(len(layer) for layer in layers)
    U, W2 = np.zeros((2, len(layers), heads, dim, dim))
    for l, layer in enumerate(layers):
        for k, head in enumerate(layer):
            U[l, k], W2[l, k] = head
    return Weights(W_in, np.broadcast_to(np.eye(dim), U.shape), W2, U, W_out, b_out=b_out)


def _centring(rho_squared_less_1: Float64[np.ndarray, "M"]) -> tuple[np.ndarray, np.ndarray]:
    """ρ and f = 1 − 1/ρ from ρ² − 1, without cancellation: layer 1 subtracts x̄/ρ = (1 − f)x̄."""
    rho = np.sqrt(1 + rho_squared_less_1)
    return rho, rho_squared_less_1 / (rho * (1 + rho))


# -- the query in its own channel -------------------------------------------------------------------------


def query_channel(n_context: int, scale: float) -> Weights:
    """Least squares from rows (1, x_n, y_n, u): no row is the query's.

    Layer 1 takes the mean off x and off u; layer 2 forms (u − x̄)C and divides it by V. Every row holds the
    answer; the output averages. Nothing but the 1/N of W_out depends on N.

    Args:
        n_context: N ≥ 3.
        scale: R > 0. The error is O(R⁻²) until rounding, of order R²·1e-16, takes over: 1e3 to 1e4 is best.

    Returns:
        TF(4, 2, 2) in float64, eps = 0, for `prompts.tokens("query_channel")`.

    Raises:
        ValueError: N or R out of range.
    """
    check_settings(n_context, scale=scale)
    N, R = n_context, scale
    e0, v, w, z = HADAMARD
    W_in = np.stack([v, w / R, e0, z / R], axis=1)
    centre = np.outer(v, v), np.outer(v, v) - np.outer(w, w + z) / 2
    # The factor R² on layer 2 cancels in its layer norm; it makes σ large beside an eps.
    spread = np.outer(v, w), R**2 * np.outer(w, v)
    covary = np.outer(z, w), R * np.outer(e0, w)
    read = (e0 + 1.5 * R * w) / N
    return assemble(W_in, [[centre], [spread, covary]], np.tile(read, (N, 1)))


def query_channel_law(prompts: Prompts, scale: float, eps: float = 0.0) -> Float64[np.ndarray, "M"]:
    """The exact answer of `query_channel` for any N, R and layer norm eps; (M,), in units of y.

    With ρ² = 1 + x̄²/(2R²) + 4eps/N², f = 1 − 1/ρ, κ = 1 + 2/ρ, n = (u − x̄ + x̄f)(C + x̄ȳf)/R and
    d = κ(V + x̄²f²): ŷ = ȳ + (3R/2)·(x̄f/R + 2n/√(d² + n² + 4eps/N²)).
    """
    m, N, R = prompts.moments(), prompts.n_context, scale
    rho, f = _centring(m.x_bar**2 / (2 * R**2) + 4 * eps / N**2)
    n = (prompts.query - m.x_bar + m.x_bar * f) * (m.C + m.x_bar * m.y_bar * f) / R
    d = (1 + 2 / rho) * (m.V + (m.x_bar * f) ** 2)
    return m.y_bar + 1.5 * R * (m.x_bar * f / R + 2 * n / np.sqrt(d**2 + n**2 + 4 * eps / N**2))


# -- a mask that tells the query's row from the context's -----------------------------------------------


def mask(n_context: int, scale: float) -> Weights:
    """Least squares from rows (1, x_n, y_n, 1) and the query's row (1, u, 0, 0).

    Layer 1 sums the rows whose mask is 1. Layer 2 cannot, for the mask is not a factor of x²; but a second
    term takes X_u times the sum of all X off the sum of all X². That is the query's own square, and nothing
    else, since the context's X add up to (almost) zero.

    Args, Returns, Raises:
        As `query_channel`, for `prompts.tokens("mask")`.
    """
    check_settings(n_context, scale=scale)
    N, R = n_context, scale
    e0, v, w, z = HADAMARD
    W_in = np.stack([v, w / R, e0, z], axis=1)
    centre = np.outer(v, z), np.outer(v, v) - np.outer(w, w) / 2
    spread = np.outer(v, w) - np.outer(w, v), R**2 * np.outer(w, v)
    covary = np.outer(w, w), R * np.outer(e0, z)
    W_out = np.tile(e0 / N, (N + 1, 1))
    W_out[-1] = 1.5 * R * z
    return assemble(W_in, [[centre], [spread, covary]], W_out)


def mask_law(prompts: Prompts, scale: float, eps: float = 0.0) -> Float64[np.ndarray, "M"]:
    """The exact answer of `mask` for any N, R and layer norm eps; (M,), in units of y.

    With ρ² = 1 + x̄²/(4R²) + 4eps/N², f = 1 − 1/ρ, κ = 1 + 2/ρ, X = u − x̄ + x̄f, n = X(C + x̄ȳf)/R and
    d = κ(V + x̄²f² − Xx̄f): ŷ = ȳ + 3R·n/√(d² + n² + 4eps/N²).
    """
    m, N, R = prompts.moments(), prompts.n_context, scale
    rho, f = _centring(m.x_bar**2 / (4 * R**2) + 4 * eps / N**2)
    X = prompts.query - m.x_bar + m.x_bar * f
    n = X * (m.C + m.x_bar * m.y_bar * f) / R
    d = (1 + 2 / rho) * (m.V + (m.x_bar * f) ** 2 - X * m.x_bar * f)
    return m.y_bar + 3 * R * n / np.sqrt(d**2 + n**2 + 4 * eps / N**2)


# -- inputs relative to the query -------------------------------------------------------------------------


def relative(n_context: int, scale: float) -> Weights:
    """Least squares in three dimensions, from rows (1, x_n − u, y_n) and a blank row (1, 0, 0) to answer in.

    The query is the origin, so the answer is the intercept ȳ − (C/V)·mean(x − u). x enters as x/R^1.5: the
    error is O(R⁻²) as for the other designs, but rounding grows as R³.

    Args, Returns, Raises:
        As `query_channel`, but TF(3, 2, 2) with an output bias, for `prompts.tokens("relative")`.
    """
    check_settings(n_context, scale=scale)
    N, R = n_context, scale
    e0, v, w = HELMERT
    kappa = 1 + np.sqrt(3)
    W_in = np.stack([v, w / R**1.5, e0], axis=1)
    centre = np.outer(v, v), N / (N + 1) * np.outer(v, v) - np.outer(w, w) / np.sqrt(3)
    # Numerator along v and denominator along w: the other way round, what layer 1 left of x̄ would be read.
    spread = np.outer(v, w) - np.outer(w, v), R**3 * np.outer(w, w)
    covary = np.outer(w, w), R**2 * np.outer(e0, v)
    W_out = np.tile(e0 / N, (N + 1, 1))
    W_out[-1] = kappa * R / np.sqrt(3) * v
    return assemble(W_in, [[centre], [spread, covary]], W_out, b_out=-(kappa**2) * R / np.sqrt(3))


def relative_law(prompts: Prompts, scale: float, eps: float = 0.0) -> Float64[np.ndarray, "M"]:
    """The exact answer of `relative` for any N, R and layer norm eps; (M,), in units of y.

    With t = x̄ − u, ρ² = 1 + t²/(3R³) + 3eps/N², f = 1 − 1/ρ, κ = 1 + √3/ρ, n = −t(1 − f)(C + tȳf)/R and
    d = κ(V + t²f): ŷ = ȳ + (1 + √3)R·(n/√(d² + n² + 3eps/N²) − f).
    """
    m, N, R = prompts.moments(), prompts.n_context, scale
    t = m.x_bar - prompts.query
    rho, f = _centring(t**2 / (3 * R**3) + 3 * eps / N**2)
    n = -t * (1 - f) * (m.C + t * m.y_bar * f) / R
    d = (1 + np.sqrt(3) / rho) * (m.V + t**2 * f)
    return m.y_bar + (1 + np.sqrt(3)) * R * (n / np.sqrt(d**2 + n**2 + 3 * eps / N**2) - f)

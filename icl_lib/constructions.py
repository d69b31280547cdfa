"""Weights written down by hand, and the exact laws of what they answer.

Heads are written as the paper writes them, with E_ij the D×D matrix that has a 1 at (i, j), counted from 1.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from icl_lib.prompts import MIN_CONTEXT, Prompts
from icl_lib.weights import Weights

ROOT2 = np.sqrt(2.0)


class Head(NamedTuple):
    """The parameters Θ = {W1, W2, W3} of one head, each (D, D), eq. (9)."""

    W1: Float64[np.ndarray, "D D"]
    W2: Float64[np.ndarray, "D D"]
    W3: Float64[np.ndarray, "D D"]


def unit(i: int, j: int, dim: int = 4) -> Float64[np.ndarray, "D D"]:
    """E_ij: a (dim, dim) matrix, 1 at row i, column j (from 1), else 0."""
    matrix = np.zeros((dim, dim))
    matrix[i - 1, j - 1] = 1.0
    return matrix


def rows(dim: int = 4, **entries: tuple[float, ...]) -> Float64[np.ndarray, "D D"]:
    """A (dim, dim) matrix from its nonzero rows: rows(r3=(0, 1, -1, 0)) sets row 3 (from 1)."""
    matrix = np.zeros((dim, dim))
    for name, row in entries.items():
        matrix[int(name[1:]) - 1] = row
    return matrix


def check_settings(n_context: int, **positive: float) -> None:
    if n_context < MIN_CONTEXT:
        raise ValueError(f"n_context is {n_context}, expected at least {MIN_CONTEXT}")
    for name, value in positive.items():
        if not (np.isfinite(value) and value > 0):
            raise ValueError(f"{name} is {value}, expected a positive finite number")


def _assemble(
    W_in: np.ndarray, layers: list[list[Head]], n_context: int, query_cell: float, *, layer_norm: bool = True
) -> Weights:
    """Weights whose output is `query_cell` times the paper's (3, N+1) cell."""
    W1, W2, W3 = np.moveaxis(np.array(layers), 2, 0)  # (L, K, 3, D, D): three of (L, K, D, D)
    W_out = np.zeros((n_context + 1, len(W_in)))
    W_out[-1, 2] = query_cell
    return Weights(np.array(W_in, dtype=np.float64), W1, W2, W3, W_out, layer_norm=layer_norm)


# -- the paper's closed form, section 3 ------------------------------------------------------------------


def closed_form(n_context: int, scale: float) -> Weights:
    """The paper's construction, eqs (18)-(55): layer 1 centres, layer 2 divides by V.

    Args:
        n_context: N ≥ 3.
        scale: the paper's R > 0. It enters through RN alone.

    Returns:
        TF(4, 2, 2) in float64, eps = 0.

    Raises:
        ValueError: N or R out of range.
    """
    check_settings(n_context, scale=scale)
    N, R = n_context, scale
    d = 1 / (R * N)
    W_in = np.array([[1, 0, 0], [0, d, 0], [0, 0, d], [ROOT2 * N / (N + 1), -d, -d]])  # (18)
    nothing = Head(np.zeros((4, 4)), np.zeros((4, 4)), np.zeros((4, 4)))  # (29)
    centre = Head(
        unit(1, 1), np.diag([N / (N + 1), -1 / ROOT2, -1 / ROOT2, -1 / ROOT2]), unit(1, 1)
    )  # (25)-(27)
    covary = Head(unit(1, 2), R**2 * N / ROOT2 * (unit(3, 2) - unit(3, 3)), unit(2, 1))  # (41)-(43)
    spread = Head(unit(1, 2), R**2 * N * (unit(2, 1) - unit(2, 4)), unit(1, 1) / (1 + ROOT2))  # (45)-(47)
    return _assemble(W_in, [[centre, nothing], [covary, spread]], N, -R * N)  # (55)


def repaired(n_context: int, scale: float, *, context_cells: bool = False, factor: float = 1.0) -> Weights:
    """The paper's construction with another read-out: no weight before it changes.

    Args:
        n_context: N ≥ 3.
        scale: R > 0.
        context_cells: weigh embedding 3 of every context row by +R, so that the output takes off the mean
            residual of the context, with the means that the query did not contaminate.
        factor: multiplies W_out; 1 + c/N undoes the mean of the leverage.

    Raises:
        ValueError: N, R or factor out of range.
    """
    check_settings(n_context, scale=scale, factor=factor)
    weights = closed_form(n_context, scale)
    W_out = weights.W_out.copy()
    if context_cells:
        W_out[:-1, 2] = scale
    return replace(weights, W_out=factor * W_out)


# -- the Gram–Schmidt family ----------------------------------------------------------------------------


def gram_schmidt(n_context: int, scale: float, angle: float) -> Weights:
    """Least squares by Gram–Schmidt on the columns (1, x), in an order set by `angle`.

    Layer 1 removes w = cos φ·1 + sin φ·x from z = −sin φ·1 + cos φ·x and from y, layer 2 removes what is
    left of z from what is left of y. φ = 0 is the paper's order (without its two N/(N+1) factors): the second
    layer norm divides by V. φ = π/2 is the swapped order: the first layer norm divides, by the mean of x².

    Args:
        n_context: N ≥ 3.
        scale: R > 0.
        angle: φ in radians.

    Returns:
        TF(4, 2, 2) in float64, eps = 0; its law is `gram_schmidt_law`, for R → ∞ (1 − h)·ŷ at every φ.

    Raises:
        ValueError: N or R out of range, angle not finite.
    """
    check_settings(n_context, scale=scale)
    if not np.isfinite(angle):
        raise ValueError(f"angle is {angle}, expected a finite number of radians")
    N, d, s = n_context, 1 / (scale * n_context), 1 / ROOT2
    cos, sin = np.cos(angle), np.sin(angle)
    W_in = np.array([[1, 0, 0], [-d * sin, d * cos, 0], [0, 0, d], [cos, sin, 0]])
    big = Head(unit(1, 4) / N, rows(r4=(1, 0, 0, -1)), unit(1, 1))  # the mean of w²
    project = Head(unit(1, 4) / N, rows(r2=(0, -s, 0, s), r3=(0, 0, -s, s)), unit(4, 1))
    covary = Head(unit(1, 2) / N, rows(r3=(0, s, -s, 0)) / d**2, unit(2, 1))
    spread = Head(unit(1, 2) / N, rows(r2=(1, 0, 0, -1)) / d**2, unit(1, 1) / (1 + ROOT2))
    return _assemble(W_in, [[big, project], [covary, spread]], N, -1 / d)


def _law(
    prompts: Prompts,
    w: np.ndarray,
    z: np.ndarray,
    w_squared: np.ndarray,
    delta: float,
    eps1: float,
    eps2: float,
) -> Float64[np.ndarray, "M"]:
    """What any member of the family answers; w, z (M, N+1), w_squared (M,) stands in layer 1's first cell."""
    N = prompts.n_context
    y = prompts.tokens()[:, :, 2]

    def mean(values: np.ndarray) -> np.ndarray:  # "mean over rows": all N + 1 rows, divided by N
        return values.sum(axis=1, keepdims=True) / N

    W = w_squared[:, None]
    p, q = mean(w * z), mean(w * y)
    t, r = w * p * delta / (ROOT2 * W), w * q * delta / (ROOT2 * W)
    rho = np.sqrt(1 - (t + r) + t * t + t * r + r * r + 2 * eps1 / W**2)  # σ_1 = ρW/√2
    kappa = (1 + ROOT2 / rho) / (1 + ROOT2)
    g, e = z - w * p / (W * rho), y - w * q / (W * rho)
    S_gg, S_ge = mean(g * g)[:, 0], mean(g * e)[:, 0]
    top = S_ge * g[:, -1]
    bottom = np.sqrt((kappa[:, -1] * S_gg) ** 2 + (delta * top) ** 2 / 2 + 2 * eps2)  # √2 σ_2 at the query
    return -e[:, -1] + top / bottom


def gram_schmidt_law(
    prompts: Prompts, scale: float, angle: float, eps: float = 0.0
) -> Float64[np.ndarray, "M"]:
    """The exact answer of `gram_schmidt` for any N, R, φ and layer-norm eps; (M,), in units of y."""
    x = prompts.tokens()[:, :, 1]
    w, z = np.cos(angle) + np.sin(angle) * x, -np.sin(angle) + np.cos(angle) * x
    w_squared = (w * w).sum(axis=1) / prompts.n_context
    return _law(prompts, w, z, w_squared, 1 / (scale * prompts.n_context), eps, eps)


def closed_form_law(prompts: Prompts, scale: float, eps: float = 0.0) -> Float64[np.ndarray, "M"]:
    """The exact answer of `closed_form` for any N, R and layer-norm eps; (M,), in units of y.

    With x̃ = x̄ + u/N, a = x̃/(√2R), b = ȳ/(√2R), ρ² = 1 − (a+b)/N + (a²+ab+b²)/N² + 2eps/N²,
    κ = (1 + √2/ρ)/(1 + √2), X_n = x_n − x̃/ρ, Y_n = y_n − ȳ/ρ and sums over all N + 1 rows divided by N:
    ŷ = ȳ/ρ + S_xy X_q / √(κ²S_xx² + (S_xy X_q)²/(2R²N²) + 2eps).
    """
    N = prompts.n_context
    x = prompts.tokens()[:, :, 1]
    # The paper's first layer sums where the family averages: its eps weighs N² less, and its two N/(N+1)
    # factors make the first cell N, where the sum of w² = 1 is N + 1.
    return _law(prompts, np.ones_like(x), x, np.ones(prompts.count), 1 / (scale * N), eps / N**2, eps)


# -- the tilted construction ----------------------------------------------------------------------------


def tilted(n_context: int, scale: float) -> Weights:
    """A construction that also undoes the factor 1 − h, to leading order.

    The first layer norm divides row n by 1 + k(x_n − m_x), k = 1/√N, instead of a constant. At the query this
    adds k²d² to both terms of the answer, which to first order is the factor 1/(1 − h). For inputs of mean 0
    and variance 1 (k is written for these) the squared error is O(N⁻³) without noise; noise adds σ²/(2N²).

    Args:
        n_context: N. The second layer norm has a pole at a query d = −0.78√N (and 1.28√N) from the mean:
            below N ≈ 30 it comes into reach of standard normal queries.
        scale: R > 0. R ≈ 20 is a good choice; RN above 4e4 loses digits in float64.

    Raises:
        ValueError: N or R out of range.
    """
    check_settings(n_context, scale=scale)
    N, d, eta, gamma = n_context, 1 / (scale * n_context), 1 / ROOT2, 1 + ROOT2
    k = 1 / np.sqrt(N)
    xi = 2.5 * k  # cancels the terms in x̄ that the tilt leaves in layer 2's denominator
    # Q_1 = (1, 0, δy, −1 + δx − δy): the four cells sum to δx, so a column of 1/δ reads x.
    W_in = np.array([[1, 0, 0], [0, 0, 0], [0, 0, d], [-1, d, -d]])
    ones = np.ones(4)
    read_x = np.outer(ones / d, [1, 0, 0, 0])
    centre = Head(
        unit(1, 1) / N,
        np.outer(ones, [-k / d, -eta, 0, k / d + eta]) + rows(r1=(1, 0, 0, -1), r3=(0, 0, -eta, eta)),
        unit(1, 1),
    )
    tilt = Head(unit(1, 1) / N, rows(r1=(k, eta * d / 2, 0, -k - eta * d / 2)), read_x)
    G = np.array([0.5, 1.5, 0.5, 0.5]) / d  # reads the centred input g_n from a row of Q_2
    covary = Head(rows(r1=tuple(G / N)), rows(r3=(0, eta, -eta, 0)), np.outer(G, [1, 0, 0, 0]))
    spread = Head(
        rows(r1=tuple(ones / (d * N))),
        np.outer(G + np.array([xi / gamma, 0, 0, 0]), [1, 0, 0, -1]),
        np.outer([1 / gamma - k / d, 0, -k / d, -k / d], [1, 0, 0, 0]),
    )
    return _assemble(W_in, [[centre, tilt], [covary, spread]], N, -(1 + 1 / N) / d)


# -- gradient descent -------------------------------------------------------------------------------------


def two_step_descent(n_context: int, rate: float, start: float) -> Weights:
    """Appendix B: two steps of gradient descent on the slope, eqs (68)-(108), TF(4, 3, 2) without layer norm.

    Args:
        n_context: N ≥ 3.
        rate: the paper's η > 0; the step on θ is Nη(C − θV).
        start: a = θ(0), in units of y/x.

    Raises:
        ValueError: N or rate out of range, start not finite.
    """
    check_settings(n_context, rate=rate)
    if not np.isfinite(start):
        raise ValueError(f"start is {start}, expected a finite number")
    N = n_context
    alpha1, alpha2, beta2, alpha3, beta3 = np.sqrt(N * rate), start, -1.0, -2.0 * start, 2.0  # (108)
    W_in = np.array([[1, 0, 0], [0, alpha1, 0], [0, alpha2, beta2], [0, alpha3, beta3]])  # (68)
    nothing = Head(np.zeros((4, 4)), np.zeros((4, 4)), np.zeros((4, 4)))  # (89), (99)
    centre_y = Head(-unit(1, 1) / N, unit(3, 3) + unit(4, 4), unit(1, 1))  # (72)-(74)
    centre_x = Head(-unit(1, 1) / N, unit(2, 2), unit(1, 1))  # (77)-(79)
    first = Head(unit(1, 2) / N, unit(3, 4), unit(2, 1))  # (85)-(87)
    second = Head(unit(1, 2) / N, unit(4, 3), unit(2, 1))  # (95)-(97)
    layers = [[centre_y, centre_x], [first, nothing], [second, nothing]]
    return _assemble(W_in, layers, N, 1.0, layer_norm=False)  # (104)


def one_step_descent(n_context: int, rate: float) -> Weights:
    """One step from θ = 0 on intercept and slope together, as von Oswald et al. (2022) write it.

    The answer is η(Σy_n + uΣx_n y_n), exactly, at every N: the query's y is 0 and adds nothing to either sum.

    Args:
        n_context: N ≥ 3.
        rate: η > 0 on ½Σ(y_n − θ0 − θ1 x_n)².

    Raises:
        ValueError: N or rate out of range.
    """
    check_settings(n_context, rate=rate)
    slope = Head(unit(1, 2, 3), rate * unit(3, 3, 3), unit(2, 1, 3))
    intercept = Head(unit(1, 1, 3), rate * unit(3, 3, 3), unit(1, 1, 3))
    return _assemble(np.eye(3), [[slope, intercept]], n_context, 1.0, layer_norm=False)


# -- Appendix A -------------------------------------------------------------------------------------------


def appendix_a() -> tuple[Head, Head]:
    """Two heads, eqs (58) and (59), with one output from two inputs: (1, a, b) and (1, a, a + b), D = 3."""
    plain = rows(3, r2=(0, 1, 0), r3=(0, 0, 1))
    undoing = rows(3, r2=(0, 1, -1), r3=(0, 0, 1))
    return Head(unit(1, 1, 3), plain, unit(1, 1, 3)), Head(unit(1, 1, 3), undoing, unit(1, 1, 3))

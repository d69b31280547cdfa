"""Least squares by the theorem of Cayley and Hamilton: both layer norms divide, in any proportion."""

from __future__ import annotations

import numpy as np

from icl_lib.constructions import check_settings
from icl_lib.layouts import HADAMARD
from icl_lib.weights import Weights


def cayley_hamilton(n_context: int, scale: float, c_S: float, c_m: float = 0.0) -> Weights:
    """Least squares whose first layer norm divides by T = tr(DG), for any positive definite metric D.

    G is the Gram matrix of the rows (1, x_n) and b their products with y, over all N + 1 rows and divided by
    N; D = [[1 - c_S, c_m/2], [c_m/2, c_S]]. So T = (1 - c_S)·G_11 + c_m·G_1x + c_S·G_xx. Layer 1 takes
    p·D b/T from y and p·D G_x/T from x, where p = (1, x). Layer 2 divides by det(G)/T and finishes: G's least
    squares solution is a multiple of D times what is left of b, because T·I - GD = adj(GD) for 2×2 matrices.
    The Gram–Schmidt family is the edge det D = 0, which this does not reach: there what is left has rank 1.

    Args:
        n_context: N ≥ 3.
        scale: R > 0; the answer is (1 - h)·ŷ for R → ∞, with a deviation O(1/R).
        c_S: share of the division in layer 1, inside (0, 1).
        c_m: weight of the mean of x, |c_m| < 2√(c_S(1 - c_S)).

    Returns:
        TF(4, 2, 2) in float64, eps = 0, with the output bias of eq. (17).

    Raises:
        ValueError: N, R or D out of range.
    """
    check_settings(n_context, scale=scale)
    det = c_S * (1 - c_S) - c_m**2 / 4
    if not (0 < c_S < 1 and det > 0):
        raise ValueError(
            f"c_S = {c_S}, c_m = {c_m} give no positive definite metric: expected 0 < c_S < 1 and "
            "|c_m| < 2·sqrt(c_S·(1 - c_S))"
        )
    N, d, c_1, outer = n_context, 1 / (scale * n_context), 1 - c_S, np.outer
    ones, f1, f2, f3 = HADAMARD
    x, y = ones, f3 / d  # what reads x (in both layers) and y from a row

    def metric(one: np.ndarray) -> np.ndarray:
        """W1 of a head with W3 = 1 that weighs a row by p·D; `one` reads the constant."""
        return (outer(one, c_1 * one + c_m / 2 * x) + outer(x, c_m / 2 * one + c_S * x)) / N

    # Layer 1: T along f1 in every row. Head 1 alone would leave a term in x_n there; the second takes it off.
    project = metric(f1), outer(f1, f1) - d / 2 * (outer(x, f2) + outer(y, f3))
    level = (outer(f1, x) - outer(x, f1)) / N, outer(c_m / 2 * f1 + c_S * x, f1)
    # Layer 2: the constant is 1 + 2 along f1, x's remainder stands along f2, y's along f3.
    finish = metric(f1 / 3) * c_1 / det, outer(y, d / 2 * f1)
    divide = outer(f1 / 3, f2 / d) / N, outer(x, f2)
    W1, W2 = np.moveaxis(np.array([[project, level], [finish, divide]]), 2, 0)
    W_out = np.zeros((N + 1, 4))
    W_out[-1] = f1 / d
    W_in = HADAMARD.T @ np.array([[0, 1, 0], [1, 0, 0], [0, d, 0], [0, 0, d]])
    return Weights(W_in, W1, W2, np.broadcast_to(np.eye(4), W1.shape).copy(), W_out, b_out=-3 / d)

"""Regression on inputs in d dimensions: prompts, the exact answer, and weights that do Gram–Schmidt."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from numpy.random import PCG64, Generator, SeedSequence
from scipy.fft import dct

from icl_lib.constructions import check_settings
from icl_lib.layouts import assemble
from icl_lib.prompts import check_array
from icl_lib.weights import Weights


@dataclass(frozen=True, eq=False)
class MultivariatePrompts:
    """M data sets of N points with inputs in R^d, and one query each.

    Args:
        x: inputs, (M, N, d).
        y: outputs, (M, N).
        query: the prediction points u, (M, d).

    Raises:
        ValueError: shapes disagree, an entry is not finite, or N < d + 2: d + 1 points are met exactly.
    """

    x: Float64[np.ndarray, "M N d"]
    y: Float64[np.ndarray, "M N"]
    query: Float64[np.ndarray, "M d"]

    def __post_init__(self) -> None:
        x = check_array("x", self.x, (None, None, None))
        _check_size(x.shape[1], x.shape[2])
        object.__setattr__(self, "x", x)
        object.__setattr__(self, "y", check_array("y", self.y, x.shape[:2]))
        object.__setattr__(self, "query", check_array("query", self.query, (x.shape[0], x.shape[2])))

    def tokens(self) -> Float64[np.ndarray, "M N P"]:
        """Rows (1, x_n, y_n, u), P = 2d + 2; for d = 1 these are `Prompts.tokens("query_channel")`."""
        ones = np.ones((*self.y.shape, 1))
        query = np.broadcast_to(self.query[:, None], self.x.shape)
        return np.concatenate([ones, self.x, self.y[:, :, None], query], axis=2)

    def least_squares(self) -> Float64[np.ndarray, "M"]:
        """The least squares prediction at the query, by `numpy.linalg.lstsq` on the columns (1, x).

        Raises:
            ValueError: the columns of some prompt depend on one another; the message lists which.
        """
        ones = np.ones((*self.y.shape, 1))
        answers, deficient = np.empty(len(self.y)), []
        for i, X in enumerate(np.concatenate([ones, self.x], axis=2)):
            theta, _, rank, _ = np.linalg.lstsq(X, self.y[i], rcond=None)
            answers[i] = theta[0] + self.query[i] @ theta[1:]
            if rank < X.shape[1]:
                deficient.append(str(i))
        if deficient:
            raise ValueError(
                f"the inputs of prompts {', '.join(deficient[:5])} ({len(deficient)} in all) lie in a plane: "
                "no coefficients fit better than all others; drop these prompts"
            )
        return answers


def _check_size(n_context: int, dimension: int) -> None:
    if dimension < 1:
        raise ValueError(f"dimension is {dimension}, expected at least 1")
    if n_context < dimension + 2:
        raise ValueError(
            f"n_context is {n_context}, expected at least {dimension + 2}, two more than the dimension"
        )


def sample_multivariate(
    count: int, n_context: int, dimension: int, *, seed: int | SeedSequence, noise_std: float = 0.2
) -> MultivariatePrompts:
    """Draw x, u ~ N(0, I), y = θ0 + θ·x + ε with θ ~ N(0, I) and ε ~ N(0, σ²).

    Args:
        count: M.
        n_context: N ≥ d + 2.
        dimension: d.
        seed: an integer or a SeedSequence; the same seed gives the same bits.
        noise_std: σ, in units of y.

    Raises:
        ValueError: a size is too small.
    """
    _check_size(n_context, dimension)
    if count < 1:
        raise ValueError(f"count is {count}, expected at least 1 prompt")
    draw = Generator(PCG64(seed))
    theta = draw.standard_normal((count, dimension + 1))
    x = draw.standard_normal((count, n_context, dimension))
    query = draw.standard_normal((count, dimension))
    noise = noise_std * draw.standard_normal((count, n_context))
    y = theta[:, :1] + (x @ theta[:, 1:, None])[:, :, 0] + noise
    return MultivariatePrompts(x, y, query)


def gram_schmidt_regression(n_context: int, dimension: int, scale: float) -> Weights:
    """Least squares in d dimensions, one column a layer: L = d + 1, D = 2d + 2, K = 3.

    Layer 1 takes the means off x and u. Layer j + 1 takes what is left of column j off the columns after it,
    and the same combination off the query; its layer norm divides by the column's sum of squares. It adds
    the column's share of the answer, U_j·S_jy/S_jj, to the cell that the output averages.

    Args:
        n_context: N ≥ d + 2.
        dimension: d ≥ 1; for d = 1 the answer is that of `layouts.query_channel`.
        scale: R > 0. The error is O(R⁻²) until rounding, of order R²·1e-16, takes over. Both grow with the
            condition number of the centred columns, for sums of squares are what is divided by.

    Returns:
        TF(2d + 2, d + 1, 3) in float64, eps = 0, for `MultivariatePrompts.tokens()`.

    Raises:
        ValueError: N, d or R out of range.
    """
    _check_size(n_context, dimension)
    check_settings(n_context, scale=scale)
    N, d, R = n_context, dimension, scale
    dim = 2 * d + 2
    # An orthonormal basis that begins with (1, …, 1)/√D: the rows of the discrete cosine transform.
    e0, v, *rest = dct(np.eye(dim), axis=0, norm="ortho")
    w, z = np.array(rest[:d]), np.array(rest[d:])
    W_in = np.stack([v, *w / R, e0, *z / R], axis=1)
    mean_off = (np.outer(w_i, w_i + z_i) for w_i, z_i in zip(w, z, strict=True))
    unit = 1 + 1 / np.sqrt(dim)  # layer 2's κ/√D: the answer's scale, as in `layouts.query_channel`
    layers = [[(np.outer(v, v), np.outer(v, v) - sum(mean_off) / np.sqrt(dim))]]
    for j in range(d):
        kappa = 1 + (j + 1) * np.sqrt(dim)  # what the layers before have made of the constant 1 along v
        off = -kappa / np.sqrt(dim)
        spread = np.outer(v, w[j]), np.outer(w[j], v)
        columns = np.outer(w[j], w[j]), off * w[j + 1 :].T @ w[j + 1 :]
        answer = np.outer(e0, w[0]) / (unit * R)  # w_1 is free: layer 2 was the last to need it
        query = np.outer(z[j], w[j]), off * (w[j + 1 :].T @ z[j + 1 :] - answer)
        # The factor R² cancels in the layer norm; it makes σ large beside an eps.
        layers.append([(U, R**2 * W2) for U, W2 in (spread, columns, query)])
    return assemble(W_in, layers, np.tile((e0 + unit * R * w[0]) / N, (N, 1)))

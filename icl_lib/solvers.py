"""Answers computed directly, without a network: one signature, Prompts -> (M,), float64."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from icl_lib.prompts import Moments, Prompts


def _moments_with_spread(prompts: Prompts) -> Moments:
    """The moments, refused where V = 0 leaves the slope undefined."""
    moments = prompts.moments()
    # All x equal leaves a V of rounding size, not 0: compare the points themselves.
    flat = np.flatnonzero(np.ptp(prompts.x, axis=1) == 0)
    if flat.size:
        shown = ", ".join(str(i) for i in flat[:5]) + (", …" if flat.size > 5 else "")
        raise ValueError(
            f"V = 0 in {flat.size} of {prompts.count} prompts (index {shown}): all x of a context are equal, "
            "so no slope fits better than another; drop these prompts or use ridge with a positive penalty"
        )
    return moments


def least_squares(prompts: Prompts) -> Float64[np.ndarray, "M"]:
    """The least squares prediction ŷ(u) = ȳ + (C/V)(u − x̄), eq. (8).

    Raises:
        ValueError: V = 0 in some prompt (all x equal); the message lists which.
    """
    m = _moments_with_spread(prompts)
    return m.y_bar + m.C / m.V * (prompts.query - m.x_bar)


def ridge(prompts: Prompts, penalty: float) -> Float64[np.ndarray, "M"]:
    """Ridge prediction (1, u)ᵀ(XᵀX + penalty·I)⁻¹Xᵀy, intercept penalised like the slope.

    With penalty σ²/τ² this is the Bayes prediction for θ ~ N(0, τ²I) and noise variance σ².

    Args:
        prompts: M prompts; V = 0 is fine if penalty > 0.
        penalty: λ ≥ 0, in units of a sum over context rows (σ²/τ²).

    Raises:
        ValueError: penalty negative or not finite; penalty = 0 with V = 0.
    """
    if not (np.isfinite(penalty) and penalty >= 0):
        raise ValueError(f"penalty is {penalty}, expected a finite number that is not negative")
    if penalty == 0:
        return least_squares(prompts)
    # XᵀX of the columns (1, x), solved by hand in its 2×2 form.
    s0 = prompts.n_context + penalty
    s1 = prompts.x.sum(axis=1)
    s2 = (prompts.x**2).sum(axis=1) + penalty
    t0, t1 = prompts.y.sum(axis=1), (prompts.x * prompts.y).sum(axis=1)
    determinant = s0 * s2 - s1 * s1
    intercept = (s2 * t0 - s1 * t1) / determinant
    slope = (s0 * t1 - s1 * t0) / determinant
    return intercept + slope * prompts.query


def gradient_descent(
    prompts: Prompts, *, steps: int, rate: float, start: float = 0.0
) -> Float64[np.ndarray, "M"]:
    """Prediction after `steps` descents on S(θ) = ½Σ(y_n − ȳ − θ(x_n − x̄))², eqs (60)-(67).

    θ(t) = θ(t−1) + Nη(C − θ(t−1)V), with the intercept held at the centre of the data: ȳ + θ(u − x̄).

    Args:
        prompts: M prompts; V = 0 is fine.
        steps: T ≥ 0.
        rate: the paper's η, in units of 1/x².
        start: θ(0), in units of y/x.

    Raises:
        ValueError: steps negative, or rate or start not finite.
    """
    if steps < 0:
        raise ValueError(f"steps is {steps}, expected at least 0")
    if not np.isfinite([rate, start]).all():
        raise ValueError(f"rate is {rate} and start is {start}, expected finite numbers")
    m = prompts.moments()
    theta = np.full(prompts.count, float(start))
    for _ in range(steps):
        theta += prompts.n_context * rate * (m.C - theta * m.V)
    return m.y_bar + theta * (prompts.query - m.x_bar)


def newton(prompts: Prompts, *, steps: int) -> Float64[np.ndarray, "M"]:
    """Least squares with (XᵀX)⁻¹ by Newton's iteration Z ← Z(2I − AZ), A = XᵀX of the columns (1, x).

    It starts at Z = A/‖A‖₁², from which it converges for every positive definite A.

    Args:
        prompts: M prompts.
        steps: T ≥ 0 iterations; the relative error of Z squares at each.

    Raises:
        ValueError: steps negative, or V = 0 in some prompt (A has no inverse).
    """
    if steps < 0:
        raise ValueError(f"steps is {steps}, expected at least 0")
    _moments_with_spread(prompts)
    X = np.stack([np.ones_like(prompts.x), prompts.x], axis=2)
    A = X.transpose(0, 2, 1) @ X
    Z = A / np.abs(A).sum(axis=1).max(axis=1)[:, None, None] ** 2
    for _ in range(steps):
        Z = Z @ (2.0 * np.eye(2) - A @ Z)
    theta = (Z @ (X.transpose(0, 2, 1) @ prompts.y[:, :, None]))[:, :, 0]
    return theta[:, 0] + theta[:, 1] * prompts.query


def leverage(prompts: Prompts) -> Float64[np.ndarray, "M"]:
    """h, the query's leverage when (u, ·) is counted as an (N+1)-th data point.

    h = 1/(N+1) + (u − m)²/Σ(x_n − m)², mean m and sum over all N + 1 points; no unit, between 1/(N+1) and 1.
    Least squares on the N + 1 points with output 0 at the query answers (1 − h)·ŷ(u) there.

    Raises:
        ValueError: the context and the query all lie at one x, so that h is 0/0.
    """
    points = np.concatenate([prompts.x, prompts.query[:, None]], axis=1)
    flat = np.flatnonzero(np.ptp(points, axis=1) == 0)
    if flat.size:
        raise ValueError(f"prompt {flat[0]}: context and query lie at one x, its leverage is undefined")
    d = points - points.mean(axis=1, keepdims=True)
    return 1.0 / points.shape[1] + d[:, -1] ** 2 / (d * d).sum(axis=1)

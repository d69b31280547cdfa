"""What a trained network does: which layer norm divides, which cells carry the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float64

from icl_lib.prompts import Layout, Prompts, sample_prompts
from icl_lib.solvers import least_squares
from icl_lib.transformer import Trace
from icl_lib.weights import Weights

Name = TypeVar("Name")
PART = 1000  # prompts in one trace: a longer one does not fit the cache and takes several times as long
CHOICE_SEED = 2607_15819  # of the prompts on which runs are ranked: the same ones in every chapter


def traced(
    weights: Weights, prompts: Prompts, pick: Callable[[Trace], Float64[np.ndarray, "..."]]
) -> Float64[np.ndarray, "M ..."]:
    """What `pick` takes from the traces of the prompts, part by part, joined along the first axis."""
    parts = (prompts[i : i + PART] for i in range(0, prompts.count, PART))
    return np.concatenate([pick(weights.trace(part)) for part in parts])


# -- which layer norm divides ---------------------------------------------------------------------------


def division_correlation(trace: Trace, prompts: Prompts) -> Float64[np.ndarray, "L"]:
    """Correlation over prompts of 1/σ_{l, N+1} with 1/V for each layer: Table 1's statistic, section 4.2."""
    inverse_v = 1.0 / prompts.moments().V
    return np.array([np.corrcoef(1.0 / sigma[:, -1], inverse_v)[0, 1] for sigma in trace.sigma])


def rank_by_division(networks: Mapping[Name, Weights], *, count: int = 20_000) -> dict[Name, float]:
    """Correlation of 1/σ_{L, N+1} with 1/V on `count` prompts for each network, the highest first.

    The first plays the part of the paper's run 1 in every chapter. The prompts are always the same.
    """
    rows = next(iter(networks.values())).architecture.rows
    prompts = sample_prompts(count, rows - 1, seed=CHOICE_SEED)
    inverse_v = 1.0 / prompts.moments().V
    found = {
        name: float(np.corrcoef(1.0 / traced(w, prompts, lambda t: t.sigma[-1, :, -1]), inverse_v)[0, 1])
        for name, w in networks.items()
    }
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def with_spread(prompts: Prompts, factor: Float64[np.ndarray, "M"] | float) -> Prompts:
    """The same line, residuals, mean input and query with V multiplied by `factor`.

    The inputs move away from their mean by √factor, and the outputs along the least squares line.
    """
    m = prompts.moments()
    stretch = np.sqrt(np.broadcast_to(factor, prompts.count))[:, None]
    dx = prompts.x - m.x_bar[:, None]
    x = m.x_bar[:, None] + stretch * dx
    y = prompts.y + (m.C / m.V)[:, None] * (stretch - 1.0) * dx
    return Prompts(x, y, prompts.query)


def v_elasticity(
    weights: Weights, prompts: Prompts, *, step: float = 0.05, layout: Layout = "paper"
) -> Float64[np.ndarray, "L"]:
    """E_l = ∂ ln σ_l / ∂ ln V, by stretching each context: 1 if norm l divides by V, 0 if it ignores V.

    Args:
        weights: the network.
        prompts: M prompts; the median is over them and over their context rows.
        step: V is multiplied by exp(±step).
        layout: how the prompts are written down for this network.
    """
    up, down = (
        weights.trace(with_spread(prompts, np.exp(sign * step)).tokens(layout)).sigma for sign in (1, -1)
    )
    slopes = (np.log(up) - np.log(down)) / (2 * step)
    return np.median(slopes[:, :, : prompts.n_context], axis=(1, 2))


def clamped(
    weights: Weights, prompts: Prompts, layer: int, *, layout: Layout = "paper"
) -> Float64[np.ndarray, "M"]:
    """The answers when one layer norm (index from 0) may not see V.

    Its denominators are those of the same prompt stretched to V = 1; everything else runs as it is.
    """
    model = weights.to_torch(dtype=torch.float64)
    at_one = weights.trace(with_spread(prompts, 1.0 / prompts.moments().V).tokens(layout)).sigma[layer]
    denominators = torch.tensor(np.sqrt(at_one**2 + weights.eps))
    with torch.no_grad():
        kept = model.steps(torch.tensor(prompts.tokens(layout)), {layer: denominators})
        return model.read_out(kept["Q"][-1]).numpy()


# -- which cells carry the answer -------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class CellRegression:
    """Least squares of a cell z on (1, u − x̄, ȳ, (C/V)(u − x̄)), eq. (57) and Table 2.

    coefficients, standard_errors: (4,) α0 … α3. standardised: (3,) α1 … α3, in units of sd(z) per sd of
    its column. fit: correlation of z with its fit. lse: correlation of z with the least squares prediction.
    """

    coefficients: Float64[np.ndarray, "4"]
    standard_errors: Float64[np.ndarray, "4"]
    standardised: Float64[np.ndarray, "3"]
    fit: float
    lse: float


def regress_cell(z: Float64[np.ndarray, "M"], prompts: Prompts) -> CellRegression:
    """Fit a cell of the last layer by the parts of the least squares prediction, section 4.4.

    Args:
        z: the cell's value for each prompt, such as trace.Q[-1][:, -1, 2] for the paper's (3, N+1).
        prompts: the same M prompts, M > 4.
    """
    m = prompts.moments()
    d = prompts.query - m.x_bar
    X = np.stack([np.ones_like(d), d, m.y_bar, m.C / m.V * d], axis=1)
    coefficients, *_ = np.linalg.lstsq(X, z, rcond=None)
    fitted = X @ coefficients
    variance = ((z - fitted) ** 2).sum() / (len(z) - 4)
    errors = np.sqrt(variance * np.diag(np.linalg.inv(X.T @ X)))
    return CellRegression(
        coefficients,
        errors,
        coefficients[1:] * X[:, 1:].std(axis=0) / z.std(),
        float(np.corrcoef(z, fitted)[0, 1]),
        float(np.corrcoef(z, least_squares(prompts))[0, 1]),
    )


def keep_cells(weights: Weights, kept: Bool[np.ndarray, "S D"]) -> Weights:
    """The same network with every output weight zero where `kept` is False: Figure 3b's intervention."""
    return replace(weights, W_out=np.where(kept, weights.W_out, np.zeros_like(weights.W_out)))


def dominant_cell(weights: Weights) -> tuple[int, int]:
    """Row and embedding (from 0) of the largest absolute output weight."""
    row, column = np.unravel_index(np.abs(weights.W_out).argmax(), weights.W_out.shape)
    return int(row), int(column)

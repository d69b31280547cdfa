"""Who divides: what the label of a trained network is made of, and a table of it for every full-length run.

`results/labels.csv` holds the table, one row a run of `results/penalty` and `results/seeds`. `icl labels`
regenerates it: it measures the runs that the table lacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from icl_lib.mechanism import clamped, rank_by_division, v_elasticity, with_spread
from icl_lib.prompts import Prompts, sample_prompts
from icl_lib.solvers import least_squares
from icl_lib.study import load_study
from icl_lib.transformer import Transformer
from icl_lib.weights import Weights

SEED = 2607_10  # of the prompts behind the table, the same for every run
PROMPTS, FEWER = 1000, 300  # of the interventions, of the elasticities
CONTEXTS = 150  # of the bend
QUERIES = np.linspace(-2.0, 2.0, 9)  # of the bend, in standard deviations from the mean
RESULTS = Path(__file__).parent.parent / "results"
FOLDERS = tuple(RESULTS / name for name in ("penalty", "seeds", "seeds_fitted"))
TABLE = RESULTS / "labels.csv"
Y_SQUARED = 2.04  # E y² of the paper's prompts: 1 + 1 + σ²

# -- read from the weights -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class FirstDenominator:
    """σ_1 of row n, in units of its mean: c_1·G_11 + c_m·G_1x + c_S·G_xx + k·x_n and smaller terms.

    G is the Gram matrix of (1, x) over all N + 1 rows, divided by N. c_1 + c_S = 1 by the choice of unit.

    c_S, c_m: weights of the mean square and of the mean of x.
    tilt: k, at G_11 = G_xx = 1.
    direction: (D,) the unit vector along which H_1 is read.
    """

    c_S: float
    c_m: float
    tilt: float
    direction: Float64[np.ndarray, "D"]

    @property
    def rho(self) -> float:
        """c_m / 2√(c_1·c_S): ±1 for the Gram–Schmidt family, between for a positive definite metric; NaN
        where c_1 or c_S is not positive."""
        product = self.c_S * (1 - self.c_S)
        return self.c_m / (2 * np.sqrt(product)) if product > 0 else np.nan


def first_denominator(weights: Weights) -> FirstDenominator:
    """Read σ_1 off the weights of a network with the paper's tokens; no prompt is needed.

    H_1 is cubic in the tokens. We take its component along the direction that it has at the average context.
    """
    N = weights.architecture.rows - 1
    W_in = weights.W_in.astype(np.float64)
    rows = W_in.T @ weights.W3[0] @ weights.W1[0] @ W_in  # (K, P, P): row feature a meets Gram index b
    cells = W_in.T @ (weights.W2[0] - weights.W2[0].mean(axis=-1, keepdims=True))  # (K, P, D)
    H = np.einsum("kab,kcd->abcd", rows, cells)
    H = (H + H.transpose(0, 2, 1, 3)) / 2  # H_1[n, d] = Σ P[n, a] (PᵀP)[b, c] H[a, b, c, d]
    gram = np.array([N + 1, N + 1, Y_SQUARED * N]) / N  # the average PᵀP/N is diagonal
    average = np.einsum("bbd,b->d", H[0], gram)
    direction = average / np.linalg.norm(average)
    along = H @ direction
    unit = along[0, 0, 0] + along[0, 1, 1]
    return FirstDenominator(
        c_S=along[0, 1, 1] / unit,
        c_m=2 * along[0, 0, 1] / unit,
        tilt=(along[1, 0, 0] + along[1, 1, 1]) / unit,
        direction=direction,
    )


# -- the query's row -------------------------------------------------------------------------------------


class QueryUnseen(Transformer):
    """The same network with the query's row left out of all sums: it asks, but is no data point."""

    def attention(self, Q: Float[Tensor, "M S D"], layer: int) -> Float[Tensor, "M K S D"]:
        context = Q[:, :-1]
        gram = (context.mT @ context)[:, None]
        return Q[:, None] @ self.W3[layer] @ (self.W1[layer] @ gram @ self.W2[layer])


def sweep(contexts: Prompts) -> Prompts:
    """Each context with queries at x̄ + √V·QUERIES, one after the other."""
    m = contexts.moments()
    x, y = (np.repeat(values, len(QUERIES), axis=0) for values in (contexts.x, contexts.y))
    return Prompts(x, y, (m.x_bar[:, None] + np.sqrt(m.V)[:, None] * QUERIES).ravel())


def bend(
    weights: Weights, contexts: Prompts, *, unseen: bool = True, frozen: tuple[int, ...] = ()
) -> Float64[np.ndarray, "2"]:
    """How the answer bends away from a line in u, in units of ŷ·d²/(NV): (part of ȳ, part of the slope).

    (1, 1) would make up for the factor 1 - h to first order; (-1, -1) is the factor itself. In each context
    a cubic is fitted over the queries. Its terms in d² and d³, times N, are compared over contexts with ȳ and
    β̂√V, where d is in standard deviations.

    Args:
        weights: the network.
        contexts: their own queries are not used.
        unseen: leave the query's row out of all sums.
        frozen: layers (from 0) whose denominator at the query's row stays as it is at u = x̄.
    """
    p = sweep(contexts)
    model = weights.to_torch(dtype=torch.float64)
    if unseen:
        state, model = model.state_dict(), QueryUnseen(model.architecture, eps=model.eps)
        model.load_state_dict(state)
    centre = len(QUERIES) // 2
    with torch.no_grad():
        tokens = torch.tensor(p.tokens())
        clamp: dict[int, Tensor] = {}
        sigma = model.steps(tokens)["sigma"] if frozen else ()
        for layer in frozen:
            denominator = (sigma[layer] ** 2 + weights.eps).sqrt().reshape(contexts.count, len(QUERIES), -1)
            denominator[:, :, -1] = denominator[:, centre : centre + 1, -1]
            clamp[layer] = denominator.flatten(0, 1)
        answers = model.read_out(model.steps(tokens, clamp)["Q"][-1]).numpy()
    terms = np.polynomial.polynomial.polyfit(QUERIES, answers.reshape(contexts.count, -1).T, 3)
    m = contexts.moments()
    wanted = np.stack([m.y_bar, m.C / np.sqrt(m.V)])
    return contexts.n_context * (terms[2:] * wanted).sum(axis=1) / (wanted**2).sum(axis=1)


def skip_part(weights: Weights, prompts: Prompts, *, step: float = 0.05) -> tuple[float, float]:
    """The share of β̂ that the query's row has in hand before the second layer norm, and its V-elasticity.

    Q_2 is read out along the query's output weights at x̄ ± 1; half the difference is compared over contexts
    with β̂, on the prompts as they are and with V multiplied by exp(±step).
    """
    slope = prompts.moments().C / prompts.moments().V
    read = weights.W_out[-1].astype(np.float64)

    def share(factor: float) -> float:
        p = with_spread(prompts, factor)
        centre = p.moments().x_bar
        right, left = (weights.trace(Prompts(p.x, p.y, centre + side)).Q[1][:, -1] @ read for side in (1, -1))
        return float((right - left) @ slope / 2 / (slope @ slope))

    now, up, down = share(1.0), share(np.exp(step)), share(np.exp(-step))
    return now, (up - down) / (2 * step * now)


def tamed(weights: Weights, prompts: Prompts) -> tuple[float, float]:
    """Error with every context moved to x̄ = 0, and then also stretched to V = 1, over the error without.

    Queries are clipped to [-2, 2] first, so that no rare far one decides, and move with their context.
    """
    near = Prompts(prompts.x, prompts.y, np.clip(prompts.query, -2, 2))
    errors = []
    for p in (near, _centred(near), _centred(with_spread(near, 1 / near.moments().V))):
        errors.append(((weights.predict(p) - least_squares(p)) ** 2).mean())
    return errors[1] / errors[0], errors[2] / errors[0]


def _centred(p: Prompts) -> Prompts:
    x_bar = p.moments().x_bar
    return Prompts(p.x - x_bar[:, None], p.y, p.query - x_bar)


def residual_rows(weights: Weights, prompts: Prompts) -> tuple[float, float, float]:
    """Whether the context's rows add residuals, y_n - β̂x_n up to a constant: median weight of y_n, slope of
    the weight of x_n against -β̂, and the correlation of these two."""
    m = prompts.moments()
    P = prompts.tokens()[:, :-1]
    added = weights.trace(prompts).Q[-1][:, :-1] @ weights.W_out[:-1].sum(axis=0).astype(np.float64)
    lines = np.linalg.solve(P.mT @ P, P.mT @ added[..., None])[..., 0]
    slope = m.C / m.V
    return (
        float(np.median(lines[:, 2])),
        float(-np.polyfit(slope, lines[:, 1], 1)[0]),
        float(-np.corrcoef(slope, lines[:, 1])[0, 1]),
    )


# -- the table -------------------------------------------------------------------------------------------


def measure(weights: Weights) -> dict[str, float]:
    """The row of one network: columns as in `results/labels.csv`, without id, digest and correlation."""
    N = weights.architecture.rows - 1
    prompts = sample_prompts(PROMPTS, N, seed=SEED)
    few, contexts = prompts[:FEWER], prompts[:CONTEXTS]
    truth = least_squares(prompts)
    plain = ((weights.predict(prompts) - truth) ** 2).mean()
    denominator = first_denominator(weights)
    LN = weights.trace(few).LN[0]
    row = {
        "c_S": denominator.c_S,
        "c_m": denominator.c_m,
        "rho": denominator.rho,
        "tilt": denominator.tilt,
        "dominance": ((LN @ denominator.direction) ** 2).sum() / (LN**2).sum(),
    }
    row["E_1"], row["E_2"] = v_elasticity(weights, few)
    for layer in (0, 1):
        harmed = ((clamped(weights, prompts, layer) - truth) ** 2).mean()
        row[f"harm_{layer + 1}"] = harmed / plain
    row["skip_share"], row["skip_elasticity"] = skip_part(weights, few)
    row["centred"], row["centred_at_one"] = tamed(weights, prompts)
    row["row_y"], row["row_slope"], row["row_corr"] = residual_rows(weights, few)
    for name, bent in {
        "seen": bend(weights, contexts, unseen=False),
        "unseen": bend(weights, contexts),
        "frozen_1": bend(weights, contexts, frozen=(0,)),
        "frozen_2": bend(weights, contexts, frozen=(1,)),
    }.items():
        row[f"{name}_mean"], row[f"{name}_slope"] = bent
    return {name: float(value) for name, value in row.items()}


def update(networks: Mapping[str, Weights], known: pd.DataFrame | None = None) -> pd.DataFrame:
    """The table for these networks by id: rows of `known` with the right digest, the others measured."""
    kept = {} if known is None else {row["id"]: row for row in known.to_dict("records")}
    kept = {name: kept[name] for name, w in networks.items() if kept.get(name, {}).get("digest") == w.digest}
    new = {name: w for name, w in networks.items() if name not in kept}
    correlation = rank_by_division(new) if new else {}
    rows = [
        kept[name]
        if name in kept
        else {"id": name, "digest": w.digest, "correlation": correlation[name], **measure(w)}
        for name, w in networks.items()
    ]
    return pd.DataFrame(rows)


def full_length_runs(folders: Iterable[Path]) -> tuple[pd.DataFrame, dict[str, Weights]]:
    """Tables and networks of several studies together; a study without a result yet adds nothing.

    Raises:
        FileNotFoundError: none of the folders holds a study.
    """
    folders = list(folders)
    found = [load_study(folder) for folder in folders if (folder / "table.csv").exists()]
    if not found:
        raise FileNotFoundError(f"no table.csv in {', '.join(map(str, folders))}")
    table = pd.concat([part[part.digest.notna()] for part, _ in found], ignore_index=True)
    return table, {name: w for _, networks in found for name, w in networks.items()}


def update_table(path: Path = TABLE, folders: Iterable[Path] = FOLDERS) -> pd.DataFrame:
    """Bring the stored table up to date with the studies: `icl labels`."""
    _, networks = full_length_runs(folders)
    table = update(networks, pd.read_csv(path) if path.exists() else None)
    table.to_csv(path, index=False, float_format="%.6g")
    return table


def load_labels(networks: Mapping[str, Weights], path: Path = TABLE) -> pd.DataFrame:
    """The stored rows of these networks, in their order.

    Raises:
        FileNotFoundError: no table.
        ValueError: the table lacks a network, or holds another one under its id.
    """
    table = pd.read_csv(path).set_index("id", drop=False)
    missing = [
        name for name, w in networks.items() if name not in table.index or table.digest[name] != w.digest
    ]
    if missing:
        raise ValueError(
            f"{path.name} lacks {len(missing)} of {len(networks)} runs, the first is {missing[0]}: "
            "run `icl labels`, which measures them"
        )
    return table.loc[list(networks)].reset_index(drop=True)

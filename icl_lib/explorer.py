"""What the page `book/explorer` shows: networks and contexts as a script, and a picture."""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from icl_lib.constructions import closed_form, gram_schmidt, repaired, tilted
from icl_lib.engine import TrainingConfig
from icl_lib.figures import COLOURS, fit, use_style
from icl_lib.labels import load_labels
from icl_lib.mechanism import with_spread
from icl_lib.prompts import Prompts, sample_tasks
from icl_lib.solvers import gradient_descent, least_squares
from icl_lib.study import load_study
from icl_lib.symmetry import query_cell_third
from icl_lib.weights import Weights

N = 50
TEN = {seed: TrainingConfig.paper(seed).id for seed in range(1, 11)}  # the paper's runs: seed and id
CONTEXT_SEED = 0
TILTED_SCALE = 0.5  # its rounding grows as (RN)²: here twelve digits are right
STEPS, RELATIVE_RATE = 2, 0.9  # descent at first sight: T, and γ = Nη


def scaled(R: float) -> dict[str, Weights]:
    """The constructions that the page offers at any R: each weight is a number times a power of R."""
    return {
        "closed_form": closed_form(N, R),
        "repaired": repaired(N, R, context_cells=True, factor=1 + 2 / N),
        "swapped": gram_schmidt(N, R, np.pi / 2),
    }


def labelled(folder: Path) -> tuple[pd.DataFrame, dict[str, Weights]]:
    """A study's table with the columns of `results/labels.csv`, indexed by id, and its networks by id.

    Raises:
        FileNotFoundError: no study in `folder`.
        ValueError: a run without a label.
    """
    table, weights = load_study(folder)
    labels = load_labels(weights).drop(columns="digest")
    return table.merge(labels, on="id").set_index("id"), weights


def trained(weights: dict[str, Weights]) -> dict[str, Weights]:
    """The ten trained networks by name, `trained_1` first, each with its output cell as the paper's (3, N+1).

    Raises:
        KeyError: one of the ten runs is not among the networks.
    """
    return {f"trained_{seed}": query_cell_third(weights[name]) for seed, name in TEN.items()}


def examples(table: pd.DataFrame, weights: dict[str, Weights]) -> dict[str, tuple[Weights, pd.Series]]:
    """The clearest run of each kind of chapter 10 among those that Table 1 does not rule out, by name.

    Clearest: the elasticities E_1, E_2 of the layer norms lie furthest apart, or the smaller one is largest.
    Only runs up to the book's λ with less than the median error count, and none of the ten of `trained`.

    Args:
        table, weights: of `labelled`.
    """
    table = table[(table.l1 <= TrainingConfig.paper(1).l1) & (table.test_error < table.test_error.median())]
    table = table.drop(list(TEN.values()), errors="ignore")
    rows = {
        "layer_1": table.loc[(table.E_1 - table.E_2).idxmax()],
        "both_layers": table.loc[table[["E_1", "E_2"]].min(axis=1).idxmax()],
        "layer_2": table.loc[(table.E_2 - table.E_1).idxmax()],
    }
    return {name: (query_cell_third(weights[str(row.name)]), row) for name, row in rows.items()}


def contexts() -> dict[str, Prompts]:
    """One context a name, its query at the mean of x: the first as in training, the others not.

    All five lie about one line. `clustered` and `flattened` have a small V, `stretched` a large one, `far` a
    mean that no training prompt has.
    """
    drawn = sample_tasks(1, N, seed=CONTEXT_SEED).prompts
    x, y = drawn.x.round(2), drawn.y.round(2)
    standard = Prompts(x, y, x.mean(axis=1))
    m = standard.moments()

    def moved(prompts: Prompts, by: float) -> Prompts:
        return Prompts(prompts.x + by, prompts.y + m.C / m.V * by, prompts.query + by)

    return {
        "standard": standard,
        "clustered": moved(with_spread(standard, 0.15**2), 1.5),
        "flattened": with_spread(standard, 0.01**2),
        "far": moved(standard, 8.0),
        "stretched": with_spread(standard, 3.0**2),
    }


def _network(label: str, colour: str, about: str, weights: Weights) -> dict[str, object]:
    # Through text, for float32 has the shortest decimals: the page rounds them to float32 again.
    arrays = {name: array.astype(str).astype(np.float64).tolist() for name, array in weights.arrays().items()}
    shown = {"label": label, "colour": COLOURS[colour], "about": about, "eps": float(weights.eps)}
    return shown | {"layer_norm": weights.layer_norm, "float32": weights.W_in.dtype == np.float32} | arrays


def _powers(at_one: Weights, at_two: Weights) -> dict[str, list[int]]:
    """The power of R in each weight, flat: doubling R multiplies by a power of two, which is exact."""
    powers = {}
    for name, one in at_one.arrays().items():
        ratio = np.divide(at_two.arrays()[name], one, out=np.ones_like(one), where=one != 0)
        exponent = np.log2(ratio)
        if not (exponent == exponent.round()).all():
            raise ValueError(f"{name} has an entry that is not a number times a power of R")
        powers[name] = exponent.astype(int).ravel().tolist()
    return powers


def data(folder: Path) -> dict[str, object]:
    """Everything the page's scripts need: networks, contexts, colours.

    Args:
        folder: the study with the trained runs, `results/penalty` of the project.

    Returns:
        `networks` by name, in the order in which they are offered: label, colour, about, eps, arrays at
        R = 1 (to be rounded to float32 where `float32` says so), and `powers` where R can be chosen.
        `trained` names the run in which 1/σ of layer 2 follows 1/V most closely. `contexts` by name, each x
        and y. `colours`, `steps`, `relative_rate`.
    """
    table, weights_by_id = labelled(folder)
    runs, ten = trained(weights_by_id), table.loc[list(TEN.values())].set_index("seed")
    about = {
        "closed_form": ("The paper's construction", "construction", "Weights written by hand, (18) to (55)."),
        "repaired": (
            "Repaired construction",
            "repaired",
            "The same layers; the read-out also takes off the mean residual of the context, and is larger "
            "by the factor 1 + 2/N.",
        ),
        "swapped": (
            "Swapped construction",
            "construction",
            "Gram–Schmidt with x first: layer 1 divides, by the mean of x², and layer 2 centres.",
        ),
    }
    networks = {
        name: _network(*about[name], weights) | {"powers": _powers(weights, scaled(2.0)[name])}
        for name, weights in scaled(1.0).items()
    }
    networks["tilted"] = _network(
        "Tilted construction",
        "construction",
        "Layer 1 divides each row a little differently, which undoes most of the pull towards 0; R is fixed "
        f"at {TILTED_SCALE:g}.",
        tilted(N, TILTED_SCALE),
    )
    for seed, (name, weights) in zip(TEN, runs.items(), strict=True):
        networks[name] = _network(
            f"Trained run {seed}",
            "trained",
            f"Mean squared difference to least squares on test prompts: {ten.test_error[seed]:.5f}. "
            f"Correlation of 1/σ₂,₅₁ with 1/V: {ten.correlation[seed]:.3f}.",
            weights,
        )
    for name, (weights, row) in examples(table, weights_by_id).items():
        networks[name] = _network(
            f"Divides in {name.replace('_', ' ')}",
            "trained",
            f"The clearest run of this kind (λ = {row.l1:g}, seed {row.seed}). Where V grows by 1 %, the "
            f"divisor of layer 1 grows by {row.E_1:.2f} % and that of layer 2 by {row.E_2:.2f} %.",
            weights,
        )
    return {
        "networks": networks,
        "trained": f"trained_{ten.correlation.idxmax()}",
        "contexts": {name: {"x": p.x[0].tolist(), "y": p.y[0].tolist()} for name, p in contexts().items()},
        "colours": COLOURS,
        "steps": STEPS,
        "relative_rate": RELATIVE_RATE,
    }


def script(shown: dict[str, object]) -> str:
    """`data` as a classic script, which a page opened from the disk may load where it may not fetch."""
    return f"globalThis.Explorer ??= {{}};\nExplorer.data = {json.dumps(shown, ensure_ascii=False)};\n"


def picture() -> Figure:
    """The page at first sight: one context, the construction, least squares and descent at 200 queries."""
    use_style()
    context = contexts()["standard"]
    u = np.linspace(-3.5, 3.5, 200)
    prompts = Prompts(np.tile(context.x, (u.size, 1)), np.tile(context.y, (u.size, 1)), u)
    descent = gradient_descent(prompts, steps=STEPS, rate=RELATIVE_RATE / N)
    figure, ax = plt.subplots()
    curves = {
        "least squares": (u, least_squares(prompts), "least_squares"),
        f"descent, T = {STEPS}": (u, descent, "descent"),
        "transformer": (u, closed_form(N, 1.0).predict(prompts), "construction"),
    }
    fit(ax, context.x[0], context.y[0], curves)
    return figure

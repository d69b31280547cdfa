"""The book's figure style, and the pictures that two or more chapters share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from cycler import cycler
from IPython import get_ipython
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib_inline.backend_inline import set_matplotlib_formats

# Okabe and Ito's colours, told apart by colour-blind readers. One colour an object in the whole book.
COLOURS = {
    "least_squares": "#0072B2",
    "construction": "#D55E00",
    "repaired": "#E69F00",
    "trained": "#009E73",
    "descent": "#CC79A7",
    "data": "#595959",
    "query": "#000000",
    "layer_1": "#56B4E9",
    "layer_2": "#882255",
}

DPI = 110  # of a figure on the page

_STYLE: dict[str, Any] = {
    "figure.figsize": (6.4, 3.8),
    "figure.dpi": DPI,
    "savefig.dpi": DPI,
    "figure.constrained_layout.use": True,
    "figure.facecolor": "white",
    "font.size": 12,
    "axes.titlesize": 12,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "lines.linewidth": 2.0,
    "legend.frameon": False,
    "svg.hashsalt": "icl_lib",
    "axes.prop_cycle": cycler(color=list(COLOURS.values())),
}


def use_style() -> None:
    """Set matplotlib's defaults, and a notebook's, to the book's: call it once at the top of a chapter."""
    plt.rcdefaults()
    plt.rcParams.update(_STYLE)  # type: ignore[arg-type]  # its stub lists every key
    if get_ipython() is not None:
        set_matplotlib_formats("retina")  # two pixels for each that the figure takes: sharp on a fine screen


def cells(
    ax: Axes,
    matrix: Float[np.ndarray, "rows columns"],
    *,
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
    numbers: str | None = None,
    limit: float | None = None,
) -> AxesImage:
    """Draw a matrix as coloured cells, zero in white, and return the image (for a colour bar).

    Args:
        ax: where to draw.
        matrix: the numbers, row 0 on top.
        rows, columns: tick labels; none leaves the ticks to matplotlib.
        numbers: a format such as ".2f" that writes each number in its cell.
        limit: the value of full colour; None takes the largest magnitude.
    """
    limit = limit or float(np.abs(matrix).max()) or 1.0
    image = ax.imshow(matrix, cmap="PuOr", vmin=-limit, vmax=limit, aspect="auto", interpolation="nearest")
    ax.grid(visible=False)
    if rows:
        ax.set_yticks(range(len(rows)), rows)
    if columns:
        ax.set_xticks(range(len(columns)), columns)
    if numbers is not None:
        for (i, j), value in np.ndenumerate(matrix):
            dark = abs(value) > 0.6 * limit
            ax.text(
                j,
                i,
                format(value, numbers),
                ha="center",
                va="center",
                fontsize="small",
                color="white" if dark else "black",
            )
    return image


def fit(
    ax: Axes,
    x: Float[np.ndarray, "N"],
    y: Float[np.ndarray, "N"],
    curves: dict[str, tuple[Float[np.ndarray, "G"], Float[np.ndarray, "G"], str]],
) -> None:
    """Draw one context and the answers of several solvers, each labelled at its right-hand end.

    Args:
        ax: where to draw.
        x, y: the context.
        curves: label -> (queries, answers, key of COLOURS).
    """
    ax.plot(x, y, "o", color=COLOURS["data"], markersize=4, markerfacecolor="none", linestyle="none")
    for label, (queries, answers, colour) in curves.items():
        ax.plot(queries, answers, color=COLOURS[colour])
        ax.annotate(
            label,
            (queries[-1], answers[-1]),
            (4, 0),
            textcoords="offset points",
            va="center",
            color=COLOURS[colour],
        )
    ax.set_xlabel("x (units of x)")
    ax.set_ylabel("y (units of y)")


def panels(count: int, columns: int, *, width: float = 6.4, height: float = 2.6) -> tuple[Figure, np.ndarray]:
    """A figure of `count` small panels in rows of `columns`, spare ones removed; axes as a flat array."""
    lines = -(-count // columns)
    figure, axes = plt.subplots(lines, columns, figsize=(width, height * lines), squeeze=False)
    for spare in axes.flat[count:]:
        spare.remove()
    return figure, axes.flat[:count]

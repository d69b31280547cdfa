"""The picture of the whole on the first page: one prompt's way through the construction."""

from html import escape
from typing import ClassVar, NamedTuple

import numpy as np
from docutils import nodes
from matplotlib import colormaps
from matplotlib.colors import to_hex
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from icl_lib import closed_form, sample_prompts

N, R, SEED = 8, 1.0, 3
CELL = 18  # px of a cell's side at full size
COLOURS = colormaps["PuOr"]  # as in every heat map of the book


class Stage(NamedTuple):
    """One step: its heading, the chapter that explains it, what it does, and the matrix that leaves it."""

    heading: str
    page: str
    text: str
    matrix: np.ndarray
    columns: tuple[str, ...]


def stages() -> list[Stage]:
    """The five steps of the construction on one prompt of N points."""
    prompts = sample_prompts(1, N, seed=SEED)
    weights = closed_form(N, R)
    trace = weights.trace(prompts)
    read = trace.Q[2][0] * (weights.W_out != 0)
    cells = tuple(f"{d}" for d in range(1, 5))
    return [
        Stage(
            "Prompt",
            "notebooks/01_setup",
            "A row for each point (1, x, y); the last holds the query (1, u, 0).",
            prompts.tokens()[0],
            ("1", "x", "y"),
        ),
        Stage(
            "Embedding",
            "notebooks/02_construction",
            "Q₁ = P W_inᵀ: four cells a row, x and y made small.",
            trace.Q[0][0],
            cells,
        ),
        Stage(
            "Layer 1 centres",
            "notebooks/02_construction",
            "Attention sums the rows; layer norm, whose divisor is nearly constant, makes means of the sums; "
            "the skip leaves x − x̄ and y − ȳ.",
            trace.Q[1][0],
            cells,
        ),
        Stage(
            "Layer 2 divides",
            "notebooks/02_construction",
            "Attention makes C (u − x̄) and V of the centred rows; layer norm divides one by the other.",
            trace.Q[2][0],
            cells,
        ),
        Stage(
            "Read-out",
            "notebooks/03_error_law",
            "W_out reads one cell of the query's row: ŷ = ȳ + (C/V)(u − x̄), almost.",
            read,
            cells,
        ),
    ]


def drawing(stage: Stage) -> str:
    """The matrix as an SVG of coloured cells, each column on a scale of its own."""
    rows, columns = stage.matrix.shape
    width, height = columns * CELL, (rows + 1) * CELL
    parts = [
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-label="{escape(stage.heading)}: {rows} rows of {columns} cells">'
    ]
    for d, name in enumerate(stage.columns):
        most = np.abs(stage.matrix[:, d]).max() or 1.0
        parts.append(f'<text x="{(d + 0.5) * CELL:g}" y="{CELL - 5}">{escape(name)}</text>')
        for n in range(rows):
            value = stage.matrix[n, d]
            fill = to_hex(COLOURS(0.5 + 0.45 * value / most))
            where = f'x="{d * CELL}" y="{(n + 1) * CELL}" width="{CELL}" height="{CELL}"'
            parts.append(
                f'<rect {where} fill="{fill}"><title>row {n + 1}, cell {d + 1}: {value:.3g}</title></rect>'
            )
    parts.append(f'<rect class="query" x="1" y="{rows * CELL + 1}" width="{width - 2}" height="{CELL - 2}"/>')
    return "".join(parts) + "</svg>"


class Overview(SphinxDirective):
    """The five steps side by side, under one another on a narrow screen."""

    option_spec: ClassVar[dict[str, object]] = {}

    def run(self) -> list[nodes.Node]:
        link = self.env.app.builder.get_relative_uri
        items = "".join(
            f"<li>{drawing(stage)}<div><strong>"
            f'<a href="{link(self.env.docname, stage.page)}">{escape(stage.heading)}</a></strong>'
            f"<p>{escape(stage.text)}</p></div></li>"
            for stage in stages()
        )
        caption = (
            f"One prompt of {N} points on its way through the construction, computed at the build. "
            "Each column of cells has its own colour scale, white is zero; the outlined row is the query's. "
            "Hover over a cell to see its value."
        )
        html = f'<figure class="overview"><ol>{items}</ol><figcaption>{caption}</figcaption></figure>'
        return [nodes.raw("", html, format="html")]


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("overview", Overview)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""The explorer's scripts, on its page alone; its weights and its picture are written at each build."""

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from sphinx.application import Sphinx

from icl_lib.explorer import data, picture, script

PAGE = "book/explorer"
# In the order in which they need one another.
SCRIPTS = (
    "d3.min.js",
    "weights.js",
    "model.js",
    "state.js",
    "cells.js",
    "plot.js",
    "maps.js",
    "explorer.js",
)


def add_scripts(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object) -> None:
    """Load the scripts and the style on the explorer's page, and nowhere else."""
    if page == PAGE:
        app.add_css_file("explorer/explorer.css")
        for name in SCRIPTS:
            app.add_js_file(f"explorer/{name}", loading_method="defer")


def write(app: Sphinx, error: Exception | None) -> None:
    """Write what is made from results: the weights as a script, and the picture shown without scripts."""
    if error:
        return
    folder = Path(app.outdir) / "_static" / "explorer"
    results = Path(app.srcdir) / "results" / "penalty"
    (folder / "weights.js").write_text(script(data(results)), encoding="utf-8")
    figure = picture()
    figure.savefig(folder / "picture.png", metadata={"Software": None})
    plt.close(figure)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("html-page-context", add_scripts)
    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

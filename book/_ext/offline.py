"""MathJax from the disk, and no script that would ask the web for more.

A page needs three of sphinx-mathjax-offline's parts: the combined component, its fonts, and the TeX
extensions that it loads on demand (without them one \\boldsymbol breaks all the maths of a page).
"""

from importlib.metadata import files
from pathlib import Path
from shutil import copy2, copytree
from typing import Any

from sphinx.application import Sphinx

COMPONENT = "tex-mml-chtml.js"
FOLDERS = ("output/chtml/fonts/woff-v2", "input/tex/extensions")


def mathjax() -> Path:
    """Return the folder of the installed MathJax. Its package's hyphens forbid an import."""
    for file in files("sphinx-mathjax-offline") or []:
        if file.name == COMPONENT:
            return Path(str(file.locate())).parent
    raise FileNotFoundError(
        f"sphinx-mathjax-offline holds no {COMPONENT}: install the version in constraints.txt"
    )


def copy_mathjax(app: Sphinx, error: Exception | None) -> None:
    """Copy what pages use, and remove the script that would start a kernel on the web."""
    if error:
        return
    static = Path(app.outdir) / "_static"
    target = static / "mathjax"
    target.mkdir(exist_ok=True)
    copy2(mathjax() / COMPONENT, target)
    for folder in FOLDERS:
        copytree(mathjax() / folder, target / folder, dirs_exist_ok=True)
    (static / "sphinx-thebe.js").unlink(missing_ok=True)


def drop_thebe(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object) -> None:
    """Take thebe's scripts off a page: Jupyter Book adds them whether or not they are wanted."""
    context["script_files"] = [
        script
        for script in context["script_files"]
        if "thebe" not in f"{script.filename} {script.attributes.get('body', '')}".lower()
    ]


def setup(app: Sphinx) -> dict[str, bool]:
    app.config.mathjax_path = f"mathjax/{COMPONENT}"
    app.connect("html-page-context", drop_thebe, priority=900)
    app.connect("build-finished", copy_mathjax)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

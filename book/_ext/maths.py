"""Formulas become MathML when the site is built, by Temml in an embedded JavaScript engine.

book/_temml holds Temml as published (MIT licence), and maths.woff2: Latin Modern Math (GUST Font License)
without the characters that no formula needs, and without its name. Pages need no script for their formulas.
A formula that Temml does not understand is a warning, and so stops the build.
"""

from functools import cache
from pathlib import Path
from shutil import copy2

import quickjs
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number
from sphinx.writers.html5 import HTML5Translator

TEMML = Path(__file__).parents[1] / "_temml"
STYLE = "maths/maths.css"

logger = logging.getLogger(__name__)


@cache
def engine() -> quickjs.Context:
    """Return an engine that has run Temml."""
    context = quickjs.Context()
    context.eval((TEMML / "temml.min.js").read_text(encoding="utf-8"))
    context.eval(
        "function typeset(tex, displayMode) {"
        "return temml.renderToString(tex, {displayMode, throwOnError: true}); }"
    )
    return context


@cache
def typeset(tex: str, display: bool = False) -> str:
    """Return a formula as MathML. Raises quickjs.JSException if it is not TeX that Temml understands."""
    return str(engine().get("typeset")(tex, display))


def aligned(block: nodes.math_block) -> str:
    """Return the TeX of a display; paragraphs and lines are aligned, unless the author saw to it.

    A display that carries the paper's number, `\\tag{18}`, is left alone: no tag may stand in an alignment.
    """
    text = block.astext()
    if block["nowrap"] or "\\tag" in text:
        return text
    parts = [part for part in text.split("\n\n") if part.strip()]
    parts = [rf"\begin{{split}}{part}\end{{split}}" if r"\\" in part else part for part in parts]
    return r"\begin{gathered}" + r" \\ ".join(parts) + r"\end{gathered}" if len(parts) > 1 else parts[0]


def mathml(node: nodes.Node, tex: str, display: bool) -> str:
    """Return the formula of a node, or nothing and a warning."""
    try:
        return typeset(tex, display)
    except quickjs.JSException as error:
        logger.warning("%s in %s", str(error).splitlines()[0], tex, location=node, type="maths")
        return ""


def visit_inline(self: HTML5Translator, node: nodes.math) -> None:
    self.body.append(self.starttag(node, "span", "", CLASS="math"))
    self.body.append(mathml(node, node.astext(), False) + "</span>")
    raise nodes.SkipNode


def visit_display(self: HTML5Translator, node: nodes.math_block) -> None:
    self.body.append(self.starttag(node, "div", CLASS="math display"))
    if node["number"]:
        self.body.append(f'<span class="eqno">({get_node_equation_number(self, node)})')
        self.add_permalink_ref(node, "Link to this equation")
        self.body.append("</span>")
    self.body.append(mathml(node, aligned(node), True) + "</div>\n")
    raise nodes.SkipNode


def copy_style(app: Sphinx, error: Exception | None) -> None:
    """Copy the fonts, and the style with the name of our part of the font."""
    if error:
        return
    target = Path(app.outdir) / "_static" / STYLE
    target.parent.mkdir(exist_ok=True)
    for font in TEMML.glob("*.woff2"):
        copy2(font, target.parent)
    style = (TEMML / "Temml-Latin-Modern.css").read_text(encoding="utf-8")
    target.write_text(style.replace("latinmodernmath.woff2", "maths.woff2"), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("temml", (visit_inline, None), (visit_display, None))
    app.add_css_file(STYLE)
    app.connect("build-finished", copy_style)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

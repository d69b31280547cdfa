"""Let an equation carry the paper's number: `$$ … \\tag{18} $$`, also where it holds a matrix.

Sphinx wraps every display with a `\\\\` in a split environment, matrices too. MathJax allows no tag there.
"""

from docutils import nodes
from sphinx.application import Sphinx


def keep_tags(app: Sphinx, doctree: nodes.document) -> None:
    """Pass a tagged display to MathJax as it was written."""
    for block in doctree.findall(nodes.math_block):
        text = block.astext()
        if "\\tag" in text and not block.get("nowrap"):
            block["nowrap"] = True
            block.children = [nodes.Text(f"\\[{text}\\]")]


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("doctree-read", keep_tags)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

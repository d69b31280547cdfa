"""What the theme and the writers leave undone for readers who do not see the page, mended after the build."""

import re
from pathlib import Path

from sphinx.application import Sphinx

SCROLLING = '<div class="pst-scrollable-table-container"'
FIXES = (
    # All of a page lies in landmarks.
    (r'<div id="pst-primary-sidebar"', r'\g<0> role="complementary" aria-label="The book"'),
    # A control is called by the words on it, and an icon is no word.
    (r'(<button class="btn search-button-field[^>]*?) title="[^"]*" aria-label="[^"]*"', r"\1"),
    (r'(<summary) aria-label="[^"]*"', r"\1"),
    (
        r'(<(?:i|span) class="[^"]*\bfa(?:s|-solid)\b[^"]*"[^>]*?)(?: title="[^"]*")?>',
        r'\1 aria-hidden="true">',
    ),
    # An empty cell heads nothing.
    (r"<th\b[^>]*>\s*(?:<p>\s*</p>)?\s*</th>", "<td></td>"),
    # ARIA has no such role any more, and a list of references is no list without items.
    (r' role="(?:doc-biblioentry|list|listitem)"', ""),
    # A wide table scrolls in a box of its own, which the theme's script puts in the order of tabs.
    (r'(?s)<table border="1" class="dataframe">.*?</table>', rf"{SCROLLING}>\g<0></div>"),
    (SCROLLING, r'\g<0> role="group" aria-label="Table"'),
)


def mend(app: Sphinx, error: Exception | None) -> None:
    """Rewrite every page with the fixes."""
    if error:
        return
    for path in Path(app.outdir).rglob("*.html"):
        page = path.read_text(encoding="utf-8")
        for pattern, replacement in FIXES:
            page = re.sub(pattern, replacement, page)
        path.write_text(page, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("build-finished", mend)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

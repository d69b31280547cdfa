"""In a chapter, the first use of a symbol or of a word of the glossary leads to what it means.

Symbols are those in the first columns of book/notation, each row of which gets an anchor; words are the terms
of book/glossary. Headings, captions, code and its output, and what is a link already stay as they are.
The papers of Part V have symbols of their own, which its chapters explain.
"""

import re
from collections.abc import Iterator

from docutils import nodes
from sphinx.application import Sphinx

NOTATION, GLOSSARY = "book/notation", "book/glossary"
CHAPTERS, PART_V = "notebooks/", "notebooks/16"
AMBIGUOUS = ("cell", "edge", "label", "mask")  # words with other meanings too: linked by {term}`cell` alone
LOCAL = ("a",)  # symbols that each chapter defines for itself
NOT_PROSE = (
    nodes.title,
    nodes.caption,
    nodes.literal,
    nodes.literal_block,
    nodes.math,
    nodes.math_block,
    nodes.raw,
    nodes.reference,
    nodes.container,
)


def symbols(cell: nodes.Element) -> list[str]:
    r"""Return the symbols of a row: `$\gamma = N\eta$` defines one, `$x_n,\ y_n$` two."""
    formulas = [math.astext() for math in cell.findall(nodes.math)]
    return [part.split("=")[0].strip() for formula in formulas for part in formula.split(r",\ ")]


def number_rows(app: Sphinx, doctree: nodes.document) -> None:
    """Give each row of the notation tables an anchor."""
    if app.env.docname == NOTATION:
        for number, row in enumerate(doctree.findall(nodes.row), 1):
            row["ids"].append(f"symbol-{number}")


def prose(doctree: nodes.document, kind: type[nodes.Node]) -> Iterator[nodes.Node]:
    """Yield the nodes of a kind that stand in prose, in the order of reading."""
    for node in list(doctree.findall(kind)):
        above = node.parent
        while above is not None and not isinstance(above, NOT_PROSE):
            above = above.parent
        if above is None:
            yield node


def link(content: nodes.Node, target: str, title: str) -> nodes.reference:
    """Return a link around a node; its title is what a pointer at rest shows."""
    attributes = {"internal": True, "refuri": target, "reftitle": title, "classes": ["first-use"]}
    return nodes.reference("", "", content, **attributes)


def link_symbols(doctree: nodes.document, notation: nodes.document, page: str) -> None:
    """Link the first use of each symbol to its row."""
    rows = {
        symbol: row
        for row in notation.findall(nodes.row)
        for symbol in symbols(row[0])
        if symbol not in LOCAL
    }
    for math in prose(doctree, nodes.math):
        if row := rows.pop(math.astext().strip(), None):
            # What a pointer at rest shows is plain text: a meaning with a formula in it is not.
            title = "In the notation table" if row[1].next_node(nodes.math) else row[1].astext()
            math.parent.replace(math, link(math.deepcopy(), f"{page}#{row['ids'][0]}", title))


def link_words(doctree: nodes.document, glossary: nodes.document, page: str) -> None:
    """Link the first use of each word of the glossary, or of its plural, to its entry."""
    terms = {term.astext().lower(): term["ids"][0] for term in glossary.findall(nodes.term)}
    anchors = {word: anchor for word, anchor in terms.items() if word not in AMBIGUOUS}
    words = "|".join(map(re.escape, sorted(anchors, key=len, reverse=True)))
    pattern = re.compile(rf"\b({words})s?\b", re.IGNORECASE)
    for text in prose(doctree, nodes.Text):
        parts: list[nodes.Node] = []
        end = 0
        for found in pattern.finditer(text):
            if anchor := anchors.pop(found[1].lower(), None):
                word = link(nodes.Text(found[0]), f"{page}#{anchor}", "In the glossary")
                parts += [nodes.Text(text[end : found.start()]), word]
                end = found.end()
        if parts:
            text.parent.replace(text, [*parts, nodes.Text(text[end:])])


def resolve(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Link the first uses in a chapter."""
    if page.startswith(CHAPTERS):
        address = app.builder.get_relative_uri
        if page < PART_V:
            link_symbols(doctree, app.env.get_doctree(NOTATION), address(page, NOTATION))
        link_words(doctree, app.env.get_doctree(GLOSSARY), address(page, GLOSSARY))


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("doctree-read", number_rows)
    app.connect("doctree-resolved", resolve)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

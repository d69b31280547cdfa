"""First uses of symbols and words: linked once, in prose, to an entry that is there."""

import re
from pathlib import Path

from docutils import nodes
from docutils.core import publish_doctree

from book._ext import first_use

NOTATION = r"""
=================================  ==================
Symbol                             Meaning
=================================  ==================
:math:`x_n,\ y_n`                  the context
:math:`\gamma = N\eta`             its :math:`\eta`
=================================  ==================
"""
GLOSSARY = r"""
layer norm
  Divides.
cell
  A number.
label
  Which divides.
"""


def links(doctree: nodes.document) -> list[tuple[str, str]]:
    return [(link.astext(), link["refuri"]) for link in doctree.findall(nodes.reference)]


def test_symbols_lead_to_their_rows_once_and_not_from_headings() -> None:
    notation = publish_doctree(NOTATION)
    for number, row in enumerate(notation.findall(nodes.row)):
        row["ids"].append(f"symbol-{number}")
    chapter = publish_doctree(
        "Title :math:`x_n`\n================\n\n:math:`z`, :math:`x_n`, :math:`x_n`, :math:`\\gamma`."
    )
    first_use.link_symbols(chapter, notation, "n")
    assert links(chapter) == [("x_n", "n#symbol-1"), (r"\gamma", "n#symbol-2")]
    assert chapter.next_node(nodes.title).next_node(nodes.reference) is None
    titles = [link["reftitle"] for link in chapter.findall(nodes.reference)]
    assert titles == ["the context", "In the notation table"]


def test_words_lead_to_their_entries_once_and_the_text_stays() -> None:
    glossary = publish_doctree(GLOSSARY)
    for term in glossary.findall(nodes.term):
        term["ids"].append("term-" + term.astext().replace(" ", "-"))
    text = "``layer norm`` cells: Layer norms and a layer norm; :math:`\\text{layer norm}`."
    chapter = publish_doctree(text)
    before = chapter.astext()
    first_use.link_words(chapter, glossary, "g")
    assert links(chapter) == [("Layer norms", "g#term-layer-norm")]
    assert chapter.astext() == before


def test_every_chapter_links_each_entry_once_at_most(site: Path) -> None:
    for page in sorted((site / "notebooks").glob("*.html")):
        html = page.read_text(encoding="utf-8")
        targets = re.findall(r'<a class="[^"]*first-use[^"]*" href="([^"]+)"', html)
        assert len(targets) >= 3, page.name
        assert len(targets) - len(set(targets)) <= 4, page.name  # x_n and y_n share a row
        for target in set(targets):
            name, anchor = target.split("#")
            entry = (page.parent / name).resolve().read_text(encoding="utf-8")
            assert f'id="{anchor}"' in entry, f"{page.name}: {target}"

"""What search engines and reference managers read on a page: its description, title and author."""

from html import escape
from pathlib import Path
from typing import Any

import yaml
from docutils import nodes
from sphinx.application import Sphinx

LONGEST = 300  # characters of a description


def description(doctree: nodes.document) -> str:
    """The page's first paragraph of more than a few words, not in a list, as text, cut at a word."""
    paragraphs = doctree.findall(nodes.paragraph)
    found = (node for node in paragraphs if not isinstance(node.parent, nodes.list_item))
    texts = (" ".join(node.astext().split()) for node in found)
    text = next((text for text in texts if len(text) > 60), "")
    return text if len(text) <= LONGEST else text[:LONGEST].rsplit(" ", 1)[0] + " …"


def add_tags(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Put the tags into the head of a page that was made from a source."""
    if doctree is None:
        return
    citation = yaml.safe_load((Path(app.srcdir) / "CITATION.cff").read_text(encoding="utf-8"))
    title = doctree.next_node(nodes.title).astext()
    book = citation["title"]
    tags = {
        "description": description(doctree),
        "citation_title": title if title == book else f"{title}. {book}",
        "citation_author": citation["authors"][0]["name"],
        "citation_publication_date": app.config.copyright,
    }
    properties = {"og:title": title, "og:type": "article", "og:description": tags["description"]}
    lines = [
        f'<meta {key}="{name}" content="{escape(content, quote=True)}">'
        for key, group in (("name", tags), ("property", properties))
        for name, content in group.items()
        if content
    ]
    context["metatags"] = context.get("metatags", "") + "\n".join(lines)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("html-page-context", add_tags)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

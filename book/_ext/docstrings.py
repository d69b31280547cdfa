"""Let docstrings be plain text: fields with hanging indents become lists, and |x| is an absolute value.

A paragraph such as this one, in which every line that is not indented names a field, is shown as a list:

    read_out: (S, D). The output weights.
    floor: (L,). The number that layer norm adds to a variance,
        one a layer.
"""

import re

from sphinx.application import Sphinx

FIELD = re.compile(r"^([\w, ]+): (?=\S)")


def as_list(paragraph: list[str]) -> list[str]:
    """Return the paragraph as a reStructuredText list if its lines name fields, else as it is."""
    names = [FIELD.match(line) for line in paragraph if line and not line.startswith(" ")]
    if not names or not all(names) or len(paragraph) == 1:
        return paragraph
    return [
        FIELD.sub(r"- **\1**: ", line) if FIELD.match(line) else "  " + line.strip() for line in paragraph
    ]


def process(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Rewrite the lines of a docstring in place, paragraph by paragraph."""
    text = re.sub(r"(?<![\w`|])\|(?=[^|`\n]+\|)", r"\\|", "\n".join(lines))
    paragraphs = [as_list(paragraph.split("\n")) for paragraph in text.split("\n\n")]
    lines[:] = "\n\n".join("\n".join(paragraph) for paragraph in paragraphs).split("\n")


def setup(app: Sphinx) -> dict[str, bool]:
    # Before napoleon, which reads the sections `Args:`, `Returns:`, `Raises:`.
    app.connect("autodoc-process-docstring", process, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

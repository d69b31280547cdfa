"""What the build takes off a page has no use there; what is no formula is refused."""

from pathlib import Path

import pytest
import quickjs
from PIL import Image

from book._ext import lean, maths

HEAD = (
    '<link rel="stylesheet" href="_static/copybutton.css" />\n'
    '<script src="_static/copybutton.js"></script>\n'
    '<script data-url_root="./" id="documentation_options" src="_static/documentation_options.js"></script>\n'
)


def test_a_page_keeps_what_its_article_uses() -> None:
    with_code = lean.lean_page(HEAD + '<article><div class="highlight-python">x</div></article>')
    assert with_code.count("copybutton") == 2
    assert '<script defer src="_static/copybutton.js">' in with_code
    assert "defer" not in with_code.split("documentation_options", 1)[1]
    without = lean.lean_page(HEAD + "<article>highlight is only a word here</article>")
    assert "copybutton" not in without
    assert "documentation_options" in without


def test_a_style_keeps_rules_that_can_match() -> None:
    css = """
    /* a comment */
    a, .gone b { color: red }
    .here:not(.absent) { color: blue }
    .gone { color: green }
    @media print { .gone { top: 0 } .here { top: 1px } }
    @media screen { .gone { top: 0 } }
    @font-face { font-family: x; src: url(vendor/fontawesome/a.woff2) }
    @font-face { font-family: y; src: url(mine.woff2) }
    """
    style = "".join(lean.lean_style(css, {"here"}).split())
    assert style == (
        "a{color:red}.here:not(.absent){color:blue}@mediaprint{.here{top:1px}}"
        "@font-face{font-family:y;src:url(mine.woff2)}"
    )


def test_a_picture_is_given_its_size_and_fewer_colours(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    Image.linear_gradient("L").convert("RGBA").resize((64, 32)).save(path, compress_level=0)
    before = path.stat().st_size
    assert 'width="64" height="32"' in lean.sized('<img alt="a" src="a.png">', tmp_path)
    styled = '<img alt="a" src="a.png" style="width: 64px; height: 32px;">'
    assert "style" not in lean.sized(styled, tmp_path)
    assert lean.sized('<img width="5" src="a.png">', tmp_path) == '<img width="5" src="a.png">'
    lean.compact(path)
    assert path.stat().st_size < before
    with Image.open(path) as image:
        assert image.size == (64, 32)


def test_a_formula_is_mathml_and_what_is_none_is_refused() -> None:
    assert maths.typeset("x^2").startswith("<math")
    assert 'display="block"' in maths.typeset("x^2", True)
    with pytest.raises(quickjs.JSException, match="nosuch"):
        maths.typeset(r"\nosuch{x}")

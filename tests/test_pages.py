"""The prose pages say what is so."""

import contextlib
import io
import re
from pathlib import Path

import numpy as np
from bs4 import BeautifulSoup

from icl_lib.chapters import chapters, figure
from icl_lib.site import pages


def test_example_of_the_library_page_runs(root: Path) -> None:
    page = (root / "book" / "api.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(example, {})
    # The construction's error at N = 50 is near 25/N²; a hundred prompts give its size, not its digits.
    assert np.isfinite(float(printed.getvalue()))
    assert 0.0005 < float(printed.getvalue()) < 0.1


def test_library_page_has_every_module(root: Path, site: Path) -> None:
    page = (site / "book" / "api.html").read_text(encoding="utf-8")
    modules = {path.stem for path in (root / "icl_lib").glob("*.py")} - {"__init__", "cli"}
    assert {name for name in modules if f'id="module-icl_lib.{name}"' not in page} == set()


def test_readme_shows_the_chapters_own_figure(root: Path) -> None:
    png, alt = figure(chapters(root), "fig-pulled-line")
    assert (root / "book" / "_static" / "pulled-line.png").read_bytes() == png
    assert f"![{alt}](book/_static/pulled-line.png)" in (root / "README.md").read_text(encoding="utf-8")


def test_references_are_cited_by_their_keys(root: Path) -> None:
    keys = set(re.findall(r"^@\w+\{([\w-]+),", (root / "book" / "references.bib").read_text(), re.MULTILINE))
    assert keys
    texts = [*root.glob("book/*.md"), *root.glob("notebooks/*.ipynb")]
    cited = {
        key.strip()
        for path in texts
        for group in re.findall(r"\{cite(?::\w+)?\}`([^`]+)`", path.read_text(encoding="utf-8"))
        for key in group.split(",")
    }
    assert cited <= keys


def test_every_page_says_how_to_cite_it(root: Path, site: Path) -> None:
    descriptions = []
    for name in pages(root):
        head = BeautifulSoup((site / f"{name}.html").read_text(encoding="utf-8"), "html.parser").head
        assert head is not None
        found = {str(tag["name"]): str(tag["content"]) for tag in head.find_all("meta", attrs={"name": True})}
        assert found["citation_author"], name
        assert found["citation_title"].endswith("simple linear regression"), name
        descriptions.append(found.get("description", ""))
    # Pages that are a table or a list alone have no paragraph to quote.
    assert len([text for text in descriptions if text]) > 0.8 * len(descriptions)

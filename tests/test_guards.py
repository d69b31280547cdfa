"""Each guard bites: a copy with one fault is refused, and the fault is named."""

import shutil
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from playwright.sync_api import Browser

from icl_lib.chapters import ExecutionError, ParameterError, checked, declared, parameter_file, problems, run
from icl_lib.site import contents_problems, site_problems
from tests.browser import MACHINERY, TOTAL, visit
from tests.strict import nbval

FIGURE = {"figure": {"caption": "It rises.", "name": "fig-rise"}, "image": {"alt": "A rising line"}}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small notebook with nothing wrong, executed."""
    draw = "import matplotlib.pyplot as plt\n\nplt.plot([0, N])\nplt.show()"
    notebook = new_notebook(
        cells=[
            new_markdown_cell("# A chapter"),
            new_code_cell("N = 50\nR = 1.0\nname = 'a'\nsizes = [5, 10]", metadata={"tags": ["parameters"]}),
            new_code_cell("print(N * R, flush=True)\nprint(sizes)"),
            new_code_cell(draw, metadata={"mystnb": FIGURE}),
        ]
    )
    path = tmp_path_factory.mktemp("notebooks") / "01_good.ipynb"
    nbformat.write(notebook, path)
    run(path, path)
    return path


def altered(good: Path, folder: Path, change: Callable[[NotebookNode], object]) -> Path:
    notebook = nbformat.read(good, as_version=4)
    change(notebook)
    path = folder / good.name
    path.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")
    return path


def test_a_good_notebook_passes_and_a_rerun_gives_the_same_bytes(good: Path, tmp_path: Path) -> None:
    assert problems(good) == []
    assert nbval(good) == []
    run(good, tmp_path / good.name)
    assert (tmp_path / good.name).read_bytes() == good.read_bytes()


def swap_cells(nb: NotebookNode) -> None:
    nb.cells[1], nb.cells[2] = nb.cells[2], nb.cells[1]


NOTEBOOK_FAULTS = {
    "not executed in order": lambda nb: nb.cells[2].update(execution_count=None, outputs=[]),
    "was not executed": swap_cells,
    "figure without alt text": lambda nb: nb.cells[3].metadata.mystnb.image.update(alt=" "),
    "figure without caption": lambda nb: nb.cells[3].metadata.mystnb.figure.pop("caption"),
    "not in the normal form": lambda nb: nb.metadata.update(papermill={"duration": 1.5}),
    "a path of the machine": lambda nb: nb.cells[2].outputs[0].update(text="/home/someone/file\n"),
    "rounding noise": lambda nb: nb.cells[2].outputs[0].update(text="0.30000000000000004\n"),
    "writes to stderr": lambda nb: nb.cells[2].outputs.append(
        new_output("stream", name="stderr", text="careful")
    ),
    "stopped with ValueError": lambda nb: nb.cells[2].outputs.append(new_output("error", ename="ValueError")),
    "an outside address": lambda nb: nb.cells[2].outputs.append(
        new_output("display_data", {"text/html": "<script src='https://example.org/a.js'></script>"})
    ),
    "a picture without alt text": lambda nb: nb.cells[0].update(source="![](a.png)"),
    "one cell tagged `parameters`": lambda nb: nb.cells[1].metadata.update(tags=[]),
}


@pytest.mark.parametrize("fault", NOTEBOOK_FAULTS)
def test_a_fault_in_a_notebook_is_named(fault: str, good: Path, tmp_path: Path) -> None:
    found = problems(altered(good, tmp_path, NOTEBOOK_FAULTS[fault]))
    assert any(fault.removeprefix("not executed ") in line for line in found), found


def test_a_tampered_output_fails(good: Path, tmp_path: Path) -> None:
    tampered = altered(good, tmp_path, lambda nb: nb.cells[2].outputs[0].update(text="51.0\n[5, 10]\n"))
    assert problems(tampered) == []
    assert any(line.startswith("FAILED") for line in nbval(tampered))


def test_a_time_out_fails(good: Path, tmp_path: Path) -> None:
    endless = altered(good, tmp_path, lambda nb: nb.cells[2].update(source="while True:\n    pass"))
    assert nbval(endless, timeout=1)


def test_an_error_in_a_cell_stops_the_run_and_leaves_the_file(good: Path, tmp_path: Path) -> None:
    broken = altered(good, tmp_path, lambda nb: nb.cells[2].update(source="N / 0"))
    before = broken.read_bytes()
    with pytest.raises(ExecutionError, match="ZeroDivisionError"):
        run(broken, broken)
    assert broken.read_bytes() == before


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n": 50}, r"unknown parameter 'n' \(= 50\); known parameters: N \(int\), R \(float\)"),
        ({"N": "50"}, r"'N' is '50' \(str\), expected int"),
        ({"N": 50.0}, r"'N' is 50.0 \(float\), expected int"),
        ({"N": True}, r"'N' is True \(bool\), expected int"),
        ({"R": "1e-3"}, r"write 1.0e-3"),
        ({"sizes": [5, "ten"]}, r"expected list"),
        ({"sizes": 5}, r"'sizes' is 5 \(int\), expected list"),
    ],
)
def test_a_bad_parameter_is_refused(
    parameters: dict[str, object], message: str, good: Path, tmp_path: Path
) -> None:
    with pytest.raises(ParameterError, match=message):
        run(good, tmp_path / "out.ipynb", parameters)
    assert not (tmp_path / "out.ipynb").exists()


def test_parameters_replace_the_defaults(good: Path, tmp_path: Path) -> None:
    run(good, tmp_path / "out.ipynb", {"N": 3, "R": 2})
    cells = nbformat.read(tmp_path / "out.ipynb", as_version=4).cells
    assert next(cell.outputs[0].text for cell in cells if cell.get("outputs")) == "6.0\n[5, 10]\n"
    assert checked({"R": 2}, declared(nbformat.read(good, as_version=4))) == {"R": 2.0}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("01_good: {M: 1}", "01_good: unknown parameter 'M'"),
        ("{}", "no entry for 01_good"),
        ("01_good: {}\n02_bad: {}", "no notebook named 02_bad"),
    ],
)
def test_a_bad_parameter_file_is_refused(text: str, message: str, good: Path, tmp_path: Path) -> None:
    (tmp_path / "file.yaml").write_text(text)
    with pytest.raises(ParameterError, match=message):
        parameter_file(tmp_path / "file.yaml", [good])


def test_a_page_missing_from_the_contents_is_named(root: Path, tmp_path: Path) -> None:
    for folder in ("book", "notebooks"):
        shutil.copytree(root / folder, tmp_path / folder)
    contents = (root / "_toc.yml").read_text().replace("      - file: book/errata\n", "")
    (tmp_path / "_toc.yml").write_text(contents + "      - file: book/nowhere\n")
    assert contents_problems(tmp_path) == [
        "_toc.yml lists book/nowhere, which does not exist",
        "book/errata is not in _toc.yml",
    ]


# The site


@pytest.fixture
def copy(site: Path, tmp_path: Path) -> Path:
    """A copy of the built site's pages, to be broken."""
    return shutil.copytree(site, tmp_path / "html", ignore=shutil.ignore_patterns("_sources", "*.ipynb"))


def edit(page: Path, old: str, new: str) -> None:
    text = page.read_text(encoding="utf-8")
    assert old in text
    page.write_text(text.replace(old, new, 1), encoding="utf-8")


def with_figure(site: Path) -> Path:
    return next(page for page in sorted(site.glob("notebooks/*.html")) if "<figcaption" in page.read_text())


def picture(site: Path) -> Path:
    return next(site.glob("_images/*.png"))


SITE_FAULTS: dict[str, Callable[[Path], object]] = {
    "errata.html is missing": lambda site: (site / "book/errata.html").unlink(),
    "which does not exist": lambda site: picture(site).unlink(),
    "is broken": lambda site: picture(site).write_bytes(picture(site).read_bytes()[:500]),
    "from outside": lambda site: edit(
        site / "book/errata.html", "</head>", '<script src="https://example.org/a.js"></script></head>'
    ),
    "loads //example.org/a.png from outside": lambda site: edit(
        site / "book/errata.html", "</body>", '<p style="background: url(//example.org/a.png)"></p></body>'
    ),
    "has no alt text": lambda site: edit(with_figure(site), ' alt="', ' title="'),
    "has no caption": lambda site: edit(with_figure(site), "<figcaption", "<div"),
    "whose anchor does not exist": lambda site: edit(
        site / "book/index.html", "</body>", '<a href="#gone">x</a></body>'
    ),
    "link to gone.html": lambda site: edit(
        site / "book/index.html", "</body>", '<a href="gone.html">x</a></body>'
    ),
}


@pytest.mark.parametrize("fault", SITE_FAULTS)
def test_a_fault_in_the_site_is_named(fault: str, root: Path, copy: Path) -> None:
    SITE_FAULTS[fault](copy)
    assert any(fault in line for line in site_problems(root, copy)), fault


SEEN_FAULTS: dict[str, tuple[str, str]] = {
    "asks for https://example.org": ("</body>", '<script>fetch("https://example.org/a")</script></body>'),
    "error in the page": ("</body>", "<script>null.length</script></body>"),
    "picture did not load": ("</body>", '<img src="gone.png" alt="gone"></body>'),
    "formulas are not typeset": ("</article>", r'<span class="math">\(x\)</span></article>'),
    "contrast": ("</article>", '<p style="color: #ddd; background: #fff">faint</p></article>'),
    "axe: button-name": ("</article>", "<button></button></article>"),
    "axe: region": ("</body>", "<p>outside of all landmarks</p></body>"),
    "axe: label-content-name-mismatch": ("</article>", '<button aria-label="close">Open</button></article>'),
    "bytes of scripts": ("</body>", '<script src="../_static/heavy.js"></script></body>'),
    "bytes of everything": ("</body>", '<img src="../_static/heavy.png" alt="heavy"></body>'),
    "px wide": ("</article>", '<div style="width: 5000px">wide</div></article>'),
}


@pytest.mark.parametrize("fault", SEEN_FAULTS)
def test_a_fault_that_only_a_browser_sees_is_named(fault: str, copy: Path, browser: Browser) -> None:
    page = copy / "book/errata.html"
    (copy / "_static/heavy.js").write_text(f"/*{' ' * MACHINERY}*/")
    (copy / "_static/heavy.png").write_bytes(picture(copy).read_bytes() + bytes(TOTAL))
    edit(page, *SEEN_FAULTS[fault])
    assert any(fault in line for line in visit(browser, page.as_uri())), fault

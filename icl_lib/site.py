"""The site: build it from the pages in _toc.yml, and say what is wrong with what was built."""

import json
import os
import platform
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from urllib.parse import unquote, urlsplit

import nbformat
import yaml
from bs4 import BeautifulSoup
from PIL import Image

from icl_lib.chapters import chapters

SITE = Path("_build/html")
STATUS = Path("_build/status.json")
VERSIONS = ("numpy", "torch", "numba", "matplotlib", "jupyter-book")

# What a page loads by itself, as (tag, attribute).
RESOURCES = (
    ("script", "src"),
    ("img", "src"),
    ("source", "src"),
    ("iframe", "src"),
    ("video", "src"),
    ("audio", "src"),
)
STYLE_URL = re.compile(r"""url\(\s*['"]?(?!data:|#)([^'")]+)""")


class BuildError(RuntimeError):
    """The book did not build, or built with warnings."""


def pages(root: Path) -> list[str]:
    """Return the pages in _toc.yml, in reading order, without their endings (`book/index`)."""
    toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    listed = [chapter["file"] for part in toc["parts"] for chapter in part["chapters"]]
    return [toc["root"], *listed]


def contents_problems(root: Path) -> list[str]:
    """Return the pages that _toc.yml lists in vain or twice, and those that exist without being listed."""
    listed = pages(root)
    present = {
        p.relative_to(root).with_suffix("").as_posix()
        for p in [*chapters(root), *(root / "book").glob("*.md")]
    }
    found = [f"_toc.yml lists {page}, which does not exist" for page in listed if page not in present]
    found += [f"{page} is not in _toc.yml" for page in sorted(present - set(listed))]
    return found + [f"_toc.yml lists {page} twice" for page in {p for p in listed if listed.count(p) > 1}]


def build(root: Path) -> Path:
    """Build the site, warnings as errors; return the page to open. Raises BuildError with the warnings."""
    if absent := [fault for fault in contents_problems(root) if fault.startswith("_toc.yml")]:
        raise BuildError("\n".join(absent))
    command = [
        str(Path(sys.executable).with_name("jupyter-book")),
        "build",
        ".",
        "--all",
        "-W",
        "-n",
        "--keep-going",
        "-q",
    ]
    result = subprocess.run(
        command, cwd=root, capture_output=True, text=True, env=os.environ | {"NO_COLOR": "1"}
    )
    if result.returncode:
        raise BuildError(result.stdout + result.stderr)
    return root / SITE / "index.html"


# The equations


@dataclass(frozen=True)
class Cell:
    """A code cell that checks an equation: the page, the chapter's and the section's title, the anchor."""

    page: str
    chapter: str
    section: str
    anchor: str


def equation_cells(root: Path) -> dict[int, list[Cell]]:
    """Return the code cells that check each equation of the paper, by the tags `eq-18` that they carry."""
    cells: dict[int, list[Cell]] = defaultdict(list)
    for path in chapters(root):
        titles = ["", ""]
        seen: dict[int, int] = defaultdict(int)
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "markdown":
                for marks, title in re.findall(r"^(##?) +(.+)$", cell.source, re.MULTILINE):
                    titles[len(marks) - 1] = title.strip()
                continue
            for number in equation_tags(cell.metadata.get("tags", [])):
                seen[number] += 1
                anchor = equation_anchor(number, seen[number])
                cells[number].append(Cell(f"notebooks/{path.stem}", titles[0], titles[1], anchor))
    return dict(cells)


def equation_tags(tags: list[str]) -> list[int]:
    """Return the numbers in tags such as `eq-18`."""
    return [int(tag.removeprefix("eq-")) for tag in tags if re.fullmatch(r"eq-\d+", tag)]


def equation_anchor(number: int, occurrence: int) -> str:
    """Return the id, in the page, of the cell that is the n-th to check an equation."""
    return f"eq-{number}" if occurrence == 1 else f"eq-{number}-{occurrence}"


# The status page's data


def record_times(root: Path, seconds: dict[str, float]) -> None:
    """Write the run times of notebooks, with versions and machine, to _build/status.json; keep the others."""
    path = root / STATUS
    old = json.loads(path.read_text())["seconds"] if path.exists() else {}
    status = {
        "seconds": {**old, **seconds},
        "versions": {"Python": platform.python_version(), **{name: version(name) for name in VERSIONS}},
        "machine": {"processor": _processor(), "cores": os.cpu_count(), "system": platform.system()},
    }
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(status, indent=1) + "\n")


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*:\s*(.+)", info.read_text()) if info.exists() else []
    return names[0] if names else platform.machine()


# Checks of the built site


def site_problems(root: Path, site: Path | None = None) -> list[str]:
    """Return what is wrong with the site built under `root` (or with a copy of it at `site`), one line each.

    Checked: every page of the contents is there; nothing is loaded from an outside address; every picture
    exists, can be decoded and has alt text; every figure has a caption; every internal link resolves.
    """
    site = site or root / SITE
    found = [
        f"{page}.html is missing" for page in ["index", *pages(root)] if not (site / f"{page}.html").is_file()
    ]
    files = [path for path in site.rglob("*.html") if "_static" not in path.parts]
    parsed = {path: BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser") for path in files}
    ids = {
        path.resolve(): {str(tag["id"]) for tag in page.find_all(id=True)} for path, page in parsed.items()
    }
    for path, page in parsed.items():
        name = path.relative_to(site).as_posix()
        if str(root) in page.get_text():
            found.append(f"{name}: shows {root}, a path of the machine that built it")
        found += [
            f"{name}: {fault}" for fault in (*_resource_faults(path, page), *_link_faults(path, page, ids))
        ]
    for path in site.rglob("*.css"):
        name = path.relative_to(site).as_posix()
        for address in STYLE_URL.findall(path.read_text(encoding="utf-8")):
            found += [f"{name}: {fault}" for fault in _load_faults(path, address)]
    return found


def _load_faults(path: Path, address: str) -> Iterator[str]:
    parts = urlsplit(address)
    if parts.scheme == "data":
        return
    if parts.scheme or parts.netloc:
        yield f"loads {address} from outside"
    elif not (path.parent / unquote(parts.path)).is_file():
        yield f"loads {address}, which does not exist"


def _resource_faults(path: Path, page: BeautifulSoup) -> Iterator[str]:
    addresses = [str(tag[key]) for name, key in RESOURCES for tag in page.find_all(name, attrs={key: True})]
    addresses += [
        str(tag["href"])
        for tag in page.find_all("link", href=True, rel=True)
        if {"stylesheet", "icon", "preload", "modulepreload", "manifest"} & set(tag["rel"])
    ]
    addresses += [url for tag in page.find_all(style=True) for url in STYLE_URL.findall(str(tag["style"]))]
    addresses += [url for tag in page.find_all("style") for url in STYLE_URL.findall(tag.get_text())]
    for address in addresses:
        yield from _load_faults(path, address)
    for image in page.find_all("img"):
        source = str(image.get("src", ""))
        if not str(image.get("alt", "")).strip():
            yield f"picture {source} has no alt text"
        file = path.parent / unquote(source)
        if file.suffix in (".png", ".jpg", ".jpeg", ".webp") and file.is_file():
            try:
                with Image.open(file) as opened:
                    opened.load()
            except (OSError, SyntaxError) as error:
                yield f"picture {source} is broken: {error}"
    for figure in page.find_all("figure"):
        if figure.find("img") and not (figure.figcaption and figure.figcaption.get_text(strip=True)):
            yield f"figure {figure.get('id', '')} has no caption"


def _link_faults(path: Path, page: BeautifulSoup, ids: dict[Path, set[str]]) -> Iterator[str]:
    for link in page.find_all("a", href=True):
        parts = urlsplit(str(link["href"]))
        if parts.scheme or parts.netloc:
            continue
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path.resolve()
        if not target.is_file():
            yield f"link to {link['href']}, which does not exist"
        elif parts.fragment and target in ids and unquote(parts.fragment) not in ids[target]:
            yield f"link to {link['href']}, whose anchor does not exist"

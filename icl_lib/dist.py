"""Archives to hand out: the site, which opens offline, and the notebooks with all that they need to run."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from icl_lib.site import SITE, BuildError, site_problems

DIST = Path("_build/dist")
NAME = "closed-form-icl"
# What a reader needs to run the chapters, without the book's own pages and checks.
NOTEBOOKS = (
    "notebooks",
    "icl_lib",
    "results",
    "requirements.txt",
    "constraints.txt",
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "LICENSE-text",
    "CITATION.cff",
)
EPOCH = (1980, 1, 1, 0, 0, 0)  # the time of every entry, so that the same files give the same archive


def make_archives(root: Path) -> list[Path]:
    """Write the archives of site and notebooks, and SHA256SUMS of both, into _build/dist.

    Args:
        root: the project's folder, its site built.

    Returns:
        The three files. The same site and notebooks give the same bytes.

    Raises:
        BuildError: the site is missing or faulty.
    """
    if not (root / SITE / "index.html").is_file():
        raise BuildError(f"there is no site in {root / SITE}: run `make site` first")
    if faults := site_problems(root):
        raise BuildError("\n".join(faults))
    version = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    folder = root / DIST
    folder.mkdir(parents=True, exist_ok=True)
    archives = [
        _archive(folder / f"{NAME}-{version}-site.zip", root / SITE, ["."]),
        _archive(folder / f"{NAME}-{version}-notebooks.zip", root, NOTEBOOKS),
    ]
    sums = folder / "SHA256SUMS"
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in archives]
    sums.write_text("".join(lines), encoding="utf-8")
    return [*archives, sums]


def _archive(target: Path, base: Path, names: Sequence[str]) -> Path:
    with ZipFile(target, "w", ZIP_DEFLATED) as archive:
        for path in sorted(_files(base, names)):
            entry = ZipInfo(f"{target.stem}/{path.relative_to(base).as_posix()}", EPOCH)
            entry.compress_type, entry.external_attr = ZIP_DEFLATED, 0o644 << 16
            archive.writestr(entry, path.read_bytes())
    return target


def _files(base: Path, names: Sequence[str]) -> Iterator[Path]:
    for name in names:
        path = base / name
        found = path.rglob("*") if path.is_dir() else [path]
        yield from (
            file
            for file in found
            if file.is_file() and not {"__pycache__", ".ipynb_checkpoints"} & set(file.parts)
        )

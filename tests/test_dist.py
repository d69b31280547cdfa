"""The archives: whole, the same bytes each time, and refused for a faulty site."""

import hashlib
import re
from pathlib import Path
from zipfile import ZipFile

import pytest
from playwright.sync_api import Browser

from icl_lib.dist import make_archives
from icl_lib.site import SITE, BuildError, pages
from tests.browser import visit

pytestmark = pytest.mark.xdist_group("dist")  # one worker makes the archives for all


@pytest.fixture(scope="module")
def copy(root: Path, site: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with links to the project's parts, so that its archives land elsewhere."""
    folder = tmp_path_factory.mktemp("project")
    for path in root.iterdir():
        if path.name != "_build":
            (folder / path.name).symlink_to(path)
    (folder / SITE.parent).mkdir()
    (folder / SITE).symlink_to(site)
    return folder


@pytest.fixture(scope="module")
def made(copy: Path) -> list[Path]:
    """The archives and their checksums."""
    return make_archives(copy)


def test_archives_are_whole_and_the_same_each_time(root: Path, copy: Path, made: list[Path]) -> None:
    *archives, sums = made
    first = [path.read_bytes() for path in archives]
    assert [path.read_bytes() for path in make_archives(copy)[:-1]] == first
    for line, path, content in zip(sums.read_text().splitlines(), archives, first, strict=True):
        assert line == f"{hashlib.sha256(content).hexdigest()}  {path.name}"
    names = [set(ZipFile(path).namelist()) for path in archives]
    inside = [{name.split("/", 1)[1] for name in each} for each in names]
    assert {f"{page}.html" for page in pages(root)} <= inside[0]
    chapters = {f"notebooks/{path.name}" for path in (root / "notebooks").glob("*.ipynb")}
    assert chapters | {"requirements.txt", "constraints.txt", "icl_lib/prompts.py"} <= inside[1]
    assert not any(re.search("__pycache__|checkpoints/", name) for name in names[1])


def test_the_site_opens_from_its_archive(made: list[Path], tmp_path: Path, browser: Browser) -> None:
    ZipFile(made[0]).extractall(tmp_path)
    (page,) = tmp_path.glob("*/book/index.html")
    assert visit(browser, page.as_uri()) == []


def test_without_a_site_there_is_no_archive(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="run `make site` first"):
        make_archives(tmp_path)

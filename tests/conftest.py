"""Shape checking for the whole suite, and what the tests of pages share."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from jaxtyping import config, install_import_hook
from playwright.sync_api import Browser, sync_playwright

from tests.browser import ARGUMENTS, find_browser

# Every annotated signature of the library is checked, shapes and dtypes too. Before the library is imported.
# Not in the engine's kernels: Numba cannot compile a function that is wrapped in a check.
ROOT = Path(__file__).resolve().parents[1]
KERNELS = ("layers", "maps", "network", "optimiser")
MODULES = [path for path in (ROOT / "icl_lib").rglob("*.py") if path.stem not in KERNELS]
install_import_hook(
    [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in MODULES], "typecheck.check"
)


@pytest.fixture
def unchecked() -> Iterator[None]:
    """No shape checking: bad input meets the library's own errors first, as it does for a user."""
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)


@pytest.fixture(scope="session")
def root() -> Path:
    """The project's folder."""
    return ROOT


@pytest.fixture(scope="session")
def site(root: Path) -> Path:
    """The built site. `make test` builds it first; a stale or missing one is an error and not a skip."""
    site = root / "_build" / "html"
    assert (site / "searchindex.js").is_file(), "the site is not built: run `make site` (or `make test`)"
    built = (site / "searchindex.js").stat().st_mtime
    sources = [*root.glob("_*.yml"), *root.glob("book/**/*.*"), *root.glob("notebooks/*.ipynb")]
    late = [path.name for path in sources if "__pycache__" not in path.parts and path.stat().st_mtime > built]
    assert not late, f"changed since the site was built: {', '.join(late)}; run `make site` (or `make test`)"
    return site


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A headless Chromium. Not having one is an error and not a skip."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=find_browser(), args=ARGUMENTS)
        yield chromium
        chromium.close()

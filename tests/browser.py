"""A browser for the tests of the site, from wherever one is to be had, and one page's visit.

`python tests/browser.py` finds or installs the browser and prints its path.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

from playwright.sync_api import Browser, sync_playwright

PAGE = Path(__file__).with_name("page.js")
AXE = Path(__file__).with_name("vendor") / "axe.min.js"
# What a page may load, in bytes as on the disk: scripts, styles and fonts; and with its text and pictures.
MACHINERY = 370_000
EXPLORER = 800_000  # the one page that computes: with a plotting library and the weights
TOTAL = 1_300_000
ON_DISK = ("file:", "data:", "blob:")
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# As in a container, and without the requests that a browser makes on its own account.
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def find_browser() -> str | None:
    """Return the path of a Chromium: one on PATH, else Debian's package, else Playwright's own download.

    None means the download, which Playwright finds itself. Raises RuntimeError where none of the three works.
    """
    if path := next(filter(None, map(shutil.which, NAMES)), None):
        return path
    if hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(["apt-get", "update", "-qq"], check=False)
        subprocess.run(["apt-get", "install", "-y", "-qq", "chromium"], check=False)
        if path := shutil.which("chromium"):
            return path
    with sync_playwright() as playwright:
        if os.path.exists(playwright.chromium.executable_path):
            return None
    if subprocess.run([sys.executable, "-m", "playwright", "install", "chromium"], check=False).returncode:
        raise RuntimeError(
            "no Chromium on PATH, and none could be installed: install chromium and run this again"
        )
    return None


def visit(browser: Browser, url: str, *, dark: bool = False, width: int = 1440) -> list[str]:
    """Open a page and return what is wrong with it, one line each.

    Checked: no request leaves the disk, no error in the page or its console, the theme is the reader's, what
    page.js looks at, every rule of axe-core for readers who do not see the page, and the bytes that it loads.
    """
    faults: list[str] = []
    files: set[Path] = set()

    def note(wrong: bool, line: str) -> None:
        if wrong:
            faults.append(line)

    context = browser.new_context(
        color_scheme="dark" if dark else "light",
        viewport={"width": width, "height": 900},
        service_workers="block",
    )
    context.set_default_timeout(60_000)
    page = context.new_page()
    page.on(
        "request",
        lambda r: note(not r.url.startswith(ON_DISK), f"asks for {r.url}"),
    )
    page.on("requestfinished", lambda r: files.add(Path(unquote(urlsplit(r.url).path))))
    page.on("requestfailed", lambda r: note(True, f"did not load: {r.url}"))
    page.on("pageerror", lambda error: note(True, f"error in the page: {error}"))
    page.on("console", lambda m: note(m.type == "error", f"error in the console: {m.text}"))
    page.goto(url, wait_until="load")
    faults += page.evaluate(PAGE.read_text(encoding="utf-8"))
    faults += overweight(files, EXPLORER if url.endswith("explorer.html") else MACHINERY)
    page.evaluate(AXE.read_text(encoding="utf-8"))
    # Preloading would fetch the styles again, which a page on the disk may not.
    found = page.evaluate("axe.run({resultTypes: ['violations'], preload: false})")
    for rule in found["violations"]:
        faults += [f"axe: {rule['id']}: {node['html'][:200]}" for node in rule["nodes"]]
    if page.locator("html").get_attribute("data-theme") != ("dark" if dark else "light"):
        faults.append("the theme does not follow the reader's")
    context.close()
    return faults


def overweight(files: set[Path], machinery: int) -> list[str]:
    """Return what is too much of the files that a page has loaded."""
    sizes = {path: path.stat().st_size for path in files if path.is_file()}
    parts = sum(size for path, size in sizes.items() if path.suffix in (".js", ".css", ".woff", ".woff2"))
    return [
        f"loads {size} bytes of {what}, more than {most}"
        for what, size, most in (
            ("scripts, styles and fonts", parts, machinery),
            ("everything", sum(sizes.values()), TOTAL),
        )
        if size > most
    ]


if __name__ == "__main__":
    print(find_browser() or "Playwright's Chromium")

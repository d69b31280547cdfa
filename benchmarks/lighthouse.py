"""Lighthouse on every page of the built site, served as a host of static pages does: compressed.

Run `python benchmarks/lighthouse.py` after `make site`, on a quiet machine: a busy one lowers the scores for
performance. Needs Node (`npx` fetches Lighthouse) and Chromium. Fails if a score is below its aim.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from threading import Thread
from typing import BinaryIO

from rich.console import Console
from rich.progress import track
from rich.table import Table

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.browser import find_browser  # noqa: E402

AIMS = {"performance": 90, "accessibility": 100, "best-practices": 100}
LIGHTHOUSE = "lighthouse@12.2.3"
TEXT = (".html", ".css", ".js", ".json", ".svg")


class Compressed(SimpleHTTPRequestHandler):
    """Sends text compressed, and says nothing."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments: object) -> None:
        pass

    def send_head(self) -> BytesIO | BinaryIO | None:
        path = Path(self.translate_path(self.path))
        if path.suffix not in TEXT or not path.is_file():
            return super().send_head()
        content = gzip.compress(path.read_bytes())
        self.send_response(200)
        self.send_header("Content-Type", self.guess_type(str(path)))
        self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        return BytesIO(content)


def scores(address: str) -> dict[str, int]:
    """Return Lighthouse's scores of a page, 0 to 100, on its simulated phone."""
    command = ["npx", "--yes", LIGHTHOUSE, address, "--quiet", "--output=json"]
    command += [f"--only-categories={','.join(AIMS)}", "--chrome-flags=--headless=new --no-sandbox"]
    environment = os.environ | {"CHROME_PATH": str(find_browser())}
    report = subprocess.run(command, env=environment, capture_output=True, check=True, text=True).stdout
    categories = json.loads(report)["categories"]
    return {name: round(100 * categories[name]["score"]) for name in AIMS}


def main() -> None:
    site = ROOT / "_build" / "html"
    pages = sorted(path.relative_to(site) for path in site.glob("[!_]*/*.html"))
    if not pages:
        raise SystemExit(f"no pages in {site}: run `make site` first")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Compressed, directory=str(site)))
    Thread(target=server.serve_forever, daemon=True).start()
    console = Console()
    table = Table("page", *AIMS)
    low = False
    for page in track(pages, "pages", console=console):
        found = scores(f"http://127.0.0.1:{server.server_port}/{page.as_posix()}")
        below = {name for name, score in found.items() if score < AIMS[name]}
        low |= bool(below)
        table.add_row(
            str(page), *(f"[red]{found[name]}" if name in below else str(found[name]) for name in AIMS)
        )
    console.print(table)
    raise SystemExit(int(low))


if __name__ == "__main__":
    main()

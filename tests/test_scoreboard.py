"""The scoreboard page against the data file and the chapters, and its controls in a browser."""

import re
from html import unescape
from pathlib import Path

from playwright.sync_api import Browser

from icl_lib.chapters import chapters
from icl_lib.claims import collect, load

ALLOWED = {
    "exact": {"holds", "does not hold"},
    "number": {"holds within tolerance", "does not hold"},
    "shape": {"holds in shape", "does not hold"},
    "fraction": {"holds", "holds in part", "does not hold"},
    "silent": {"cannot be tested (paper silent)"},
    "contradiction": {"the paper contradicts itself"},
}


def test_every_claim_has_one_finding_with_a_verdict_of_its_kind(root: Path) -> None:
    for name, finding in collect(chapters(root), load()).items():
        assert finding.verdict in ALLOWED[load()[name].kind], name


def test_the_page_shows_what_the_chapters_found(root: Path, site: Path) -> None:
    page = (site / "book" / "scoreboard.html").read_text(encoding="utf-8")
    found = collect(chapters(root), load())
    rows = dict(re.findall(r'<tr id="([a-z0-9-]+)" data-verdict="[^"]*">(.*?)</tr>', page, re.DOTALL))
    assert set(rows) == set(found)
    for name, finding in found.items():
        cells = [unescape(cell) for cell in re.findall(r"<td>(.*?)</td>", rows[name], re.DOTALL)]
        assert cells[2] == finding.ours, name
        assert cells[3].startswith(finding.verdict), name
        chapter = load()[name].chapter
        assert f'id="claim-{name}"' in (site / "notebooks" / f"{chapter}.html").read_text(encoding="utf-8")


def test_filter_and_sort_work_without_a_server(site: Path, browser: Browser) -> None:
    page = browser.new_page()
    page.goto((site / "book" / "scoreboard.html").as_uri())
    board = page.locator(".scoreboard").first
    rows = board.locator("tbody tr:visible")
    whole = rows.count()
    board.locator("select").select_option("does not hold")
    assert 0 < rows.count() < whole
    assert set(rows.evaluate_all("rows => rows.map(row => row.dataset.verdict)")) == {"does not hold"}
    board.locator("select").select_option("")
    board.locator("input").fill("table 2")
    assert 0 < rows.count() < whole
    assert all("table" in text.lower() and "2" in text for text in rows.all_inner_texts())
    board.locator("input").fill("")
    board.get_by_role("button", name="n", exact=True).click()
    counts = [int(text) for text in board.locator("tbody tr td:nth-child(7)").all_inner_texts()]
    assert counts == sorted(counts)
    assert board.locator("th[aria-sort=ascending]").count() == 1
    page.close()

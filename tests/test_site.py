"""The built site, opened from the disk in a browser."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from icl_lib.site import pages, site_problems
from tests.browser import visit

PAGES = pages(Path(__file__).resolve().parents[1])


def test_site_is_in_order(root: Path, site: Path) -> None:
    assert site_problems(root) == []


def test_every_page_is_reached_from_the_contents(site: Path, browser: Browser) -> None:
    page = browser.new_page()
    page.goto((site / "index.html").as_uri())
    page.wait_for_url("**/book/index.html")
    links = page.locator("nav.bd-links a.internal").evaluate_all("links => links.map(link => link.href)")
    page.close()
    assert {link.split("#")[0] for link in links} >= {(site / f"{name}.html").as_uri() for name in PAGES[1:]}


@pytest.mark.parametrize("name", PAGES)
def test_page_on_a_desktop_in_light(name: str, site: Path, browser: Browser) -> None:
    assert visit(browser, (site / f"{name}.html").as_uri()) == []


@pytest.mark.parametrize("name", PAGES)
def test_page_on_a_phone_in_dark(name: str, site: Path, browser: Browser) -> None:
    assert visit(browser, (site / f"{name}.html").as_uri(), dark=True, width=390) == []


def test_search_finds_a_page_without_a_server(site: Path, browser: Browser) -> None:
    page = browser.new_page()
    page.goto((site / "search.html").as_uri() + "?q=leverage")
    page.wait_for_selector("#search-results li a")
    page.close()

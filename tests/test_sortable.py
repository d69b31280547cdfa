"""Tables that sort: with the keyboard, by number and by word, and plain where there is no script."""

from pathlib import Path

from playwright.sync_api import Browser

PAGE = Path("notebooks") / "18_gallery.html"


def test_a_head_sorts_by_keyboard_and_again_the_other_way(site: Path, browser: Browser) -> None:
    page = browser.new_page()
    page.goto((site / PAGE).as_uri())
    table = page.locator("table.sortable")
    width = [name.strip() for name in table.locator("thead th").all_inner_texts()].index("width D") + 1
    cells = table.locator(f"tbody tr td:nth-child({width})")
    for rising in (True, False):
        table.get_by_role("button", name="width D", exact=True).press("Enter")
        sizes = [int(text) for text in cells.all_inner_texts()]
        assert sizes == sorted(sizes, reverse=not rising)
        assert len(set(sizes)) > 2
        state = "ascending" if rising else "descending"
        assert table.locator(f"th[aria-sort={state}]").count() == table.locator("th[aria-sort]").count() == 1
    table.get_by_role("button", name="paper", exact=True).press("Space")
    papers = table.locator("tbody tr td:first-child").all_inner_texts()
    assert papers == sorted(papers, key=str.lower)
    page.close()


def test_without_scripts_the_table_is_plain(site: Path, browser: Browser) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((site / PAGE).as_uri())
    assert page.locator("table.sortable tbody tr").count() > 5
    assert page.locator("table.sortable button").count() == 0
    context.close()

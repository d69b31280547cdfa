"""The page book/explorer in a browser: tour, dragging, keyboard, cutting; its numbers are the library's."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Page

from icl_lib import Prompts, gradient_descent, least_squares, leverage
from icl_lib.explorer import RELATIVE_RATE, STEPS, contexts
from icl_lib.mechanism import keep_cells
from icl_lib.weights import Weights
from tests.explorer import D, N, by_hand, fixed, library, shown

pytestmark = pytest.mark.xdist_group("explorer")  # one process: they share what is slow to make


@pytest.fixture
def explorer(site: Path, browser: Browser) -> Iterator[Page]:
    """The page, opened from the disk; an error in it fails the test."""
    faults: list[object] = []
    page = browser.new_page(viewport={"width": 1440, "height": 1400})
    page.on("pageerror", lambda error: faults.append(error))
    page.goto(address(site))
    page.wait_for_selector(".explorer [data-number=answer][value]")
    yield page
    page.close()
    assert faults == []


def address(site: Path, fragment: str = "") -> str:
    return f"{(site / 'book' / 'explorer.html').as_uri()}#{fragment}"


def numbers(page: Page) -> dict[str, float]:
    """The numbers on show, at full precision, once the frame that is due has been drawn."""
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    told = page.locator("[data-number]").evaluate_all(
        "nodes => nodes.map(node => [node.dataset.number, node.value, node.textContent])"
    )
    for _, value, text in told:
        if "·10" not in text and "not" not in text:
            assert float(text.replace("−", "-")) == pytest.approx(float(value), rel=1e-3)
    return {name: float(value) for name, value, _ in told}


def wanted_numbers(weights: Weights, prompts: Prompts) -> dict[str, float]:
    trace = weights.trace(prompts)
    (squares,) = least_squares(prompts)
    (h,) = leverage(prompts)
    return {
        "answer": trace.output[0],
        "least_squares": squares,
        "difference": trace.output[0] - squares,
        "pulled": (1 - h) * squares,
        "leverage": h,
        "descent": gradient_descent(prompts, steps=STEPS, rate=RELATIVE_RATE / N)[0],
        "V": prompts.moments().V[0],
        "sigma_1": trace.sigma[0, 0, -1],
        "sigma_2": trace.sigma[1, 0, -1],
    }


def close(found: dict[str, float], wanted: dict[str, float]) -> None:
    for name, value in wanted.items():
        assert found[name] == pytest.approx(value, rel=1e-10, abs=1e-10), name


TOUR = {
    1: ("closed_form", "standard", 1.0),
    2: ("closed_form", "far", 9.0),
    3: ("closed_form", "stretched", 3.0),
    4: ("closed_form", "clustered", 3.0),
    5: ("trained", "standard", 1.0),
}


@pytest.mark.parametrize("step", TOUR)
def test_a_step_of_the_tour_shows_the_librarys_numbers(step: int, explorer: Page) -> None:
    name, context, u = TOUR[step]
    explorer.get_by_role("list", name="Guided tour").get_by_role("link").nth(step - 1).click()
    assert explorer.url.endswith(f"#tour-{step}")
    assert explorer.locator(".tour p:visible").count() == 1
    weights = library(shown()["trained"] if name == "trained" else name, 1.0)
    prompts = Prompts(contexts()[context].x, contexts()[context].y, np.array([u]))
    wanted = wanted_numbers(weights, prompts)
    if step == 5:  # every output weight but that of cell (3, 51) is cut
        others = [(n, d) for n in range(N + 1) for d in range(D) if (n, d) != (N, 2)]
        wanted["answer"] = by_hand(weights, prompts, {"out": others})
        wanted["difference"] = wanted["answer"] - wanted["least_squares"]
    close(numbers(explorer), wanted)


def test_the_last_step_tells_what_is_so() -> None:
    """Its text: with cell (3, 51) alone the slope is right and the height is not; all cells mend it."""
    weights, context = fixed()[shown()["trained"]], contexts()["standard"]
    u = np.linspace(-3, 3, 100)
    sweep = Prompts(np.repeat(context.x, 100, axis=0), np.repeat(context.y, 100, axis=0), u)
    alone = np.zeros((N + 1, D), dtype=bool)
    alone[-1, 2] = True
    line = least_squares(sweep)
    cut, whole = keep_cells(weights, alone).predict(sweep), weights.predict(sweep)
    assert np.polyfit(u, cut, 1)[0] == pytest.approx(np.polyfit(u, line, 1)[0], rel=0.1)
    assert abs((cut - line).mean()) > 5 * (cut - line).std()
    assert np.sqrt(((whole - line) ** 2).mean()) < 0.1 * np.sqrt(((cut - line) ** 2).mean())


def test_a_shared_step_opens_as_itself(site: Path, browser: Browser) -> None:
    page = browser.new_page()
    page.goto(address(site, "tour-4"))
    page.wait_for_selector(".explorer [data-number=answer][value]")
    assert page.locator(".tour [aria-current=step]").inner_text().startswith("4")
    assert numbers(page)["V"] < 0.1
    page.close()


def test_all_is_in_its_place_before_the_scripts_run(site: Path, browser: Browser) -> None:
    """What is painted first does not move when the numbers arrive."""
    page = browser.new_page()

    def places() -> list[object]:
        assert page.locator(".tour p:visible").count() == 1
        assert page.locator(".tour [aria-current=step]").inner_text().startswith("4")
        return [page.locator(part).bounding_box() for part in (".tour", ".stage svg", ".numbers")]

    page.route("**/explorer.js*", lambda route: route.abort())
    page.goto(address(site, "tour-4"))
    first = places()
    assert None not in first
    assert page.locator("[data-number=answer][value]").count() == 0
    page.unroute_all()
    page.reload()
    page.wait_for_selector("[data-number=answer][value]")
    assert places() == first
    page.close()


def moved(explorer: Page) -> Prompts:
    """The prompt that the page's address describes, of the context as in training."""
    explorer.wait_for_function("location.hash.includes('move=')")
    x, y = contexts()["standard"].x.copy(), contexts()["standard"].y.copy()
    for part in explorer.evaluate("new URLSearchParams(location.hash.slice(1)).get('move')").split(","):
        n, px, py = part.split(":")
        x[0, int(n) - 1], y[0, int(n) - 1] = float(px), float(py)
    return Prompts(x, y, np.array([1.0]))


def test_a_point_dragged_by_mouse_turns_the_line(explorer: Page) -> None:
    line = explorer.locator("[data-line=transformer]")
    before = line.get_attribute("d")
    box = explorer.locator(".point").nth(7).bounding_box()
    assert box
    explorer.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    explorer.mouse.down()
    explorer.mouse.move(box["x"] + 80, box["y"] - 60, steps=4)
    explorer.mouse.up()
    prompts = moved(explorer)
    assert (prompts.x != contexts()["standard"].x).sum() == 1
    close(numbers(explorer), wanted_numbers(library("closed_form", 1.0), prompts))
    assert line.get_attribute("d") != before
    explorer.reload()
    close(numbers(explorer), wanted_numbers(library("closed_form", 1.0), prompts))


def test_point_and_query_obey_the_keyboard(explorer: Page) -> None:
    explorer.locator(".point[tabindex='0']").focus()
    for key in ("ArrowUp", "Shift+ArrowRight", "PageDown", "ArrowLeft"):
        explorer.keyboard.press(key)
    prompts = moved(explorer)
    assert (prompts.x != contexts()["standard"].x).sum() == 2
    close(numbers(explorer), wanted_numbers(library("closed_form", 1.0), prompts))
    query = explorer.get_by_role("slider", name="Query u")
    query.focus()
    explorer.keyboard.press("ArrowRight")
    numbers(explorer)
    assert query.get_attribute("aria-valuenow") == "1.1"
    assert "least squares" in (query.get_attribute("aria-valuetext") or "")


@pytest.mark.parametrize("by_key", [False, True])
def test_a_cell_is_explained_and_cut(by_key: bool, explorer: Page) -> None:
    weights = library("closed_form", 1.0)
    prompts = Prompts(contexts()["standard"].x, contexts()["standard"].y, np.array([1.0]))
    cell = explorer.locator("[id='H_2.51.2']")
    (cell.focus if by_key else cell.hover)()
    numbers(explorer)
    told = explorer.get_by_role("region", name="The cell")
    assert "H₂[51, 2]" in told.inner_text()
    assert "CΔx/(√2RN)" in told.inner_text()
    assert "(49)" in told.inner_text()
    value = float(told.locator("data").get_attribute("value") or "nan")
    assert value == pytest.approx(weights.trace(prompts).H[1, 0, 50, 1], rel=1e-10)
    if by_key:
        explorer.keyboard.press("Enter")
    else:
        cell.click()
    without = by_hand(weights, prompts, {"H_2": [(50, 1)]})
    assert numbers(explorer)["answer"] == pytest.approx(without, rel=1e-9)
    assert "1 cell is cut" in explorer.get_by_role("status").first.inner_text()
    explorer.get_by_role("button", name="Restore all cells").click()
    close(numbers(explorer), wanted_numbers(weights, prompts))


def test_arrow_keys_go_from_cell_to_cell(explorer: Page) -> None:
    explorer.locator("[id='Q_2.51.3']").focus()
    for key in ("ArrowLeft", "ArrowUp", "ArrowUp", "ArrowUp"):
        explorer.keyboard.press(key)
    assert explorer.evaluate("document.activeElement.id") == "Q_2.50.1"
    assert explorer.locator("[id^='Q_2.'][tabindex='0']").count() == 1


def test_scale_and_eps_are_the_librarys(explorer: Page) -> None:
    explorer.get_by_label("Scale R").fill("-1")
    explorer.get_by_label("Norm’s ε").fill("12")
    prompts = Prompts(contexts()["standard"].x, contexts()["standard"].y, np.array([1.0]))
    trace = library("closed_form", 0.1).trace(prompts, 0.1)
    assert numbers(explorer)["answer"] == pytest.approx(trace.output[0], rel=1e-10)
    explorer.wait_for_function("location.hash.includes('R=0.1&eps=0.1')")


def test_no_spread_is_said_in_words(explorer: Page) -> None:
    explorer.get_by_label("Spread ×").fill("0")
    assert np.isnan(numbers(explorer)["least_squares"])
    assert "All x are equal" in explorer.get_by_role("status").first.inner_text()


def test_on_a_phone_all_fits_and_a_second_tap_cuts(site: Path, browser: Browser) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 844}, has_touch=True)
    page.goto(address(site, "tour-2"))
    page.wait_for_selector(".explorer [data-number=answer][value]")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    first, query = (page.locator(f"[id='Q_2.{n}.1']").bounding_box() for n in (1, 51))
    assert first
    assert query
    assert query["width"] > 2 * first["width"]
    cell = page.locator("[id='Q_2.51.1']")
    cell.tap()
    assert "cut" not in page.get_by_role("status").first.inner_text()  # the first tap shows, the second cuts
    cell.tap()
    numbers(page)
    assert "1 cell is cut" in page.get_by_role("status").first.inner_text()
    page.close()


def test_without_scripts_there_are_a_picture_and_the_story(site: Path, browser: Browser) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address(site))
    assert page.get_by_role("img", name="Fifty points").is_visible()
    assert page.locator(".tour p:visible").count() == 5
    assert not page.locator(".explorer").is_visible()
    context.close()


def test_only_this_page_loads_the_explorers_scripts(site: Path) -> None:
    pages = site.glob("book/*.html")
    loading = [path.name for path in pages if "_static/explorer/" in path.read_text(encoding="utf-8")]
    assert loading == ["explorer.html"]

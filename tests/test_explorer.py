"""The page book/explorer: its model against the library's, and the page in a browser."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page

from icl_lib import Prompts, gradient_descent, least_squares, leverage, sample_prompts, tilted
from icl_lib.explorer import RELATIVE_RATE, STEPS, TILTED_SCALE, contexts, data, scaled, script, trained
from icl_lib.mechanism import keep_cells, with_spread
from icl_lib.weights import Weights

SCRIPTS = Path(__file__).resolve().parents[1] / "book" / "_static" / "explorer"
RESULTS = Path(__file__).resolve().parents[1] / "results" / "penalty"
N, D = 50, 4
pytestmark = pytest.mark.xdist_group("explorer")  # one process: they share what is slow to make
TENSORS = ("Q_1", "H_1", "LN_1", "Q_2", "H_2", "LN_2", "Q_3", "out")

RUN = """({network, R, eps, prompts, cuts}) => {
  const { weightsAt, newTrace, forward } = Explorer.model;
  const weights = weightsAt(Explorer.data.networks[network], R);
  return prompts.map(({ x, y, u }) => {
    const trace = forward(weights, { x, y }, u, eps, cuts ?? [], newTrace(weights));
    const plain = (arrays) => arrays.map((array) => [...array]);
    const [tensors, mu, sigma] = [trace.tensors, trace.mu, trace.sigma].map(plain);
    return { tensors, mu, sigma, output: trace.output };
  });
}"""


@pytest.fixture(scope="module")
def shown() -> dict[str, Any]:
    """What the page's scripts are given."""
    return data(RESULTS)


@pytest.fixture(scope="module")
def fixed() -> dict[str, Weights]:
    """The networks without a choice of R, from the library rather than from the page's script."""
    return {"tilted": tilted(N, TILTED_SCALE), **trained(RESULTS)}


@pytest.fixture(scope="module")
def page(browser: Browser, shown: dict[str, Any]) -> Iterator[Page]:
    """A page with the model and the weights, and nothing else: what is tested needs no DOM."""
    page = browser.new_page()
    page.add_script_tag(content=script(shown))
    for name in ("model.js", "state.js"):
        page.add_script_tag(path=SCRIPTS / name)
    yield page
    page.close()


def library(name: str, R: float, fixed: dict[str, Weights]) -> Weights:
    return fixed[name] if name in fixed else scaled(R)[name]


def as_json(prompts: Prompts) -> list[dict[str, Any]]:
    rows = zip(prompts.x.tolist(), prompts.y.tolist(), prompts.query.tolist(), strict=True)
    return [{"x": x, "y": y, "u": u} for x, y, u in rows]


def expected(weights: Weights, prompts: Prompts, eps: float | None = None) -> dict[str, np.ndarray]:
    trace = weights.trace(prompts, eps)
    tensors = [trace.Q[0], trace.H[0], trace.LN[0], trace.Q[1], trace.H[1], trace.LN[1], trace.Q[2]]
    tensors.append(trace.Q[2] * weights.W_out)
    stacked = np.stack(tensors, axis=1).reshape(prompts.count, len(TENSORS), -1)
    moments = {"mu": trace.mu.transpose(1, 0, 2), "sigma": trace.sigma.transpose(1, 0, 2)}
    return {"tensors": stacked, **moments, "output": trace.output}


def worst(found: list[dict[str, Any]], wanted: dict[str, np.ndarray]) -> float:
    """The largest |page − library| over 1 + |value|, of every number of every pass."""
    found_arrays = {key: np.array([one[key] for one in found]) for key in wanted}
    return max(float((np.abs(found_arrays[k] - wanted[k]) / (1 + np.abs(wanted[k]))).max()) for k in wanted)


NAMES = ["closed_form", "repaired", "swapped", "tilted", *(f"trained_{seed}" for seed in range(1, 11))]


@pytest.mark.parametrize("name", NAMES)
def test_every_intermediate_is_the_librarys(name: str, page: Page, fixed: dict[str, Weights]) -> None:
    drawn = sample_prompts(20, N, seed=11)
    for R in (0.1, 1.0, 10.0) if name in scaled(1.0) else (1.0,):
        weights = library(name, R, fixed)
        for eps in (weights.eps, 1e-3):  # its own, and one that matters
            found = page.evaluate(RUN, {"network": name, "R": R, "eps": eps, "prompts": as_json(drawn)})
            assert worst(found, expected(weights, drawn, eps)) <= 1e-12


@pytest.mark.parametrize("name", NAMES)
def test_the_contexts_of_the_page_too(name: str, page: Page, fixed: dict[str, Weights]) -> None:
    weights = library(name, 1.0, fixed)
    for context in contexts().values():
        prompts = Prompts(context.x, context.y, context.query + 1.0)
        found = page.evaluate(
            RUN, {"network": name, "R": 1.0, "eps": weights.eps, "prompts": as_json(prompts)}
        )
        assert worst(found, expected(weights, prompts)) <= 1e-12


def test_a_weight_that_is_off_by_a_little_is_seen(page: Page, fixed: dict[str, Weights]) -> None:
    drawn = sample_prompts(5, N, seed=12)
    weights = library("closed_form", 1.0, fixed)
    page.evaluate("Explorer.data.networks.off = structuredClone(Explorer.data.networks.closed_form)")
    page.evaluate("Explorer.data.networks.off.W2[1][1][1][0] *= 1 + 1e-9")
    found = page.evaluate(RUN, {"network": "off", "R": 1.0, "eps": 0.0, "prompts": as_json(drawn)})
    page.evaluate("delete Explorer.data.networks.off")
    assert worst(found, expected(weights, drawn)) > 1e-11


def by_hand(weights: Weights, prompts: Prompts, cuts: dict[str, list[tuple[int, int]]]) -> float:
    """The answer with cells set to 0 (row and embedding from 0): head by head, with the S × S products."""

    def cut(name: str, tensor: np.ndarray) -> np.ndarray:
        tensor = tensor.copy()
        for n, d in cuts.get(name, []):
            tensor[n, d] = 0.0
        return tensor

    Q = cut("Q_1", prompts.tokens()[0] @ weights.W_in.T)
    for layer in range(2):
        heads = [
            (Q @ weights.W3[layer, k] @ weights.W1[layer, k] @ Q.T) @ (Q @ weights.W2[layer, k])
            for k in range(2)
        ]
        H = cut(f"H_{layer + 1}", sum(heads[1:], heads[0]))
        spread = np.sqrt(H.var(axis=1, keepdims=True) + weights.eps)
        Q = cut(f"Q_{layer + 2}", Q + cut(f"LN_{layer + 1}", (H - H.mean(axis=1, keepdims=True)) / spread))
    return float(cut("out", weights.W_out * Q).sum() + weights.b_out)


@pytest.mark.parametrize("name", ["closed_form", "trained_2"])
@pytest.mark.parametrize("tensor", TENSORS)
def test_a_cut_cell_is_zero_from_there_on(
    tensor: str, name: str, page: Page, fixed: dict[str, Weights]
) -> None:
    prompts = sample_prompts(1, N, seed=13)
    weights = library(name, 1.0, fixed)
    cells = [(50, 2), (3, 1)]
    masks: list[list[int] | None] = [None] * len(TENSORS)
    masks[TENSORS.index(tensor)] = [int((i // D, i % D) in cells) for i in range((N + 1) * D)]
    arguments = {"network": name, "R": 1.0, "eps": weights.eps, "prompts": as_json(prompts), "cuts": masks}
    answer = page.evaluate(RUN, arguments)[0]["output"]
    assert answer == pytest.approx(by_hand(weights, prompts, {tensor: cells}), rel=1e-10, abs=1e-10)
    assert answer != pytest.approx(weights.predict(prompts)[0], rel=1e-6)


def test_the_solvers_are_the_librarys(page: Page) -> None:
    prompts = sample_prompts(20, N, seed=14)
    found = page.evaluate(
        """([prompts, steps, rate]) => prompts.map(({ x, y, u }) => {
          const { leastSquares, descent, leverage, moments, withSpread } = Explorer.model;
          const { x_bar, y_bar, V, C } = moments({ x, y });
          const spread = withSpread({ x, y }, 0.3);
          const answers = [leastSquares({ x, y }, u), descent({ x, y }, u, steps, rate)];
          return [...answers, leverage({ x, y }, u), x_bar, y_bar, V, C, ...spread.x, ...spread.y];
        })""",
        [as_json(prompts), STEPS, RELATIVE_RATE],
    )
    m, spread = prompts.moments(), with_spread(prompts, 0.3**2)
    descent = gradient_descent(prompts, steps=STEPS, rate=RELATIVE_RATE / N)
    wanted = [least_squares(prompts), descent, leverage(prompts), m.x_bar, m.y_bar, m.V, m.C]
    np.testing.assert_allclose(
        np.array(found), np.column_stack([*wanted, spread.x, spread.y]), rtol=1e-12, atol=1e-12
    )


def test_equal_x_leave_least_squares_undefined(page: Page) -> None:
    found = page.evaluate(
        """() => {
          const context = { x: new Array(50).fill(0.1), y: [...Array(50).keys()] };
          const { leastSquares, descent, leverage } = Explorer.model;
          const none = [leastSquares(context, 1), leverage(context, 0.1)].map(Number.isNaN);
          return [...none, descent(context, 1, 3, 0.9)];
        }"""
    )
    assert found == [True, True, pytest.approx(24.5)]


# What an address means, written as an address again, and what of it was refused.
PARSE = """fragment => {
  const { state, refused } = Explorer.state.parse(fragment);
  return [Explorer.state.format(state), refused];
}"""


@pytest.mark.parametrize(
    "fragment",
    [
        "w=closed_form",
        "w=swapped&R=10&eps=0.001&c=far&spread=0.5&u=-2.5&T=7&rate=1.2&pull=1&cell=H_2.51.1",
        "w=tilted&cut=Q_1.3.2,H_1.51.4&move=1:0.5:-1.25,50:2:3",
        "w=trained_3&cut=out!51.3",
        "w=trained_3&cut=LN_2!",
    ],
)
def test_an_address_gives_its_state_and_the_state_its_address(fragment: str, page: Page) -> None:
    found = page.evaluate(PARSE, fragment)
    assert found == [fragment, []]


@pytest.mark.parametrize(
    "part",
    [
        *(
            "w=nothing",
            "R=0",
            "R=",
            "eps=-1",
            "c=toString",
            "T=2.5",
            "u=NaN",
            "cell=Q_9.1.1",
            "cell=Q_1.52.1",
        ),
        *("cut=H_1.0.1", "cut=nothing!1.1", "cut=toString", "move=51:0:0", "move=1:x:0", "what=ever"),
    ],
)
def test_a_bad_part_of_an_address_is_named_and_the_rest_is_kept(part: str, page: Page) -> None:
    found = page.evaluate(PARSE, f"{part}&spread=2")
    assert found == ["w=closed_form&spread=2", [part]]


def test_the_weights_are_small_and_the_librarys_bits(
    shown: dict[str, Any], fixed: dict[str, Weights]
) -> None:
    text = script(shown)
    assert len(text.encode()) < 200_000
    read = json.loads(text[text.index('= {"') + 2 : text.rindex(";")])
    for name in NAMES:
        for key, array in library(name, 1.0, fixed).arrays().items():
            assert np.array_equal(np.array(read["networks"][name][key]), array), (name, key)


def test_the_drawing_library_is_whole_and_has_its_licence() -> None:
    first = (SCRIPTS / "d3.min.js").read_text(encoding="utf-8")[:80]
    assert first.startswith("// https://d3js.org v7.9.0 Copyright 2010-2023 Mike Bostock")
    assert "Permission to use, copy, modify, and/or distribute" in (SCRIPTS / "d3-LICENSE").read_text()


# The page


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
def test_a_step_of_the_tour_shows_the_librarys_numbers(
    step: int, explorer: Page, shown: dict[str, Any], fixed: dict[str, Weights]
) -> None:
    name, context, u = TOUR[step]
    explorer.get_by_role("list", name="Guided tour").get_by_role("link").nth(step - 1).click()
    assert explorer.url.endswith(f"#tour-{step}")
    assert explorer.locator(".tour p:visible").count() == 1
    weights = library(shown["trained"] if name == "trained" else name, 1.0, fixed)
    prompts = Prompts(contexts()[context].x, contexts()[context].y, np.array([u]))
    wanted = wanted_numbers(weights, prompts)
    if step == 5:  # every output weight but that of cell (3, 51) is cut
        others = [(n, d) for n in range(N + 1) for d in range(D) if (n, d) != (N, 2)]
        wanted["answer"] = by_hand(weights, prompts, {"out": others})
        wanted["difference"] = wanted["answer"] - wanted["least_squares"]
    close(numbers(explorer), wanted)


def test_the_last_step_tells_what_is_so(shown: dict[str, Any], fixed: dict[str, Weights]) -> None:
    """Its text: with cell (3, 51) alone the slope is right and the height is not; all cells mend it."""
    weights, context = fixed[shown["trained"]], contexts()["standard"]
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


def moved(explorer: Page) -> Prompts:
    """The prompt that the page's address describes, of the context as in training."""
    explorer.wait_for_function("location.hash.includes('move=')")
    x, y = contexts()["standard"].x.copy(), contexts()["standard"].y.copy()
    for part in explorer.evaluate("new URLSearchParams(location.hash.slice(1)).get('move')").split(","):
        n, px, py = part.split(":")
        x[0, int(n) - 1], y[0, int(n) - 1] = float(px), float(py)
    return Prompts(x, y, np.array([1.0]))


def test_a_point_dragged_by_mouse_turns_the_line(explorer: Page, fixed: dict[str, Weights]) -> None:
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
    close(numbers(explorer), wanted_numbers(library("closed_form", 1.0, fixed), prompts))
    assert line.get_attribute("d") != before
    explorer.reload()
    close(numbers(explorer), wanted_numbers(library("closed_form", 1.0, fixed), prompts))


def test_point_and_query_obey_the_keyboard(explorer: Page, fixed: dict[str, Weights]) -> None:
    explorer.locator(".point[tabindex='0']").focus()
    for key in ("ArrowUp", "Shift+ArrowRight", "PageDown", "ArrowLeft"):
        explorer.keyboard.press(key)
    prompts = moved(explorer)
    assert (prompts.x != contexts()["standard"].x).sum() == 2
    close(numbers(explorer), wanted_numbers(library("closed_form", 1.0, fixed), prompts))
    query = explorer.get_by_role("slider", name="Query u")
    query.focus()
    explorer.keyboard.press("ArrowRight")
    numbers(explorer)
    assert query.get_attribute("aria-valuenow") == "1.1"
    assert "least squares" in (query.get_attribute("aria-valuetext") or "")


@pytest.mark.parametrize("by_key", [False, True])
def test_a_cell_is_explained_and_cut(by_key: bool, explorer: Page, fixed: dict[str, Weights]) -> None:
    weights = library("closed_form", 1.0, fixed)
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


def test_scale_and_eps_are_the_librarys(explorer: Page, fixed: dict[str, Weights]) -> None:
    explorer.get_by_label("Scale R").fill("-1")
    explorer.get_by_label("Norm’s ε").fill("12")
    prompts = Prompts(contexts()["standard"].x, contexts()["standard"].y, np.array([1.0]))
    trace = library("closed_form", 0.1, fixed).trace(prompts, 0.1)
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

"""The model of the page book/explorer is the library's, and an address keeps a state."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page

from icl_lib import Prompts, gradient_descent, least_squares, leverage, sample_prompts
from icl_lib.explorer import RELATIVE_RATE, STEPS, contexts, scaled, script
from icl_lib.mechanism import with_spread
from icl_lib.weights import Weights
from tests.explorer import D, N, by_hand, library, shown

SCRIPTS = Path(__file__).resolve().parents[1] / "book" / "_static" / "explorer"
TENSORS = ("Q_1", "H_1", "LN_1", "Q_2", "H_2", "LN_2", "Q_3", "out")
pytestmark = pytest.mark.xdist_group("explorer")  # one process: they share what is slow to make

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
def page(browser: Browser) -> Iterator[Page]:
    """A page with the model and the weights, and nothing else: what is tested needs no DOM."""
    page = browser.new_page()
    page.add_script_tag(content=script(shown()))
    for name in ("model.js", "state.js"):
        page.add_script_tag(path=SCRIPTS / name)
    yield page
    page.close()


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


TRAINED = [*(f"trained_{seed}" for seed in range(1, 11)), "layer_1", "both_layers", "layer_2"]
NAMES = ["closed_form", "repaired", "swapped", "tilted", *TRAINED]


@pytest.mark.parametrize("name", NAMES)
def test_every_intermediate_is_the_librarys(name: str, page: Page) -> None:
    drawn = sample_prompts(20, N, seed=11)
    for R in (0.1, 1.0, 10.0) if name in scaled(1.0) else (1.0,):
        weights = library(name, R)
        for eps in (weights.eps, 1e-3):  # its own, and one that matters
            found = page.evaluate(RUN, {"network": name, "R": R, "eps": eps, "prompts": as_json(drawn)})
            assert worst(found, expected(weights, drawn, eps)) <= 1e-12


@pytest.mark.parametrize("name", NAMES)
def test_the_contexts_of_the_page_too(name: str, page: Page) -> None:
    weights = library(name, 1.0)
    for context in contexts().values():
        prompts = Prompts(context.x, context.y, context.query + 1.0)
        found = page.evaluate(
            RUN, {"network": name, "R": 1.0, "eps": weights.eps, "prompts": as_json(prompts)}
        )
        assert worst(found, expected(weights, prompts)) <= 1e-12


def test_a_weight_that_is_off_by_a_little_is_seen(page: Page) -> None:
    drawn = sample_prompts(5, N, seed=12)
    weights = library("closed_form", 1.0)
    page.evaluate("Explorer.data.networks.off = structuredClone(Explorer.data.networks.closed_form)")
    page.evaluate("Explorer.data.networks.off.W2[1][1][1][0] *= 1 + 1e-9")
    found = page.evaluate(RUN, {"network": "off", "R": 1.0, "eps": 0.0, "prompts": as_json(drawn)})
    page.evaluate("delete Explorer.data.networks.off")
    assert worst(found, expected(weights, drawn)) > 1e-11


@pytest.mark.parametrize("name", ["closed_form", "trained_2"])
@pytest.mark.parametrize("tensor", TENSORS)
def test_a_cut_cell_is_zero_from_there_on(tensor: str, name: str, page: Page) -> None:
    prompts = sample_prompts(1, N, seed=13)
    weights = library(name, 1.0)
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


@pytest.mark.parametrize("name", NAMES)
def test_the_weights_are_the_librarys_bits(name: str, page: Page) -> None:
    read = page.evaluate(
        """name => {
          const weights = Explorer.model.weightsAt(Explorer.data.networks[name], 1);
          return Object.entries(weights).map(([key, values]) => [key, values.length ? [...values] : values]);
        }""",
        name,
    )
    for key, array in library(name, 1.0).arrays().items():
        found = np.array(dict(read)[key], dtype=np.float64)
        assert found.tobytes() == array.astype(np.float64).tobytes(), key


def test_what_the_page_loads_is_small() -> None:
    assert len(script(shown()).encode()) < 100_000
    assert (SCRIPTS / "d3.min.js").stat().st_size < 50_000


def test_the_drawing_library_has_its_licence() -> None:
    first = (SCRIPTS / "d3.min.js").read_text(encoding="utf-8")[:80]
    assert first.startswith("// https://d3js.org v7.9.0 Copyright 2010-2023 Mike Bostock")
    assert "Permission to use, copy, modify, and/or distribute" in (SCRIPTS / "d3-LICENSE").read_text()

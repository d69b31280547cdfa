"""Designs that keep the query out of the sums: against their laws, against least squares, and broken."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from icl_lib import least_squares, sample_prompts
from icl_lib.layouts import mask, mask_law, query_channel, query_channel_law, relative, relative_law
from icl_lib.mechanism import clamped, v_elasticity

ULP = 2.0**-52
DESIGNS = {
    "query_channel": (query_channel, query_channel_law),
    "mask": (mask, mask_law),
    "relative": (relative, relative_law),
}
names = st.sampled_from(list(DESIGNS))
seeds = st.integers(0, 2**32)
sizes = st.integers(3, 60)
epsilons = st.sampled_from([0.0, 1e-8, 1e-5, 1e-2])


def spread_out(seed, n):
    """Prompts whose V is not so small that dividing by it magnifies rounding without bound."""
    p = sample_prompts(24, n, seed=seed)
    return p[p.moments().V > 0.05]


def bound(p, out, name, scale):
    """What rounding may do: x enters divided by ρ, so V is 1/ρ² beside sums of order 1 in the same cells."""
    rho = scale**1.5 if name == "relative" else scale
    size = (1 + abs(p.tokens(name)).max(axis=(1, 2))) ** 3 / p.moments().V
    return 256 * ULP * max(1, rho) ** 2 * size * (1 + abs(out))


@given(names, seeds, sizes, st.floats(0.5, 1e3), epsilons)
def test_each_design_answers_its_law(name, seed, n, scale, eps):
    weights, law = DESIGNS[name]
    p = spread_out(seed, n)
    exact = law(p, scale, eps)
    answer = weights(n, scale).predict(p.tokens(name), eps)
    assert (abs(answer - exact) <= bound(p, exact, name, scale)).all()


@given(names, seeds, sizes)
def test_the_law_tends_to_least_squares_at_any_n(name, seed, n):
    """The law is computed without cancellation, so R = 1e6 shows the limit to nearly all digits."""
    p = spread_out(seed, n)
    size = (1 + abs(p.tokens(name)).max(axis=(1, 2))) ** 6 / p.moments().V ** 3
    assert (abs(DESIGNS[name][1](p, 1e6) - least_squares(p)) <= 1e-11 * size).all()


@pytest.mark.parametrize("name", DESIGNS)
def test_the_error_falls_as_the_square_of_r(name):
    p = sample_prompts(2000, 10, seed=4)
    error = [np.median(abs(DESIGNS[name][1](p, scale) - least_squares(p))) for scale in (30.0, 300.0)]
    assert error[0] / error[1] == pytest.approx(100, rel=0.02)


@pytest.mark.parametrize("name", DESIGNS)
def test_a_wrong_law_is_noticed(name):
    """Hidden fault: least squares itself, R off by a tenth, and a forgotten eps all fail the comparison."""
    weights, law = DESIGNS[name]
    p = spread_out(5, 20)
    answer, exact = weights(20, 3.0).predict(p.tokens(name), 1.0), law(p, 3.0, 1.0)
    allowed = bound(p, exact, name, 3.0)
    assert (abs(answer - exact) <= allowed).all()
    for wrong in (least_squares(p), law(p, 3.3, 1.0), law(p, 3.0, 0.0)):
        assert (abs(answer - wrong) > 100 * allowed).mean() > 0.9


@pytest.mark.parametrize("name", DESIGNS)
def test_the_query_is_no_data_point(name):
    """Far queries get their answer, but not from a layer 2 that leaves the query's row in its sum."""
    p = sample_prompts(300, 20, seed=6)
    far = type(p)(p.x, p.y, np.full(300, 25.0))
    w = DESIGNS[name][0](20, 300.0)
    error = np.median(abs(w.predict(far.tokens(name)) / least_squares(far) - 1))
    assert error < 0.01
    if name == "query_channel":
        return  # it has no query row to sum over
    W3 = w.W3.copy()
    v = w.W_in[:, 0]  # the direction that carries the constant
    W3[1, 0] = np.outer(v, v) @ W3[1, 0]  # v wᵀ − w vᵀ without its second term
    broken = replace(w, W3=W3)
    assert np.median(abs(broken.predict(far.tokens(name)) / least_squares(far) - 1)) > 10 * error


@pytest.mark.parametrize("name", DESIGNS)
def test_layer_1_centres_and_layer_2_divides(name):
    p = sample_prompts(200, 50, seed=7)
    w = DESIGNS[name][0](50, 30.0)
    elasticity = v_elasticity(w, p, layout=name)
    assert abs(elasticity[0]) < 0.01
    assert elasticity[1] == pytest.approx(1, abs=0.1)
    truth = least_squares(p)
    error = [((clamped(w, p, layer, layout=name) - truth) ** 2).mean() for layer in (0, 1)]
    assert error[0] < 1e-3 * error[1]


@pytest.mark.parametrize("name", ["query_channel", "mask"])
def test_in_single_precision_with_the_usual_eps(name):
    p = sample_prompts(500, 50, seed=8)
    answer = DESIGNS[name][0](50, 30.0).predict(p.tokens(name), 1e-5, torch.float32)
    assert ((answer - least_squares(p)) ** 2).mean() < 1e-4


@pytest.mark.parametrize("name", DESIGNS)
@pytest.mark.parametrize(("n", "scale", "message"), [(2, 1.0, "n_context is 2"), (5, 0.0, "scale is 0")])
def test_settings_out_of_range_are_named(name, n, scale, message):
    with pytest.raises(ValueError, match=message):
        DESIGNS[name][0](n, scale)

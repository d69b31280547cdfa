"""The measurements of mechanism, on networks whose mechanism is known because we wrote it."""

import numpy as np
import pytest
from scipy import stats

from icl_lib import closed_form, gram_schmidt, least_squares, sample_prompts
from icl_lib.mechanism import (
    clamped,
    division_correlation,
    dominant_cell,
    keep_cells,
    rank_by_division,
    regress_cell,
    traced,
    v_elasticity,
    with_spread,
)

PROMPTS = sample_prompts(1500, 50, seed=21)


def test_stretching_keeps_line_residuals_mean_and_query():
    factor = np.linspace(0.3, 3, PROMPTS.count)
    moved = with_spread(PROMPTS, factor)
    m, k = PROMPTS.moments(), moved.moments()
    assert np.allclose(k.V, factor * m.V)
    assert np.allclose(k.C / k.V, m.C / m.V)
    assert np.allclose([k.x_bar, k.y_bar], [m.x_bar, m.y_bar])
    assert (moved.query == PROMPTS.query).all()
    assert np.allclose(least_squares(moved), least_squares(PROMPTS))
    for a, b in ((PROMPTS, m), (moved, k)):
        fitted = b.y_bar[:, None] + (b.C / b.V)[:, None] * (a.x - b.x_bar[:, None])
        residual = a.y - fitted
        if a is PROMPTS:
            first = residual
    assert np.allclose(residual, first)


@pytest.mark.parametrize(("angle", "divides"), [(0.0, 1), (np.pi / 2, 0)])
def test_each_end_of_the_family_divides_where_it_should(angle, divides):
    w = gram_schmidt(50, 10.0, angle)
    elasticity = v_elasticity(w, PROMPTS)
    assert elasticity[divides] > 0.9
    assert abs(elasticity[1 - divides]) < 0.05
    correlation = division_correlation(w.trace(PROMPTS), PROMPTS)
    assert correlation[divides] > 0.95
    assert abs(correlation[1 - divides]) < 0.25
    truth = least_squares(PROMPTS)
    error = [((clamped(w, PROMPTS, layer) - truth) ** 2).mean() for layer in (0, 1)]
    plain = ((w.predict(PROMPTS) - truth) ** 2).mean()
    assert error[divides] > 3 * plain
    assert error[1 - divides] < 1.2 * plain


def test_a_trace_in_parts_is_the_trace():
    w = gram_schmidt(50, 10.0, 0.5)
    assert np.allclose(traced(w, PROMPTS, lambda t: t.Q[-1]), w.trace(PROMPTS).Q[-1], rtol=1e-12)


def test_ranking_finds_the_network_that_divides_in_its_last_layer():
    family = {name: gram_schmidt(50, 10.0, angle) for name, angle in (("first", np.pi / 2), ("last", 0.0))}
    rank = rank_by_division(family, count=1500)
    assert list(rank) == ["last", "first"]
    other = sample_prompts(1500, 50, seed=22)  # the same number on other prompts, within its sampling error
    for name, w in family.items():
        assert abs(rank[name] - division_correlation(w.trace(other), other)[1]) < 0.1


def test_clamping_at_v_equal_one_changes_nothing():
    at_one = with_spread(PROMPTS, 1 / PROMPTS.moments().V)
    w = gram_schmidt(50, 10.0, 0.5)
    for layer in (0, 1):
        assert np.allclose(clamped(w, at_one, layer), w.predict(at_one), atol=1e-9)


def test_cell_regression_is_scipys_and_finds_what_was_put_in():
    m = PROMPTS.moments()
    d = PROMPTS.query - m.x_bar
    noise = np.random.Generator(np.random.PCG64(3)).standard_normal(PROMPTS.count)
    z = 0.5 - 2 * m.y_bar + 3 * m.C / m.V * d + 0.1 * noise
    found = regress_cell(z, PROMPTS)
    truth = np.array([0.5, 0, -2, 3])
    assert (abs(found.coefficients - truth) < 5 * found.standard_errors).all()
    assert (found.standard_errors < 0.02).all()
    one = stats.linregress(m.C / m.V * d, z)
    assert found.lse == pytest.approx(np.corrcoef(z, least_squares(PROMPTS))[0, 1])
    assert found.fit > abs(one.rvalue)
    assert found.standardised[2] == pytest.approx(3 * (m.C / m.V * d).std() / z.std(), rel=0.01)


def test_the_constructions_read_out_is_its_one_cell():
    w = closed_form(50, 10.0)
    assert dominant_cell(w) == (50, 2)
    only = np.zeros((51, 4), bool)
    only[50, 2] = True
    assert (keep_cells(w, only).predict(PROMPTS) == w.predict(PROMPTS)).all()
    assert (keep_cells(w, ~only).predict(PROMPTS) == 0).all()
    fit = regress_cell(w.trace(PROMPTS).Q[-1][:, -1, 2], PROMPTS)
    assert fit.fit > 0.999
    assert fit.lse < -0.998

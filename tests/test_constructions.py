"""Weights written by hand against their exact laws, layer by layer, and against what they should compute."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icl_lib import (
    Prompts,
    appendix_a,
    closed_form,
    closed_form_law,
    gradient_descent,
    gram_schmidt,
    gram_schmidt_law,
    least_squares,
    leverage,
    lsa,
    one_step_descent,
    repaired,
    sample_prompts,
    tilted,
    two_step_descent,
)

ULP = 2.0**-52
ROOT2 = 2**0.5
seeds = st.integers(0, 2**32)
sizes = st.integers(3, 80)
scales = st.floats(0.01, 1e4)
epsilons = st.sampled_from([0.0, 1e-8, 1e-5, 1e-2])
angles = st.floats(-4, 4)


def spread_out(seed, n):
    """Prompts whose layer-2 variance is not so small that dividing by it magnifies rounding without bound."""
    p = sample_prompts(24, n, seed=seed)
    return p[p.moments().V > 0.05]


def bound(out, n, scale):
    """What rounding may do: relative to the answer, and RN times the machine's epsilon from the read-out.

    The large constant is the conditioning of a fit to three points; it was set before any comparison.
    """
    return 1e-10 * (1 + abs(out)) + 4e3 * ULP * scale * n


@given(seeds, sizes, scales, epsilons)
def test_the_closed_form_answers_its_law(seed, n, scale, eps):
    p = spread_out(seed, n)
    law = closed_form_law(p, scale, eps)
    assert (abs(closed_form(n, scale).predict(p, eps) - law) <= bound(law, n, scale)).all()


@given(seeds, sizes, scales, angles, epsilons)
def test_the_gram_schmidt_family_answers_its_law(seed, n, scale, angle, eps):
    p = spread_out(seed, n)
    law = gram_schmidt_law(p, scale, angle, eps)
    answer = gram_schmidt(n, scale, angle).predict(p, eps)
    w = np.cos(angle) + np.sin(angle) * p.tokens()[:, :, 1]
    V_w = (w * w).mean(axis=1)  # layer 1 divides by this one
    assert (abs(answer - law) <= bound(law, n, scale) * (1 + 1 / V_w) ** 2).all()


def test_a_wrong_law_is_noticed():
    """Hidden fault: forgetting the query row, or eps, must fail the comparison by far."""
    p = sample_prompts(200, 50, seed=1)
    answer, law = closed_form(50, 10.0).predict(p, 1e-2), closed_form_law(p, 10.0, 1e-2)
    for wrong in (least_squares(p), closed_form_law(p, 10.0, 0.0), closed_form_law(p, 12.0, 1e-2)):
        assert (abs(answer - wrong) > 1e3 * bound(law, 50, 10.0)).mean() > 0.9


@given(seeds, sizes, scales, epsilons)
def test_each_layer_is_its_closed_form(seed, n, scale, eps):
    p = spread_out(seed, n)
    trace = closed_form(n, scale).trace(p, eps)
    x, y, ones = p.tokens()[:, :, 1], p.tokens()[:, :, 2], np.ones((p.count, n + 1))
    m, rn = p.moments(), scale * n
    x_tilde, y_bar = (m.x_bar + p.query / n)[:, None], m.y_bar[:, None]
    a, b = x_tilde / (ROOT2 * scale), y_bar / (ROOT2 * scale)
    rho = np.sqrt(1 - (a + b) / n + (a * a + a * b + b * b) / n**2 + 2 * eps / n**2)

    def close(actual, expected):
        size = 1 + abs(np.stack(expected, -1))
        assert (abs(actual - np.stack(expected, -1)) <= 1e-9 * size * (1 + abs(size).max())).all()

    close(trace.Q[0], [ones, x / rn, y / rn, ROOT2 * n / (n + 1) - (x + y) / rn])
    close(trace.H[0], [n * ones, -a * ones, -b * ones, (a + b - n) * ones])
    close(trace.sigma[0], list((n / ROOT2 * np.sqrt(rho**2 - 2 * eps / n**2) * ones).T))
    first = ROOT2 / rho
    close(
        trace.LN[0],
        [first * ones, -first * a / n * ones, -first * b / n * ones, first * ((a + b) / n - 1) * ones],
    )
    X, Y = x - x_tilde / rho, y - y_bar / rho
    assert np.allclose(trace.Q[1][..., 1] * rn, X, rtol=1e-9, atol=1e-9 * (1 + rn * ULP * 1e6))
    assert np.allclose(trace.Q[1][..., 2] * rn, Y, rtol=1e-9, atol=1e-9 * (1 + rn * ULP * 1e6))
    kappa = (1 + first) / (1 + ROOT2)
    S_xx, S_xy = (X * X).sum(1, keepdims=True) / n, (X * Y).sum(1, keepdims=True) / n
    s = S_xy * X / (ROOT2 * rn)
    close(trace.H[1], [kappa * S_xx * ones, s, -s, -kappa * S_xx * ones])


@given(seeds, st.integers(3, 60), angles)
def test_the_family_fits_n_plus_1_points(seed, n, angle):
    """At R → ∞ the answer is least squares with the query counted as (u, 0): (1 − h)·ŷ."""
    p = spread_out(seed, n)
    expected = (1 - leverage(p)) * least_squares(p)
    limit = gram_schmidt_law(p, 1e9, angle)
    w = np.cos(angle) + np.sin(angle) * p.tokens()[:, :, 1]
    size = (
        (1 + abs(p.tokens()).max(axis=(1, 2))) ** 4 / (w * w).mean(1) ** 2 / np.minimum(p.moments().V, 1) ** 2
    )
    assert (abs(limit - expected) <= 1e-6 * size).all()


def test_the_papers_weights_differ_from_it_by_theta0_over_n():
    p = sample_prompts(500, 2000, seed=3)
    m = p.moments()
    theta0 = m.y_bar - m.C / m.V * m.x_bar
    gap = closed_form_law(p, 1e9) - (1 - leverage(p)) * least_squares(p)
    for sign in (1, -1):
        off = np.sqrt((((gap * 2000) - sign * theta0) ** 2).mean())
        if off < 0.02:
            break
    else:
        pytest.fail("the difference is not ±θ0/N to O(1/N²)")
    assert np.sqrt((theta0**2).mean()) > 0.5  # so 0.02 is a match, not smallness


@pytest.mark.parametrize(
    ("weights", "limit"),
    [
        (lambda n: closed_form(n, 10.0), 25.0),
        (lambda n: gram_schmidt(n, 10.0, 0.0), 28.0),
        (lambda n: gram_schmidt(n, 10.0, 0.7), 28.0),
        (lambda n: repaired(n, 10.0, context_cells=True), 18.0),
        (lambda n: repaired(n, 10.0, factor=1 + 2.5 / n), 12.5),
        (lambda n: repaired(n, 10.0, context_cells=True, factor=1 + 2 / n), 10.0),
    ],
)
def test_scaled_error_tends_to_its_limit(weights, limit):
    n = 400
    p = sample_prompts(20_000, n, seed=11)
    scaled = n**2 * (weights(n).predict(p) - least_squares(p)) ** 2
    standard_error = scaled.std() / len(scaled) ** 0.5
    assert abs(scaled.mean() - limit) < 4 * standard_error + 0.05 * limit  # 1/N corrections are below 5 %


def test_tilted_error_falls_as_n_cubed():
    scaled = {}
    for n, count in ((200, 20_000), (800, 5_000)):
        p = sample_prompts(count, n, seed=12)
        scaled[n] = n**3 * ((tilted(n, 20.0).predict(p) - least_squares(p)) ** 2).mean()
    assert all(50 < value < 200 for value in scaled.values())  # constant, where N² would give a factor 4
    assert 0.4 < scaled[800] / scaled[200] < 1.6


def test_two_step_descent_tends_to_two_steps():
    rms = {}
    for n in (50, 200, 800):
        p = sample_prompts(4000, n, seed=13)
        exact = gradient_descent(p, steps=2, rate=0.5 / n, start=0.3)
        rms[n] = n * np.sqrt(((two_step_descent(n, 0.5 / n, 0.3).predict(p) - exact) ** 2).mean())
    assert all(1.5 < value < 2.7 for value in rms.values())  # N·rms constant: the error is O(1/N)


@given(seeds, sizes, st.floats(1e-4, 1))
def test_one_step_descent_is_exact(seed, n, rate):
    p = sample_prompts(10, n, seed=seed)
    expected = rate * (p.y.sum(1) + p.query * (p.x * p.y).sum(1))
    assert np.allclose(one_step_descent(n, rate).predict(p), expected, rtol=1e-11, atol=1e-11 * n)


def test_appendix_a_gives_one_output_from_two_inputs():
    a, b = np.random.Generator(np.random.PCG64(1)).standard_normal((2, 7))
    plain, undoing = appendix_a()
    first = lsa(np.stack([np.ones(7), a, b], 1), *plain)
    second = lsa(np.stack([np.ones(7), a, a + b], 1), *undoing)
    assert np.allclose(first, [[0, a.sum(), b.sum()]] * 7)
    assert np.allclose(first, second, atol=1e-12)
    assert not np.allclose(first, lsa(np.stack([np.ones(7), a, a + b], 1), *plain))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: closed_form(2, 1.0), "n_context is 2"),
        (lambda: closed_form(5, 0.0), "scale is 0"),
        (lambda: closed_form(5, float("nan")), "scale is nan"),
        (lambda: repaired(5, 1.0, factor=-1.0), "factor is -1"),
        (lambda: gram_schmidt(5, 1.0, float("inf")), "angle is inf"),
        (lambda: tilted(1, 1.0), "n_context is 1"),
        (lambda: two_step_descent(5, -0.1, 0.0), "rate is -0.1"),
        (lambda: two_step_descent(5, 0.1, float("nan")), "start is nan"),
        (lambda: one_step_descent(5, 0.0), "rate is 0"),
    ],
)
def test_settings_out_of_range_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_all_x_equal_still_gets_an_answer_with_eps():
    """V = 0 leaves nothing to divide by: eps = 0 is refused, eps > 0 answers with a finite number."""
    p = Prompts(np.full((1, 50), 1.0), np.ones((1, 50)), np.array([1.0]))
    w = closed_form(50, 1e3)
    assert np.isfinite(w.predict(p, eps=1e-5)).all()

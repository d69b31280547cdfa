"""Gram–Schmidt in d dimensions against NumPy's least squares, and column by column against its QR."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icl_lib import least_squares, sample_prompts
from icl_lib.layouts import query_channel
from icl_lib.multivariate import MultivariatePrompts, gram_schmidt_regression, sample_multivariate

seeds = st.integers(0, 2**32)
dimensions = st.sampled_from([1, 2, 3, 5])


def condition(p):
    """Condition number of each prompt's centred columns, (M,)."""
    return np.linalg.cond(p.x - p.x.mean(axis=1, keepdims=True))


@given(seeds, dimensions, st.integers(2, 40), st.sampled_from([30.0, 100.0, 300.0]))
def test_it_is_least_squares_up_to_r_squared(seed, dimension, spare, scale):
    """Bound set beforehand: R⁻² times powers of the condition number and of the largest entry."""
    p = sample_multivariate(12, dimension + spare, dimension, seed=seed)
    p = MultivariatePrompts(*(a[condition(p) < 5] for a in (p.x, p.y, p.query)))
    spread = (p.x - p.x.mean(axis=1, keepdims=True)).var(axis=1).min(axis=1)
    size = (dimension + abs(p.tokens()).max(axis=(1, 2))) ** 6 / np.minimum(spread, 1) ** 3
    answer = gram_schmidt_regression(p.x.shape[1], dimension, scale).predict(p.tokens())
    assert (abs(answer - p.least_squares()) <= condition(p) ** 6 * size / scale**2).all()


@pytest.mark.parametrize("dimension", [1, 2, 3, 5])
def test_the_error_falls_as_the_square_of_r(dimension):
    p = sample_multivariate(200, 30, dimension, seed=1)
    truth = p.least_squares()
    error = [
        np.median(abs(gram_schmidt_regression(30, dimension, scale).predict(p.tokens()) - truth))
        for scale in (10.0, 100.0)
    ]
    assert error[1] < 1e-4
    assert error[0] / error[1] == pytest.approx(100, rel=0.2)


@pytest.mark.parametrize("dimension", [1, 2, 3, 5])
def test_each_layer_norm_divides_by_a_pivot_of_qr(dimension):
    """Layer j + 1's σ is the square of R_jj of the centred columns' QR, times its constant."""
    n, scale = 30, 1e3
    p = sample_multivariate(50, n, dimension, seed=2)
    sigma = gram_schmidt_regression(n, dimension, scale).trace(p.tokens()).sigma
    pivots = np.diagonal(np.linalg.qr(p.x - p.x.mean(axis=1, keepdims=True), mode="r"), axis1=1, axis2=2)
    root = np.sqrt(2 * dimension + 2)
    for j in range(dimension):
        expected = (1 + (j + 1) * root) * pivots[:, j] ** 2 / root
        assert np.allclose(sigma[j + 1], expected[:, None], rtol=1e-3)
        assert (
            sigma[j + 1].mean(axis=1).std() > 0.05 * sigma[j + 1].mean()
        )  # it varies: the match is no accident


def test_one_dimension_is_the_query_channel():
    q = sample_prompts(200, 10, seed=3)
    p = MultivariatePrompts(q.x[:, :, None], q.y, q.query[:, None])
    assert (p.tokens() == q.tokens("query_channel")).all()
    assert np.allclose(p.least_squares(), least_squares(q), rtol=1e-9, atol=1e-9)
    for scale in (1.0, 10.0):
        a, b = (
            w.predict(p.tokens()) for w in (gram_schmidt_regression(10, 1, scale), query_channel(10, scale))
        )
        assert np.allclose(a, b, rtol=1e-9, atol=1e-9)


def test_a_column_left_out_is_noticed():
    """Hidden fault: without the head that orthogonalises the later columns the answer is wrong."""
    p = sample_multivariate(100, 20, 3, seed=4)
    w, truth = gram_schmidt_regression(20, 3, 100.0), p.least_squares()
    W2 = w.W2.copy()
    W2[1, 1] = 0
    good, bad = (np.median(abs(v.predict(p.tokens()) - truth)) for v in (w, replace(w, W2=W2)))
    assert bad > 1000 * good


def test_the_same_seed_gives_the_same_prompts():
    a, b, c = (sample_multivariate(5, 8, 2, seed=s) for s in (9, 9, 10))
    assert (a.tokens() == b.tokens()).all()
    assert (a.tokens() != c.tokens()).any()


def test_dependent_columns_are_refused():
    p = sample_multivariate(4, 8, 2, seed=5)
    x = p.x.copy()
    x[2, :, 1] = 2 * x[2, :, 0] + 1
    with pytest.raises(ValueError, match=r"prompts 2 \(1 in all\)"):
        MultivariatePrompts(x, p.y, p.query).least_squares()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sample_multivariate(5, 3, 2, seed=1), "n_context is 3, expected at least 4"),
        (lambda: sample_multivariate(5, 3, 0, seed=1), "dimension is 0"),
        (lambda: sample_multivariate(0, 9, 2, seed=1), "count is 0"),
        (lambda: gram_schmidt_regression(4, 3, 1.0), "n_context is 4, expected at least 5"),
        (lambda: gram_schmidt_regression(9, 3, -1.0), "scale is -1"),
        (
            lambda: MultivariatePrompts(np.zeros((2, 5, 2)), np.zeros((2, 5)), np.full((2, 2), np.nan)),
            r"query\[0, 0\] is nan",
        ),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()

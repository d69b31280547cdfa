"""The effective slope, against answers whose slope is known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icl_lib import Prompts, gradient_descent, least_squares
from icl_lib.slopes import at_queries, effective_slope, twin_contexts

QUERIES = np.array([0.5, 1.0, 30.0])


@settings(max_examples=20, deadline=None)
@given(V=st.floats(0.05, 20), n=st.integers(3, 30), seed=st.integers(0, 2**32))
def test_twins_have_the_moments_that_were_asked_for(V: float, n: int, seed: int) -> None:
    twins = twin_contexts(4, n, V, seed=seed)
    m = twins.moments()
    np.testing.assert_allclose(m.x_bar, 0, atol=1e-12 * np.sqrt(V))
    np.testing.assert_allclose(m.V, V, rtol=1e-10)
    np.testing.assert_allclose(m.C / m.V, [1] * 4 + [-1] * 4, rtol=1e-9)
    np.testing.assert_array_equal(twins.x[:4], twins.x[4:])
    np.testing.assert_allclose(twins.y[:4] - twins.y[4:], 2 * twins.x[:4], atol=1e-12 * (1 + V))


def test_least_squares_keeps_the_whole_slope() -> None:
    s = effective_slope(least_squares, twin_contexts(5, 20, 2.0, seed=1), QUERIES)
    np.testing.assert_allclose(s, 1.0, rtol=1e-11)


@pytest.mark.parametrize("V", [0.25, 1.0, 3.0])
def test_descent_keeps_what_its_polynomial_says(V: float) -> None:
    def answer(p: Prompts) -> np.ndarray:
        return gradient_descent(p, steps=3, rate=0.9 / 20)

    s = effective_slope(answer, twin_contexts(5, 20, V, seed=2), QUERIES)
    np.testing.assert_allclose(s, 1 - (1 - 0.9 * V) ** 3, rtol=1e-10)


def test_what_ignores_the_data_or_the_side_of_the_query_drops_out() -> None:
    def answer(p: Prompts) -> np.ndarray:
        return least_squares(p) + 5 * p.query + p.y[:, 0] ** 2 + p.query**2

    s = effective_slope(answer, twin_contexts(5, 20, 1.0, seed=3), QUERIES)
    np.testing.assert_allclose(s, 1.0, rtol=1e-9)


def test_a_slope_that_is_lost_is_seen() -> None:
    def answer(p: Prompts) -> np.ndarray:
        return least_squares(p) / (1 + p.query**2)

    s = effective_slope(answer, twin_contexts(5, 20, 1.0, seed=4), QUERIES)
    np.testing.assert_allclose(s, np.tile(1 / (1 + QUERIES[:, None] ** 2), (1, 5)), rtol=1e-9)


def test_queries_go_slowest() -> None:
    twins = twin_contexts(2, 5, 1.0, seed=5)
    spread = at_queries(twins, np.array([7.0, 8.0]))
    np.testing.assert_array_equal(spread.query, [7.0] * 4 + [8.0] * 4)
    np.testing.assert_array_equal(spread.x, np.concatenate([twins.x, twins.x]))


@pytest.mark.parametrize("V", [0.0, -1.0, np.nan, np.inf])
def test_an_impossible_variance_is_refused(V: float) -> None:
    with pytest.raises(ValueError, match=r"V is .*expected a positive finite number"):
        twin_contexts(2, 5, V, seed=0)

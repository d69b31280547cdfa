"""Solvers against NumPy's lstsq, and by what must and must not change their answers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icl_lib import Prompts, gradient_descent, least_squares, leverage, newton, ridge, sample_prompts

seeds, sizes = st.integers(0, 2**32), st.integers(3, 30)
SOLVERS = {
    "least_squares": least_squares,
    "ridge": lambda p: ridge(p, 0.3),
    "gradient_descent": lambda p: gradient_descent(p, steps=3, rate=0.5 / p.n_context, start=0.2),
    "newton": lambda p: newton(p, steps=4),
}


def lstsq(x, y, u, rows=None):
    """The oracle: NumPy's solver on the design (1, x), with optional extra rows."""
    X, t = np.stack([np.ones_like(x), x], 1), y
    if rows is not None:
        X, t = np.vstack([X, rows[0]]), np.append(y, rows[1])
    theta = np.linalg.lstsq(X, t, rcond=None)[0]
    return theta[0] + theta[1] * u


@given(seeds, sizes)
def test_least_squares_is_lstsq(seed, n):
    p = sample_prompts(4, n, seed=seed)
    expected = [lstsq(p.x[i], p.y[i], p.query[i]) for i in range(4)]
    assert np.allclose(least_squares(p), expected, rtol=1e-8, atol=1e-8)


@given(seeds, sizes, st.floats(1e-3, 1e3))
def test_ridge_is_lstsq_with_penalty_rows(seed, n, penalty):
    p = sample_prompts(4, n, seed=seed)
    extra = (np.sqrt(penalty) * np.eye(2), np.zeros(2))
    expected = [lstsq(p.x[i], p.y[i], p.query[i], extra) for i in range(4)]
    assert np.allclose(ridge(p, penalty), expected, rtol=1e-8, atol=1e-8)


def test_ridge_without_penalty_is_least_squares():
    p = sample_prompts(100, 7, seed=2)
    assert (ridge(p, 0.0) == least_squares(p)).all()


@given(seeds, st.integers(0, 6), st.floats(0.01, 0.9), st.floats(-2, 2))
def test_descent_follows_its_closed_form(seed, steps, h, start):
    p = sample_prompts(5, 20, seed=seed)
    m = p.moments()
    slope = m.C / m.V + (1 - h * m.V) ** steps * (start - m.C / m.V)
    expected = m.y_bar + slope * (p.query - m.x_bar)
    answer = gradient_descent(p, steps=steps, rate=h / 20, start=start)
    assert np.allclose(answer, expected, rtol=1e-9, atol=1e-9)


def test_descent_step_is_minus_the_gradient_by_finite_differences():
    p = sample_prompts(1, 12, seed=9)
    m, step = p.moments(), 1e-6

    def loss(theta):
        return 0.5 * ((p.y - m.y_bar - theta * (p.x - m.x_bar)) ** 2).sum()

    gradient = (loss(0.3 + step) - loss(0.3 - step)) / (2 * step)
    moved = gradient_descent(p, steps=1, rate=0.01, start=0.3)
    assert np.allclose(moved, m.y_bar + (0.3 - 0.01 * gradient) * (p.query - m.x_bar), atol=1e-7)


def test_newton_squares_its_error():
    p = sample_prompts(200, 30, seed=4)
    errors = [np.median(abs(newton(p, steps=t) - least_squares(p))) for t in range(14)]
    late = [t for t in range(3, 13) if errors[t + 1] > 1e-11 and errors[t] < 0.1]
    assert len(late) >= 1
    for t in late:
        assert errors[t + 1] < 3 * errors[t] ** 1.7
    assert np.allclose(newton(p, steps=40), least_squares(p), atol=1e-8)


@pytest.mark.parametrize("name", SOLVERS)
@given(seed=seeds, n=sizes)
def test_order_of_the_context_does_not_matter(name, seed, n):
    p = sample_prompts(3, n, seed=seed)
    order = np.random.Generator(np.random.PCG64(seed)).permutation(n)
    shuffled = Prompts(p.x[:, order], p.y[:, order], p.query)
    assert np.allclose(SOLVERS[name](p), SOLVERS[name](shuffled), rtol=1e-6, atol=1e-7)


@given(seeds, sizes)
def test_duplicating_every_point_changes_nothing_for_least_squares(seed, n):
    p = sample_prompts(3, n, seed=seed)
    twice = Prompts(np.tile(p.x, 2), np.tile(p.y, 2), p.query)
    assert np.allclose(least_squares(p), least_squares(twice), rtol=1e-9, atol=1e-9)
    assert not np.allclose(ridge(p, 1.0), ridge(twice, 1.0), rtol=1e-6, atol=1e-9)


@given(seeds, st.floats(-5, 5), st.floats(-5, 5))
def test_shifting_and_scaling_y_carries_through(seed, shift, factor):
    p = sample_prompts(3, 10, seed=seed)
    moved = Prompts(p.x, shift + factor * p.y, p.query)
    assert np.allclose(least_squares(moved), shift + factor * least_squares(p), atol=1e-9)
    assert np.allclose(newton(moved, steps=40), shift + factor * newton(p, steps=40), atol=1e-6)


@pytest.mark.parametrize("name", SOLVERS)
def test_dropping_a_point_does_change_the_answer(name):
    p = sample_prompts(50, 10, seed=1)
    dropped = Prompts(p.x[:, :-1], p.y[:, :-1], p.query)
    assert (abs(SOLVERS[name](p) - SOLVERS[name](dropped)) > 1e-6).mean() > 0.95


@given(seeds, sizes)
def test_leverage_is_the_hat_matrix_and_the_leave_one_out_factor(seed, n):
    p = sample_prompts(3, n, seed=seed)
    for i in range(3):
        X = np.stack([np.ones(n + 1), np.append(p.x[i], p.query[i])], 1)
        hat = X @ np.linalg.pinv(X)
        assert np.isclose(leverage(p)[i], hat[-1, -1], rtol=1e-8)
        augmented = lstsq(p.x[i], p.y[i], p.query[i], ([1.0, p.query[i]], 0.0))
        assert np.isclose((1 - leverage(p)[i]) * least_squares(p)[i], augmented, rtol=1e-6, atol=1e-8)


def test_v_zero_is_refused_by_name_where_it_divides():
    x = np.array([[1.0, 2, 3], [0.1, 0.1, 0.1], [1, 1, 2]])
    p = Prompts(x, np.ones((3, 3)), np.zeros(3))
    for solver in (least_squares, lambda q: newton(q, steps=3), lambda q: ridge(q, 0.0)):
        with pytest.raises(ValueError, match=r"V = 0 in 1 of 3 prompts \(index 1\)"):
            solver(p)
    assert np.isfinite(ridge(p, 0.1)).all()
    assert np.isfinite(gradient_descent(p, steps=2, rate=0.1)).all()
    same = Prompts(np.ones((1, 3)), np.ones((1, 3)), np.ones(1))
    with pytest.raises(ValueError, match="lie at one x"):
        leverage(same)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: ridge(p, -1.0), "penalty is -1"),
        (lambda p: gradient_descent(p, steps=-1, rate=0.1), "steps is -1"),
        (lambda p: gradient_descent(p, steps=1, rate=float("nan")), "rate is nan"),
        (lambda p: newton(p, steps=-2), "steps is -2"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(sample_prompts(2, 5, seed=0))

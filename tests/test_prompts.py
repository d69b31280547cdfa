"""Drawing tasks and laying them out as prompts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icl_lib import Prompts, sample_prompts, sample_tasks
from icl_lib.prompts import Layout, token_shape


def test_tokens_follow_equation_1():
    p = Prompts(np.array([[1.0, 2.0, 3.0]]), np.array([[4.0, 5.0, 6.0]]), np.array([7.0]))
    assert p.tokens().tolist() == [[[1, 1, 4], [1, 2, 5], [1, 3, 6], [1, 7, 0]]]


@given(st.integers(0, 2**32), st.integers(3, 40))
def test_moments_match_numpy_cov(seed, n):
    p = sample_prompts(3, n, seed=seed)
    m = p.moments()
    for i in range(3):
        cov = np.cov(p.x[i], p.y[i], bias=True)
        assert np.allclose([m.V[i], m.C[i]], [cov[0, 0], cov[0, 1]], rtol=1e-12)
        assert np.allclose([m.x_bar[i], m.y_bar[i]], [p.x[i].mean(), p.y[i].mean()], rtol=1e-12)


def test_same_seed_same_bits_and_no_global_state():
    state = str(np.random.get_state())  # noqa: NPY002 (the state that must not move)
    a, b = sample_prompts(50, 10, seed=3), sample_prompts(50, 10, seed=3)
    assert a.tokens().tobytes() == b.tokens().tobytes()
    assert a.tokens().tobytes() != sample_prompts(50, 10, seed=4).tokens().tobytes()
    assert str(np.random.get_state()) == state  # noqa: NPY002
    sequence = np.random.SeedSequence(3)
    assert sample_prompts(50, 10, seed=sequence).tokens().tobytes() == a.tokens().tobytes()
    assert sample_prompts(50, 10, seed=sequence).tokens().tobytes() == a.tokens().tobytes()


def test_the_distribution_is_the_papers():
    tasks = sample_tasks(20_000, 20, seed=5)
    p = tasks.prompts
    residual = p.y - tasks.intercept[:, None] - tasks.slope[:, None] * p.x
    for values, std in (
        (p.x, 1),
        (p.query, 1),
        (tasks.intercept, 1),
        (tasks.slope, 1),
        (residual, 0.2),
        (tasks.query_noise, 0.2),
    ):
        n = values.size  # five standard errors of a mean and of a variance
        assert abs(values.mean()) < 5 * std / n**0.5
        assert abs(values.var() / std**2 - 1) < 5 * (2 / n) ** 0.5
    assert abs(np.corrcoef(tasks.intercept, tasks.slope)[0, 1]) < 5 / 20_000**0.5
    assert np.allclose(tasks.line(), tasks.intercept + tasks.slope * p.query)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": np.zeros((2, 2)), "y": np.zeros((2, 2))}, "N = 2 context points, expected at least 3"),
        ({"y": np.zeros((2, 4))}, r"y has shape \(2, 4\), expected \(2, 3\)"),
        ({"query": np.zeros(3)}, r"query has shape \(3,\)"),
        ({"x": np.array([[1.0, 2, 3], [1, np.nan, 3]])}, r"x\[1, 1\] is nan"),
        ({"query": np.array([0.0, np.inf])}, r"query\[1\] is inf"),
    ],
)
def test_bad_arrays_are_named(change, message):
    good = {"x": np.arange(6.0).reshape(2, 3), "y": np.zeros((2, 3)), "query": np.zeros(2)}
    with pytest.raises(ValueError, match=message):
        Prompts(**(good | change))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"count": 0, "n_context": 5}, "count is 0"),
        ({"count": 1, "n_context": 2}, "n_context is 2"),
        ({"count": 1, "n_context": 5, "noise_std": -1.0}, "noise_std is -1"),
        ({"count": 1, "n_context": 5, "query_std": np.nan}, "query_std is nan"),
    ],
)
def test_bad_settings_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        sample_tasks(**arguments, seed=0)


def test_arrays_are_frozen_and_copied():
    x = np.arange(6.0).reshape(2, 3)
    p = Prompts(x, x, np.zeros(2))
    x[0, 0] = 99
    assert p.x[0, 0] == 0
    with pytest.raises(ValueError, match="read-only"):
        p.x[0, 0] = 1


def test_slices_select_whole_prompts():
    p = sample_prompts(10, 5, seed=1)
    assert p[2:4].tokens().tolist() == p.tokens()[2:4].tolist()
    assert p[p.query > 0].count == (p.query > 0).sum()


def test_the_other_layouts_hold_the_same_numbers():
    p = sample_prompts(3, 5, seed=9)
    for m in range(3):
        u = p.query[m]
        points = list(zip(p.x[m], p.y[m], strict=True))
        rows: dict[Layout, list[list[float]]] = {
            "paper": [*([1, x, y] for x, y in points), [1, u, 0]],
            "query_channel": [[1, x, y, u] for x, y in points],
            "mask": [*([1, x, y, 1] for x, y in points), [1, u, 0, 0]],
            "relative": [*([1, x - u, y] for x, y in points), [1, 0, 0]],
        }
        for layout, expected in rows.items():
            assert np.array_equal(p.tokens(layout)[m], expected)
            assert token_shape(layout, 5) == np.shape(expected)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.usefixtures("unchecked")
def test_an_unknown_layout_is_refused():
    with pytest.raises(ValueError, match="layout is 'rows', expected one of paper, query_channel"):
        sample_prompts(3, 5, seed=9).tokens("rows")  # type: ignore[arg-type]

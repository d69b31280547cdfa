"""Heads written by their cells against literal attention, each stack against its algorithm written out."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icl_lib import least_squares, leverage, sample_prompts
from icl_lib.constructions import Head
from icl_lib.heads import (
    Move,
    diagonal,
    gram,
    head,
    inverse,
    newton,
    newton_schulz,
    preconditioned,
    recursion,
    regression_tokens,
    run,
)
from tests.arrays import close_overall, generator, seeds


def problems(seed, count=6, n=12, d=3):
    """(X, y, query, tokens) of `count` regressions."""
    rng = generator(seed)
    X, w = rng.standard_normal((count, n, d)), rng.standard_normal((count, d, 1))
    y = (X @ w)[..., 0] + 0.3 * rng.standard_normal((count, n))
    query = rng.standard_normal((count, d))
    return X, y, query, regression_tokens(X, y, query)


def descend(X, y, query, steps, step):
    """Predictions after w ← w + step(Xᵀ(y − Xw)), one prompt after the other."""
    answers = []
    for X_m, y_m, q in zip(X, y, query, strict=True):
        w = np.zeros(X.shape[2])
        for _ in range(steps):
            w = w + step(X_m.T @ (y_m - X_m @ w))
        answers.append(q @ w)
    return np.array(answers)


# -- one head, and the recursion


@given(seeds, st.integers(2, 6), st.booleans())
def test_a_head_is_the_sum_it_says(seed, dim, masked):
    rng = generator(seed)
    q, k, f, t = (rng.permutation(dim)[:2].tolist() for _ in range(4))
    score, factor = rng.standard_normal((2, 2, 2))
    Q = rng.standard_normal((2, 4, dim))
    after = run(Q, [[head(dim, q, k, Move(f, t, factor), score=score)]], masked=masked)[-1]
    expected = Q.copy()
    for m in range(2):
        for i in range(4):
            for j in range(3 if masked else 4):
                expected[m, i, t] += (Q[m, i, q] @ score @ Q[m, j, k]) * (Q[m, j, f] @ factor)
    close_overall(after, expected)


@given(seeds, st.integers(1, 4), st.integers(1, 3), st.booleans())
def test_every_row_follows_the_matrix_recursion(seed, dim, layers, masked):
    rng = generator(seed)
    stack = [[Head(*rng.standard_normal((3, dim, dim)) / 3) for _ in range(2)] for _ in range(layers)]
    tokens = rng.standard_normal((3, 6, dim)) / 3
    states = run(tokens, stack, masked=masked)
    close_overall(states, tokens @ recursion(gram(tokens, masked=masked), stack), 1e-9)


def test_a_bypassed_layer_is_noticed():
    """Hidden fault: T steps must need all T layers, each with its attention."""
    X, y, query, tokens = problems(1)
    stack = preconditioned(np.tile(0.04 * np.eye(3), (4, 1, 1)))
    expected = descend(X, y, query, 4, lambda g: 0.04 * g)
    close_overall(-run(tokens, stack, masked=True)[-1][:, -1, -1], expected)
    empty = [Head(*np.zeros((3, 4, 4)))]
    for layer in range(4):
        bypassed = [*stack[:layer], empty, *stack[layer + 1 :]]
        for answer in (
            -run(tokens, bypassed, masked=True)[-1][:, -1, -1],
            -(tokens @ recursion(gram(tokens, masked=True), bypassed)[-1])[:, -1, -1],
        ):
            assert np.abs(answer - expected).max() > 1e-3
    assert (run(tokens, [empty] * 4, masked=True)[-1] == tokens).all()


# -- regression


@given(seeds, st.integers(0, 8))
def test_descent_and_its_curvature_correction(seed, steps):
    X, y, query, tokens = problems(seed)
    A = np.tile(0.03 * np.eye(3), (steps, 1, 1))
    plain = -run(tokens, preconditioned(A), masked=True)[-1][:, -1, -1]
    close_overall(plain, descend(X, y, query, steps, lambda g: 0.03 * g))
    residual = run(tokens, preconditioned(A), masked=True)[-1][:, :-1, -1]
    close_overall(
        residual[0],
        y[0] - np.array([descend(X[:1], y[:1], x[None], steps, lambda g: 0.03 * g)[0] for x in X[0]]),
    )
    corrected = -run(tokens, preconditioned(A, -0.3 * np.tile(np.eye(3), (steps, 1, 1))), masked=True)[-1][
        :, -1, -1
    ]
    Z, r, u, target = X.copy(), y.copy(), query.copy(), np.zeros(len(y))
    for _ in range(steps):
        S, g = Z.mT @ Z, Z.mT @ r[..., None]
        target += 0.03 * np.einsum("md,md->m", u, g[..., 0])
        r = r - 0.03 * (Z @ g)[..., 0]
        u, Z = u - 0.009 * np.einsum("md,mde->me", u, S), Z - 0.009 * Z @ S
    close_overall(corrected, target)


@given(seeds)
def test_a_preconditioner_is_applied_from_the_left(seed):
    X, y, query, tokens = problems(seed)
    A = 0.05 * generator(seed).standard_normal((3, 3))
    answer = -run(tokens, preconditioned(np.stack([A, A])), masked=True)[-1][:, -1, -1]
    close_overall(answer, descend(X, y, query, 2, lambda g: A @ g))


@given(seeds, st.integers(2, 6))
def test_unmasked_descent_counts_the_query_as_a_point(seed, steps):
    X, y, query, tokens = problems(seed)
    stack = preconditioned(np.tile(0.03 * np.eye(3), (steps, 1, 1)))
    answer = -run(tokens, stack, masked=False)[-1][:, -1, -1]
    both = np.concatenate([X, query[:, None]], 1), np.concatenate([y, np.zeros((len(y), 1))], 1)
    close_overall(answer, descend(*both, query, steps, lambda g: 0.03 * g))
    assert np.abs(answer - descend(X, y, query, steps, lambda g: 0.03 * g)).max() > 1e-6


@settings(max_examples=20)
@given(seeds, st.integers(0, 6))
def test_newton_doubles_its_descent_steps(seed, steps):
    """K layers of Newton from M_0 = αI are 2^K steps of descent at the rate α."""
    X, y, query, tokens = problems(seed)
    alpha = 1 / np.linalg.eigvalsh(X.mT @ X).max()
    with_z = np.concatenate([tokens, alpha * tokens[:, :, :3]], axis=2)
    answer = run(with_z, newton(3, steps), masked=True)[-1][:, -1, 3]
    close_overall(answer, descend(X, y, query, 2**steps, lambda g: alpha * g), 1e-10)


def solved(X, y, query):
    return np.array([q @ np.linalg.lstsq(X_m, y_m)[0] for X_m, y_m, q in zip(X, y, query, strict=True)])


@given(seeds)
def test_newton_schulz_solves_least_squares(seed):
    X, y, query, _ = problems(seed)
    scale = np.linalg.norm(X, 2, axis=(1, 2))[:, None]
    tokens = regression_tokens(X / scale[..., None], y, query / scale)
    answer = run(tokens, newton_schulz(3, 30), masked=True)[-1][:, -1, -1]
    close_overall(answer, solved(X, y, query), 1e-8)  # three digits for the condition of twelve points


def test_newton_schulz_on_the_paper_prompt_is_the_factor_of_the_leverage():
    """Unmasked, the query is a data point (u, 0) again: (1 − h) times least squares, to rounding."""
    p = sample_prompts(200, 50, seed=3)
    scale = np.array([1 / 15.0, 1 / 15.0, 1.0])
    for masked, expected in ((False, (1 - leverage(p)) * least_squares(p)), (True, least_squares(p))):
        answer = run(p.tokens() * scale, newton_schulz(2, 20), masked=masked)[-1][:, -1, 2]
        close_overall(answer, expected, 1e-9)


@given(seeds, st.integers(1, 3))
def test_every_diagonal_layer_keeps_a_linear_model(seed, layers):
    """y_i ← a·y_i − w·x_i with one (a, w) for all rows, so the query reads −w·x_q."""
    X, y, query, tokens = problems(seed)
    stack = diagonal(3, 0.02 * generator(seed).standard_normal((layers, 4)))
    last = recursion(gram(tokens, masked=True), stack)[-1][:, :, 3]
    states = run(tokens, stack, masked=True)[-1]
    a, w = last[:, 3], -last[:, :3]
    close_overall(states[:, :-1, 3], a[:, None] * y - (X @ w[..., None])[..., 0], 1e-10)
    close_overall(states[:, -1, 3], -(query * w).sum(1), 1e-10)


def test_diagonal_heads_are_what_they_say():
    _, _, _, tokens = problems(4)
    xx, xy, yx, yy = 0.02 * generator(4).standard_normal(4)
    Q, C = tokens, tokens[:, :-1]
    scores_x, scores_y = Q[..., :3] @ C[..., :3].mT, Q[..., 3:] @ C[..., 3:].mT
    expected = Q.copy()
    expected[..., :3] += xx * scores_x @ C[..., :3] + yx * scores_y @ C[..., :3]
    expected[..., 3:] += xy * scores_x @ C[..., 3:] + yy * scores_y @ C[..., 3:]
    close_overall(run(tokens, diagonal(3, np.array([[xx, xy, yx, yy]])), masked=True)[-1], expected)


@given(seeds, st.integers(1, 6), st.integers(0, 6))
def test_inverse_is_newton_in_two_layers_a_step(seed, size, steps):
    A = generator(seed).standard_normal((size, size))
    A = A @ A.T + np.eye(size)
    X = A / np.abs(A).sum(0).max() ** 2
    tokens = np.concatenate([A, X, np.zeros((size, size)), np.eye(size)], axis=1)[None]
    for _ in range(steps):
        X = X @ (2 * np.eye(size) - A @ X)
    after = run(tokens, inverse(size, steps), masked=False)
    assert len(after) == 2 * steps + 1
    close_overall(after[-1][0, :, size : 2 * size], X)


# -- bad input


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: head(3, [0], [3], Move([0], [1])), "cell 3 does not exist, expected 0 to 2"),
        (lambda: head(3, [-1], [0], Move([0], [1])), "cell -1 does not exist"),
        (lambda: head(3, [0], [1, 2], Move([0], [1])), "1 query cells and 2 key cells"),
        (lambda: head(3, [0], [1], Move([0, 1], [2])), "2 cells move to 1"),
        (lambda: head(3, [0], [1], Move([0], [1]), score=np.eye(2)), r"score has shape \(2, 2\), expected"),
        (lambda: head(3, [0], [1], Move([0], [1], np.eye(2))), r"factor has shape \(2, 2\), expected"),
        (lambda: preconditioned(np.zeros((2, 3, 4))), "A and B have shapes"),
        (lambda: preconditioned(np.zeros((2, 3, 3)), np.zeros((1, 3, 3))), "A and B have shapes"),
    ],
)
def test_what_does_not_fit_is_named(call, message, unchecked):
    with pytest.raises(ValueError, match=message):
        call()

"""Each line of a program against exact operations, the programs against their learners."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icl_lib.compiler import REFINED, Published, Refined, Space, richardson
from icl_lib.primitives import Aff, Div, Mov, Mul, raw
from icl_lib.programs import answer, sgd, sherman_morrison
from tests.arrays import close, generator, seeds
from tests.regressions import examples, ridge

few = settings(max_examples=15, deadline=None)
# What float32 and the published lemmas reach is measured in the chapter; these bounds only catch mistakes.
BOUNDS = [
    pytest.param(REFINED, torch.float64, 1e-10, id="refined64"),
    pytest.param(Refined(N=2.0**20, c=16.0), torch.float32, 2e-3, id="refined32"),
    pytest.param(Published(), torch.float64, 1e-4, id="published64"),
]


# -- lines


def lines(seed):
    """One line of each kind, with rows drawn anew, targets that overwrite their operands among them."""
    rng = generator(seed)

    def rows(size):
        start = int(rng.integers(0, 12 - size + 1))
        return range(start, start + size)

    s, t = sorted(rng.integers(0, 4, 2).tolist())
    W_1, W_2, b = rng.standard_normal((2, 3)), rng.standard_normal((2, 2)), rng.standard_normal(2)
    divisor = int(rng.integers(0, 12))
    return [
        Mov(s, t, rows(3), rows(3)),
        Aff(rows(3), rows(2), rows(2), W_1, W_2, b),
        Aff(rows(2), range(0), rows(2), W_1=-0.5, b=1.0),
        Mul(2, 3, 1, rows(6), rows(3), rows(2)),
        Mul(2, 1, 2, rows(2), rows(2), rows(4)),
        Div(rows(3), divisor, rows(3)),
    ]


def check_line(line, tricks, dtype, tolerance, seed):
    space = Space(12, line.scratch, 4)
    rng = generator(seed)
    h = np.clip(rng.standard_normal((8, 4, space.width)), -3, 3)  # junk in scratch and pads too
    if isinstance(line, Div):
        h[:, :, line.divisor] = rng.uniform(1, 4, (8, 4)) * rng.choice([-1, 1], (8, 4))
    h[:, :, space.zero], h[:, :, space.one] = 0.0, 1.0
    h[:, :, space.one + 1 :] = np.eye(4)
    with torch.no_grad():
        after = line.layer(space, tricks, dtype)(torch.tensor(h, dtype=dtype)).double().numpy()
    close(after[:, :, :12], line.apply(h[:, :, :12]), tolerance)
    fixed = slice(space.zero, space.width)
    assert (after[:, :, fixed] == h[:, :, fixed]).all()


@pytest.mark.parametrize(("tricks", "dtype", "tolerance"), BOUNDS)
@few
@given(seeds)
def test_each_line_is_one_layer(tricks, dtype, tolerance, seed):
    for line in lines(seed):
        check_line(line, tricks, dtype, tolerance, seed)


@few
@given(seeds, st.sampled_from("+×"))
def test_raw_is_what_its_definition_says(seed, operation):
    rng = generator(seed)
    d, space = 2, Space(10, 4, 4)
    W_a, W, W_o = rng.standard_normal((d, 3)), rng.standard_normal((d, 2)), rng.standard_normal((3, d))
    reads = [set(np.flatnonzero(rng.random(i + 1) < 0.6).tolist()) for i in range(4)]
    r, s, w = (rng.permutation(10)[:size].tolist() for size in (3, 2, 3))
    h = np.clip(rng.standard_normal((3, 4, space.width)), -3, 3)
    h[:, :, space.zero], h[:, :, space.one], h[:, :, space.one + 1 :] = 0.0, 1.0, np.eye(4)
    expected = h[:, :, :10].copy()
    for i, columns in enumerate(reads):
        mean = sum((h[:, k][:, r] for k in columns), np.zeros((3, 3))) / max(1, len(columns)) @ W_a.T
        here = h[:, i][:, s] @ W.T
        expected[:, i, w] = (mean + here if operation == "+" else mean * here) @ W_o.T
    layer = raw(space, REFINED, operation, reads, (r, s, w), W_a, W, W_o)
    close(layer(torch.tensor(h)).detach().numpy()[:, :, :10], expected, 1e-10)


def test_raw_refuses_what_it_cannot_do():
    one = np.ones((1, 1))
    rows = ([0], [1], [2])
    with pytest.raises(ValueError, match="'-', expected"):
        raw(Space(3, 2, 2), REFINED, "-", [{0}, {1}], rows, one, one, one)
    with pytest.raises(ValueError, match="need 2 rows of scratch, the space has 1"):
        raw(Space(3, 1, 2), REFINED, "×", [{0}, {1}], rows, one, one, one)
    with pytest.raises(ValueError, match="column 0 is to read column 1"):
        raw(Space(3, 2, 2), REFINED, "+", [{1}, {1}], rows, one, one, one)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Mov(0, 1, range(2), range(3)), "target has 3 rows, expected 2"),
        (lambda: Mul(2, 2, 1, range(3), range(2), range(2)), "first has 3 rows, expected 4"),
        (lambda: Div(range(2), 0, range(1)), "target has 1 rows, expected 2"),
        (lambda: Aff(range(2), range(0), range(3)), "operand has 2 rows, expected 3"),
        (lambda: Aff(range(2), range(0), range(3), np.eye(2)), r"matrix is \(2, 2\), expected \(3, 2\)"),
        (
            lambda: Mov(1, 0, range(2), range(2)).layer(Space(3, 0, 2), REFINED),
            "column 0 is to read column 1",
        ),
        (lambda: sherman_morrison(1, 2, 0.0), "penalty is 0.0, expected a positive"),
    ],
)
def test_a_line_refuses_rows_that_do_not_fit(make, words):
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize("levels", [1, 2, 5])
def test_richardson_cancels_its_terms(levels):
    omega, k = richardson(levels), np.arange(levels)
    close(np.array([omega @ 4.0 ** (-j * k) for j in range(levels)]), np.eye(levels)[0], 1e-12)


# -- programs


def descend(x, y, w, rate, penalty):
    """Eq. (11) for one example after the other, written out."""
    answered = []
    for X, Y in zip(x, y, strict=True):
        v = np.array(w)
        for x_i, y_i in zip(X[:-1], Y[:-1], strict=True):
            v = v - 2 * rate * (x_i * (x_i @ v) - y_i * x_i + penalty * v)
        answered.append(v @ X[-1])
    return np.array(answered)


CASES = [(1, 1), (1, 2), (1, 4), (3, 1), (3, 2), (2, 4)]


@pytest.mark.parametrize(("n", "d"), CASES)
@pytest.mark.parametrize(("tricks", "dtype", "tolerance"), BOUNDS[:2])
def test_sgd_program_is_sgd(n, d, tricks, dtype, tolerance):
    x, y, tokens = examples(n * 10 + d, n, d)
    w = np.linspace(-0.5, 0.7, d)
    program = sgd(n, w, 0.1, 0.3)
    expected = descend(x, y, w, 0.1, 0.3)
    close(program.execute(tokens)[-1][:, -1, program.output], expected, 1e-12)
    close(answer(program.compile(tricks, dtype), tokens), expected, tolerance)
    assert len(program.lines) == 7 * n + 2


@pytest.mark.parametrize(("n", "d"), CASES)
@pytest.mark.parametrize(("tricks", "dtype", "tolerance"), BOUNDS[:2])
def test_sherman_morrison_program_is_ridge_regression(n, d, tricks, dtype, tolerance):
    x, y, tokens = examples(n * 10 + d, n, d)
    program = sherman_morrison(n, d, 1.0)
    expected = ridge(x, y, 1.0)
    close(program.execute(tokens)[-1][:, -1, program.output], expected, 1e-12)
    close(answer(program.compile(tricks, dtype), tokens), expected, tolerance)
    assert len(program.lines) == 11 * n + 2


@pytest.mark.parametrize("program", [sgd(2, [0.4, -0.6], 0.1, 0.3), sherman_morrison(2, 2, 1.0)])
def test_every_layer_is_missed_when_it_is_bypassed(program):
    """The fault that a test of the answer must see: a layer that passes its input on."""
    *_, tokens = examples(5, 2, 2)
    decoder = program.compile()
    expected = program.execute(tokens)[-1][:, -1, program.output]
    close(answer(decoder, tokens), expected, 1e-10)
    for k, line in enumerate(program.lines):
        layer = decoder.layers[k]
        decoder.layers[k] = torch.nn.Identity()
        assert np.abs(answer(decoder, tokens) - expected).max() > 1e-3, f"line {k} is not needed: {line}"
        decoder.layers[k] = layer


def test_every_hidden_matrix_follows_the_exact_operations():
    *_, tokens = examples(6, 2, 2)
    program = sherman_morrison(2, 2, 1.0)
    states = program.compile().hidden(torch.tensor(tokens))
    for state, exact in zip(states, program.execute(tokens), strict=True):
        defined = np.isfinite(exact)  # columns that a div meets before their divisor is written
        actual = state.detach().numpy()[:, :, : program.rows]
        close(actual[:, 1:4:2][defined[:, 1:4:2]], exact[:, 1:4:2][defined[:, 1:4:2]], 1e-9)

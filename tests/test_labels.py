"""The label and what it is made of, on networks whose mechanism is known because we wrote it."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icl_lib import gram_schmidt, least_squares, leverage, sample_prompts, tilted
from icl_lib.cayley_hamilton import cayley_hamilton
from icl_lib.labels import (
    FOLDERS,
    TABLE,
    bend,
    first_denominator,
    full_length_runs,
    load_labels,
    measure,
    residual_rows,
    skip_part,
    sweep,
    tamed,
    update,
)
from icl_lib.mechanism import v_elasticity

N = 50
PROMPTS = sample_prompts(200, N, seed=41)
CONTEXTS = PROMPTS[:25]
shares = st.floats(0.05, 0.95)
angles = st.floats(-0.95, 0.95)


def metric(c_S: float, rho: float) -> float:
    return 2 * rho * np.sqrt(c_S * (1 - c_S))


# -- the construction --------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(shares, angles, st.integers(5, 60), st.integers(0, 2**32))
def test_every_metric_gives_least_squares_on_all_points(c_S, rho, n, seed):
    p = sample_prompts(20, n, seed=seed)
    c_m, scale = metric(c_S, rho), 1e5
    trace = cayley_hamilton(n, scale, c_S, c_m).trace(p)
    wanted = (1 - leverage(p)) * least_squares(p)
    # O(1/R); near the edge of the ellipse the second layer divides by det D.
    room = 100 / scale / (1 - rho**2) * (1 + p.query**2) * (1 + abs(least_squares(p)))
    assert (abs(trace.output - wanted) < room).all()
    # The two denominators, from the design alone: an oracle that knows no attention.
    x = np.column_stack([p.x, p.query])
    G11, G1x, Gxx = (n + 1) / n, x.sum(axis=1) / n, (x**2).sum(axis=1) / n
    T = (1 - c_S) * G11 + c_m * G1x + c_S * Gxx
    variance = ((x - x.mean(axis=1, keepdims=True)) ** 2).sum(axis=1) / n * G11
    assert np.allclose(2 * trace.sigma[0][:, -1], T, rtol=1e-3)
    assert np.allclose(trace.sigma[0][:, -1] * trace.sigma[1][:, -1], variance * (1 - c_S) / 4, rtol=1e-3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((2, 1.0, 0.5), "n_context is 2"),
        ((50, 0.0, 0.5), "scale is 0.0"),
        ((50, 1.0, 1.0), "c_S = 1.0"),
        ((50, 1.0, 0.5, 1.0), "no positive definite metric"),
        ((50, 1.0, float("nan")), "c_S = nan"),
    ],
)
def test_what_is_no_metric_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        cayley_hamilton(*arguments)


def test_without_its_second_head_the_first_denominator_tilts():
    """A hidden fault: the head that takes x_n out of layer 1's level is needed."""
    w = cayley_hamilton(N, 1e3, 0.5)
    W1 = w.W1.copy()
    W1[0, 1] = 0
    broken = replace(w, W1=W1)
    wanted = (1 - leverage(PROMPTS)) * least_squares(PROMPTS)
    assert abs(w.predict(PROMPTS) - wanted).max() < 1e-2
    assert abs(broken.predict(PROMPTS) - wanted).max() > 0.1


# -- the measurements --------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(shares, angles)
def test_the_metric_is_read_off_the_weights(c_S, rho):
    form = first_denominator(cayley_hamilton(N, 100.0, c_S, metric(c_S, rho)))
    assert form.c_S == pytest.approx(c_S, abs=1e-6)
    assert form.rho == pytest.approx(rho, abs=1e-6)
    assert form.tilt == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("angle", [0.3, 0.8, 1.3])
def test_gram_schmidt_lies_on_the_edge(angle):
    form = first_denominator(gram_schmidt(N, 100.0, angle))
    assert form.c_S == pytest.approx(np.sin(angle) ** 2, abs=1e-4)
    assert form.rho == pytest.approx(1, abs=1e-4)


def test_the_ends_have_no_rho_and_the_tilt_is_found():
    for angle in (0.0, np.pi / 2):
        assert np.isnan(first_denominator(gram_schmidt(N, 100.0, angle)).rho)
    form = first_denominator(tilted(N, 100.0))
    assert form.tilt == pytest.approx(1 / np.sqrt(N), rel=0.01)
    assert form.c_S == pytest.approx(0, abs=1e-6)


def test_the_label_survives_a_change_of_basis():
    """A network and its copy with renumbered embeddings and rescaled heads have one label."""
    w = cayley_hamilton(N, 100.0, 0.3, 0.2)
    order = [2, 0, 3, 1]
    other = replace(
        w,
        W_in=w.W_in[order],
        W1=3 * w.W1[..., order],
        W2=w.W2[..., order, :][..., order],
        W3=w.W3[..., order, :] / 3,
        W_out=w.W_out[:, order],
    )
    assert np.allclose(other.predict(PROMPTS), w.predict(PROMPTS))
    a, b = first_denominator(w), first_denominator(other)
    assert np.allclose([a.c_S, a.c_m, a.tilt], [b.c_S, b.c_m, b.tilt], atol=1e-9)


def test_the_weight_of_the_mean_square_is_the_elasticity():
    for c_S in (0.2, 0.7):
        w = cayley_hamilton(200, 100.0, c_S)
        E = v_elasticity(w, sample_prompts(100, 200, seed=3))
        assert E[0] == pytest.approx(c_S, abs=0.02)
        assert E[1] == pytest.approx(1 - c_S, abs=0.02)


def test_a_sweep_moves_the_query_alone():
    p = sweep(CONTEXTS)
    m = CONTEXTS.moments()
    queries = p.query.reshape(CONTEXTS.count, -1)
    assert np.allclose(queries[:, 0], m.x_bar - 2 * np.sqrt(m.V))
    assert np.allclose(queries[:, 4], m.x_bar)
    assert (p.x.reshape(CONTEXTS.count, 9, N) == CONTEXTS.x[:, None]).all()


def test_the_bend_of_what_is_known():
    family = cayley_hamilton(N, 1e3, 0.5)
    # An oracle without a network: a cubic through (1 − h)·ŷ, context by context.
    p = sweep(CONTEXTS)
    m, d = CONTEXTS.moments(), np.linspace(-2, 2, 9)
    answers = ((1 - leverage(p)) * least_squares(p)).reshape(CONTEXTS.count, -1)
    terms = np.array([np.polyfit(d, row, 3) for row in answers])
    expected = [
        N * (terms[:, 1] @ m.y_bar) / (m.y_bar @ m.y_bar),
        N * (terms[:, 0] @ (m.C / np.sqrt(m.V))) / ((m.C**2 / m.V).sum()),
    ]
    assert bend(family, CONTEXTS, unseen=False) == pytest.approx(expected, abs=1e-3)
    assert bend(family, CONTEXTS) == pytest.approx([0, 0], abs=1e-3)
    over = bend(tilted(N, 20.0), CONTEXTS)  # it makes up for the factor to first order
    assert over == pytest.approx([1, 1], abs=0.4)
    assert np.abs(bend(tilted(N, 20.0), CONTEXTS, frozen=(0, 1))).max() < 1e-9


def test_the_skip_of_the_family_grows_as_its_law_says():
    for c_S in (0.3, 0.8):
        w = cayley_hamilton(N, 100.0, c_S)
        # Its answer stands on one axis, the remainder of y on another; read that one.
        W_out = np.zeros_like(w.W_out)
        W_out[-1] = -np.array([1, -1, -1, 1]) / 2 * 100.0 * N
        share, elasticity = skip_part(replace(w, W_out=W_out), PROMPTS)
        assert share == pytest.approx(c_S, abs=0.05)
        assert elasticity == pytest.approx(1 - c_S, abs=0.05)


def test_residual_rows_are_found():
    w = gram_schmidt(N, 100.0, 0.0)
    W_out = w.W_out.copy()
    W_out[:-1] = -W_out[-1] / N  # the read-out that subtracts the mean over rows
    y, slope, correlation = residual_rows(replace(w, W_out=W_out), PROMPTS)
    assert (y, slope, correlation) == pytest.approx((1, 1, 1), abs=0.1)


def test_centring_helps_what_divides_by_the_mean_square():
    """`gram_schmidt` is exact wherever the context lies; a network blind to x̄ is not."""
    family = gram_schmidt(N, 100.0, np.pi / 2)
    W2 = family.W2.copy()
    W2[0, 1, 1] = 0  # layer 1 no longer takes x̄ off the second column
    blind = replace(family, W2=W2)
    assert tamed(blind, PROMPTS)[0] < 0.7 < tamed(family, PROMPTS)[0]


# -- the table ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def runs():
    return full_length_runs(FOLDERS[:1])


def test_the_stored_table_is_what_the_weights_give(runs):
    _, networks = runs
    stored = load_labels(networks)
    for place in (0, len(stored) // 2):
        row = stored.iloc[place]
        for column, value in measure(networks[row.id]).items():
            assert row[column] == pytest.approx(value, rel=1e-3, abs=1e-4, nan_ok=True), column


def test_a_run_that_the_table_lacks_is_named(runs, tmp_path):
    _, networks = runs
    pd.read_csv(TABLE).iloc[1:].to_csv(tmp_path / "labels.csv", index=False)
    lost = pd.read_csv(TABLE).id[0]
    with pytest.raises(ValueError, match=f"lacks 1 of .*{lost}.*icl labels"):
        load_labels(networks, tmp_path / "labels.csv")
    name = next(iter(networks))
    other = {name: tilted(N, 20.0)}
    with pytest.raises(ValueError, match="lacks 1 of 1"):  # the id is there, the network is another
        load_labels(other)


def test_only_what_is_missing_is_measured(runs):
    _, networks = runs
    known = load_labels(networks)
    known["c_S"] = 7.0  # would be overwritten if it were measured again
    name = known.id[0]
    assert update({name: networks[name]}, known).c_S.tolist() == [7.0]


def test_no_study_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no table\.csv"):
        full_length_runs([tmp_path])

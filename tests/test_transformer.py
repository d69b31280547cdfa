"""The model against torch's own layer norm and a literal reading of eq. (9)."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from icl_lib import Architecture, Weights, lsa


def random_weights(seed, dim=4, layers=2, heads=2, rows=6, features=3, layer_norm=True, eps=1e-5):
    rng = np.random.Generator(np.random.PCG64(seed))
    shapes = Architecture(dim, layers, heads, rows, features).shapes
    arrays = {name: 0.5 * rng.standard_normal(shape) for name, shape in shapes.items() if name != "b_out"}
    return Weights(**arrays, b_out=0.3, layer_norm=layer_norm, eps=eps)


def literal_lsa(Q, W1, W2, W3):
    """Eq. (9)'s first form, the S×S product written as a triple loop over rows."""
    keys, values, queries = Q @ W1.T, Q @ W2, Q @ W3
    out = np.zeros_like(Q)
    for n in range(len(Q)):
        for m in range(len(Q)):
            out[n] += (queries[n] @ keys[m]) * values[m]
    return out


@given(st.integers(0, 2**32), st.integers(1, 7), st.integers(2, 9))
def test_lsa_is_the_literal_triple_product(seed, dim, rows):
    rng = np.random.Generator(np.random.PCG64(seed))
    Q, W1, W2, W3 = (rng.standard_normal(s) for s in ((rows, dim), (dim, dim), (dim, dim), (dim, dim)))
    expected = literal_lsa(Q, W1, W2, W3)
    assert np.allclose(lsa(Q, W1, W2, W3), expected, rtol=1e-10, atol=1e-10 * abs(expected).max())
    tensors = [torch.tensor(a) for a in (Q, W1, W2, W3)]
    assert np.allclose(lsa(*tensors).numpy(), expected, rtol=1e-10, atol=1e-10 * abs(expected).max())


@pytest.mark.parametrize("eps", [1e-5, 1e-2])
@pytest.mark.parametrize(("dim", "layers", "heads"), [(4, 2, 2), (3, 1, 1), (5, 3, 4)])
def test_trace_is_the_paper_step_by_step(dim, layers, heads, eps):
    w = random_weights(1, dim, layers, heads, eps=eps)
    P = np.random.Generator(np.random.PCG64(2)).standard_normal((3, 6, 3))
    trace = w.trace(P)
    norm = torch.nn.LayerNorm(dim, eps=eps, elementwise_affine=False)
    for m in range(3):
        Q = P[m] @ w.W_in.T
        for layer in range(layers):
            assert np.allclose(trace.Q[layer, m], Q, atol=1e-10)
            heads_out = [literal_lsa(Q, w.W1[layer, k], w.W2[layer, k], w.W3[layer, k]) for k in range(heads)]
            assert np.allclose(trace.H_head[layer, :, m], heads_out, atol=1e-10)
            H = np.sum(heads_out, axis=0)
            assert np.allclose(trace.H[layer, m], H, atol=1e-10)
            assert np.allclose(trace.mu[layer, m], H.mean(1), atol=1e-10)
            assert np.allclose(trace.sigma[layer, m], H.std(1), atol=1e-10)
            normal = norm(torch.tensor(H)).numpy()
            assert np.allclose(trace.LN[layer, m], normal, atol=1e-9)
            Q = Q + normal
        assert np.allclose(trace.Q[layers, m], Q, atol=1e-9)
        assert np.isclose(trace.output[m], Q.reshape(-1) @ w.W_out.reshape(-1) + 0.3, atol=1e-9)
    assert np.allclose(w.predict(P), trace.output, atol=1e-12)


def test_without_layer_norm_the_skip_adds_h_itself():
    w = random_weights(4, layer_norm=False)
    trace = w.trace(np.random.Generator(np.random.PCG64(5)).standard_normal((2, 6, 3)))
    assert (trace.LN == trace.H).all()
    assert np.allclose(trace.Q[1], trace.Q[0] + trace.H[0], atol=1e-12)


def test_a_bypassed_layer_is_noticed():
    """Hidden fault: a model that skips its attention must not pass for one that runs it."""
    w = random_weights(6)
    P = np.random.Generator(np.random.PCG64(7)).standard_normal((5, 6, 3))
    for layer in range(2):
        W2 = w.W2.copy()
        W2[layer] = 0
        bypassed = Weights(w.W_in, w.W1, W2, w.W3, w.W_out, w.b_out, eps=w.eps)
        assert (abs(bypassed.predict(P) - w.predict(P)) > 1e-3).all()


def test_float32_pass_is_float32():
    w = random_weights(8)
    P = np.random.Generator(np.random.PCG64(9)).standard_normal((50, 6, 3))
    gap = abs(w.predict(P, dtype=torch.float32) - w.predict(P))
    assert w.predict(P).dtype == np.float64
    assert 1e-9 < gap.max() < 1e-3


def test_the_paper_model_has_408_weights():
    assert Architecture().n_weights == 408


@pytest.mark.parametrize("name", ["dim", "layers", "heads", "rows", "features"])
def test_sizes_below_one_are_named(name):
    with pytest.raises(ValueError, match=f"{name} is 0"):
        replace(Architecture(), **{name: 0})  # type: ignore[arg-type]

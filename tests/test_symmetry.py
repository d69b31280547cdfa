"""What changes nothing must change nothing, and the canonical form must not see it."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import ortho_group

from icl_lib import Architecture, Weights, closed_form, sample_prompts
from icl_lib.symmetry import facts, helmert, permute, query_cell_third, rotate


def random_network(seed, eps=0.0):
    rng = np.random.Generator(np.random.PCG64(seed))
    shapes = Architecture(rows=11).shapes
    arrays = {name: 0.5 * rng.standard_normal(shape) for name, shape in shapes.items()}
    return Weights.from_arrays(arrays, layer_norm=True, eps=eps)


def random_basis(seed):
    start = helmert(4)
    inner = ortho_group.rvs(3, random_state=np.random.Generator(np.random.PCG64(seed)))
    return start @ np.block([[np.eye(1), np.zeros((1, 3))], [np.zeros((3, 1)), inner]]) @ start.T


def inner_gauge(w, seed):
    """(i) W3·A and A⁻¹·W1."""
    A = np.random.Generator(np.random.PCG64(seed)).standard_normal((2, 2, 4, 4)) + 2 * np.eye(4)
    return replace(w, W3=w.W3 @ A, W1=np.linalg.inv(A) @ w.W1)


def swapped_heads(w, _):
    """(ii) the same sum of heads in another order."""
    return replace(w, W1=w.W1[:, ::-1], W2=w.W2[:, ::-1], W3=w.W3[:, ::-1])


def shifted_rows(w, seed):
    """(iii) a number added to every column of a row of W2."""
    shift = np.random.Generator(np.random.PCG64(seed)).standard_normal((2, 2, 4, 1))
    return replace(w, W2=w.W2 + shift)


def turned(w, seed):
    """(iv) another basis of the embedding."""
    return rotate(w, random_basis(seed))


@pytest.mark.parametrize("change", [inner_gauge, swapped_heads, shifted_rows, turned])
@pytest.mark.parametrize("eps", [0.0, 1e-2])
def test_the_answer_and_the_facts_stay(change, eps):
    w = random_network(1, eps)
    p = sample_prompts(100, 10, seed=2)
    other = change(w, 3)
    assert other.digest != w.digest
    assert np.allclose(other.predict(p), w.predict(p), rtol=1e-8, atol=1e-8)
    a, b = facts(w), facts(other)
    for name in ("embedding", "maps", "read_out"):
        assert np.allclose(getattr(a, name), getattr(b, name), atol=1e-9), name


def test_scaling_a_layer_is_exact_at_eps_zero_only():
    w, p = random_network(4), sample_prompts(100, 10, seed=5)
    scaled = replace(w, W2=w.W2 * np.array([3.0, 0.2])[:, None, None, None])
    assert np.allclose(scaled.predict(p), w.predict(p), rtol=1e-8, atol=1e-8)
    assert abs(scaled.predict(p, eps=1e-2) - w.predict(p, eps=1e-2)).max() > 1e-4


def test_another_function_has_other_facts():
    w = random_network(6)
    W2 = w.W2.copy()
    W2[1, 0, 0, 0] += 1e-3
    assert abs(facts(w).maps - facts(replace(w, W2=W2)).maps).max() > 1e-6


def test_the_maps_are_the_layer():
    w, p = random_network(7), sample_prompts(5, 10, seed=8)
    found = facts(w)
    Q = p.tokens() @ found.embedding.T
    G = Q.mT @ Q
    H = np.einsum("msa,mbc,abcd->msd", Q, G, found.maps[0])
    true = w.trace(p).H[0]
    centred = true - true.mean(axis=-1, keepdims=True)
    # Basis-free comparison: lengths of the rows, and the layer-norm denominators they give.
    assert np.allclose((H**2).sum(-1), (centred**2).sum(-1), rtol=1e-9)


def test_permutation_moves_the_named_cells():
    w = closed_form(10, 2.0)
    moved = permute(w, [2, 0, 3, 1])
    assert (moved.W_in == w.W_in[[2, 0, 3, 1]]).all()
    assert (moved.W_out == w.W_out[:, [2, 0, 3, 1]]).all()
    back = query_cell_third(moved)
    assert np.abs(back.W_out[-1]).argmax() == 2
    assert np.allclose(back.predict(sample_prompts(9, 10, seed=1)), w.predict(sample_prompts(9, 10, seed=1)))


def test_what_is_no_symmetry_is_refused():
    w = random_network(9)
    with pytest.raises(ValueError, match="not orthogonal"):
        rotate(w, 2 * np.eye(4))
    with pytest.raises(ValueError, match="moves the ones-vector"):
        rotate(w, ortho_group.rvs(4, random_state=np.random.Generator(np.random.PCG64(1))))
    with pytest.raises(ValueError, match="needs layer norm"):
        facts(replace(w, layer_norm=False))
    with pytest.raises(ValueError, match="no basis of its own"):
        facts(replace(w, W_in=np.ones((4, 3))))

"""What changes nothing must change nothing; the canonical form must see none of it, and all the rest."""

from dataclasses import fields, replace

import numpy as np
import pytest
from scipy.stats import ortho_group

from icl_lib import Architecture, Weights, closed_form, gram_schmidt, sample_prompts
from icl_lib.symmetry import (
    Facts,
    change_basis,
    facts,
    l1_norm,
    layer_norm_basis,
    permute,
    query_cell_third,
    sparsest,
)

L, K, D = 2, 2, 4
LAYER_1 = np.array([1.0, 0.0])[:, None, None, None]


def random_network(seed, eps=0.0, rows=11):
    rng = np.random.default_rng(seed)
    arrays = {
        name: 0.5 * rng.standard_normal(shape) for name, shape in Architecture(rows=rows).shapes.items()
    }
    return Weights.from_arrays(arrays, layer_norm=True, eps=eps)


def invertible(rng, *shape):
    u, _, v = np.linalg.svd(rng.standard_normal(shape))
    return u * rng.uniform(0.5, 2, shape[:-1])[..., None, :] @ v


# -- one function for each kind of change of chapter 1, and some special cases -----------------------------


def inside_heads(w, rng):
    M = invertible(rng, L, K, D, D)
    return replace(w, W3=w.W3 @ M, W1=np.linalg.inv(M) @ w.W1)


def among_heads(w, rng):
    M = invertible(rng, L, K, K)
    U = np.einsum("ljk,lkab->ljab", M, w.W3 @ w.W1)
    W2 = np.einsum("lkj,lkab->ljab", np.linalg.inv(M), w.W2)
    return replace(w, W3=U, W1=np.broadcast_to(np.eye(D), U.shape), W2=W2)


def swapped_heads(w, rng):
    return replace(w, W1=w.W1[:, ::-1], W2=w.W2[:, ::-1], W3=w.W3[:, ::-1])


def layer_sizes(w, rng):
    return replace(w, W2=w.W2 * rng.uniform(0.5, 2, (L, 1, 1, 1)))


def all_sizes_and_eps(w, rng):
    c = float(rng.uniform(0.5, 2))
    return replace(w, W2=w.W2 * c, eps=w.eps * c**2)


def row_means(w, rng):
    return replace(w, W2=w.W2 + rng.standard_normal((L, K, D, 1)))


def random_basis(rng):
    return layer_norm_basis(
        ortho_group.rvs(D - 1, random_state=rng), np.ones(D) + 0.7 * rng.standard_normal(D)
    )


def embedding(w, rng):
    return change_basis(w, random_basis(rng))


def ones_vector_turned_round(w, rng):
    return change_basis(w, layer_norm_basis(np.eye(D - 1), -np.ones(D)))


def unseen_by_layer_1(w, rng):
    z = np.linalg.svd(w.W_in)[0][:, -1]
    a, b, c = rng.standard_normal((3, K, D))
    return replace(
        w,
        W3=w.W3 + LAYER_1 * z[:, None] * a[:, None, :],
        W1=w.W1 + LAYER_1 * b[:, :, None] * z,
        W2=w.W2 + LAYER_1 * z[:, None] * c[:, None, :],
    )


FOR_EVERY_EPS = (
    inside_heads,
    among_heads,
    swapped_heads,
    all_sizes_and_eps,
    row_means,
    embedding,
    ones_vector_turned_round,
    unseen_by_layer_1,
)


def disguised(w, rng, changes=FOR_EVERY_EPS):
    for change in changes:
        w = change(w, rng)
    return w


def distance(a: Facts, b: Facts) -> float:
    return max(np.abs(getattr(a, f.name) - getattr(b, f.name)).max() for f in fields(Facts))


# -- nothing of it is seen ---------------------------------------------------------------------------------

STARTS = {
    "random": random_network(1),
    "construction": closed_form(10, 1.5),
    "swapped construction": gram_schmidt(10, 1.5, np.pi / 2),
}


@pytest.mark.parametrize("change", [*FOR_EVERY_EPS, disguised])
@pytest.mark.parametrize("eps", [0.0, 1e-2])
@pytest.mark.parametrize("start", STARTS)
def test_the_answers_and_the_facts_stay(start, change, eps):
    w, p = replace(STARTS[start], eps=eps), sample_prompts(100, 10, seed=2)
    for seed in range(5):
        other = change(w, np.random.default_rng(seed))
        assert other.digest != w.digest
        assert np.allclose(other.predict(p), w.predict(p), rtol=1e-8, atol=1e-8)
        assert distance(facts(w), facts(other)) < 1e-8 * (1 + np.abs(facts(w).read_out).max())


def test_the_size_of_one_layer_is_free_at_eps_zero_only():
    w, p = random_network(4), sample_prompts(100, 10, seed=5)
    scaled = layer_sizes(w, np.random.default_rng(0))
    assert np.allclose(scaled.predict(p), w.predict(p), rtol=1e-8, atol=1e-8)
    assert distance(facts(scaled), facts(w)) < 1e-9
    w, scaled = replace(w, eps=1e-2), replace(scaled, eps=1e-2)
    assert abs(scaled.predict(p) - w.predict(p)).max() > 1e-4
    assert distance(facts(scaled), facts(w)) > 1e-4


# -- all the rest is seen ----------------------------------------------------------------------------------


def run(f: Facts, tokens):
    """The forward pass from the facts alone."""
    Q = tokens @ f.embedding.T
    for layer, numbers in enumerate([f.first, *f.later]):
        read = tokens if layer == 0 else Q
        H = np.einsum("msa,mbc,abcd->msd", read, read.mT @ read, numbers)
        # The D-th component, along the ones-vector, is zero, hence the sum over D − 1 others by D.
        Q[..., 1:] += H / np.sqrt((H**2).sum(-1, keepdims=True) / D + f.floor[layer])
    return (Q * f.read_out).sum((1, 2)) + f.b_out


@pytest.mark.parametrize("eps", [0.0, 1e-2])
@pytest.mark.parametrize("start", STARTS)
def test_facts_are_enough_to_run_the_network(start, eps):
    w, p = replace(STARTS[start], eps=eps, b_out=0.3), sample_prompts(100, 10, seed=8)
    assert np.allclose(run(facts(w), p.tokens()), w.predict(p), rtol=1e-8, atol=1e-8)


def test_facts_have_as_many_free_numbers_as_the_answers_have_directions():
    """408 weights less 117 invisible directions, chapter 1; five of them in the embedding."""
    w, step = random_network(1, rows=51), 1e-6
    names = ("W_in", "W1", "W2", "W3", "W_out")

    def flat(arrays):
        f = facts(replace(w, **arrays))
        return np.concatenate(
            [getattr(f, name).ravel() for name in ("embedding", "first", "later", "read_out")]
        )

    columns = []
    for name in names:
        array = getattr(w, name)
        for index in np.ndindex(array.shape):
            nudge = np.zeros(array.shape)
            nudge[index] = step
            columns.append((flat({name: array + nudge}) - flat({name: array - nudge})) / (2 * step))
    jacobian = np.array(columns)
    assert len(jacobian) == 408
    assert np.linalg.matrix_rank(jacobian, tol=1e-5) == 291
    assert np.linalg.matrix_rank(jacobian[:12, :12], tol=1e-5) == 5


@pytest.mark.parametrize("name", ["W_in", "W1", "W2", "W3", "W_out", "b_out"])
def test_a_small_real_change_is_found_under_a_full_disguise(name):
    w, rng = random_network(6, eps=1e-2), np.random.default_rng(7)
    array = getattr(w, name)
    faulty = replace(w, **{name: array + 1e-5 * rng.choice([-1.0, 1.0], np.shape(array))})
    assert distance(facts(disguised(faulty, rng)), facts(w)) > 1e-7
    assert distance(facts(disguised(w, rng)), facts(w)) < 1e-9


@pytest.mark.parametrize("change", [inside_heads, among_heads, row_means, embedding, unseen_by_layer_1])
def test_a_change_with_a_fault_in_it_is_no_symmetry(change):
    """One of the arrays that a change touches is left behind: both the answers and the facts must tell."""
    w, p = random_network(9), sample_prompts(100, 10, seed=10)
    other = change(w, np.random.default_rng(11))
    touched = [n for n in ("W_in", "W1", "W2", "W3", "W_out") if (getattr(other, n) != getattr(w, n)).any()]
    # Kinds 4 and 6 change each array for itself: their fault is a change in the wrong place.
    wrong = {
        row_means: {"W2": w.W2 + (other.W2 - w.W2) * np.eye(D)[0]},
        unseen_by_layer_1: {"W3": w.W3 + (other.W3 - w.W3)[::-1]},
    }
    for fault in [wrong[change]] if change in wrong else [{name: getattr(w, name)} for name in touched]:
        faulty = replace(other, **fault)
        assert abs(faulty.predict(p) - w.predict(p)).max() > 1e-3
        assert distance(facts(faulty), facts(w)) > 1e-3


# -- the sparsest basis ------------------------------------------------------------------------------------


def test_the_sparsest_basis_is_found_again_under_a_disguise():
    w, p = random_network(16), sample_prompts(9, 10, seed=1)
    plain, hidden = (sparsest(v, starts=10, seed=15) for v in (w, disguised(w, np.random.default_rng(14))))
    assert l1_norm(plain) < 0.95 * l1_norm(w)
    assert np.isclose(l1_norm(hidden), l1_norm(plain), rtol=1e-3)
    assert np.allclose(hidden.predict(p), w.predict(p), rtol=1e-8, atol=1e-8)


def test_no_basis_nearby_is_sparser():
    """Against the norm itself, evaluated at small steps in random directions."""
    found = sparsest(random_network(16), starts=0, seed=0)
    rng = np.random.default_rng(17)
    for _ in range(200):
        turn = np.linalg.qr(np.eye(D - 1) + 1e-2 * rng.standard_normal((D - 1, D - 1)))
        near = layer_norm_basis(
            turn[0] * np.sign(np.diag(turn[1])), np.ones(D) + 1e-2 * rng.standard_normal(D)
        )
        assert l1_norm(change_basis(found, near)) > (1 - 1e-3) * l1_norm(found)


# -- named cells and bad input -----------------------------------------------------------------------------


def test_permutation_moves_the_named_cells():
    w, p = closed_form(10, 2.0), sample_prompts(9, 10, seed=1)
    moved = permute(w, [2, 0, 3, 1])
    assert (moved.W_in == w.W_in[[2, 0, 3, 1]]).all()
    assert (moved.W_out == w.W_out[:, [2, 0, 3, 1]]).all()
    T = np.eye(4)[:, [2, 0, 3, 1]]
    assert distance(facts(change_basis(w, T)), facts(moved)) < 1e-9 * np.abs(facts(w).read_out).max()
    back = query_cell_third(moved)
    assert np.abs(back.W_out[-1]).argmax() == 2
    assert np.allclose(back.predict(p), w.predict(p))


def test_without_layer_norm_any_invertible_basis_will_do():
    w, p = replace(random_network(12), layer_norm=False), sample_prompts(9, 10, seed=1)
    T = invertible(np.random.default_rng(13), D, D)
    assert np.allclose(change_basis(w, T).predict(p), w.predict(p), rtol=1e-8, atol=1e-8)
    with pytest.raises(ValueError, match="lengths of vectors of mean zero"):
        change_basis(replace(w, layer_norm=True), layer_norm_basis(2 * np.eye(3), np.ones(4)))


def test_what_is_no_symmetry_is_refused():
    w = random_network(9)
    with pytest.raises(ValueError, match="sends vectors of mean zero elsewhere"):
        change_basis(w, ortho_group.rvs(4, random_state=np.random.default_rng(1)))
    with pytest.raises(ValueError, match="not invertible"):
        change_basis(w, layer_norm_basis(np.eye(3), np.array([1.0, -1.0, 2.0, -2.0])))
    with pytest.raises(ValueError, match="needs layer norm"):
        facts(replace(w, layer_norm=False))
    with pytest.raises(ValueError, match="D = P \\+ 1"):
        facts(replace(w, W_in=np.ones((4, 4))))
    with pytest.raises(ValueError, match="no basis of its own"):
        facts(replace(w, W_in=np.ones((4, 3))))
    with pytest.raises(ValueError, match="sum to zero"):
        facts(replace(w, W_in=w.W_in - w.W_in.mean(axis=0)))

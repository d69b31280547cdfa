"""Stacks of heads on sequences and on graphs, each against its algorithm written out."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from icl_lib.heads import electric, next_complex_token, next_token, richardson, run
from tests.arrays import close_overall, generator, seeds

small = st.integers(1, 5)

# -- sequences


@given(seeds, small)
def test_next_token_is_one_step_on_the_sequence(seed, d):
    s = np.concatenate([np.zeros((1, d)), generator(seed).standard_normal((8, d))])
    tokens = np.concatenate([np.zeros((8, d)), s[1:], s[:-1]], axis=1)[None]
    gradient = sum(np.outer(s[i], s[i - 1]) for i in range(1, 9))
    close_overall(run(tokens, next_token(d, 0.1), masked=False)[-1][0, -1, :d], 0.1 * gradient @ s[-1])


@given(seeds, small)
def test_next_complex_token_takes_two_real_heads(seed, d):
    parts = generator(seed).standard_normal((2, 9, d))
    s = parts[0] + 1j * parts[1]
    s[0] = 0

    def real(z):
        return np.concatenate([z.real, z.imag], axis=1)

    tokens = np.concatenate([np.zeros((8, 2 * d)), real(s[1:]), real(s[:-1])], axis=1)[None]
    expected = 0.1 * sum(s[i] * (s[i - 1].conj() @ s[-1]) for i in range(1, 9))
    answer = run(tokens, next_complex_token(d, 0.1), masked=False)[-1][0, -1, : 2 * d]
    close_overall(answer, real(expected[None])[0])


# -- graphs


def graph(seed, vertices=8):
    """Signed incidence (V, E) of a connected weighted graph, and a demand that sums to 0."""
    rng = generator(seed)
    pairs = [(i, i + 1) for i in range(vertices - 1)] + [(0, vertices - 1), (1, 4), (2, 6)]
    B = np.zeros((vertices, len(pairs)))
    for edge, (i, j) in enumerate(pairs):
        B[[i, j], edge] = np.array([1, -1]) * np.exp(rng.uniform(-1, 1))
    psi = rng.standard_normal(vertices)
    return B, psi - psi.mean()


@given(seeds, st.integers(0, 12))
def test_richardson_runs_on_the_laplacian(seed, steps):
    B, psi = graph(seed)
    L = B @ B.T
    rate, phi = 1 / float(np.linalg.norm(L, 2)), np.zeros(len(psi))
    for _ in range(steps):
        phi = phi + rate * (psi - L @ phi)
    tokens = np.concatenate([B, np.eye(len(B)), psi[:, None], 0 * psi[:, None]], axis=1)[None]
    stack = richardson(B.shape[1], len(B), steps, rate)
    close_overall(run(tokens, stack, masked=False)[-1][0, :, -1], phi)


@given(seeds)
def test_electric_reads_the_pseudo_inverse_and_the_resistances(seed):
    B, psi = graph(seed)
    inverse_L, alpha = np.linalg.pinv(B @ B.T), 1 / np.linalg.norm(B, 2) ** 2
    tokens = np.concatenate([B, alpha * B, psi[:, None], 0 * psi[:, None]], axis=1)[None]
    states = run(tokens, electric(B.shape[1], 14), masked=False)
    close_overall(states[-1][0, :, -1], inverse_L @ psi, 1e-9)
    z = 2.0**14 * states[-1][0, :, B.shape[1] : -2]
    distance = ((z[:, None] - z) ** 2).sum(2)
    diagonal_L = np.diag(inverse_L)
    close_overall(distance, diagonal_L[:, None] + diagonal_L - 2 * inverse_L, 1e-9)

"""Exact moments and fits against prompts, against the heads that they stand for, and against closed forms."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icl_lib.fits import (
    RESULTS,
    StackConfig,
    fit_layer,
    fit_stack,
    gaussian_moments,
    gram_matrices,
    layer_loss,
    load_fits,
    sampled_moments,
    save_fits,
    stack_answer,
    stack_loss,
)
from icl_lib.heads import diagonal, preconditioned, recursion

seeds = st.integers(0, 2**32)


def generator(seed):
    return np.random.Generator(np.random.PCG64(seed))


def test_exact_moments_are_the_limit_of_sampled_ones():
    d, n, noise = 2, 5, 0.3
    rng = generator(1)
    X, w = rng.standard_normal((200_000, n, d)), rng.standard_normal((200_000, d))
    y = (X @ w[..., None])[..., 0] + noise**0.5 * rng.standard_normal((200_000, n))
    sampled, exact = sampled_moments(X, y, w), gaussian_moments(np.eye(d), np.eye(d), n, noise)
    for name, share in (("second", 0.03), ("cross", 0.01), ("size", 0.01)):
        got, wanted = getattr(sampled, name), getattr(exact, name)
        assert np.abs(got - wanted).max() < share * np.abs(wanted).max()
    wrong = gaussian_moments(np.eye(d), np.eye(d), n + 1, noise)  # hidden fault: one point too many
    assert np.abs(wrong.second - sampled.second).max() > 0.03 * np.abs(wrong.second).max()


@given(st.integers(1, 4), st.integers(1, 40), st.floats(0, 3), st.floats(0.1, 5))
@settings(max_examples=20)
def test_the_rate_has_its_closed_form(d, n, noise, tau2):
    moments = gaussian_moments(np.eye(d), tau2 * np.eye(d), n, noise)
    assert np.isclose(moments.rate / n, tau2 / (tau2 * (n + d + 1) + noise), rtol=1e-11)


def test_the_layer_loss_is_the_mean_over_prompts():
    rng = generator(2)
    X, v = rng.standard_normal((50, 7, 3)), rng.standard_normal((50, 3))
    y, A, u = rng.standard_normal((50, 7)), rng.standard_normal((3, 4)), rng.standard_normal(4)
    Z = np.concatenate([X, y[..., None]], axis=2)
    direct = ((Z.mT @ Z / 7 @ u @ A.T - v) ** 2).sum(axis=1).mean()
    loss = layer_loss(torch.tensor(A), torch.tensor(u), sampled_moments(X, y, v))
    assert np.isclose(loss.item(), direct, rtol=1e-11)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_training_every_entry_ends_at_one_step(seed):
    d, n, noise = 3, 10, 0.5
    covariance = np.diag([2.0, 1.0, 0.5])
    moments = gaussian_moments(covariance, np.linalg.inv(covariance), n, noise)
    fit, loss = fit_layer(moments, seed, read_y=True)
    eta = 1 / (n + d + 1 + noise)
    expected = n * eta * np.linalg.inv(covariance)
    assert np.linalg.norm(fit["A"][:, :d] * fit["u"][d] - expected) < 1e-5 * np.linalg.norm(expected)
    assert np.isclose(loss, d * (d + 1 + noise) * eta, rtol=1e-9)
    assert np.linalg.norm(fit["A"][:, :d] * fit["u"][d] - n * eta * np.eye(d)) > 0.1


@given(seeds, st.integers(1, 3))
@settings(max_examples=20)
def test_a_stack_answers_what_its_heads_answer(seed, layers):
    rng = generator(seed)
    config = StackConfig("preconditioned", layers, (1.0, 1.0, 1.0), noise=1.0)
    S, _, _ = gram_matrices(config, 20, 1)
    A, B, omega = (0.1 * rng.standard_normal((layers, *shape)) for shape in ((3, 3), (3, 3), (4,)))
    for stack, parameters in (
        (preconditioned(A, B), {"A": A, "B": B}),
        (diagonal(3, omega), {"omega": omega}),
    ):
        answer = stack_answer({k: torch.tensor(v) for k, v in parameters.items()}, torch.tensor(S))
        expected = -recursion(S, stack)[-1][:, :-1, -1]
        assert np.allclose(answer.numpy(), expected, rtol=1e-9, atol=1e-11 * (1 + np.abs(expected).max()))
        if layers > 1:  # hidden fault: a layer left out is seen
            short = -recursion(S, stack[1:])[-1][:, :-1, -1]
            assert not np.allclose(answer.numpy(), short, rtol=1e-3)


def test_whitening_takes_one_problem_to_another():
    """w ~ N(0, Σ⁻¹): the loss at A = aΣ⁻¹, B = bI does not depend on Σ."""
    losses = []
    for eigenvalues in ((1.0, 1.0, 1.0), (4.0, 1.0, 0.25)):
        config = StackConfig("preconditioned", 2, eigenvalues)
        S, w, _ = gram_matrices(config, 40_000, 1)
        A = np.multiply.outer([0.8, 1.1], np.linalg.inv(config.covariance))
        B = np.multiply.outer([-0.2, 0.0], np.eye(3))
        tensors = map(torch.tensor, (S, w, config.covariance))
        losses.append(stack_loss({"A": torch.tensor(A), "B": torch.tensor(B)}, *tensors).item())
    assert abs(losses[0] / losses[1] - 1) < 0.1


def test_a_config_regenerates_its_bits(tmp_path):
    config = StackConfig("diagonal", 2, (1.0, 1.0), prompts=200, iterations=5, noise=1.0)
    first, second = fit_stack(config), fit_stack(config)
    assert first[1] == second[1]
    assert (first[0]["omega"] == second[0]["omega"]).all()
    save_fits(tmp_path / "fits.json", {"one": (config, *first)})
    read_config, arrays, loss = load_fits(tmp_path / "fits.json")["one"]
    assert (read_config, loss) == (config, first[1])
    assert (arrays["omega"] == first[0]["omega"]).all()


def test_a_stored_fit_is_what_its_config_gives():
    """The cheapest stored fit; another processor may differ in the last bits, hence not to the bit here."""
    config, arrays, loss = load_fits(RESULTS / "gallery.json")["diagonal, L = 1"]
    again, loss_again = fit_stack(config)
    assert np.allclose(again["omega"], arrays["omega"], rtol=1e-5, atol=1e-7)
    assert np.isclose(loss, loss_again, rtol=1e-10)


def test_an_unknown_kind_is_named():
    with pytest.raises(ValueError, match="kind is 'softmax', expected"):
        StackConfig("softmax", 1, (1.0,))

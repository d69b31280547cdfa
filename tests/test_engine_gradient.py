"""The kernels' gradients against PyTorch's autograd, and against differences of the kernels' own loss."""

from functools import cache

import numpy as np
import pytest
import torch

from icl_lib.engine.buffers import make_parameters, make_records, make_workspace
from icl_lib.engine.layers import LANES
from icl_lib.engine.network import make_network
from icl_lib.transformer import Architecture, Transformer

# The paper's network; three layers without layer norm; one layer, eps = 0; odd sizes, a large eps; D below P.
CASES = {
    "paper": (Architecture(), 1e-5, 1.0),
    "descent": (Architecture(4, 3, 2, 7, 3, layer_norm=False), 1e-5, 0.125),
    "one layer": (Architecture(3, 1, 1, 5, 3), 0.0, 1.0),
    "odd": (Architecture(5, 3, 3, 6, 4), 1e-2, 0.5),
    "narrow": (Architecture(2, 2, 1, 6, 3), 0.3, 2.0),  # D = 2 with eps = 0 would only pass on signs
}
RELATIVE = 1e-9


@cache
def compiled(case):
    architecture, eps, scale = CASES[case]
    return make_network(architecture, eps=eps, attention_scale=scale, output_bias=True, dtype=np.float64)


def draw(case, count, seed=0, size=0.5):
    """Random weights, tokens and targets for a case."""
    architecture, rng = CASES[case][0], np.random.default_rng(seed)
    theta = size * rng.standard_normal(architecture.n_weights + 1)
    tokens = rng.standard_normal((count, architecture.rows, architecture.features))
    return theta, tokens, rng.standard_normal(count)


def ours(case, theta, tokens, targets):
    """Loss and flat gradient from the kernels."""
    architecture = CASES[case][0]
    grad = np.full_like(theta, np.nan)  # what is not set shows
    loss = compiled(case).gradient(
        make_parameters(theta, architecture),
        make_records(tokens, targets, np.float64),
        np.arange(len(targets)),
        make_parameters(grad, architecture),
        make_workspace(architecture, np.float64),
    )
    return loss, grad


def autograd(case, theta, tokens, targets):
    """The same from the literal model."""
    architecture, eps, scale = CASES[case]
    module = Transformer(architecture, eps=eps, dtype=torch.float64)
    parts = make_parameters(torch.tensor(theta).numpy(), architecture)._asdict()
    parts["W_out"] = parts["output"].reshape(architecture.rows, architecture.dim)
    parts["b_out"] = parts["bias"].reshape(())
    state = {
        name: torch.tensor(parts[name] * (scale if name == "W2" else 1.0)) for name in architecture.shapes
    }
    module.load_state_dict(state)
    loss = ((module(torch.tensor(tokens)) - torch.tensor(targets)) ** 2).mean()
    loss.backward()
    factors = {"W2": scale}
    grads = [
        factors.get(name, 1.0) * getattr(module, name).grad.numpy().ravel() for name in architecture.shapes
    ]
    return loss.item(), np.concatenate(grads)


def differs(case, found, expected):
    """The matrices in which two gradients differ by more than RELATIVE of the matrix's largest entry."""
    wrong, at = [], 0
    for name, shape in CASES[case][0].shapes.items():
        part = slice(at, at + int(np.prod(shape)))
        at = part.stop
        if not np.abs(found[part] - expected[part]).max() <= RELATIVE * np.abs(expected[part]).max():
            wrong.append(name)
    return wrong


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("count", [1, LANES + 5])
def test_gradient_is_autograd_s(case, count):
    drawn = draw(case, count)
    (loss, grad), (expected_loss, expected) = ours(case, *drawn), autograd(case, *drawn)
    assert np.isclose(loss, expected_loss, rtol=RELATIVE, atol=0)
    assert differs(case, grad, expected) == []


@pytest.mark.parametrize("case", CASES)
def test_gradient_at_a_tiny_variance(case):
    # H shrinks with the fifth power of the weights: its variance is far below every eps but 0.
    drawn = draw(case, 40, seed=1, size=1e-2)
    assert differs(case, ours(case, *drawn)[1], autograd(case, *drawn)[1]) == []


@pytest.mark.parametrize("case", ["paper", "odd"])  # with eps = 0 a layer without a live head divides 0 by 0
def test_gradient_with_dead_heads(case):
    theta, tokens, targets = draw(case, 40, seed=2)
    parts = make_parameters(theta, CASES[case][0])
    parts.W3[0, 0] = 0.0
    parts.W1[1] = 0.0
    (_, grad), (_, expected) = ours(case, theta, tokens, targets), autograd(case, theta, tokens, targets)
    assert differs(case, grad, expected) == []
    assert (make_parameters(grad, CASES[case][0]).W1[0, 0] == 0).all()


def test_gradient_is_the_slope_of_the_loss():
    theta, tokens, targets = draw("paper", 20, seed=3, size=0.2)
    _, grad = ours("paper", theta, tokens, targets)
    rng, step = np.random.default_rng(4), 1e-7
    for _ in range(5):
        direction = rng.standard_normal(theta.size)
        up, down = (ours("paper", theta + s * direction, tokens, targets)[0] for s in (step, -step))
        assert np.isclose((up - down) / (2 * step), grad @ direction, rtol=1e-6)


def test_a_wrong_entry_would_be_seen():
    drawn = draw("paper", 8)
    grad, expected = ours("paper", *drawn)[1], autograd("paper", *drawn)[1]
    at = np.abs(expected[:12]).argmax()  # in W_in
    grad[at] *= 1 + 1e-8
    assert differs("paper", grad, expected) == ["W_in"]


def test_nothing_is_left_over_from_the_last_batch():
    drawn, other = draw("descent", 40), draw("descent", 3, seed=9)
    network, architecture = compiled("descent"), CASES["descent"][0]
    work = make_workspace(architecture, np.float64)
    theta, grad = (
        make_parameters(drawn[0], architecture),
        make_parameters(np.zeros(drawn[0].size), architecture),
    )
    for _, tokens, targets in (drawn, other, drawn):
        packed = make_records(tokens, targets, np.float64)
        network.gradient(theta, packed, np.arange(len(targets)), grad, work)
    assert (grad.flat == ours("descent", *drawn)[1]).all()


def test_prediction_is_the_model_s():
    theta, tokens, _ = draw("paper", LANES + 1)
    answer = np.empty(len(tokens))
    architecture = CASES["paper"][0]
    compiled("paper").predict(
        make_parameters(theta, architecture),
        make_records(tokens, np.zeros(len(tokens)), np.float64),
        np.arange(len(tokens)),
        answer,
        make_workspace(architecture, np.float64),
    )
    # Against target 0, each prompt alone, the loss is the squared answer.
    for i, value in enumerate(answer):
        assert np.isclose(
            value**2, autograd("paper", theta, tokens[i : i + 1], np.zeros(1))[0], rtol=RELATIVE
        )


@pytest.mark.parametrize("spoil", [np.nan, np.inf])
def test_records_refuse_numbers_that_are_none(spoil):
    tokens, targets = np.ones((4, 5, 3)), np.ones(4)
    tokens[2, 1, 0] = spoil
    with pytest.raises(ValueError, match="finite"):
        make_records(tokens, targets, np.float32)
    with pytest.raises(ValueError, match=r"\(3,\)"):
        make_records(np.ones((4, 5, 3)), np.ones(3), np.float32)

"""One pass over the training prompts: gradient, penalty, and PyTorch's Adam, AdamW or SGD."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from icl_lib.engine.config import TrainingConfig
from icl_lib.engine.layers import compiled, inlined
from icl_lib.engine.network import Network, make_network


@lru_cache(maxsize=64)
def make_update(
    *,
    optimiser: str,
    beta1: float,
    beta2: float,
    adam_eps: float,
    momentum: float,
    weight_decay: float,
    dtype: type,
) -> Callable[..., None]:
    """Compile one optimiser step, `update(theta, grad, mean, square, powers, rate)`, all but `rate` in place.

    `mean` and `square` are Adam's running averages of the gradient and its square; SGD keeps its velocity in
    `mean`. `powers` (2,), float64, holds β1^t and β2^t as running products: a library's pow may differ
    between machines. Formulas as in torch.optim.
    """
    ONE = dtype(1.0)
    B1, B2, MU = dtype(beta1), dtype(beta2), dtype(momentum)
    C1, C2, EPS, DECAY = dtype(1.0 - beta1), dtype(1.0 - beta2), dtype(adam_eps), dtype(weight_decay)
    decoupled, adam = optimiser == "adamw", optimiser != "sgd"

    @inlined
    def update(theta, grad, mean, square, powers, rate):  # type: ignore[no-untyped-def]
        powers[0] *= beta1
        powers[1] *= beta2
        step = dtype(rate / (1.0 - powers[0])) if adam else dtype(rate)
        root = dtype(np.sqrt(1.0 - powers[1]))
        shrink = ONE - dtype(rate) * DECAY
        for i in range(theta.shape[0]):
            g = grad[i]
            if decoupled:
                theta[i] *= shrink
            else:
                g += DECAY * theta[i]
            if adam:
                mean[i] = B1 * mean[i] + C1 * g
                square[i] = B2 * square[i] + C2 * g * g
                theta[i] -= step * (mean[i] / (np.sqrt(square[i]) / root + EPS))
            else:
                mean[i] = MU * mean[i] + g
                theta[i] -= step * mean[i]

    return update


@lru_cache(maxsize=64)
def make_pass(network: Network, update: Callable[..., None], output_at: int, input_size: int, dtype: type):  # type: ignore[no-untyped-def]
    """Compile one pass over the data: `run(theta, ..., order, batch, rate, l1_in, l1_out, ...)` -> mean loss.

    The penalty's gradient is λ·sign(w), 0 at 0, on W_in (the first `input_size` weights) and on W_out (from
    `output_at` up to the bias, the last weight).
    """
    gradient = network.gradient
    ZERO = dtype(0.0)

    @inlined
    def penalise(weights, grad, rate):  # type: ignore[no-untyped-def]
        for i in range(weights.shape[0]):
            if weights[i] > ZERO:
                grad[i] += rate
            elif weights[i] < ZERO:
                grad[i] -= rate

    @compiled
    def run(theta, mean, square, powers, rate, l1_in, l1_out, records, order, batch, grad, work):  # type: ignore[no-untyped-def]
        total, steps = 0.0, 0
        for start in range(0, order.shape[0], batch):
            total += gradient(theta, records, order[start : start + batch], grad, work)
            steps += 1
            penalise(theta.input, grad.input, l1_in)
            penalise(theta.output, grad.output, l1_out)
            update(theta.flat, grad.flat, mean, square, powers, rate)
        return total / steps

    return run


def compile_config(config: TrainingConfig) -> tuple[Network, Callable[..., float]]:
    """The compiled network and pass of a config; configs that differ in data or schedule alone share them."""
    architecture, dtype = config.architecture, config.numpy_dtype
    network = make_network(
        architecture,
        eps=config.eps,
        attention_scale=config.attention_scale,
        output_bias=config.output_bias,
        dtype=dtype,
    )
    update = make_update(
        optimiser=config.optimiser,
        beta1=config.beta1,
        beta2=config.beta2,
        adam_eps=config.adam_eps,
        momentum=config.momentum,
        weight_decay=config.weight_decay,
        dtype=dtype,
    )
    input_size = architecture.dim * architecture.features
    output_at = architecture.n_weights - architecture.rows * architecture.dim
    return network, make_pass(network, update, output_at, input_size, dtype)

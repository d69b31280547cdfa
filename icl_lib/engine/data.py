"""The data of a run: which stream of random numbers draws what, and prompts packed for the kernels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.random import PCG64, Generator, SeedSequence

from icl_lib.engine.buffers import make_records
from icl_lib.engine.config import TrainingConfig
from icl_lib.prompts import Tasks, sample_tasks
from icl_lib.solvers import least_squares

# One child of the seed for each purpose. The first key sets them apart from what `sample_tasks(seed=…)`
# draws.
STREAMS = {"train": 0, "validation": 1, "weights": 2, "shuffle": 3, "fresh": 4}
KEY = 0x1C1
# Test prompts come from an entropy no config can have (its seeds are below 2**63).
TEST_ENTROPY = 0xF2A3_91D5_6C07_48BE_A1D3_5E92_0B7C_4F68

TARGETS: dict[str, Callable[[Tasks], np.ndarray]] = {
    "least_squares": lambda tasks: least_squares(tasks.prompts),
    "noisy": lambda tasks: tasks.line() + tasks.query_noise,
    "noiseless": Tasks.line,
}


def stream(seed: int, purpose: str, *more: int) -> SeedSequence:
    """The seed sequence of one purpose of a run; `more` numbers the epochs of fresh data."""
    return SeedSequence(seed, spawn_key=(KEY, STREAMS[purpose], *more))


def draw(config: TrainingConfig, count: int, sequence: SeedSequence) -> Tasks:
    """`count` tasks from the config's distribution."""
    return sample_tasks(
        count,
        config.n_context,
        seed=sequence,
        noise_std=config.noise_std,
        query_std=config.query_std,
        x_std=config.x_std,
    )


def records(config: TrainingConfig, count: int, sequence: SeedSequence) -> np.ndarray:
    """`count` prompts with their targets, packed as `make_records` does."""
    tasks = draw(config, count, sequence)
    tokens, targets = tasks.prompts.tokens(config.prompt), TARGETS[config.target](tasks)
    return make_records(tokens, targets, config.numpy_dtype)


def first_weights(config: TrainingConfig) -> np.ndarray:
    """The flat initial weights: uniform within ± init_scale / sqrt(fan-in), matrix after matrix.

    The fan-in is the length of what a matrix multiplies: P for W_in, D for W1, W2, W3, and S·D for W_out and
    b_out. b_out starts at 0 unless it is trained.
    """
    architecture = config.architecture
    rng = Generator(PCG64(stream(config.seed, "weights")))
    flat = architecture.rows * architecture.dim
    fan_in = {"W_in": architecture.features, "W_out": flat, "b_out": flat}
    parts = []
    for name, shape in architecture.shapes.items():
        bound = config.init_scale / np.sqrt(fan_in.get(name, architecture.dim))
        parts.append(bound * (2.0 * rng.random(int(np.prod(shape))) - 1.0))
    if not config.output_bias:
        parts[-1][:] = 0.0
    return np.concatenate(parts).astype(config.numpy_dtype)

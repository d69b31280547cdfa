"""Test errors of trained networks on many sets of the paper's size: how far can one such test be trusted?"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from jaxtyping import Float64
from numpy.random import SeedSequence
from safetensors.numpy import save

from icl_lib.engine import Trainer, TrainingConfig
from icl_lib.engine.checkpoint import write_whole
from icl_lib.engine.data import TEST_ENTROPY, records
from icl_lib.study import load_study
from icl_lib.weights import Weights

SETS, SET_SIZE = 200, 1000  # the paper tests each network on one set of 1000 prompts
KEY = 0x5E75  # sets these prompts apart from those of the study's test error


def set_errors(config: TrainingConfig, weights: Weights) -> Float64[np.ndarray, "sets"]:
    """Test error of a network on each of 200 sets of 1000 new prompts, the same sets for every network.

    Args:
        config: what it was trained by; says how prompts are drawn, and in which arithmetic to test.
        weights: the network.

    Returns:
        Mean squared differences to the least squares answer, (200,), in units of y². Computed by the engine:
        the same bits on every processor.

    Raises:
        ValueError: the weights do not fit the config.
    """
    config = config.model_copy(update={"target": "least_squares"})
    network = Trainer(config, weights)
    seeds = (SeedSequence(TEST_ENTROPY, spawn_key=(KEY, number)) for number in range(SETS))
    return np.array([network.error(records(config, SET_SIZE, seed), network.theta) for seed in seeds])


def measure_sets(folder: str | Path) -> dict[str, Float64[np.ndarray, "sets"]]:
    """`set_errors` of every network of a study by run id, written to `sets.safetensors` in its folder.

    Raises:
        FileNotFoundError: no study there.
        ValueError: weights that do not match the table's digest.
    """
    table, weights = load_study(folder)
    errors = {}
    for row in table[table.digest.notna()].to_dict("records"):
        config = TrainingConfig(**{name: row[name] for name in TrainingConfig.model_fields})
        errors[row["id"]] = set_errors(config, weights[row["id"]])
    write_whole(Path(folder) / "sets.safetensors", save(errors))
    return errors

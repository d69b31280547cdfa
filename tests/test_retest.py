"""Many small tests of trained networks: right values, separate prompts, kept by run id."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.random import SeedSequence
from safetensors.numpy import load_file, save_file

from icl_lib import least_squares, retest
from icl_lib.engine import Trainer, TrainingConfig
from icl_lib.engine.data import TEST_ENTROPY, draw
from icl_lib.retest import KEY, measure_sets, set_errors
from icl_lib.study import load_study

SMALL = {"n_context": 6, "n_train": 20, "n_validation": 10, "batch_size": 10, "epochs": 2, "target": "noisy"}
CONFIGS = [TrainingConfig.paper(seed, **SMALL) for seed in (1, 2)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A study of two networks as they start: untrained ones err too."""
    networks = {config.id: Trainer(config).weights for config in CONFIGS}
    rows = [{"id": c.id, **c.model_dump(), "digest": networks[c.id].digest} for c in CONFIGS]
    pd.DataFrame(rows).to_csv(tmp_path / "table.csv", index=False)
    arrays = {f"{name}/{key}": a for name, w in networks.items() for key, a in w.arrays().items()}
    save_file(arrays, tmp_path / "weights.safetensors")
    return tmp_path


@pytest.fixture(autouse=True)
def few_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retest, "SETS", 3)


def test_set_errors_are_those_of_the_literal_network(folder):
    config, weights = CONFIGS[0], load_study(folder)[1][CONFIGS[0].id]
    found = set_errors(config, weights)
    for number, error in enumerate(found):
        prompts = draw(config, 1000, SeedSequence(TEST_ENTROPY, spawn_key=(KEY, number))).prompts
        # The target is least squares, though the config's is a noisy output.
        assert np.isclose(error, ((weights.predict(prompts) - least_squares(prompts)) ** 2).mean(), rtol=1e-4)
    assert len(set(found)) == 3


def test_sets_share_no_prompt_with_the_study_s_test():
    config = CONFIGS[0]
    mine = [draw(config, 50, SeedSequence(TEST_ENTROPY, spawn_key=(KEY, n))).prompts.query for n in range(3)]
    theirs = [draw(config, 50, SeedSequence(TEST_ENTROPY, spawn_key=(n,))).prompts.query for n in range(10)]
    queries = np.concatenate(mine + theirs)
    assert len(np.unique(queries)) == len(queries)


def test_measured_sets_are_kept_by_run_id(folder):
    errors = measure_sets(folder)
    kept = load_file(folder / "sets.safetensors")
    assert set(kept) == {config.id for config in CONFIGS}
    for config in CONFIGS:
        assert (kept[config.id] == errors[config.id]).all()
    assert (kept[CONFIGS[0].id] != kept[CONFIGS[1].id]).all()


def test_no_study_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"table\.csv"):
        measure_sets(tmp_path)

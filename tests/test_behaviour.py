"""Learners and distances by their definitions, and the training of small decoders."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icl_lib import behaviour
from icl_lib.behaviour import DecoderConfig, answers, implied_weights, ridge_weights, spd
from icl_lib.programs import sherman_morrison
from tests.arrays import close, generator, seeds
from tests.regressions import examples, ridge


@settings(max_examples=15, deadline=None)
@given(seeds, st.integers(1, 5), st.sampled_from([0.0, 0.3, 2.0]))
def test_ridge_weights_solve_their_problem(seed, n, penalty):
    x, y, _ = examples(seed, n, 3)
    w = ridge_weights(x[:, :-1], y[:, :-1], penalty)
    if penalty:
        close(np.einsum("md,md->m", w, x[:, -1]), ridge(x, y, penalty), 1e-9)
    else:
        expected = [np.linalg.lstsq(X, Y)[0] for X, Y in zip(x[:, :-1], y[:, :-1], strict=True)]
        close(w, np.array(expected), 1e-6 * np.linalg.cond(x[:, :-1]).max())


def test_ridge_weights_refuse_a_negative_penalty():
    with pytest.raises(ValueError, match="penalty is -1"):
        ridge_weights(np.ones((1, 2, 1)), np.ones((1, 2)), -1.0)


def test_implied_weights_of_a_program_are_its_weights():
    x, y, _ = examples(8, 2, 2)
    probes = generator(9).standard_normal((8, 5, 2))
    found = implied_weights(sherman_morrison(2, 2, 1.0).compile(), x[:, :2], y[:, :2], probes)
    close(found, ridge_weights(x[:, :2], y[:, :2], 1.0), 1e-9)


def test_spd_is_a_mean_square_over_contexts():
    assert spd(np.array([[1.0, 2.0], [3.0, 2.0]]), np.zeros((2, 2))).tolist() == [5.0, 4.0]


TINY = DecoderConfig(layers=2, seed=3, width=8, heads=2, units=8, steps=30, batch=8, pairs=3)


def test_training_repeats_lowers_the_error_and_depends_on_the_seed():
    first, again, other = (behaviour.train(c) for c in (TINY, TINY, TINY.model_copy(update={"seed": 4})))
    for a, b in zip(first.parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(first.W_e, other.W_e)
    x, y, _ = behaviour.sample_contexts(TINY, 500, generator(0))
    assert spd(answers(first, x, y), y).mean() < spd(answers(behaviour.initialise(TINY), x, y), y).mean()


def test_an_answer_depends_on_nothing_later():
    x, y, _ = behaviour.sample_contexts(TINY, 5, generator(1))
    decoder = behaviour.initialise(TINY).double()
    before = answers(decoder, x, y)
    x[:, 2], y[:, 1:] = 9.0, 9.0
    close(answers(decoder, x, y)[:, :2], before[:, :2], 1e-12)
    assert np.abs(answers(decoder, x, y)[:, 2] - before[:, 2]).min() > 1e-3


def test_a_fixed_task_has_one_weight_vector():
    control = TINY.model_copy(update={"fixed_task": True})
    x, y, w = behaviour.sample_contexts(control, 4, generator(2))
    assert (w == 1).all()
    close(y, x.sum(axis=2), 1e-12)


def test_a_study_is_resumed_and_read_back(tmp_path, monkeypatch):
    path = tmp_path / "runs.json"
    configs = [TINY.model_copy(update={"steps": 2, "seed": seed}) for seed in (1, 2)]
    monkeypatch.setattr(behaviour, "study", lambda: configs[:1])
    behaviour.train_study(path)
    first = json.loads(path.read_text())
    monkeypatch.setattr(behaviour, "study", lambda: configs)
    behaviour.train_study(path)
    assert first.items() <= json.loads(path.read_text()).items()
    found = behaviour.load_study(path)
    assert list(found) == configs
    for config, decoder in found.items():
        for a, b in zip(decoder.parameters(), behaviour.train(config).parameters(), strict=True):
            assert torch.equal(a, b)

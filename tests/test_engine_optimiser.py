"""Optimiser steps, penalty and schedule against torch.optim on the literal model."""

import numpy as np
import pytest
import torch

from icl_lib.engine import Trainer, TrainingConfig

BASE = TrainingConfig(
    seed=3, n_context=5, n_train=25, batch_size=10, n_validation=5, dim=3, heads=1, layers=1, epochs=4,
    validate_every=1, shuffle=False, dtype="float64", l1=0.01, output_bias=True, learning_rate=0.01,
)  # fmt: skip
CASES = {
    "adam": {},
    "adam with decays": {"weight_decay": 0.1, "learning_rate_decay": 0.5, "l1_reduction": "mean"},
    "adamw": {"optimiser": "adamw", "weight_decay": 0.1, "beta1": 0.8, "beta2": 0.99, "adam_eps": 1e-6},
    "sgd": {"optimiser": "sgd", "momentum": 0.9, "weight_decay": 0.1, "output_bias": False},
}


def with_torch(config):
    """Train the literal model by PyTorch; its weights after each epoch."""
    trainer = Trainer(config)
    rows, features = config.architecture.rows, config.architecture.features
    data = torch.tensor(trainer.train_records)
    tokens, targets = data[:, : rows * features].reshape(-1, rows, features), data[:, -1]
    module = trainer.weights.to_torch()
    module.b_out.requires_grad_(config.output_bias)
    weights = [p for p in module.parameters() if p.requires_grad]
    adam = {"betas": (config.beta1, config.beta2), "eps": config.adam_eps}
    optimiser = {
        "adam": lambda **common: torch.optim.Adam(weights, **adam, **common),
        "adamw": lambda **common: torch.optim.AdamW(weights, **adam, **common),
        "sgd": lambda **common: torch.optim.SGD(weights, momentum=config.momentum, **common),
    }[config.optimiser](lr=config.learning_rate, weight_decay=config.weight_decay)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimiser, config.learning_rate_decay)
    for _ in range(config.epochs):
        for start in range(0, config.n_train, config.batch_size):
            batch = slice(start, start + config.batch_size)
            size = torch.sum if config.l1_reduction == "sum" else torch.mean
            penalty = config.l1 * (size(module.W_in.abs()) + size(module.W_out.abs()))
            optimiser.zero_grad()
            (((module(tokens[batch]) - targets[batch]) ** 2).mean() + penalty).backward()
            optimiser.step()
        schedule.step()
        yield (
            np.concatenate([p.detach().numpy().ravel() for p in module.parameters()]),
            float(penalty.detach()),
        )


@pytest.mark.parametrize("case", CASES)
def test_training_is_pytorch_s(case):
    # 25 prompts in batches of 10: the last batch of an epoch is a small one.
    config = BASE.model_copy(update=CASES[case])
    trainer = Trainer(config)
    for epoch, (expected, _) in enumerate(with_torch(config), start=1):
        trainer.advance(epoch)
        assert np.allclose(trainer.theta, expected, rtol=1e-9, atol=1e-10)
    assert not np.allclose(trainer.theta, Trainer(config).theta, atol=1e-3)


def test_history_holds_error_and_penalty_of_the_validated_epochs():
    config = BASE.model_copy(update={"epochs": 5, "validate_every": 2})
    trainer = Trainer(config)
    trainer.advance(5)
    history = trainer.run().history
    assert history.epoch.tolist() == [2, 4, 5]  # the last one too
    weights = trainer.weights
    penalty = config.l1 * (np.abs(weights.W_in).sum() + np.abs(weights.W_out).sum())
    assert np.isclose(history.penalty[-1], penalty, rtol=1e-12)
    assert np.isclose(history.validation[-1], trainer.error(trainer.validation_records, trainer.theta))
    data = trainer.validation_records
    answer = weights.predict(data[:, :18].reshape(-1, 6, 3))
    assert np.isclose(history.validation[-1], ((answer - data[:, -1]) ** 2).mean(), rtol=1e-9)


def test_a_penalty_can_count_in_the_validation():
    # Weights driven to zero by the penalty: the error grows while error and penalty together fall.
    config = BASE.model_copy(update={"l1": 1.0, "epochs": 30})
    best = {}
    for counted in (False, True):
        trainer = Trainer(config.model_copy(update={"l1_in_validation": counted}))
        trainer.advance(30)
        history = trainer.run().history
        score = history.validation + (history.penalty if counted else 0)
        best[counted] = trainer.run().best_epoch
        assert best[counted] == history.epoch[score.argmin()]
        assert trainer.run().validation == history.validation[score.argmin()]
    assert best[False] != best[True]

"""`train`: run a config to its end, keeping the weights with the lowest validation error."""

from __future__ import annotations

import hashlib
import math
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import PCG64, Generator
from rich.progress import Progress

from icl_lib.engine.checkpoint import load_checkpoint, save_checkpoint
from icl_lib.engine.config import TrainingConfig
from icl_lib.engine.data import first_weights, records, stream
from icl_lib.engine.optimiser import compile_config
from icl_lib.weights import Weights

EARLY = 200  # the epoch whose weights' digest a run records, so that its start can be checked in a second
CHECKPOINT_SECONDS = 20.0


@dataclass(frozen=True, eq=False)
class History:
    """What was seen at each validated epoch; arrays of equal length.

    epoch: counted from 1. loss: mean squared error over that epoch's steps, while the weights moved.
    penalty: the ℓ1 term after the epoch. validation: mean squared error on the validation prompts.
    """

    epoch: np.ndarray
    loss: np.ndarray
    penalty: np.ndarray
    validation: np.ndarray


@dataclass(frozen=True, eq=False)
class Run:
    """A trained network.

    weights: those of the lowest validation error. best_epoch: when that was; 0 if no epoch was validated.
    validation: that error. early_digest: digest of the weights after epoch 200, "" in a shorter run.
    outcome: "finished", or "diverged at epoch E": the loss or a weight stopped being finite there; the weights are
    then the best until that moment.
    """

    config: TrainingConfig
    weights: Weights
    history: History
    best_epoch: int
    validation: float
    early_digest: str
    outcome: str

    @property
    def id(self) -> str:
        """The config's id."""
        return self.config.id


class Trainer:
    """A run in progress: `advance` to an epoch, read `weights`, save and load at any epoch.

    Args:
        config: what to train.
        initial: weights to start from instead of drawn ones; shapes and layer norm as in the config.

    Raises:
        ValueError: `initial` does not fit the config.
    """

    def __init__(self, config: TrainingConfig, initial: Weights | None = None) -> None:
        self.config = config
        self.network, self.pass_over = compile_config(config)
        self.work = self.network.workspace()
        self.theta = first_weights(config) if initial is None else self._flat(initial)
        self.grad = np.zeros_like(self.theta)
        self.mean, self.square = np.zeros_like(self.theta), np.zeros_like(self.theta)
        self.powers = np.ones(2)
        self.rate = config.learning_rate
        self.epoch, self.outcome, self.early_digest = 0, "", ""
        self.best, self.best_epoch, self.best_score, self.best_error = self.theta.copy(), 0, math.inf, math.inf
        self.shuffler = Generator(PCG64(stream(config.seed, "shuffle")))
        self.seen: list[tuple[int, float, float, float]] = []

        self._key = f"{config.id} from {hashlib.sha256(self.theta.tobytes()).hexdigest()[:16]}"

    @cached_property
    def train_records(self) -> np.ndarray:
        """The fixed training prompts; drawn when first needed."""
        return records(self.config, self.config.n_train, stream(self.config.seed, "train"))

    @cached_property
    def validation_records(self) -> np.ndarray:
        """The validation prompts."""
        return records(self.config, self.config.n_validation, stream(self.config.seed, "validation"))

    @property
    def weights(self) -> Weights:
        """The weights as they stand."""
        return self._weights(self.theta)

    def run(self) -> Run:
        """The result so far."""
        columns = np.array(self.seen).reshape(-1, 4).T
        history = History(columns[0].astype(int), *columns[1:])
        return Run(
            self.config,
            self._weights(self.best),
            history,
            self.best_epoch,
            self.best_error,
            self.early_digest,
            self.outcome or ("finished" if self.epoch == self.config.epochs else f"stopped at epoch {self.epoch}"),
        )

    def advance(self, epoch: int) -> None:
        """Train up to and including `epoch`, validating where the config says so; stop if it diverges."""
        config = self.config
        scale = {"sum": (1.0, 1.0), "mean": (1.0 / self._W_in.size, 1.0 / self._W_out.size)}[config.l1_reduction]
        l1_in, l1_out = (config.numpy_dtype(config.l1 * s) for s in scale)
        order = np.arange(config.n_train)
        while self.epoch < min(epoch, config.epochs) and not self.outcome:
            self.epoch += 1
            if config.fresh:
                data = records(config, config.n_train, stream(config.seed, "fresh", self.epoch))
            else:
                data = self.train_records
                if config.shuffle:
                    order = self.shuffler.permutation(config.n_train)
            loss = self.pass_over(
                self.theta, self.mean, self.square, self.powers, self.rate, l1_in, l1_out,
                data, order, config.batch_size, self.grad, self.work,
            )  # fmt: skip
            self.rate *= config.learning_rate_decay
            if not (math.isfinite(loss) and np.isfinite(self.theta).all()):
                self.outcome = f"diverged at epoch {self.epoch}"
                return
            if self.epoch % config.validate_every == 0 or self.epoch == config.epochs:
                self._validate(loss, float(l1_in), float(l1_out))
            if self.epoch == EARLY:
                self.early_digest = self.weights.digest

    def error(self, data: np.ndarray, theta: np.ndarray) -> float:
        """Mean squared error of flat weights on records, in the kernels' arithmetic, summed exactly."""
        answer = np.empty(len(data), self.config.numpy_dtype)
        self.network.predict(theta, data, np.arange(len(data)), answer, self.work)
        difference = answer.astype(np.float64) - data[:, -1]
        return math.fsum(difference * difference) / len(data)

    def _validate(self, loss: float, l1_in: float, l1_out: float) -> None:
        penalty = l1_in * math.fsum(np.abs(self._W_in)) + l1_out * math.fsum(np.abs(self._W_out))
        error = self.error(self.validation_records, self.theta)
        self.seen.append((self.epoch, loss, penalty, error))
        score = error + penalty if self.config.l1_in_validation else error
        if score < self.best_score:
            self.best, self.best_epoch = self.theta.copy(), self.epoch
            self.best_score, self.best_error = score, error

    @property
    def _W_in(self) -> np.ndarray:
        return self.theta[: self.config.dim * self.config.architecture.features]

    @property
    def _W_out(self) -> np.ndarray:
        return self.theta[-1 - (self.config.n_context + 1) * self.config.dim : -1]

    # -- weights in and out ------------------------------------------------------------------------

    def _weights(self, theta: np.ndarray) -> Weights:
        arrays, at = {}, 0
        for name, shape in self.config.architecture.shapes.items():
            size = int(np.prod(shape))
            arrays[name] = theta[at : at + size].reshape(shape)
            at += size
        arrays["W2"] = arrays["W2"] * self.config.numpy_dtype(self.config.attention_scale)
        arrays["b_out"] = float(arrays["b_out"])
        return Weights(**arrays, layer_norm=self.config.layer_norm, eps=self.config.eps)

    def _flat(self, initial: Weights) -> np.ndarray:
        if initial.architecture != self.config.architecture:
            raise ValueError(
                f"initial weights are of {initial.architecture}, the config trains {self.config.architecture}; "
                "change one to match the other"
            )
        arrays = initial.arrays()
        arrays["W2"] = arrays["W2"] / self.config.attention_scale
        return np.concatenate([array.ravel() for array in arrays.values()]).astype(self.config.numpy_dtype)

    # -- checkpoints -------------------------------------------------------------------------------

    def save(self, path: Path) -> None:
        """Write everything that `load` needs to go on to the same bits."""
        arrays = {name: getattr(self, name) for name in ("theta", "mean", "square", "powers", "best")}
        arrays["seen"] = np.array(self.seen).reshape(-1, 4)
        numbers = ("epoch", "outcome", "early_digest", "rate", "best_epoch", "best_score", "best_error")
        meta: dict[str, Any] = {name: getattr(self, name) for name in numbers}
        meta |= {"shuffler": self.shuffler.bit_generator.state}
        save_checkpoint(path, arrays, meta, self._key)

    def load(self, path: Path) -> None:
        """Take up where `save` left off.

        Raises:
            CheckpointError: see `load_checkpoint`.
        """
        arrays, meta = load_checkpoint(path, self._key)
        self.seen = [(int(row[0]), *row[1:]) for row in arrays.pop("seen").tolist()]
        self.shuffler.bit_generator.state = meta.pop("shuffler")
        for name, value in (arrays | meta).items():
            setattr(self, name, value)


def train(
    config: TrainingConfig,
    *,
    initial: Weights | None = None,
    checkpoint: str | Path | None = None,
    progress: bool = False,
) -> Run:
    """Train to the last epoch.

    Args:
        config: what to train.
        initial: weights to start from instead of drawn ones.
        checkpoint: a file to go on from if it exists, written every 20 seconds and at the end.
        progress: show a bar.

    Raises:
        ValueError: `initial` does not fit the config.
        CheckpointError: the checkpoint is damaged or another run's.
        OSError: the checkpoint cannot be written; the last whole one stays.
    """
    trainer = Trainer(config, initial)
    path = None if checkpoint is None else Path(checkpoint)
    if path is not None and path.exists():
        trainer.load(path)
    saved = time.monotonic()
    with Progress(disable=not progress) as bar:
        task = bar.add_task(f"run {config.id}", total=config.epochs, completed=trainer.epoch)
        while trainer.epoch < config.epochs and not trainer.outcome:
            trainer.advance(trainer.epoch + config.validate_every)
            bar.update(task, completed=trainer.epoch)
            if path is not None and time.monotonic() - saved > CHECKPOINT_SECONDS:
                trainer.save(path)
                saved = time.monotonic()
    if path is not None:
        trainer.save(path)
    return trainer.run()

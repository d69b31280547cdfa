"""`train`: run a config to its end, keeping the weights with the lowest validation error."""

from __future__ import annotations

import hashlib
import math
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.random import PCG64, Generator
from rich.progress import Progress

from icl_lib.engine.buffers import make_parameters, make_workspace
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

    epoch: counted from 1.
    loss: mean squared error over that epoch's steps, while the weights moved.
    penalty: the ℓ1 term after the epoch.
    validation: mean squared error on the validation prompts.
    """

    epoch: np.ndarray
    loss: np.ndarray
    penalty: np.ndarray
    validation: np.ndarray


@dataclass(frozen=True, eq=False)
class Run:
    """A trained network.

    weights: those of the lowest validation error.
    best_epoch: when that was; 0 if the run diverged before any validation.
    validation: that error.
    early_digest: digest of the weights after epoch 200, "" in a shorter run.
    outcome: "finished", or "diverged at epoch E" where the loss or a weight stopped being finite; the weights
        are then the best until that moment.
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
    """A run in progress: `advance` to an epoch, look at `weights`, save and load between epochs.

    Args:
        config: what to train.
        initial: weights to start from instead of drawn ones; architecture as in the config.

    Raises:
        ValueError: `initial` does not fit the config.
    """

    # What a checkpoint holds: arrays, which the kernels change in place, and plain values.
    ARRAYS = ("theta", "mean", "square", "powers", "best")
    VALUES = ("epoch", "rate", "outcome", "early_digest", "best_epoch", "best_score", "best_error")

    def __init__(self, config: TrainingConfig, initial: Weights | None = None) -> None:
        self.config = config
        self._network, self._pass = compile_config(config)
        self._work = make_workspace(config.architecture, config.numpy_dtype)
        self.theta = first_weights(config) if initial is None else self._flat(initial)
        # A checkpoint belongs to a config and to the weights it began with.
        self._key = f"{config.id} from {hashlib.sha256(self.theta.tobytes()).hexdigest()[:16]}"
        self.mean, self.square, self.best = (np.zeros_like(self.theta) for _ in range(3))
        self.best[:] = self.theta
        self.powers = np.ones(2)
        self._parameters = make_parameters(self.theta, config.architecture)
        self._gradient = make_parameters(np.zeros_like(self.theta), config.architecture)
        self.epoch, self.rate = 0, config.learning_rate
        self.outcome, self.early_digest = "", ""
        self.best_epoch, self.best_score, self.best_error = 0, math.inf, math.inf
        self._shuffler = Generator(PCG64(stream(config.seed, "shuffle")))
        self._seen: list[list[float]] = []

    @cached_property
    def train_records(self) -> np.ndarray:
        """The fixed training prompts, packed; drawn when first needed."""
        return records(self.config, self.config.n_train, stream(self.config.seed, "train"))

    @cached_property
    def validation_records(self) -> np.ndarray:
        """The validation prompts, packed."""
        return records(self.config, self.config.n_validation, stream(self.config.seed, "validation"))

    @property
    def weights(self) -> Weights:
        """The weights as they stand."""
        return self._weights(self.theta)

    @property
    def done(self) -> bool:
        """The last epoch is over, or the run diverged."""
        return self.epoch == self.config.epochs or bool(self.outcome)

    def run(self) -> Run:
        """The result so far."""
        columns = np.array(self._seen).reshape(-1, 4).T
        history = History(columns[0].astype(np.int64), *columns[1:])
        outcome = self.outcome or ("finished" if self.done else f"stopped at epoch {self.epoch}")
        best = self._weights(self.best)
        return Run(self.config, best, history, self.best_epoch, self.best_error, self.early_digest, outcome)

    def advance(self, epoch: int) -> None:
        """Train up to and including `epoch`, validating where the config says so; stop if it diverges."""
        config, parts = self.config, self._parameters
        sizes = (parts.input.size, parts.output.size) if config.l1_reduction == "mean" else (1, 1)
        l1_in, l1_out = (config.numpy_dtype(config.l1 * (1.0 / size)) for size in sizes)
        while self.epoch < epoch and not self.done:
            self.epoch += 1
            data, order = self._epoch_data()
            loss = self._pass(
                parts, self.mean, self.square, self.powers, self.rate, l1_in, l1_out,
                data, order, config.batch_size, self._gradient, self._work,
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
        """Mean squared error of flat weights on packed prompts, in the kernels' arithmetic."""
        answer = np.empty(len(data), data.dtype)
        parts = make_parameters(theta, self.config.architecture)
        self._network.predict(parts, data, np.arange(len(data)), answer, self._work)
        difference = answer.astype(np.float64) - data[:, -1]
        return math.fsum(difference * difference) / len(data)

    def _epoch_data(self) -> tuple[np.ndarray, np.ndarray]:
        count = self.config.n_train
        if self.config.fresh:
            sequence = stream(self.config.seed, "fresh", self.epoch)
            return records(self.config, count, sequence), np.arange(count)
        if self.config.shuffle:
            return self.train_records, self._shuffler.permutation(count)
        return self.train_records, np.arange(count)

    def _validate(self, loss: float, l1_in: float, l1_out: float) -> None:
        parts = self._parameters
        penalty = l1_in * math.fsum(np.abs(parts.input)) + l1_out * math.fsum(np.abs(parts.output))
        error = self.error(self.validation_records, self.theta)
        self._seen.append([self.epoch, loss, penalty, error])
        score = error + penalty if self.config.l1_in_validation else error
        if score < self.best_score:
            self.best[:] = self.theta
            self.best_epoch, self.best_score, self.best_error = self.epoch, score, error

    # -- weights in and out ------------------------------------------------------------------------

    def _weights(self, theta: np.ndarray) -> Weights:
        parts = make_parameters(theta, self.config.architecture)
        return Weights(
            W_in=parts.W_in,
            W1=parts.W1,
            W2=parts.W2 * theta.dtype.type(self.config.attention_scale),
            W3=parts.W3,
            W_out=parts.output.reshape(self.config.architecture.shapes["W_out"]),
            b_out=float(parts.bias[0]),
            layer_norm=self.config.layer_norm,
            eps=self.config.eps,
        )

    def _flat(self, initial: Weights) -> np.ndarray:
        if initial.architecture != self.config.architecture:
            raise ValueError(
                f"initial weights are of {initial.architecture}, "
                f"the config trains {self.config.architecture}; change one to match the other"
            )
        arrays = initial.arrays()
        arrays["W2"] = arrays["W2"] / self.config.attention_scale
        return np.concatenate([array.ravel() for array in arrays.values()]).astype(self.config.numpy_dtype)

    # -- checkpoints -------------------------------------------------------------------------------

    def save(self, path: Path) -> None:
        """Write everything that `load` needs to go on to the same bits."""
        arrays = {name: getattr(self, name) for name in self.ARRAYS}
        arrays["seen"] = np.array(self._seen).reshape(-1, 4)
        values: dict[str, object] = {name: getattr(self, name) for name in self.VALUES}
        values["shuffler"] = self._shuffler.bit_generator.state
        save_checkpoint(path, arrays, values, self._key)

    def load(self, path: Path) -> None:
        """Take up where `save` left off.

        Raises:
            CheckpointError: see `load_checkpoint`.
        """
        arrays, values = load_checkpoint(path, self._key)
        for name in self.ARRAYS:
            getattr(self, name)[:] = arrays[name]
        for name in self.VALUES:
            setattr(self, name, values[name])
        self._seen = arrays["seen"].tolist()
        self._shuffler.bit_generator.state = values["shuffler"]


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
        while not trainer.done:
            trainer.advance(trainer.epoch + config.validate_every)
            bar.update(task, completed=trainer.epoch)
            if path is not None and time.monotonic() - saved > CHECKPOINT_SECONDS:
                trainer.save(path)
                saved = time.monotonic()
    if path is not None:
        trainer.save(path)
    return trainer.run()

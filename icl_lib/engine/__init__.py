"""Training: strict IEEE kernels that give the same bits on every processor."""

from icl_lib.engine.checkpoint import CheckpointError
from icl_lib.engine.config import TrainingConfig
from icl_lib.engine.train import History, Run, Trainer, train

__all__ = ["CheckpointError", "History", "Run", "Trainer", "TrainingConfig", "train"]

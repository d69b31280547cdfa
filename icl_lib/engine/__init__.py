"""Training: strict IEEE kernels that give the same bits on every processor."""

from icl_lib.engine.checkpoint import CheckpointError
from icl_lib.engine.config import TrainingConfig
from icl_lib.engine.train import EARLY, History, Run, Trainer, train

__all__ = ["EARLY", "CheckpointError", "History", "Run", "Trainer", "TrainingConfig", "train"]

"""Training, checkpoints and results; nothing here prints or reads the command line."""

from jlgcn.train.checkpoint import load_checkpoint, save_checkpoint
from jlgcn.train.distributed import distribute
from jlgcn.train.fit import TrainConfig, fit
from jlgcn.train.fit_clouds import CloudTrainConfig, fit_clouds
from jlgcn.train.loop import FitResult

__all__ = [
    "CloudTrainConfig",
    "FitResult",
    "TrainConfig",
    "distribute",
    "fit",
    "fit_clouds",
    "load_checkpoint",
    "save_checkpoint",
]

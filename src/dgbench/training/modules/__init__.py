"""The LightningModules that train an algorithm: one run, or many runs of one shape at once."""

from dgbench.training.modules.base import RunModule
from dgbench.training.modules.factory import training_module
from dgbench.training.modules.single import SingleRun
from dgbench.training.modules.stacked import StackedRuns

__all__ = ["RunModule", "SingleRun", "StackedRuns", "training_module"]

"""Test-time adaptation: what happens to a trained model on the unlabeled images it is tested on."""

from dgbench.trained.adaptation.contract import Adaptation, Adapter

__all__ = ["Adaptation", "Adapter"]

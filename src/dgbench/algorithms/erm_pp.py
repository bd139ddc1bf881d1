"""ERM++: the classifier first, then everything."""

from __future__ import annotations

from collections.abc import Sequence

from dgbench.objectives.contract import Algorithm, ParamGroup, Update
from dgbench.objectives.step import Outcome, Step


class ERMPlusPlus(Algorithm):
    """Train the classifier alone, then all weights (Teterwak et al., 2025; DomainBed).

    L = CE(f(X), Y) over all N rows. Steps t = 0, ..., ``linear_steps`` (one more than it says, as
    in DomainBed) train the classifier with an Adam of its own at ``linear_lr``; from then on a new
    Adam trains featurizer and classifier.

    DomainBed's ERM++ also predicts with a moving average, ``averaging=eoa averaging.rule.start=600
    averaging.rule.flavor=renewed`` here; starts from a ResNet-50 pretrained with AugMix; and leaves
    BatchNorm unfrozen. The second training of its ``train_autolr.py``, on all images of the
    training environments, with the length and the learning rates that a first one found, is not
    made here, nor is its option ``lars``, which fails there.
    """

    static = frozenset({"linear_steps"})

    def param_groups(self) -> dict[str, ParamGroup]:
        return {
            "linear": ParamGroup(("classifier",), "linear_lr"),
            "model": ParamGroup(("featurizer", "classifier")),
        }

    def updates(self, step: int) -> Sequence[Update]:
        group = "linear" if step <= self.values["linear_steps"] else "model"
        return (Update(self.objective, (group,)),)

    def objective(self, s: Step) -> Outcome:
        return Outcome(s.risk(s.logits()))

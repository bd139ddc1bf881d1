"""CLIPood's margin metric softmax."""

from __future__ import annotations

from collections.abc import Sequence

from torch.nn import functional as F

from dgbench.objectives.contract import Algorithm, ParamGroup, Update
from dgbench.objectives.step import Outcome, Step


class CLIPood(Algorithm):
    """Ask for a margin that is larger for less similar classes, with fixed class vectors
    (Shu et al., 2023; its code).

    With row w_k of the classifier and its direction u_k = w_k / |w_k|, the objective is

        L = CE(W (z - margin u_Y) + b, Y).

    Only the featurizer is trained, by AdamW: the class vectors w_k stay what ``head`` made them.
    With ``head=zero_shot`` features have length one and w_k is T t_k, the text of class k of length
    one times the encoder's scale T; the logits are then T (cos(z, t_k) - margin cos(t_Y, t_k)), the
    authors'. Other heads have class vectors without a meaning, and the margin is in units of z.
    Predictions know no margin.

    The margin is ``lambda`` among the options of the code and is read there as ``alpha``; its
    scripts set 0.3, and 0.1 where test images are of new environments and of new classes. The
    method averages weights, too: ``backbone=vit_b16_clip head=zero_shot algorithm=clipood
    averaging=beta``.
    """

    pools = True

    def param_groups(self) -> dict[str, ParamGroup]:
        return {"featurizer": ParamGroup(("featurizer",), optimizer="adamw")}

    def updates(self, step: int) -> Sequence[Update]:
        return (Update(self.objective, ("featurizer",)),)

    def objective(self, s: Step) -> Outcome:
        class_vectors = s.networks.params("classifier")["classifier.weight"].detach()  # (K, m)
        directions = F.normalize(class_vectors, dim=1)
        shifted = s.features() - s.hp.margin * directions[s.y]
        return Outcome(s.risk(s.networks.classifier(shifted)))

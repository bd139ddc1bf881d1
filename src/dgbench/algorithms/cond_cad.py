"""Contrastive adversarial domain bottleneck within classes."""

from __future__ import annotations

from dgbench.algorithms.cad import CAD


class CondCAD(CAD):
    """CAD among the images of one class (Ruan et al., 2022; DomainBed).

    L and switches are those of :class:`CAD`; row i is compared with the other rows of its class
    only, and counts if one of these rows is of another environment.

    DomainBed's projection before P is left out as in CAD.
    """

    conditional = True

"""What an algorithm is called here, in papers, and in the code of DomainBed, OoD-Bench and NICO++."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources

import yaml

CODES = ("domainbed", "ood_bench", "nico")


@cache
def algorithm_names() -> Mapping[str, Mapping[str, str]]:
    """Our name -> ``title``, and the name in each of :data:`CODES` that has the algorithm."""
    text = (resources.files("dgbench") / "reports" / "algorithm_names.yaml").read_text(encoding="utf-8")
    found: dict[str, dict[str, str]] = yaml.safe_load(text)
    return found


def our_name(name: str) -> str:
    """Any of an algorithm's names -> ours; an unknown name stays as it is.

    Case and what stands between letters and digits do not matter. What follows a ``+`` is an averaging and stays:
    ``JiGen+SWAD`` is ``ji_gen+SWAD``.
    """
    known = _known()
    if found := known.get(_bare(name)):
        return found
    first, plus, rest = name.partition("+")
    return known.get(_bare(first), first) + plus + rest


@cache
def _known() -> Mapping[str, str]:
    return {_bare(other): ours for ours, others in algorithm_names().items() for other in (ours, *others.values())}


def _bare(name: str) -> str:
    return "".join(letter for letter in name.lower().replace("++", "pp") if letter.isalnum())

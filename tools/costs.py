"""``make costs``: count what models of usual studies take, for plans that load no torch.

Writes ``src/dgbench/sweeps/costs.json`` (:mod:`dgbench.sweeps.costs`) for every algorithm, with its
default hyperparameters, on the networks and datasets below. An entry whose code and packages are
what they were is kept, and those of other code are dropped. With ``--check`` nothing is counted or
written, and what is missing is an error.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # run as a script, only tools/ is there

from benchmarks.made_study import config_of  # noqa: E402
from dgbench.configuration import CONF  # noqa: E402
from dgbench.errors import ConfigError, reason_of  # noqa: E402
from dgbench.plan.compose import Composed  # noqa: E402
from dgbench.plan.studies import PlannedStudy, Planner  # noqa: E402
from dgbench.records.files import read_json, write_whole  # noqa: E402
from dgbench.sweeps.costs import FILE, shipped_key  # noqa: E402

#: datasets of photographs that DomainBed has, and the networks that papers train on them
DATASETS = ("pacs", "vlcs", "office_home", "terra_incognita", "domain_net")
BACKBONES = ("resnet18", "resnet50_pretrained")
#: more networks, on the first of the datasets
MORE_BACKBONES = ("resnet50", "vit_b16")
SAVED_AFTER = 20  #: studies


def usual_studies() -> Iterator[tuple[str, ...]]:
    """Yield the words of every study whose cost is shipped."""
    algorithms = sorted(file.stem for file in (CONF / "algorithm").glob("*.yaml"))
    places = [*product(DATASETS, BACKBONES), *product(DATASETS[:1], MORE_BACKBONES)]
    for (dataset, backbone), algorithm in product(places, algorithms):
        yield (f"dataset={dataset}", f"backbone={backbone}", f"algorithm={algorithm}")


def planned(words: Sequence[str]) -> PlannedStudy:
    """Plan a study whose images and initial weights need not be here."""
    folder = tempfile.gettempdir()
    composed = Composed.of_plain(config_of([*words, "dataset.root=nowhere"]), folder)
    return Planner(None, Path(folder), fetch_weights=False).study([], composed)


def costs_of(studies: Sequence[Sequence[str]], known: dict[str, Any]) -> dict[str, Any]:
    """Count the costs of studies, unless they are known.

    Args:
        studies: words of each.
        known: costs by key.

    Returns:
        The costs of these studies alone, by key. One that cannot be trained is named and left out.
    """
    from dgbench.training.cost import count

    costs = {}
    for number, words in enumerate(studies, 1):
        try:
            study = planned(words)
            key = shipped_key(study)
            costs[key] = known[key] if key in known else asdict(count(study))
        except ConfigError as error:
            print(f"left out: {' '.join(words)}: {reason_of(error)}")
        if number % SAVED_AFTER == 0:
            write_whole(FILE, text_of(known | costs))
            print(f"{number} of {len(studies)}", flush=True)
    return costs


def missing(studies: Sequence[Sequence[str]], known: dict[str, Any]) -> list[str]:
    """List the words of studies whose cost is not known."""
    return [" ".join(words) for words in studies if shipped_key(planned(words)) not in known]


def text_of(costs: dict[str, Any]) -> str:
    """Write costs as JSON with a line for each, in the order of their keys."""
    lines = [f'"{key}": {json.dumps(costs[key], separators=(",", ":"))}' for key in sorted(costs)]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main(words: Sequence[str]) -> int:
    """Bring the file up to date, or check it; return the exit code."""
    studies = list(usual_studies())
    known = read_json(FILE) if FILE.is_file() else {}
    if "--check" in words:
        absent = missing(studies, known)
        if absent:
            print(
                f"{len(absent)} costs of the package are of other code, such as {absent[0]}; "
                "make costs"
            )
        return int(bool(absent))
    write_whole(FILE, text_of(costs_of(studies, known)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

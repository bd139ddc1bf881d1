"""The table of names: every algorithm is in it, and every name leads back to one."""

from __future__ import annotations

import pytest

from dgbench.configuration import CONF
from dgbench.reports.labels import CODES, algorithm_names, our_name
from dgbench.reports.published import published

OURS = sorted(path.stem for path in (CONF / "algorithm").glob("*.yaml"))
#: names in DomainBed's list of algorithms (b93c22a)
DOMAINBED = [
    "ERM", "Fish", "IRM", "GroupDRO", "Mixup", "MLDG", "CORAL", "MMD", "DANN", "CDANN", "MTL", "SagNet", "ARM",
    "VREx", "RSC", "SD", "ANDMask", "SANDMask", "IGA", "SelfReg", "Fishr", "TRM", "IB_ERM", "IB_IRM", "CAD",
    "CondCAD", "Transfer", "CausIRL_CORAL", "CausIRL_MMD", "EQRM", "RDM", "ADRMX", "ERMPlusPlus", "URM",
]  # fmt: skip


def test_every_algorithm_has_its_names() -> None:
    assert sorted(algorithm_names()) == OURS
    for names in algorithm_names().values():
        assert names.keys() <= {"title", *CODES} and names["title"]


def test_every_name_means_one_algorithm() -> None:
    for ours, names in algorithm_names().items():
        assert {our_name(name) for name in (ours, *names.values())} == {ours}
    assert sorted(names["domainbed"] for names in algorithm_names().values() if "domainbed" in names) == sorted(
        DOMAINBED
    )


@pytest.mark.parametrize(
    ("name", "ours"),
    [("VREx", "vrex"), ("V-REx", "vrex"), ("ERM++", "erm_pp"), ("jigen+swad", "ji_gen+swad"), ("Mine", "Mine")],
)
def test_names_as_people_write_them(name: str, ours: str) -> None:
    assert our_name(name) == ours


def test_published_rows_have_our_names() -> None:
    rows = published("zhang2023_table2").values
    assert {"stable_net", "ada_clust", "ji_gen", "erm+swad", "(oracle)"} <= rows.keys()

"""The table of names: every algorithm is in it, and every name leads back to one."""

from __future__ import annotations

import pytest

from dgbench.configuration import CONF
from dgbench.errors import ConfigError
from dgbench.plan.names import CODES, algorithm_names, in_our_names, our_name, refuse_options
from dgbench.reports.published import published

OURS = sorted(path.stem for path in (CONF / "algorithm").glob("*.yaml"))
#: names in DomainBed's list of algorithms (b93c22a)
DOMAINBED = [
    "ERM", "Fish", "IRM", "GroupDRO", "Mixup", "MLDG", "CORAL", "MMD", "DANN", "CDANN", "MTL",
    "SagNet", "ARM", "VREx", "RSC", "SD", "ANDMask", "SANDMask", "IGA", "SelfReg", "Fishr", "TRM",
    "IB_ERM", "IB_IRM", "CAD", "CondCAD", "Transfer", "CausIRL_CORAL", "CausIRL_MMD", "EQRM", "RDM",
    "ADRMX", "ERMPlusPlus", "URM",
]  # fmt: skip


def test_every_algorithm_has_its_names() -> None:
    assert sorted(algorithm_names()) == OURS
    for names in algorithm_names().values():
        assert names.keys() <= {"title", *CODES} and names["title"]


def test_every_name_means_one_algorithm() -> None:
    for ours, names in algorithm_names().items():
        assert {our_name(name) for name in (ours, *names.values())} == {ours}
    assert sorted(
        names["domainbed"] for names in algorithm_names().values() if "domainbed" in names
    ) == sorted(DOMAINBED)


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("VREx", "vrex"),
        ("V-REx", "vrex"),
        ("ERM++", "erm_pp"),
        ("jigen+swad", "ji_gen+swad"),
        ("Mine", "Mine"),
    ],
)
def test_names_as_people_write_them(name: str, ours: str) -> None:
    assert our_name(name) == ours


def test_published_rows_have_our_names() -> None:
    rows = published("zhang2023_table2").values
    assert {"stable_net", "ada_clust", "ji_gen", "erm+swad", "(oracle)"} <= rows.keys()


@pytest.mark.parametrize(
    ("word", "ours"),
    [
        ("algorithm=VREx", "algorithm=vrex"),
        ("algorithm=ERM,IRM,GroupDRO", "algorithm=erm,irm,group_dro"),
        ("grid.algorithm=[ERM++, CausIRL_CORAL]", "grid.algorithm=[erm_pp, caus_irl_coral]"),
        ("dataset=PACS,OfficeHome,ColoredMNIST", "dataset=pacs,office_home,cmnist_domainbed"),
        ("algorithm=choice(ERM,GroupDRO)", "algorithm=choice(erm,group_dro)"),
        ("algorithm=glob([irm*,*IRM])", "algorithm=glob([irm*,*irm])"),
        ("algorithm=my_Own", "algorithm=my_Own"),
        ("backbone=ERM", "backbone=ERM"),
        ("algorithm", "algorithm"),
    ],
)
def test_choices_by_any_of_their_names(word: str, ours: str) -> None:
    assert in_our_names([word]) == [ours]
    assert in_our_names(["--config-dir=conf", word])[1] == word, (
        "a file of the user's own may have the name"
    )


def test_options_of_domainbed_get_the_command_that_is_meant() -> None:
    with pytest.raises(
        ConfigError, match=r"dataset=pacs algorithm=group_dro hparams\.draw=3 plan=true$"
    ):
        refuse_options(
            ["--dataset", "PACS", "--algorithm=GroupDRO", "--hparams_seed", "3", "plan=true"],
            "train",
        )
    with pytest.raises(
        ConfigError, match=r"algorithm=erm 'protocol\.folds=\[0,1\]' 'dataset\.root=my images'$"
    ):
        refuse_options(
            ["--algorithm", "ERM", "protocol.folds=[0,1]", "dataset.root=my images"], "train"
        )
    refuse_options(["--help", "--cfg", "job", "-m", "algorithm=erm"], "train")
    refuse_options(["--cfg=job", "--config-dir=conf"], "train")
    with pytest.raises(
        ConfigError, match=r"^--hparams.lr=0.01: .* hparams.lr=0.01; .*args_no_hyphens"
    ):
        refuse_options(["--hparams.lr=0.01"], "train")

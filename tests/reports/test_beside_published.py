"""Published tables beside ours: by dataset and by domain, at which settings,
and under which names.
"""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from dgbench.analysis.selection import Last, LooVal, Selection, TrainVal
from dgbench.configuration import CONF
from dgbench.errors import ConfigError
from dgbench.plan.domainbed_names import DATASETS
from dgbench.reports.document import Document
from dgbench.reports.published import boards, published
from dgbench.reports.ranking.report import LeaderboardReport
from dgbench.reports.reading.collect import collect
from dgbench.reports.tables import Table
from tests.shift.synthetic import shift_identity, shift_row, write_shifts
from tests.tables import line

PACS = ["art_painting", "cartoon", "photo", "sketch"]
RESNET = {
    "backbone": "resnet50-bn_frozen",
    "init": "supervised_tv_in1k:3748b4d4b1aa",
    "protocol": "multi_test",
}
TRAIN_VAL, LOO_VAL = "domainbed2020_train_val", "domainbed2020_loo_val"


def write(
    make: Any,
    root: Path,
    dataset: str,
    errors: dict[str, float],
    algorithm: str = "erm",
    **changes: Any,
) -> None:
    """One run for each environment, which holds it out and has this error there."""
    given = list(errors)
    own = {
        **RESNET,
        "dataset": dataset,
        "variant": {},
        "given": given,
        "folds": [[env] for env in given],
        **changes,
    }
    for fold, env in enumerate(given):
        name = "-".join([dataset, algorithm, str(fold), *map(str, changes.values())])
        who = make.identity(algorithm, str(fold), **own, held_out=[env], run=name)
        make.write_run(
            root, who, lambda e, s, env=env: errors[env] if e == env else 0.1, folder=name, grid=[]
        )


def report(root: Path, names: list[str], selection: Selection | None = None) -> Document:
    return LeaderboardReport(published=names)(collect([root]), selection or TrainVal())


def beside(document: Document) -> dict[str, Table]:
    """Name of the published table -> frame, in the order of the page."""
    tables = [table for section in document.sections for table in section.tables]
    return {
        table.name.removeprefix("beside_"): table
        for table in tables
        if table.name.startswith("beside_")
    }


@pytest.fixture
def pacs(make: Any, tmp_path: Path) -> Path:
    """Accuracies of erm .80 .75 .95 .70, average .80."""
    write(make, tmp_path, "pacs", dict(zip(PACS, (0.2, 0.25, 0.05, 0.3), strict=True)))
    return tmp_path


def test_by_dataset_and_by_domain(pacs: Path) -> None:
    """DomainBed's ERM on PACS: 85.5 ± 0.2; art 84.7 ± 0.4, sketch 79.3 ± 1.0.

    We have no other of its datasets.
    """
    found = beside(report(pacs, [TRAIN_VAL]))
    assert list(found) == [TRAIN_VAL, f"{TRAIN_VAL}_pacs"]
    whole = line(found[TRAIN_VAL], "erm")
    assert list(whole) == ["algorithm", "pacs ours", "pacs theirs", "pacs difference"]
    assert whole["pacs ours"].value == pytest.approx(0.8)
    assert (whole["pacs theirs"].value, whole["pacs theirs"].std) == (
        pytest.approx(0.855),
        pytest.approx(0.002),
    )
    assert whole["pacs difference"].value == pytest.approx(-0.055)
    domains = line(found[f"{TRAIN_VAL}_pacs"], "erm")
    assert [domains[f"{env} ours"].value for env in PACS] == pytest.approx([0.8, 0.75, 0.95, 0.7])
    assert [domains[f"{env} theirs"].value for env in PACS] == pytest.approx(
        [0.847, 0.808, 0.972, 0.793]
    )
    assert domains["sketch theirs"].std == pytest.approx(0.01)
    assert domains["photo difference"].value == pytest.approx(-0.022)


def test_several_tables_at_once(make: Any, pacs: Path) -> None:
    """In the order asked for; averaged weights have a line of their own, and what shares nothing is
    left out.
    """
    write(make, pacs, "pacs", dict.fromkeys(PACS, 0.1), averaging="swad")
    write(make, pacs, "pacs", dict.fromkeys(PACS, 0.08), "miro", averaging="swad")
    asked = ["cha2022_table1", "zhang2023_table2", "cha2021_table2", "ye2022_table2"]
    found = beside(report(pacs, asked))
    assert list(found) == ["cha2022_table1", "cha2021_table2", "cha2021_table2_pacs"]
    both = line(found["cha2022_table1"], "miro+swad")
    assert (both["pacs ours"].value, both["pacs theirs"].value) == (
        pytest.approx(0.92),
        pytest.approx(0.884),
    )
    swad = line(found["cha2021_table2_pacs"], "erm+swad")
    assert (swad["cartoon ours"].value, swad["cartoon theirs"].value) == (
        pytest.approx(0.9),
        pytest.approx(0.834),
    )


@pytest.mark.parametrize(
    ("name", "selection", "said"),
    [
        (
            TRAIN_VAL,
            TrainVal(),
            (
                "The same here as there: backbone resnet50-bn_frozen, init supervised_tv_in1k, "
                "tuning ft, selection train_val."
            ),
        ),
        (TRAIN_VAL, Last(), "selection last here, train_val there."),
        ("cha2021_table2", Last(), "here as there: backbone"),
        (
            "teterwak2023",
            Last(),
            "settings: backbone resnet50-bn_frozen here, resnet50-bn_train there; "
            "init supervised_tv_in1k here, supervised_ram_in1k there.",
        ),
        ("yu2024_table5_supervised", Last(), "data and budgets"),
    ],
)
def test_a_note_says_which_settings_differ(
    make: Any, pacs: Path, name: str, selection: Selection, said: str
) -> None:
    write(make, pacs, "pacs", dict.fromkeys(PACS, 0.1), averaging="swad")
    write(make, pacs, "pacs", dict.fromkeys(PACS, 0.1), "erm_pp", averaging="eoa")
    for frame in beside(report(pacs, [name], selection)).values():
        (note,) = frame.notes
        assert said in note
        assert "\n" not in note


def test_every_board_has_its_own_note(make: Any, pacs: Path) -> None:
    """Runs from other initial weights are another board,
    beside which the same table stands again.
    """
    write(make, pacs, "pacs", dict.fromkeys(PACS, 0.1), "coral", init="moco_v2:43c0b48e0000")
    tables = [table for section in report(pacs, [TRAIN_VAL]).sections for table in section.tables]
    notes = [table.notes[0] for table in tables if table.name == f"beside_{TRAIN_VAL}"]
    assert sorted("init moco_v2 here, supervised_tv_in1k there" in note for note in notes) == [
        False,
        True,
    ]


def test_columns_are_called_as_our_datasets_are() -> None:
    """Else nothing of ours would ever stand beside them."""
    known = [yaml.safe_load(file.read_text()) for file in (CONF / "dataset").glob("*.yaml")]
    names = {each["name"] for each in known if "name" in each}
    environments = {
        each["name"]: (each.get("published") or {}).get("environments")
        for each in known
        if "name" in each
    }
    in_domainbed = dict(DATASETS.values())
    for table in map(published, boards()):
        assert table.dataset or set(table.columns) <= names, table.name
        for part in (table, *table.domains):
            if part.dataset:
                own = environments[part.dataset] or in_domainbed[part.dataset]
                assert set(part.columns) <= set(own), part.name


@pytest.mark.parametrize(
    ("name", "dataset", "environments", "column", "theirs"),
    [
        ("ye2022_table2", "celeba_blond", ("a", "b"), "celeba_blond", 0.872),
        ("ye2022_table2", "nico_mixed", ("a", "b"), "nico_mixed", 0.721),
        ("ye2022_table2", "cmnist_irm", ("a", "b"), "cmnist_irm", 0.299),
        ("yu2024_table5_supervised", "nico_pp", ("autumn", "rock"), "nico_pp", 0.775),
        ("zhang2023_table2", "nico_pp", ("autumn", "rock"), "rock", 0.7976),
        ("cha2022_table1", "office_home", ("Art", "Real World"), "office_home", 0.705),
        ("cha2022_table1_office_home", "office_home", ("Art", "Real World"), "Real World", 0.816),
        (
            f"{LOO_VAL}_terra_incognita",
            "terra_incognita",
            ("location_38", "location_46"),
            "location_46",
            0.374,
        ),
    ],
)
def test_datasets_whose_names_differ_in_papers(
    make: Any,
    tmp_path: Path,
    name: str,
    dataset: str,
    environments: tuple[str, ...],
    column: str,
    theirs: float,
) -> None:
    asked = name.removesuffix(f"_{dataset}")
    algorithm = "miro" if "cha2022" in name else "erm"
    write(make, tmp_path, dataset, dict.fromkeys(environments, 0.2), algorithm)
    found = line(beside(report(tmp_path, [asked], Last()))[name], algorithm)
    assert found[f"{column} ours"].value == pytest.approx(0.8)
    assert found[f"{column} theirs"].value == pytest.approx(theirs)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["nobody"], r"=nobody .*cha2021_table2, "),
        ([TRAIN_VAL, f"{TRAIN_VAL}_pacs"], "=domainbed2020_train_val_pacs "),
        (["ye2022_table8"], "^ye2022_table8 .*domainbed2020_loo_val"),
    ],
)
def test_names_that_are_none(pacs: Path, names: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        report(pacs, names)


def test_leave_one_domain_out_selection_of_the_presets(make: Any, tmp_path: Path) -> None:
    """As experiment=domainbed2020 and domainbed2020_pairs name their protocols.

    Pairs prefer draw 1, ``val`` draw 0.

    Errors where a run holds out one domain: .4 with draw 0 and .3 with draw 1, so loo_val reports
    .7 and train_val .6.
    """
    parts = {"a": (0, 1), "b": (0, 2), "c": (0, 3)}
    for draw, (val, alone, other) in enumerate([(0.1, 0.4, 0.5), (0.2, 0.3, 0.3)]):
        for held in [*((env,) for env in PACS), *combinations(PACS, 2)]:
            folds, protocol = [[env] for env in PACS], "multi_test"
            if len(held) == 2:
                rest = [env for env in PACS if env not in held]
                folds = [list(held), rest] if PACS[0] in held else [rest, list(held)]
                part = next(key for key, (i, j) in parts.items() if [PACS[i], PACS[j]] == folds[0])
                protocol = f"pairs_{part}"
            errors = dict.fromkeys(held, alone if len(held) == 1 else other)
            own = {
                **RESNET,
                "protocol": protocol,
                "dataset": "pacs",
                "variant": {},
                "given": PACS,
                "folds": folds,
            }
            drawn = {
                "draw": draw,
                "hparams": {"lr": 10.0**-draw},
                "run": f"{'-'.join(held)}-{draw}",
            }
            who = make.identity(
                "erm", str(folds.index(list(held))), **own, **drawn, held_out=list(held)
            )
            error = lambda e, s, errors=errors, val=val: errors.get(e, val)  # noqa: E731
            make.write_run(tmp_path, who, error, folder=who.run, grid=[], steps=(100,))
    for selection, name, accuracy in ((LooVal(), LOO_VAL, 0.7), (TrainVal(), TRAIN_VAL, 0.6)):
        document = report(tmp_path, [name], selection)
        place = next(
            i
            for i, section in enumerate(document.sections)
            if section.title.endswith("protocol multi_test")
        )
        shown = {table.name: table for table in document.sections[place].tables}
        assert line(shown[f"beside_{name}"], "erm")["pacs ours"].value == pytest.approx(accuracy)
        assert "here as there" in shown[f"beside_{name}_pacs"].notes[0]


OFFICE = ["Art", "Clipart", "Product", "Real World"]


def write_tunings(make: Any, root: Path, algorithm: str = "erm") -> None:
    """Accuracies of linear probing .6, of fine-tuning .5, .6, .7 and .8 in the domains of
    OfficeHome.
    """
    for tuning, errors in (("lp", [0.4] * 4), ("ft", [0.5, 0.4, 0.3, 0.2])):
        write(
            make,
            root,
            "office_home",
            dict(zip(OFFICE, errors, strict=True)),
            algorithm,
            tuning=tuning,
        )


def test_tables_of_networks_stand_beside_their_network(make: Any, tmp_path: Path) -> None:
    """Yu et al.'s Tables 1 and 3: 64.0 ± 0.4 by linear probing and 61.1 by fine-tuning in Art; they
    have no places.
    """
    write_tunings(make, tmp_path)
    sections = report(tmp_path, ["yu2024_table1", "yu2024_table3"]).sections
    theirs = {
        (section.title, table.name): line(table, "erm")["Art theirs"].value
        for section in sections
        for table in section.tables
        if table.name in ("beside_yu2024_table1_office_home", "beside_yu2024_table3")
    }
    assert sorted(theirs.values()) == pytest.approx([0.611, 0.611, 0.64, 0.64])
    assert "agreement" in [section.name for section in sections]
    places = next(
        table for section in sections for table in section.tables if table.name == "places"
    )
    assert [column.name for column in places.columns[1:]] == [
        section.title for section in sections[:2]
    ]


def test_relative_gap_beside_the_frechet_distance(make: Any, tmp_path: Path) -> None:
    """(.6 - .5) / .5, ...; the paper prints .047 and 62.22 for Art.
    Distances order the gaps here.
    """
    write_tunings(make, tmp_path)
    write_tunings(make, tmp_path, "vrex")
    who = shift_identity("office_home", OFFICE, estimator="frechet", settings={})
    rows = [shift_row(who, env, {"d2": 40.0 - at}) for at, env in enumerate(OFFICE)]
    write_shifts(tmp_path / "shift", rows)
    keys = {"distances_from": str(tmp_path / "shift")}
    document = LeaderboardReport(**keys)(collect([tmp_path]), TrainVal())
    (section,) = [section for section in document.sections if section.name == "relative_gap"]
    (found,) = section.tables
    art = next(
        row
        for row in found.frame.to_dict("records")
        if (row["environment"], row["algorithm"]) == ("Art", "erm")
    )
    names = ("lp", "ft", "gap", "gap published", "distance", "distance published")
    assert [art[name] for name in names] == pytest.approx([0.6, 0.5, 0.2, 0.047, 40, 62.22])
    assert "gap and distance: 1.00 (n=8)" in found.notes[-1]
    titles = {column.name: column.title for column in found.columns}
    assert titles["gap published"] == "gap, published"  # as report=shift heads the same number
    assert titles["distance published"] == "distance, published"


def test_no_gap_without_both_tunings(pacs: Path) -> None:
    assert "relative_gap" not in [section.name for section in report(pacs, []).sections]

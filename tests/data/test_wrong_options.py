"""Wrong values of datasets, corruptions and protocols, as typed: one line that names the key and
the fix.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException
from PIL import Image

from dgbench.analysis.selection import OodVal
from dgbench.errors import ConfigError, DgbenchError
from dgbench.plan.explain import explain
from dgbench.plan.overrides import open_keys
from dgbench.plan.studies import PlannedStudy, Planner
from tests.studies import composed, composer

Plan = Callable[..., list[PlannedStudy]]
FOLDER = [
    "dataset=image_folder",
    "backbone=mlp",
    "init=random",
    "dataset.root=images",
    "hparams.batch_size=4",
]
DIGITS = ["dataset.base=digits"]
PAINTED = ["dataset=c_cats_dogs", "dataset.root=images/a", "hparams.batch_size=1"]
IRM = ["dataset=cmnist_irm", *DIGITS]
CORRUPTED = ["dataset=pacs_corrupted", "dataset.root=nowhere"]
GROUPS = [*DIGITS, "protocol=multi_test"]
FIXED = [*DIGITS, "protocol=fixed"]
FLEXIBLE = [*DIGITS, "protocol=flexible"]
OOD = [*DIGITS, "selection=ood_val"]
GIVEN = r"choose from 0\.80, 0\.85, 0\.90, 0\.10"
THREE = "three numbers.*; ImageNet's"
SCHEME = "dataset.augmentations.domainbed"
LIST = ".*CSV.*JSON list.*path, environment"


def wrong(base: list[str], key: str, *values: str, says: str) -> list[Any]:
    """Cases of one key: each value, and what the line says behind ``key=value``."""
    return [
        pytest.param(
            [*base, f"{key}={value}"],
            rf"^{re.escape(key)}={re.escape(value)} .*{says}",
            id=f"{key}={value}",
        )
        for value in values
    ]


def line(said: str, *words: str) -> Any:
    """One case with what the whole line says."""
    return pytest.param(list(words), said, id=" ".join(words[-2:]))


CASES = [
    # where the images are
    line("^dataset.root.*dataset.root=", "dataset=image_folder"),
    line("^dataset.root.*empty.*folder", "dataset=image_folder", "dataset.root="),
    line("^dataset.root.*empty.*folder", "dataset=pacs", "dataset.root="),
    *wrong(["dataset=image_folder"], "dataset.root", "null", "3", "[a]", says="path.*folder"),
    line(
        "^dataset.root=nowhere.*folder.*dataset.root",
        "dataset=image_folder",
        "dataset.root=nowhere",
    ),
    line(
        "^dataset.root=~/no folder.*folder|^dataset.root=/.*no folder",
        *FOLDER,
        "dataset.root=~/no folder",
    ),
    line(f"^dataset.manifest is empty; {LIST}", "dataset=manifest"),
    line(f"^dataset.manifest is empty; {LIST}", "dataset=manifest", "dataset.manifest="),
    *wrong(["dataset=manifest"], "dataset.manifest", "3", says=f"is no path; {LIST}"),
    *wrong(
        ["dataset=manifest"], "dataset.manifest", "images", "no.csv", says=f"is no file; {LIST}"
    ),
    line("^dataset.cache_dir.*empty.*folder", *FOLDER, "dataset.cache_dir="),
    *wrong(FOLDER, "dataset.cache_dir", "null", "[1]", says="path.*folder"),
    line("^paths.data_dir.*empty.*path", *DIGITS, "paths.data_dir="),
    *wrong(DIGITS, "dataset.data_dir", "null", says="path.*folder"),
    line("^dataset.root.*empty.*folder", *PAINTED, "dataset.root="),
    *wrong(PAINTED, "dataset.root", "null", "3", says="path.*folder"),
    line(r"links|link.*leads back.*itself: remove", *FOLDER, "dataset.root=loop"),
    line(r"link.*folder.*lie.*remove.*link", *FOLDER, "dataset.root=upward"),
    # which images
    *wrong(FOLDER, "dataset.bad_files", "null", "3", "a/x/0.png", says="list.*paths"),
    line(
        "bad_files.*no.png.*file.*dataset.root=images.*e.g.",
        *FOLDER,
        "dataset.bad_files=[no.png]",
    ),
    line("bad_files.*/etc/hosts.*file", *FOLDER, "dataset.bad_files=[/etc/hosts]"),
    line(r"bad_files.*\.\./l\.csv.*file", *FOLDER, "dataset.bad_files=[../l.csv]"),
    line("bad_files names a/x/0.png twice", *FOLDER, "dataset.bad_files=[a/x/0.png,a/x/0.png]"),
    *wrong(FOLDER, "dataset.environments", "a", "3", "[]", "{a:1}", says=r"list.*\[a,b,c\]"),
    line("dataset.environments.*d.*b, c", *FOLDER, "dataset.environments=[a,d]"),
    line("dataset.environments names a twice", *FOLDER, "dataset.environments=[a,a]"),
    line("dataset.environments.*null", *FOLDER, "dataset.environments=[a,null]"),
    *wrong(FOLDER, "dataset.classes", "null", "all", "[x]", says="unknown.*same.*union"),
    *wrong(FOLDER, "dataset.published", "3", "{environments:3}", says="images, classes.*list"),
    *wrong(
        FOLDER,
        "dataset.reader",
        "foo",
        "{_target_:foo.bar}",
        "{_target_:os.listdir,_partial_:true}",
        says="list.*images.*dataset.reader=",
    ),
    line("^dataset._target_=pathlib.Path describes.*dataset", "dataset._target_=pathlib.Path"),
    line("foo names no module; write MODULE", "dataset._target_=foo"),
    line("^a group.*conf/.*file.*e.g.", "dataset=null"),
    # numbers and choices
    line("^dataset.image_size=1000000000.0.*positive", *FOLDER, "dataset.image_size=1e9"),
    *wrong(
        FOLDER,
        "dataset.val_fraction",
        "0",
        "1",
        "-1",
        "nan",
        "abc",
        "null",
        says=r"is not in \(0, 1\); DomainBed",
    ),
    *wrong(
        FOLDER,
        "dataset.image_size",
        "0",
        "-1",
        "1000000000",
        "2.5",
        "nan",
        "[224]",
        "true",
        says="positive number.*pixels.*8192; 224",
    ),
    *wrong(
        FOLDER,
        "dataset.workers",
        "0",
        "-1",
        "1.5",
        "many",
        "1000000",
        says="integer.*1.*1024; null",
    ),
    *wrong(
        FOLDER,
        "dataset.device_share",
        "-1",
        "7",
        "nan",
        "half",
        "null",
        says=r"is not in \[0, 1\]; 0.5",
    ),
    *wrong(FOLDER, "dataset.split_seed", "-1", "1.5", "null", "true", says="integer >= 0"),
    *wrong(FOLDER, "dataset.store", "disk", "null", "[ram]", says="unknown.*auto, ram.*none"),
    *wrong(FOLDER, "dataset.on_bad_image", "ignore", "null", "[skip]", says="unknown.*fail.*skip"),
    line(
        "on_bad_image=skip needs.*image decoded",
        *FOLDER,
        "dataset.on_bad_image=skip",
        "dataset.store=none",
    ),
    *wrong(FOLDER, "dataset.name", "a/b", says="folder.*letters"),
    line("^dataset.name.*empty.*letters", *FOLDER, "dataset.name="),
    *wrong(
        FOLDER,
        "dataset.normalize.mean",
        "[0,0]",
        "0",
        "[nan,0,0]",
        "[a,b,c]",
        says="three numbers.*; ImageNet's",
    ),
    *wrong(FOLDER, "dataset.normalize.std", "[0,1,1]", "[inf,1,1]", says="three numbers"),
    *wrong(FOLDER, "dataset.normalize", "null", "imagenet", says="std"),
    *wrong(
        FOLDER,
        "dataset.augment",
        "foo",
        "null",
        "[none]",
        says="unknown.*none, domainbed, ood_bench, nico",
    ),
    *wrong(FOLDER, "dataset.augmentations", "null", says="names no schemes"),
    *wrong(FOLDER, SCHEME, "null", says="is no scheme"),
    *wrong(FOLDER, f"{SCHEME}.flip", "2", "nan", "-1", says=r"number.*\[0, 1\]"),
    *wrong(FOLDER, "dataset.augmentations.nico.flip", "7", says=r"number.*\[0, 1\]"),
    *wrong(FOLDER, f"{SCHEME}.hue", "0.6", says=r"number.*\[0, 0.5\]"),
    *wrong(FOLDER, f"{SCHEME}.brightness", "-1", "inf", "null", says="number >= 0"),
    *wrong(
        FOLDER,
        f"{SCHEME}.crop_area",
        "0.5",
        "[0,1]",
        "[0.5,nan]",
        "[0.9,0.5]",
        says="two numbers.*0",
    ),
    *wrong(FOLDER, f"{SCHEME}.crop_aspect", "[2,1]", "[1,inf]", "[0,1]", says="two numbers.*0"),
    # spurious features
    *wrong(
        DIGITS,
        "dataset.val_fraction",
        "0",
        "1",
        "-1",
        "nan",
        "abc",
        says=r"is not in \(0, 1\); DomainBed",
    ),
    *wrong(
        DIGITS,
        "dataset.pool_fraction",
        "0",
        "1",
        "nan",
        "null",
        says=r"is not in \(0, 1\); 0.2 is usual",
    ),
    *wrong(
        DIGITS, "dataset.label_noise", "1", "-0.1", "nan", "null", says=r"is not in \[0, 1\); 0.25"
    ),
    *wrong(
        DIGITS,
        "dataset.ratio",
        "0",
        "1.5",
        "true",
        "1000000000",
        says="integer >= 1.*<= 1000.*paper",
    ),
    *wrong(DIGITS, "dataset.scale", "-1", "x", "1000000000", says="integer >= 1.*<= 1000.*paper"),
    *wrong(DIGITS, "dataset.resolution", "20", "14.0", "null", says="is not 28 or 14; choose"),
    *wrong([], "dataset.base", "null", "[digits]", "cifar", says="unknown.*auto, mnist"),
    *wrong(DIGITS, "dataset.data_seed", "-1", "x", says="integer >= 0"),
    *wrong(DIGITS, "dataset.evaluation", "null", "fast", says="unknown.*exact.*sampled"),
    *wrong(DIGITS, "dataset.given", "0.9", "{a:1}", says="list.*least two"),
    line("dataset.given.*true.*number", *DIGITS, "dataset.given=[true,0.1]"),
    line("dataset.given.*nan.*number", *DIGITS, "dataset.given=[nan,0.1]"),
    *wrong(IRM, "dataset.shares", "[1,1]", "[1,1,0]", says="is not 3 positive numbers"),
    *wrong(IRM, "dataset.shares", "[1,1,nan]", "abc", says="list.*finite numbers"),
    *wrong(IRM, "dataset.val_only", "null", "abc", "[a]", says="list.*finite numbers"),
    *wrong(
        IRM, "dataset.val_only", "[0.5]", says="names environments that are not in dataset.given="
    ),
    *wrong(PAINTED, "dataset.ratio", "9", "[1]", "null", says="given.*3:2, 4:1, 5:0"),
    *wrong(PAINTED, "dataset.paint", "null", "foo", says="function.*dataset.paint._target_="),
    *wrong(PAINTED, "dataset.given_sets", "null", says="sets.*dataset.given="),
    *wrong(
        PAINTED, "dataset.image_size", "0", "2.5", "true", "big", says="positive number.*pixels"
    ),
    *wrong(PAINTED, "dataset.on_bad_image", "shrug", says="unknown.*fail.*skip"),
    *wrong(PAINTED, "dataset.workers", "0", says="integer.*1.*1024"),
    *wrong(PAINTED, "dataset.e_means", "foo", says="unknown.*agree.*disagree"),
    # corruptions
    *wrong(
        CORRUPTED,
        "dataset.severity",
        "0",
        "6",
        "3.0",
        "[3]",
        "true",
        says=r"is unknown; choose 1 \(mild\) to 5",
    ),
    *wrong(CORRUPTED, "dataset.corruptions", "fog", "3", says="list.*null takes.*15"),
    line("^dataset.corruptions.*empty; null.*15", *CORRUPTED, "dataset.corruptions=[]"),
    *wrong(CORRUPTED, "dataset.corruptions", "[fog,fog]", says="names fog twice"),
    *wrong(CORRUPTED, "dataset.corruptions", "[mist]", says="mist.*unknown"),
    *wrong(CORRUPTED, "dataset.given", "1-1", "0-0-0-0", "9-9-9-99", says="number.*corruptions"),
    *wrong(CORRUPTED, "dataset.given", "null", "3", "[]", "{a:1}", says="list.*e.g."),
    line("dataset.given.*photo more.*once", *CORRUPTED, "dataset.given=[photo,photo]"),
    *wrong(
        CORRUPTED, "dataset.pool_fraction", "0", "nan", says=r"is not in \(0, 1\); 0.2 is usual"
    ),
    *wrong(CORRUPTED, "dataset.corruption_seed", "-1", "x", says="integer >= 0"),
    *wrong(CORRUPTED, "dataset.image_size", "8", says="small.*corrupt.*32.*more"),
    line("^corruptions=hendrycks.*go.*dataset=sr_cmnist", *DIGITS, "corruptions=hendrycks"),
    # protocols
    line("protocol.folds=0.5.*list.*folds", *DIGITS, "protocol.folds=0.5"),
    line("protocol.name=.* cannot name a folder", *DIGITS, "protocol.name=null"),
    line("protocol.k=4 must be 1 to 3 for 4 given", *GROUPS, "protocol.k=4"),
    *wrong(GROUPS, "protocol.k", "0", "nan", "1.5", says="integer >= 1"),
    line("list.*lists.*e.g.", *GROUPS, "protocol.groups=3"),
    line("list.*lists.*e.g.", *GROUPS, "protocol.groups={a:1}"),
    line("list.*lists.*e.g.", *GROUPS, "protocol.groups=[{a:1}]"),
    line("protocol.groups.*empty.*least", *GROUPS, "protocol.groups=[]"),
    line("protocol.groups has 0.10 in two groups", *GROUPS, "protocol.groups=[[0.1],['0.10']]"),
    line("protocol.groups holds 0.10 twice", *GROUPS, "protocol.groups=[[0.1,'0.10']]"),
    line(f"protocol.groups.*0.7.*given environment; {GIVEN}", *GROUPS, "protocol.groups=[[0.7]]"),
    line(f"protocol.test.*photo.*given environment; {GIVEN}", *FIXED, "protocol.test=[photo]"),
    line("list", *FIXED, "protocol.test={a:1}"),
    line(
        "protocol.train and protocol.test both name 0.10",
        *FIXED,
        "protocol.test=0.1",
        "protocol.train=['0.10']",
    ),
    *wrong(FLEXIBLE, "protocol.dominant", "0", "x", says="integer >= 1"),
    *wrong(FLEXIBLE, "protocol.minor_images", "0", "nan", says="integer >= 1"),
    *wrong(FLEXIBLE, "protocol.seed", "-1", "x", says="integer >= 0"),
    line(
        f"selection.environments.*0.7.*given environment; {GIVEN}",
        *OOD,
        "selection.environments=[0.7]",
    ),
    line(f"selection.environments.*photo.*; {GIVEN}", *OOD, "selection.environments=[photo]"),
    # Hydra's grammar
    line(r"^dataset.root=a,b.*several values.*-m.*a,b.*text", *FOLDER, "dataset.root=a,b"),
]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three environments of two classes, and two with links that lead in circles."""
    folder = tmp_path_factory.mktemp("home")
    for name in ("images", "loop", "upward"):
        tree(folder / name)
    (folder / "loop" / "self").symlink_to("self")
    (folder / "upward" / "a" / "up").symlink_to("..")
    return folder


@pytest.fixture
def plan(home: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Plans a command as ``plan=true`` does, in the home folder."""
    monkeypatch.chdir(home)
    monkeypatch.setenv("HOME", str(home))

    def planned(*typed: str) -> list[PlannedStudy]:
        try:
            return list(Planner(composer(), home / "outputs").studies(open_keys(typed)))
        except (HydraException, OmegaConfBaseException, ValueError) as error:
            raise ConfigError(explain(error, "train")) from error

    return planned


def tree(root: Path) -> None:
    """20 images, small as can be, in each of three environments."""
    picture = Image.new("RGB", (2, 2))
    for env in ("a", "b", "c"):
        for label in ("x", "y"):
            (root / env / label).mkdir(parents=True)
            for i in range(10):
                picture.save(root / env / label / f"{i}.ppm" if i else root / env / label / "0.png")


@pytest.mark.thorough
@pytest.mark.parametrize(("words", "said"), CASES)
def test_one_line_and_nothing_written(plan: Plan, home: Path, words: list[str], said: str) -> None:
    before = sorted(home.rglob("*"))
    with pytest.raises(DgbenchError) as found:
        plan(*words)
    text = str(found.value)
    assert "\n" not in text
    assert re.search(said, text), text
    assert sorted(home.rglob("*")) == before


PLACES = ["my data", "Müller's pictures", "k=v", "a(1)", "~me", "50%", "a#b&c;d", "[x", "日本"]


@pytest.mark.parametrize("place", PLACES)
def test_folders_work_as_typed(plan: Plan, tmp_path: Path, place: str) -> None:
    tree(tmp_path / place)
    [study] = plan(*FOLDER, f"dataset.root={tmp_path}/{place}")
    assert study.info.given == ("a", "b", "c")


def test_home_and_names_with_signs(plan: Plan, home: Path) -> None:
    """``~`` is the home folder; a list takes names with signs, too."""
    tree(home / "named")
    (home / "named" / "a").rename(home / "named" / "ä=1")
    (home / "named" / "b").rename(home / "named" / "2")
    [study] = plan(
        *FOLDER,
        "dataset.root=~/named",
        "dataset.environments=[ä=1,2]",
        "dataset.bad_files=[ä=1/x/0.png]",
    )
    assert study.info.given == ("ä=1", "2")
    assert study.info.counts["ä=1"] == {"train": 16, "val": 3, "test": 0}


@pytest.mark.parametrize("typed", ["[0.1]", "['0.10']"])
def test_numbers_are_environments_as_numbers(plan: Plan, typed: str) -> None:
    [by_selection] = plan(*OOD, f"selection.environments={typed}")
    assert OodVal(by_selection.config["selection"]["environments"]).validation_environments == (
        "0.10",
    )
    [by_protocol] = plan(*FIXED, f"protocol.test={typed}")
    assert by_protocol.folds[0].tested == ("0.10",)
    with pytest.raises(ConfigError, match=r"selection\.environments names 0\.10 twice"):
        OodVal([0.1, "0.10"])  # type: ignore[list-item]


@pytest.mark.parametrize("closed", ["a", "a/x"])
def test_a_folder_that_cannot_be_read(
    plan: Plan, monkeypatch: pytest.MonkeyPatch, closed: str
) -> None:
    """It is named and to be made readable; no setting that would drop the class is advised."""
    scandir: Any = os.scandir

    def refusing(folder: Any) -> Any:
        if Path(folder) == Path("images") / closed:
            raise PermissionError(13, "Permission denied", str(folder))
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(
        DgbenchError,
        match=rf"dataset\.root=images cannot be read.*Permission.* \({closed}\); make.*readable",
    ):
        plan(*FOLDER)


def test_a_text_that_might_be_several_is_shown_with_its_quotes() -> None:
    with pytest.raises(HydraException) as found:
        composed(*FOLDER, "dataset.root=ä,b")
    text = explain(found.value, "train")
    assert re.search(r"^dataset\.root=ä,b.*read.*text.*such signs.*written", text)
    [typed] = shlex.split(text.rpartition(" is written ")[2])
    assert composed(FOLDER[0], typed).dataset.root == "ä,b"

"""Wrong values of datasets, corruptions and protocols, as typed: one line that names the key and the fix."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException
from PIL import Image

from dgbench.analysis.selection import OodVal
from dgbench.configuration import CONF
from dgbench.errors import ConfigError, DgbenchError
from dgbench.plan.compose import Composer
from dgbench.plan.explain import explain
from dgbench.plan.overrides import open_keys
from dgbench.plan.studies import PlannedStudy, Planner

Plan = Callable[..., list[PlannedStudy]]
FOLDER = ["dataset=image_folder", "backbone=mlp", "init=random", "dataset.root=images", "hparams.batch_size=4"]
DIGITS = ["dataset.base=digits"]
PAINTED = ["dataset=c_cats_dogs", "dataset.root=images/a", "hparams.batch_size=1"]
IRM = ["dataset=cmnist_irm", *DIGITS]
CORRUPTED = ["dataset=pacs_corrupted", "dataset.root=nowhere"]
GROUPS = [*DIGITS, "protocol=multi_test"]
FIXED = [*DIGITS, "protocol=fixed"]
FLEXIBLE = [*DIGITS, "protocol=flexible"]
OOD = [*DIGITS, "selection=ood_val"]
GIVEN = r"choose from 0\.80, 0\.85, 0\.90, 0\.10"
THREE = "is not three numbers .*; ImageNet's"
SCHEME = "dataset.augmentations.domainbed"
LIST = "give a CSV or JSON list of path, environment, class"


def wrong(base: list[str], key: str, *values: str, says: str) -> list[Any]:
    """Cases of one key: each value, and what the line says behind ``key=value``."""
    return [
        pytest.param([*base, f"{key}={value}"], rf"^{re.escape(key)}={re.escape(value)} {says}", id=f"{key}={value}")
        for value in values
    ]


def line(said: str, *words: str) -> Any:
    """One case with what the whole line says."""
    return pytest.param(list(words), said, id=" ".join(words[-2:]))


CASES = [
    # where the images are
    line("^dataset.root is not set; add dataset.root=", "dataset=image_folder"),
    line("^dataset.root is empty; name the folder", "dataset=image_folder", "dataset.root="),
    line("^dataset.root is empty; name the folder", "dataset=pacs", "dataset.root="),
    *wrong(["dataset=image_folder"], "dataset.root", "null", "3", "[a]", says="is no path; name the folder"),
    line("^dataset.root=nowhere is no folder; set dataset.root", "dataset=image_folder", "dataset.root=nowhere"),
    line(
        "^dataset.root=~/no folder is no folder|^dataset.root=/.*no folder is no", *FOLDER, "dataset.root=~/no folder"
    ),
    line(f"^dataset.manifest is empty; {LIST}", "dataset=manifest"),
    line(f"^dataset.manifest is empty; {LIST}", "dataset=manifest", "dataset.manifest="),
    *wrong(["dataset=manifest"], "dataset.manifest", "3", says=f"is no path; {LIST}"),
    *wrong(["dataset=manifest"], "dataset.manifest", "images", "no.csv", says=f"is no file; {LIST}"),
    line("^dataset.cache_dir is empty; name a folder", *FOLDER, "dataset.cache_dir="),
    *wrong(FOLDER, "dataset.cache_dir", "null", "[1]", says="is no path; name a folder"),
    line("^paths.data_dir is empty; give its path", *DIGITS, "paths.data_dir="),
    *wrong(DIGITS, "dataset.data_dir", "null", says="is no path; name the folder"),
    line("^dataset.root is empty; name a folder", *PAINTED, "dataset.root="),
    *wrong(PAINTED, "dataset.root", "null", "3", says="is no path; name a folder"),
    line(r"links|link that leads back to itself: remove it", *FOLDER, "dataset.root=loop"),
    line(r"up is a link to a folder that it lies in; remove the link", *FOLDER, "dataset.root=upward"),
    # which images
    *wrong(FOLDER, "dataset.bad_files", "null", "3", "a/x/0.png", says="is no list of names; write paths below"),
    line(
        "bad_files names no.png, which is no file below dataset.root=images; .*e.g.",
        *FOLDER,
        "dataset.bad_files=[no.png]",
    ),
    line("bad_files names /etc/hosts, which is no file below", *FOLDER, "dataset.bad_files=[/etc/hosts]"),
    line(r"bad_files names \.\./l\.csv, which is no file below", *FOLDER, "dataset.bad_files=[../l.csv]"),
    line("bad_files names a/x/0.png twice", *FOLDER, "dataset.bad_files=[a/x/0.png,a/x/0.png]"),
    *wrong(FOLDER, "dataset.environments", "a", "3", "[]", "{a:1}", says=r"is no list of names; choose from \[a,b,c\]"),
    line(
        "dataset.environments names d, which is not there; choose from a, b, c", *FOLDER, "dataset.environments=[a,d]"
    ),
    line("dataset.environments names a twice", *FOLDER, "dataset.environments=[a,a]"),
    line("dataset.environments holds null, which is no name", *FOLDER, "dataset.environments=[a,null]"),
    *wrong(FOLDER, "dataset.classes", "null", "all", "[x]", says="is unknown; choose same or union"),
    *wrong(FOLDER, "dataset.published", "3", "{environments:3}", says="is not images, classes and a list"),
    *wrong(
        FOLDER,
        "dataset.reader",
        "foo",
        "{_target_:foo.bar}",
        "{_target_:os.listdir,_partial_:true}",
        says="cannot list the images .*; write dataset.reader=",
    ),
    line("^dataset._target_=pathlib.Path describes no dataset; choose", "dataset._target_=pathlib.Path"),
    line("Error loading 'foo'.*; see the keys in conf/dataset", "dataset._target_=foo"),
    line("^a group of conf/ is set to no name of a file; write e.g.", "dataset=null"),
    # numbers and choices
    line("^dataset.image_size=1000000000.0 is not a positive", *FOLDER, "dataset.image_size=1e9"),
    *wrong(FOLDER, "dataset.val_fraction", "0", "1", "-1", "nan", "abc", "null", says=r"is not in \(0, 1\); DomainBed"),
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
        says="is not a positive number of pixels up to 8192; 224",
    ),
    *wrong(
        FOLDER, "dataset.workers", "0", "-1", "1.5", "many", "1000000", says="is not an integer from 1 to 1024; null"
    ),
    *wrong(FOLDER, "dataset.device_share", "-1", "7", "nan", "half", "null", says=r"is not in \[0, 1\]; 0.5"),
    *wrong(FOLDER, "dataset.split_seed", "-1", "1.5", "null", "true", says="is not an integer >= 0"),
    *wrong(FOLDER, "dataset.store", "disk", "null", "[ram]", says="is unknown; choose auto, ram, file, none"),
    *wrong(FOLDER, "dataset.on_bad_image", "ignore", "null", "[skip]", says="is unknown; choose fail or skip"),
    line("on_bad_image=skip needs every image decoded", *FOLDER, "dataset.on_bad_image=skip", "dataset.store=none"),
    *wrong(FOLDER, "dataset.name", "a/b", says="cannot name a folder; use letters"),
    line("^dataset.name is empty; use letters", *FOLDER, "dataset.name="),
    *wrong(
        FOLDER,
        "dataset.normalize.mean",
        "[0,0]",
        "0",
        "[nan,0,0]",
        "[a,b,c]",
        says="is not three numbers .*; ImageNet's",
    ),
    *wrong(FOLDER, "dataset.normalize.std", "[0,1,1]", "[inf,1,1]", says="is not three numbers"),
    *wrong(FOLDER, "dataset.normalize", "null", "imagenet", says="is not a mean and a std; use"),
    *wrong(
        FOLDER, "dataset.augment", "foo", "null", "[none]", says="is unknown; choose none, domainbed, ood_bench, nico"
    ),
    *wrong(FOLDER, "dataset.augmentations", "null", says="names no schemes"),
    *wrong(FOLDER, SCHEME, "null", says="is no scheme"),
    *wrong(FOLDER, f"{SCHEME}.flip", "2", "nan", "-1", says=r"is not a number in \[0, 1\]"),
    *wrong(FOLDER, "dataset.augmentations.nico.flip", "7", says=r"is not a number in \[0, 1\]"),
    *wrong(FOLDER, f"{SCHEME}.hue", "0.6", says=r"is not a number in \[0, 0.5\]"),
    *wrong(FOLDER, f"{SCHEME}.brightness", "-1", "inf", "null", says="is not a number >= 0"),
    *wrong(FOLDER, f"{SCHEME}.crop_area", "0.5", "[0,1]", "[0.5,nan]", "[0.9,0.5]", says="is not two numbers above 0"),
    *wrong(FOLDER, f"{SCHEME}.crop_aspect", "[2,1]", "[1,inf]", "[0,1]", says="is not two numbers above 0"),
    # spurious features
    *wrong(DIGITS, "dataset.val_fraction", "0", "1", "-1", "nan", "abc", says=r"is not in \(0, 1\); DomainBed"),
    *wrong(DIGITS, "dataset.pool_fraction", "0", "1", "nan", "null", says=r"is not in \(0, 1\); 0.2 is usual"),
    *wrong(DIGITS, "dataset.label_noise", "1", "-0.1", "nan", "null", says=r"is not in \[0, 1\); 0.25"),
    *wrong(
        DIGITS, "dataset.ratio", "0", "1.5", "true", "1000000000", says="is not an integer >= 1 and <= 1000; the paper"
    ),
    *wrong(DIGITS, "dataset.scale", "-1", "x", "1000000000", says="is not an integer >= 1 and <= 1000; the paper"),
    *wrong(DIGITS, "dataset.resolution", "20", "14.0", "null", says="is not 28 or 14; choose"),
    *wrong([], "dataset.base", "null", "[digits]", "cifar", says="is unknown; choose auto, mnist"),
    *wrong(DIGITS, "dataset.data_seed", "-1", "x", says="is not an integer >= 0"),
    *wrong(DIGITS, "dataset.evaluation", "null", "fast", says="is unknown; choose exact or sampled"),
    *wrong(DIGITS, "dataset.given", "0.9", "{a:1}", says="is no list; give at least two"),
    line("dataset.given holds true, which is not a number", *DIGITS, "dataset.given=[true,0.1]"),
    line("dataset.given holds nan, which is not a number", *DIGITS, "dataset.given=[nan,0.1]"),
    *wrong(IRM, "dataset.shares", "[1,1]", "[1,1,0]", says="is not 3 positive numbers"),
    *wrong(IRM, "dataset.shares", "[1,1,nan]", "abc", says="is no list of finite numbers"),
    *wrong(IRM, "dataset.val_only", "null", "abc", "[a]", says="is no list of finite numbers"),
    *wrong(IRM, "dataset.val_only", "[0.5]", says="names others than dataset.given="),
    *wrong(PAINTED, "dataset.ratio", "9", "[1]", "null", says="has no given set; choose from 3:2, 4:1, 5:0"),
    *wrong(PAINTED, "dataset.paint", "null", "foo", says="is no function; write dataset.paint._target_="),
    *wrong(PAINTED, "dataset.given_sets", "null", says="names no sets; use dataset.given="),
    *wrong(PAINTED, "dataset.image_size", "0", "2.5", "true", "big", says="is not a positive number of pixels"),
    *wrong(PAINTED, "dataset.on_bad_image", "shrug", says="is unknown; choose fail or skip"),
    *wrong(PAINTED, "dataset.workers", "0", says="is not an integer from 1 to 1024"),
    *wrong(PAINTED, "dataset.e_means", "foo", says="is unknown; choose agree or disagree"),
    # corruptions
    *wrong(CORRUPTED, "dataset.severity", "0", "6", "3.0", "[3]", "true", says=r"is unknown; choose 1 \(mild\) to 5"),
    *wrong(CORRUPTED, "dataset.corruptions", "fog", "3", says="is no list of names; null takes all 15"),
    line("^dataset.corruptions is empty; null takes all 15", *CORRUPTED, "dataset.corruptions=[]"),
    *wrong(CORRUPTED, "dataset.corruptions", "[fog,fog]", says="names fog twice"),
    *wrong(CORRUPTED, "dataset.corruptions", "[mist]", says="names mist, which is unknown; choose from"),
    *wrong(CORRUPTED, "dataset.given", "1-1", "0-0-0-0", "9-9-9-99", says="is not one number of corruptions"),
    *wrong(CORRUPTED, "dataset.given", "null", "3", "[]", "{a:1}", says="is no list; use e.g."),
    line("dataset.given holds photo more than once", *CORRUPTED, "dataset.given=[photo,photo]"),
    *wrong(CORRUPTED, "dataset.pool_fraction", "0", "nan", says=r"is not in \(0, 1\); 0.2 is usual"),
    *wrong(CORRUPTED, "dataset.corruption_seed", "-1", "x", says="is not an integer >= 0"),
    *wrong(CORRUPTED, "dataset.image_size", "8", says="is too small to corrupt; use 32 or more"),
    line("^corruptions=hendrycks does not go with dataset=sr_cmnist; choose", *DIGITS, "corruptions=hendrycks"),
    # protocols
    line("protocol.folds=0.5 is no list of folds", *DIGITS, "protocol.folds=0.5"),
    line("protocol.name=.* is no name", *DIGITS, "protocol.name=null"),
    line("protocol.k=4 must be 1 to 3 for 4 given", *GROUPS, "protocol.k=4"),
    *wrong(GROUPS, "protocol.k", "0", "nan", "1.5", says="is not an integer >= 1"),
    line("is no list of lists of names; write e.g.", *GROUPS, "protocol.groups=3"),
    line("is no list of lists of names; write e.g.", *GROUPS, "protocol.groups={a:1}"),
    line("is no list of lists of names; write e.g.", *GROUPS, "protocol.groups=[{a:1}]"),
    line("protocol.groups is empty; name at least one", *GROUPS, "protocol.groups=[]"),
    line("protocol.groups has 0.10 in two groups", *GROUPS, "protocol.groups=[[0.1],['0.10']]"),
    line("protocol.groups holds 0.10 twice", *GROUPS, "protocol.groups=[[0.1,'0.10']]"),
    line(f"protocol.groups names 0.7, which is no given environment; {GIVEN}", *GROUPS, "protocol.groups=[[0.7]]"),
    line(f"protocol.test names photo, which is no given environment; {GIVEN}", *FIXED, "protocol.test=[photo]"),
    line("is no list of names", *FIXED, "protocol.test={a:1}"),
    line("protocol.train and protocol.test both name 0.10", *FIXED, "protocol.test=0.1", "protocol.train=['0.10']"),
    *wrong(FLEXIBLE, "protocol.dominant", "0", "x", says="is not an integer >= 1"),
    *wrong(FLEXIBLE, "protocol.minor_images", "0", "nan", says="is not an integer >= 1"),
    *wrong(FLEXIBLE, "protocol.seed", "-1", "x", says="is not an integer >= 0"),
    line(
        f"selection.environments names 0.7, which is no given environment; {GIVEN}",
        *OOD,
        "selection.environments=[0.7]",
    ),
    line(f"selection.environments names photo, which is no .*; {GIVEN}", *OOD, "selection.environments=[photo]"),
    # Hydra's grammar
    line(r"^dataset.root=a,b names several values; add -m .*, or .*a,b.* for one text", *FOLDER, "dataset.root=a,b"),
]


@pytest.fixture(scope="module")
def composer() -> Iterator[Composer]:
    """Composes commands; those that choose the same files of conf/ in milliseconds, once the first is composed."""
    with initialize_config_dir(str(CONF), job_name="train", version_base="1.3"):
        yield Composer(GlobalHydra.instance().config_loader(), lambda words: compose("train", words))


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
def plan(composer: Composer, home: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Plans a command as ``plan=true`` does, in the home folder."""
    monkeypatch.chdir(home)
    monkeypatch.setenv("HOME", str(home))

    def planned(*typed: str) -> list[PlannedStudy]:
        try:
            return list(Planner(composer, home / "outputs").studies(open_keys(typed)))
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
    [study] = plan(*FOLDER, "dataset.root=~/named", "dataset.environments=[ä=1,2]", "dataset.bad_files=[ä=1/x/0.png]")
    assert study.info.given == ("ä=1", "2")
    assert study.info.counts["ä=1"] == {"train": 16, "val": 3, "test": 0}


@pytest.mark.parametrize("typed", ["[0.1]", "['0.10']"])
def test_numbers_are_environments_as_numbers(plan: Plan, typed: str) -> None:
    [by_selection] = plan(*OOD, f"selection.environments={typed}")
    assert OodVal(by_selection.config["selection"]["environments"]).validation_environments == ("0.10",)
    [by_protocol] = plan(*FIXED, f"protocol.test={typed}")
    assert by_protocol.folds[0].tested == ("0.10",)
    with pytest.raises(ConfigError, match=r"selection\.environments names 0\.10 twice"):
        OodVal([0.1, "0.10"])  # type: ignore[list-item]


@pytest.mark.parametrize("closed", ["a", "a/x"])
def test_a_folder_that_cannot_be_read(plan: Plan, monkeypatch: pytest.MonkeyPatch, closed: str) -> None:
    """It is named and to be made readable; no setting that would drop the class is advised."""
    scandir: Any = os.scandir

    def refusing(folder: Any) -> Any:
        if Path(folder) == Path("images") / closed:
            raise PermissionError(13, "Permission denied", str(folder))
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(DgbenchError, match=rf"^images/{closed} cannot be read \(Permission denied\); make it readable"):
        plan(*FOLDER)


@pytest.mark.usefixtures("composer")
def test_a_text_that_might_be_several_is_shown_with_its_quotes() -> None:
    with pytest.raises(HydraException) as found:
        compose("train", open_keys([*FOLDER, "dataset.root=ä,b"]))
    text = explain(found.value, "train")
    assert re.search(r"^dataset\.root=ä,b cannot be read: .*; a text with such signs is written ", text)
    [typed] = shlex.split(text.rpartition(" is written ")[2])
    assert compose("train", [*FOLDER[:1], typed]).dataset.root == "ä,b"

"""What a user may type wrongly: keys, choices, prefixes and values of every group. One line, and nothing written."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import dgbench
from dgbench.cli.entry import help_text
from dgbench.cli.main import main
from dgbench.configuration import CONF
from dgbench.errors import DgbenchError
from dgbench.plan.explain import explain
from dgbench.plan.folds import selection_note
from tests.studies import composed, make_plan

PHOTOS = "dataset=image_folder dataset.root=."

#: words -> what the line must say, a regular expression
WRONG = {
    # a key that another choice of the group has
    "backbone=resnet18 backbone.width=8": (
        r"backbone=resnet18 has no key width; its keys are .*norm.*, and width belongs to .*backbone=mlp"
    ),
    "backbone.norm=train": r"backbone=mlp has no key norm; its keys are name, width, and norm belongs to .*resnet18",
    f"{PHOTOS} backbone.width=8": r"backbone=resnet50_pretrained has no key width; .*belongs to .*backbone=mlp",
    "averaging.rule.start=1": r"averaging=none has no key rule\.start; .*rule\.start belongs to averaging=eoa",
    "averaging=swad averaging.rule.start=1": r"averaging=swad has no key rule\.start; .*belongs to averaging=eoa",
    "sharpness.rho=0.1": r"sharpness=none has no key rho; .*rho belongs to sharpness=gsam, .*sharpness=sam",
    "sharpness=sam sharpness.alpha=1": r"sharpness=sam has no key alpha; .*belongs to sharpness=gsam, sharpness=sagm",
    "tuning.freeze_stages=2": r"tuning=ft has no key freeze_stages; .*belongs to tuning=freeze, tuning=lp",
    "logger.mode=online": r"logger=none has no key mode; it has no keys, and mode belongs to logger=wandb",
    "logger=csv logger.project=x": r"logger=csv has no key project; it has no keys, .*belongs to logger=wandb",
    "protocol.k=2": r"protocol=loo has no key k; its keys are name, folds, and k belongs to protocol=multi_test",
    "selection.environments=[a]": r"selection=last has no key environments; .*belongs to selection=ood_val",
    "hparams.scheme.draws=3": r"hparams=default has no key scheme\.draws; .*belongs to hparams=search",
    "init.path=x": r"init=random has no key path; .*path belongs to .*init=file",
    "dataset.severity=3": r"dataset=sr_cmnist has no key severity; .*severity belongs to corruptions=hendrycks",
    "corruptions.severity=3": r"corruptions=null has no key severity; did you mean dataset\.severity\?",
    "dataset=pacs dataset.scale=2": r"dataset=pacs has no key scale; .*scale belongs to dataset=.*sr_cmnist",
    "algorithm.vrex_lambda=3": r"algorithm=erm has no key vrex_lambda; did you mean hparams\.vrex_lambda\?",
    # a key that none has
    "trainer.step=5": r"key trainer\.step is unknown; did you mean trainer\.steps\?",
    "execution.max_run=1": r"key execution\.max_run is unknown; did you mean execution\.max_runs\?",
    "paths.data=x": r"key paths\.data is unknown; did you mean paths\.data_dir\?",
    "dataset.colour=red": r"dataset=sr_cmnist has no key colour; its keys are name, .*label_noise",
    "logger=wandb logger.projct=x": r"key logger\.projct is unknown; did you mean logger\.project\?",
    "averaging=eoa averaging.rule.strt=2": r"key averaging\.rule\.strt is unknown; did you mean .*rule\.start\?",
    "init=file init.pth=x": r"key init\.pth is unknown; did you mean init\.path\?",
    "tuning=lp tuning.cach_gb=1": r"key tuning\.cach_gb is unknown; did you mean tuning\.cache_gb\?",
    # a key without its group
    "steps=5": r"key steps is unknown; did you mean trainer\.steps\?",
    "width=8": r"key width is unknown; did you mean backbone\.width\?",
    "lr=1": r"key lr is unknown; did you mean hparams\.lr",
    "vrex_lambda=2": r"key vrex_lambda is unknown; did you mean hparams\.vrex_lambda\?",
    "max_runs=2": r"key max_runs is unknown; did you mean execution\.max_runs\?",
    "data_dir=x": r"key data_dir is unknown; did you mean .*paths\.data_dir",
    "sead=1": r"key sead is unknown; did you mean seed\?",
    "nonsense=1": r"key nonsense is unknown; see docs/reference/configuration\.md",
    # a choice that a group does not have
    "dataset=imagnet": r"dataset=imagnet is unknown; .*choose from .*sr_cmnist",
    "algorithm=vrx": r"algorithm=vrx is unknown; did you mean vrex\? choose from ada_clust",
    "algorithm=vrex/x": r"algorithm=vrex/x is unknown; .*choose from ada_clust",
    "backbone=resnet19": r"backbone=resnet19 is unknown; did you mean resnet18\?",
    "init=rand": r"init=rand is unknown; did you mean random\?",
    "protocol=leave": r"protocol=leave is unknown; choose from fixed",
    "trainer=dpp": r"trainer=dpp is unknown; did you mean ddp\?",
    "sharpness=asam": r"sharpness=asam is unknown; did you mean sam\? choose from gsam, none, sagm, sam",
    "averaging=swd": r"averaging=swd is unknown; did you mean swad\?",
    "corruptions=hendrick": r"corruptions=hendrick is unknown; did you mean hendrycks\?",
    "logger=tensorbord": r"logger=tensorbord is unknown; did you mean tensorboard\? choose from csv, none, tensorboard",
    "logger=mlflow": r"logger=mlflow is unknown; choose from csv, none, tensorboard, wandb",
    "logger._target_=3": r"logger\._target_=3 is no class; give the import path of a Lightning Logger",
    "logger._target_=a.b.C": r"logger\._target_=a\.b\.C cannot be used: .*; correct path or arguments",
    "logger._target_=pathlib.Path": r"logger\._target_=pathlib\.Path is no logger; subclass pytorch_lightning",
    "logger._target_=pytorch_lightning.loggers.CSVLogger +logger.nme=x": r"CSVLogger cannot be used: .*'nme'",
    "tuning=linear": r"tuning=linear is unknown; choose from freeze, ft, lp",
    "execution=fast": r"execution=fast is unknown; choose from auto, single, stacked",
    "hparams=serch": r"hparams=serch is unknown; did you mean search\?",
    "selection=train_vl": r"selection=train_vl is unknown; did you mean train_val\?",
    "experiment=hwang": r"experiment=hwang is unknown; .*choose from .*demo",
    "paths=mine": r"paths=mine is unknown; choose from default",
    # +, ++, ~ and =
    "+foo=1": r"\+foo=1 adds a key that nothing reads",
    "+trainer.foo=1": r"trainer\.foo is no key of trainer",
    "+trainer.steps=3": r"\+trainer\.steps adds a key that is there already; write trainer\.steps=VALUE",
    "++trainer.stepz=3": r"trainer\.stepz is no key of trainer",
    "+backbone=mlp": r"\+backbone=mlp adds a group that is there already; write backbone=mlp",
    "++backbone=mlp": r"\+\+backbone=mlp adds a group that is there already; write backbone=mlp",
    "+execution.foo=1": r"execution\.foo is no key of execution",
    "+paths.foo=1": r"paths\.foo is no key of paths",
    "+sweep.foo=1": r"sweep\.foo is no key of sweep",
    "+protocol.foo=1": r"protocol\.foo is no key of protocol",
    "~backbone": r"~backbone takes out a group .*; choose another with backbone=NAME",
    "~seed": r"~seed takes out a key .*; set it with seed=VALUE",
    "~foo": r"~foo takes out a key that is not there",
    "~trainer.foo": r"~trainer\.foo takes out a key that is not there",
    "=5": r"=5 names no key; write KEY=VALUE",
    "seed": r"seed cannot be read: .*write KEY=VALUE",
    "seed:5": r"seed:5 cannot be read: .*write KEY=VALUE",
    "algorithm=": r"algorithm= names no choice; give one of ada_clust",
    "algorithm=[erm,vrex]": r"algorithm=\[erm,vrex\] names several choices; .*grid\.algorithm=\[erm,vrex\]",
    "algorithm=erm,vrex": r"algorithm=erm,vrex .*-m",
    # values
    "seed=": r"seed is empty",
    "seed=null": r"seed=null is not an integer >= 0",
    "seed=true": r"seed=true is not an integer >= 0",
    "seed=1.5": r"seed=1\.5 is not an integer >= 0",
    "seed=99999999999999999999999": r"seed=9+ is not an integer >= 0 \(below 2\^63\)",
    "plan=maybe": r"plan=maybe is unknown; write plan=true, or plan=probe",
    "plan=null": r"plan=null is unknown",
    "retry=never": r"retry=never is unknown; choose all, failed, none",
    "grid=5": r"grid=5 is no set of lists",
    "grid.seed=3": r"grid\.seed=3 is no list; write grid\.seed=\[\.\.\.\]",
    "grid.seed=[]": r"grid\.seed=\[\] is no list",
    "grid.foo=[1]": r"key foo is unknown",
    "grid.algorithm=[foo]": r"algorithm=foo is unknown; choose from",
    "grid.algorithm.name=[null,x]": r"algorithm\.name=null is no name",
    "grid.tuning.name=['']": r"tuning\.name is empty",
    "averaging=swad grid.averaging.rule.batchnorm_batches=[-5]": r"averaging\.rule\.batchnorm_batches=-5 is not",
    "hparams=search trainer.steps=-1": r"trainer\.steps=-1 is not an integer >= 0",
    "grid.retry=[all,failed]": r"grid\.retry sets what all studies of a command have in common; write retry=VALUE",
    "execution.memory_gb=-1": r"execution\.memory_gb=-1 is not a number > 0; give one, or null",
    "execution.memory_gb=nan": r"execution\.memory_gb=nan is not a number > 0",
    "execution.memory_gb=big": r"execution\.memory_gb=big is not a number > 0",
    "execution.max_runs=0": r"execution\.max_runs=0 is not an integer >= 1",
    "execution.max_runs=true": r"execution\.max_runs=true is not an integer",
    "execution.mode=fast": r"execution\.mode=fast is unknown; choose auto, single or stacked",
    "paths.data_dir=null": r"paths\.data_dir=null is no folder; give its path",
    "paths.cache_dir=null": r"paths\.cache_dir=null is no folder",
    "paths.output_dir=": r"paths\.output_dir is empty",
    "paths.output_dir=[a]": r"paths\.output_dir=\[a\] is no folder",
    "logger=wandb logger.mode=foo": r"logger\.mode=foo is unknown; choose online, offline, disabled or null",
    "logger=wandb logger.project=null": r"logger\.project=null is no name of a W&B project",
    "logger=wandb logger.tags=a": r"logger\.tags=a is no list of names; write e\.g\. logger\.tags=\[first\]",
    "logger=wandb logger.entity=3": r"logger\.entity=3 is no W&B user or team",
    "tuning=lp tuning.cache_gb=-1": r"tuning\.cache_gb=-1 is not a number > 0",
    "tuning=lp tuning.cache_features=maybe": r"tuning\.cache_features=maybe is unknown; choose true or false",
    "tuning=lp tuning.name=": r"tuning\.name is empty",
    "tuning=lp tuning.freeze_stages=some": r"tuning\.freeze_stages=some is no number of stages",
    "averaging=eoa averaging.rule.start=0": r"averaging\.rule\.start=0 is not a step; give 1 or more",
    "averaging=eoa averaging.rule.start=1.5": r"averaging\.rule\.start=1\.5 is not a step",
    "averaging=eoa averaging.rule.flavor=x": r"averaging\.rule\.flavor=x is unknown; choose state or parameters",
    "averaging=swad averaging.rule.n_converge=0": r"averaging\.rule\.n_converge=0 is not an integer >= 1",
    "averaging=swad averaging.rule.tolerance_ratio=nan": r"averaging\.rule\.tolerance_ratio=nan is not a number >= 0",
    "averaging=swad averaging.rule.batchnorm_batches=-1": r"averaging\.rule\.batchnorm_batches=-1 is not an integer",
    "sharpness=sam sharpness.rho=-1": r"sharpness\.rho=-1 is not a number >= 0; give one",
    "sharpness=gsam sharpness.alpha=x": r"sharpness\.alpha=x is not a number >= 0; give one",
    "sharpness=sam algorithm=mldg": r"sharpness=sam cannot go around algorithm=mldg: .*; set sharpness=none",
    "sharpness=sam trainer.accumulate=2": r"sharpness=sam cannot go with trainer\.accumulate=2: .*; set trainer",
    "averaging.name=null": r"averaging\.name=null is no name",
    "protocol.name=null": r"protocol\.name=null is no name",
    "init.name=null": r"init\.name=null is no name",
    "init.norm=foo": r"init\.norm=foo is unknown; choose train, frozen or fixed",
    "backbone=resnet18 backbone.norm=foo": r"backbone\.norm=foo is unknown; choose train, frozen or fixed",
    "init=file": r"init=file has no weights for this backbone; use init=random, backbone=resnet50",
    f"{PHOTOS} init=file": r"init=file names no file; give one with init\.path=FILE or init\.url=ADDRESS",
    "dataset=pacs init=file init.path=nowhere.pth": r"init\.path=nowhere\.pth is no file; give a",
    f"{PHOTOS} init=file init.timeout=0": r"init\.timeout=0 is not a number of seconds > 0",
    f"{PHOTOS} init.sha256=xyz": r"init\.sha256=xyz is no sha256",
    f"{PHOTOS} init.mean=[1,2]": r"init\.mean=\[1,2\] is not three numbers",
    f"{PHOTOS} init.std=[1,0,1]": r"init\.std",
    f"{PHOTOS} init.version=tv": r"init\.version=tv is unknown for resnet50; choose from ram_in1k, tv_in1k",
    "trainer.steps=1e23": r"trainer\.steps=1e\+23 is not an integer",
    "trainer.steps=nan": r"trainer\.steps=nan is not an integer",
    "trainer.steps=-1": r"trainer\.steps=-1 is not an integer >= 0",
    "trainer.steps=1.5": r"trainer\.steps=1\.5 is not an integer",
    "trainer.steps=abc": r"trainer\.steps=abc is not an integer",
    "trainer.steps=null": r"trainer\.steps=.* is not an integer",
    "trainer.log_every=0": r"trainer\.log_every=0 is not an integer >= 1",
    "trainer.eval_every=0": r"trainer\.eval_every=0 is not an integer >= 1",
    "trainer.eval_subsets=val": r"trainer\.eval_subsets=val is not a list",
    "trainer.device=tpuu": r"trainer\.device=tpuu is unknown; choose auto, cpu",
    "trainer.precision=8": r"trainer\.precision=8 is unknown; choose 32-true",
    "trainer.predictions=first": r"trainer\.predictions=first is unknown; choose none, last, best",
    "trainer=ddp trainer.predictions=last": r"trainer\.predictions=last needs one process",
    "trainer.channels_last=maybe": r"trainer\.channels_last=maybe is unknown",
    "trainer.gradient_clip=0": r"trainer\.gradient_clip=0 is not a norm > 0",
    "hparams=search hparams.scheme.varies=[foo]": r"hparams\.scheme\.varies: foo=.* is no integer",
    "hparams=search hparams.scheme.draws=0": r"hparams\.scheme\.draws=0 is neither",
    "selection=ood_val": r"selection\.environments is no list of names; name one",
    "backbone=mnist_cnn dataset.base=digits": r"backbone mnist_cnn takes images of at least 14 x 14, these are 8 x 8",
}


@pytest.mark.parametrize("typed", WRONG)
def test_a_wrong_word_gets_one_line_and_nothing_is_written(
    typed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = typed.split()
    digits = [] if any(word.startswith("dataset=") for word in words) else ["dataset.base=digits"]
    with pytest.raises(DgbenchError) as raised:
        dgbench.train([*digits, *words])
    said = str(raised.value)
    assert re.search(WRONG[typed], said), said
    assert "\n" not in said
    assert not list(tmp_path.iterdir())


def test_the_key_that_was_typed_is_never_what_was_meant() -> None:
    """Whatever is chosen: no key of one choice is offered where another was chosen that lacks it."""
    from hydra.errors import ConfigCompositionException

    for key in ("backbone.width", "averaging.rule.start", "selection.environments", "protocol.k"):
        line = explain(ConfigCompositionException(f"Could not override '{key}'."), "train", ["backbone=resnet18"])
        assert f"did you mean {key}?" not in line


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("run=x steps=5", r"key steps is unknown"),
        ("report.spred=x", r"report=measures has no key spred; .*"),
        ("report=leaderboard report.spred=x", r"did you mean report\.spread\?"),
        ("report=leaderbord", r"report=leaderbord is unknown; did you mean leaderboard\?"),
        ("import.path=x", r"import=dgbench has no key path; .*path belongs to import=domainbed"),
        ("outpt=x", r"key outpt is unknown; did you mean output\?"),
    ],
)
def test_a_wrong_word_of_a_report(word: str, said: str) -> None:
    from hydra.errors import HydraException

    with pytest.raises(HydraException) as raised:
        composed(*word.split(), name="report")
    assert re.search(said, explain(raised.value, "report", word.split()))


# ---- what a dataset brings along ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "backbone", "init"),
    [
        ("", "MLPFeaturizer", "random"),
        ("dataset=pacs", "resnet50", "supervised"),
        ("dataset=pacs init=random", "resnet50", "random"),
        ("dataset=pacs init=moco", "resnet50", "moco"),
        ("dataset=pacs backbone=resnet18", "resnet18", "random"),
        ("dataset=pacs backbone=mlp", "MLPFeaturizer", "random"),
        ("dataset=vlcs_corrupted", "resnet50", "supervised"),
        ("dataset=manifest dataset.manifest=x", "resnet50", "supervised"),
        ("dataset=c_cats_dogs", "resnet50", "supervised"),
        ("dataset=l_cifar10", "WideResNet", "random"),
        ("dataset=nico_mixed", "resnet18", "random"),
        ("dataset=cmnist_irm", "MLPFeaturizer", "random"),
        ("experiment=hwang2024_table3 dataset=vlcs_corrupted", "resnet50", "supervised"),
        ("experiment=ye2022_table2_nico", "resnet18", "random"),
    ],
)
def test_a_dataset_names_its_backbone_where_none_is_named(words: str, backbone: str, init: str) -> None:
    config = composed(*words.split())
    assert config.backbone.get("arch", config.backbone._target_.rpartition(".")[2]) == backbone
    assert config.init.name == init


def test_datasets_of_a_grid_bring_their_own(tmp_path: Path) -> None:
    from dgbench.plan.compose import Composer

    composer = Composer(_Loader(), lambda words: composed(*words))  # type: ignore[arg-type]
    found = [composer.compose([f"dataset={name}"])["backbone"]["name"] for name in ("sr_cmnist", "pacs", "sr_cmnist")]
    assert found == ["mlp-390", "resnet50-bn_frozen", "mlp-390"]


class _Loader:
    def get_group_options(self, group: str) -> list[str]:
        return [path.stem for path in (CONF / group).glob("*.yaml")]


def test_weights_of_resnet50_are_domainbeds_of_today_or_of_2020() -> None:
    def first(*words: str) -> tuple[str | None, str]:
        init = composed("backbone=resnet50", *words).init
        return init.version, next(iter(init.published.resnet50))

    assert first("init=supervised") == (None, "ram_in1k")
    assert first("init=supervised_2020")[0] == "tv_in1k"
    assert {composed(f"experiment={name}").init.version for name in ("hwang2024_table2", "yu2024_table1")} == {
        "tv_in1k"
    }


# ---- selections that the runs of a command cannot serve -------------------------------------------------------------


def test_a_selection_that_cannot_choose_is_said_plainly(tmp_path: Path) -> None:
    from dgbench.analysis.selection import LooVal, OodVal, TrainVal

    folds = make_plan(tmp_path, "dataset.base=digits").folds
    assert selection_note(TrainVal(), folds) is None
    assert selection_note(OodVal(["0.80"]), folds) is None
    assert "hold out one environment more" in str(selection_note(LooVal(), folds))
    assert "is held out by no fold" in str(selection_note(OodVal(["photo"]), folds))


# ---- help ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "own", "others"), [("train", "algorithm=erm", "split_by="), ("report", "split_by=null", "algorithm=erm")]
)
def test_help_shows_the_keys_of_its_command(name: str, own: str, others: str) -> None:
    text = help_text(name)
    assert f"  {own}" in text
    assert f"  {others}" not in text
    assert "docs/reference/configuration.md" in text
    assert "--shell-completion install=bash" in text
    assert all(len(line) <= 125 for line in text.splitlines())


def test_help_and_version_of_the_program(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    main(["train", "--help"])
    assert capsys.readouterr().out == help_text("train") + "\n"
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("dgbench ")

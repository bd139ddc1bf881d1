"""What a user may type wrongly: keys, choices, prefixes and values of every group.

One line, and nothing written.
"""

from __future__ import annotations

import errno
import re
import sys
from pathlib import Path

import pytest
from hydra.errors import HydraException

import dgbench
from dgbench.cli.entry import help_text
from dgbench.cli.main import main
from dgbench.errors import DgbenchError
from dgbench.plan.explain import explain
from dgbench.plan.folds import selection_note
from tests.studies import composed, composer, make_plan

PHOTOS = "dataset=image_folder dataset.root=."

#: words -> what the line must say, a regular expression
WRONG = {
    # a key that another choice of the group has
    "backbone=resnet18 backbone.width=8": (r"backbone=resnet18.*width.*norm.*width.*backbone=mlp"),
    "backbone.norm=train": r"backbone=mlp.*norm.*width.*norm.*resnet18",
    f"{PHOTOS} backbone.width=8": r"backbone=resnet50_pretrained.*width.*backbone=mlp",
    "averaging.rule.start=1": (
        r"averaging=none has no key rule\.start; .*rule\.start belongs to averaging=eoa"
    ),
    "averaging=swad averaging.rule.start=1": (
        r"averaging=swad has no key rule\.start; .*belongs to averaging=eoa"
    ),
    "sharpness.rho=0.1": r"sharpness=none.*rho.*rho.*sharpness=gsam.*sharpness=sam",
    "sharpness=sam sharpness.alpha=1": r"sharpness=sam.*alpha.*sharpness=gsam, sharpness=sagm",
    "tuning.freeze_stages=2": (
        r"tuning=ft has no key freeze_stages; .*belongs to tuning=freeze, tuning=lp"
    ),
    "logger.mode=online": r"logger=none.*mode.*mode.*logger=wandb",
    "logger=csv logger.project=x": r"logger=csv.*project.*logger=wandb",
    "protocol.k=2": r"protocol=loo.*k.*folds.*k.*protocol=multi_test",
    "selection.environments=[a]": r"selection=last.*environments.*selection=ood_val",
    "hparams.scheme.draws=3": (
        r"hparams=default has no key scheme\.draws; .*belongs to .*hparams=search,"
    ),
    "init.path=x": r"init=random.*path.*path.*init=file",
    "dataset.severity=3": r"dataset=sr_cmnist.*severity.*severity.*corruptions=hendrycks",
    "corruptions.severity=3": r"corruptions=null.*severity.*dataset\.severity\?",
    "dataset=pacs dataset.scale=2": r"dataset=pacs.*scale.*scale.*dataset=.*sr_cmnist",
    "algorithm.vrex_lambda=3": (
        r"algorithm=erm has no key vrex_lambda; did you mean hparams\.vrex_lambda\?"
    ),
    # a key that none has
    "trainer.step=5": r"trainer\.step.*unknown.*trainer\.steps\?",
    "execution.max_run=1": r"execution\.max_run.*unknown.*execution\.max_runs\?",
    "paths.data=x": r"paths\.data.*unknown.*paths\.data_dir\?",
    "dataset.colour=red": r"dataset=sr_cmnist.*colour.*label_noise",
    "logger=wandb logger.projct=x": r"logger\.projct.*unknown.*logger\.project\?",
    "averaging=eoa averaging.rule.strt=2": r"averaging\.rule\.strt.*unknown.*rule\.start\?",
    "init=file init.pth=x": r"init\.pth.*unknown.*init\.path\?",
    "tuning=lp tuning.cach_gb=1": r"tuning\.cach_gb.*unknown.*tuning\.cache_gb\?",
    # a key of a mapping
    "sweep={runs_per_jobs:1}": r"sweep\.runs_per_jobs.*unknown.*sweep\.runs_per_job\?",
    "card.tflops={fp8:1}": r"card\.tflops\.fp8.*unknown.*half, tf32, single, double",
    "dataset=pacs dataset.normalize={men:[0,0,0]}": (
        r"dataset\.normalize\.men.*unknown.*dataset\.normalize\.mean\?"
    ),
    # what needs another word
    "algorithm=worst_risk": (
        r"algorithm=worst_risk.*unknown.*--config-dir FOLDER, where FOLDER/algorithm/worst_risk"
    ),
    "backbone=mobilenetv3_small_050": (
        r"unknown.*backbone=timm backbone\.arch=mobilenetv3_small_050"
    ),
    # a key without its group
    "steps=5": r"steps.*unknown.*trainer\.steps\?",
    "width=8": r"width.*unknown.*backbone\.width\?",
    "lr=1": r"lr.*unknown.*hparams\.lr",
    "vrex_lambda=2": r"vrex_lambda.*unknown.*hparams\.vrex_lambda\?",
    "max_runs=2": r"max_runs.*unknown.*execution\.max_runs\?",
    "data_dir=x": r"data_dir.*unknown.*paths\.data_dir",
    "sead=1": r"sead.*unknown.*seed\?",
    "nonsense=1": r"nonsense.*unknown; see docs/reference/configuration\.md",
    # a choice that a group does not have
    "dataset=imagnet": r"dataset=imagnet is unknown; .*choose from .*sr_cmnist",
    "algorithm=vrx": r"algorithm=vrx.*unknown.*vrex\?.*ada_clust",
    "algorithm=vrex/x": r"algorithm=vrex/x is unknown; .*choose from ada_clust",
    "backbone=resnet19": r"backbone=resnet19.*unknown.*resnet18\?",
    "init=rand": r"init=rand.*unknown.*random\?",
    "protocol=leave": r"protocol=leave.*unknown.*fixed",
    "trainer=dpp": r"trainer=dpp.*unknown.*ddp\?",
    "sharpness=asam": r"sharpness=asam.*unknown.*sam\?.*gsam, none.*sam",
    "averaging=swd": r"averaging=swd.*unknown.*swad\?",
    "corruptions=hendrick": r"corruptions=hendrick.*unknown.*hendrycks\?",
    "logger=tensorbord": r"logger=tensorbord.*unknown.*tensorboard\?.*csv, none",
    "logger=mlflow": r"logger=mlflow.*unknown.*csv, none.*wandb",
    "logger._target_=3": (
        r"logger\._target_=3 is no class; give the import path of a Lightning Logger"
    ),
    "logger._target_=a.b.C": (
        r"logger\._target_=a\.b\.C cannot be imported .*; .* or correct the path"
    ),
    "logger._target_=pathlib.Path": (
        r"logger\._target_=pathlib\.Path.*logger; subclass pytorch_lightning"
    ),
    "logger._target_=pytorch_lightning.loggers.CSVLogger +logger.nme=x": (
        r"CSVLogger cannot be used: .*'nme'"
    ),
    "tuning=linear": r"tuning=linear.*unknown.*freeze, ft",
    "execution=fast": r"execution=fast.*unknown.*auto, single",
    "hparams=serch": r"hparams=serch.*unknown.*search\?",
    "selection=train_vl": r"selection=train_vl.*unknown.*train_val\?",
    "experiment=hwang": r"experiment=hwang is unknown; .*choose from .*demo",
    "paths=mine": r"paths=mine.*unknown.*default",
    # +, ++, ~ and =
    "+foo=1": r"\+foo=1 adds.*nothing reads",
    "+trainer.foo=1": r"trainer\.foo.*trainer",
    "+trainer.steps=3": r"\+trainer\.steps adds.*already.*trainer\.steps=VALUE",
    "++trainer.stepz=3": r"trainer\.stepz.*trainer",
    "+backbone=mlp": r"\+backbone=mlp adds.*group.*already.*backbone=mlp",
    "++backbone=mlp": r"\+\+backbone=mlp adds.*group.*already.*backbone=mlp",
    "+execution.foo=1": r"execution\.foo.*execution",
    "+paths.foo=1": r"paths\.foo.*paths",
    "+sweep.foo=1": r"sweep\.foo.*sweep",
    "+protocol.foo=1": r"protocol\.foo.*protocol",
    "~backbone": r"~backbone takes.*group.*backbone=NAME",
    "~seed": r"~seed takes.*seed=VALUE",
    "~foo": r"~foo takes",
    "~trainer.foo": r"~trainer\.foo takes",
    "=5": r"=5.*KEY=VALUE",
    "seed": r"seed.*read.*KEY=VALUE",
    "pacs": r"pacs names no key; did you mean dataset=pacs\?",
    "GroupDRO": r"GroupDRO names no key; did you mean algorithm=group_dro\?",
    "seed:5": r"seed:5 cannot be read: .*write KEY=VALUE",
    "algorithm=": r"algorithm=.*choice.*ada_clust",
    "algorithm=[erm,vrex]": (
        r"algorithm=\[erm,vrex\] names several choices; .*grid\.algorithm=\[erm,vrex\]"
    ),
    "algorithm=erm,vrex": r"algorithm=erm,vrex .*-m",
    # values
    "seed=": r"seed is empty",
    "seed=null": r"seed=null.*integer >= 0",
    "seed=true": r"seed=true.*integer >= 0",
    "seed=${oc.env:NOT_SET_HERE}": (
        r"variable NOT_SET_HERE is not set; .*\$\{oc\.env:NOT_SET_HERE,VALUE\}"
    ),
    "seed=1.5": r"seed=1\.5.*integer >= 0",
    "seed=99999999999999999999999": r"seed=9+.*integer >= 0.*2\^63\)",
    "plan=maybe": r"plan=maybe is unknown; choose true or false",
    "plan=null": r"plan=null is unknown",
    "retry=never": r"retry=never.*unknown.*failed, none",
    "grid=5": r"grid=5.*lists",
    "grid.seed=3": r"grid\.seed=3.*list.*grid\.seed=\[\.\.\.\]",
    "grid.seed=[]": r"grid\.seed=\[\] is no list",
    "grid.foo=[1]": r"foo.*unknown",
    "grid.algorithm=[foo]": r"algorithm=foo.*unknown",
    "grid.algorithm.name=[null,x]": r"algorithm\.name=null cannot name a folder",
    "grid.tuning.name=['']": r"tuning\.name is empty",
    "averaging=swad grid.averaging.rule.batchnorm_batches=[-5]": (
        r"averaging\.rule\.batchnorm_batches=-5 is not"
    ),
    "hparams=search trainer.steps=-1": r"trainer\.steps=-1.*integer >= 0",
    "grid.retry=[all,failed]": r"grid\.retry sets.*studies.*command.*common.*retry=VALUE",
    "execution.memory_gb=-1": r"execution\.memory_gb=-1.*number > 0.*null",
    "execution.memory_gb=nan": r"execution\.memory_gb=nan.*number > 0",
    "execution.memory_gb=big": r"execution\.memory_gb=big.*number > 0",
    "execution.max_runs=0": r"execution\.max_runs=0.*integer >= 1",
    "execution.max_runs=true": r"execution\.max_runs=true.*integer",
    "execution.mode=fast": r"execution\.mode=fast.*unknown.*auto, single.*stacked",
    "paths.data_dir=null": r"paths\.data_dir=null.*folder.*path",
    "paths.cache_dir=null": r"paths\.cache_dir=null is no folder",
    "paths.output_dir=": r"paths\.output_dir is empty",
    "paths.output_dir=[a]": r"paths\.output_dir=\[a\] is no folder",
    "logger=wandb logger.mode=foo": r"logger\.mode=foo.*unknown.*online, offline.*null",
    "logger=wandb logger.tags=a": r"logger\.tags=a.*list.*e\.g\. logger\.tags=\[first\]",
    "logger=wandb logger.entity=3": r"logger\.entity=3 is no W&B user or team",
    "tuning=lp tuning.cache_gb=-1": r"tuning\.cache_gb=-1.*number > 0",
    "tuning=lp tuning.cache_features=maybe": r"tuning\.cache_features=maybe.*unknown.*true.*false",
    "tuning=lp tuning.name=": r"tuning\.name is empty",
    "tuning=lp tuning.freeze_stages=some": r"tuning\.freeze_stages=some.*number.*stages",
    "averaging=eoa averaging.rule.start=0": r"averaging\.rule\.start=0.*step.*1.*more",
    "averaging=eoa averaging.rule.start=1.5": r"averaging\.rule\.start=1\.5.*step",
    "averaging=eoa averaging.rule.flavor=x": (
        r"averaging\.rule\.flavor=x.*unknown.*state.*parameters.*renewed"
    ),
    "averaging=swad averaging.rule.n_converge=0": r"averaging\.rule\.n_converge=0.*integer >= 1",
    "averaging=swad averaging.rule.tolerance_ratio=nan": (
        r"averaging\.rule\.tolerance_ratio=nan.*number >= 0"
    ),
    "averaging=swad averaging.rule.batchnorm_batches=-1": (
        r"averaging\.rule\.batchnorm_batches=-1.*integer"
    ),
    "averaging=beta averaging.rule.beta=0": r"averaging\.rule\.beta=0.*number > 0.*0\.5",
    "averaging=eoa averaging.rule.beta=1": r"averaging=eoa has no key rule\.beta.*averaging=beta",
    # names of rows that would not be what is trained
    "averaging=eoa trainer.steps=99": (
        r"averaging\.rule\.start=100 .*trainer\.steps=99; lower.*averaging=none"
    ),
    "averaging=eoa averaging.rule.flavor=renewed trainer.steps=99": (
        r"averaging\.rule\.start=100 .*steps=99"
    ),
    "averaging=eoa averaging.rule.flavor=parameters trainer.steps=100": (
        r"averaging\.rule\.start=100 .*steps=100"
    ),
    "averaging=eoa trainer.steps=200 grid.averaging.rule.start=[10,201]": (
        r"averaging\.rule\.start=201"
    ),
    "averaging=eoa hparams=search grid.trainer.steps=[100,50]": (
        r"averaging\.rule\.start=100 .*trainer\.steps=50"
    ),
    "averaging=swad trainer.steps=1000": (
        r"averaging\.rule\.n_converge=3 .*2 evaluations.*trainer\.eval_every=500"
    ),
    "tuning=lp_ft tuning.head_steps=0": (
        r"tuning\.name=lp_ft .*tuning\.head_steps=0 .*which is ft; choose tuning=ft"
    ),
    "tuning=lp_ft grid.tuning.head_steps=[5,0]": r"tuning\.name=lp_ft .*head_steps=0",
    "tuning=lp_ft trainer.steps=500": r"tuning\.head_steps=500 .*trainer\.steps=500.*lower",
    "tuning=lp tuning.freeze_stages=2": (
        r"tuning\.name=lp .*freeze_stages=2 .*which is freeze2; choose tuning=freeze"
    ),
    "tuning=freeze tuning.freeze_stages=0": r"tuning\.name=freeze0 .*which is ft",
    "algorithm.name=irm": r"algorithm\.name=irm .*choose algorithm=irm",
    "grid.algorithm.name=[mine,irm]": r"algorithm\.name=irm .*choose algorithm=irm",
    "algorithm.objective=dgbench.algorithms.irm.IRM": (
        r"algorithm\.objective=\S+IRM .*name=erm, .*algorithm\.name"
    ),
    "backbone.name=resnet50": r"backbone\.name=resnet50 .*choose backbone=resnet50",
    "averaging.name=swad": r"averaging\.name=swad .*choose averaging=swad",
    "sharpness=sam sharpness.rho=0": r"sharpness\.rho=0 .*sharpness=none",
    "sharpness=gsam sharpness.alpha=0": r"sharpness\.alpha=0 .*choose sharpness=sam",
    "sharpness=sam sharpness.rho=-1": r"sharpness\.rho=-1.*number > 0",
    "sharpness=gsam sharpness.alpha=x": r"sharpness\.alpha=x.*number >= 0",
    "sharpness=sam algorithm=mldg": (
        r"sharpness=sam cannot be used with algorithm=mldg: .*; set sharpness=none"
    ),
    "sharpness=sam trainer.accumulate=2": (
        r"sharpness=sam cannot go with trainer\.accumulate=2: .*; set trainer"
    ),
    "averaging.name=null": r"averaging\.name=null cannot name a folder",
    "protocol.name=null": r"protocol\.name=null cannot name a folder",
    "init.name=null": r"init\.name=null cannot name a folder",
    "init.norm=foo": r"init\.norm=foo.*unknown.*train, frozen.*fixed",
    "backbone=resnet18 backbone.norm=foo": r"backbone\.norm=foo.*unknown.*train, frozen.*fixed",
    "init=file": r"init=file.*weights.*backbone.*init=random, backbone=resnet50",
    f"{PHOTOS} init=file": r"init=file.*file.*init\.path=FILE.*init\.url=ADDRESS",
    "dataset=pacs init=file init.path=nowhere.pth": r"init\.path=nowhere\.pth.*file",
    f"{PHOTOS} init=file init.timeout=0": r"init\.timeout=0.*number.*seconds > 0",
    f"{PHOTOS} init.sha256=xyz": r"init\.sha256=xyz.*sha256",
    f"{PHOTOS} init.mean=[1,2]": r"init\.mean=\[1,2\].*three numbers",
    f"{PHOTOS} init.std=[1,0,1]": r"init\.std",
    f"{PHOTOS} init.version=tv": (
        r"init\.version=tv is unknown for resnet50; choose from ram_in1k, tv_in1k"
    ),
    "trainer.steps=1e23": r"trainer\.steps=1e\+23.*integer",
    "trainer.steps=nan": r"trainer\.steps=nan.*integer",
    "trainer.steps=-1": r"trainer\.steps=-1.*integer >= 0",
    "trainer.steps=1.5": r"trainer\.steps=1\.5.*integer",
    "trainer.steps=abc": r"trainer\.steps=abc.*integer",
    "trainer.steps=null": r"trainer\.steps=.*integer",
    "trainer.log_every=0": r"trainer\.log_every=0.*integer >= 1",
    "trainer.eval_every=0": r"trainer\.eval_every=0.*integer >= 1",
    "trainer.eval_subsets=val": r"trainer\.eval_subsets=val.*list",
    "trainer.device=tpuu": r"trainer\.device=tpuu.*unknown.*auto, cpu",
    "trainer.precision=8": r"trainer\.precision=8 is unknown; choose 32-true",
    "trainer.predictions=first": r"trainer\.predictions=first.*unknown.*none, last",
    "trainer=ddp trainer.predictions=last": r"trainer\.predictions=last needs one process",
    "trainer.channels_last=maybe": r"trainer\.channels_last=maybe is unknown",
    "trainer.gradient_clip=0": r"trainer\.gradient_clip=0.*norm > 0",
    "hparams=search hparams.scheme.varies=[foo]": r"hparams\.scheme\.varies: foo=.* is no integer",
    "hparams=search hparams.scheme.draws=0": r"hparams\.scheme\.draws=0 is neither",
    "selection=ood_val": r"selection\.environments.*list",
    "backbone=mnist_cnn dataset.base=digits": (
        r"backbone mnist_cnn takes images.*least 14 x 14.*8 x 8"
    ),
    # datasets, sizes and hyperparameters
    "algoritm=erm": r"algoritm.*unknown.*algorithm\?",
    "hparams.lambda=1": r"hparams\.lambda.*read.*nothing.*lr",
    "trainer.weight_decay=1": r"trainer\.weight_decay is set by.*; write hparams\.weight_decay=1",
    "trainer.batch_size=1": r"trainer\.batch_size is set by.*; write hparams\.batch_size=1",
    "hparams.set.lr=1": r"hparams\.set\.lr is set by hparams\.lr; write hparams\.lr=1",
    "algorithm.hparams.x=1": r"algorithm\.hparams\.x is set by hparams\.x; write hparams\.x=1",
    "execution.max_members=2": r"execution\.max_members is set by.*; write execution\.max_runs=2",
    "sweep.members_per_job=2": r"sweep\.members_per_job is set by.*; write sweep\.runs_per_job=2",
    "dataset.given=[0.9,1.1]": r"dataset\.given holds 1\.1",
    "dataset.given=[-0.5,0.9]": r"dataset\.given holds -0\.5",
    "dataset.given=[0.9,0.9,0.1]": r"dataset\.given holds 0\.90 more than once",
    "dataset.given=[0.9]": r"at least 2 given environments",
    "dataset.given=[]": r"dataset\.given is empty",
    "dataset.given=0.9": r"dataset",
    "hparams.batch_size=1000": (
        r"batch_size=1000 is larger than.* environment.*batch_size=308 or less"
    ),
    "hparams.batch_size=0": r"batch_size=0 ",
    "backbone=mnist_cnn backbone.width=64": r"these are 8 x 8; use backbone=mlp",
    "backbone.width=0": r"backbone\.width=0 ",
    "backbone.width=wide": r"backbone",
    "protocol.folds=[7]": r"protocol\.folds=\[7\].* choose from 0, 1, 2, 3, full",
    "protocol.folds=[]": r"choose from 0, 1, 2, 3, full",
    "hparams.lr=-1": r"lr=-1",
    "hparams.lr=nan": r"hparams\.lr=nan.*number",
    "hparams.weight_decay=-1": r"hparams\.weight_decay=-1.*number >= 0",
    "algorithm=dann hparams.lr_g=inf": r"hparams\.lr_g=inf.*number >= 0",
    "trainer.eval_subsets=[train]": r"eval_subsets=\[train\].*hold val.*test",
    "seed=-1": r"seed=-1.*integer >= 0",
    "seed=x": r"seed=x.*integer >= 0",
    "seed==1": r"seed==1 has two equal signs; write seed=1",
    "algorithm==ERM": r"algorithm==.* has two equal signs; write algorithm=",
    "grid.paths.output_dir=[a,b]": r"grid\.paths\.output_dir .*write paths\.output_dir=VALUE",
    "hparams=search hparams.scheme.draws=1000000000": r"draws=1000000000 makes .* studies",
    "algorithm=vrex hparams.vrex_lambda=big": r"vrex_lambda",
}


@pytest.mark.thorough
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


def test_a_folder_that_cannot_be_written_is_that_of_the_typed_key() -> None:
    error = PermissionError(errno.EACCES, "Permission denied", "/proc/x/y")
    assert explain(error, "train", ["name=x", "output=/proc/x"]).endswith(" with output")
    assert explain(error, "train", ["seed=1"]).endswith(" with paths.output_dir")


def test_the_key_that_was_typed_is_never_what_was_meant() -> None:
    """Whatever is chosen: no key of one choice is offered where another was chosen that lacks
    it.
    """
    from hydra.errors import ConfigCompositionException

    for key in ("backbone.width", "averaging.rule.start", "selection.environments", "protocol.k"):
        line = explain(
            ConfigCompositionException(f"Could not override '{key}'."),
            "train",
            ["backbone=resnet18"],
        )
        assert f"did you mean {key}?" not in line


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("output=x steps=5", r"steps.*unknown"),
        ("report.spred=x", r"report=measures.*spred"),
        ("report=leaderboard report.spred=x", r"did you mean report\.spread\?"),
        ("report=leaderbord", r"report=leaderbord.*unknown.*leaderboard\?"),
        ("import.path=x", r"import=dgbench.*path.*path.*import=domainbed"),
        ("outpt=x", r"outpt.*unknown.*output\?"),
    ],
)
def test_a_wrong_word_of_a_report(word: str, said: str) -> None:
    from hydra.errors import HydraException

    with pytest.raises(HydraException) as raised:
        composed(*word.split(), name="report")
    assert re.search(said, explain(raised.value, "report", word.split()))


# ---- what a dataset brings along


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
def test_a_dataset_names_its_backbone_where_none_is_named(
    words: str, backbone: str, init: str
) -> None:
    config = composed(*words.split())
    assert config.backbone.get("arch", config.backbone._target_.rpartition(".")[2]) == backbone
    assert config.init.name == init


def test_datasets_of_a_grid_bring_their_own() -> None:
    found = [
        composer().compose([f"dataset={name}"])["backbone"]["name"]
        for name in ("sr_cmnist", "pacs", "sr_cmnist")
    ]
    assert found == ["mlp-390", "resnet50-bn_frozen", "mlp-390"]


def test_weights_of_resnet50_are_domainbeds_of_today_or_of_2020() -> None:
    def first(*words: str) -> tuple[str | None, str]:
        init = composed("backbone=resnet50", *words).init
        return init.version, next(iter(init.published.resnet50))

    assert first("init=supervised") == (None, "ram_in1k")
    assert first("init=supervised_2020")[0] == "tv_in1k"
    assert {
        composed(f"experiment={name}").init.version
        for name in ("hwang2024_table2", "yu2024_table1")
    } == {"tv_in1k"}


# ---- selections that the runs of a command cannot serve


def test_a_selection_that_cannot_choose_is_said_plainly(tmp_path: Path) -> None:
    from dgbench.analysis.selection import LooVal, OodVal, TrainVal

    folds = make_plan(tmp_path, "dataset.base=digits").folds
    assert selection_note(TrainVal(), folds, tmp_path) is None
    assert selection_note(OodVal(["0.80"]), folds, tmp_path) is None
    note = str(selection_note(LooVal(), folds, tmp_path))
    assert "one environment more" in note
    assert note.endswith(f"selection=loo_val 'runs=[{tmp_path}]'")
    assert "held out by no fold" in str(selection_note(OodVal(["photo"]), folds, tmp_path))


# ---- help


@pytest.mark.parametrize(
    ("name", "own", "others"),
    [("train", "algorithm=erm", "split_by="), ("report", "split_by=null", "algorithm=erm")],
)
def test_help_shows_the_keys_of_its_command(name: str, own: str, others: str) -> None:
    text = help_text(name)
    assert f"  {own}" in text
    assert f"  {others}" not in text
    assert "docs/reference/configuration.md" in text
    assert "--shell-completion install=bash" in text
    assert all(len(line) <= 125 for line in text.splitlines())


def test_help_and_version_of_the_program(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    main(["train", "--help"])
    assert capsys.readouterr().out == help_text("train") + "\n"
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("dgbench ")


def test_a_file_of_ones_own_names_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "my_configs" / "algorithm" / "worst_risk.yaml"
    file.parent.mkdir(parents=True)
    file.touch()
    with pytest.raises(HydraException) as error:
        composed("algorithm=worst_risk")
    assert "add --config-dir my_configs" in explain(error.value, "train", ["algorithm=worst_risk"])
    assert "--config-dir" not in explain(
        error.value, "train", ["--config-dir", "my", "algorithm=worst_risk"]
    )


def test_tables_of_others_name_the_import() -> None:
    with pytest.raises(HydraException) as error:
        composed("import.path=f.csv", name="report")
    assert "import=table import.path=f.csv" in explain(error.value, "report", ["import.path=f.csv"])

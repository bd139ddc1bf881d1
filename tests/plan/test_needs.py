"""Every key is read, or says what it needs to be read: all of them are sorted here, and typed."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from dgbench.cli.main import main
from dgbench.configuration import CONF
from dgbench.errors import ConfigError
from dgbench.plan.building import build
from dgbench.plan.identity import NO_RESULT
from dgbench.plan.keys import keys_of_file, package_of
from dgbench.plan.needs import OF_TRAINING, Need
from dgbench.plan.overrides import groups, open_keys
from dgbench.plan.studies import Planner
from dgbench.plan.unread import check_needs, keys_of, longest, without_misleading
from dgbench.shift.needs import OF_SHIFT
from dgbench.shift.plan import USED
from tests.studies import composed, composer, make_plan, plain

#: keys that no result depends on, and that something reads in every configuration that has them ->
#: what reads them
READ_ALWAYS: Mapping[str, str] = {
    "algorithm.hparams": "resolved for every study",
    "algorithm.shared": "resolved for every study",
    "algorithm._target_": "built",
    "averaging._target_": "built",
    "backbone._target_": "built",
    "dataset._target_": "built",
    "dataset.bad_files": "left out, and refused where they are not there",
    "dataset.cache_dir": "a place for what may be kept",
    "dataset.classes": "of the files",
    "dataset.columns": "refused of a file without columns",
    "dataset.device_share": "of a GPU, where there is one",
    "dataset.duplicates": "looked for in every folder",
    "dataset.environments": "selected",
    "dataset.given_sets": "by ratios, which no word can name",
    "dataset.image_kind": "of the defaults",
    "dataset.layout": "refused beside a list",
    "dataset.manifest": "read",
    "dataset.on_bad_image": "when images are decoded",
    "dataset.path": "read",
    "dataset.published": "compared",
    "dataset.reader": "called",
    "dataset.root": "read",
    "dataset.store": "of decoded images",
    "dataset.subset_column": "refused where no list is",
    "dataset.workers": "decode",
    "execution.mode": "of the command",
    "grid": "of the command",
    "hparams.scheme": "of searches alone, which have it",
    "hparams.shared.hparams": "resolved for every study",
    "init": "of networks that take weights, which refuse others",
    "logger": "passed to the logger, which refuses what it does not know",
    "paths.cache_dir": "a place for what may be kept",
    "paths.output_dir": "of single commands; sweeps refuse it",
    "per_algorithm": "looked up by name",
    "per_dataset": "looked up by name",
    "plan": "of the command",
    "protocol._target_": "built",
    "protocol.dominant": "of the folds", "protocol.folds": "of the folds",
    "protocol.groups": "of the folds", "protocol.k": "of the folds",
    "protocol.minor": "of the folds", "protocol.name": "of the rows",
    "protocol.seed": "of the folds", "protocol.setting": "of the folds",
    "protocol.test": "of the folds", "protocol.test_images": "of the folds",
    "protocol.train": "of the folds", "protocol.val": "of the folds", "retry": "of the command",
    "selection": "of the closing table",
    "sweep": "of sweeps; single commands refuse it, and it is named without a queue",
    "trainer.channels_last": "of networks with convolutions; others compute the same",
    "trainer.checkpoint_seconds": "of every run", "trainer.device": "of every run",
    "trainer.class_errors": "of every run", "trainer.predictions": "of every run",
    "tuning._target_": "built",
    "tuning.cache_features": "of the frozen part",
    "wait": "refused without a queue",
}  # fmt: skip
#: the same of ``shift``, whose other keys are in its rows
READ_BY_SHIFT = {
    "plan": "of the command", "wait": "refused without a queue", "retry": "of sweeps",
    **{f"trainer.{key}": "of every estimate" for key in USED},
}  # fmt: skip

#: beginnings of keys that are the content of files, one for each network, dataset or table
FILES = (
    "init.published",
    "dataset.published",
    "dataset.augmentations",
    "dataset.fetch",
    "algorithm.hparams",
)
COLUMNS = (
    "dataset=features",
    "dataset.path=listed.csv",
    "dataset.columns=[f0]",
    "hparams.batch_size=4",
)
FLEXIBLE = ("dataset=domain_net", "dataset.root=.", "protocol=flexible", "protocol.dominant=1")
SUPERVISED = ("backbone=resnet18", "init=supervised")
#: key of the needs -> a word, words beside which nothing reads it, and words beside which something
#: does
TYPED: Mapping[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "dataset.ratio": ("dataset.ratio=5", ("dataset.given=[0.9,0.1]",), ()),
    "dataset.scale": ("dataset.scale=2", ("dataset.given=[0.9,0.1]",), ()),
    "dataset.split": (
        "dataset.split.test=[test_land]",
        ("dataset=waterbirds",),
        ("dataset=waterbirds", "protocol=fixed"),
    ),
    "dataset.test_groups": (
        "dataset.test_groups=[[clipart]]",
        ("dataset=domain_net",),
        ("dataset=domain_net", "protocol=multi_test"),
    ),
    "dataset.fetch": ("dataset.fetch.folder=X", (), ()),
    "dataset.val_fraction": ("dataset.val_fraction=0.4", COLUMNS, ()),
    "dataset.split_seed": (
        "dataset.split_seed=4",
        COLUMNS,
        (*COLUMNS, "dataset.subset_column=none"),
    ),
    "dataset.resolution": (
        "dataset.resolution=14",
        ("dataset.base=digits",),
        ("dataset.base=auto",),
    ),
    "dataset.data_dir": ("dataset.data_dir=X", ("dataset.base=digits",), ("dataset.base=auto",)),
    "paths.data_dir": ("paths.data_dir=X", ("dataset=pacs", "dataset.root=Y"), ("dataset=pacs",)),
    "head.unit_length": ("head.unit_length=true", (), ("backbone=timm",)),
    "init.norm": ("init.norm=frozen", (), ("backbone=resnet18",)),
    "init.mean": (
        "init.mean=[0.1,0.1,0.1]",
        ("dataset=pacs", *SUPERVISED, "dataset.normalize.mean=[0,0,0]"),
        ("dataset=pacs", *SUPERVISED),
    ),
    "init.std": ("init.std=[0.1,0.1,0.1]", SUPERVISED, ("dataset=pacs", *SUPERVISED)),
    "init.version": ("init.version=v1", (*SUPERVISED, "init.path=x.pth"), SUPERVISED),
    "init.timeout": ("init.timeout=9", (*SUPERVISED, "init.path=x.pth"), SUPERVISED),
    "protocol.exclusive": (
        "protocol.exclusive=3",
        FLEXIBLE,
        (*FLEXIBLE, "protocol.setting=compositional"),
    ),
    "protocol.minor_images": ("protocol.minor_images=9", (*FLEXIBLE, "protocol.minor=0"), FLEXIBLE),
    "protocol.default_groups": (
        "protocol.default_groups=[[a]]",
        ("protocol=multi_test", "protocol.k=1"),
        ("protocol=multi_test",),
    ),
    "dataset.augmentations": (
        "dataset.augmentations.nico.flip=0.1",
        ("dataset=pacs",),
        ("dataset=pacs", "dataset.augment=nico"),
    ),
    "dataset.log2_batch_sizes": (
        "dataset.log2_batch_sizes=[3,4]",
        ("dataset=domain_net",),
        ("dataset=domain_net", "hparams=search"),
    ),
    "hparams.lr": ("hparams.lr=0.1", ("algorithm=dann",), ("algorithm=erm",)),
    "hparams.weight_decay": ("hparams.weight_decay=0.1", ("algorithm=cdann",), ()),
    "hparams.batch_size": (
        "hparams.batch_size=4",
        ("+algorithm.shared=[lr]",),
        ("algorithm=dann",),
    ),
    "hparams.rng": ("hparams.rng=single_stream", (), ("hparams.draw=1",)),
    "hparams.shared.search": (
        "hparams.shared.search.domainbed.lr.small.log10_uniform=[-4,-3]",
        (),
        ("hparams=search",),
    ),
    "algorithm.search": (
        "algorithm.search.domainbed.vrex_lambda.log10_uniform=[0,1]",
        ("algorithm=vrex",),
        ("algorithm=vrex", "hparams.draw=1"),
    ),
    "trainer.schedule": ("trainer.schedule=cosine", ("trainer.steps=0",), ()),
    "trainer.gradient_clip": ("trainer.gradient_clip=1", ("trainer.steps=0",), ()),
    "trainer.accumulate": ("trainer.accumulate=2", ("trainer.steps=0",), ()),
    "trainer.environments_per_step": ("trainer.environments_per_step=1", ("trainer.steps=0",), ()),
    "trainer.sampling": ("trainer.sampling=class_balanced", ("trainer.steps=0",), ()),
    "trainer.log_every": ("trainer.log_every=5", (), ("logger=csv",)),
    "trainer.matmul": ("trainer.matmul=high", ("trainer.precision=64-true",), ()),
    "averaging.rule.batchnorm_batches": (
        "averaging.rule.batchnorm_batches=9",
        ("averaging=swad", *SUPERVISED),
        ("averaging=swad", *SUPERVISED, "backbone.norm=train"),
    ),
    "tuning.head_lr": (
        "tuning.head_lr=0.1",
        ("tuning=lp_ft", "tuning.name=x", "tuning.head_steps=0"),
        ("tuning=lp_ft",),
    ),
    "tuning.cache_gb": (
        "tuning.cache_gb=1",
        ("tuning=lp",),
        ("tuning=lp", "tuning.cache_features=true"),
    ),
    "tuning.cache_dir": (
        "tuning.cache_dir=X",
        ("tuning=lp",),
        ("tuning=lp", "tuning.cache_features=true"),
    ),
    "execution.max_runs": ("execution.max_runs=2", ("execution=single",), ()),
    "execution.memory_gb": ("execution.memory_gb=2", ("execution=single",), ("execution=stacked",)),
    "card": ("card.tflops.half=1", (), ("plan=true",)),
}
DISTANCES = ("estimator=[distances]",)
FRECHET = ("estimator=[frechet]",)
#: the same of a shift, where it differs
TYPED_OF_SHIFT: Mapping[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "dataset.augmentations": ("dataset.augmentations.nico.flip=0.1", ("dataset=pacs",), ()),
    "dataset.log2_batch_sizes": ("dataset.log2_batch_sizes=[3,4]", ("dataset=domain_net",), ()),
    "dataset.val_fraction": (
        "dataset.val_fraction=0.4",
        (),
        ("images=train", "dataset.base=digits"),
    ),
    "dataset.split_seed": ("dataset.split_seed=4", (), ("images=train", "dataset.base=digits")),
    "protocol": ("protocol=single_source", ("pairs=each",), ()),
    "pairs": ("pairs=each", FRECHET, ()),
    "execution": ("execution=stacked", DISTANCES, ()),
    "execution.memory_gb": ("execution.memory_gb=1", (), ()),
    "cache_dir": ("cache_dir=X", ("features=trained",), ()),
    "cache_gb": ("cache_gb=1", ("features=trained",), ()),
}
#: by a shift
NEVER = {
    "dataset.fetch",
    "execution.memory_gb",
    "dataset.augmentations",
    "dataset.log2_batch_sizes",
}


def leaves_of(command: str) -> set[str]:
    """Every key that a command can have: of its file, and of the files of its groups."""
    own = yaml.safe_load((CONF / f"{command}.yaml").read_text())
    keys = {key for key in own if key not in ("defaults", "hydra", "sweep", "card")}
    keys |= {f"{top}.{key}" for top in ("sweep", "card") for key in own.get(top, {})}
    for group in groups(command):
        for file in sorted((CONF / group).glob("*.yaml")):
            package = package_of(file)
            names = {
                key if package == "_global_" else f"{package}.{key}" for key in keys_of_file(file)
            }
            keys |= {
                name for name in names if not any(other.startswith(f"{name}.") for other in names)
            }
    return {key for key in keys if not key.startswith("hydra.")}  # Hydra reads its own


def test_every_reason_of_the_identity_says_what_reads_the_key() -> None:
    """A new key is in the identity, or has a reason there; and then it is read always, or has a
    need here.
    """
    for entry in NO_RESULT:
        below = any(key.startswith(f"{entry}.") for key in (*READ_ALWAYS, *OF_TRAINING))
        assert entry == "hydra" or below or longest(entry, (*READ_ALWAYS, *OF_TRAINING)), entry


@pytest.mark.parametrize("command", ["train", "shift"])
def test_every_leaf_is_read_or_has_a_need(command: str) -> None:
    needs = OF_TRAINING if command == "train" else OF_SHIFT
    always = {**READ_ALWAYS, **(READ_BY_SHIFT if command == "shift" else {})}
    unsorted = []
    for key in leaves_of(command):
        counts = not longest(key, NO_RESULT) or longest(key, FILES)
        refused_by_shift = command == "shift" and key.startswith("trainer.") and key[8:] not in USED
        if not (counts or refused_by_shift or longest(key, always) or longest(key, needs)):
            unsorted.append(key)
    assert not unsorted


def test_both_lists_fit_the_keys_that_there_are() -> None:
    keys = leaves_of("train")
    stale = [
        entry for entry in (*READ_ALWAYS, *OF_TRAINING)
        if not any(f"{key}.".startswith(f"{entry}.") or entry.startswith(f"{key}.") for key in keys)
        and not entry.startswith(("per_", "hparams.", "grid"))
    ]  # fmt: skip
    assert not stale
    assert set(TYPED) == set(OF_TRAINING)
    assert set(TYPED_OF_SHIFT) == {
        key for key, need in OF_SHIFT.items() if OF_TRAINING.get(key) != need
    }


@pytest.fixture
def listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that says which rows validate."""
    monkeypatch.chdir(tmp_path)
    rows = [f"{env},{k % 2},{'val' if k < 4 else 'train'},{k}" for env in "abc" for k in range(12)]
    Path("listed.csv").write_text("\n".join(["environment,label,subset,f0", *rows]))


def told(needs: Mapping[str, Need], command: str, word: str, context: tuple[str, ...]) -> list[str]:
    """What is said of a word beside others: a line that refuses it, or that names it."""
    lines: list[str] = []
    words = open_keys([*context, word], command)

    def readings() -> Iterator[tuple[Any, Any]]:
        config = plain(composed(*context, word, name=command))
        asked = [typed for typed in (*context, word) if typed.startswith(("dataset", "hparams"))]
        yield config, (lambda: make_plan(Path(), *asked).info)

    try:
        check_needs([words[-1]], readings, needs, lines.append)
    except ConfigError as error:
        lines.append(f"refused: {error}")
    return lines


@pytest.mark.thorough
@pytest.mark.usefixtures("listed")
@pytest.mark.parametrize("key", OF_TRAINING)
def test_a_word_that_nothing_reads(key: str) -> None:
    word, unread, read = TYPED[key]
    (line,) = told(OF_TRAINING, "train", word, unread)
    assert line.startswith("refused: ") == OF_TRAINING[key].misleads
    assert line.removeprefix("refused: ").startswith(f"{word} changes nothing here: ")
    assert key == "dataset.fetch" or told(OF_TRAINING, "train", word, read) == []


@pytest.mark.thorough
@pytest.mark.parametrize("key", TYPED_OF_SHIFT)
def test_a_word_that_nothing_reads_of_a_shift(key: str) -> None:
    word, unread, read = TYPED_OF_SHIFT[key]
    (line,) = told(OF_SHIFT, "shift", word, unread)
    assert line.startswith("refused: ") == OF_SHIFT[key].misleads
    assert key in NEVER or told(OF_SHIFT, "shift", word, read) == []


@pytest.mark.parametrize(
    ("word", "keys"),
    [
        ("++hparams.lr=1", ["hparams.lr"]),
        ("hparams.lr=null", []),
        ("~logger", []),
        ("trainer={log_every:3,gradient_clip:null}", ["trainer.log_every"]),
        ("card={tflops:{half:1}}", ["card.tflops.half"]),
        ("execution=single", ["execution"]),
    ],
)
def test_keys_that_a_word_sets(word: str, keys: list[str]) -> None:
    assert list(keys_of(word)) == keys


def test_what_counts_in_a_hash_is_never_refused() -> None:
    """A command that makes a run again types it; only keys that no run's identity holds mislead."""
    counting = {
        key for key, need in OF_TRAINING.items() if need.misleads and not longest(key, NO_RESULT)
    }
    assert (
        counting
        == {"hparams.lr", "hparams.weight_decay", "hparams.batch_size", "head.unit_length"}
        & counting
    )
    config = plain(composed("algorithm=dann", "dataset.base=digits"))
    assert without_misleading(["hparams.lr=1", "seed=1", "card.name=x"], config, OF_TRAINING) == [
        "seed=1",
        "card.name=x",
    ]


def test_a_word_that_some_studies_read_is_named() -> None:
    lines: list[str] = []
    grid = open_keys(["hparams.lr=0.1", "dataset.base=digits", "grid.algorithm=[erm,dann]"])
    planner = Planner(composer())
    check_needs(grid, lambda: planner.readings(grid), OF_TRAINING, lines.append)
    (line,) = lines
    assert line.startswith(
        "hparams.lr=0.1 counts in 1 of 2 studies; in the others: this algorithm reads others"
    )


#: command -> word of a command that is no application of Hydra, and what is said of it
OF_PLAIN_COMMANDS = {
    ("fetch", "pacs", "--decode"): "--decode changes nothing here",
    ("fetch", "verify", "pacs", "--keep"): "--keep changes nothing here",
    ("fetch", "list", "--keep"): "--keep changes nothing here",
    ("fetch", "list", "pacs"): "pacs changes nothing here",
    (
        "evaluate",
        "model=x",
        "dataset.augment=nico",
    ): "dataset.augment=nico has no effect on dgbench evaluate",
    (
        "evaluate",
        "model=x",
        "dataset.fetch.folder=y",
    ): "dataset.fetch.folder=y has no effect on",
    ("evaluate", "model=x", "hparams.lr=1"): "hparams.lr is no key of dgbench evaluate",
    (
        "evaluate",
        "model=x",
        "trainer.steps=1",
    ): "trainer.steps=1 has no effect on dgbench evaluate",
}


@pytest.mark.parametrize("words", OF_PLAIN_COMMANDS, ids=" ".join)
def test_plain_commands_refuse(
    words: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [])  # which the program sets
    with pytest.raises(SystemExit) as ended:
        main(words)
    (line,) = [
        text for text in capsys.readouterr().err.splitlines() if text.startswith("dgbench: ")
    ]
    assert line.startswith(f"dgbench: {OF_PLAIN_COMMANDS[words]}")
    assert ended.value.code == 1
    assert list(tmp_path.iterdir()) == []


#: keys of reports -> words beside which nothing reads the first, and words beside which something
#: does
OF_REPORTS: Mapping[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "report.batch": (
        "report.batch=3",
        ("report=power", "report.published=domainbed2020_train_val"),
        ("report=power",),
    ),
}


@pytest.mark.parametrize("key", OF_REPORTS)
def test_a_word_that_a_report_does_not_read(key: str) -> None:
    word, unread, read = OF_REPORTS[key]
    needs = build(composed(*unread, name="report"), "report", _convert_="all").needs
    assert needs.keys() == {key}
    (line,) = told(needs, "report", word, unread)
    assert line.startswith("refused: ") == needs[key].misleads
    assert told(needs, "report", word, read) == []


@pytest.mark.thorough
def test_the_command_of_a_report_says_so(command: Any, tmp_path: Path) -> None:
    Path(tmp_path, "t.csv").write_text("algorithm,seed,environment,error\n" + "".join(
        f"{name},{seed},{env},{0.1 * seed}\n" for name in ("erm", "irm") for seed in (1,
            2) for env in "ab"
    ))  # fmt: skip
    words = ("report.py", "import=table", "import.path=t.csv", "only=measures")
    ended = command(*words, "cache=false", "report.wandb_project=x", cwd=tmp_path)
    assert ended.code == 0, ended.err
    lines = ended.err.splitlines()
    assert (
        "cache=false changes nothing here: only rows that are read from folders are cached; "
        "leave it out"
    ) in lines
    assert (
        "report.wandb_project=x changes nothing here: report.wandb=true logs the report; add that"
        in lines
    )
    refused = {
        "import.seeds=3": "import.seeds=3 is for a table of means",
        "import.values=error": "import.values=error says what columns of environments hold",
        "hydra.run.dir=X": (
            "hydra.run.dir=X changes nothing here: results go to output; write output=X"
        ),
        "runs=[x]": "runs=.x. changes nothing",
    }
    for word, line in refused.items():
        (complaint,) = command(*words, word, cwd=tmp_path).complaints
        assert re.search(line, complaint), complaint


SHORT = ("dataset.base=digits", "trainer.device=cpu", "backbone.width=8", "plan=true")


@pytest.mark.thorough
def test_commands_refuse_and_name(command: Any, tmp_path: Path) -> None:
    """Single commands, sweeps, grids and shifts; nothing is left behind."""
    refused = {
        (
            "train.py",
            "dataset.ratio=5",
            "dataset.given=[0.9,0.1]",
        ): "dataset.ratio=5 changes nothing here: dataset.given",
        (
            "train.py",
            "-m",
            "algorithm=dann,cdann",
            "hparams.lr=0.1",
        ): "hparams.lr=0.1 changes nothing here",
        (
            "train.py",
            "grid.algorithm=[dann,cdann]",
            "hparams.lr=0.1",
        ): "hparams.lr=0.1 changes nothing here",
        (
            "train.py",
            "hydra.run.dir=X",
        ): "hydra.run.dir=X changes nothing here: .*write paths.output_dir=X",
        (
            "train.py",
            "-m",
            "hydra.run.dir=X",
            "seed=0,1",
        ): "hydra.run.dir=X .*write hydra.sweep.dir=X",
        (
            "train.py",
            "-m",
            "paths.output_dir=X",
            "seed=0,1",
        ): "paths.output_dir=X .*write hydra.sweep.dir=X",
        (
            "train.py",
            "-m",
            "hydra.sweep.subdir=X",
            "seed=0,1",
        ): "hydra.sweep.subdir=X changes nothing here",
        (
            "shift.py",
            "pairs=each",
            "protocol=single_source",
        ): "protocol=single_source changes nothing here: pairs=folds",
    }
    for (script, *words), line in refused.items():
        own = [word for word in SHORT if script == "train.py" or not word.startswith("trainer.")]
        ended = command(script, *own, *words, cwd=tmp_path)
        (complaint,) = ended.complaints
        assert ended.code == 1
        assert complaint == complaint.strip()
        assert re.match(f"dgbench: {line}", complaint), complaint
        assert list(tmp_path.iterdir()) == []
    named = {
        (
            "train.py",
            "trainer.log_every=5",
        ): "WARNING trainer.log_every=5 changes nothing here: a logger shows",
        (
            "train.py",
            "-m",
            "seed=0,1",
            "trainer.log_every=5",
        ): "trainer.log_every=5 changes nothing here: a logger shows",
        (
            "train.py",
            "-m",
            "seed=0,1",
            "sweep.runs_per_job=2",
        ): "sweep.runs_per_job=2 changes nothing here: it packs",
        (
            "train.py",
            "-m",
            "algorithm=erm,dann",
            "hparams.lr=0.1",
        ): "hparams.lr=0.1 counts in 1 of 2 studies",
    }
    for (script, *words), line in named.items():
        ended = command(script, *SHORT, *words, cwd=tmp_path)
        assert ended.code == 0, ended.err
        assert sum(text.startswith(line) for text in ended.err.splitlines()) == 1, ended.err

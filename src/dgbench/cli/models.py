"""``dgbench evaluate``, and ``dgbench.evaluate`` from Python: rows of any model on any dataset."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dgbench.cli.entry import import_from_beside, option_lines, plain_command, sign_of_life
from dgbench.configuration import config_options
from dgbench.errors import ConfigError
from dgbench.plan.names import in_our_names
from dgbench.plan.overrides import list_override, open_keys
from dgbench.plan.unread import key_of, longest, replaced
from dgbench.validation import NUMBER_TEXT, shown

if TYPE_CHECKING:
    from dgbench.cli.api import TrainResult

TRUST = (
    "true lets code run that the model names or contains: classes of other packages, "
    ".pt2, TorchScript (default: false)"
)
#: what ``dgbench evaluate`` takes besides the keys of a dataset and a protocol
EVALUATE_OPTIONS: Mapping[str, str] = {
    "model": (
        "a run's folder, a folder of runs, a checkpoint; a .pt2 or TorchScript file; a model.pkl "
        "of DomainBed; MODULE:FUNCTION, images -> logits; a name of timm. [A,B] evaluates several"
    ),
    "name": "what tables call it (default: what it was loaded from)",
    "classes": (
        "[a,b,...], names of its outputs in their order (default: those of a run, else the "
        "dataset's)"
    ),
    "weights": "file with the tensors of a timm model (default: its published ones)",
    "step": (
        "last or best checkpoint of a run (default: last; for a run with averaging the "
        "best, if it was kept)"
    ),
    "averaging": (
        "diwa_uniform or diwa_greedy evaluates the mean weights of the draws of a search, "
        "wise_ft weights between a run's initial ones and its own, dfr a run whose last layer is "
        "fitted anew on groups of equal size (default: none)"
    ),
    "initial": (
        "for averaging=wise_ft, folder of the runs to mix with: linear probes, or zero-shot runs "
        "(default: what each run began with)"
    ),
    "alphas": (
        "for averaging=wise_ft, shares of the run's own weights, in hundredths (default: "
        "[0,0.1,...,1])"
    ),
    "groups": (
        "for averaging=dfr, the attribute whose values make groups within classes (default: the "
        "environments)"
    ),
    "ensemble": "true evaluates several runs as one, by the mean of their logits (default: false)",
    "seed_moves": (
        "stream gives the rows of runs of seed 0 the seeds of adaptation.stream_seed=[0,1,2], as "
        "repetitions (default: all)"
    ),
    "features": (
        "of how many images of each environment the features are kept, for "
        "report=features (default: 0)"
    ),
    "predictions": (
        "true keeps the prediction for every image, for report=errors (default: false)"
    ),
    "trust": TRUST,
    "output": "folder that receives the rows (default: outputs)",
}
SEARCH_PATH = "searchpath"  #: key of hydra: a user's own folder of configuration
#: group -> its keys that say how something is evaluated, None for all; everything else says how
#: something is trained
USED: Mapping[str, Sequence[str] | None] = {
    "dataset": None,
    "corruptions": None,
    "protocol": None,
    "adaptation": None,
    "trainer": ("device", "eval_batch_size", "eval_subsets", "precision"),
    "paths": ("data_dir", "cache_dir"),
    "hydra": (SEARCH_PATH,),
}
#: keys of the dataset that say how it is trained on, or fetched
UNREAD_OF_DATASETS = (
    "dataset.augment",
    "dataset.augmentations",
    "dataset.fetch",
    "dataset.log2_batch_sizes",
)
#: key that is not read -> the option that is meant
MEANT = {"trainer.predictions": "predictions=true", "paths.output_dir": "output=FOLDER"}
EXAMPLES = (
    ("model=outputs/STUDY/RUN", "a run, on the dataset that it was trained on"),
    (
        "model=outputs/STUDY dataset=pacs_corrupted dataset.root=PACS",
        "all runs of a study, under 15 corruptions",
    ),
    (
        "model=multirun averaging=diwa_greedy",
        "the draws of a search as one model for each fold and trial",
    ),
    (
        "model=resnet50 weights=FILE 'classes=[dog,elephant,...]' dataset=pacs dataset.root=PACS",
        "a model of timm",
    ),
    (
        "model=sweep/0a1b/model.pkl dataset=pacs dataset.root=PACS",
        "what a training of DomainBed saved",
    ),
    (
        "model=outputs/STUDY adaptation=t3a 'adaptation.keep=[5,20,100]'",
        "runs that adapt to the images they are tested on, with each number of supports",
    ),
    ("model=my_module:predict name=mine dataset=pacs dataset.root=PACS", "a function of yours"),
)


def _evaluate(words: Sequence[str]) -> None:
    from dgbench.analysis.selection import Last
    from dgbench.cli.closing import study_table

    for line in replaced(words):
        sign_of_life(f"note: {line}")
    import_from_beside(words)
    options, overrides = split(_with_own_folder(words))
    if not options.get("model"):
        raise ConfigError(
            "model= is missing; name a run's folder, a file or a model, see dgbench evaluate --help"
        )
    sign_of_life("loading the model ...")
    result = evaluate(overrides=overrides, **options)
    from dgbench.records.rows import ROW_FILE, read_rows
    from dgbench.trained.wise_ft import WISE_FT

    if options.get("averaging") == WISE_FT:
        from dgbench.cli.mixtures import mixture_tables

        mixed = []
        for run in result.folders:
            mixed += read_rows(run / ROW_FILE)[0]
        print("\n".join(mixture_tables(mixed)))
        print(f"rows: {len(result.folders)} folders in {result.folders[0].parents[1]}")
        return
    rows_of: dict[Path, list[dict[str, Any]]] = defaultdict(list)
    for run in result.folders:
        rows_of[run.parent] += read_rows(run / ROW_FILE)[0]
    for study, rows in rows_of.items():
        print(study_table(rows, Last()))
        print(f"rows: {study}")


def _with_own_folder(words: Sequence[str]) -> list[str]:
    """Write ``--config-dir FOLDER`` as the override that searches that folder, too.

    Raises:
        ConfigError: there is no such folder.
    """
    option = config_options(words)
    if not option:
        return list(words)
    text = option[1] if len(option) == 2 else option[0].partition("=")[2]
    folder = Path(text).expanduser()
    if not text or not folder.is_dir():
        raise ConfigError(
            f"{option[0].partition('=')[0]} {text or 'without a value'} names no folder; give the "
            "folder that holds adaptation/NAME.yaml"
        )
    others = [word for word in words if word not in option]
    place = f"file://{folder.resolve()}"
    return [*others, list_override(f"hydra.{SEARCH_PATH}", [place])]


def split(words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Split words into the command's own options and overrides of the configuration.

    Raises:
        ConfigError: a word that is neither, or says how to train.
    """
    options: dict[str, Any] = {}
    overrides = []
    for word in words:
        key, equals, value = word.partition("=")
        top, *inner = _parts(word)
        if not equals or word.startswith("-"):
            raise ConfigError(f"{word} is no KEY=VALUE; see dgbench evaluate --help")
        if key in EVALUATE_OPTIONS:
            options[key] = _value(key, value)
        elif top in USED:
            read = USED[top]
            if longest(key_of(word), UNREAD_OF_DATASETS):
                raise ConfigError(
                    f"{word} has no effect on dgbench evaluate, which trains nothing; leave it out"
                )
            if read is not None and "".join(inner) not in read:
                instead = f"write {MEANT[key]}" if key in MEANT else "leave it out"
                raise ConfigError(
                    f"{word} has no effect on dgbench evaluate, which trains nothing; "
                    f"{instead}, of {top} it reads {', '.join(read)}"
                )
            overrides.append(word)
        else:
            raise ConfigError(
                f"{key} is no key of dgbench evaluate, which trains nothing; it takes "
                f"{', '.join(EVALUATE_OPTIONS)}, and keys of {', '.join(USED)}"
            )
    return options, open_keys(in_our_names(overrides))


def _parts(word: str) -> list[str]:
    """Split the key of a word into its group and the rest, if there is one."""
    return re.split(r"[.@]", word.partition("=")[0].lstrip("+~"), maxsplit=1)


def _value(key: str, text: str) -> Any:
    """Parse a typed value as a list, a bool or a number, if its key takes one.

    Whatever reads the value checks it.
    """
    if key in ("ensemble", "features", "predictions", "trust"):
        number = int if text.lstrip("+-").isdecimal() else float
        plain = number(text) if NUMBER_TEXT.fullmatch(text) else text
        return {"true": True, "false": False}.get(text.lower(), plain)
    if not text.startswith("["):
        return [text] if key == "classes" else text
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        items: Any = OverridesParser.create().parse_override(f"{key}={text}").value()
    except HydraException as error:
        raise ConfigError(f"{key}={text} is no list; write e.g. {key}=[A,B]") from error
    if key == "alphas":
        return items
    return [item if isinstance(item, (list, dict)) else shown(item) for item in items]


def evaluate(
    model: Any,
    overrides: Sequence[str] = (),
    *,
    name: str | None = None,
    classes: Sequence[str] = (),
    weights: str | Path | None = None,
    step: str | None = None,
    averaging: str | None = None,
    initial: Any = None,
    alphas: Sequence[float] | None = None,
    groups: str | None = None,
    ensemble: bool = False,
    seed_moves: str = "all",
    features: int = 0,
    predictions: bool = False,
    trust: bool = False,
    output: str | Path = "outputs",
) -> TrainResult:
    """Evaluate any model on any dataset, and write the same rows as training, for the same reports.

    A run without ``dataset=`` among the overrides is evaluated on the dataset that it was trained
    on, in its own fold; ``dataset.root=...`` says where that lies now. On another dataset a model
    has a row for every fold whose tested environments it never saw.

    Args:
        model: a run's folder, a folder of runs, a checkpoint, a .pt2 or TorchScript file, a
            ``model.pkl`` of DomainBed, ``MODULE:FUNCTION`` or a name of timm; a function or module
            (n, C, H, W) -> (n, K) of images as the dataset normalizes them; what
            :func:`dgbench.load` returned; or a list of these.
        overrides: keys of ``dataset``, ``corruptions``, ``protocol``, ``adaptation`` and
            ``trainer``, as typed; lists of values of ``adaptation`` evaluate with each.
        name: what tables call it; a plain function needs one.
        classes: names of the model's outputs, in their order; empty if they are the dataset's.
        weights: file with the tensors of a timm model.
        step: of a run, ``last`` or ``best``; None is ``last``, of runs that are averaged the best
            one that they kept.
        averaging: evaluate the mean of the weights of runs that have their fold and initial weights
            in common, as the draws of one trial of a search: ``diwa_uniform``, the mean of all, or
            ``diwa_greedy``, of those that help on the validation images of the training
            environments (Rame et al., 2022); or, with ``wise_ft``, weights between a run's initial
            ones and its own (Wortsman et al., 2022); or, with ``dfr``, a run whose last layer is
            fitted anew on validation images of groups of equal size (Kirichenko et al., 2023).
        initial: for ``wise_ft``, folders of the runs to mix with; None is what each run began with.
        alphas: for ``wise_ft``, shares of the run's own weights; None is 0, 0.1, ..., 1.
        groups: for ``dfr``, the attribute whose values make groups within classes (``feature`` is
            that of painted images); None is the environments.
        ensemble: evaluate several as one, by the mean of their logits.
        seed_moves: ``stream`` makes the seeds of the stream, ``adaptation.stream_seed``, those of
            the rows, which repeat runs of seed 0.
        features: images of an environment whose features are kept beside the rows, for
            ``report=features``.
        predictions: keep what is predicted for every image, for ``report=errors``.
        trust: run code that the model names, or is: classes and datasets that ``conf/`` does not
            name, programs of torch.export and TorchScript.
        output: folder that receives the rows.

    Returns:
        The results as :func:`dgbench.results` gives them, and the folders with rows.

    Raises:
        ConfigError: an unknown override, or a model that does not fit the dataset.
        DgbenchError: what else keeps the model from being evaluated.
    """
    from dgbench.cli.api import TrainResult, composed, composed_adaptations
    from dgbench.reports.frames import results
    from dgbench.trained.sources import Evaluator

    keys: dict[str, Any] = {
        "seed_moves": seed_moves,
        "overrides": overrides,
        "classes": classes,
        "step": step,
        "averaging": averaging,
        "initial": initial,
        "alphas": alphas,
        "groups": groups,
    }
    evaluator = Evaluator(
        **keys,
        weights=weights,
        name=name,
        ensemble=ensemble,
        adaptations=[],
        features=features,
        predictions=predictions,
        trust=trust,
        output=output,
        compose=composed,
        tell=sign_of_life,
    )
    words = split(evaluator.overrides)[1]
    of_adaptation = [word for word in words if _parts(word)[0] == "adaptation"]
    searched = [word for word in words if key_of(word) == f"hydra.{SEARCH_PATH}"]
    read = {
        "overrides": [word for word in words if word not in of_adaptation],
        "adaptations": composed_adaptations(of_adaptation, searched),
    }
    evaluator = evaluator.model_copy(update=read)
    folders = evaluator.evaluate(model)
    return TrainResult(results(folders, "last"), folders, {})


def _evaluate_help() -> str:
    return "\n".join(
        [
            (
                "Evaluate any model on any dataset: the rows that training would have written, "
                "for the same reports."
            ),
            "\n  dgbench evaluate model=MODEL [KEY=VALUE ...]\n",
            "Examples:",
            *(f"  dgbench evaluate {words}\n      {meaning}" for words, meaning in EXAMPLES),
            "\nOptions:",
            *option_lines(EVALUATE_OPTIONS),
            (
                f"\nAnd the keys of {', '.join(USED)}, as dgbench train takes them. "
                "docs/how_to/models.md says more."
            ),
        ]
    )


evaluate_command = partial(plain_command, _evaluate, _evaluate_help)

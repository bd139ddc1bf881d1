"""``python report.py``: wiring only."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dgbench.cli.entry import hydra_main, sign_of_life
from dgbench.configuration import (
    command_line,
    command_words,
    config_options,
    python_path,
    with_python_path,
)
from dgbench.errors import ConfigError

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from dgbench.analysis.selection import Selection
    from dgbench.plan.needs import Need
    from dgbench.reports.document import Report
    from dgbench.reports.reading.collect import Collection as Runs


#: where training puts runs, as conf/report.yaml has it
DEFAULT_FOLDERS = ["multirun", "outputs"]


@hydra_main(config_name="report")
def report(cfg: DictConfig) -> None:
    """Collect rows, build the document, write it, print its main tables and where it went.

    A report that answers on the terminal alone has ``show``, which returns the exit code.
    """
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import OmegaConf

    from dgbench.plan.building import build
    from dgbench.reports.contract import check_class
    from dgbench.reports.document import ReportKeys
    from dgbench.reports.reading.memory import map_large_arrays

    choice = f"report={HydraConfig.get().runtime.choices['report']}"
    unresolved: Any = OmegaConf.to_container(cfg.report, resolve=False)
    check_class(unresolved, choice)
    cfg.runs = _present(cfg.runs)
    keys: Any = OmegaConf.to_container(cfg, resolve=True)
    ReportKeys.model_validate({key: keys[key] for key in ReportKeys.model_fields})
    make_document = build(cfg, "report", _convert_="all")
    refuse_unread(cfg, make_document.unread)
    check_words(keys, make_document.needs)
    if hasattr(make_document, "show"):
        sys.exit(make_document.show())

    sign_of_life("reading runs ...")
    map_large_arrays()

    from contextlib import nullcontext
    from dataclasses import replace
    from functools import partial

    from dgbench.cli.limited import memory_limit
    from dgbench.reports.contract import document_of
    from dgbench.reports.document import keep
    from dgbench.reports.render.drawing import saved_beside
    from dgbench.reports.render.formats import listed, plain_document, write
    from dgbench.reports.render.wandb import log_report

    # a process beside this one would end with tracebacks of its own where memory is limited
    with nullcontext() if memory_limit() else saved_beside():
        selection = build(cfg, "selection")
        read = partial(read_runs, cfg, make_document, selection)
        document = document_of(make_document, read, selection, cfg.split_by, choice)
        document = replace(document, command=report_command(), short_notes=cfg.notes == "short")
        names = [cfg.only] if isinstance(cfg.only, str) else cfg.only
        document = keep(document, names) if names else document
        paths = write(document, cfg.output)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    print(plain_document(document, width))
    print("\nwritten:", *listed(paths), sep="\n")
    if make_document.wandb:
        reason = log_report(
            document, paths, cfg.output, name=cfg.report.name, project=make_document.wandb_project
        )
        if reason:
            print(f"dgbench: {reason}; the files above are complete")
        else:
            print("logged to W&B")


def _present(folders: Any) -> Any:
    """Leave out the default folder that no training has made, unless both are absent."""
    if folders != DEFAULT_FOLDERS:
        return folders
    return [folder for folder in DEFAULT_FOLDERS if Path(folder).is_dir()] or folders


def read_runs(cfg: DictConfig, make_document: Report, selection: Selection) -> Runs | None:
    """Read the runs that a report is about; None for one that reads none.

    Raises:
        RecordError: there are none, or a table of means for a report of single runs.
        ConfigError: the selection validates on environments that no run was given.
    """
    from dgbench.plan.building import build
    from dgbench.plan.protocols import check_validation
    from dgbench.reports.reading.collect import with_same_code
    from dgbench.reports.reading.selected import no_seeds

    if "import" in make_document.unread:
        return None
    collection = with_same_code(build(cfg, "import", _convert_="all"), cfg.same_code)
    if collection.published and not make_document.of_means:
        raise no_seeds(collection.published)
    given: dict[str, None] = {}
    for run in collection.runs:
        given |= dict.fromkeys(run.identity["given"])
    check_validation(getattr(selection, "environments", None), list(given))
    return collection


def refuse_unread(cfg: DictConfig, unread: Collection[str]) -> None:
    """Refuse a word that changes nothing in this report.

    ``cache``, which changes no number in any report, is allowed.

    Args:
        cfg: the composed configuration.
        unread: keys that the report does not read, as a class says them (:class:`Report`).

    Raises:
        ConfigError: one was typed.
    """
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import OmegaConf

    hydra = HydraConfig.get()
    readers = OmegaConf.to_yaml(cfg.report) + (
        "" if "import" in unread else OmegaConf.to_yaml(cfg["import"])
    )
    passed_on = set() if "${runs}" in readers else {"runs"}
    for word in hydra.overrides.task:
        address = re.split("[=@]", word.lstrip("+~"))[0]
        key = address.partition(".")[0]
        if {key, address} & {*unread, *passed_on}:
            raise ConfigError(
                f"{word.lstrip('+')} changes nothing, report={hydra.runtime.choices['report']} "
                f"does not read {key if key != 'report' else address}; leave it out"
            )


def check_words(keys: Mapping[str, Any], needs: Mapping[str, Need]) -> None:
    """Refuse words that the report reads only beside others, or name them.

    Args:
        keys: of the command, plain values.
        needs: of the report's own keys.

    Raises:
        ConfigError: one that would mislead.
    """
    from hydra.core.hydra_config import HydraConfig

    from dgbench.plan.needs import Need, where
    from dgbench.plan.unread import check_needs, no_dataset

    reads_folders = where("import.cache", lambda cache: cache is not None)
    kept = Need(
        reads_folders,
        "only rows that are read from folders are cached; leave it out",
        misleads=False,
    )
    logged = Need(
        where("report.wandb"), "report.wandb=true logs the report; add that", misleads=False
    )
    of_every_report = {"cache": kept, "report.wandb_project": logged}
    words = [str(word) for word in HydraConfig.get().overrides.task]
    check_needs(words, lambda: [(keys, no_dataset)], {**of_every_report, **needs}, sign_of_life)


#: overrides that choose a part of the report or its place; the caption of a part names its own
_LEFT_OUT = ("only=", "output=", "report.wandb=")


def report_command() -> str:
    """Write ``python report.py`` with the overrides that were typed.

    Those that only choose a part of the report or its place are left out.
    """
    from hydra.core.hydra_config import HydraConfig

    typed = [str(word) for word in HydraConfig.get().overrides.task]
    words = [word for word in typed if not word.lstrip("+").startswith(_LEFT_OUT)]
    line = command_line([*command_words("report"), *config_options(sys.argv[1:]), *words])
    return with_python_path(line, python_path())

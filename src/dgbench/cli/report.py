"""``python report.py``: wiring only."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from dgbench.cli.entry import hydra_main, sign_of_life
from dgbench.configuration import command_words

if TYPE_CHECKING:
    from omegaconf import DictConfig


@hydra_main(config_name="report")
def report(cfg: DictConfig) -> None:
    """Collect rows, build the document, write it, print its main tables and where it went.

    A report that answers on the terminal alone has ``show``, which returns the exit code.
    """
    import sys

    from omegaconf import OmegaConf

    from dgbench.plan.building import build
    from dgbench.reports.document import ReportKeys

    keys: Any = OmegaConf.to_container(cfg, resolve=True)
    ReportKeys.model_validate({key: keys[key] for key in ReportKeys.model_fields})
    make_document = build(cfg, "report", _convert_="all")
    if hasattr(make_document, "show"):
        sys.exit(make_document.show())

    sign_of_life("reading runs ...")

    from dataclasses import replace

    from dgbench.reports.document import keep
    from dgbench.reports.reading.collect import with_same_code
    from dgbench.reports.render.drawing import saved_beside
    from dgbench.reports.render.formats import MISSING, listed, parquet_available, plain_document, write
    from dgbench.reports.render.wandb import log_report

    with saved_beside():
        selection = build(cfg, "selection")
        reads_itself = getattr(make_document, "reads_itself", False)
        collection = None if reads_itself else with_same_code(build(cfg, "import", _convert_="all"), cfg.same_code)
        document = make_document(collection, selection, split_by=cfg.split_by)
        document = replace(document, command=report_command())
        document = keep(document, cfg.only) if cfg.only else document
        paths = write(document, cfg.output)
    print(plain_document(document))
    print("\nwritten:", *listed(paths), sep="\n")
    if not parquet_available():
        print(f"({MISSING})")
    if cfg.report.get("wandb", False):
        reason = log_report(document, paths, cfg.output, name=cfg.report.name, project=cfg.report.wandb_project)
        print(f"dgbench: {reason}; the files above are whole" if reason else "logged to W&B")


#: overrides that choose a part of the report or its place; the caption of a part names its own
_LEFT_OUT = ("only=", "output=", "report.wandb=")


def report_command() -> str:
    """``python report.py`` with the overrides that were typed, less those that only choose a part or a place."""
    from hydra.core.hydra_config import HydraConfig

    typed = [str(word) for word in HydraConfig.get().overrides.task]
    words = [word for word in typed if not word.lstrip("+").startswith(_LEFT_OUT)]
    return shlex.join([*command_words("report"), *words])

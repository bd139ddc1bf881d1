"""``python report.py``: wiring only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dgbench.cli.entry import hydra_main

if TYPE_CHECKING:
    from omegaconf import DictConfig


@hydra_main(config_name="report")
def report(cfg: DictConfig) -> None:
    """Collect rows, build the document, write it, print its main tables and where it went."""
    from hydra.utils import instantiate

    from dgbench.reports.collect import collect
    from dgbench.reports.renderers import write
    from dgbench.reports.renderers.terminal import plain_document

    build, selection = instantiate(cfg.report), instantiate(cfg.selection)
    document = build(collect(cfg.runs), selection, split_by=cfg.split_by)
    paths = write(document, cfg.output)
    print(plain_document(document))
    print("\nwritten:", *(f"  {path}" for path in paths), sep="\n")

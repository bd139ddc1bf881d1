"""Save dgbench's panels as views of a W&B project.

``python -m dgbench.cli.wandb_workspace ENTITY PROJECT`` needs the package ``wandb-workspaces`` and
a login; ``--print`` shows the views as JSON and needs no network. The panels and the keys that they
show are described in docs/how_to/loggers.md.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Sequence
from typing import Any

from dgbench.cli.entry import import_from_beside
from dgbench.errors import ConfigError
from dgbench.plan.measures import IDEAL, choose

#: what panels average: runs of one algorithm in one setting, and of one selection where it matters
COMPARED = "compared_as"
COLUMNS = ("algorithm_name", "dataset_name", "backbone_name", "selection", "seed", "searched")
VALIDATION = "error/training_val"


def workspaces(entity: str, project: str) -> list[Any]:
    """Build the views, not yet saved: of studies, and of the draws of searches.

    Raises:
        ImportError: ``wandb-workspaces`` is not installed.
    """
    views: Any = importlib.import_module("wandb_workspaces.workspaces")
    return [
        _workspace(views, entity, project, "dgbench", _study_sections(), searched=False),
        _workspace(views, entity, project, "dgbench searches", _search_sections(), searched=True),
    ]


def _workspace(
    views: Any, entity: str, project: str, name: str, sections: dict[str, list[Any]], searched: bool
) -> Any:
    """Build a view of the runs that are, or are not, draws of a search."""
    shown = [
        views.Section(name=title, panels=panels, is_open=True) for title, panels in sections.items()
    ]
    runs = views.RunsetSettings(
        filters=f"Config('searched') = {searched}",
        pinned_columns=[f"config:{column}" for column in COLUMNS],
    )
    return views.Workspace(
        entity=entity, project=project, name=name, sections=shown, runset_settings=runs
    )


def _study_sections() -> dict[str, list[Any]]:
    reports = _reports()
    place = "environment/position"
    choice = choose()
    ideal = reports.SummaryMetric(IDEAL)
    first = choice.compared[0]
    others = [measure for measure in choice.of_runs if measure not in choice.ranked]
    return {
        "Measures, mean over seeds (runs of job type study)": [
            *(_bars(measure.name, measure.title) for measure in choice.compared),
            _bars(IDEAL, "ideal: worst over all environments"),
        ],
        "Error against environment, mean over seeds": [
            _lines("held out, by the model that never saw it", place, ["environment/held_out"]),
            _lines("everywhere, by the model of all given ones", place, ["environment/everywhere"]),
        ],
        "Leaderboard, mean over seeds": [
            *(_bars(measure.name, measure.title) for measure in others),
            reports.ScatterPlot(
                title=f"{first.title} against ideal", x=reports.SummaryMetric(first.name), y=ideal
            ),
        ],
        "Training, mean over folds and seeds (runs of job types fold-...)": [
            _lines("validation error over the training environments", "step", [VALIDATION]),
            _lines("test error over the held-out environments", "step", ["error/held_out"]),
            _lines("loss of the objective", "step", ["train/loss"]),
        ],
    }


def _search_sections() -> dict[str, list[Any]]:
    reports = _reports()
    column = reports.ParallelCoordinatesPlotColumn
    return {
        "Search: each draw by itself": [
            reports.ParallelCoordinatesPlot(
                title="hyperparameters and validation error",
                columns=[
                    column(metric=reports.Config("hyperparameters.lr"), log=True),
                    column(metric=reports.Config("hyperparameters.batch_size")),
                    column(metric=reports.SummaryMetric(VALIDATION)),
                ],
            ),
        ],
    }


def _reports() -> Any:
    return importlib.import_module("wandb_workspaces.reports.v2")


def _bars(key: str, title: str) -> Any:
    reports = _reports()
    return reports.BarPlot(
        title=title,
        metrics=[reports.SummaryMetric(key)],
        groupby=f"config:{COMPARED}",
        groupby_aggfunc="mean",
        max_bars_to_show=50,
    )


def _lines(title: str, x: str, keys: Sequence[str]) -> Any:
    return _reports().LinePlot(
        title=title,
        x=x,
        y=list(keys),
        groupby=f"config:{COMPARED}",
        groupby_aggfunc="mean",
        smoothing_factor=0,
    )


def shown(view: Any) -> dict[str, Any]:
    """Return what a view shows as JSON: which runs, and panels by section."""
    spec = json.loads(view._to_model().model_dump_json(by_alias=True, exclude_none=True))["spec"][
        "section"
    ]
    runs = spec["runSets"][0]
    return {"name": view.name, "filters": runs["filters"], "panels": spec["panelBankConfig"]}


def main(words: list[str]) -> int:
    """Save the views, or print them.

    Returns:
        exit code: 0, or 1 with one line that says why not.
    """
    parser = argparse.ArgumentParser(
        prog="python -m dgbench.cli.wandb_workspace", description=__doc__
    )
    parser.add_argument("entity", help="W&B user or team")
    parser.add_argument("project", help="W&B project, e.g. dgbench")
    parser.add_argument(
        "--print",
        action="store_true",
        dest="only_print",
        help="show the views as JSON, save nothing",
    )
    parser.add_argument("--config-dir", help="folder of yours whose measure/ the views show too")
    asked = parser.parse_args(words)
    import_from_beside(words)
    try:
        views = workspaces(asked.entity, asked.project)
        if asked.only_print:
            print(json.dumps([shown(view) for view in views], indent=1))
            return 0
        for view in views:
            print(view.save().url)
    except ConfigError as error:
        print(f"dgbench: {error}", file=sys.stderr)
        return 1
    except ImportError:
        print(
            "dgbench: the view needs wandb-workspaces; pip install 'dgbench[wandb]'",
            file=sys.stderr,
        )
        return 1
    except Exception as error:  # whatever W&B raises: no login, no network, no such project
        reason = " ".join(str(error).split())
        print(
            f"dgbench: W&B did not take the view: {reason}; see `wandb login`, or use --print",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

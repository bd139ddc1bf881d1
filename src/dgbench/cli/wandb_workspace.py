"""``python -m dgbench.cli.wandb_workspace ENTITY PROJECT``: dgbench's panels as a saved view of a W&B project.

It needs the package ``wandb-workspaces`` and a login; ``--print`` shows the view as JSON and needs no network. The
panels and the keys that they show are described in docs/how_to/loggers.md.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from typing import Any

BY_ALGORITHM = "config:algorithm_name"


def workspace(entity: str, project: str) -> Any:
    """Build the view, not yet saved.

    Raises:
        ImportError: ``wandb-workspaces`` is not installed.
    """
    reports: Any = importlib.import_module("wandb_workspaces.reports.v2")
    views: Any = importlib.import_module("wandb_workspaces.workspaces")

    def bars(key: str, title: str) -> Any:
        return reports.BarPlot(title=title, metrics=[reports.SummaryMetric(key)], groupby=BY_ALGORITHM)

    def lines(title: str, x: str, *keys: str) -> Any:
        return reports.LinePlot(title=title, x=x, y=list(keys), groupby=BY_ALGORITHM, smoothing_factor=0)

    place, error, column = "environment/position", "error/training_val", reports.ParallelCoordinatesPlotColumn
    worst_gap, ideal = reports.SummaryMetric("worst_gap"), reports.SummaryMetric("ideal")
    sections = {
        "Measures (runs of job type study)": [
            bars("worst_gap", "worst+gap"),
            bars("average", "average"),
            bars("ideal", "ideal: worst over all environments"),
        ],
        "Error against environment": [
            lines("held out, by the model that never saw it", place, "environment/held_out"),
            lines("everywhere, by the model of all given ones", place, "environment/everywhere"),
        ],
        "Leaderboard": [
            bars("worst", "worst"),
            bars("gap", "gap"),
            reports.ScatterPlot(title="worst+gap against ideal", x=worst_gap, y=ideal),
        ],
        "Training (runs of job types fold-...)": [
            lines("validation error over the training environments", "step", error),
            lines("test error over the held-out environments", "step", "error/held_out"),
            lines("loss of the objective", "step", "train/loss"),
        ],
        "Search": [
            reports.ParallelCoordinatesPlot(
                title="hyperparameters and validation error",
                columns=[
                    column(metric=reports.Config("hyperparameters.lr"), log=True),
                    column(metric=reports.Config("hyperparameters.batch_size")),
                    column(metric=reports.SummaryMetric(error)),
                ],
            ),
        ],
    }
    shown = [views.Section(name=name, panels=panels, is_open=True) for name, panels in sections.items()]
    return views.Workspace(entity=entity, project=project, name="dgbench", sections=shown)


def main(words: list[str]) -> int:
    """Save the view, or print it.

    Returns:
        exit code: 0, or 1 with one line that says why not.
    """
    parser = argparse.ArgumentParser(prog="python -m dgbench.cli.wandb_workspace", description=__doc__)
    parser.add_argument("entity", help="W&B user or team")
    parser.add_argument("project", help="W&B project, e.g. dgbench")
    parser.add_argument("--print", action="store_true", dest="only_print", help="show the view as JSON, save nothing")
    asked = parser.parse_args(words)
    try:
        view = workspace(asked.entity, asked.project)
        if asked.only_print:
            content = json.loads(view._to_model().model_dump_json(by_alias=True, exclude_none=True))
            print(json.dumps(content["spec"]["section"]["panelBankConfig"], indent=1))
        else:
            print(view.save().url)
    except ImportError:
        print("dgbench: the view needs wandb-workspaces; pip install 'dgbench[wandb]'", file=sys.stderr)
        return 1
    except Exception as error:  # whatever W&B raises: no login, no network, no such project
        reason = " ".join(str(error).split())
        print(f"dgbench: W&B did not take the view: {reason}; see `wandb login`, or use --print", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

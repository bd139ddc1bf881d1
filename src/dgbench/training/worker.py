"""Be one of the further processes of a run: ``python -m dgbench.training.worker``.

``processes.py`` starts it.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any


def main() -> None:
    """Train the share of a run that a line on standard input names.

    The process exits when standard input closes.
    """
    task = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()

    from omegaconf import OmegaConf

    from dgbench.plan.studies import planned_again
    from dgbench.training.checkpoints import Snapshot, own_file
    from dgbench.training.fit import Fit
    from dgbench.training.groups import RunGroup
    from dgbench.training.processes import Process, prepare_process
    from dgbench.training.study import ReadyStudy

    prepare_process()
    folder = Path(task["folder"])
    config: Any = OmegaConf.to_container(OmegaConf.load(folder / "config.yaml"))
    del config["fold"]
    study = ReadyStudy(planned_again(config, folder.parents[1]))
    run = next(run for run in study.runs if run.folder == folder)
    snapshot = Snapshot.load(own_file(run)) if task["resumes"] else None
    process = Process(task["rank"], task["count"], task["port"])
    Fit(RunGroup((run,)), snapshot, process=process).train()


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main()

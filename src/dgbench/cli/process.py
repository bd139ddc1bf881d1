"""``python -m dgbench.cli.process``: one of the further processes of a member; ``processes.py`` starts it."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any


def main() -> None:
    """Train the share of a member that a line on standard input names; end when standard input does."""
    task = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()

    from omegaconf import OmegaConf

    from dgbench.cli.member import fit_member
    from dgbench.cli.prepare import prepare_process
    from dgbench.cli.study import Study
    from dgbench.training.distributed import Process

    prepare_process()
    folder = Path(task["folder"])
    config: Any = OmegaConf.load(folder / "config.yaml")
    del config["member"]
    study = Study(config, folder.parent)
    member = next(member for member in study.members if member.folder == folder)
    process = Process(task["rank"], task["count"], task["port"])
    fit_member(study, member, study.module(member.fold), [], task["resume"], process)


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main()

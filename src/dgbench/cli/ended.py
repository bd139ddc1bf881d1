"""How a command ended; light, so that a command that only prints a plan loads nothing heavy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dgbench.errors import RunsFailedError

TABLES = 4  # more studies in one job than this get a line each


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Args:
        folders: run folders of all its studies.
        failed: what failed, by study; empty where nothing did.
    """

    folders: Sequence[Path] = ()
    failed: Sequence[str] = ()

    def raise_failed(self) -> None:
        """Say in one line what failed.

        Raises:
            RunsFailedError: something did.
        """
        if self.failed:
            more = f" and of {len(self.failed) - TABLES} more" if len(self.failed) > TABLES else ""
            raise RunsFailedError(
                f"{'; '.join(self.failed[:TABLES])}{more} failed; see log.txt and status in its folder, correct the "
                "cause and start the same command again"
            )

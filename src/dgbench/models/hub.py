"""Uploading an exported model to the Hugging Face hub, or whatever HF_ENDPOINT names."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from dgbench.errors import ConfigError, RecordError

NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")


def checked_name(repository: str) -> None:
    """Refuse what cannot be uploaded to, before anything is written; asks no network.

    Raises:
        ConfigError: the name is none, or nobody is logged in.
    """
    if not NAME.fullmatch(repository):
        raise ConfigError(f"push={repository} is no name of a repository; write ORG/NAME")
    if _token() is None:
        raise ConfigError(f"push={repository} needs a token of the hub; set HF_TOKEN, or run hf auth login")


def push_folder(folder: Path, repository: str, files: Sequence[str]) -> None:
    """Upload files of a folder, in one commit, to a repository that is made, private, where there is none.

    Args:
        folder: an exported model.
        repository: ``ORG/NAME``.
        files: names of those that are uploaded.

    Raises:
        RecordError: the hub cannot be reached, or refuses.
    """
    from huggingface_hub import HfApi

    hub = HfApi(endpoint=os.environ.get("HF_ENDPOINT"), token=_token())
    try:
        hub.create_repo(repository, private=True, exist_ok=True)
        hub.upload_folder(
            repo_id=repository,
            folder_path=folder,
            allow_patterns=list(files),
            commit_message="Model exported by dgbench",
        )
    except Exception as error:  # of the hub, or of whatever carries it
        found = error.__cause__ if isinstance(error, RuntimeError) and error.__cause__ else error
        reason = " ".join(f"{type(found).__name__}: {found}".split())[:200]
        raise RecordError(
            f"push={repository}: {hub.endpoint} did not take it ({reason}); the export is in {folder}, and the same "
            "command tries again"
        ) from error


def _token() -> str | None:
    from huggingface_hub import get_token

    found: str | None = get_token()
    return found

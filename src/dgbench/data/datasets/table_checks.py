"""Checks that tables of images and of features share: which environments are taken, which classes each has."""

from __future__ import annotations

from collections.abc import Sequence

from dgbench.data.option_checks import check_list, shown
from dgbench.errors import ConfigError, DataError


def chosen_environments(found: Sequence[str], environments: Sequence[str] | None) -> list[str]:
    """The environments to take, in order; all that were found where none are chosen.

    Raises:
        ConfigError: ``dataset.environments`` is no list, empty, or names one that is not there.
    """
    if environments is None:
        return list(found)
    names = check_list("environments", environments, f"choose from [{','.join(found)}]")
    if not names:
        raise ConfigError(f"dataset.environments=[] is no list of names; choose from [{','.join(found)}]")
    for env in names:
        if env not in found:
            raise ConfigError(f"dataset.environments names {env}, which is not there; choose from {', '.join(found)}")
    return names


def check_classes(names: Sequence[str], labels: Sequence[str], present: set[tuple[str, str]], classes: str) -> None:
    """Refuse a table without images in an environment, or whose environments have different classes.

    Args:
        names: of the environments.
        labels: names of the classes.
        present: (environment, class) pairs that have images.
        classes: ``same`` refuses environments with different classes, ``union`` allows them.

    Raises:
        ConfigError: ``classes`` is unknown.
        DataError: an environment lacks a class, or all.
    """
    if classes not in ("same", "union"):
        raise ConfigError(f"dataset.classes={shown(classes)} is unknown; choose same or union")
    for env in names:
        lacking = [label for label in labels if (env, label) not in present]
        if len(lacking) == len(labels):
            raise DataError(
                f"environment {env} holds no images; fill its folder or leave it out of dataset.environments"
            )
        if lacking and classes == "same":
            more = f" and {len(lacking) - 3} more" if len(lacking) > 3 else ""
            raise DataError(
                f"environment {env} has no images of class {', '.join(lacking[:3])}{more}, which others have; "
                "add some, or allow it with dataset.classes=union"
            )

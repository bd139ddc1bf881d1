"""What was understood of a dataset, of any kind, in three lines.

Plans and commands show it, and the record of a run holds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dgbench.data.description import DatasetInfo, with_base

MOST_DATASETS = 4  #: the most that a command describes
MOST_ENVIRONMENTS = 6  #: more names than this are cut to the first and the last
MOST_CLASSES = 8  #: likewise


def lines_of_dataset(info: DatasetInfo) -> list[str]:
    """Describe environments, classes and validation images of a dataset, and what was left out."""
    validation = f"validation: {info.val_from}" if info.val_from else ""
    parts = [part for part in (validation, _left_out(info.left_out)) if part]
    lines = [_environments(info), _classes(info)]
    if parts:
        lines.append("; ".join(parts))
    return lines


def lines_of_datasets(infos: Iterable[DatasetInfo]) -> list[str]:
    """Describe one dataset in full, or the environments of the first few of several."""
    texts = dict.fromkeys(tuple(lines_of_dataset(info)) for info in infos)
    if len(texts) == 1:
        return list(next(iter(texts)))
    lines = [of_dataset[0] for of_dataset in texts]
    if len(lines) > MOST_DATASETS:
        return [
            *lines[:MOST_DATASETS],
            f"and {len(lines) - MOST_DATASETS} more datasets, or forms of them",
        ]
    return lines


def _environments(info: DatasetInfo) -> str:
    name = with_base(info.name, info.base)
    count = len(info.given)
    total = f"{count} environment" if count == 1 else f"{count} environments"
    if not info.counts:
        named = first_and_last(info.given, MOST_ENVIRONMENTS)
        return f"{name}: {total}: {named}; their images are not here yet"
    if info.beyond:
        return _painted(info, name)
    images = {env: sum(info.counts.get(env, {}).values()) for env in info.given}
    named = first_and_last([f"{env} ({n:,})" for env, n in images.items()], MOST_ENVIRONMENTS)
    return f"{name}: {total}, {sum(images.values()):,} images: {named}"


def _painted(info: DatasetInfo, name: str) -> str:
    """Describe what is dealt to given environments, and what all environments are judged on."""
    dealt = {env: counts["train"] + counts["val"] for env, counts in info.counts.items()}
    named = first_and_last([f"{env} ({n:,})" for env, n in dealt.items()], MOST_ENVIRONMENTS)
    pool = max(counts["test"] for counts in info.counts.values())
    return (
        f"{name}: {len(info.given)} given environments, {sum(dealt.values()):,} images: {named}; "
        f"errors are measured in {len(info.everywhere)} environments, on up to {pool:,} other "
        "images each"
    )


def _classes(info: DatasetInfo) -> str:
    if not info.class_names:
        return f"{info.n_classes} classes" if info.n_classes else "classes: those of the files"
    named = first_and_last(info.class_names, MOST_CLASSES)
    return f"{len(info.class_names)} classes, in the order of the outputs: {named}"


def _left_out(counts: Mapping[str, int]) -> str:
    parts = [f"{n:,} {reason}" for reason, n in sorted(counts.items()) if n]
    return f"left out: {', '.join(parts)}" if parts else ""


def first_and_last(names: Sequence[str], most: int) -> str:
    """Join names; of more than ``most``, the first ones and the last."""
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[: most - 1])}, ..., {names[-1]}"

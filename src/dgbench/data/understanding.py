"""What was understood of a dataset, of any kind, in three lines: for plans, commands and the record
of a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dgbench.data.description import DatasetInfo, with_base

DATASETS = 4  # of which a command says something
ENVIRONMENTS, CLASSES = 6, 8  # more names than this are cut to the first and the last


def lines_of_dataset(info: DatasetInfo) -> list[str]:
    """Say which environments and classes a dataset has, where validation images come from, and what
    was left out.
    """
    validation = f"validation: {info.val_from}" if info.val_from else ""
    parts = [part for part in (validation, _left_out(info.left_out)) if part]
    lines = [_environments(info), _classes(info)]
    if parts:
        lines.append("; ".join(parts))
    return lines


def lines_of_datasets(infos: Iterable[DatasetInfo]) -> list[str]:
    """Say the same of one dataset; of several their environments, of the first few of them."""
    texts = dict.fromkeys(tuple(lines_of_dataset(info)) for info in infos)
    if len(texts) == 1:
        return list(next(iter(texts)))
    lines = [of_dataset[0] for of_dataset in texts]
    if len(lines) > DATASETS:
        return [*lines[:DATASETS], f"and {len(lines) - DATASETS} more datasets, or forms of them"]
    return lines


def _environments(info: DatasetInfo) -> str:
    name = with_base(info.name, info.base)
    total = f"{len(info.given)} environment{'' if len(info.given) == 1 else 's'}"
    if not info.counts:
        return (
            f"{name}: {total}: {first_and_last(info.given, ENVIRONMENTS)}; their images are not "
            "here yet"
        )
    if info.beyond:
        return _painted(info, name)
    images = {env: sum(info.counts.get(env, {}).values()) for env in info.given}
    named = [f"{env} ({n:,})" for env, n in images.items()]
    return (
        f"{name}: {total}, {sum(images.values()):,} images: {first_and_last(named, ENVIRONMENTS)}"
    )


def _painted(info: DatasetInfo, name: str) -> str:
    """Say what is dealt to given environments, and what all of them are judged on."""
    dealt = {env: counts["train"] + counts["val"] for env, counts in info.counts.items()}
    named = [f"{env} ({n:,})" for env, n in dealt.items()]
    pool = max(counts["test"] for counts in info.counts.values())
    return (
        f"{name}: {len(info.given)} given environments, {sum(dealt.values()):,} images: "
        f"{first_and_last(named, ENVIRONMENTS)}; errors are measured in {len(info.everywhere)} "
        f"environments, on up to {pool:,} other images each"
    )


def _classes(info: DatasetInfo) -> str:
    if not info.class_names:
        return f"{info.n_classes} classes" if info.n_classes else "classes: those of the files"
    named = first_and_last(info.class_names, CLASSES)
    return f"{len(info.class_names)} classes, in the order of the outputs: {named}"


def _left_out(counts: Mapping[str, int]) -> str:
    parts = [f"{n:,} {reason}" for reason, n in sorted(counts.items()) if n]
    return f"left out: {', '.join(parts)}" if parts else ""


def first_and_last(names: Sequence[str], most: int) -> str:
    """Join names; where there are more than ``most``, the first ones and the last."""
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[: most - 1])}, ..., {names[-1]}"

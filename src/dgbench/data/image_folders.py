"""Datasets of image files: a tree root/environment/class/image, or a list of paths."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dgbench.data.augment import Augmentation
from dgbench.data.folder_environments import FolderEnvironments
from dgbench.data.image_store import image_store
from dgbench.data.image_table import ImageTable, need_folder, table_of_folders, table_of_list, table_of_rows
from dgbench.errors import ConfigError

Reader = Callable[..., list[tuple[str, str, str, str | None]]]  # root=Path -> (path, environment, class, subset)

log = logging.getLogger(__name__)


def image_folders(
    *,
    name: str,
    root: str,
    manifest: str | None,
    reader: Reader | None,
    environments: Sequence[str] | None,
    classes: str,
    bad_files: Sequence[str],
    image_size: int,
    normalize: Mapping[str, Sequence[float] | None],
    augment: str,
    augmentations: Mapping[str, Mapping[str, Any]],
    val_fraction: float,
    on_bad_image: str,
    store: str,
    cache_dir: str,
    workers: int | None,
    device_share: float,
    split_seed: int,
    published: Mapping[str, Any] | None,
) -> FolderEnvironments:
    """Environments of image files; keys as in ``conf/dataset/image_folder.yaml``.

    Raises:
        ConfigError, DataError: see :func:`~dgbench.data.image_table.table_of_folders`,
            :func:`~dgbench.data.image_store.image_store` and :class:`FolderEnvironments`.
    """
    if store == "none" and on_bad_image == "skip":
        raise ConfigError(
            "dataset.on_bad_image=skip needs every image decoded beforehand; use dataset.store=file, or name the bad "
            "ones in dataset.bad_files"
        )
    if reader is not None:
        need_folder(Path(root), name)
        table = table_of_rows(reader(root=Path(root)), Path(root), environments, classes, bad_files)
    elif manifest is not None:
        table = table_of_list(Path(manifest), Path(root), environments, classes, bad_files)
    else:
        table = table_of_folders(Path(root), environments, classes, bad_files, name)
    if not 0 < val_fraction < 1:
        raise ConfigError(f"dataset.val_fraction={val_fraction} is not in (0, 1); DomainBed uses 0.2")
    _compare(table, published or {}, whole=environments is None)
    pixels = image_store(
        table, side=image_size, kind=store, cache=Path(cache_dir), workers=workers, device_share=device_share
    )
    return FolderEnvironments(
        dataset=name,
        table=table,
        store=pixels,
        side=image_size,
        val_fraction=val_fraction,
        on_bad_image=on_bad_image,
        normalize=normalize,
        split_seed=split_seed,
        augmentation=_augmentation(augment, augmentations),
        variant={"augment": augment},
    )


def _augmentation(name: str, known: Mapping[str, Mapping[str, Any]]) -> Augmentation | None:
    if name == "none":
        return None
    if name not in known:
        raise ConfigError(f"dataset.augment={name} is unknown; choose none, {', '.join(map(str, known))}")
    values: dict[str, Any] = {str(key): list(v) if isinstance(v, Sequence) else v for key, v in known[name].items()}
    try:
        return Augmentation(**values)
    except TypeError as error:
        raise ConfigError(f"dataset.augmentations.{name}: {error}; see conf/dataset/image_folder.yaml") from error


def _compare(table: ImageTable, published: Mapping[str, Any], whole: bool) -> None:
    """Warn where a copy differs from what was published; it may still be what the user wants."""
    found = {"images": len(table), "classes": len(table.classes), "environments": sorted(table.environments)}
    for key, value in found.items():
        expected = published.get(key)
        if whole and expected is not None and value != (sorted(expected) if key == "environments" else expected):
            log.warning("%s has %s %s, the published dataset %s", table.root, key, value, expected)

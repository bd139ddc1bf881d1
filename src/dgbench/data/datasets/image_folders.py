"""Datasets of image files: a tree root/environment/class/image, or a list of paths."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from hydra.utils import instantiate

from dgbench.data.datasets.image_table import (
    KINDS,
    SUBSETS,
    ImageTable,
    known_bad,
    need_folder,
    table_of_folders,
    table_of_list,
    table_of_rows,
)
from dgbench.data.datasets.splits import Subsets, subsets_of, usable
from dgbench.data.description import DatasetInfo, unlike_published
from dgbench.data.option_checks import (
    check_choice,
    check_list,
    check_name,
    check_path,
    check_seeds,
    check_share,
    check_side,
    check_workers,
    is_finite,
    is_number,
    shown,
)
from dgbench.data.transforms.values import chosen_values
from dgbench.errors import ConfigError, DgbenchError

if TYPE_CHECKING:
    from dgbench.data.store.photographs import FolderEnvironments

Plain = tuple[str, str, str, str | None]  # path below root, environment, class, subset
Described = tuple[str, str, str, str | None, Mapping[str, str]]  # the same, and attributes: name -> text
Reader = Callable[..., Sequence[Plain | Described]]  # of root=Path

log = logging.getLogger(__name__)

IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
_WARNED: set[str] = set()  # differences from the published form that this process has reported


@dataclass(frozen=True, kw_only=True)
class ImageFolders:
    """Environments of image files; keys as in ``conf/dataset/image_folder.yaml``, where each is explained."""

    name: str
    root: str
    manifest: str | None
    reader: Reader | Mapping[str, Any] | None
    environments: Sequence[str] | None
    classes: str
    bad_files: Sequence[str]
    image_size: int | None
    normalize: Mapping[str, Sequence[float] | None]
    augment: str
    augmentations: Mapping[str, Mapping[str, Any]]
    val_fraction: float
    on_bad_image: str
    store: str
    cache_dir: str
    workers: int | None
    device_share: float
    split_seed: int
    published: Mapping[str, Any] | None
    plain_environments: Sequence[str] = ()

    def describe(self, *, absent_ok: bool = False, download: bool = False) -> DatasetInfo:
        """As :meth:`~dgbench.data.description.DatasetOptions.describe`; nothing is downloaded.

        Images that cannot be decoded are known once they were decoded: until then all are counted.
        """
        self.check(size_known=False)
        if absent_ok and not self.present() and self.expected_environments():
            return self.info(self.expected_environments(), int((self.published or {}).get("classes") or 0))
        return self.planned()[0]

    def build(self) -> FolderEnvironments:
        """The environments, their images decoded once into the cache."""
        self.check(size_known=True)
        table = self.table()
        self.described(table, np.ones(len(table), bool))

        from dgbench.data.store.image_store import image_store
        from dgbench.data.store.photographs import FolderEnvironments
        from dgbench.data.transforms.augment import Augmentation

        assert self.image_size is not None
        pixels = image_store(
            table,
            side=self.image_size,
            kind=self.store,
            cache=Path(self.cache_dir).expanduser(),
            workers=self.workers,
            device_share=self.device_share,
        )
        info, subsets = self.described(table, usable(table, pixels.bad, self.on_bad_image))
        values = chosen_values(self.augment, self.augmentations)
        augmentation = None if values is None else Augmentation(**vars(values))
        mean, std = (_three(self.normalize, key) for key in ("mean", "std"))
        return FolderEnvironments(info, table, subsets, pixels, mean, std, augmentation, self.plain_environments)

    def planned(self) -> tuple[DatasetInfo, Subsets]:
        """The dataset and its subsets, as far as they are known without decoding."""
        table = self.table()
        bad = {} if self.store == "none" else known_bad(table, self.image_size, Path(self.cache_dir).expanduser())
        return self.described(table, usable(table, bad, self.on_bad_image))

    def check(self, size_known: bool) -> None:
        """Refuse values that cannot work, whatever the files hold.

        Args:
            size_known: whether the image size must be set by now; before, null leaves it to the initial weights.

        Raises:
            ConfigError: a value that cannot work.
        """
        check_name(self.name)
        check_path("root", self.root, "name the folder that holds environment/class/image")
        check_path("cache_dir", self.cache_dir, "name a folder with space for decoded images")
        if self.manifest is not None:
            check_path("manifest", self.manifest, "give a CSV or JSON list of path, environment, class")
        check_workers(self.workers)
        if not is_number(self.device_share) or not 0 <= self.device_share <= 1:
            raise ConfigError(f"dataset.device_share={shown(self.device_share)} is not in [0, 1]; 0.5 is the default")
        check_seeds(split_seed=self.split_seed)
        check_choice("store", self.store, KINDS)
        check_choice("on_bad_image", self.on_bad_image, ("fail", "skip"))
        if self.store == "none" and self.on_bad_image == "skip":
            raise ConfigError(
                "dataset.on_bad_image=skip needs every image decoded beforehand; use dataset.store=file, or name the "
                "bad ones in dataset.bad_files"
            )
        check_share("val_fraction", self.val_fraction, "DomainBed uses 0.2")
        check_side(self.image_size, "224 is usual", unknown_ok=not size_known)
        chosen_values(self.augment, self.augmentations)
        check_list("plain_environments", self.plain_environments, "[] augments all that are trained on")
        for key in ("mean", "std"):
            _three(self.normalize, key)

    def present(self) -> bool:
        """Whether the folder of images, or their list, is there."""
        return self._root.is_dir() if self.manifest is None else Path(self.manifest).expanduser().is_file()

    def expected_environments(self) -> list[str]:
        """Names of the environments that the configuration knows; none where only the files tell."""
        names = self.environments or (self.published or {}).get("environments") or []
        return [str(name) for name in names]

    def table(self) -> ImageTable:
        """The images, listed.

        Raises:
            ConfigError, DataError: see :func:`~dgbench.data.datasets.image_table.table_of_folders`.
        """
        root = self._root
        if self.reader is not None:
            need_folder(root, self.name)
            rows = self._read(root)
            attributes = {row[0]: row[4] for row in rows if len(row) > 4}
            plain = [row[:4] for row in rows]
            table = table_of_rows(plain, root, self.environments, self.classes, self.bad_files, attributes)
        elif self.manifest is not None:
            table = table_of_list(
                Path(self.manifest).expanduser(), root, self.environments, self.classes, self.bad_files
            )
        else:
            table = table_of_folders(root, self.environments, self.classes, self.bad_files, self.name)
        _compare(table, self.published or {}, whole=self.environments is None)
        return table

    @property
    def _root(self) -> Path:
        return Path(self.root).expanduser()

    def _read(self, root: Path) -> list[Any]:
        """What the reader of an official layout lists."""
        try:
            reader: Any = instantiate(self.reader) if isinstance(self.reader, Mapping) else self.reader
            return list(reader(root=root))
        except DgbenchError:
            raise
        except Exception as error:  # a user's reader may raise anything
            cause = " ".join(str(error.__cause__ or error).split())
            raise ConfigError(
                f"dataset.reader={shown(self.reader)} cannot list the images ({type(error).__name__}: {cause}); "
                "write dataset.reader={_target_: MODULE.FUNCTION, _partial_: true}, or null for a tree "
                "environment/class/image"
            ) from error

    def described(self, table: ImageTable, kept: np.ndarray) -> tuple[DatasetInfo, Subsets]:
        """The dataset with these files, and which images are in which subset.

        Args:
            table: the files.
            kept: (n,) bool, the images that count.

        Raises:
            ConfigError: a fraction that leaves a subset empty.
        """
        subsets = subsets_of(table, kept, self.val_fraction, self.split_seed)
        counts = {env: {kind: len(subsets[env, kind]) for kind in SUBSETS} for env in table.environments}
        variant = {"images": int(kept.sum()), "files": table.fingerprint(kept)}
        return self.info(table.environments, len(table.classes), variant, counts, table.content()), subsets

    def info(
        self,
        given: Sequence[str],
        n_classes: int,
        variant: Mapping[str, Any] | None = None,
        counts: Mapping[str, Mapping[str, int]] | None = None,
        content: str = "",
    ) -> DatasetInfo:
        """The dataset with these environments; what the files tell is left out where they are absent."""
        side = self.image_size or 0
        own = {"augment": self.augment, "image_size": self.image_size, "val_fraction": self.val_fraction}
        return DatasetInfo(
            name=self.name,
            variant={**own, **(variant or {})},
            base="files",
            evaluation="sampled",
            data_seed=0,
            split_seed=self.split_seed,
            given=tuple(given),
            everywhere=tuple(given),
            n_classes=n_classes,
            image=(3, side, side),
            beyond=False,
            counts=counts or {},
            content=content,
        )


def _three(normalize: Mapping[str, Sequence[float] | None], key: str) -> tuple[float, ...]:
    """The values of the three channels, ImageNet's where none are given."""
    if not isinstance(normalize, Mapping) or set(normalize) != set(IMAGENET):
        raise ConfigError(f"dataset.normalize={shown(normalize)} is not a mean and a std; use {{mean:null,std:null}}")
    given = normalize[key]
    values = IMAGENET[key] if given is None else given
    listed = isinstance(values, Sequence) and not isinstance(values, str) and len(values) == 3
    if not listed or not all(is_finite(value) and (key == "mean" or value > 0) for value in values):
        raise ConfigError(
            f"dataset.normalize.{key} is not three numbers (std above 0): {shown(given)}; ImageNet's are the default, "
            f"dataset.normalize.{key}=null"
        )
    return tuple(map(float, values))


def _compare(table: ImageTable, published: Mapping[str, Any], whole: bool) -> None:
    """Warn where a copy differs from what was published, once per process; it may still be what the user wants."""
    if not isinstance(published, Mapping) or isinstance(published.get("environments") or [], (str, int, float)):
        raise ConfigError(
            f"dataset.published={shown(published)} is not images, classes and a list of environments; null compares "
            "with nothing"
        )
    if not whole:
        return
    for key, value, expected in unlike_published(published, len(table), len(table.classes), table.environments):
        text = f"{table.root} has {key} {value}, the published dataset {expected}"
        if text not in _WARNED:
            _WARNED.add(text)
            log.warning("%s", text)

"""Datasets of image files: a tree root/environment/class/image, or a list of paths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import numpy as np
from annotated_types import Predicate
from hydra.utils import instantiate
from pydantic import AfterValidator, BeforeValidator, Field, SkipValidation, model_validator

from dgbench.data.datasets.copies import leaking_copies, without_copies
from dgbench.data.datasets.image_table import (
    ImageTable,
    Row,
    known_bad,
    need_folder,
    rows_of_list,
    table_of_folders,
    table_of_rows,
    usable,
)
from dgbench.data.datasets.layouts import LAYOUT_FIX, NO_LAYOUT, USUAL, words_of
from dgbench.data.datasets.lists import NO_SUBSETS
from dgbench.data.datasets.same_bytes import Groups, groups_of_files, known_groups
from dgbench.data.datasets.small_environments import too_small
from dgbench.data.datasets.split_units import (
    caution_of_columns,
    columns_across,
    units_by_column,
    units_by_pattern,
)
from dgbench.data.datasets.splits import (
    Subsets,
    check_units,
    counts_of,
    origin_of_val,
    split_variant,
    subsets_of,
    warn_once,
)
from dgbench.data.description import DatasetInfo, Preprocessing, unlike_published
from dgbench.data.options import (
    NO_SIDE,
    CacheFolder,
    DatasetOptions,
    ImageSize,
    MinImages,
    PathText,
    Seed,
    SplitBy,
    SplitPattern,
    SubsetColumn,
    ValFraction,
    Workers,
    different,
    expanded,
    known_size,
    mapping_or,
)
from dgbench.data.transforms.values import AugmentationScheme
from dgbench.errors import ConfigError, DataError, DgbenchError
from dgbench.validation import Keys, Number, Refusal, shown, some_of

if TYPE_CHECKING:
    from dgbench.data.environments import Environments

DROPPED = "copies of others"
UNDECODED = "that cannot be decoded"
NAMED_BAD = "named in dataset.bad_files"
OWN_READERS = "dgbench.data.datasets."  # of published layouts
IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}


_Three = Annotated[Sequence[Number], Field(min_length=3, max_length=3)] | None
_NO_THREE = Refusal(
    "is not three numbers (std above 0)", "ImageNet's are the default, null takes them"
)


class Normalization(Keys):
    """Mean and deviation of the three channels, of values in [0, 1]; None is ImageNet's."""

    mean: Annotated[_Three, _NO_THREE]
    std: Annotated[_Three, Predicate(lambda std: std is None or min(std) > 0), _NO_THREE]


def _mean_and_std(value: Any) -> Any:
    if not isinstance(value, Mapping) or set(value) != set(IMAGENET):
        raise ValueError("is not a mean and a std; use {mean:null,std:null}")
    return value


_SCHEME = mapping_or(
    "is no scheme; give it the keys of domainbed in conf/dataset/image_folder.yaml"
)


def _is_layout(layout: str | None) -> bool:
    return layout is None or bool(words_of(layout))


def _lists_environments(form: Mapping[str, Any] | None) -> bool:
    return form is None or not isinstance(form.get("environments") or [], (str, int, float))


class ImageFolders(DatasetOptions):
    """Environments of image files; ``conf/dataset/image_folder.yaml`` explains each key."""

    root: Annotated[
        PathText, Refusal("is no path", "name the folder that holds environment/class/image")
    ]
    manifest: Annotated[
        PathText | None,
        Refusal("is no path", "give a CSV or JSON list of path, environment, class"),
    ]
    subset_column: SubsetColumn = None
    reader: Any  # a function of root=Path that returns rows, or what Hydra makes one from
    environments: SkipValidation[Sequence[str] | None]  # checked with those that are there
    classes: Literal["same", "union"]
    bad_files: SkipValidation[Sequence[str]]  # checked with the files
    image_size: Annotated[ImageSize, Refusal(NO_SIDE, "224 is usual")]
    normalize: Annotated[Normalization, BeforeValidator(_mean_and_std)]
    augment: SkipValidation[str]
    augmentations: Annotated[
        dict[str, Annotated[AugmentationScheme, _SCHEME]],
        mapping_or("names no schemes; leave the key as it is"),
    ]
    val_fraction: ValFraction
    split_by: SplitBy = None
    split_pattern: SplitPattern = None
    min_images: MinImages = 0
    on_bad_image: Literal["fail", "skip"]
    store: Literal["auto", "ram", "file", "none"]
    cache_dir: CacheFolder
    workers: Workers
    device_share: Annotated[
        Number, Field(ge=0, le=1), Refusal("is not in [0, 1]", "0.5 is the default")
    ]
    split_seed: Seed
    published: Annotated[
        Mapping[str, Any] | None,
        Predicate(_lists_environments),
        Refusal("is not images, classes and a list of environments", "null compares with nothing"),
    ]
    layout: Annotated[str | None, Predicate(_is_layout), Refusal(NO_LAYOUT, LAYOUT_FIX)] = None
    duplicates: Literal["warn", "drop", "fail"] = "warn"
    plain_environments: Annotated[
        Sequence[str | Number],
        Refusal("is no list of names", "[] augments all that are trained on"),
        AfterValidator(different),
    ] = ()

    @model_validator(mode="after")
    def _go_together(self) -> Self:
        schemes = ["none", *self.augmentations]
        if self.augment not in schemes:
            raise ConfigError(
                f"dataset.augment={shown(self.augment)} is unknown; choose {', '.join(schemes)}"
            )
        if self.split_by is not None and self.split_pattern is not None:
            raise ConfigError(
                "dataset.split_by and dataset.split_pattern are both set; leave one of them null"
            )
        listed = self.manifest is not None or self.reader is not None
        if self.split_by is not None and not listed:
            raise ConfigError(
                f"dataset.split_by={self.split_by} names a column of a list, and dataset.root is "
                "read without one; set dataset.manifest, or find it in the names of files with "
                "dataset.split_pattern"
            )
        if self.subset_column not in (None, NO_SUBSETS) and self.manifest is None:
            raise ConfigError(
                f"dataset.subset_column={self.subset_column} names a column of a list; set "
                "dataset.manifest, or leave it out"
            )
        if self.store == "none" and self.on_bad_image == "skip":
            raise ConfigError(
                "dataset.on_bad_image=skip needs every image decoded beforehand; use "
                "dataset.store=file, or name the bad ones in dataset.bad_files"
            )
        if self.layout not in (None, USUAL) and listed:
            key = "manifest" if self.reader is None else "reader"
            raise ConfigError(
                f"dataset.layout={self.layout} says what folders are, and dataset.{key} lists the "
                "images; set one of them to null"
            )
        return self

    def describe(self, *, absent_ok: bool = False, download: bool = False) -> DatasetInfo:
        """Describe the dataset; download nothing.

        Which images cannot be decoded is known only after a first decoding; until then all are
        counted.
        """
        return self.known_info(absent_ok) or self.planned()[0]

    def build(self) -> Environments:
        """Build the environments; images are decoded once into the cache."""
        return self.built_from(self.table())

    def built_from(self, table: ImageTable) -> Environments:
        """Build the environments of a table; images are decoded once into the cache."""
        side = known_size(self.image_size)
        self.described(table, np.ones(len(table), bool))  # refuses what needs no pixels

        import torch

        from dgbench.data.environments import Catalog, Environments, Table
        from dgbench.data.store.photographs import PhotographStore, cores, image_store
        from dgbench.data.transforms.augment import Augmentation

        cache = expanded(self.cache_dir)
        workers = self.workers or cores()
        copies = groups_of_files(table, cache, workers)
        if self.on_bad_image == "fail":
            self.checked(table, {}, copies)  # refuses copies before hours of decoding
        pixels = image_store(
            table,
            side=side,
            kind=self.store,
            cache=cache,
            workers=workers,
            device_share=self.device_share,
        )
        info, subsets = self.checked(table, pixels.bad, copies)
        mean = tuple(map(float, self.normalize.mean or IMAGENET["mean"]))
        std = tuple(map(float, self.normalize.std or IMAGENET["std"]))
        preprocessing = Preprocessing(info.image, mean, std)
        augmentation = None
        if self.augment != "none":
            augmentation = Augmentation(self.augmentations[self.augment])
        plain = None
        if self.plain_environments:
            names = np.array(table.environments)[table.env]
            plain = torch.from_numpy(np.isin(names, [str(env) for env in self.plain_environments]))
        labels = torch.from_numpy(table.label)
        classes = tuple(table.classes)
        catalog = Catalog(table.label, classes, preprocessing, table.paths, table.attributes)
        store = PhotographStore(pixels, labels, preprocessing, augmentation, plain)
        return Environments(Table(info, subsets), catalog, store)

    def known_info(self, absent_ok: bool) -> DatasetInfo | None:
        """Describe what the configuration knows, if files are and may be absent and it suffices.

        None is returned otherwise.
        """
        if self.manifest is None:
            present = expanded(self.root).is_dir()
        else:
            present = expanded(self.manifest).is_file()
        if present or not absent_ok:
            return None
        names = self.expected_environments()
        if not names:
            return None
        return self.info(names, int((self.published or {}).get("classes") or 0))

    def planned(self) -> tuple[DatasetInfo, Subsets]:
        """Plan the dataset and its subsets, as far as they are known without decoding."""
        table = self.table()
        cache = expanded(self.cache_dir)
        bad = {} if self.store == "none" else known_bad(table, self.image_size, cache)
        return self.checked(table, bad, known_groups(table, cache) or [])

    def checked(
        self, table: ImageTable, bad: Mapping[int, str], same: Groups
    ) -> tuple[DatasetInfo, Subsets]:
        """Describe the dataset as :meth:`described` without broken images, and warn of copies.

        Args:
            table: the files.
            bad: position -> why an image cannot be decoded.
            same: positions of files with the same bytes.

        Raises:
            DataError: broken images or copies that are to be refused.
        """
        counted = usable(table, bad, self.on_bad_image, self.image_size, expanded(self.cache_dir))
        if self.duplicates == "drop":
            unique = without_copies(counted, same)
            dropped = int(counted.sum() - unique.sum())
            if dropped:
                warn_once(
                    f"{dropped} images below {table.root} are copies of others; left out "
                    "(dataset.duplicates=drop)"
                )
                table.left_out.counts[DROPPED] = dropped
            return self.described(table, unique)
        info, subsets = self.described(table, counted)
        copies = leaking_copies(table, same, counted, subsets)
        if copies is None:
            return info, subsets
        if self.duplicates == "fail":
            raise DataError(
                f"{copies.line()}; dataset.duplicates=drop keeps the first file of each, warn "
                "keeps them all"
            )
        warn_once(f"{copies.line()}; dataset.duplicates=drop keeps the first file of each")
        return info, subsets

    def expected_environments(self) -> list[str]:
        """List the environments that the configuration knows, none if only the files tell."""
        names = self.environments or (self.published or {}).get("environments") or []
        return [str(name) for name in names]

    def table(self) -> ImageTable:
        """List the images; warn if they differ from the published dataset.

        Raises:
            ConfigError, DataError: see :func:`~dgbench.data.datasets.image_table.table_of_folders`.
        """
        root = expanded(self.root)
        if self.reader is not None:
            need_folder(root, self.name)
            rows = self._read(root)
            table = table_of_rows(rows, root, self.environments, self.classes, self.bad_files)
        elif self.manifest is not None:
            rows = rows_of_list(expanded(self.manifest), self.subset_column)
            table = table_of_rows(rows, root, self.environments, self.classes, self.bad_files)
        else:
            table = table_of_folders(
                root, self.environments, self.classes, self.bad_files, self.name, self.layout
            )
        if self.environments is None:
            _compare(table, self.name, self.published or {})
        return table

    def _read(self, root: Path) -> list[Row]:
        """List the rows that the reader of an official layout returns."""
        reader = self.reader
        try:
            if isinstance(reader, Mapping):
                reader = instantiate(reader)
            return list(reader(root=root))
        except DgbenchError:
            raise
        except Exception as error:  # a user's reader may raise anything
            cause = " ".join(str(error.__cause__ or error).split())
            raise ConfigError(
                f"dataset.reader={shown(self.reader)} cannot list the images "
                f"({type(error).__name__}: {cause}); write dataset.reader={{_target_: "
                "MODULE.FUNCTION, _partial_: true}, or null for a tree environment/class/image"
            ) from error

    def described(self, table: ImageTable, counted: np.ndarray) -> tuple[DatasetInfo, Subsets]:
        """Describe the dataset with these files, and list which images are in which subset.

        Args:
            table: the files.
            counted: (n,) bool, the images that count.

        Raises:
            ConfigError: a fraction that leaves a subset empty.
        """
        units = self._units(table)
        subsets = subsets_of(
            table, counted, self.val_fraction, self.split_seed, units, self.min_images
        )
        if units is None and self._lists_own_columns():
            across = columns_across(table.attributes, subsets, len(table.classes))
            caution = caution_of_columns(across)
            if caution:
                warn_once(caution)
        info = self.info(table.environments, len(table.classes))
        variant = {
            **info.variant,
            "images": int(counted.sum()),
            "files": table.fingerprint(counted),
        }
        # what is left is known only after decoding, so the key stands for it
        if self.duplicates == "drop":
            variant["duplicates"] = "drop"
        info = replace(
            info,
            variant=variant,
            counts=counts_of(subsets),
            only_tested=too_small(subsets, table.environments, self.min_images),
            content=table.content(),
            class_names=tuple(table.classes),
            val_from=origin_of_val(table, self.val_fraction, self.split_seed),
            left_out=self._left_out(table, counted),
        )
        return info, subsets

    def _units(self, table: ImageTable) -> np.ndarray | None:
        """Give images that belong on one side of the split one number, (n,); None if none do.

        Raises:
            ConfigError, DataError: no such column, a pattern that finds nothing, a list that
                divides what belongs together.
        """
        if self.split_by is None and self.split_pattern is None:
            return None
        if self.split_by is not None:
            key = f"dataset.split_by={self.split_by}"
            units = units_by_column(table.attributes, self.split_by, table.paths)
        else:
            key = f"dataset.split_pattern={self.split_pattern}"
            units = units_by_pattern(str(self.split_pattern), table.paths)
        check_units(units, table, key)
        return units

    def _lists_own_columns(self) -> bool:
        """Return whether a user's list says more about the images than a published layout does.

        A published layout is split as published.
        """
        if self.reader is None:
            return self.manifest is not None
        if isinstance(self.reader, Mapping):
            return not str(self.reader.get("_target_")).startswith(OWN_READERS)
        function = getattr(self.reader, "func", self.reader)  # of a functools.partial
        return not str(getattr(function, "__module__", "")).startswith(OWN_READERS)

    def _left_out(self, table: ImageTable, counted: np.ndarray) -> dict[str, int]:
        """Count the files that are not read, by reason."""
        counts = {**table.left_out.counts, NAMED_BAD: len(self.bad_files)}
        broken = int((~counted).sum()) - counts.get(DROPPED, 0)
        return {**counts, UNDECODED: broken}

    def info(self, given: Sequence[str], n_classes: int) -> DatasetInfo:
        """Describe the dataset with these environments, as far as it is known without its files."""
        side = self.image_size or 0
        split = split_variant(self.split_by, self.split_pattern, self.min_images)
        return DatasetInfo(
            name=self.name,
            variant={
                "augment": self.augment,
                "image_size": self.image_size,
                "val_fraction": self.val_fraction,
                **split,
            },
            base="files",
            split_seed=self.split_seed,
            given=tuple(given),
            everywhere=tuple(given),
            n_classes=n_classes,
            image=(3, side, side),
        )


def _compare(table: ImageTable, name: str, published: Mapping[str, Any]) -> None:
    """Compare a copy with what was published.

    A warning tells, once per process, which names or number of images differ.

    Raises:
        DataError: another number of classes or environments: folders that mean something else, or
            another dataset.
    """
    differences = unlike_published(published, len(table), len(table.classes), table.environments)
    for key, value, expected in differences:
        known = len(expected) if isinstance(expected, list) else expected
        number = len(value) if isinstance(value, list) else value
        if key != "images" and number != known:
            names = table.classes if key == "classes" else table.environments
            raise DataError(
                f"dataset.root={table.root} has {number} {key} ({some_of(names, 6)}), {name} as "
                f"published {known}; correct the root, say what its folders are with "
                "dataset.layout (e.g. environment/split/class), or take it as it is with "
                "dataset.published=null"
            )
    for key, value, expected in differences:
        warn_once(f"{table.root} has {key} {value}, the published dataset {expected}")

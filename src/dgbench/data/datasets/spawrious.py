"""Spawrious (Lynch et al., 2023): four breeds of dogs in locations that go with them, in six variants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dgbench.data.datasets.folder_listing import unreadable
from dgbench.errors import ConfigError, DataError

Row = tuple[str, str, str, str | None]

BREEDS = ("bulldog", "dachshund", "labrador", "corgi")  # the order of the locations below
PER_CLASS = 3168  # images of a class in a group
GROUP_SHARES = (0.97, 0.87)  # of them in the location of the class, in groups 1 and 2 of one-to-one; rounded down
SWAPPED = (1, 0, 3, 2)  # many-to-many: a class is in the other location of its pair in group 2
SUFFIXES = (".png", ".jpg", ".jpeg")


@dataclass(frozen=True)
class Locations:
    """Where the breeds are.

    Args:
        train, test: location of each breed, in the order of ``BREEDS``.
        filler: location of the other images of a group, of any breed; None is many-to-many, where there are none.
    """

    train: Sequence[str]
    test: Sequence[str]
    filler: str | None = None


VARIANTS: Mapping[str, Locations] = {
    "o2o_easy": Locations(("desert", "jungle", "dirt", "snow"), ("dirt", "snow", "desert", "jungle"), "beach"),
    "o2o_medium": Locations(("mountain", "beach", "dirt", "jungle"), ("jungle", "dirt", "beach", "snow"), "desert"),
    "o2o_hard": Locations(("jungle", "mountain", "snow", "desert"), ("mountain", "snow", "desert", "jungle"), "beach"),
    "m2m_easy": Locations(("desert", "mountain", "dirt", "jungle"), ("dirt", "jungle", "mountain", "desert")),
    "m2m_medium": Locations(("beach", "snow", "mountain", "desert"), ("desert", "mountain", "beach", "snow")),
    "m2m_hard": Locations(("dirt", "jungle", "snow", "beach"), ("snow", "beach", "dirt", "jungle")),
}


def spawrious(root: Path, variant: str, per_class: int = PER_CLASS) -> list[Row]:
    """The environments ``Test``, ``SC_group_1`` and ``SC_group_2`` of a variant.

    One-to-one: each breed has a location of its own in both groups, with 97 % of its images in the first group and
    87 % in the second, the others in one location for all breeds; it is tested in another location. Many-to-many: two
    breeds swap their two locations between the groups, and are tested in two others.

    Where a folder holds more images than are taken, these are the first by name. The reference takes the first as the
    file system lists them, which differs from machine to machine.

    Args:
        root: the unpacked folder ``spawrious224``, with 0 and 1 in it, each LOCATION/BREED/IMAGE.
        variant: ``o2o_easy``, ``o2o_medium``, ``o2o_hard``, ``m2m_easy``, ``m2m_medium`` or ``m2m_hard``.
        per_class: images of a breed in a group.

    Raises:
        ConfigError: an unknown variant.
        DataError: a folder is missing or holds too few images.
    """
    if variant not in VARIANTS:
        raise ConfigError(f"dataset.reader.variant={variant} is unknown; choose {', '.join(VARIANTS)}")
    where = VARIANTS[variant]
    listed = _many_to_many(where, per_class) if where.filler is None else _one_to_one(where, where.filler, per_class)
    return [
        (path, env, breed, None)
        for env, folder, location, breed, count in listed
        for path in _first(root, f"{folder}/{location}/{breed}", count)
    ]


Part = tuple[str, int, str, str, int | None]  # environment, folder 0 or 1, location, breed, images; None is all


def _one_to_one(where: Locations, filler: str, per_class: int) -> Iterator[Part]:
    for breed, train, test in zip(BREEDS, where.train, where.test, strict=True):
        for folder, share in enumerate(GROUP_SHARES):
            own = int(share * per_class)
            yield f"SC_group_{folder + 1}", folder, train, breed, own
            yield f"SC_group_{folder + 1}", folder, filler, breed, per_class - own
            yield "Test", folder, test, breed, None


def _many_to_many(where: Locations, per_class: int) -> Iterator[Part]:
    for i, (breed, swapped) in enumerate(zip(BREEDS, SWAPPED, strict=True)):
        for group, place in enumerate((i, swapped)):
            yield f"SC_group_{group + 1}", 0, where.train[place], breed, per_class
            yield "Test", 0, where.test[place], breed, None


def _first(root: Path, below: str, count: int | None) -> list[str]:
    """Paths below ``root`` of the first images of a folder by name; all for None."""
    try:
        names = sorted(file.name for file in (root / below).iterdir() if file.name.endswith(SUFFIXES))
    except OSError as error:
        unreadable(error, root / below)
    if len(names) < (count or 1):
        raise DataError(
            f"{root / below} holds {len(names)} images, fewer than the {count or 1} of this variant; unpack Spawrious "
            "again, and let dataset.root be the folder that holds 0 and 1"
        )
    return [f"{below}/{name}" for name in names[:count]]

"""DomainBed's names of datasets, and what is called what in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

SPAWRIOUS = ("O2O_easy", "O2O_medium", "O2O_hard", "M2M_easy", "M2M_medium", "M2M_hard")

#: DomainBed's name of a dataset -> ours, and its environments in the order of their index, as
#: dgbench names them
DATASETS: Mapping[str, tuple[str, Sequence[str]]] = {
    "ColoredMNIST": ("cmnist_domainbed", ("0.10", "0.20", "0.90")),  # +90%, +80% and -90% there
    "RotatedMNIST": ("rotated_mnist", ("0", "15", "30", "45", "60", "75")),
    "VLCS": ("vlcs", ("Caltech101", "LabelMe", "SUN09", "VOC2007")),
    "PACS": ("pacs", ("art_painting", "cartoon", "photo", "sketch")),
    "OfficeHome": ("office_home", ("Art", "Clipart", "Product", "Real World")),
    "TerraIncognita": (
        "terra_incognita",
        ("location_100", "location_38", "location_43", "location_46"),
    ),
    "DomainNet": (
        "domain_net",
        ("clipart", "infograph", "painting", "quickdraw", "real", "sketch"),
    ),
    "SVIRO": (
        "sviro",
        ("aclass", "escape", "hilux", "i3", "lexus", "tesla", "tiguan", "tucson", "x5", "zoe"),
    ),
    "WILDSCamelyon": ("camelyon17_wilds", [f"hospital_{i}" for i in range(5)]),
    "WILDSFMoW": ("fmow", [f"region_{i}" for i in range(6)]),
    **{
        f"Spawrious{kind}": (f"spawrious_{kind.lower()}", ("Test", "SC_group_1", "SC_group_2"))
        for kind in SPAWRIOUS
    },
}

"""What DomainBed's names are called here, so that imported and published results line up with our own."""

from __future__ import annotations

ALGORITHMS = {
    "ERM": "erm", "IRM": "irm", "GroupDRO": "group_dro", "Mixup": "mixup", "MLDG": "mldg", "CORAL": "coral",
    "MMD": "mmd",
    "DANN": "dann", "CDANN": "cdann", "MTL": "mtl", "SagNet": "sag_net", "ARM": "arm", "VREx": "vrex", "RSC": "rsc",
    "SD": "sd", "ANDMask": "and_mask", "IGA": "iga", "Fishr": "fishr", "EQRM": "eqrm", "ERDG": "erdg",
}  # fmt: skip

DATASETS = {
    "ColoredMNIST": "cmnist", "RotatedMNIST": "rotated_mnist", "VLCS": "vlcs", "PACS": "pacs",
    "OfficeHome": "office_home", "TerraIncognita": "terra_incognita", "DomainNet": "domain_net",
    "WILDSCamelyon": "camelyon17",
}  # fmt: skip

#: environments in the order of their index: sorted folder names
_ENVIRONMENTS = {
    "ColoredMNIST": ("+90%", "+80%", "-90%"),
    "RotatedMNIST": ("0", "15", "30", "45", "60", "75"),
    "VLCS": ("Caltech101", "LabelMe", "SUN09", "VOC2007"),
    "PACS": ("art_painting", "cartoon", "photo", "sketch"),
    "OfficeHome": ("Art", "Clipart", "Product", "Real World"),
    "TerraIncognita": ("location_100", "location_38", "location_43", "location_46"),
    "DomainNet": ("clipart", "infograph", "painting", "quickdraw", "real", "sketch"),
}


def environment_names(dataset: str, count: int) -> list[str]:
    """Names of the environments of a known dataset, else ``env0``, ``env1``, ..."""
    known = _ENVIRONMENTS.get(dataset, ())
    return list(known) if len(known) == count else [f"env{index}" for index in range(count)]

"""The hyperparameters that a configuration asks for. One hyperparameter has one address: ``hparams.NAME``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dgbench.errors import ConfigError
from dgbench.protocols.hparams import resolve
from dgbench.training.settings import TrainerSettings, check_batch_size

#: keys of ``conf/hparams`` that are no hyperparameters; every other key below ``hparams`` is one that was chosen
SEARCH_KEYS = frozenset({"space", "draw", "trial", "rng", "scheme", "shared"})
SHARED = ("lr", "weight_decay", "batch_size")  #: what an algorithm reads of the shared ones unless it says otherwise


def chosen(hparams: Mapping[str, Any]) -> dict[str, Any]:
    """The values that stand directly below ``hparams``, which beat draws and defaults; null chooses nothing."""
    return {key: value for key, value in hparams.items() if key not in SEARCH_KEYS and value is not None}


def hyperparameters(config: Mapping[str, Any], settings: TrainerSettings, smallest: int) -> dict[str, Any]:
    """Every hyperparameter that a study reads, resolved; what beats what is said by :func:`resolve`.

    A drawn batch size that no minibatch of this dataset can have becomes the largest one that can: DomainBed's loader
    would wait for such a minibatch without end. A batch size that was chosen is refused instead.

    Args:
        config: the resolved configuration, plain values by top-level key.
        settings: of the trainer.
        smallest: training images of the smallest given environment; 0 where that is not known.

    Raises:
        ConfigError: a value of the wrong type, or a key, space or kind of images that is unknown.
    """
    asked, algorithm = config["hparams"], config["algorithm"]
    own, read = algorithm.get("hparams") or {}, algorithm.get("shared", SHARED)
    # a shared one that this algorithm does not read is chosen for the others of a sweep
    typed = {key: value for key, value in chosen(asked).items() if key in own or key in read or key not in SHARED}
    values = resolve(
        asked["shared"],
        {"hparams": own, "search": algorithm.get("search") or {}},
        kind=config["dataset"].get("image_kind"),
        space=asked["space"],
        number=asked["draw"],
        trial=asked["trial"],
        rng=asked["rng"],
        read=[*read, *(config["backbone"].get("hparams") or {}).values()],
        chosen=typed,
        dataset=str(config["dataset"].get("name")),
    )
    if asked["draw"] and "batch_size" not in typed and 0 < smallest < values.get("batch_size", 0):
        values["batch_size"] = smallest
    check_batch_size(values["batch_size"], settings)
    if 0 < smallest < values["batch_size"]:
        raise ConfigError(
            f"hparams.batch_size={values['batch_size']} is larger than the smallest training environment, of "
            f"{smallest} images; set hparams.batch_size={smallest} or less"
        )
    return values

"""Write what a run folder holds besides results.

``config.yaml`` is the resolved configuration, and ``log.txt`` what was logged. ``identity.json``
says what decides the results, and of what code, packages, machine and data a run is made; every
start of the run, first or resumed, adds a session. ``model.json`` is what a trained model is
besides its weights, enough to build it anywhere.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import os
import platform
import re
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, get_type_hints
from weakref import WeakKeyDictionary

import torch
from omegaconf import OmegaConf
from torch import nn

from dgbench.configuration import python_path, typed_words
from dgbench.data.description import Preprocessing
from dgbench.data.environments import Environments
from dgbench.data.understanding import lines_of_dataset
from dgbench.errors import DgbenchError, RecordError, one_line
from dgbench.network_specs import Sizes
from dgbench.networks.build import FeaturizerFactory, build_networks
from dgbench.networks.initial_heads import RandomHead
from dgbench.plan.building import InitialWeights, class_at
from dgbench.plan.code import present_paths, refuse_code
from dgbench.records.checks import (
    BY_TYPE,
    DEEPEST,
    LARGEST_COUNT,
    Check,
    first_fault,
    optional,
    plain_mapping,
    shown,
    whole,
)
from dgbench.records.files import open_regular, read_json, write_whole
from dgbench.records.rows import IDENTITY_FILE
from dgbench.records.run_identity import IDENTITY_CHECKS, RunIdentity, misfit
from dgbench.records.spec import code_version, commit
from dgbench.seeding import ALL, seed_for
from dgbench.training.algorithm_class import algorithm_class
from dgbench.training.blueprint import featurizer_keys
from dgbench.training.modules import SingleRun
from dgbench.training.study import ReadyRun
from dgbench.training.unlearnable import trained_classes
from dgbench.version import __version__

LOG_FILE = "log.txt"

MODEL_FILE = "model.json"
FORMAT = 1
DTYPES = ("float32", "float64", "bfloat16", "float16")
MOST_BYTES = 2**24  # of that file; ten thousand classes take 0.3 MB

PACKAGES = (
    "torch",
    "torchvision",
    "pytorch-lightning",
    "hydra-core",
    "omegaconf",
    "numpy",
    "scipy",
    "scikit-learn",
    "timm",
    "pillow",
)
SAMPLED = 32  # images of each subset that the fingerprint looks at
_FINGERPRINTS: WeakKeyDictionary[Environments, str] = WeakKeyDictionary()


def write_config(run: ReadyRun) -> None:
    """Write the resolved configuration of a run, and its fold, to its folder."""
    fold = OmegaConf.to_yaml(OmegaConf.create({"fold": run.fold.key()}))
    write_whole(run.folder / "config.yaml", run.study.resolved_yaml + fold)


def write_model(run: ReadyRun, identity: RunIdentity) -> None:
    """Write what the run's model is besides its weights, so that it can be built anywhere."""
    study = run.study
    config = study.config
    averaging = config["averaging"].get("rule")
    ModelRecord(
        identity=asdict(identity),
        objective=config["algorithm"]["objective"],
        hparams=dict(run.spec.hparams),
        featurizer=featurizer_keys(study.config, study.hparams),
        dtype=str(study.dtype).removeprefix("torch."),
        averaging=None if averaging is None else dict(averaging),
        training=run.fold.training,
        fold=run.fold.key(),
        classes=study.source.catalog.classes,
        trained_classes=trained_classes(run.data.environments, run.fold.training),
        preprocessing=study.source.catalog.preprocessing,
        dataset=config["dataset"],
        protocol=config["protocol"],
        trainer=config["trainer"],
        n_images=study.n_images,
        low_rank_scale=study.tuning.low_rank_scale,
    ).save(run.folder)


def write_identity(run: ReadyRun, *, resumed_from: int, together: int) -> None:
    """Write ``identity.json``, what a run is made of; sessions of earlier starts are kept.

    Args:
        run: the run that is started.
        resumed_from: step of the checkpoint that it continues from, 0 for its beginning.
        together: runs that train as one stack, 1 for one alone.
    """
    file = run.folder / IDENTITY_FILE
    study = run.study
    session = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "command": [Path(sys.argv[0]).name, *study.planned.words],
        "typed": typed_words("train"),  # of a whole sweep, if it is a job of one
        **({"python_path": python_path()} if run.spec.user_code else {}),
        "threads": torch.get_num_threads(),
        **_surroundings(),
        "device": study.settings.device,
        "resumed_from": resumed_from,
        "together": together,
    }
    document = {
        "run": run.hash,
        "study": study.folder.name,
        "spec": run.spec.to_json(),
        "evaluations": run.evaluations.model_dump(),
        **_arrived(study.planned.weights),
        "dataset": {**study.info.facts(), "fingerprint": fingerprint(study.source)},
        "understood": lines_of_dataset(study.info),
        "sessions": [*_sessions(file), session],
    }
    write_whole(file, json.dumps(document, indent=1) + "\n")


def _arrived(weights: InitialWeights) -> dict[str, Any]:
    """Describe how much of the featurizer came from a file of weights, if any did."""
    arrival = weights.arrival
    return {} if arrival is None else {"weights": arrival.to_json()}


def first_threads(run: ReadyRun) -> int | None:
    """Read the number of threads that a run began with, or return None if it is not recorded.

    It is not before its first start.
    """
    sessions = _sessions(run.folder / IDENTITY_FILE)
    if not sessions or not isinstance(sessions[0], dict):
        return None
    number = sessions[0].get("threads")
    return number if isinstance(number, int) and number > 0 else None


def fingerprint(environments: Environments) -> str:
    """Compute 12 digits that change with the images, labels, spurious features and splits.

    All positions that are dealt to environments are hashed, and the pixels and labels of the first
    images of each subset.
    """
    if environments not in _FINGERPRINTS:
        _FINGERPRINTS[environments] = _fingerprint(environments)
    return _FINGERPRINTS[environments]


def _fingerprint(environments: Environments) -> str:
    identity = json.dumps(environments.info.identity(), sort_keys=True, default=str)
    content = hashlib.sha256(identity.encode())
    for env in environments.info.given:
        for subset in ("train", "val"):
            positions = environments.table.subset(env, subset)
            content.update(f"{env}/{subset}/{len(positions)}".encode())
            content.update(positions.astype("<i8").tobytes())
            if len(positions):
                x, y = environments.store.gather(torch.from_numpy(positions[:SAMPLED]))
                rounded = (x * 1000).round().to("cpu", torch.int32)  # the same on every device
                content.update(rounded.numpy().tobytes())
                content.update(y.cpu().numpy().astype("<i8").tobytes())
    return content.hexdigest()[:12]


def _sessions(file: Path) -> list[Any]:
    try:
        return list(read_json(file)["sessions"])
    except (OSError, ValueError, KeyError, TypeError):  # none yet, or cut short by a full disk
        return []


@functools.cache
def _surroundings() -> dict[str, Any]:
    """Describe code, packages and machine: what does not change while a process lives."""
    return {
        "dgbench": __version__,
        "code": code_version(),
        **commit(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "system": platform.platform(),
        "cpu": _cpu(),
        "cores": _cores(),
        "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        "cuda": torch.version.cuda,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _cores() -> int | None:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    for line in lines:
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


@dataclass(frozen=True, kw_only=True)
class ModelRecord:
    """A trained model without its weights."""

    identity: Mapping[str, Any]  #: of its rows
    objective: str  #: import path of the algorithm's class
    hparams: Mapping[str, Any]  #: resolved values of every hyperparameter that the algorithm reads
    #: ``_target_``, import path of a module's class, and its arguments but the shape of the image
    featurizer: Mapping[str, Any]
    dtype: str  #: name of the floating-point type
    #: ``_target_`` and arguments of the rule that averages the weights; None if nothing does
    averaging: Mapping[str, Any] | None
    training: tuple[str, ...]  #: environments that it was trained on
    fold: Mapping[str, Any]  #: what else tells its fold, see :meth:`dgbench.plan.folds.Fold.key`
    classes: tuple[str, ...]  #: names of the K classes, in the order of the logits
    preprocessing: Preprocessing  #: from a picture to what the network sees
    #: resolved keys of the configuration that it was trained with
    dataset: Mapping[str, Any]
    protocol: Mapping[str, Any]
    trainer: Mapping[str, Any]
    #: what numbers of training images are below; algorithms may keep something for each
    n_images: int = 0
    #: names of the classes that some training image had; empty in records older than the key
    trained_classes: tuple[str, ...] = ()
    #: alpha / r of low-rank parts, which are merged where the model is loaded; None without any
    low_rank_scale: float | None = None

    def save(self, folder: Path) -> None:
        """Write ``model.json`` to a folder, whole.

        Raises:
            OSError: it cannot be written; what was there stays.
        """
        content = {"format": FORMAT, **asdict(self)}
        write_whole(folder / MODEL_FILE, json.dumps(content, indent=1) + "\n")

    @staticmethod
    def load(folder: Path, trust: bool = False) -> ModelRecord:
        """Read and check the ``model.json`` of a folder.

        Args:
            folder: of a run.
            trust: it may name any class that can be imported, which runs the code of its module;
                else those that ``conf/`` names. The classes of its dataset are looked at where that
                is built.

        Raises:
            RecordError: it is absent, or something else, or names other classes.
        """
        file = folder / MODEL_FILE
        try:
            record = _record_of(file)
        except FileNotFoundError:
            raise RecordError(
                f"{folder} has no {MODEL_FILE}; name the folder of a run (versions before 0.1 "
                "wrote none)"
            ) from None
        except (
            OSError,
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            RecursionError,
            OverflowError,
        ) as error:
            raise RecordError(
                f"{file} is no record of a model ({one_line(error)}); train it again"
            ) from None
        if not trust:
            refuse_code({"objective": record.objective}, str(file), "algorithm")
            refuse_code(record.featurizer, f"{file}: featurizer", "backbone")
            refuse_code(record.averaging or {}, f"{file}: averaging", "averaging")
        return record

    @property
    def identity_of_rows(self) -> RunIdentity:
        """What the rows of the run say of it."""
        return RunIdentity(**self.identity)

    def build(self) -> SingleRun:
        """Build the module in evaluation mode, with random weights.

        Raises:
            RecordError: a class that it names is not there, or takes other arguments.
        """
        return self._module(0, self._featurizer)

    def initial(self, weights: InitialWeights, head: RandomHead) -> SingleRun:
        """Build the module in evaluation mode, with the weights that training began with.

        Args:
            weights: initial ones of the featurizer.
            head: sets those of the classifier.

        Raises:
            RecordError: as :meth:`build`.
            WeightsError, ConfigError: the weights do not fit, or something does not go together.
        """

        def featurizer(image: tuple[int, ...]) -> nn.Module:
            body = self._featurizer(image)
            weights.load(body)
            return body

        seed_moves = self.identity.get("seed_moves", ALL)
        module = self._module(seed_for("weights", self.identity["seed"], seed_moves), featurizer)
        networks = module.networks
        unit_length = bool(getattr(networks["featurizer"], "unit_length", False))
        head.set(networks["classifier"], weights, self.classes, unit_length)
        return module

    def _module(self, seed: int, featurizer: FeaturizerFactory) -> SingleRun:
        """Build the module from a seed of its initial weights, see :meth:`build`."""
        algorithm = algorithm_class(self.objective)
        image = self.preprocessing.image
        per_step = self.trainer.get("environments_per_step")  # runs of before lack it
        try:
            shapes = Sizes(
                n_features=0,
                n_classes=len(self.classes),
                n_envs=per_step or len(self.training),
                image=image,
                n_steps=self.trainer["steps"],
                n_images=self.n_images,
                pixel_mean=self.preprocessing.mean,
                pixel_std=self.preprocessing.std,
                n_drawn_from=len(self.training) if per_step else 0,
            )
            networks, sizes = build_networks(
                featurizer,
                shapes,
                lambda sizes: algorithm.networks_needed(sizes, self.hparams),
                algorithm.extra_channels,
                seed=seed,
            )
            inputs = seed_for("inputs", self.identity["seed"], self.identity.get("seed_moves", ALL))
            module = SingleRun(
                algorithm(sizes, self.hparams), networks, inputs, dtype=getattr(torch, self.dtype)
            )
        except DgbenchError:
            raise
        except Exception as error:  # wrong values lead anywhere in a network
            raise RecordError(
                f"{MODEL_FILE}: its model cannot be built ({one_line(error)}); use the version of "
                "dgbench that trained it"
            ) from error
        return module.eval()

    def _featurizer(self, image: tuple[int, ...]) -> nn.Module:
        arguments = dict(self.featurizer)
        kind = _class(str(arguments.pop("_target_")))
        featurizer: nn.Module = kind(image=image, **arguments)
        return featurizer

    def averaging_rule(self) -> Any:
        """Build the rule that averaged the weights, without its state.

        It is None if nothing was averaged.

        Raises:
            RecordError: the file names something else, which is not called.
        """
        if self.averaging is None:
            return None
        arguments = dict(self.averaging)
        path = str(arguments.pop("_target_", None))
        kind = _class(path)
        needed = ("update", "evaluated", "result", "load_state_dict")
        if not all(hasattr(kind, name) for name in needed):
            raise RecordError(f"{path} averages no weights; {MODEL_FILE} must name what does")
        try:
            return kind(**arguments)
        except (TypeError, ValueError) as error:
            raise RecordError(
                f"{MODEL_FILE}: averaging is not what {path} takes ({error}); train it again"
            ) from error


def _record_of(file: Path) -> ModelRecord:
    """Read a ``model.json``.

    Raises:
        OSError, ValueError, ...: it is no record of a model.
    """
    with open_regular(file) as handle:
        text = handle.read(MOST_BYTES + 1)
    if len(text) > MOST_BYTES:
        raise ValueError(f"over {MOST_BYTES} bytes")
    content: Any = present_paths(json.loads(text))
    if content.pop("format") != FORMAT:
        raise ValueError("another format")
    fault = first_fault(content, _CHECKS) or _identity_fault(content["identity"])
    if fault:
        raise ValueError(fault)
    content.pop("step", None)  # versions that exported models wrote it
    for key in ("training", "classes", "trained_classes"):
        if key in content:
            content[key] = tuple(content[key])
    content["preprocessing"] = Preprocessing.of_json(content["preprocessing"])
    return ModelRecord(**content)


def _mapping(value: Any) -> str:
    if type(value) is not dict:
        return f"is {shown(value)}, not a mapping"
    return "" if _shallow(value, 2 * DEEPEST) else "is nested too deeply"


def _shallow(value: Any, deepest: int) -> bool:
    """Return whether mappings and lists are nested less than ``deepest`` deep."""
    items: Any = ()
    if type(value) is dict:
        items = value.values()
    elif type(value) is list:
        items = value
    return deepest > 0 and all(_shallow(item, deepest - 1) for item in items)


_BY_TYPE = {
    **BY_TYPE,
    tuple[str, ...]: BY_TYPE[list[str]],
    **dict.fromkeys((Mapping[str, Any], Preprocessing), _mapping),
    Mapping[str, Any] | None: optional(_mapping),
    int: whole(0, LARGEST_COUNT),
    int | None: optional(whole(0, LARGEST_COUNT)),
}
#: of the keys of ``model.json``
_CHECKS: Mapping[str, Check] = {
    **{name: _BY_TYPE[kind] for name, kind in get_type_hints(ModelRecord).items()},
    "hparams": plain_mapping,
    "dtype": lambda name: (
        "" if name in DTYPES else f"is {shown(name)}, none of {', '.join(DTYPES)}"
    ),
}


def _identity_fault(identity: dict[str, Any]) -> str:
    """Describe what in an identity cannot stand in a row or name a folder.

    It is "" if nothing is wrong.
    """
    RunIdentity(**identity)
    names = {key: str(identity[key]) for key in ("run", "dataset", "fold")}
    fault = first_fault(identity, IDENTITY_CHECKS) or misfit(identity)
    if fault:
        return fault
    for key, name in names.items():
        if re.search(r"[/\\\x00]", name):
            return f"{key} is a path"
    return ""


def _class(path: str) -> type[Any]:
    """Import a class by its path.

    Anything else that a file may name is refused, and not called.
    """
    try:
        return class_at(path, MODEL_FILE, object)
    except DgbenchError as error:
        raise RecordError(str(error)) from error


class _FolderLogs(logging.Handler):
    """Appends every record to a file in each folder.

    A stack has more runs than a process may have open files.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        super().__init__(logging.DEBUG)
        self.files = [folder / LOG_FILE for folder in folders]
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record) + "\n"
        for file in self.files:
            # a full disk is reported by what trains
            with suppress(OSError), open(file, "a") as handle:
                handle.write(line)


@contextmanager
def own_log(*folders: Path) -> Iterator[None]:
    """Copy everything logged while runs train to the ``log.txt`` of their folders."""
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    handler = _FolderLogs(folders)
    root = logging.getLogger()
    root.addHandler(handler)
    # details go to the files; the console's handler stops at INFO
    logging.getLogger("dgbench").setLevel(logging.DEBUG)
    try:
        yield
    finally:
        root.removeHandler(handler)

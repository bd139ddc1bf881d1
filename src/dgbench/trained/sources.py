"""From what a user names to models, their datasets, and rows.

Users name folders, files, functions and models of timm.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import torch
from annotated_types import Predicate
from pydantic import AfterValidator, Field, InstanceOf, SkipValidation

from dgbench.data.description import Preprocessing
from dgbench.errors import ConfigError
from dgbench.plan.settings import Name
from dgbench.records.predictions import PREDICTION_FILE
from dgbench.records.status import STATUS_FILE
from dgbench.seeding import STREAM
from dgbench.trained.adaptation.choice import ChosenAdaptation
from dgbench.trained.dfr import DFR, reweighted
from dgbench.trained.diwa import (
    GREEDY,
    UNIFORM,
    Accuracy,
    Siblings,
    averaged,
    needed_runs,
    siblings,
)
from dgbench.trained.evaluation import (
    Subject,
    evaluate_model,
    images_of_own_fold,
    validation_accuracy,
)
from dgbench.trained.foreign import EXPORTED, PICKLE, TORCHSCRIPT, foreign
from dgbench.trained.loading import load, load_one, run_folders
from dgbench.trained.places import NAMES_DATASET, Places, device_name, protocol_words
from dgbench.trained.predictor import LoadedModel, Predictor
from dgbench.trained.wise_ft import (
    ALPHAS,
    PARTS,
    WISE_FT,
    chosen_alpha,
    interpolated,
    pairs,
)
from dgbench.training.run_folder import MODEL_FILE
from dgbench.validation import (
    Checked,
    NonBlank,
    Number,
    OneLine,
    Refusal,
    Several,
    Switch,
    Whole0,
    shown,
)

# ends of names of files that hold a run, or a part of one
HOLDS_RUN = (".ckpt", ".zip", ".tar", ".tgz", ".gz", ".xz", ".bz2")

#: option -> which models read it
READ_BY = {"step": "only a run with its checkpoints", "weights": "only a model of timm"}

#: option -> the averaging that reads it
READ_BY_AVERAGING = {"initial": WISE_FT, "alphas": WISE_FT, "groups": DFR}

#: a model, or how to make one for the images of a dataset
Model = Predictor | Callable[[Preprocessing], Predictor]


class ModelSource(NamedTuple):
    """A model that is not loaded."""

    name: Any  #: what to call it
    load: Callable[[], Model]
    reads: str = ""  #: key of :data:`READ_BY`


def _hundredths(alpha: float) -> float:
    """Refuse an alpha between two hundredths, which would have no draw of its own."""
    rounded = round(alpha * PARTS) / PARTS
    if abs(rounded - alpha) > 1e-9:
        raise ValueError(f"{alpha} is between two hundredths")
    return rounded


class Evaluator(Checked):
    """Evaluates models by what names them; the options are those of :func:`dgbench.evaluate`.

    Args:
        adaptations: keys of ``adaptation``, once for each value of the lists that were typed.
        compose: overrides -> keys of ``dataset``, ``paths``, ``protocol`` and ``trainer``.
        tell: called with what is done next.
    """

    key = ""

    overrides: Annotated[list[str], Field(strict=False)]
    name: Annotated[
        Annotated[Name, Predicate(lambda name: "/" not in name)] | None,
        Refusal("is no name", "give printable text without /, which tables and folders carry"),
    ]
    classes: Annotated[
        list[NonBlank], Field(strict=False), Refusal("is no list of names", "write e.g. [dog,cat]")
    ]
    weights: Annotated[
        NonBlank | InstanceOf[Path] | None, Refusal("is no file", "give its path, or leave it out")
    ]
    step: Literal["last", "best"] | None
    averaging: Literal["diwa_uniform", "diwa_greedy", "wise_ft", "dfr"] | None
    initial: Annotated[
        NonBlank | InstanceOf[Path] | Several[NonBlank | InstanceOf[Path]] | None,
        Refusal("is no folder of runs", "name one, or a list, or leave it out"),
    ]
    alphas: Annotated[
        list[Annotated[Number, Field(ge=0, le=1), AfterValidator(_hundredths)]] | None,
        Field(strict=False, min_length=1),
        Refusal("is no list of hundredths from 0 to 1", "write e.g. [0,0.25,0.5,0.75,1]"),
    ]
    groups: Annotated[
        NonBlank | None, Refusal("is no attribute", "name one, or leave it out for environments")
    ]
    ensemble: Switch
    features: Whole0
    predictions: Switch
    trust: Switch
    output: Annotated[
        Annotated[NonBlank | InstanceOf[Path], Refusal("is no folder", "give its path")], OneLine
    ]
    seed_moves: Literal["all", "stream"]
    adaptations: list[dict[str, Any]]
    compose: SkipValidation[Callable[[Sequence[str]], dict[str, Any]]]
    tell: SkipValidation[Callable[[str], None]]

    def evaluate(self, model: Any) -> list[Path]:
        """Evaluate one model or several, and write their rows.

        Args:
            model: as :func:`dgbench.evaluate` takes it.

        Returns:
            Folders with rows.

        Raises:
            ConfigError: an unknown model or override, or a model that does not fit the dataset.
        """
        self._refuse_beside_adaptation()
        self._refuse_options_of_others()
        if self.averaging is None:
            return self._evaluate_sources(self._sources(model))
        self._refuse_ensemble()
        named = model if isinstance(model, (list, tuple)) else [model]
        return EVALUATED_BY[self.averaging](self, named)

    def _evaluate_sources(self, sources: Sequence[ModelSource]) -> list[Path]:
        """Evaluate models one after the other."""
        if not sources:
            raise ConfigError("model=[] names no model; give one, or several")
        self._refuse_unread({source.reads for source in sources})
        folders: list[Path] = []
        for source in sources:
            folders += self._evaluate(source.name, source.load())
        return folders

    def _refuse_unread(self, reads: Set[str]) -> None:
        """Refuse an option that none of the models reads.

        Args:
            reads: keys of :data:`READ_BY` that some of them read.

        Raises:
            ConfigError: one was given.
        """
        for option, reader in READ_BY.items():
            value = getattr(self, option)
            if value is not None and option not in reads:
                raise ConfigError(
                    f"{option}={value} has no effect here: {reader} reads it; leave it out"
                )

    @cached_property
    def _places(self) -> Places:
        """Where models are evaluated."""
        return Places(self.compose, self.trust, self.tell)

    @cached_property
    def _chosen_adaptations(self) -> list[ChosenAdaptation | None]:
        """What the model adapts by, one after the other; None stands for no adaptation."""
        repeats = self.seed_moves == STREAM
        return [ChosenAdaptation.of(keys, repeats) for keys in self.adaptations]

    def _refuse_beside_adaptation(self) -> None:
        """Refuse an adaptation that cannot be, or does not go with the other options.

        Raises:
            ConfigError: why not.
        """
        adapted = [chosen for chosen in self._chosen_adaptations if chosen is not None]
        if adapted and self.features:
            raise ConfigError(
                f"features={self.features} keeps features of the model as it was trained, not as "
                f"adaptation={adapted[0].name} changes it; leave one of them out"
            )
        if self.averaging == WISE_FT and len(self._chosen_adaptations) > 1:
            raise ConfigError(
                "averaging=wise_ft chooses alpha among models that adapt alike; give one "
                "adaptation, not several"
            )

    def _refuse_options_of_others(self) -> None:
        """Refuse an option that only another ``averaging`` reads.

        Raises:
            ConfigError: one was given.
        """
        for option, reader in READ_BY_AVERAGING.items():
            value = getattr(self, option)
            if value is not None and self.averaging != reader:
                raise ConfigError(
                    f"{option}={shown(value)} has no effect without averaging={reader}; "
                    "leave it out"
                )

    def _evaluate(self, source: Any, loaded: Model) -> list[Path]:
        model = loaded if isinstance(loaded, Predictor) else None
        record = model.record if model else None
        dataset, protocol, settings = self._places.of(record, self.overrides)
        device = torch.device(device_name(settings.device))
        environments = self._places.environments(dataset, model, device)
        if model is None:
            model = loaded(environments.catalog.preprocessing)
        subject = self._subject(model, source)
        if record is not None and subject.trained_on(environments.info):
            if not protocol_words(self.overrides):
                protocol = self._places.own_fold(record)
            if self.classes:
                raise ConfigError(
                    f"classes={shown(self.classes)} does not apply to a run on the "
                    "dataset that it was trained on, whose classes it has; leave it out"
                )
        if self.classes:
            model.classes = tuple(self.classes)
        model.to(device)
        folders: list[Path] = []
        for adaptation in self._chosen_adaptations:
            if adaptation is not None:
                self.tell(f"{subject.name}: {adaptation.summary(model)} ...")
            folders += evaluate_model(
                replace(subject, adaptation=adaptation),
                environments,
                protocol,
                settings,
                Path(self.output),
                self.tell,
                features=self.features,
                predictions=self.predictions,
                root=dataset.get("root"),
            )
        is_own = record is not None and folders[0].name.endswith(record.identity["run"])
        if self.predictions and is_own:
            _complete(Path(source), folders[0])
        return folders

    def _subject(self, model: Predictor, source: Any) -> Subject:
        """Describe a model by the name that was given, or by what named it.

        Raises:
            ConfigError: it is a function without a name.
        """
        title = self.name or ""
        if not title:
            title = source if isinstance(source, str) else getattr(source, "__name__", "")
        if model.record is None and (not title or title == "<lambda>"):
            raise ConfigError("a function has no name for the tables; give name=")
        return Subject.of(model, self.name or "", Path(title).name if "/" in title else title)

    def _sources(self, model: Any) -> list[ModelSource]:
        """List the models that an argument names, one by one."""
        step = self.step or "last"
        if self.ensemble:
            members = model if isinstance(model, (list, tuple)) else run_folders(Path(str(model)))
            return [ModelSource("ensemble", partial(load, members, step, trust=self.trust), "step")]
        if isinstance(model, (list, tuple)):
            return self._sources_of(model)
        if isinstance(model, Predictor):
            return [ModelSource("", lambda: model)]
        if not isinstance(model, (str, Path)):
            make = foreign(model, self.classes)
            return [ModelSource(model, lambda: make)]
        name = str(model)
        path = Path(model).expanduser()
        if path.is_dir() and not (path / MODEL_FILE).exists():
            return self._sources_of(run_folders(path))
        if path.is_dir() or (path.exists() and path.name.endswith(HOLDS_RUN)):
            open_to = "" if path.suffix == ".ckpt" else "step"
            return [ModelSource(name, partial(load, path, step, trust=self.trust), open_to)]
        is_code = path.suffix in (EXPORTED, PICKLE, *TORCHSCRIPT) or ":" in name
        make = foreign(name, self.classes, self.weights, self.trust)
        return [ModelSource(name, lambda: make, "" if is_code else "weights")]

    def _sources_of(self, models: Sequence[Any]) -> list[ModelSource]:
        sources: list[ModelSource] = []
        for model in models:
            sources += self._sources(model)
        return sources

    def _evaluate_mixtures(self, named: Sequence[Any]) -> list[Path]:
        """Evaluate runs with weights between their initial ones and their own (WiSE-FT).

        All values of alpha are evaluated; what is printed is chosen on validation images of
        training environments.
        """
        self._refuse_unread({"step"})
        alphas = sorted(set(self.alphas or ALPHAS))
        folders: list[Path] = []
        for ends in pairs(named, self.initial, self.step, self.trust):
            place = ends.folder.name
            self.tell(f"{place}: from {ends.initial_name} to its own weights ...")
            mixtures: list[Path] = []
            for alpha in alphas:
                mixture = interpolated(ends, alpha, self.step, self.trust)
                if mixture.moves_statistics and not mixtures:
                    self.tell(
                        f"{place}: training moved the running statistics of BatchNorm; they are "
                        "mixed as the weights are, not renewed"
                    )
                mixtures += self._evaluate(WISE_FT, mixture.model)
            alpha_chosen = chosen_alpha(mixtures)
            if alpha_chosen is not None:
                self.tell(f"{place}: training-domain validation chooses alpha {alpha_chosen:g}")
            folders += mixtures
        return folders

    def _refuse_ensemble(self) -> None:
        """Refuse ``ensemble=true`` beside ``averaging=``.

        Raises:
            ConfigError: both were chosen.
        """
        if self.ensemble:
            raise ConfigError(
                "averaging= makes one model of several runs, and so does ensemble=true; choose "
                "one of them"
            )

    def _evaluate_means(self, named: Sequence[Any]) -> list[Path]:
        """Group runs that belong together, and evaluate the mean of each group (DiWA)."""
        kind = str(self.averaging)
        sources = []
        for group in siblings(named, self.trust):
            sources.append(ModelSource(kind, partial(self._mean, group, kind), "step"))
        return self._evaluate_sources(sources)

    def _mean(self, group: Siblings, kind: str) -> Predictor:
        """Average runs, judged on the dataset that they were trained on.

        That does not depend on the dataset that the mean is evaluated on.
        """
        trainer_words = self._trainer_words()
        _, record = group[0]
        # the greedy rule alone looks at images
        judging_keys = cache(lambda: self._places.of(record, self._words_at_home()))
        trainer = self.compose(trainer_words)["trainer"]
        device = torch.device(device_name(trainer["device"]))

        def judge(member: LoadedModel) -> Accuracy:
            dataset, protocol, settings = judging_keys()
            environments = self._places.environments(dataset, member, device)
            return validation_accuracy(member, environments, protocol, settings)

        place = "fold {fold}, seed {seed}".format(**record.identity)
        self.tell(f"averaging {len(group)} runs of {place} ...")
        mean = averaged(group, kind, self.step, judge, device, self.trust)
        self.tell(f"{place}: the mean of {len(mean.averaged)} of {len(group)} runs")
        return mean

    def _trainer_words(self) -> list[str]:
        return [word for word in self.overrides if word.startswith("trainer.")]

    def _words_at_home(self) -> list[str]:
        """Select the words that apply to the dataset that a run was trained on."""
        elsewhere = any(word.startswith(NAMES_DATASET) for word in self.overrides)
        return self._trainer_words() if elsewhere else self.overrides

    def _evaluate_last_layers(self, named: Sequence[Any]) -> list[Path]:
        """Evaluate each finished run with its last layer fitted anew (DFR).

        Raises:
            ConfigError: no run is finished.
        """
        sources = []
        for folder, _ in needed_runs(named, DFR, self.trust):
            sources.append(ModelSource(DFR, partial(self._last_layer, folder), "step"))
        return self._evaluate_sources(sources)

    def _last_layer(self, folder: Path) -> Predictor:
        """Fit a run's last layer anew on the dataset that it was trained on.

        That does not depend on the dataset that it is evaluated on.
        """
        model = load_one(folder, self.step or "last", self.trust)
        dataset, protocol, settings = self._places.of(model.record, self._words_at_home())
        device = torch.device(device_name(settings.device))
        environments = self._places.environments(dataset, model, device)
        fold, images = images_of_own_fold(model, environments, protocol)
        self.tell(f"{folder.name}: fitting its last layer anew ...")
        return reweighted(model.to(device), images, fold.training, self.groups, self.tell)


#: how runs are evaluated that ``averaging`` makes other models of
EVALUATED_BY: Mapping[str, Callable[[Evaluator, Sequence[Any]], list[Path]]] = {
    UNIFORM: Evaluator._evaluate_means,
    GREEDY: Evaluator._evaluate_means,
    WISE_FT: Evaluator._evaluate_mixtures,
    DFR: Evaluator._evaluate_last_layers,
}


def _complete(run: Path, evaluated: Path) -> None:
    """Give a run its predictions, as ``trainer.predictions`` does, unless it has some."""
    target = run.expanduser() / PREDICTION_FILE
    if (target.parent / STATUS_FILE).exists() and not os.path.lexists(target):
        with suppress(OSError):  # of somebody else's; the evaluated folder has them
            shutil.copyfile(evaluated / PREDICTION_FILE, target)

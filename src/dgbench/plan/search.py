"""A random search as published: which draws are trained how often, and what is trained again once
one was chosen.

Sources: DomainBed (Gulrajani & Lopez-Paz 2021, section 3; 20 draws x 3 trials), OoD-Bench (Ye et
    al. 2022, section 3
and Appendix J; the same scheme over its own spaces), Yu et al. 2024 (10 draws with one seed, the
best one with 2 more seeds).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, model_validator

from dgbench.data.options import different
from dgbench.errors import ConfigError
from dgbench.plan.building import build
from dgbench.plan.compose import Composed
from dgbench.validation import Checked, Refusal, shown

Settings = dict[str, int]  #: configuration key -> value


Numbers = Annotated[
    Annotated[int, Field(ge=1)] | Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)],
    AfterValidator(lambda numbers: numbers if isinstance(numbers, int) else different(numbers)),
    Refusal("is neither a number >= 1 nor a list of different numbers >= 0", "give one"),
]


MOST_STUDIES = 100_000  # of one command


class Scheme(Checked):
    """The studies of one search.

    Trial ``t`` is DomainBed's ``trial_seed``: draw ``k`` takes its random values from
    ``seed_hash(k, t)``, and ``t`` is added to every key of ``varies``, so that a trial has its own
    weights, minibatches and splits. What each key means stands in ``conf/hparams/search.yaml``.

    Raises:
        ConfigError: numbers that cannot be meant.
    """

    key = "hparams.scheme"

    draws: Numbers
    trials: Numbers
    repeats: Annotated[
        int, Field(ge=0), Refusal("is not an integer >= 0", "0 trains nothing again")
    ]
    varies: Annotated[
        list[str], Refusal("is no list of keys", "name keys of integers, e.g. [seed]")
    ]
    chosen_by: Annotated[Any, Refusal("is no selection", "name a class of conf/selection")]

    @model_validator(mode="after")
    def _together(self) -> Self:
        draws = self.draws if isinstance(self.draws, int) else len(self.draws)
        trials = self.trials if isinstance(self.trials, int) else len(self.trials)
        if draws * trials > MOST_STUDIES:
            raise ConfigError(
                f"hparams.scheme.draws={shown(self.draws)} makes {draws * trials:,} studies, and "
                f"one command plans up to {MOST_STUDIES:,}; give fewer draws or trials"
            )
        if self.repeats and len(_numbers(self.trials)) > 1:
            raise ConfigError(
                f"hparams.scheme.repeats={self.repeats} needs a search with one trial; set "
                "hparams.scheme.trials=1"
            )
        if not getattr(self.chosen_by, "chooses_draws", False):
            raise ConfigError(
                f"hparams.scheme.chosen_by={getattr(self.chosen_by, 'name', self.chosen_by)} "
                "cannot choose among draws; take e.g. "
                "hparams.scheme.chosen_by._target_=dgbench.analysis.selection.TrainVal"
            )
        return self

    def independent(self) -> dict[str, list[int]]:
        """List the numbers of the trials and, where no draw is trained again, of the draws: each
        needs no other.
        """
        draws = {} if self.repeats else {"draws": _numbers(self.draws)}
        return {"trials": _numbers(self.trials), **draws}

    def studies(self, base: Mapping[str, int]) -> list[Settings]:
        """List what each study of the search sets, trial by trial, from the values of the keys that
        vary.
        """
        settings = []
        for trial in _numbers(self.trials):
            varied = {key: base[key] + trial for key in self.varies}
            for draw in _numbers(self.draws):
                settings.append({"hparams.draw": draw, "hparams.trial": trial, **varied})
        return settings

    def again(self, base: Mapping[str, int], draw: int) -> list[Settings]:
        """List the settings of the studies that train the chosen draw with more seeds."""
        trial = _numbers(self.trials)[0]
        settings = []
        for n in range(1, self.repeats + 1):
            varied = {key: base[key] + trial + n for key in self.varies}
            settings.append({"hparams.draw": draw, "hparams.trial": trial, **varied})
        return settings


class Halving(Scheme):
    """Successive halving: all draws train to the first rung, the best go on to the next, and so on
    to the last step.

    A rung ends where ``trainer.steps`` is divided by ``reduction`` once or more, at the next
    evaluation; one draw in ``reduction`` advances, judged by ``chosen_by`` on rows up to there, its
    mean over folds. A draw that advances is the run that it would be in a search without rungs.

    Source: Jamieson & Talwalkar 2016, "Non-stochastic best arm identification and hyperparameter
        optimization".

    Raises:
        ConfigError: numbers that cannot be meant, or a choice that looks at test environments.
    """

    reduction: Annotated[int, Field(ge=2), Refusal("is not an integer >= 2", "give one, e.g. 3")]
    rungs: Annotated[
        int, Field(ge=2), Refusal("is not an integer >= 2", "give one; hparams=search has no rungs")
    ]

    @model_validator(mode="after")
    def _chosen_fairly(self) -> Self:
        if self.repeats:
            raise ConfigError(
                f"hparams.scheme.repeats={self.repeats} needs all draws; take "
                "hparams=search_yu2024, or 0"
            )
        if self.chosen_by.uses_test_environments:
            raise ConfigError(
                f"hparams.scheme.chosen_by={self.chosen_by.name} looks at test "
                "environments, and these must not stop a draw; take "
                "dgbench.analysis.selection.TrainVal"
            )
        if self.chosen_by.needs_other_runs:
            raise ConfigError(
                f"hparams.scheme.chosen_by={self.chosen_by.name} judges by runs of another "
                "protocol, which a rung does not train; take dgbench.analysis.selection.TrainVal"
            )
        return self

    def independent(self) -> dict[str, list[int]]:
        """List the numbers of the trials alone, since the draws of a trial are compared."""
        return {"trials": _numbers(self.trials)}

    def ends(self, steps: int, interval: int) -> list[int]:
        """List the steps at which all rungs but the last end, of runs that are evaluated every
        ``interval`` steps.
        """
        if not steps:
            raise ConfigError(
                "hparams=halving has no rungs in trainer.steps=0; set trainer.steps, or take "
                "hparams=search"
            )
        # earlier ones would end at the first step, too
        rungs = min(self.rungs - 1, steps.bit_length())
        ends: dict[int, None] = {}
        for n in range(rungs, 0, -1):
            part = -(-steps // self.reduction**n)
            end = -(-part // interval) * interval  # the next evaluation
            if end < steps:
                ends[end] = None
        return list(ends)

    def going_on(self, draws: int) -> int:
        """Return how many of the ``draws`` draws of a rung train on."""
        return -(-draws // self.reduction)

    def share(self, steps: int, interval: int) -> float:
        """Compute the fraction of the steps of a search without rungs that this one trains."""
        draws = len(_numbers(self.draws))
        training = draws
        trained = 0  # steps of all draws
        before = 0
        for end in [*self.ends(steps, interval), steps]:
            trained += training * (end - before)
            before = end
            training = self.going_on(training)
        return trained / (draws * steps)


def _numbers(numbers: int | Sequence[int]) -> list[int]:
    return list(range(numbers)) if isinstance(numbers, int) else list(numbers)


def scheme_of(config: Composed) -> Scheme | None:
    """Read how a configuration's search is trained.

    Returns None if it trains one set of hyperparameters.

    Raises:
        ConfigError: a search that cannot be meant.
    """
    hparams = config["hparams"]
    if hparams.get("scheme") is None:
        return None
    for key in ("draw", "trial"):
        if hparams[key] != 0:
            raise ConfigError(
                f"hparams.{key}={hparams[key]} is set by the search; leave it out, or train it "
                "alone with hparams=default"
            )
    scheme = build({"hparams.scheme": hparams["scheme"]}, "hparams.scheme", _convert_="all")
    if not isinstance(scheme, Scheme):
        raise ConfigError(
            f"hparams.scheme={shown(hparams['scheme'])} is no scheme of a search; choose "
            "hparams=search"
        )
    return scheme


def base_values(config: Composed, scheme: Scheme) -> Settings:
    """Read the keys that vary from trial to trial, as they are for trial 0.

    Raises:
        ConfigError: one of them is no integer.
    """
    base = {}
    for key in scheme.varies:
        value: Any = config.plain()
        for part in key.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        if not isinstance(value, int) or isinstance(value, bool):
            raise ConfigError(
                f"hparams.scheme.varies: {key}={value} is no integer; name keys that are, e.g. "
                "[seed]"
            )
        base[key] = value
    return base

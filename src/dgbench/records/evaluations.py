"""When a run is evaluated and on what, and so which rows it has when it is finished.

A disk that was full, or a copy that broke off, leaves rows that end between two lines. Only what
the run was to write tells them from all of a run's rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from operator import itemgetter
from typing import Annotated, Any

from annotated_types import Predicate
from pydantic import BaseModel, ConfigDict, Field, ValidationError

RowKey = tuple[int, str, str]  #: step, environment and subset of a row


Count = Annotated[int, Field(ge=0, lt=2**63)]
Printable = Annotated[str, Predicate(str.isprintable)]


class Evaluations(BaseModel):
    """The evaluations of a run; ``identity.json`` keeps them under these names."""

    model_config = ConfigDict(frozen=True, strict=True)

    steps: Count | None = None  #: optimizer steps in all; None if that is not known
    #: steps between two evaluations; 0 if the last one alone leaves rows, None if that is not known
    every: Count | None = None
    #: every evaluation scores ``test``; False: the last one does, and others may
    test_always: bool = False
    may_end_early: bool = False  #: averaging or a callback may end training before its last step
    #: subset -> environments; None: what some evaluation scored
    scored: Mapping[str, list[Printable]] | None = None

    @staticmethod
    def recorded(document: Any, identity: Mapping[str, Any]) -> Evaluations:
        """Derive the evaluations of a run from what was kept of it.

        Args:
            document: its ``identity.json``; anything else if that is lost.
            identity: of its rows, which tell how many steps a run has if ``identity.json`` is lost.
        """
        if isinstance(document, Mapping) and document.get("run") == identity["run"]:
            evaluations = _stated(document.get("evaluations"))
            evaluations = evaluations or Evaluations.specified(document.get("spec"))
            if evaluations:
                return evaluations
            # by an earlier version: a trained model as it was at any step
            if "evaluated" in document:
                return Evaluations()
        hparams = identity["hparams"]
        spec = {
            "training": {"steps": hparams.get("steps"), "eval_test": "not known"},
            "averaging": {"name": identity.get("averaging", "none")},
            "callbacks": [name for name in hparams if name.startswith("callbacks.")],
        }
        return Evaluations.specified(spec) or Evaluations()

    @staticmethod
    def specified(spec: Any) -> Evaluations | None:
        """Derive the evaluations from a run's specification, or return None if it is none.

        A specification names no environments.
        """
        try:
            training = spec["training"]
            is_averaged = spec["averaging"]["name"] != "none"
            every = training.get("eval_every", 0)
            return Evaluations(
                steps=int(training["steps"]),
                every=None if is_averaged or every < 1 else int(every),
                test_always=training.get("eval_test", "always") == "always",
                may_end_early=is_averaged or bool(spec.get("callbacks")),
            )
        except (TypeError, KeyError, ValueError, AttributeError):
            return None

    def lacking(self, rows: Collection[RowKey], reached: int = 0) -> str:
        """Describe what is missing among rows, in no words if nothing is.

        Args:
            rows: of one run, none twice.
            reached: step that training is known to have come to, if it may end early.
        """
        steps = set(map(itemgetter(0), rows))
        scored = set(map(itemgetter(1, 2), rows))
        expected = scored
        if self.scored is not None:
            expected = set()
            for subset, environments in self.scored.items():
                expected |= {(env, subset) for env in environments}
        last = max(steps, default=0) if self.steps is None else self.steps
        if self.may_end_early:
            last = max(steps | {reached})
        by_step: dict[int, set[tuple[str, str]]] = dict.fromkeys(steps, scored)
        if len(rows) < len(steps) * len(scored):  # some step lacks some place
            by_step = defaultdict(set)
            for step, env, subset in rows:
                by_step[step].add((env, subset))
        for step in self._evaluated(steps, last):
            scored_at_step = by_step.get(step, set())
            missing = expected - scored_at_step
            tests = self.test_always or step == last
            if not tests and not any(subset == "test" for _, subset in scored_at_step):
                missing = {place for place in missing if place[1] != "test"}
            if missing or not steps:
                return _words(step, missing, max(steps, default=None), last)
        return ""

    def _evaluated(self, steps: set[int], last: int) -> Iterator[int]:
        """Iterate in order over the steps of evaluations that must have left rows.

        ``steps`` are those that have left some.
        """
        if self.every is None:
            yield from sorted(step for step in steps if step < last)
        elif self.every:
            yield from range(self.every, last, self.every)
        yield last


def _words(step: int, missing: set[tuple[str, str]], latest: int | None, last: int) -> str:
    if latest is None:
        return "it has no rows"
    if latest < step:
        return f"its rows end at step {latest} of {last}"
    env, subset = min(missing)
    if len(missing) == 1:
        return f"1 row of step {step} missing, {subset} of {env}"
    return f"{len(missing)} rows of step {step} missing, {subset} of {env} first"


def _stated(values: Any) -> Evaluations | None:
    """Read the evaluations that a file states, or return None if it states none."""
    if not isinstance(values, dict) or values.keys() != Evaluations.model_fields.keys():
        return None
    try:
        return Evaluations(**values)
    except ValidationError:
        return None

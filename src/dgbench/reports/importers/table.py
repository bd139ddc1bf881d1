"""Tables that others wrote: a line for each algorithm, seed and environment, or a column for each environment.

Columns are found by their names (:data:`ALIASES`) or named by the user; whatever had to be assumed is said in one line,
and what is ambiguous is refused. A line is the error of one model in one environment:

- ``held_out`` names the environments that the model was never trained on; empty: it was trained on all.
- ``role`` is ``held out`` (this environment alone was) or ``everywhere`` (a model trained on all environments).
- ``fold``: the tested environments of lines with the same fold were held out together; ``full`` is trained on all.
- Without these, every line is the error in the one environment that its model never saw.

Fractions that were read stay what they were, bit for bit: ``accuracy`` stands in a column of its own, as in
:mod:`dgbench.reports.importers.domainbed`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dgbench.analysis.accuracy import SPREADS
from dgbench.errors import ConfigError, RecordError
from dgbench.plan.folds import FULL, LOO
from dgbench.plan.names import our_name
from dgbench.records.rows import DEFAULTS, LARGEST_COUNT, LONGEST, SUBSETS
from dgbench.records.status import DONE, FAILED
from dgbench.reports.importers import IMPORTED
from dgbench.reports.importers.frames import check_names, read_frames
from dgbench.reports.labels import slug
from dgbench.reports.published import Published, Value
from dgbench.reports.reading.collect import Collection
from dgbench.reports.reading.folders import Problem, printable
from dgbench.reports.reading.row_files import Run
from dgbench.validation import shown, some_of

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

#: what a column holds -> letters and digits of its usual names; those behind | count where none of the first is there
ALIASES = {
    "algorithm": "algorithm | algo alg method model approach",
    "seed": "seed trialseed | trial run repetition rep replicate randomseed",
    "environment": "environment env domain",
    "held_out": "heldout testenv testenvs testdomain testdomains testenvironment target targetdomain ted",
    "role": "role",
    "fold": "fold",
    "error": "error | err testerror testerr errorrate",
    "accuracy": "accuracy | acc testacc testaccuracy accavg top1 top1acc acc1",
    "wrong": "wrong | misclassified nwrong",
    "n": "n | seen images nimages ntest count total",
    "standard_error": "standarderror | stderr se sem",
    "dataset": "dataset | benchmark",
    "subset": "subset split",
    "step": "step | steps iteration epoch",
    "draw": "draw hparamsseed paramindex",
    "backbone": "backbone | network arch architecture",
    "init": "init | pretraining weights",
    "status": "status state",
}
HPARAMS = "hparams."  #: what the column of a hyperparameter begins with
_EXPORTED = re.compile(r"^(config|params|metrics|summary|args|tags)[./]")  # W&B's and MLflow's, before a name
_DOMAINBED = re.compile(r"env\d+_(in|out)(_acc)?")
_MARKS = re.compile(r"\\(textbf|textit|underline|mathbf)|[{}$*~]")
_CELL = r"^\s*(?P<mean>[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|\.\d+|inf))\s*%?\s*(?:[±(]\s*(?P<error>\d*\.?\d+)\s*%?\s*\)?)?$"
_AVERAGE = {"avg", "average", "mean"}
_NOTHING = {"", "-", "\u2013", "\u2014", "nan", "none", "null", "n/a", "na"}
_FINISHED = {"finished", "done", "completed", "success"}
_EVERYWHERE = {"everywhere", "full", "all", "allenvironments"}
_SUBSETS = {**{name: name for name in SUBSETS}, "validation": "val", "valid": "val", "training": "train"}
_NEEDED = ("algorithm", "environment")
_STATED = ("algorithm", "environment", "accuracy", "standard_error")


def read_table(
    path: Any,
    columns: Mapping[str, Any] | None = None,
    unit: str | None = None,
    values: str | None = None,
    dataset: str | None = None,
    backbone: str | None = None,
    init: str | None = None,
    seeds: int | None = None,
    bar: str = "standard_error",
) -> Collection:
    """Read errors or accuracies of trained models from a table.

    Args:
        path: a file, a folder of files, several, or a data frame.
        columns: key of :data:`ALIASES`, or ``hparams.NAME`` -> name of the column that holds it; None: no column does.
            ``environment`` may be a list of columns, one for each environment.
        unit: ``percent`` or ``fraction``; None tells it by all values together.
        values: what columns of environments hold, ``error`` or ``accuracy`` (None).
        dataset, backbone, init: what they are called where no column says it.
        seeds: behind every mean of a table of means ± error bars; None where it is not known.
        bar: what the error bars are, a key of :data:`~dgbench.analysis.accuracy.SPREADS`.

    Raises:
        ConfigError: an argument is unknown, or names what the table does not have.
        RecordError: there is no table, or a column or value of it cannot be used.
    """
    import pandas as pd

    known = (("unit", unit, ("percent", "fraction")), ("values", values, ("error", "accuracy")), ("bar", bar, SPREADS))
    for key, value, choices in known:
        if value not in (None, *choices):
            raise ConfigError(f"import.{key}={shown(value)} is unknown; choose {' or '.join(choices)}")
    if seeds is not None and not (type(seeds) is int and seeds > 1):
        raise ConfigError(f"import.seeds={shown(seeds)} is no number of seeds from 2 on; give one, or null")
    problems: list[Problem] = []
    framed = isinstance(path, pd.DataFrame)
    where = "the data frame" if framed else printable(shown(path))
    frame = path if framed else read_frames(path, problems)
    if framed:
        check_names(list(frame.columns), where)
    if frame.empty:
        raise RecordError(f"{where} has no line of values; add some")
    table = _Table(frame.reset_index(drop=True), where, problems)
    table.find(columns or {})
    table.lengthen(values)
    lines = table.lines({"dataset": dataset or "table", "backbone": backbone or "unknown", "init": init or "unknown"})
    lines = table.with_errors(lines, unit)
    if "standard_error" in lines and "seed" not in table.column:
        return table.stated(lines, seeds, bar)
    return table.collected(table.with_held_out(lines))


class _Table:
    """A table on its way to runs and rows.

    Args:
        frame: as it was read.
        where: what it is called in messages.
        problems: receives what is assumed and left out.
    """

    def __init__(self, frame: pd.DataFrame, where: str, problems: list[Problem]) -> None:
        self.frame, self.where, self.problems = frame, where, problems
        self.unit = ""  #: of the values, once they were read
        self.height = len(frame)  #: lines, as they are counted in messages
        self.column: dict[str, Any] = {}  #: key of :data:`ALIASES` -> column
        self.hparams: dict[str, Any] = {
            str(name).removeprefix(HPARAMS): name for name in frame if str(name).startswith(HPARAMS)
        }

    def assume(self, text: str, kind: str = "assumed") -> None:
        """Say something that a reader must know."""
        self.problems.append(Problem(kind, self.where, text))

    def refusal(self, fault: str, fix: str) -> RecordError:
        return RecordError(f"{self.where}: {fault}; {fix}")

    def find(self, typed: Mapping[str, Any]) -> None:
        """Find the column of every key.

        Raises:
            ConfigError: a typed one is not there.
            RecordError: several may be meant.
        """
        typed = {**typed}
        for name, column in {**(typed.pop("hparams", None) or {})}.items():
            typed[f"{HPARAMS}{name}"] = column
        there = some_of([str(name) for name in self.frame], 12)
        for key, column in typed.items():
            if key not in ALIASES and not key.startswith(HPARAMS):
                raise ConfigError(f"import.columns.{key} is unknown; choose {', '.join(ALIASES)} or {HPARAMS}NAME")
            for name in column if isinstance(column, (list, tuple)) else [column]:
                if name is not None and name not in self.frame:
                    raise ConfigError(f"import.columns.{key}={shown(column)} is no column; the columns are {there}")
            if key.startswith(HPARAMS):
                self.hparams[key.removeprefix(HPARAMS)] = column
            elif column is not None:
                self.column[key] = column
        named = [*self.column.values(), *self.hparams.values()]
        free = {name: _letters(name) for name in self.frame if name not in named}
        for key, text in ALIASES.items():
            for letters in text.split("|") if key not in typed else ():
                if several := [name for name, of_name in free.items() if of_name in letters.split()]:
                    if len(several) > 1:
                        raise self.refusal(
                            f"columns {' and '.join(map(str, several))} may each be the {key}",
                            f"choose with import.columns.{key}={several[0]}, or rename one",
                        )
                    self.column[key] = several[0]
                    break
        if any(_DOMAINBED.fullmatch(str(name)) for name in self.frame):
            raise self.refusal(
                "it holds records of DomainBed", "name their folder with import=domainbed import.path=DIR"
            )

    def lengthen(self, values: str | None) -> None:
        """Make one line for each environment where each has a column.

        Raises:
            RecordError: no column is the environment, and none may be that of one.
        """
        wide = self.column.get("environment")
        if "environment" not in self.column and "held_out" in self.column:
            self.column["environment"] = self.column["held_out"]
        if "environment" in self.column and not isinstance(wide, (list, tuple)):
            return
        used = {*self.column.values(), *self.hparams.values()} if wide is None else set()
        names = wide or [
            name
            for name in self.frame
            if name not in used and not str(name).startswith("Unnamed: ") and self._of_numbers(name)
        ]
        average = [name for name in names if _letters(name) in _AVERAGE] if wide is None else []
        names = [name for name in names if name not in average]
        if len(names) < 2 or {"error", "accuracy", "wrong"} & self.column.keys():
            raise self._missing("environment")
        for name in average:
            self._check_average(name, names)
        self.assume(f"one column for each environment: {', '.join(map(str, names))}; they hold {values or 'accuracy'}")
        holds = (values or "accuracy") + " (%)" * any("%" in str(name) for name in names)
        others = [name for name in self.frame if name not in (*names, *average)]
        self.frame = self.frame.melt(others, names, "environment", holds)
        self.column |= {"environment": "environment", values or "accuracy": holds}

    def _of_numbers(self, name: Any) -> bool:
        return not np.isnan(_parsed(self.frame[name])).all()

    def _check_average(self, name: Any, names: Sequence[Any]) -> None:
        """Say where a printed average is not that of its line, by more than its rounding."""
        values = np.column_stack([_parsed(self.frame[column]) for column in names])
        printed = _parsed(self.frame[name])
        digits = 0.1 if np.nanmax(printed) > 1 else 0.001
        apart = np.abs(values.mean(axis=1) - printed) > digits
        text = f"column {name} is not read"
        if apart.any():
            line = int(np.argmax(apart))
            text += f"; line {line + 1} prints {printed[line]:g}, its environments average {values[line].mean():.4g}"
        self.assume(text, "average")

    def _missing(self, key: str) -> RecordError:
        there = some_of([str(name) for name in self.frame], 12)
        return self.refusal(
            f"no column is the {key} (there are {there})",
            f"name it with import.columns.{key}=COLUMN, or rename it {key}",
        )

    def lines(self, named: Mapping[str, str]) -> pd.DataFrame:
        """What every line says of its model, checked, in columns that are called by their keys.

        Args:
            named: key -> value where no column says it.

        Raises:
            RecordError: a column is missing, or a value is none.
        """
        import pandas as pd

        if absent := [key for key in _NEEDED if key not in self.column]:
            raise self._missing(absent[0])
        said = [f"{key} from {name}" for key, name in self.column.items() if key != name and not isinstance(name, list)]
        used = {name for name in self.column.values() if not isinstance(name, list)} | {*self.hparams.values()}
        unused = [str(name) for name in self.frame if name not in used and not str(name).startswith("Unnamed: ")]
        if said or unused:
            parts = [", ".join(said), f"not used: {some_of(unused, 6)}" if unused else ""]
            self.assume("; ".join(filter(None, parts)), "columns")
        lines = pd.DataFrame({"algorithm": self._names("algorithm"), "environment": self._names("environment")})
        lines["algorithm"] = lines["algorithm"].map({name: our_name(name) for name in lines["algorithm"].unique()})
        for key, value in named.items():
            lines[key] = self._names(key) if key in self.column else value
        if "dataset" not in self.column and named["dataset"] == "table":
            self.assume("no column is the dataset: called table; name it with import.dataset=NAME")
        for key in ("seed", "step", "draw"):
            lines[key] = self._whole(key) if key in self.column else 0
        lines["subset"] = "test"
        if "subset" in self.column:
            lines["subset"] = self._names("subset").str.lower().map(_SUBSETS)
            self._refuse(lines["subset"].isna(), "subset", f"none of {', '.join(SUBSETS)}", "drop those lines")
        for name, column in self.hparams.items():
            lines[HPARAMS + name] = self.frame[column]
        lines["status"] = self._names("status").str.lower() if "status" in self.column else "done"
        return lines

    def _refuse(self, bad: Any, key: str, fault: str, fix: str) -> None:
        """Refuse the first line that is bad.

        Raises:
            RecordError: there is one.
        """
        if (where := np.flatnonzero(np.asarray(bad))).size:
            name = self.column[key]
            value = shown(self.frame[name].iloc[where[0]])
            more = f" (and {where.size - 1} lines more)" if where.size > 1 else ""
            raise self.refusal(f"{name} is {value} in line {where[0] % self.height + 1}{more}, {fault}", fix)

    def _names(self, key: str) -> pd.Series[Any]:
        import pandas as pd

        codes, values = pd.factorize(self.frame[self.column[key]])
        self._refuse(codes < 0, key, "no name", "fill it in, or drop the line")
        texts = np.array([printable(_text(value))[:LONGEST] for value in values.tolist()], dtype=object)
        return pd.Series(texts[codes], dtype=object)

    def _whole(self, key: str) -> Any:
        values = self._numbers(key)
        bad = ~(np.isfinite(values) & (values == np.floor(values)) & (np.abs(values) <= LARGEST_COUNT))
        bad = bad | (values < 0) if key == "step" else bad
        self._refuse(bad, key, "not a whole number", "number them 0, 1, 2, ...")
        return values.astype("int64")

    def _numbers(self, key: str) -> Floats:
        """The numbers of a column; NaN where a cell is empty.

        Raises:
            RecordError: a cell holds something else.
        """
        column = self.frame[self.column[key]]
        values = _parsed(column)
        empty = column.isna().to_numpy()
        if np.isnan(values).sum() > empty.sum():
            text = column.astype(str).str.strip().str.lower()
            self._refuse(np.isnan(values) & ~empty & ~text.isin(_NOTHING), key, "no number", "correct it")
        self._refuse(np.isinf(values), key, "not finite", "correct it")
        return values

    def with_errors(self, lines: pd.DataFrame, unit: str | None) -> pd.DataFrame:
        """The lines that have an error, with ``wrong``, ``seen`` and ``accuracy``.

        Raises:
            RecordError: no column is one, or a value is none.
        """
        count = self._whole("n") if "n" in self.column else None
        if count is not None:
            self._refuse(count < 1, "n", "no number of images", "give one of 1 or more")
        if "wrong" in self.column and count is not None:
            wrong = self._numbers("wrong")
            self._refuse((wrong < 0) | (wrong > count), "wrong", "not between 0 and n", "correct it")
            lines = lines.assign(wrong=wrong, seen=count, accuracy=1 - wrong / count)
        else:
            keys = [key for key in ("accuracy", "error") if key in self.column]
            if len(keys) > 1:
                fix = "leave one out, e.g. import.columns.error=null"
                raise self.refusal("columns accuracy and error may each be the result", fix)
            if not keys:
                missing = self._missing("n" if "wrong" in self.column else "accuracy")
                raise missing
            values = self._fractions(keys[0], unit)
            error, accuracy = (values, 1 - values) if keys[0] == "error" else (1 - values, values)
            seen = 1 if count is None else count
            lines = lines.assign(wrong=error * seen, seen=seen, accuracy=accuracy)
            errors = _parsed(self.frame[self.column[keys[0]]], "error")
            if "standard_error" in self.column:
                errors = self._numbers("standard_error")
            if not np.isnan(errors).all():
                lines["standard_error"] = errors * (1 if self.unit == "fraction" else 0.01)
        return self._without(lines, lines["wrong"].isna(), "they have no value")

    def _fractions(self, key: str, unit: str | None) -> Floats:
        """The values of a column as fractions; its unit is that of the whole column."""
        values, name = self._numbers(key), self.column[key]
        self._refuse(values < 0, key, "below 0", "correct it")
        self._refuse(values > 100, key, "above 100", "correct it, or name another column")
        small, large = (values > 0) & (values <= 1), values > 1
        said = "%" in str(name) or (
            self.frame[name].dtype.kind not in "iuf" and self.frame[name].astype(str).str.contains("%").any()
        )
        if unit is None:
            unit = "percent" if said or large.any() else "fraction"
            if small.any() and (large.any() or said):
                here = "" if large.any() else ", and is said to be percent"
                self._refuse(
                    small, key, f"a fraction among percent{here}", "write all alike, or add import.unit=percent"
                )
            self.assume(f"{name} is {'in percent' if unit == 'percent' else 'a fraction of 1'}")
        self.unit = unit
        if unit == "fraction":
            self._refuse(large, key, "above 1", "leave out import.unit=fraction")
            return values
        return values / 100

    def with_held_out(self, lines: pd.DataFrame) -> pd.DataFrame:
        """The lines that can be used, with ``held_out`` (names, in their order) and ``unseen`` (whether this one is).

        Raises:
            RecordError: no model is tested in an environment that it never saw.
        """
        import pandas as pd

        names = {name: at for at, name in enumerate(lines["environment"].unique())}
        key = next((key for key in ("held_out", "role", "fold") if key in self.column), None)
        alone = lines["environment"].map({name: (name,) for name in names})
        if key is None:
            self.assume("every line is the error in the one environment that its model never saw (leave-one-out)")
            lines = self._without(lines, lines["subset"] != "test", "no column held_out says of which model they are")
            held_out = alone
        else:
            cells = self.frame[self.column[key]].map(_text)
            everywhere = _mapped(cells, lambda cell: _letters(cell) in _EVERYWHERE)
            if key == "role":
                known = _mapped(cells, lambda cell: _letters(cell) == "heldout")
                self._refuse(~everywhere & ~known, key, "no role", "write held out or everywhere")
            cells, everywhere = cells[lines.index], everywhere[lines.index]
            if key == "held_out":
                held_out = _mapped(cells, lambda cell: tuple(sorted(_listed(cell))))
            elif key == "role":
                held_out = alone
            else:
                self.assume("environments that are tested in one fold were never trained on by its models")
                folds = lines["dataset"] + "\0" + cells
                tested = lines[lines["subset"] == "test"].groupby(folds)["environment"].unique()
                held_out = folds.map({fold: tuple(sorted(of_fold)) for fold, of_fold in tested.items()})
            held_out = held_out.mask(everywhere, pd.Series([()] * len(lines), lines.index))
        codes, values = held_out.factorize()
        places = lines["environment"].map(names).to_numpy()
        inside = np.array([[name in some for name in names] for some in values], dtype=bool)
        lines = lines.assign(held_out=held_out, unseen=inside[codes, places])
        seen = (lines["subset"] == "test") & ~lines["unseen"] & (held_out.map(len) > 0)
        return self._without(lines, seen, "their models were trained on the environment that they are tested in")

    def _without(self, lines: pd.DataFrame, bad: pd.Series[bool], reason: str) -> pd.DataFrame:
        if bad.all():
            raise self.refusal(f"no line can be used: {reason}", "see import.columns.held_out")
        if bad.any():
            self.assume(f"{int(bad.sum())} lines, e.g. of {_who(lines[bad])}: {reason}", "lines left out")
        return lines[~bad]

    def stated(self, lines: pd.DataFrame, seeds: int | None, bar: str) -> Collection:
        """Means with standard errors, which have no seeds: tables as those of papers."""
        import pandas as pd

        papers = []
        if (again := lines.duplicated(["dataset", "algorithm", "environment"])).any():
            raise self.refusal(f"a mean is there twice ({_who(lines[again])})", "drop one, or name import.columns.seed")
        for dataset, of_dataset in lines.groupby("dataset", sort=False):
            values: dict[str, dict[str, Value]] = {}
            for name, env, mean, error in zip(*(of_dataset[key] for key in _STATED), strict=True):
                values.setdefault(name, {})[env] = Value(_rounded(mean), None if error != error else _rounded(error))
            note = f"Mean ± {SPREADS[bar]} over {seeds or 'an unknown number of'} seeds"
            paper = Published(
                name=slug(str(dataset)), source=self.where, title=str(dataset), quantity="accuracy",
                note=note, seeds=seeds or 0, bar=bar, printed={},
                columns=tuple(of_dataset["environment"].unique()), dataset=str(dataset), values=values, words={},
            )  # fmt: skip
            papers.append(paper)
        return Collection([], pd.DataFrame(), self.problems, [], papers)

    def collected(self, lines: pd.DataFrame) -> Collection:
        """Runs and their rows."""
        import pandas as pd

        if "seed" not in self.column:
            self.assume("no column is the seed: one seed")
        of_run = ["dataset", "backbone", "init", "algorithm", "seed", "draw", "held_out"]
        of_run += [HPARAMS + name for name in self.hparams]
        lines = lines.assign(run=lines.groupby(of_run, sort=False, dropna=False).ngroup().astype("int32"))
        place = ["run", "step", "environment", "subset"]
        again = lines.duplicated(place)
        if (differ := again & ~lines.duplicated([*place, "accuracy"])).any():
            line = int(lines.index[differ.to_numpy()][0]) % self.height + 1
            raise self.refusal(
                f"line {line} is of the same model and environment as one before, with another value "
                f"({_who(lines[differ])})",
                "drop one, or name the column that tells them apart, e.g. import.columns.seed=COLUMN",
            )
        lines = self._without(lines, again, "the same line stands before")
        given: dict[Any, list[str]] = {}
        sizes: dict[Any, set[int]] = {}
        for dataset, of_dataset in lines.groupby("dataset", sort=False):
            sets = of_dataset["held_out"].unique()
            sizes[dataset] = {len(held_out) for held_out in sets}
            tested: set[str] = {name for held_out in sets for name in held_out}
            order: list[str] = of_dataset["environment"].unique().tolist()
            given[dataset] = [name for name in order if name in tested or not tested] + sorted(tested - {*order})
        last = lines.groupby("run")["step"].agg(["max", "size"]).to_numpy()
        heads = lines.drop_duplicates("run").sort_values("run")[[*of_run, "status"]].to_dict("records")
        runs = [
            self._run(head, given[head["dataset"]], sizes[head["dataset"]], *map(int, of_head))
            for head, of_head in zip(heads, last, strict=True)
        ]
        rows = pd.DataFrame(
            {
                "run": lines["run"],
                "step": lines["step"].astype("int32"),
                "env": pd.Categorical(lines["environment"]),
                "subset": pd.Categorical(lines["subset"], SUBSETS),
                "env_held_out": lines["unseen"],
                "seen": lines["seen"].astype("int32"),
                "wrong": lines["wrong"],
                "loss": np.float32("nan"),
                "accuracy": lines["accuracy"],
            }
        ).reset_index(drop=True)
        return Collection(runs, rows, self.problems, [])

    def _run(self, head: Mapping[Any, Any], given: list[str], sizes: set[int], last_step: int, count: int) -> Run:
        held_out = [name for name in given if name in head["held_out"]]
        size = len(held_out) or min(sizes - {0}, default=1)  # a model of all environments stands beside the others
        hparams = {name: _plain(head[HPARAMS + name]) for name in self.hparams}
        identity = {
            **DEFAULTS,
            **{key: head[key] for key in ("dataset", "backbone", "init", "algorithm", "seed", "draw")},
            "variant": {},
            "base": "table",
            "evaluation": "sampled",
            "data_seed": 0,
            "split_seed": 0,
            "given": given,
            "hparams": {name: value for name, value in hparams.items() if value is not None},
            "trial": head["seed"],
            "protocol": {1: LOO, 2: "pairs"}.get(size, "multi_test"),
            "fold": "-".join(str(given.index(name)) for name in held_out) or FULL,
            "held_out": held_out,
            "code": f"{IMPORTED} from a table",
        }
        content = json.dumps(identity, sort_keys=True, default=str).encode()
        identity["run"] = hashlib.sha256(content).hexdigest()[:12]
        status, reason = (DONE, "") if head["status"] in _FINISHED else (FAILED, f"status {head['status']}")
        where = f"{self.where}: {head['algorithm']} seed {head['seed']} fold {identity['fold']}"
        if reason:
            self.problems.append(Problem("failed run", where, reason))
        return Run(where, identity, status, reason, last_step, count)


def _letters(name: Any) -> str:
    """The letters and digits of a column's name, without what W&B and MLflow put before it."""
    text = str(name)
    return "" if text.startswith(HPARAMS) else re.sub(r"[^a-z0-9]", "", _EXPORTED.sub("", text.lower()))


def _parsed(column: pd.Series[Any], part: str = "mean") -> Floats:
    """The numbers among the cells of a column, NaN where there is none: 0.847, ``84.7 %``, ``84,7``.

    Args:
        column: of cells.
        part: ``mean``, or ``error``: what ``84.7 ± 0.4``, ``84.7 (0.4)`` and LaTeX's like have after the mean.
    """
    import pandas as pd

    if column.dtype.kind in "iuf":
        return column.to_numpy(dtype="float64") if part == "mean" else np.full(len(column), np.nan)
    text = column.astype(str).str.replace(_MARKS, "", regex=True).str.replace(r"\\pm|\+/-|\+-", "±", regex=True)
    text = text.str.replace(r"(?<=\d),(?=\d)", ".", regex=True).str.extract(_CELL)[part]
    return pd.to_numeric(text, errors="coerce").to_numpy(dtype="float64")


def _who(lines: pd.DataFrame) -> str:
    first = lines.iloc[0]
    return f"{first['algorithm']} seed {first['seed']} in {first['environment']}"


def _mapped(cells: pd.Series[Any], function: Callable[[str], Any]) -> pd.Series[Any]:
    """Every cell's value of a function, which is called once for each of the different ones."""
    return cells.map({cell: function(cell) for cell in cells.unique()})


def _text(value: Any) -> str:
    return str(int(value) if isinstance(value, float) and value.is_integer() else value).strip()


def _listed(cell: str) -> set[str]:
    """The environments that a cell names: ``photo``, ``photo, sketch``, ``[0, 1]``, ``()``, nothing."""
    text = re.sub(r"^[\[(]|[\])]$", "", cell)
    return {name.strip(" '\"") for name in re.split(r"[,;+|]", text)} - _NOTHING


def _rounded(fraction: float) -> float:
    """In percent, without what the division by 100 has left behind the printed digits."""
    return round(100 * fraction, 9)


def _plain(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, float):
        return None if value != value else int(value) if value.is_integer() else value
    return value

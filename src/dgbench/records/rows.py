"""Result rows: the row, the identity of the run that wrote it, and the file they are kept in.

Everything that dgbench reports is a function of rows. A row file (``errors.jsonl``) holds one JSON
object per line: the identity of the run that wrote it and one counted error. Values are checked by
the types that fields declare: whatever else a file holds is named and never reaches a table. No
torch is imported here: reports run on a login node.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from enum import Flag, auto
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_type_hints

from dgbench.errors import RecordError
from dgbench.records.files import Checksum, append_lines, read_regular, write_whole

ROW_FILE = "errors.jsonl"
SHIFT_FILE = "shifts.jsonl"  #: rows of another kind, see ``dgbench.records.shift_rows``
PLAN_FILE = "planned.json"  #: in a job's folder: the run folders that it means to fill
FEATURE_FILE = "features.npz"  #: of an evaluated run: features of some images
#: backbone, initial weights and tuning of a model that dgbench did not train
EVALUATED = "evaluated"
NOT_ADAPTED = "none"  #: adaptation of a model that is tested as it was trained
IDENTITY_FILE = "identity.json"  #: of what code, packages, machine and data a run is made

SUBSETS = ("train", "val", "test")


class Role(Flag):
    """What a key of a run's identity tells. Reports group runs by roles, see :func:`keys`."""

    DATASET = auto()  #: which dataset, of which base images, and how errors are counted
    FORM = auto()  #: which form of the dataset
    DATA_SEED = auto()  #: what is random in its images and their split
    NETWORK = auto()
    PROTOCOL = auto()
    FOLDS = auto()  #: which environments all folds together are tested in
    FOLD = auto()  #: which environments this run is tested in
    TRAINING = auto()
    SEARCH = auto()  #: which draw of which search of hyperparameters
    SEED = auto()
    RUN = auto()
    CODE = auto()
    FACT = auto()  #: what follows from the others, and groups nothing
    DATA = DATASET | FORM | DATA_SEED
    SETTING = DATA | NETWORK | PROTOCOL | FOLDS  #: what results share that stand in one table


@dataclass(frozen=True, kw_only=True)
class RunIdentity:
    """Who wrote a row: one run, i.e. one trained model (fold x seed x hyperparameters)."""

    run: Annotated[str, Role.RUN]  #: hash of the run's specification, see ``dgbench.records.spec``
    dataset: Annotated[str, Role.DATASET]  #: name of the dataset, e.g. ``sr_cmnist``
    #: what distinguishes this form of the dataset (ratio, scale, resolution, ...)
    variant: Annotated[dict[str, Any], Role.FORM]
    #: base images, e.g. ``mnist`` or ``digits``; reports never mix two
    base: Annotated[str, Role.DATASET]
    evaluation: Annotated[str, Role.DATASET]  #: ``exact`` or ``sampled`` errors
    #: which images an environment gets, label noise, spurious features
    data_seed: Annotated[int, Role.DATA_SEED]
    split_seed: Annotated[int, Role.DATA_SEED]  #: train/val split
    given: Annotated[list[str], Role.FORM]  #: names of the given environments, in order
    algorithm: Annotated[str, Role.TRAINING]  #: name of the algorithm, e.g. ``vrex``
    #: what is read of hyperparameters, and settings of training that are not the default
    hparams: Annotated[dict[str, Any], Role.TRAINING]
    #: number of the hyperparameter draw; 0 is the default set
    draw: Annotated[int, Role.SEARCH] = 0
    space: Annotated[str, Role.SEARCH] = "domainbed"  #: search space that the draw is from
    trial: Annotated[int, Role.SEARCH] = 0  #: repetition of the search that the draw is from
    backbone: Annotated[str, Role.NETWORK]  #: name of the network, e.g. ``resnet50-bn_frozen``
    init: Annotated[str, Role.NETWORK] = "random"  #: initial weights of the featurizer
    #: what the classifier starts from: ``random``, ``zero`` or ``zero_shot``
    head: Annotated[str, Role.NETWORK] = "random"
    #: ``ft`` fine-tuning, ``lp`` linear probing, ``freezeK`` with K frozen stages, ``lora``,
    #: ``bias`` and ``norm`` with few trained parameters
    tuning: Annotated[str, Role.NETWORK] = "ft"
    #: of all networks together; None in rows older than the key
    n_parameters: Annotated[int | None, Role.FACT] = None
    #: how many parameters training changes; None in rows older than the key
    n_trainable: Annotated[int | None, Role.FACT] = None
    #: K of the dataset; None in rows older than the key
    n_classes: Annotated[int | None, Role.FACT] = None
    #: which random numbers the seed decides: ``all``, ``order``, ``weights``, ``inputs``,
    #: ``nothing``; ``stream``: the order of the images that a model adapts to
    seed_moves: Annotated[str, Role.NETWORK] = "all"
    protocol: Annotated[str, Role.PROTOCOL]  #: name of the protocol, e.g. ``loo``
    fold: Annotated[str, Role.FOLD]  #: ``0``, ``1``, ... or ``full``
    #: given environments this run never trained on (flexible: of which it lacks some class)
    held_out: Annotated[list[str], Role.FOLD]
    #: tested environments of every fold; None: one each (loo) or all others
    folds: Annotated[list[list[str]] | None, Role.FOLDS] = None
    #: initial weights, order of minibatches, random inputs of the algorithm
    seed: Annotated[int, Role.SEED]
    #: what averages the weights over steps, ``none``, ``swad``, ``eoa``, ...
    averaging: Annotated[str, Role.TRAINING] = "none"
    #: what adapts the model to unlabeled test images, ``none``, ``bn``, ``tent``, ...
    adaptation: Annotated[str, Role.TRAINING] = NOT_ADAPTED
    #: whether environments besides the given ones exist, as the ideal measure needs
    beyond: Annotated[bool, Role.FACT] = True
    #: predictions depend on what is scored together: ``test`` sampled even if ``exact``
    grouped: Annotated[bool, Role.FACT] = False
    #: ``ENVIRONMENT: CLASS`` of a tested environment and a class that no training environment of
    #: the run has -> its share of the tested images; empty if there is none, and in rows older
    #: than the key
    unlearnable: Annotated[dict[str, float], Role.FACT] = field(default_factory=dict)
    #: hash of the images' files, if the dataset has any; empty in rows older than the key
    content: Annotated[str, Role.FACT] = ""
    #: import path of a user's class or function -> hash of its module's text
    user_code: Annotated[dict[str, str], Role.CODE] = field(default_factory=dict)
    #: version of dgbench that wrote the row, with the commit if it is known
    code: Annotated[str, Role.CODE]


#: counts of images, at most those seen, that rows may lack
LATER_COUNTS = ("majority_wrong", "worst_class_wrong", "balanced_wrong")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One counted error: how one run did on one subset of one environment at one step."""

    identity: RunIdentity = field(repr=False)
    step: int  #: optimizer updates done
    env: str  #: environment scored
    subset: str  #: ``train``, ``val`` or ``test``
    #: True when the run never trained on this environment (flexible: on these classes of it)
    held_out: bool
    seen: int  #: images scored
    wrong: float  #: images misclassified; the expected count when the evaluation is exact
    loss: float  #: mean cross entropy in nats
    #: runs that trained together when it was written; None in rows older than the key
    together: int | None = None
    #: scored images that a classifier gets wrong which always predicts the majority class of the
    #: run's training images, counted as ``wrong`` is; None in rows older than the key
    majority_wrong: float | None = None
    #: scored images that would be wrong if every class had the error of the worst one; None unless
    #: ``trainer.class_errors``
    worst_class_wrong: float | None = None
    #: scored images that would be wrong if all classes that occur were equally many; None unless
    #: ``trainer.class_errors``
    balanced_wrong: float | None = None

    @property
    def error(self) -> float:
        """Fraction wrong, in [0, 1]."""
        return self.wrong / self.seen

    def to_json(self) -> str:
        """Format the row as one line, identity included, without the line end."""
        flat = asdict(self.identity)
        for key in ("user_code", "seed_moves", "n_classes", "unlearnable", "adaptation"):
            if flat[key] == DEFAULTS[key]:  # as in most runs
                del flat[key]
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "identity"}
        values["env_held_out"] = values.pop("held_out")
        for key in LATER_COUNTS:
            if values[key] is None:
                del values[key]
        return json.dumps({**flat, **values}, separators=(",", ":"))


@dataclass(frozen=True)
class RowProblem:
    """A line that could not be used, and why."""

    file: str
    line: int  #: 1-based
    reason: str


class ParsedRow(NamedTuple):
    """A good line of a row file."""

    line: int  #: 1-based
    #: its keys of a :class:`RunIdentity`; the same object in lines that agree in all these keys
    identity: dict[str, Any]
    own: dict[str, Any]  #: its other keys


def append_rows(path: Path | None, rows: Iterable[Row]) -> bytes:
    """Append rows to a file, see :func:`~dgbench.records.files.append_lines`; None writes nothing.

    Returns:
        the lines.

    Raises:
        OSError: the file cannot be written; what was there before stays readable.
    """
    lines = [row.to_json() for row in rows]
    if path is not None:
        append_lines(path, lines)
    return "".join(f"{line}\n" for line in lines).encode()


def read_rows(path: Path) -> tuple[list[dict[str, Any]], list[RowProblem]]:
    """Read all good rows of a file as flat dictionaries, and the lines that had to be dropped.

    Keys are those of :class:`RunIdentity` and :class:`Row`; whether the *environment* was held out
    stands under ``env_held_out``, the list of all held-out environments under ``held_out``. A key
    that a row lacks because it is older than the key gets its default. Every value has the type
    that its field declares.

    Raises:
        OSError: the file cannot be read, or is no regular file.
    """
    rows, problems = parse_rows(read_regular(path))
    flat = [{**DEFAULTS, **row.identity, **row.own} for row in rows]
    return flat, [RowProblem(str(path), line, reason) for line, reason in problems]


def parse_rows(content: bytes) -> tuple[list[ParsedRow], list[tuple[int, str]]]:
    """Parse the content of a row file.

    Returns:
        its good rows; and line number and reason of each that had to be dropped.
    """
    parser = RowParser()
    rows: list[ParsedRow] = []
    problems: list[tuple[int, str]] = []
    known: dict[str, Any] = {}
    numbers: list[int] = []
    waiting: list[bytes] = []  # lines of one identity, which are parsed together

    def parse_waiting() -> None:
        together = parser.values_of(waiting)
        for position, number in enumerate(numbers):
            values = together[position] if together else None
            if values is not None:
                rows.append(ParsedRow(number, known, values))
                continue
            try:
                rows.append(ParsedRow(number, *parser.parse(waiting[position])))
            except RecordError as error:
                problems.append((number, str(error)))
        numbers.clear()
        waiting.clear()

    for number, line in enumerate(content.split(b"\n"), start=1):
        if not line.strip():
            continue
        identity = parser.known(line)
        if identity is not known:
            parse_waiting()
        if identity is not None:
            known = identity
            numbers.append(number)
            waiting.append(line)
            continue
        try:
            rows.append(ParsedRow(number, *parser.parse(line)))
        except RecordError as error:
            problems.append((number, str(error)))
    parse_waiting()
    return rows, problems


def cleaned(path: Path) -> str:
    """Remove what is no row, and repeated lines, from the file of a finished run.

    The file is written whole.

    Returns:
        what was removed, in words; no words if nothing was.

    Raises:
        OSError: the file cannot be read or written.
    """
    content = read_regular(path)
    faulty = {line for line, _ in parse_rows(content)[1]}
    good: dict[bytes, None] = {}
    repeated = 0
    for number, line in enumerate(content.split(b"\n"), start=1):
        if not line.strip() or number in faulty:
            continue
        repeated += line in good
        good[line] = None
    counts = {"that are no rows": len(faulty), "that stand there twice": repeated}
    removed = [f"{count} lines {fault}" for fault, count in counts.items() if count]
    if removed:
        write_whole(path, b"".join(line + b"\n" for line in good))
    return " and ".join(removed)


def row_of(flat: dict[str, Any]) -> Row:
    """Build a row from a flat dictionary as :func:`read_rows` gives it."""
    names = [f.name for f in fields(Row) if f.name not in ("identity", "held_out")]
    identity = RunIdentity(**{f.name: flat[f.name] for f in fields(RunIdentity)})
    values = {name: flat[name] for name in names}
    return Row(identity=identity, held_out=flat["env_held_out"], **values)


LATER_KEYS = ("together", *LATER_COUNTS)  #: keys of a row that it may lack, which means None

CUT = b',"step":'  #: where a line passes from the identity to the rest
_decode = json.JSONDecoder().decode


def lines_before(path: Path, step: int) -> Checksum:
    """Compute the checksum of the lines of a row file before its rows of ``step`` and later.

    A file that does not exist counts as an empty one.

    Raises:
        OSError: the file cannot be read, or is no regular file.
    """
    try:
        content = read_regular(path)
    except FileNotFoundError:
        return Checksum()
    lines = content.splitlines(keepends=True)
    later = [row.line for row in parse_rows(content)[0] if row.own["step"] >= step]
    if later:
        lines = lines[: later[0] - 1]
    return Checksum() + b"".join(lines)


def decode_together(objects: Sequence[bytes]) -> list[Any]:
    """Decode JSON objects at once, which is much faster than one by one.

    Returns:
        a value for each, or nothing if some are none.
    """
    # a number between two objects, so that halves of lines never make a whole
    try:
        values = _decode(f"[{b',0,'.join(objects).decode()}]")
    except (ValueError, RecursionError):
        return []
    if len(values) != 2 * len(objects) - 1 or any(values[1::2]):
        return []
    return list(values[::2])


class RowParser:
    """Lines of one row file."""

    def __init__(self) -> None:
        self._heads: dict[bytes, dict[str, Any]] = {}  # beginning of lines, as written -> identity
        self._identities: dict[str, dict[str, Any]] = {}
        self._names: set[str] = set()  # of environments

    def known(self, line: bytes) -> dict[str, Any] | None:
        """Return the identity of a line whose beginning was read before, or None."""
        return self._heads.get(line[: line.rfind(CUT)])

    def values_of(self, lines: Sequence[bytes]) -> list[dict[str, Any] | None]:
        """Parse what several lines of one known identity have besides it, at once.

        This is much faster than one by one.

        Returns:
            the other keys of each line, None for one that :meth:`parse` must look at; nothing if
            all must be.
        """
        if len(lines) < 2:
            return []
        tails = [b"{" + line[line.rfind(CUT) + 1 :] for line in lines]
        sound: list[dict[str, Any] | None] = []
        for values in decode_together(tails):
            sound.append(values if self._is_sound(values) else None)
        return sound

    def _is_sound(self, values: Any) -> bool:
        """Return whether these are the keys of a row besides its identity, with good values."""
        if type(values) is not dict:
            return False
        for key in LATER_KEYS:
            values.setdefault(key, None)
        if values.keys() != ROW_CHECKS.keys():
            return False
        if type(values["env_held_out"]) is not bool:
            return False
        if type(values["subset"]) is not str or values["subset"] not in SUBSETS:
            return False
        return _has_good_numbers(values) and self._is_name(values["env"])

    def _is_name(self, env: Any) -> bool:
        """Return whether this names an environment; each name is checked once."""
        if type(env) is not str:
            return False
        if env not in self._names and not printable_text(env):
            self._names.add(env)
        return env in self._names

    def parse(self, line: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
        """Parse one line.

        Returns:
            the keys of the identity that the line has, the same object for equal ones; and its
            other keys.

        Raises:
            RecordError: it is no row; why.
        """
        cut = line.rfind(CUT)
        identity = self._heads.get(line[:cut])
        if identity is not None:
            try:
                values = _object(b"{" + line[cut + 1 :])
                for key in LATER_KEYS:
                    values.setdefault(key, None)
                if len(values) == len(ROW_CHECKS) and not _fault(values):
                    return identity, values
            except (RecordError, KeyError):
                pass  # the whole line tells what is wrong
        return self._whole(line, cut)

    def _whole(self, line: bytes, cut: int) -> tuple[dict[str, Any], dict[str, Any]]:
        flat = _object(line)
        missing = NEEDED - flat.keys()
        if missing:
            raise RecordError(f"lacks {', '.join(sorted(missing))}")
        identity = {key: flat[key] for key in IDENTITY_CHECKS if key in flat}
        values = {key: flat.get(key) for key in ROW_CHECKS}
        fault = first_fault(identity, IDENTITY_CHECKS) or misfit(identity) or _fault(values)
        if fault:
            raise RecordError(fault)
        identity = self._identities.setdefault(json.dumps(identity, sort_keys=True), identity)
        if cut > 0 and self._is_head(line[:cut], identity):
            self._heads[line[:cut]] = identity
        return identity, values

    def _is_head(self, text: bytes, identity: Mapping[str, Any]) -> bool:
        """Return whether a line's beginning, closed by a brace, is that identity and no more."""
        try:
            head = _object(text + b"}")
        except RecordError:
            return False
        if not head.keys().isdisjoint(ROW_CHECKS):
            return False
        return {key: value for key, value in head.items() if key in IDENTITY_CHECKS} == identity


def _has_good_numbers(values: Mapping[str, Any]) -> bool:
    """Return whether the numbers of a row pass :data:`ROW_CHECKS`, without a call for each."""
    step = values["step"]
    if type(step) is not int or not 0 <= step <= LARGEST_COUNT:
        return False
    seen = values["seen"]
    if type(seen) is not int or not 1 <= seen <= LARGEST_COUNT:
        return False
    wrong = values["wrong"]
    if (type(wrong) is not float and type(wrong) is not int) or not 0 <= wrong <= seen:
        return False
    for key in LATER_COUNTS:
        count = values[key]
        if count is None:
            continue
        if (type(count) is not float and type(count) is not int) or not 0 <= count <= seen:
            return False
    cross_entropy = values["loss"]
    if type(cross_entropy) is not float or math.isnan(cross_entropy):
        return False
    together = values["together"]
    return together is None or (type(together) is int and 1 <= together <= LARGEST_COUNT)


def _object(text: bytes) -> dict[str, Any]:
    try:
        value = _decode(text.decode())
    except (ValueError, RecursionError):
        value = None
    if type(value) is not dict:
        raise RecordError("not a whole JSON object (half-written?)")
    return value


def _fault(values: Mapping[str, Any]) -> str:
    for key, check in ROW_CHECKS.items():
        fault = check(values[key])
        if fault:
            return f"{key} {fault}"
    wrong = values["wrong"]
    seen = values["seen"]
    if not 0 <= wrong <= seen:
        return f"{wrong} wrong of {seen} seen is no error"
    for key in LATER_COUNTS:
        count = values[key]
        if count is not None and not 0 <= count <= seen:
            return f"{count} {key} of {seen} seen is no error"
    return ""


#: returns no text for a good value, else what is wrong with it, e.g. "is 1.5, not a whole number"
Check = Callable[[Any], str]

LONGEST = 1000  #: characters of a text
DEEPEST = 8  #: lists inside one another
LARGEST_COUNT = 2**31 - 1  #: tables keep steps and images in 32 bits
_LARGEST_NUMBER = 2**63 - 1


def printable_text(value: Any) -> str:
    """Check for printable text of reasonable length.

    Control characters break what they are written to.
    """
    if type(value) is not str:
        return f"is {shown(value)}, not text"
    if len(value) > LONGEST:
        return f"is {len(value)} characters long"
    if value.isprintable():
        return ""
    return f"holds a character that cannot be printed: {shown(value)}"


# a file has millions of values: each check is one call if the value is good


def whole(low: int = -_LARGEST_NUMBER, high: int = _LARGEST_NUMBER) -> Check:
    """Make a check for whole numbers from ``low`` to ``high``, written without a point."""

    def check(value: Any) -> str:
        if type(value) is int and low <= value <= high:
            return ""
        return f"is {shown(value)}, not a whole number from {low} to {high}"

    return check


def truth(value: Any) -> str:
    """Check for true or false."""
    return "" if type(value) is bool else f"is {shown(value)}, neither true nor false"


def number(value: Any) -> str:
    """Check for a finite number."""
    if type(value) in (int, float) and abs(value) <= _LARGEST_NUMBER:
        return ""
    return f"is {shown(value)}, not a finite number"


def subset(value: Any) -> str:
    """Check for the name of a subset."""
    if type(value) is str and value in SUBSETS:
        return ""
    return f"is {shown(value)}, not {', '.join(SUBSETS)}"


def loss(value: Any) -> str:
    """Check for a number or infinity, which cross entropy reaches; not NaN."""
    if type(value) is float and not math.isnan(value):
        return ""
    return number(value)


def optional(check: Check) -> Check:
    """Make a check that passes null and what the given one passes."""
    return lambda value: "" if value is None else check(value)


def list_of(check: Check) -> Check:
    """Make a check for lists whose items pass the given one."""

    def check_list(value: Any) -> str:
        if type(value) is not list:
            return f"is {shown(value)}, not a list"
        for item in value:
            fault = check(item)
            if fault:
                return f"has an item that {fault}"
        return ""

    return check_list


def mapping_of(check: Check) -> Check:
    """Make a check for mappings of printable names to values that pass the given one."""

    def check_mapping(value: Any) -> str:
        if type(value) is not dict:
            return f"is {shown(value)}, not a mapping"
        for name in value:
            fault = printable_text(name)
            if fault:
                return f"has a name that {fault}"
        for name, item in value.items():
            fault = check(item)
            if fault:
                return f"has {name}, which {fault}"
        return ""

    return check_mapping


def plain_mapping(value: Any) -> str:
    """Check hyperparameters, or options of a dataset.

    These are names with text, a number, a truth, null, or lists of these.
    """
    return mapping_of(lambda item: _plain(item, DEEPEST))(value)


def _plain(value: Any, deepest: int) -> str:
    if type(value) is list and deepest:
        for item in value:
            fault = _plain(item, deepest - 1)
            if fault:
                return f"has an item that {fault}"
        return ""
    if type(value) is float:  # an infinite limit is no limit, and a hyperparameter may have none
        return "is NaN" if math.isnan(value) else ""
    if type(value) is int:
        return number(value)
    if value is None or type(value) is bool:
        return ""
    return printable_text(value)


#: the check of each type that a field is declared with
BY_TYPE: dict[Any, Check] = {
    str: printable_text,
    int: whole(),
    bool: truth,
    float: number,
    float | None: optional(number),
    int | None: optional(whole()),
    list[str]: list_of(printable_text),
    list[list[str]] | None: optional(list_of(list_of(printable_text))),
    list[int]: list_of(whole()),
    dict[str, Any]: plain_mapping,
    dict[str, str]: mapping_of(printable_text),
    dict[str, float]: mapping_of(number),
    dict[str, list[int]]: mapping_of(list_of(whole())),
}

#: of the keys of a row besides its identity
ROW_CHECKS: dict[str, Check] = {
    "step": whole(0, LARGEST_COUNT),
    "env": printable_text,
    "subset": subset,
    "env_held_out": truth,
    "seen": whole(1, LARGEST_COUNT),
    "wrong": number,
    "loss": loss,
    "together": optional(whole(1, LARGEST_COUNT)),
    **dict.fromkeys(LATER_COUNTS, optional(number)),
}


def first_fault(values: Mapping[str, Any], checks: Mapping[str, Check]) -> str:
    """Describe which value first fails its check, and how, in no words if all pass.

    Keys that are absent are passed over.
    """
    for key, check in checks.items():
        if key in values:
            fault = check(values[key])
            if fault:
                return f"{key} {fault}"
    return ""


def misfit(identity: Mapping[str, Any]) -> str:
    """Describe what in an identity contradicts the rest of it, in no words if nothing does."""
    names: Sequence[str] = identity["given"]
    if not names or len(set(names)) < len(names):
        return f"given is {shown(names)}, not different names"
    strange = [env for env in identity["held_out"] if env not in names]
    if strange:
        return f"held_out has {shown(strange[0])}, which is not given"
    fold = identity["fold"]
    folds = identity.get("folds")
    if folds and fold != "full" and not (fold.isdecimal() and int(fold) < len(folds)):
        return f"fold is {shown(fold)}, none of its {len(folds)} folds"
    return ""


def shown(value: Any) -> str:
    """Format a value as JSON in ASCII, cut to a readable length."""
    written = json.dumps(value)
    return written if len(written) <= 40 else f"{written[:37]}..."


def _defaults(kind: type[Any]) -> dict[str, Any]:
    """Collect the defaults of those fields of a dataclass that have one."""
    plain = {f.name: f.default for f in fields(kind) if f.default is not MISSING}
    built = {f.name: f.default_factory() for f in fields(kind) if f.default_factory is not MISSING}
    return {**plain, **built}


#: what keys of an identity mean that a row lacks because it is older than they are
DEFAULTS = _defaults(RunIdentity)

IDENTITY_CHECKS = {name: BY_TYPE[kind] for name, kind in get_type_hints(RunIdentity).items()}
#: keys that no line lacks, however old
NEEDED = frozenset((*IDENTITY_CHECKS, *ROW_CHECKS)) - DEFAULTS.keys() - _defaults(Row).keys()
_ROLES: dict[str, Role] = {
    name: kind.__metadata__[0]
    for name, kind in get_type_hints(RunIdentity, include_extras=True).items()
}


def keys(roles: Role, *more: str | None) -> tuple[str, ...]:
    """List the keys of an identity that have one of these roles, in their order.

    Args:
        roles: e.g. ``Role.DATASET | Role.NETWORK``.
        more: further keys, which come last; None is none.
    """
    names = [name for name, role in _ROLES.items() if role in roles]
    names += [name for name in more if name is not None]
    return tuple(dict.fromkeys(names))


def identity_key(identity: Mapping[str, Any], names: Sequence[str]) -> str:
    """Format a text that is equal for identities that agree in all these keys."""
    return json.dumps([identity.get(name) for name in names], sort_keys=True, default=str)


_PLAIN_TYPES = frozenset({type(None), str, int, float, bool})


def identity_keys(
    identities: Iterable[Mapping[str, Any]], names: Sequence[str]
) -> list[tuple[str, ...]]:
    """Make a key of each identity, equal for those that agree in all these keys.

    Many runs share long values, such as thousands of environments: each is formatted once, and keys
    share its text.
    """
    texts: dict[Any, str] = {}

    def key_of(identity: Mapping[str, Any]) -> tuple[str, ...]:
        key = []
        for name in names:
            value = identity.get(name)
            place = (type(value), value) if type(value) in _PLAIN_TYPES else id(value)
            text = texts.get(place)
            if text is None:
                text = texts[place] = json.dumps(value, sort_keys=True, default=str)
            key.append(text)
        return tuple(key)

    return [key_of(identity) for identity in identities]

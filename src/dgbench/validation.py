"""Values of the configuration checked by pydantic, and refused in one line.

The line has key, value, fault and fix.

A class that the configuration builds is a subclass of :class:`Checked` whose fields are its keys::

    class Split(Checked):
        key = "dataset"

        val_fraction: Annotated[
            Number, Field(gt=0, lt=1), Refusal("is not in (0, 1)", "DomainBed uses 0.2")
        ]
        store: Literal["ram", "file"]

``Split(val_fraction=2, store="ram")`` raises ``ConfigError: dataset.val_fraction=2 is not in (0,
1); DomainBed uses 0.2``, whoever calls it: Hydra, a grid, Python.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, wraps
from numbers import Integral
from pathlib import Path
from typing import Annotated, Any, ClassVar, ParamSpec, Self, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    create_model,
    model_validator,
)
from pydantic_core import CoreSchema, ErrorDetails, core_schema

from dgbench.errors import ConfigError

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


@dataclass(frozen=True)
class Refusal:
    """What is said about a value that a field refuses, for whatever reason.

    It stands last in ``Annotated``.
    """

    fault: str  #: behind ``KEY=VALUE``, e.g. "is not in (0, 1)".
    fix: str  #: what to do, e.g. "DomainBed uses 0.2".

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        context: dict[str, Any] = {"fault": self.fault, "fix": self.fix}
        return core_schema.custom_error_schema(
            handler(source), "refusal", custom_error_message="refused", custom_error_context=context
        )


def as_it_is(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    check(value)
    return value


#: a finite number, no bool; an integer stays one
Number = Annotated[float, Field(allow_inf_nan=False), WrapValidator(as_it_is)]

#: text that would be a number if it stood without quotes
NUMBER_TEXT = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?")
INTEGER_LIMIT = 2**63
MOST_SHOWN = 200  #: characters of a value that a refusal repeats

#: what ends a line, moves a terminal's cursor, or ends a path
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def in_one_line(value: T) -> T:
    """Return text, or a path, that can stand in a line of a script, of a table and of a terminal.

    Raises:
        ValueError: it holds a control character.
    """
    if isinstance(value, (str, Path)) and CONTROL.search(str(value)):
        raise ValueError("holds a line break or another control character; leave it out")
    return value


OneLine = AfterValidator(in_one_line)
NonBlank = Annotated[str, Field(pattern=r"\S")]
Place = Annotated[Annotated[str | Path, Refusal("is no path", "give one")], OneLine]
Folders = Annotated[
    str | Path | list[str | Path], Refusal("is no list of folders", "write e.g. [outputs]")
]
Folder = Annotated[Annotated[NonBlank, Refusal("is no folder", "give its path")], OneLine]
Switch = Annotated[bool, Refusal("is unknown", "choose true or false")]
AtLeast0 = Annotated[int, Field(ge=0, lt=INTEGER_LIMIT)]
AtLeast1 = Annotated[int, Field(ge=1, lt=INTEGER_LIMIT)]
Count0 = Annotated[AtLeast0, Refusal("is not an integer >= 0 (below 2^63)", "give one")]
Count1 = Annotated[AtLeast1, Refusal("is not an integer >= 1 (below 2^63)", "give one")]


def _listed(value: Any) -> Any:
    plain = isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping))
    return list(value) if plain else value


class _AsList:
    """Validates a list of items, made of any iterable but text, bytes or a mapping."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        items = core_schema.list_schema(handler.generate_schema(get_args(source)[0]))
        return core_schema.no_info_before_validator_function(_listed, items)


def _whole(value: Any) -> Any:
    is_whole = isinstance(value, Integral) and not isinstance(value, bool)
    return int(value) if is_whole else value


# Arguments of the Python API

#: anything that gives values one by one, as a list
Several = Annotated[Iterable[T], _AsList()]
Plain = Annotated[Mapping[str, Any], WrapValidator(as_it_is)]  #: of any class
Whole0 = Annotated[Count0, BeforeValidator(_whole)]  #: also numpy's
Whole1 = Annotated[Count1, BeforeValidator(_whole)]
Places = Annotated[
    str | Path | Several[str | Path], Refusal("is no path, nor a list of paths", "name a folder")
]
#: of a run
Step = Annotated[str, Field(pattern="^(last|best)$"), Refusal("is unknown", "choose last or best")]
Words = Annotated[Several[str], Refusal("is no list of texts", 'give one, e.g. ["seed=1"]')]
Positive = Annotated[Number, Field(gt=0)]
NotNegative = Annotated[Number, Field(ge=0)]


class Keys(BaseModel):
    """Keys that stand together below another one, e.g. ``dataset.normalize``.

    They are a field of a :class:`Checked`.

    Values are not converted, and unknown keys are refused.
    """

    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", arbitrary_types_allowed=True
    )


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Refuse arguments of a function of the Python API that do not fit its annotations.

    :class:`Checked` does the same.

    Values go on as pydantic made them: :data:`Several` as a list. What ``**kwargs`` takes, and
    arguments without an annotation, are not checked.
    """
    signature = inspect.signature(function)
    hints = {name: hint for name, hint in function.__annotations__.items() if name != "return"}
    parameters = signature.parameters.items()
    extra = {name for name, parameter in parameters if parameter.kind is parameter.VAR_KEYWORD}

    # at the first call: annotations may name what the module defines further down
    @cache
    def arguments() -> type[Keys]:
        fields: dict[str, Any] = {}
        for name, hint in hints.items():
            if name not in extra:
                fields[name] = (hint, ...)
        return create_model(
            function.__name__, __base__=Keys, __module__=function.__module__, **fields
        )

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        try:
            model = arguments()
            values = model.model_validate({k: bound.arguments[k] for k in model.model_fields})
        except ValidationError as error:
            raise config_error(error, "") from None
        bound.arguments |= vars(values)
        return function(*bound.args, **bound.kwargs)

    return call


class Checked(Keys):
    """Base of classes that the configuration builds.

    What several fields decide together is checked by a ``model_validator(mode="after")`` that
    raises the :class:`~dgbench.errors.ConfigError` itself.

    Raises:
        ConfigError: a value that a field refuses, a key that is missing or unknown.
    """

    key: ClassVar[str]  #: where the fields stand in the configuration, e.g. ``dataset``

    @model_validator(mode="wrap")
    @classmethod
    def _in_one_line(cls, values: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return handler(values)
        except ValidationError as error:
            raise config_error(error, cls.key) from None


def config_error(error: ValidationError, key: str) -> ConfigError:
    """Convert pydantic's first refusal to an error of one line.

    Args:
        error: what pydantic found.
        key: where the validated values stand in the configuration; may be empty.
    """
    first = error.errors(include_url=False)[0]
    *outer, last = [*filter(None, [key]), *map(str, first["loc"])] or [""]
    place = ".".join([*outer, last])
    value = shown(first["input"])
    if first["type"] == "missing":
        return ConfigError(f"{place} is missing; add {place}=VALUE")
    if first["type"] == "extra_forbidden":
        return ConfigError(
            f"{place} is no key of {'.'.join(outer)}; remove it, or see the keys in "
            f"conf/{place.partition('.')[0]}"
        )
    fault, fix = _fault_and_fix(first)
    numeric = isinstance(first["input"], str) and NUMBER_TEXT.fullmatch(value)
    if numeric and re.search(r"\b(integer|number)\b", fault):
        fix = (
            f"write {value} without quotes, or ${{oc.decode:${{oc.env:NAME}}}} for a number in a "
            "variable"
        )
        value = f"'{value}'"
        fault = f"is text and {fault}"
    if value.strip() in ("", "[]"):
        return ConfigError(f"{place} is empty; {fix}")
    if first["loc"] and isinstance(first["loc"][-1], int):
        return ConfigError(f"{'.'.join(outer)} holds {value}, which {fault}; {fix}")
    return ConfigError(f"{place}={value} {fault}; {fix}")


#: what pydantic finds -> fault and fix, with the bound that it names
_PLAIN = {
    "bool_type": ("is unknown", "choose true or false"),
    "float_type": ("is no number", "give one"),
    "finite_number": ("is no finite number", "give one"),
    "greater_than": ("is not > {gt}", "give more"),
    "greater_than_equal": ("is not >= {ge}", "give more"),
    "is_instance_of": ("is no {class}", "give one"),
    "int_type": ("is no integer", "give one"),
    "less_than": ("is not < {lt}", "give less"),
    "list_type": ("is no list", "write e.g. [a,b]"),
    "mapping_type": ("is no mapping", "write e.g. {{a: 1}}"),
    "sequence_str": ("is no list", "write e.g. [a,b]"),
    "string_type": ("is no text", "give some"),
}


def _fault_and_fix(error: ErrorDetails) -> tuple[str, str]:
    context = error.get("ctx", {})
    if error["type"] == "refusal":
        return context["fault"], context["fix"]
    if error["type"] == "literal_error":
        names = re.findall(r"[^\s',]+", context["expected"].replace(" or ", " "))
        choices = " or ".join(names) if len(names) == 2 else ", ".join(names)
        return "is unknown", f"choose {choices}"
    if error["type"] == "value_error":  # a validator said it, in the words of a refusal
        fault, _, fix = str(context["error"]).partition("; ")
        return fault, fix or "correct it"
    if error["type"] in _PLAIN:
        fault, fix = _PLAIN[error["type"]]
        return fault.format(**context), fix
    return f"is refused ({' '.join(error['msg'].split())})", "correct it"


def some_of(names: Sequence[str], limit: int = 3) -> str:
    """Join the first ``limit`` names, and count the others."""
    text = ", ".join(names[:limit])
    more = len(names) - limit
    return f"{text} and {more} more" if more > 0 else text


def shown(value: object) -> str:
    """Format a value as it is typed: ``null``, ``true``, ``[a,b]``; a long text is cut."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{shown(key)}:{shown(item)}" for key, item in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ",".join(map(shown, value)) + "]"
    text = str(value)
    if not text.isprintable():
        text = repr(text)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."

"""YAML that people write -> nouns, with every mistake at once."""

import difflib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from hpcserve.errors import InputError, Mistake
from hpcserve.nouns import FORMS, Noun
from hpcserve.wire.schema_names import instead_of
from hpcserve.wire.yamltree import Located, Path, load

__all__ = ["Complaint", "decode_yaml", "plain_yaml"]

N = TypeVar("N", bound=Noun)


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    """A mistake that a room found in plain data, by path: ("pools", 0, "workers")."""

    path: Path
    found: str
    wanted: str
    remedy: str
    at_key: bool = False


Check = Callable[[Mapping[str, Any]], Iterable[Complaint]]


def decode_yaml(kind: type[N], text: str, *, source: str, check: Check | None = None) -> N:
    """Read one noun from YAML; raises InputError with all mistakes: YAML's, the schema's and those that `check` finds.

    `check` gets the plain data, which may be wrong in any way: it must look at a part only if it is what it should be.
    """
    located = load(text, source=source)
    complaints = [(place, found, wanted, remedy) for place, found, wanted, remedy in located.mistakes]
    if not isinstance(located.data, dict):
        complaints.append(
            (
                located.value_place(()),
                _shown(located.data),
                f"the keys of a {kind.__name__.lower()} were wanted",
                f"write {', '.join(_required_keys(kind))}",
            )
        )
        raise InputError(_mistakes(source, complaints))
    instead = instead_of(kind, located.data.get("schema"))
    if instead is not None:
        # Whatever else differs follows from that.
        found = f"`schema` is {_shown(located.data['schema'])}"
        raise InputError(_mistakes(source, [*complaints, (located.value_place(("schema",)), found, *instead)]))
    noun: N | None = None
    try:
        noun = kind.model_validate_json(json.dumps(located.data))
    except ValidationError as error:
        complaints.extend(
            _explain(kind, details, located) for details in error.errors(include_url=False) if not _follows(details)
        )
    if check is not None:
        for complaint in check(located.data):
            place = (located.key_place if complaint.at_key else located.value_place)(complaint.path)
            complaints.append((place, complaint.found, complaint.wanted, complaint.remedy))
    if complaints or noun is None:
        raise InputError(_mistakes(source, complaints))
    return noun


def plain_yaml(text: str, *, source: str) -> Any:
    """What a YAML text says as plain data, whatever its keys; raises InputError for what is not plain YAML."""
    located = load(text, source=source)
    if located.mistakes:
        raise InputError(_mistakes(source, located.mistakes))
    return located.data


def _follows(details: ErrorDetails) -> bool:
    """Whether the error only follows from others: a list counts as too short when its items are wrong."""
    found = details["input"]
    return details["type"] == "too_short" and isinstance(found, list) and len(found) >= details["ctx"]["min_length"]


def _mistakes(source: str, complaints: Iterable[tuple[Any, str, str, str]]) -> list[Mistake]:
    unique = dict.fromkeys(complaints)
    return [
        Mistake(file=source, line=place.line, column=place.column, found=found, wanted=wanted, remedy=remedy)
        for place, found, wanted, remedy in unique
    ]


def _shown(value: object) -> str:
    """A value as a person would call it, kept to one short line."""
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    text = json.dumps(value, ensure_ascii=False)
    kind = {bool: "true/false", int: "number", float: "number", str: "text"}[type(value)]
    limit = 60
    return f"{kind} {text if len(text) <= limit else text[: limit - 3] + '...'}"


_WANTED = {
    "int_type": "a whole number was wanted",
    "int_from_float": "a whole number was wanted",
    "float_type": "a number was wanted",
    "string_type": "text was wanted",
    "bool_type": "true or false was wanted",
    "tuple_type": "a list was wanted",
    "dict_type": "a mapping was wanted",
    "model_type": "a mapping was wanted",
    "model_attributes_type": "a mapping was wanted",
    "finite_number": "a finite number was wanted",
}

_LIMITS = {
    "greater_than": "more than {gt} was wanted",
    "greater_than_equal": "at least {ge} was wanted",
    "less_than": "less than {lt} was wanted",
    "less_than_equal": "at most {le} was wanted",
    "too_short": "a list of at least {min_length} was wanted",
    "string_too_short": "text of at least {min_length} character was wanted",
    "string_too_long": "text of at most {max_length} characters was wanted",
    "union_tag_invalid": "{discriminator} as one of {expected_tags} was wanted, it is '{tag}'",
    "union_tag_not_found": "the key {discriminator} was wanted in it",
}
"""What is wanted where a limit of pydantic's is broken; its context has the limit."""


def _explain(kind: type[Noun], details: ErrorDetails, located: Located) -> tuple[Any, str, str, str]:
    """One pydantic error as (place, found, wanted, remedy)."""
    path = _data_path(details["loc"], located.data)
    error = details["type"]
    context = details.get("ctx", {})
    if error == "extra_forbidden":
        known = _known_keys(kind, path[:-1])
        near = difflib.get_close_matches(str(path[-1]), known, n=1, cutoff=0.6)
        remedy = f"did you mean `{near[0]}`?" if near else f"remove it; known keys: {', '.join(sorted(known))}"
        return located.key_place(path), f"unknown key `{path[-1]}`", "a known key was wanted", remedy
    if error == "missing":
        place = located.key_place(path[:-1]) if path[:-1] else located.value_place(())
        owner = f"`{_dotted(path[:-1])}`" if path[:-1] else "the file"
        return place, f"{owner} has no `{path[-1]}`", "it is required", f"add `{path[-1]}:`"
    found = f"`{_dotted(path)}` is {_shown(details['input'])}"
    wanted = _WANTED.get(error)
    remedy = f"correct `{_dotted(path[-2:] if path and isinstance(path[-1], int) else path[-1:])}`"
    if error in {"enum", "literal_error"}:
        wanted = f"{context.get('expected', 'another value')} was wanted"
        if isinstance(details["input"], str):
            near = difflib.get_close_matches(details["input"], str(context.get("expected", "")).split("'")[1::2], n=1)
            remedy = f"did you mean `{near[0]}`?" if near else remedy
    elif error == "string_pattern_mismatch":
        wanted = FORMS.get(context["pattern"], f"text of the form {context['pattern']} was wanted")
    elif error in _LIMITS:
        wanted = _LIMITS[error].format(**context)
    elif error == "bool_type" and isinstance(details["input"], str):
        remedy = "write true or false"
    elif error in {"int_type", "float_type"} and isinstance(details["input"], str):
        remedy = "write a decimal number such as 8 or 0.5, without quotes"
    elif error == "string_type" and isinstance(details["input"], bool | int | float):
        remedy = "put it in quotes if it is meant as text"
    return located.value_place(path), found, wanted or details["msg"], remedy


def _data_path(loc: tuple[str | int, ...], data: Any) -> Path:
    """The part of pydantic's location that exists in the data (it adds names of union members and `[key]`)."""
    path: list[str | int] = []
    for index, step in enumerate(loc):
        last = index == len(loc) - 1
        if step == "[key]":
            continue
        if isinstance(data, dict) and isinstance(step, str):
            if step in data:
                data = data[step]
                path.append(step)
            elif last:
                path.append(step)
        elif isinstance(data, list) and isinstance(step, int) and step < len(data):
            data = data[step]
            path.append(step)
    return tuple(path)


def _dotted(path: Path) -> str:
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text or "the file"


def _known_keys(kind: Any, path: Path) -> list[str]:
    """Keys that the noun at `path` below `kind` takes."""
    for step in path:
        kind = _below(kind, step)
    model = _model_in(kind)
    if model is None:
        return []
    return [field.alias or name for name, field in model.model_fields.items()]


def _required_keys(kind: type[Noun]) -> list[str]:
    return [f"`{field.alias or name}:`" for name, field in kind.model_fields.items() if field.is_required()]


def _below(kind: Any, step: str | int) -> Any:
    model = _model_in(kind)
    if model is not None and isinstance(step, str):
        for name, field in model.model_fields.items():
            if step in (name, field.alias):
                return field.annotation
    return kind


def _model_in(kind: Any) -> type[BaseModel] | None:
    """The first noun inside an annotation such as `tuple[Pool, ...] | None`."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind
    for part in get_args(kind):
        model = _model_in(part)
        if model is not None:
            return model
    return None

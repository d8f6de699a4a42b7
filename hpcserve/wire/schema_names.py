"""What to say of a file whose `schema` is another one's: a service where a site is wanted, a version of another day."""

import re
from typing import get_args

from hpcserve import nouns
from hpcserve.nouns import Noun

__all__ = ["instead_of"]

_NAME = re.compile(r"hpcserve\.([a-z-]+)/([0-9]+)")
_FIELD = "schema_"


def instead_of(kind: type[Noun], given: object) -> tuple[str, str] | None:
    """What was wanted in place of a schema, and what to do; None where it is the kind's own, or nobody's."""
    own = _schema_of(kind)
    match = _NAME.fullmatch(given) if isinstance(given, str) else None
    if own is None or match is None or given == own:
        return None
    (own_name, _), name = own.removeprefix("hpcserve.").split("/"), match[1]
    if name == own_name:
        return f"{own} was wanted", "use the hpcserve that this file was written for, or write it as this one reads it"
    if name in _names():
        return f"{own} was wanted", f"this is a {name} file, name a {own_name} file"
    return None


def _names() -> set[str]:
    """The names of all schemas."""
    kinds = [one for one in vars(nouns).values() if isinstance(one, type) and issubclass(one, Noun)]
    found = [_NAME.fullmatch(_schema_of(one) or "") for one in kinds]
    return {match[1] for match in found if match is not None}


def _schema_of(kind: type[Noun]) -> str | None:
    field = kind.model_fields.get(_FIELD)
    values = get_args(field.annotation) if field is not None else ()
    return str(values[0]) if values else None

"""What all nouns share: frozen, keyword-only, strict, no unknown keys."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

__all__ = ["HostList", "Name", "Noun", "Positive", "PositiveInt", "Text"]

_NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"

Name = Annotated[str, StringConstraints(pattern=_NAME_PATTERN, max_length=200)]
"""An identifier that is safe as a file name and in a host name: letters, digits, dot, dash, underscore."""

Text = Annotated[str, StringConstraints(min_length=1, pattern=r"^[^\x00\r\n]*$")]
"""One line of text: anything but NUL and line ends."""

HostList = Annotated[str, StringConstraints(min_length=1, pattern=r"^[A-Za-z0-9][A-Za-z0-9._,\[\]-]*$")]
"""A Slurm host list expression such as `node[01-04,07]`."""

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
PositiveInt = Annotated[int, Field(gt=0)]


class Noun(BaseModel):
    """A value: made once, passed on, never changed."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, populate_by_name=True, protected_namespaces=())

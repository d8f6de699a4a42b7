"""What all nouns share: frozen, keyword-only, strict, no unknown keys."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

__all__ = [
    "FORMS",
    "CpuList",
    "Duration",
    "EnvName",
    "Figure",
    "HostList",
    "IsoDate",
    "Name",
    "Noun",
    "Positive",
    "PositiveInt",
    "ServiceName",
    "SlurmVersion",
    "Subnet",
    "Text",
]

_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
_TEXT = r"^[^\x00\r\n]*$"
_HOST_LIST = r"^[A-Za-z0-9][A-Za-z0-9._,\[\]-]*$"
_DURATION = r"^(\d+-)?\d{1,2}:\d{2}:\d{2}$"
_SUBNET = r"^[0-9A-Fa-f:.]+/\d{1,3}$"
_ENV_NAME = r"^[A-Za-z_][A-Za-z0-9_]*$"
_CPU_LIST = r"^\d+(-\d+)?(,\d+(-\d+)?)*$"
_ISO_DATE = r"^\d{4}-\d{2}-\d{2}$"
_SLURM_VERSION = r"^\d{2}\.\d{2}(\.\d+)?$"

FORMS: Mapping[str, str] = {
    _NAME: "a name of letters, digits, `.`, `-` and `_` was wanted, a letter or digit first",
    _TEXT: "one line of text was wanted",
    _HOST_LIST: "a Slurm host list was wanted, as in node[01-04,07]",
    _DURATION: "a time was wanted, [days-]hours:minutes:seconds, as in 1:30:00",
    _SUBNET: "a subnet was wanted, as in 10.1.0.0/16",
    _ENV_NAME: "the name of an environment variable was wanted: letters, digits and `_`, no digit first",
    _CPU_LIST: "a list of logical CPUs was wanted, as in 0-23,96-119",
    _ISO_DATE: "a day was wanted, in quotes, as in '2026-05-31'",
    _SLURM_VERSION: "a Slurm version was wanted, in quotes, as in '24.05.3'",
}
"""What each pattern asks for, in the words of an error message."""

Name = Annotated[str, StringConstraints(pattern=_NAME, max_length=200)]
"""An identifier that is safe as a file name and in a host name: letters, digits, dot, dash, underscore."""

ServiceName = Annotated[str, StringConstraints(pattern=_NAME, max_length=60)]
"""A `Name` that leaves room for a job's number in file names and in Slurm's columns."""

Text = Annotated[str, StringConstraints(min_length=1, pattern=_TEXT)]
"""One line of text: anything but NUL and line ends."""

HostList = Annotated[str, StringConstraints(min_length=1, pattern=_HOST_LIST)]
"""A Slurm host list expression such as `node[01-04,07]`."""

Duration = Annotated[str, StringConstraints(pattern=_DURATION)]
"""A Slurm time limit, `[days-]hours:minutes:seconds`."""

Subnet = Annotated[str, StringConstraints(pattern=_SUBNET)]
"""A subnet in CIDR form, `10.1.0.0/16`."""

EnvName = Annotated[str, StringConstraints(pattern=_ENV_NAME)]
"""The name of an environment variable that a shell can set."""

CpuList = Annotated[str, StringConstraints(pattern=_CPU_LIST)]
"""Logical CPUs as Linux writes them, `0-23,96-119`."""

IsoDate = Annotated[str, StringConstraints(pattern=_ISO_DATE)]
"""A day, `2026-05-31`."""

SlurmVersion = Annotated[str, StringConstraints(pattern=_SLURM_VERSION)]
"""A Slurm version, `24.05` or `24.05.3`."""

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
PositiveInt = Annotated[int, Field(gt=0)]

Figure = Annotated[float, Field(ge=1e-9, le=1e12)]
"""A positive figure that a person writes: what no machine or request has is refused before it overflows arithmetic."""


class Noun(BaseModel):
    """A value: made once, passed on, never changed."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, populate_by_name=True, protected_namespaces=())

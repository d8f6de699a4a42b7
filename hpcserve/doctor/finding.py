"""`Finding`: what one check says of one or more nodes, and the reports that carry findings between nodes."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from hpcserve.nouns import Noun

__all__ = [
    "DoctorReport",
    "Finding",
    "NodeReport",
    "Said",
    "Severity",
    "failure",
    "fine",
    "not_applicable",
    "warning",
    "worst",
]


class Severity(StrEnum):
    """How bad it is: a failure stops or cripples serving, a warning costs something or will bite later."""

    OK = "ok"
    NOT_APPLICABLE = "not-applicable"
    WARNING = "warning"
    FAILURE = "failure"


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a check says, before it is known which check and node it was."""

    severity: Severity
    what: str
    why: str = ""
    remedy: str = ""


def failure(what: str, *, why: str, remedy: str) -> Said:
    """Something that stops serving, or costs most of its speed."""
    return Said(severity=Severity.FAILURE, what=what, why=why, remedy=remedy)


def warning(what: str, *, why: str, remedy: str) -> Said:
    """Something that costs speed, or may fail under load."""
    return Said(severity=Severity.WARNING, what=what, why=why, remedy=remedy)


def fine(what: str) -> Said:
    """What was looked at and is right."""
    return Said(severity=Severity.OK, what=what)


def not_applicable(what: str) -> Said:
    """Why there was nothing to look at, or why it could not be seen."""
    return Said(severity=Severity.NOT_APPLICABLE, what=what)


class Finding(Noun):
    """One check's word: what, on which nodes, why it matters (GB/s or failure), what to do."""

    check: Annotated[str, Field(min_length=1)]
    severity: Severity
    what: str
    nodes: tuple[str, ...]
    why: str = ""
    remedy: str = ""


class NodeReport(Noun):
    """`nodes/NODE.json`: what the checks found on one node."""

    schema_: Annotated[Literal["hpcserve.doctor.node/1"], Field(alias="schema")] = "hpcserve.doctor.node/1"
    node: str
    findings: tuple[Finding, ...]
    took_s: float


class DoctorReport(Noun):
    """What `hpcserve doctor --json` prints. Equal findings of several nodes are one."""

    schema_: Annotated[Literal["hpcserve.doctor/1"], Field(alias="schema")] = "hpcserve.doctor/1"
    site: str
    login: str
    """The host that the login checks ran on."""
    nodes: tuple[str, ...]
    """Nodes that answered."""
    severity: Severity
    """The worst of all findings."""
    findings: tuple[Finding, ...]


_ORDER = (Severity.NOT_APPLICABLE, Severity.OK, Severity.WARNING, Severity.FAILURE)


def worst(findings: tuple[Finding, ...]) -> Severity:
    """The worst severity among findings; `ok` where nothing is wrong."""
    found = max((finding.severity for finding in findings), key=_ORDER.index, default=Severity.OK)
    return Severity.OK if found == Severity.NOT_APPLICABLE else found

"""Findings of many nodes -> few lines: what is said of several nodes alike is said once, the worst first."""

from collections.abc import Iterable

from hpcserve.doctor.finding import Finding, Severity
from hpcserve.site import HostListError, fold_hosts

__all__ = ["folded", "shown_findings"]

_ORDER = (Severity.FAILURE, Severity.WARNING, Severity.OK, Severity.NOT_APPLICABLE)


def folded(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings that say the same of different nodes as one with all of them, in the order of first sight."""
    nodes: dict[Finding, dict[str, None]] = {}
    for finding in findings:
        alike = finding.model_copy(update={"nodes": ()})
        nodes.setdefault(alike, {}).update(dict.fromkeys(finding.nodes))
    return tuple(finding.model_copy(update={"nodes": tuple(those)}) for finding, those in nodes.items())


def shown_findings(findings: Iterable[Finding], *, every: bool) -> str:
    """One paragraph a failure or warning, one line for all that is right, one for what was not looked at.

    With `every` a line for each of those too.
    """
    ordered = sorted(folded(findings), key=lambda finding: _ORDER.index(finding.severity))
    lines: list[str] = []
    for finding in ordered:
        if finding.severity in {Severity.FAILURE, Severity.WARNING}:
            lines += [
                f"{finding.severity.value.upper():8} {finding.check}: {finding.what}",
                f"         where: {_hosts(finding.nodes)}",
                f"         why:   {finding.why}",
                f"         do:    {finding.remedy}",
            ]
        elif every:
            lines.append(f"{finding.severity.value:14} {finding.check}: {finding.what} ({_hosts(finding.nodes)})")
    bad = {finding.check for finding in ordered if finding.why}
    right = {finding.check for finding in ordered if finding.severity == Severity.OK} - bad
    unseen = {finding.check for finding in ordered} - right - bad
    lines.append(f"Without complaint: {', '.join(sorted(right)) or 'nothing'}.")
    if unseen:
        lines.append(f"Not looked at{'' if every else ' (--all says why)'}: {', '.join(sorted(unseen))}.")
    return "\n".join(lines) + "\n"


def _hosts(names: tuple[str, ...]) -> str:
    try:
        return fold_hosts(names)
    except HostListError:
        return ", ".join(names)

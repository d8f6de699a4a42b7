"""What is to be said of nodes that were asked and gave no report: refused, busy, slow, or without hpcserve."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from hpcserve.doctor.finding import Finding, Severity

__all__ = ["Asked", "unheard"]

_REFUSED = "Unable to allocate resources: "
"""Before Slurm's reason, in what srun prints."""

_BUSY = ("Requested nodes are busy", "Immediate execution impossible")
"""Reasons that time cures: slurm_strerror of ESLURM_NODES_BUSY and ESLURM_CAN_NOT_START_IMMEDIATELY (slurm_errno.c)."""

_SHOWN = 3
"""Lines of what was printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """How one step went: a job of the doctor on one node or several."""

    nodes: tuple[str, ...]
    said: tuple[str, ...]
    """What was printed, last line last."""
    late_s: float | None = None
    """After how long it was ended from outside; None where it ended itself."""
    begun: frozenset[str] = frozenset()
    """Nodes on which hpcserve is known to have started."""


def unheard(asked: Asked, heard: Collection[str], *, wait_s: float) -> Iterator[Finding]:
    """Findings for those nodes that are not among the heard, none where all are; `wait_s` is what the user gave."""
    silent = tuple(name for name in asked.nodes if name not in heard)
    if not silent:
        return
    refusal = next((line.partition(_REFUSED)[2] for line in reversed(asked.said) if _REFUSED in line), None)
    if refusal is not None:
        yield _refused(silent, refusal, wait_s=wait_s)
    elif asked.late_s is not None:
        yield from _late(asked, silent, asked.late_s)
    else:
        said = " / ".join(line.strip() for line in asked.said[-_SHOWN:]) or "nothing was printed"
        yield Finding(
            check="node",
            severity=Severity.FAILURE,
            what=f"no report: {said}",
            nodes=silent,
            why="hpcserve cannot be started there",
            remedy="see `runtimes.hpcserve` and `paths.jobs` of the site file: every node must see both",
        )


def _refused(silent: tuple[str, ...], refusal: str, *, wait_s: float) -> Finding:
    busy = any(reason in refusal for reason in _BUSY)
    return Finding(
        check="node",
        severity=Severity.WARNING,
        what=f"not free within {wait_s:g} s" if busy else f"Slurm gave no job there: {refusal}",
        nodes=silent,
        why="they were not looked at",
        remedy="look again later, or with a longer --wait"
        if busy
        else "see what `slurm-dialect` found, and `partitions` of the site file",
    )


def _late(asked: Asked, silent: tuple[str, ...], late_s: float) -> Iterator[Finding]:
    """Who began is slow, or hangs in one check; who did not may be either: neither is known to be unfit."""
    begun = tuple(name for name in silent if name in asked.begun)
    others = tuple(name for name in silent if name not in asked.begun)
    if begun:
        yield Finding(
            check="node",
            severity=Severity.WARNING,
            what=f"began, and was not done within {late_s:g} s",
            nodes=begun,
            why="what is wrong there, if anything, was not seen; engines may take as long to start",
            remedy="look again with a longer --wait, and at one of them alone with --nodes",
        )
    if others:
        said = " / ".join(line.strip() for line in asked.said[-_SHOWN:])
        yield Finding(
            check="node",
            severity=Severity.WARNING,
            what=f"no sign within {late_s:g} s" + (f": {said}" if said else ""),
            nodes=others,
            why="they were not looked at: hpcserve did not come up there in that time",
            remedy="look again with a longer --wait; where it stays so, `runtimes.hpcserve` or `paths.jobs` of the site"
            " file hang on that node",
        )

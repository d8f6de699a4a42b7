"""What Slurm says of the near future: which nodes are idle, and when a job would start. Nothing is submitted."""

import re
from collections.abc import Iterator, Sequence

from hpcserve.scheduler.commands import ask

__all__ = ["estimated_start", "idle_nodes", "jobless_nodes", "parse_idle", "parse_jobless", "parse_start"]

_JOBLESS = frozenset({"idle", "down", "drain"})
"""States of nodes without a job; one that drains and holds one is `drng` (sinfo(1))."""
_START = re.compile(r"to start at (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)")


def idle_nodes(partition: str) -> frozenset[str] | None:
    """Nodes of the partition on which a job could start now; None where Slurm does not answer."""
    answer = ask("sinfo", "--noheader", "--Node", f"--partition={partition}", "--format=%N %t")
    return parse_idle(answer.output) if answer.code == 0 else None


def parse_idle(text: str) -> frozenset[str]:
    """Names in `NODE STATE` lines of sinfo whose state is plainly `idle`.

    A mark behind it says that the node does not answer, sleeps, is reserved or planned for another job (sinfo(1)).
    """
    return frozenset(name for name, state in _states(text) if state == "idle")


def jobless_nodes() -> frozenset[str] | None:
    """Nodes of the cluster that hold no job, whether one could start there or not; None where Slurm does not answer."""
    answer = ask("sinfo", "--noheader", "--Node", "--all", "--format=%N %t")
    return parse_jobless(answer.output) if answer.code == 0 else None


def parse_jobless(text: str) -> frozenset[str]:
    """Names in `NODE STATE` lines of sinfo whose state, its marks aside, is one of nodes without a job."""
    return frozenset(name for name, state in _states(text) if state.rstrip("*~#!%$@^-+") in _JOBLESS)


def _states(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        name, _, state = line.strip().partition(" ")
        if name and state:
            yield name, state.strip()


def estimated_start(options: Sequence[str]) -> str | None:
    """When a job with these options of sbatch would start, as Slurm estimates; None where it does not say."""
    answer = ask("sbatch", "--test-only", *options, "--wrap=true")
    return parse_start(f"{answer.output}\n{answer.complaint}")


def parse_start(text: str) -> str | None:
    """The time in what `sbatch --test-only` prints: `sbatch: Job 7 to start at 2026-05-31T12:00:00 using ...`."""
    match = _START.search(text)
    return match[1] if match is not None else None

"""What Slurm's commands print -> plain values. Every function takes text and touches nothing."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from hpcserve.site import HostListError, expand_hosts

__all__ = [
    "JobRow",
    "array_tasks",
    "explain_refusal",
    "is_unknown_job",
    "job_row",
    "parse_sacct",
    "parse_squeue",
    "parse_submitted",
    "stuck_step",
]

SQUEUE_FORMAT = "%i|%T|%r|%N|%S"
SACCT_FORMAT = "JobID,State,ExitCode,NodeList,Start"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """One job as squeue or sacct shows it."""

    id: str
    state: str
    reason: str = ""
    nodes: tuple[str, ...] = ()
    exit_code: int | None = None
    start: str | None = None
    """When it started or is expected to; None where Slurm does not say."""


_SUBMITTED = re.compile(r"^(\d+)(?:;(\S+))?$")


def parse_submitted(output: str) -> str | None:
    """The job id in the output of `sbatch --parsable`, `ID` or `ID;CLUSTER`; None where there is none.

    Sites wrap sbatch and print words around it: the last line that is an id counts.
    """
    ids = [line.strip() for line in output.splitlines() if _SUBMITTED.match(line.strip())]
    return ids[-1] if ids else None


def parse_squeue(output: str) -> dict[str, JobRow]:
    """Rows of `squeue --noheader --format=SQUEUE_FORMAT`, by job id. A reason may hold any text but line ends."""
    rows: dict[str, JobRow] = {}
    for line in output.splitlines():
        parts = line.split("|")
        if len(parts) < SQUEUE_FORMAT.count("|") + 1:
            continue
        identity, state, *reason, nodes, start = parts
        for task in array_tasks(identity.strip()):
            rows[task] = JobRow(
                id=task,
                state=state.strip(),
                reason="|".join(reason).strip(),
                nodes=_nodes(nodes),
                start=_time(start),
            )
    return rows


def parse_sacct(output: str) -> dict[str, JobRow]:
    """Job rows of `sacct --parsable2 --duplicates --format=SACCT_FORMAT` with its header, by job id.

    Rows of steps (`4242.0`, `4242.batch`) say nothing of the job and are left out; of a job that was requeued the
    newest row counts, which sacct prints last.
    """
    lines = output.splitlines()
    if not lines:
        return {}
    columns = lines[0].split("|")
    rows: dict[str, JobRow] = {}
    for line in lines[1:]:
        cells = dict(zip(columns, line.split("|"), strict=False))
        identity = cells.get("JobID", "")
        if not identity or "." in identity or "State" not in cells:
            continue
        code, _, _signal = cells.get("ExitCode", "").partition(":")
        for task in array_tasks(identity):
            rows[task] = JobRow(
                id=task,
                state=cells["State"].split()[0],  # `CANCELLED by 1000`
                nodes=_nodes(cells.get("NodeList", "")),
                exit_code=int(code) if code.isdigit() else None,
                start=_time(cells.get("Start", "")),
            )
    return rows


_ARRAY = re.compile(r"^(\d+)_\[([0-9,:%-]+)\]$")


def array_tasks(identity: str) -> tuple[str, ...]:
    """Every task behind a job id: `7_[2-5%2]` is four pending tasks of which two may run at once."""
    match = _ARRAY.match(identity)
    if match is None:
        return (identity,)
    return tuple(f"{match[1]}_{index}" for index in _indexes(match[2].partition("%")[0]))


def _indexes(text: str) -> Iterator[int]:
    for part in text.split(","):
        span, _, step = part.partition(":")
        first, _, last = span.partition("-")
        yield from range(int(first), int(last or first) + 1, int(step or 1))


def job_row(rows: Mapping[str, JobRow], job: str) -> JobRow | None:
    """The row of a job; None where there is none.

    A heterogeneous job has a row for each component, `7+0`, `7+1`: as its script runs in the first, that one's state
    and exit code are the job's. Nodes are those of all; all wait until the last of them can start.
    """
    if job in rows:
        return rows[job]
    numbered = {row.id.removeprefix(f"{job}+"): row for row in rows.values() if row.id.startswith(f"{job}+")}
    parts = [numbered[number] for number in sorted(filter(str.isdigit, numbered), key=int)]
    if not parts:
        return None
    return replace(
        parts[0],
        id=job,
        reason=next((row.reason for row in parts if row.reason not in {"", "None"}), parts[0].reason),
        nodes=tuple(node for row in parts for node in row.nodes),
        start=max((row.start for row in parts if row.start is not None), default=None),
    )


def _nodes(expression: str) -> tuple[str, ...]:
    expression = expression.strip()
    if expression in {"", "None assigned", "(null)"}:
        return ()
    try:
        return expand_hosts(expression)
    except HostListError:
        return (expression,)  # squeue cuts long lists: better shown as it is than not at all


def _time(text: str) -> str | None:
    return None if text.strip() in {"", "N/A", "Unknown", "None"} else text.strip()


def is_unknown_job(stderr: str) -> bool:
    """Whether Slurm says that it does not know the job (any more), as against not answering."""
    return "Invalid job id specified" in stderr


_STUCK = (
    ("step creation temporarily disabled", "Slurm keeps the agents' step waiting: another step holds the nodes"),
    ("step creation still disabled", "Slurm keeps the agents' step waiting: another step holds the nodes"),
    ("Unable to create step", "Slurm did not start the agents on the nodes"),
    ("Unable to confirm allocation", "Slurm does not confirm the job's own allocation"),
    ("are mutually exclusive", "srun was given two memory limits at once"),
    ("Requested nodes are busy", "Slurm keeps the agents' step waiting: another step holds the nodes"),
)


def stuck_step(log: Iterable[str]) -> str | None:
    """Why the agents' step does not start, from the lines that srun printed; None where nothing says so."""
    for line in log:
        for pattern, words in _STUCK:
            if pattern in line and "srun" in line:
                return f"{words} ({line.strip()})"
    return None


_REFUSALS = (
    ("Job violates accounting/QOS policy", "a limit of your account or QOS is reached: end a job, or ask for less"),
    ("Invalid account", "correct `account` in the service (`sacctmgr show associations user=$USER` lists yours)"),
    ("invalid partition", "correct `partition` in the service (`sinfo` lists them)"),
    ("Requested node configuration is not available", "ask for fewer nodes or GPUs, or correct the site file"),
    ("Requested time limit is invalid", "lower `time` in the service"),
    ("Invalid job array specification", "use fewer tasks: `scontrol show config` names MaxArraySize"),
    ("DOS line breaks", "save the template with plain line ends"),
    ("Unable to contact slurm controller", "try again, or ask the site whether Slurm is down"),
    ("Could not establish a configuration source", "run this on a login node of the cluster, or set SLURM_CONF"),
    ("Invalid --switches", "set `switches_option: false` in the site file"),
    ("Invalid generic resource", "correct `gpu_request` in the site file"),
    ("Invalid node name", "the site file names a node that Slurm does not know"),
)


def explain_refusal(stderr: str) -> str:
    """What to do about what sbatch said; empty where nothing better than its own words is known."""
    return next((remedy for pattern, remedy in _REFUSALS if pattern.lower() in stderr.lower()), "")

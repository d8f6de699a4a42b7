"""What a cluster's tools print, collected here and in a short job step on a few of its nodes.

In: which nodes. Out: `Collected`. May touch: processes; it asks Slurm and reads, and changes nothing.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from hpcserve.doctor import Ran, run_command
from hpcserve.errors import InputError, MissingToolError, NotFoundError, SchedulerError
from hpcserve.provision.collect_commands import COMMAND_WITHIN_S, HERE, MARK, ON_A_NODE, script_of_a_node
from hpcserve.site.slurm_text import NodeFacts, parse_show_node

__all__ = ["Collected", "Printed", "collect"]

_HERE_WITHIN_S = 60.0
_NODE_STARTS_WITHIN_S = 30
_NODE_WITHIN_S = _NODE_STARTS_WITHIN_S + len(ON_A_NODE) * COMMAND_WITHIN_S + 30.0
_GRACE_S = 10.0
_NOT_FOUND = "127"  # as a shell says it
_LONGEST_WORDS = 200
_QUIET = frozenset({"IDLE", "MIXED"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """What one command printed, and the node where it ran on one."""

    kind: str
    text: str
    host: str | None = None
    needed: bool = False
    """Whether an import is worth nothing without it."""

    @property
    def source(self) -> str:
        """Where it came from, for people."""
        return self.kind if self.host is None else f"{self.host}: {self.kind}"


@dataclass(frozen=True, kw_only=True)
class Collected:
    """Everything that was printed, and what could not be asked, in words."""

    texts: tuple[Printed, ...]
    notes: tuple[str, ...] = field(default=())


def collect(
    *,
    nodes: Sequence[str] | None,
    account: str | None,
    environment: Mapping[str, str],
    say: Callable[[str], None],
) -> Collected:
    """Ask Slurm and the fabric here, and the tools of `nodes`, one node of each kind where None is given.

    `account` is charged for the steps, None where Slurm wants none; `environment` is what the commands are started
    with. `say` gets each command before it runs. A tool that is missing or fails is noted; raises MissingToolError or
    SchedulerError where Slurm itself cannot be asked.
    """
    texts: list[Printed] = []
    notes: list[str] = []
    plain = {**environment, "LC_ALL": "C"}
    for command in HERE:
        say(" ".join(command.argv))
        ran = run_command(command.argv, timeout_s=_HERE_WITHIN_S, grace_s=_GRACE_S, environment=plain)
        if not ran.trouble and ran.output.strip():
            texts.append(Printed(kind=command.kind, text=ran.output, needed=command.needed))
            continue
        said = "no such command here" if ran.missing else _complaint(ran) or "it printed nothing"
        if not command.needed:
            notes.append(f"{' '.join(command.argv)}: {said}")
        elif ran.missing:
            raise MissingToolError(
                f"there is no {command.argv[0]} on this machine",
                remedy="run this on a login node of the cluster, or collect files: site import --print-commands",
            )
        else:
            raise SchedulerError(f"{' '.join(command.argv)}: {said}", remedy="cure that and import again")
    known = _nodes_in(texts)
    for host in nodes if nodes is not None else _one_of_each(known, notes):
        if host not in known:
            raise NotFoundError(f"Slurm knows no node {host}", remedy="`sinfo -N` lists its nodes")
        argv = _step(host, known[host], account)
        said = "; ".join(command for _, command in ON_A_NODE[:-1])
        say(f"{' '.join(argv)} '...', which runs: {said}; grep of /sys")
        ran = run_command((*argv, script_of_a_node()), timeout_s=_NODE_WITHIN_S, grace_s=_GRACE_S, environment=plain)
        found, told = _sections(ran.output or ran.unfinished, host)
        texts += found
        notes += told
        if ran.trouble and not found:
            said = _complaint(ran)
            wants_account = account is None and "account" in said.lower()
            notes.append(f"{host} was not asked: {said}" + ("; name one with --account" if wants_account else ""))
    return Collected(texts=tuple(texts), notes=tuple(notes))


def _nodes_in(texts: Sequence[Printed]) -> dict[str, NodeFacts]:
    text = next(one.text for one in texts if one.kind == "scontrol-show-node")
    try:
        listed = parse_show_node(text, "scontrol show node").nodes
    except InputError as error:
        raise SchedulerError(f"scontrol show node printed what is not understood: {error}") from None
    return {host: facts for facts in listed for host in facts.hosts}


def _one_of_each(known: dict[str, NodeFacts], notes: list[str]) -> list[str]:
    """For each kind of hardware the first node on which a job can start now."""
    alike: dict[tuple[object, ...], list[str]] = {}
    for host, facts in known.items():
        gpus = None if facts.gres is None else tuple(sorted(facts.gres.types.items()))
        alike.setdefault((facts.cpus, facts.memory_mib, gpus), []).append(host)
    chosen: list[str] = []
    for hosts in alike.values():
        free = [host for host in hosts if known[host].usable and _is_quiet(known[host])]
        if free:
            chosen.append(free[0])
        else:
            more = f" and {len(hosts) - 1} more alike" if hosts[1:] else ""
            notes.append(f"{hosts[0]}{more}: none is free to be asked; name one with --nodes when one is")
    return chosen


def _is_quiet(facts: NodeFacts) -> bool:
    return bool(_QUIET.intersection(re.split(r"[^A-Z]+", (facts.state or "").upper())))


def _step(host: str, facts: NodeFacts, account: str | None) -> list[str]:
    """The command of a job step on one node, up to the script that it runs there."""
    gpus = facts.gres.gpus if facts.gres is not None else 0
    return [
        "srun",
        "--job-name=hpcserve-import",
        "--nodes=1",
        "--ntasks=1",
        f"--nodelist={host}",
        *([f"--partition={facts.partitions[0]}"] if facts.partitions else []),
        *([f"--account={account}"] if account is not None else []),
        *([f"--gres=gpu:{gpus}"] if gpus else []),
        f"--immediate={_NODE_STARTS_WITHIN_S}",
        f"--time={1 + int(_NODE_WITHIN_S) // 60}",
        "bash",
        "-c",
    ]


def _sections(output: str, host: str) -> tuple[list[Printed], list[str]]:
    texts: list[Printed] = []
    notes: list[str] = []
    lines: list[str] = []
    for line in output.splitlines():
        mark = MARK.match(line)
        if mark is None:
            lines.append(line)
            continue
        if mark[1] == "end":
            text = "\n".join(lines).rstrip("\n") + "\n"
            if mark[3] == "0" and text.strip():
                texts.append(Printed(kind=mark[2], text=text, host=host))
            elif mark[3] == _NOT_FOUND:
                notes.append(f"{host}: {mark[2]}: no such command there")
            else:
                notes.append(f"{host}: {mark[2]}: {_words(text) or 'it printed nothing'}")
        lines = []
    return texts, notes


def _complaint(ran: Ran) -> str:
    """Why a command was of no use, in its own words where it has any; empty where it only printed nothing."""
    return _words(ran.trouble if ran.late else ran.complaints or ran.output or ran.trouble)


def _words(text: str) -> str:
    """The first line that says something, short enough for a note."""
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return first if len(first) <= _LONGEST_WORDS else first[: _LONGEST_WORDS - 3] + "..."

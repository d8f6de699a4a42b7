"""What `sinfo` prints, with its header: by partition, or node by node (`-N`), in the columns that were asked for."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from hpcserve.site.mistakes import Mistakes, Place
from hpcserve.site.slurm_text.fields import gres_of, limit_of, number_of, state_of, text_of, words_of
from hpcserve.site.slurm_text.machines import MachineList, NodeFacts, PartitionFacts
from hpcserve.site.slurm_text.names import Names
from hpcserve.site.slurm_text.settings import Setting

__all__ = ["is_header", "parse_sinfo"]

_NAMES = frozenset({"NODELIST", "HOSTNAMES", "NODENAME", "NODEHOST"})
_KNOWN = _NAMES | frozenset(
    {"PARTITION", "AVAIL", "TIMELIMIT", "NODES", "STATE", "GRES", "CPUS", "S:C:T", "MEMORY", "OVERSUBSCRIBE"}
)
_WORD = re.compile(r"[^\s|]+")
_CELL = re.compile(r"\S+")


@dataclass(slots=True)
class _Partition:
    default: bool = False
    up: bool | None = None
    max_time: str | None = None
    exclusive: bool | None = None
    hosts: dict[str, None] = field(default_factory=dict)


@dataclass(slots=True)
class _Row:
    """The first line of a node, and every partition that has a line for it."""

    cells: dict[str, Setting]
    partitions: dict[str, None] = field(default_factory=dict)


def is_header(line: str) -> bool:
    """Whether a line heads the table of sinfo: names of columns only, one of nodes among them."""
    words = [word for word in _WORD.findall(line[:1000]) if word]
    return len(words) > 1 and bool(_NAMES & set(words)) and len(_KNOWN & set(words)) > 1 and line.upper() == line


def parse_sinfo(text: str, source: str) -> MachineList:
    """The nodes and partitions of a table; raises InputError with every mistake.

    Columns are cut at `|` where the header has it, else at blanks. A node in several partitions has one line for each.
    """
    mistakes = Mistakes(source)
    names = Names(mistakes)
    lines = list(enumerate(text.split("\n"), start=1))
    header_at = next((index for index, (_, line) in enumerate(lines) if is_header(line.strip())), None)
    if header_at is None:
        mistakes.add(
            Place(1, 1), "no header", "sinfo's table with NODELIST among its columns was wanted", "leave out -h"
        )
        mistakes.check()
        return MachineList()
    header = lines[header_at][1]
    columns = [word.strip() for word in (header.split("|") if "|" in header else header.split())]
    partitions: dict[str, _Partition] = {}
    rows: dict[str, _Row] = {}
    for number, line in lines[header_at + 1 :]:
        if not line.strip() or is_header(line.strip()):
            continue
        row = _row(line, number, columns, piped="|" in header)
        missing = [column for column in columns if column not in row]
        if missing and missing != columns[-1:]:
            mistakes.add(
                Place(number, 1),
                f"a line without {missing[0]}",
                f"{len(columns)} columns were wanted",
                "collect the text again, with `|` between the columns: sinfo -N -o '%N|%P|%t|%G|%f'",
            )
            continue
        _read(row, partitions, rows, names)
    alike: dict[tuple[int, tuple[str, ...]], tuple[dict[str, Setting], list[str]]] = {}
    for host, of_host in rows.items():
        key = (id(of_host.cells), tuple(of_host.partitions))
        alike.setdefault(key, (of_host.cells, []))[1].append(host)
    nodes = tuple(
        _nodes(tuple(hosts), cells, partitions_of, mistakes) for (_, partitions_of), (cells, hosts) in alike.items()
    )
    mistakes.check()
    return MachineList(
        nodes=nodes,
        partitions=tuple(
            PartitionFacts(
                name=name,
                hosts=tuple(one.hosts),
                default=one.default,
                up=one.up,
                max_time=one.max_time,
                exclusive=one.exclusive,
            )
            for name, one in partitions.items()
        ),
    )


def _row(line: str, number: int, columns: list[str], *, piped: bool) -> dict[str, Setting]:
    cells: list[tuple[int, str]] = []
    if piped:
        start = 0
        for cell in line.split("|", len(columns) - 1):
            cells.append((start, cell.strip()))
            start += len(cell) + 1
    else:
        for match in _CELL.finditer(line):
            if len(cells) == len(columns):
                break
            cells.append((match.start(), match[0]))
    return {
        column: Setting(column, cell, number, start + 1, number, start + 1)
        for column, (start, cell) in zip(columns, cells, strict=False)
    }


def _read(row: dict[str, Setting], partitions: dict[str, _Partition], rows: dict[str, _Row], names: Names) -> None:
    listed = next((row[name] for name in _NAMES if name in row and row[name].value), None)
    hosts = () if listed is None else names.expand(listed.value, listed.value_place)
    partition = row["PARTITION"].value if "PARTITION" in row else ""
    for host in hosts:
        of_host = rows.get(host)
        if of_host is None:
            of_host = rows[host] = _Row(row)
        if partition:
            of_host.partitions[partition.rstrip("*")] = None
    if not partition or partition.lower() in {"n/a", "(null)"}:
        return
    one = partitions.setdefault(partition.rstrip("*"), _Partition())
    one.default |= partition.endswith("*")
    one.max_time = limit_of(row, "TIMELIMIT") or one.max_time
    if available := text_of(row, "AVAIL"):
        one.up = available.lower() == "up"
    if share := text_of(row, "OVERSUBSCRIBE"):
        one.exclusive = share.upper().startswith("EXCL")
    one.hosts.update(dict.fromkeys(hosts))


def _nodes(
    hosts: tuple[str, ...], row: Mapping[str, Setting], partitions: tuple[str, ...], mistakes: Mistakes
) -> NodeFacts:
    state, usable = state_of(row, "STATE", mistakes)
    shape = (text_of(row, "S:C:T") or "").split(":")
    sizes = [int(word) if word.isascii() and word.isdigit() and len(word) < 6 else None for word in shape]  # noqa: PLR2004
    sockets, cores, threads = sizes if len(sizes) == 3 else (None, None, None)  # noqa: PLR2004
    return NodeFacts(
        hosts=hosts,
        gres=gres_of(row, "GRES", mistakes),
        memory_mib=number_of(_without_plus(row, "MEMORY"), "MEMORY", mistakes),
        cpus=number_of(_without_plus(row, "CPUS"), "CPUS", mistakes),
        sockets=sockets,
        cores_per_socket=cores,
        threads_per_core=threads,
        features=words_of(row, "ACTIVE_FEATURES", "AVAIL_FEATURES", "FEATURES"),
        state=state,
        usable=usable,
        partitions=partitions,
    )


def _without_plus(row: Mapping[str, Setting], key: str) -> dict[str, Setting]:
    """The cell, unless it ends in `+`: then it is the least of several nodes that differ."""
    setting = row.get(key)
    return {} if setting is None or setting.value.endswith("+") else {key: setting}

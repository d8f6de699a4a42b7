"""`lscpu`, as lines or with `-J`: processors and NUMA nodes."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from hpcserve.site.host_text.host import Cores
from hpcserve.site.mistakes import Mistakes
from hpcserve.site.tool_text import MOST_LINES_OF_A_HOST, Line, lines_of

__all__ = ["looks_like_lscpu", "parse_lscpu"]

_WANTED = "what `lscpu` prints (LC_ALL=C)"
_KEY = re.compile(r"([A-Za-z][A-Za-z0-9() _./-]{0,60}):\s{0,64}(.*)$")
_NUMA = re.compile(r"NUMA node([0-9]{1,5}) CPU\(s\)")
_CPUS = re.compile(r"[0-9]{1,6}(?:-[0-9]{1,6})?(?:,[0-9]{1,6}(?:-[0-9]{1,6})?)*")
_COUNT = re.compile(r"[0-9]{1,6}")
_LOOKS = re.compile(r'^(?:[A-Za-z0-9.-]{1,253}: )?Architecture:|"lscpu"\s{0,8}:', re.MULTILINE)


def looks_like_lscpu(text: str) -> bool:
    """Whether a text holds the first line of lscpu or is its JSON."""
    return _LOOKS.search(text[:65536]) is not None


def parse_lscpu(text: str, source: str) -> Cores:
    """The processors; raises InputError without a count of CPUs, and for NUMA nodes whose CPUs are no list."""
    mistakes = Mistakes(source)
    is_json = text.lstrip().startswith("{")
    pairs = list(
        _json_pairs(text, mistakes) if is_json else _pairs(lines_of(text, mistakes, most=MOST_LINES_OF_A_HOST))
    )
    values: dict[str, str] = {}
    numa: dict[int, str] = {}
    for line, key, value in pairs:
        values.setdefault(key, value)
        if key.startswith("NUMA") and (match := _NUMA.fullmatch(key)):
            if value and not _CPUS.fullmatch(value):
                place = None if line is None else line.at()
                mistakes.add(place, f"CPUs `{value[:60]}` of a NUMA node", "a list, 0-23,96-119", "give it unchanged")
            numa[int(match[1])] = value
    count = _whole(values.get("CPU(s)"))
    if count is None and not mistakes.found:
        mistakes.add(None, "no line `CPU(s):`", _WANTED, "give the whole output")
    if count is None or mistakes.found:
        raise mistakes.error()
    return Cores(
        cpus=count,
        threads_per_core=_whole(values.get("Thread(s) per core")),
        cores_per_socket=_whole(values.get("Core(s) per socket")),
        sockets=_whole(values.get("Socket(s)")),
        model=values.get("Model name") or None,
        architecture=values.get("Architecture") or None,
        numa_cpus=dict(sorted(numa.items())),
    )


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and _COUNT.fullmatch(text) else None


def _pairs(lines: Sequence[Line]) -> Iterator[tuple[Line | None, str, str]]:
    for line in lines:
        # Newer ones indent and leave a head such as `NUMA:` without a value.
        if match := _KEY.fullmatch(line.text.strip()):
            yield line, match[1], match[2].strip()


def _json_pairs(text: str, mistakes: Mistakes) -> Iterator[tuple[Line | None, str, str]]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        mistakes.add(None, "text that begins as JSON and is none", "what `lscpu -J` prints", "give the whole output")
        return
    pending: list[Any] = [document.get("lscpu")] if isinstance(document, dict) else []
    while pending:
        entries = pending.pop(0)
        for entry in entries if isinstance(entries, list) else []:
            if isinstance(entry, dict):
                yield None, str(entry.get("field")).removesuffix(":"), str(entry.get("data") or "")
                pending.append(entry.get("children"))

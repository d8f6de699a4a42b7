"""What the InfiniBand tools print instead of an answer, and what to do about it."""

import re
from collections.abc import Sequence

from hpcserve.site.mistakes import Mistakes
from hpcserve.site.tool_text import Line, lines_of

__all__ = ["find_failure", "is_chatter", "looks_like_failure", "parse_failure"]

_CHATTER = re.compile(
    r"(?:ibwarn|ibpanic|iberror|[a-z0-9-]{2,32}: iberror)\b.{0,16}[:;]"
    r"|(?:\./)?[A-Za-z][A-Za-z0-9_./-]{0,100}\.c:[0-9]{1,6};"
    r"|Failed to open .{0,64} port|Fatal error: {1,4}No devices"
)
_NO_ACCESS = re.compile(r"UMAD port|umad|Permission denied|/dev/infiniband", re.IGNORECASE)
_NO_DEVICE = re.compile(
    r"stat of IB device|No such file or directory|No devices|no (?:IB|RDMA) device|can't find.{0,80}(?:HCA|device)",
    re.IGNORECASE,
)
_NO_MANAGER = re.compile(r"\bSM\b|sminfo|no subnet manager|SubnGet", re.IGNORECASE)
_NOT_THERE = re.compile(
    r"(?:^|[\s:/])(?:ib[a-z]{2,20}|sminfo|opensm): {0,2}"
    r"(?:command not found|not found|No such file|error while loading shared libraries)"
)
_SAYINGS = ("not found", "No such file", "error while loading")
_FATAL = re.compile(r"ibpanic|iberror|fail", re.IGNORECASE)

_FIRST = 5000
"""Lines among which a complaint is looked for."""
_ENOUGH = 50
"""Lines of complaint that are searched for their reason."""
_TOPOLOGY_INSTEAD = (
    "as root on a node of the fabric, or where the fabric is RoCE or Ethernet give Slurm's topology.conf or write the"
    " switches into the site file by hand, and leave this file out"
)


def is_chatter(line: str) -> bool:
    """Whether a line is a warning or error of the tools or the shell (their stderr), and no data."""
    return _CHATTER.match(line) is not None or _says_not_there(line)


def _says_not_there(line: str) -> bool:
    # The plain search first: nearly no line holds either, and the pattern is slow.
    return any(one in line for one in _SAYINGS) and _NOT_THERE.search(line) is not None


def looks_like_failure(text: str) -> bool:
    """Whether a text is nothing but such lines, or says that the tool is not there."""
    lines = [line for line in text[:65536].split("\n") if line.strip()]
    return bool(lines) and all(is_chatter(line) for line in lines)


def find_failure(lines: Sequence[Line], mistakes: Mistakes, *, wanted: str) -> bool:
    """Whether the lines hold a tool's error; adds the mistake, with what to do about it."""
    said = [line for line in lines[:_FIRST] if is_chatter(line.text)]
    if not said:
        return False
    blamed = next((line for line in said if _FATAL.search(line.text)), said[-1])
    text = "\n".join(line.text for line in said[:_ENOUGH])
    if any(_says_not_there(line.text) for line in said[:_ENOUGH]):
        remedy = "install infiniband-diags there, or collect the text on a node that has it"
    elif _NO_ACCESS.search(text):
        remedy = f"the tool may not use the InfiniBand device, or there is none: run it {_TOPOLOGY_INSTEAD}"
    elif _NO_DEVICE.search(text):
        remedy = f"this host has no InfiniBand adapter: run it {_TOPOLOGY_INSTEAD}"
    elif _NO_MANAGER.search(text):
        remedy = "no subnet manager answers: start opensm or the switch's own, then collect again"
    else:
        remedy = f"run it {_TOPOLOGY_INSTEAD}"
    mistakes.add(blamed.at(), f"the tool failed: {blamed.text[:200].strip()}", wanted, remedy)
    return True


def parse_failure(text: str, source: str) -> None:
    """Raise InputError that says why the tool gave no answer, and what to do."""
    mistakes = Mistakes(source)
    lines = lines_of(text, mistakes)
    if not find_failure(lines, mistakes, wanted="what an InfiniBand tool prints"):
        mistakes.add(None, "no output of an InfiniBand tool", "such output", "give another --kind")
    mistakes.check()

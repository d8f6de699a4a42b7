"""`ibnetdiscover -p`: one line for each port."""

import re

from hpcserve.site.infiniband_text.assemble import PortRow, SeenEnd, assemble
from hpcserve.site.infiniband_text.descriptions import short_guid
from hpcserve.site.infiniband_text.failures import find_failure, is_chatter
from hpcserve.site.infiniband_text.net import InfinibandNet
from hpcserve.site.infiniband_text.rates import LinkRate
from hpcserve.site.mistakes import Mistakes
from hpcserve.site.tool_text import lines_of

__all__ = ["looks_like_port_list", "parse_port_list"]

_WANTED = "lines of `ibnetdiscover -p`"
_END = r"(CA|SW|RT)\s{1,8}(\d{1,6})\s{1,8}(\d{1,5})\s{1,8}(0x[0-9a-fA-F]{1,16})"
_NEAR = re.compile(_END + r"\s{1,8}(\d{1,2}x|\?\?)\s{1,8}([A-Z]{3}(?:10)?|\?\?\?)(.*)$")
_FAR = re.compile(r"\s{1,8}-\s{1,8}" + _END + r"\s{1,8}\((.*)\)")
_LOOKS = re.compile(
    r"^(?:[A-Za-z0-9.-]{1,253}: ?)?(?:CA|SW)\s{1,8}\d{1,6}\s{1,8}\d{1,5}\s{1,8}0x[0-9a-fA-F]{1,16}\s", re.MULTILINE
)


def looks_like_port_list(text: str) -> bool:
    """Whether a text holds such a line."""
    return _LOOKS.search(text) is not None


def parse_port_list(text: str, source: str) -> InfinibandNet:
    """The net; raises InputError for lines of no known form and for text without any port."""
    mistakes = Mistakes(source)
    lines = lines_of(text, mistakes)
    rows: list[PortRow] = []
    warnings: list[str] = []
    for line in lines:
        content = line.text.strip()
        if content[0] in "#$":
            continue
        row = _row(content)
        if row is not None:
            rows.append(row)
        elif is_chatter(content):
            warnings.append(f"line {line.number}: {content[:200]}")
        else:
            mistakes.add(
                line.at(),
                f"a line that is no port: {content[:80]}",
                "`CA LID PORT 0xGUID 4x HDR - SW LID PORT 0xGUID ( 'name' - 'name' )`, or without the part from `-` on",
                "give the output unchanged",
            )
    if not rows and not mistakes.found and not find_failure(lines, mistakes, wanted=_WANTED):
        mistakes.add(None, "no port", _WANTED, "give the whole output")
    mistakes.check()
    return assemble(rows, warnings=warnings)


def _row(content: str) -> PortRow | None:
    match = _NEAR.fullmatch(content)
    if match is None:
        return None
    rest = match[7]
    linked = _FAR.fullmatch(rest)
    if linked is None:
        name = rest.strip().strip("'")
        # A dash is how a far end begins: one that does not read as such is no name.
        return None if name.startswith("- ") else PortRow(near=_end(match.groups()[:4], name), far=None)
    near_name, far_name = _names(linked[5])
    return PortRow(
        near=_end(match.groups()[:4], near_name),
        far=_end(linked.groups()[:4], far_name),
        rate=LinkRate.named(match[5] + match[6]),
    )


def _end(fields: tuple[str, ...], name: str) -> SeenEnd:
    kind, lid, port, guid = fields
    return SeenEnd(
        name=name.strip(), port=int(port), guid=short_guid(guid), lid=int(lid) or None, is_switch=kind != "CA"
    )


def _names(text: str) -> tuple[str, str]:
    """Both names of `'node01 HCA-1' - 'leaf1'`, where quotes may be missing."""
    near, dash, far = text.strip().partition("' - '")
    if not dash:
        near, _, far = text.strip().partition(" - ")
    return near.strip().strip("'"), far.strip().strip("'")

"""`ibnetdiscover`: one block for each switch and adapter, one line in it for each port that is linked."""

import re
from collections.abc import Sequence

from hpcserve.site.infiniband_text.assemble import PortRow, SeenEnd, assemble
from hpcserve.site.infiniband_text.descriptions import short_guid
from hpcserve.site.infiniband_text.failures import find_failure, is_chatter
from hpcserve.site.infiniband_text.net import InfinibandNet
from hpcserve.site.infiniband_text.rates import LinkRate
from hpcserve.site.mistakes import Mistakes
from hpcserve.site.tool_text import Line, lines_of

__all__ = ["looks_like_ibnetdiscover", "parse_ibnetdiscover"]

_WANTED = "what `ibnetdiscover` prints without options"
_NODE = re.compile(r'(Switch|Ca|Rt)\s{1,8}(\d{1,5})\s{1,8}"([SHR]-[0-9a-fA-F]{1,16})"\s{1,16}#\s{0,4}"(.*)$')
_OWN_LID = re.compile(r'(.*)"\s{1,8}(?:base|enhanced) port 0 lid (\d{1,6})\b.*')
# [port][ext N](own port's GUID) "far node"[far port][ext N](far port's GUID) # what is known of the far end
_PORT = re.compile(
    r"\[(\d{1,5})\](?:\[ext \d{1,5}\])?(?:\([0-9a-fA-F]{1,16}\))?\s{0,8}"
    r'"([SHR]-[0-9a-fA-F]{1,16})"\[(\d{1,5})\](?:\[ext \d{1,5}\])?(?:\([0-9a-fA-F]{1,16}\))?\s{0,16}#\s{0,4}(.*)$'
)
_NO_LINK = re.compile(r"\[(\d{1,5})\](?:\[ext \d{1,5}\])?(?:\([0-9a-fA-F]{1,16}\))?")
_FAR = re.compile(r'"(.*)"\s{1,4}lid (\d{1,6})\b(.*)')
_OWN = re.compile(r"lid \d{1,6} lmc \d{1,3}\s{1,8}")
_RATE = re.compile(r"\d{1,2}x[A-Z]{3}(?:10)?")
_IGNORED = re.compile(r"(?:#|vendid=|devid=|sysimgguid=|switchguid=|caguid=|rtguid=|Chassis\b|DR path|\$ )")
_NODE_LIST = re.compile(r"(?:Switch|Ca|Rt)\s{1,8}: 0x", re.MULTILINE)
_LOOKS = re.compile(r'^(?:[A-Za-z0-9.-]{1,253}: ?)?(?:Switch|Ca|Rt)\s{1,8}(?:\d{1,5}\s{1,8}"[SHR]-|: 0x)', re.MULTILINE)


def looks_like_ibnetdiscover(text: str) -> bool:
    """Whether a text holds the head of a node's block, or is the list of nodes that `-l` prints."""
    return _LOOKS.search(text) is not None


def parse_ibnetdiscover(text: str, source: str) -> InfinibandNet:
    """The net; raises InputError for lines of no known form and for text without any node."""
    mistakes = Mistakes(source)
    lines = lines_of(text, mistakes)
    rows: list[PortRow] = []
    listed: list[SeenEnd] = []
    warnings: list[str] = []
    for line in lines:
        content = line.text.strip()
        if _IGNORED.match(content):
            continue
        if is_chatter(content):
            warnings.append(f"line {line.number}: {content[:200]}")
        elif (node := _node(content)) is not None:
            listed.append(node)
        elif (row := _port(content, listed)) is not None:
            rows.append(row)
        else:
            _refuse(line, mistakes)
    if not listed and not mistakes.found and not find_failure(lines, mistakes, wanted=_WANTED):
        mistakes.add(None, "no switch and no adapter", _WANTED, "give the whole output")
    mistakes.check()
    return assemble(rows, listed=listed, warnings=warnings)


def _refuse(line: Line, mistakes: Mistakes) -> None:
    content = line.text.strip()
    if _NODE_LIST.match(content):
        if not mistakes.found:
            mistakes.add(line.at(), "the list that `ibnetdiscover -l` prints", _WANTED, "run it without -l, -H and -S")
    else:
        mistakes.add(
            line.at(),
            f"neither the head of a node nor a port of the node above: {content[:80]}",
            '`Switch 40 "S-GUID" # "name" ...`, or `[1] "H-GUID"[1](GUID) # "name" lid 2 4xHDR` below such a head',
            "give the output unchanged",
        )


def _node(content: str) -> SeenEnd | None:
    match = _NODE.fullmatch(content)
    if match is None:
        return None
    own = _OWN_LID.fullmatch(match[4])
    name = match[4].rstrip().removesuffix('"') if own is None else own[1]
    return SeenEnd(
        name=name.strip(),
        port=0,
        guid=short_guid(match[3][2:]),
        lid=None if own is None else int(own[2]) or None,
        is_switch=match[1] != "Ca",
    )


def _port(content: str, listed: Sequence[SeenEnd]) -> PortRow | None:
    if content[0] != "[" or not listed:
        return None
    node = listed[-1]
    if alone := _NO_LINK.fullmatch(content):
        return PortRow(near=_at(node, int(alone[1])), far=None)
    match = _PORT.fullmatch(content)
    far = None if match is None else _FAR.fullmatch(_OWN.sub("", match[4], count=1).strip())
    if match is None or far is None:
        return None
    rate = _RATE.search(far[3])
    return PortRow(
        near=_at(node, int(match[1])),
        far=SeenEnd(
            name=far[1].strip(),
            port=int(match[3]),
            guid=short_guid(match[2][2:]),
            lid=int(far[2]) or None,
            is_switch=match[2][0] != "H",
        ),
        rate=None if rate is None else LinkRate.named(rate[0]),
    )


def _at(node: SeenEnd, port: int) -> SeenEnd:
    return SeenEnd(name=node.name, port=port, guid=node.guid, lid=node.lid, is_switch=node.is_switch)

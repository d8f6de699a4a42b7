"""`iblinkinfo`, in blocks or with `-l` in lines that stand alone: each port with its state and far end."""

import re

from hpcserve.site.infiniband_text.assemble import PortRow, SeenEnd, assemble
from hpcserve.site.infiniband_text.descriptions import short_guid
from hpcserve.site.infiniband_text.failures import find_failure, is_chatter
from hpcserve.site.infiniband_text.net import InfinibandNet
from hpcserve.site.infiniband_text.rates import LinkRate, speed_of_signal
from hpcserve.site.mistakes import Mistakes
from hpcserve.site.tool_text import Line, lines_of

__all__ = ["looks_like_iblinkinfo", "parse_iblinkinfo"]

_WANTED = "what `iblinkinfo` or `iblinkinfo -l` prints"
_ARROW_IN, _ARROW_OUT = "==(", ")==>"
_SWITCH = re.compile(r"(?:Switch|Router)[^:]{0,8}:\s{1,8}(0x[0-9a-fA-F]{1,16})\s{1,8}(.*):")
_ADAPTER = re.compile(r"CA:\s{1,8}(.*):")
_PORT = r"(\d{1,6})\s{1,8}(\d{1,5})\[\s{0,8}\d{0,5}\s{0,8}\]"
_NEAR = re.compile(rf'(?:(0x[0-9a-fA-F]{{1,16}})\s{{1,8}})?(?:"(.*)"\s{{1,8}})?{_PORT}')
_FAR = re.compile(rf'(?:(0x[0-9a-fA-F]{{1,16}})\s{{1,8}})?{_PORT}\s{{1,8}}"([^"]*)"(.*)$')
_LINK = re.compile(r"(?:(\d{1,2})X)?([^/]{0,64}?)([A-Za-z]{2,16})/\s{0,16}([A-Za-z]{2,32})")
_SIGNAL = re.compile(r"\d{1,4}(?:\.\d{1,6})?")
_NAMED_SPEED = re.compile(r"\b[A-Z]DR(?:10)?\b")
_WIDER = re.compile(r"(\d{1,2})X")
_FASTER = re.compile(r"([0-9.]{1,10}) Gbps|\b(FDR10)\b")


def looks_like_iblinkinfo(text: str) -> bool:
    """Whether a line of a text holds the arrow of a link."""
    start = text.find(_ARROW_IN)
    return start >= 0 and _ARROW_OUT in text[start : start + 256]


def parse_iblinkinfo(text: str, source: str) -> InfinibandNet:
    """The net, with what links could do and which ports are down.

    Without `-l` far ends have no GUID: they are found by LID and name, and where no subnet manager gave LIDs by what
    they say of the near end. Raises InputError for lines of no known form and for text without any port.
    """
    mistakes = Mistakes(source)
    lines = lines_of(text, mistakes)
    rows: list[PortRow] = []
    warnings: list[str] = []
    block: SeenEnd | None = None
    for line in lines:
        content = line.text.strip()
        if content[0] in "#$":
            continue
        if _ARROW_IN in content:
            row = _row(content, block)
            if row is None:
                _refuse(line, mistakes)
            else:
                rows.append(row)
        elif (head := _head(content)) is not None:
            block = head
        elif is_chatter(content):
            warnings.append(f"line {line.number}: {content[:200]}")
        else:
            _refuse(line, mistakes)
    if not rows and not mistakes.found and not find_failure(lines, mistakes, wanted=_WANTED):
        mistakes.add(None, "no port", _WANTED, "give the whole output")
    mistakes.check()
    return assemble(rows, warnings=warnings)


def _refuse(line: Line, mistakes: Mistakes) -> None:
    mistakes.add(
        line.at(),
        f"a line that is neither a block's head nor a port: {line.text.strip()[:80]}",
        '`Switch: 0xGUID NAME:`, `CA: NAME:` or a port `LID PORT[ ] ==( 4X 53.125 Gbps Active/ LinkUp)==> ... "NAME"`',
        "give the output unchanged",
    )


def _head(content: str) -> SeenEnd | None:
    if match := _SWITCH.fullmatch(content):
        return SeenEnd(name=match[2].strip(), port=0, guid=short_guid(match[1]), is_switch=True)
    if match := _ADAPTER.fullmatch(content):
        return SeenEnd(name=match[1].strip(), port=0, is_switch=False)
    return None


def _row(content: str, block: SeenEnd | None) -> PortRow | None:
    before, _, rest = content.partition(_ARROW_IN)
    state, _, after = rest.partition(_ARROW_OUT)
    near, link = _near(before.strip(), block), _LINK.fullmatch(state.strip())
    if near is None or link is None:
        return None
    if link[4] != "LinkUp" or link[3] == "Down":
        return PortRow(near=near, far=None)
    match = _FAR.fullmatch(after.strip())
    if match is None:
        return None
    far = SeenEnd(
        name=match[4].strip(),
        port=int(match[3]),
        guid=short_guid(match[1]) if match[1] else None,
        lid=int(match[2]) or None,
    )
    rate = _rate(link[1], link[2])
    return PortRow(near=near, far=far, rate=rate, possible=_possible(match[5], rate), is_active=link[3] == "Active")


def _near(text: str, block: SeenEnd | None) -> SeenEnd | None:
    match = _NEAR.fullmatch(text)
    if match is None:
        return None
    guid, name, lid, port = match.groups()
    if name is not None and guid is not None:
        return SeenEnd(name=name.strip(), port=int(port), guid=short_guid(guid), lid=int(lid) or None)
    if name is not None or block is None:
        return None
    return SeenEnd(
        name=block.name,
        port=int(port),
        guid=short_guid(guid) if guid else block.guid,
        lid=int(lid) or None,
        is_switch=block.is_switch,
    )


def _rate(width: str | None, speed: str) -> LinkRate | None:
    named, signal = _NAMED_SPEED.search(speed), _SIGNAL.search(speed)
    name = named[0] if named else None if signal is None else speed_of_signal(float(signal[0]))
    return None if name is None else LinkRate.named(f"{width}x{name}")


def _possible(text: str, rate: LinkRate | None) -> LinkRate | None:
    """The rate that a remark such as `( Could be 4X Could be 53.125 Gbps)` says is possible; None without a remark."""
    if "Could be" not in text or rate is None:
        return None
    wider, faster = _WIDER.search(text), _FASTER.search(text)
    speed = None
    if faster is not None:
        speed = faster[2] or _speed(faster[1])
    return LinkRate.named(f"{wider[1] if wider else rate.width}x{speed or rate.speed}")


def _speed(number: str) -> str | None:
    return speed_of_signal(float(number)) if _SIGNAL.fullmatch(number) else None

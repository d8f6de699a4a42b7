"""`ip -json addr`: the network interfaces of one node and their addresses."""

import json
from ipaddress import ip_address
from typing import Any

from hpcserve.site.host_text.host import Address, Interface
from hpcserve.site.mistakes import Mistakes, Place

__all__ = ["looks_like_ip_addresses", "parse_ip_addresses"]

_WANTED = "what `ip -json addr` prints: a list of interfaces with `ifname`"
_NAME_LIMIT = 64


def looks_like_ip_addresses(text: str) -> bool:
    """Whether a text begins as that list."""
    return text.lstrip()[:1] == "[" and '"ifname"' in text[:65536]


def parse_ip_addresses(text: str, source: str) -> tuple[Interface, ...]:
    """The interfaces in the order of the text; raises InputError for text that is no such list."""
    mistakes = Mistakes(source)
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        place = Place(error.lineno, error.colno)
        mistakes.add(place, f"no JSON ({error.msg})", _WANTED, "give the whole output")
        raise mistakes.error() from None
    except (ValueError, RecursionError):
        mistakes.add(None, "JSON that nothing prints", _WANTED, "give the tool's own output")
        raise mistakes.error() from None
    if not isinstance(document, list):
        mistakes.add(None, "JSON that is no list", _WANTED, "run it with -json, and give all of it")
        raise mistakes.error()
    # `ip -json addr show up` leaves empty objects where an interface was filtered out, `ip -json -4 addr` an address.
    read = [_interface(place, entry, mistakes) for place, entry in enumerate(document) if entry != {}]
    mistakes.check()
    return tuple(one for one in read if one is not None)


def _interface(place: int, entry: Any, mistakes: Mistakes) -> Interface | None:
    name = entry.get("ifname") if isinstance(entry, dict) else None
    if not isinstance(name, str) or not 0 < len(name) <= _NAME_LIMIT:
        mistakes.add(None, f"entry {place} of the list without `ifname`", _WANTED, "give the whole output")
        return None
    addresses = []
    for found in _list(entry.get("addr_info")):
        if found == {}:
            continue
        address = _address(found)
        if address is None:
            mistakes.add(None, f"an address of {name} that is none", "`local` and `prefixlen`", "give it unchanged")
        else:
            addresses.append(address)
    flags, state = _list(entry.get("flags")), entry.get("operstate")
    mtu, kind = entry.get("mtu"), entry.get("link_type")
    return Interface(
        name=name,
        # UNKNOWN is the state of loopback and of drivers that tell none; it counts as up where there is a carrier
        # (the kernel's operstates.rst; LOWER_UP is only set where the interface is up itself).
        is_up=state == "UP" or (state in {None, "UNKNOWN"} and "LOWER_UP" in flags),
        mtu=mtu if type(mtu) is int else None,
        kind=kind if isinstance(kind, str) else None,
        addresses=tuple(addresses),
    )


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _address(found: Any) -> Address | None:
    if not isinstance(found, dict):
        return None
    local, prefix = found.get("local"), found.get("prefixlen")
    if not isinstance(local, str) or type(prefix) is not int:
        return None
    try:
        address = ip_address(local)
    except ValueError:
        return None
    if not 0 <= prefix <= address.max_prefixlen:
        return None
    return Address(address=local, prefix=prefix, usable=found.get("scope") != "link" and not found.get("tentative"))

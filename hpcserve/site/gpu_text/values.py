"""Values as nvidia-smi prints them; None for what it does not know."""

import re

__all__ = ["known", "lanes", "switched_on", "whole"]

_UNKNOWN = frozenset(
    {"", "N/A", "[N/A]", "[Not Supported]", "Not Supported", "Unknown Error", "[Unknown Error]", "None"}
)
_WHOLE = re.compile(r"([0-9]{1,9})(?: MiB)?")
_LANES = re.compile(r"([0-9]{1,3})x?")


def known(text: str | None) -> str | None:
    """The value, or None where it stands for nothing."""
    stripped = (text or "").strip()
    return None if stripped in _UNKNOWN else stripped


def whole(text: str | None) -> int | None:
    """A whole number, with or without MiB behind it."""
    match = _WHOLE.fullmatch((text or "").strip())
    return int(match[1]) if match else None


def lanes(text: str | None) -> int | None:
    """PCIe lanes of `16x` or `16`."""
    match = _LANES.fullmatch((text or "").strip())
    return int(match[1]) if match else None


def switched_on(text: str | None) -> bool | None:
    """Whether `Enabled` or `Disabled`."""
    return {"Enabled": True, "Disabled": False}.get((text or "").strip())

"""Node states as Slurm writes them -> whether a job can start on the node now."""

import re

__all__ = ["is_node_state", "usable"]

_FREE = frozenset({"idle", "mix", "mixed"})
_NOT_FREE = frozenset(
    [
        "alloc",
        "allocated",
        "comp",
        "completing",
        "down",
        "drain",
        "drained",
        "draining",
        "drng",
        "err",
        "error",
        "fail",
        "failg",
        "failing",
        "future",
        "futr",
        "inval",
        "maint",
        "unk",
        "unknown",
        "boot",
        "block",
        "blocked",
        "npc",
        "perfctrs",
        "reboot",
    ]
)
"""Full and short words for states in which no further job starts."""
_ON_CONDITION = frozenset(
    ["resv", "reserved", "pow_up", "pow_dn", "powered_down", "powering_down", "powering_up", "power_down", "power_up"]
)
"""Only within a reservation, or once Slurm has woken the node."""
_BLOCKING = frozenset(
    [
        "drain",
        "drained",
        "draining",
        "down",
        "fail",
        "failing",
        "not_responding",
        "no_respond",
        "maint",
        "maintenance",
        "invalid_reg",
        "inval",
        "dynamic_future",
        "future",
        "completing",
        "perfctrs",
        "blocked",
        "reboot_issued",
    ]
)
_CONDITIONAL = _ON_CONDITION | frozenset(["reboot_requested", "reboot", "reboot_on_reboot"])
_HARMLESS = frozenset(
    ["cloud", "planned", "plnd", "dynamic", "dynamic_norm", "cloud_dns", "external", "undrain", "resume"]
)
_ENDING_TOO = ("alloc+", "allocated+")
"""sinfo(1): some of its jobs run, others are completing."""
_WORD = re.compile(r"([a-z_]+)([*~#!%$@^-]*)")

_BLOCKING_MARKS = frozenset("*^$")
"""Not responding, reboot issued, in a maintenance reservation."""
_CONDITIONAL_MARKS = frozenset("~#!%@")
"""Powered down, powering up, about to power down, powering down, to be rebooted."""


def usable(state: str) -> bool | None:
    """Whether a job could start on a node in this state; None where that depends: on a reservation, on waking it up.

    Takes the forms of `scontrol show node` (`MIXED+DRAIN`) and sinfo (`idle~`). Raises ValueError for what is no state.
    """
    text = state.strip().lower()
    if text in _ENDING_TOO:
        text = text.removesuffix("+")
    base, *flags = (_word(part, state) for part in text.split("+"))
    words = [word for word, _ in flags]
    marks = {mark for _, found in (base, *flags) for mark in found}
    first = base[0]
    if first not in _FREE | _NOT_FREE | _ON_CONDITION | _HARMLESS:
        raise ValueError(f"`{state[:60]}` is not a node state")
    if first in _NOT_FREE or marks & _BLOCKING_MARKS or any(word in _BLOCKING for word in words):
        return False
    known = _CONDITIONAL | _HARMLESS
    if (
        first in _ON_CONDITION
        or marks & _CONDITIONAL_MARKS
        or any(word in _CONDITIONAL or word not in known for word in words)
    ):
        return None
    return True


def is_node_state(text: str) -> bool:
    """Whether `usable` takes this text."""
    try:
        usable(text)
    except ValueError:
        return False
    return True


def _word(part: str, state: str) -> tuple[str, str]:
    match = _WORD.fullmatch(part)
    if match is None:
        raise ValueError(f"`{state[:60]}` is not a node state")
    return match[1], match[2]

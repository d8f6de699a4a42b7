"""What a node's state, in sinfo's short words, means to who wants to look at it: now, later, when woken, or not."""

import re
from enum import Enum

from hpcserve.site.slurm_text import usable

__all__ = ["Standing", "standing"]

_WORD = re.compile(r"[a-z_]*")
_WITH_OTHERS = {"alloc": "mix", "allocated": "mix", "comp": "idle", "completing": "idle"}
"""Words for nodes that other jobs are on or just leave, and what such a node is once they have gone."""

_ASLEEP = frozenset({"pow_dn", "powered_down", "powering_down", "power_down"})
_ASLEEP_MARKS = frozenset("~%!")
_WAKING = frozenset({"pow_up", "powering_up", "power_up"})
_WAKING_MARK = "#"
_PLANNED_MARK = "-"
"""sinfo(1), NODE STATE CODES: powered down, powering down, about to; powering up; planned for a job of others."""


class Standing(Enum):
    """How a node stands to a job of ours that wants it for a minute."""

    FREE = "free"
    BUSY = "busy"
    """Other jobs are on it, are planned on it, or it is starting: it may become free while we wait."""
    ASLEEP = "asleep"
    """Slurm has powered it down to save power; a job wakes it, which takes minutes and may cost money."""
    AWAY = "away"
    """Down, drained, reserved, in maintenance, to be rebooted, or in a state that is not known."""


def standing(state: str) -> Standing:
    """The standing of a node whose state sinfo's `%t` prints so, `idle`, `mix-`, `drng*`, `POW_DN`."""
    text = state.strip().lower().removesuffix("+")  # `alloc+`: some of its jobs are ending
    match = _WORD.match(text)
    word = match[0] if match is not None else ""
    marks = text[len(word) :]
    try:
        can_start = usable(_WITH_OTHERS.get(word, word) + marks)
    except ValueError:
        return Standing.AWAY
    if can_start:
        return Standing.FREE if word == "idle" and _PLANNED_MARK not in marks else Standing.BUSY
    if can_start is None and "@" not in marks:
        if word in _ASLEEP or _ASLEEP_MARKS & set(marks):
            return Standing.ASLEEP
        if word in _WAKING or _WAKING_MARK in marks:
            return Standing.BUSY
    return Standing.AWAY

"""What a draft of a site is made of: values that were learnt, and what was not."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

__all__ = ["Branch", "Gap", "Items", "Known", "Leaf", "LearntRate", "Node"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A value that a tool printed; `form` says when two ways of writing it are the same."""

    value: Any
    source: str
    form: Literal["plain", "hosts", "duration"] = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A required key that no tool told: what to put there, and who knows it."""

    needed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LearntRate:
    """A `Rate` as far as tools tell it: one way, in GB/s; they print what a link is built for, not what it carries."""

    nominal_gb_per_s: float | None
    source: str
    """Which tool said so, or why none did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """A list or mapping of things with names, told apart by `label`.

    `whole`: all that exist are here, so that others which were learnt before are gone.
    """

    label: Callable[[Mapping[str, Any]], str]
    """The label of an item in plain data; of a mapping it is not asked."""
    items: "Mapping[str, Branch]"
    mapping: bool = False
    whole: bool = True


Leaf: TypeAlias = Known | Gap | LearntRate
Branch: TypeAlias = Mapping[str, Any]
"""A mapping of the file: for each key a `Node`."""
Node: TypeAlias = Known | Gap | LearntRate | Items | Mapping[str, Any]

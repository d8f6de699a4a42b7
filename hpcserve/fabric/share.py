"""What each of several flows gets when all run at once: max-min fair, by progressive filling."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from hpcserve.fabric.links import Link

__all__ = ["Share", "max_min"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one flow gets, one-way, and the link that holds it there."""

    gb_per_s: float
    bottleneck: Link
    """This link is full, and no flow on it gets more than this one."""
    sharing: tuple[int, ...]
    """All flows on that link, this one too, by their place in what was asked."""


def max_min(flows: Sequence[Sequence[Link]]) -> tuple[Share, ...]:
    """The share of each flow, given its links; one flow passes a link once, two may share it.

    All flows grow together; where a link is full, those on it stop. Where flows see one link with several rates, the
    least holds. Source: Bertsekas and Gallager, Data Networks, 6.5.2 (max-min flow control). Raises ValueError for a
    flow without links.
    """
    rates: dict[str, Link] = {}
    users: dict[str, list[int]] = {}
    for number, links in enumerate(flows):
        if not links:
            raise ValueError(f"flow {number} passes no link")
        for link in {link.name: link for link in links}.values():
            users.setdefault(link.name, []).append(number)
            if link.name not in rates or link.gb_per_s < rates[link.name].gb_per_s:
                rates[link.name] = link
    left = {name: link.gb_per_s for name, link in rates.items()}
    growing = {name: len(numbers) for name, numbers in users.items()}
    shares: dict[int, Share] = {}
    queue = [(left[name] / growing[name], name) for name in rates]
    heapify(queue)
    while len(shares) < len(flows):
        level, name = heappop(queue)
        if not growing[name]:
            continue
        # A link's level only rises while others fill up, so that an outdated entry is too low and is looked at again.
        now = max(level, left[name] / growing[name])
        if now > level:
            heappush(queue, (now, name))
            continue
        for number in _unfinished(users[name], shares):
            shares[number] = Share(gb_per_s=level, bottleneck=rates[name], sharing=tuple(users[name]))
            for other in {link.name for link in flows[number]}:
                growing[other] -= 1
                left[other] = max(0.0, left[other] - level)
    return tuple(shares[number] for number in range(len(flows)))


def _unfinished(numbers: Iterable[int], shares: dict[int, Share]) -> list[int]:
    return [number for number in numbers if number not in shares]

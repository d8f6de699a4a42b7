"""`Network`: KV on its way, each flow at its max-min fair share of the links that it passes.

Shares change when a flow starts or ends; only flows that are joined to it by shared links are looked at, and of those
only the ones whose rate changed get a new end.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from hpcserve.fabric import Link, max_min

__all__ = ["LinkUse", "Moving", "Network"]

_BYTES_PER_MS = 1e6
"""Of 1 GB/s."""
_AT_ONCE_MS = 1e-6
"""What ends within a nanosecond of another flow ends with it: equals are not parted by rounding."""
_MOST_REMEMBERED = 4096
"""Constellations of flows whose shares are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkUse:
    """What one direction of one link carried."""

    name: str
    gb_per_s: float
    moved_bytes: float
    utilisation: float
    """Of what it could have carried in the time of the simulation."""


class Moving:
    """One flow under way. `whole` is what is told when it ends."""

    __slots__ = ("ceiling", "left_bytes", "links", "number", "path", "per_ms", "since_ms", "version", "whole")

    def __init__(self, number: int, whole: object, path: int, links: tuple[Link, ...], left_bytes: float) -> None:
        self.number = number
        self.whole = whole
        self.path = path
        self.links = links
        self.left_bytes = left_bytes
        self.per_ms = 0.0
        self.since_ms = 0.0
        self.version = 0
        self.ceiling: float | None = None
        """Bytes per ms that there are to send; None: all bytes are there."""


class Network:
    """All flows under way. `at(ms, flow, version)` is called with each moment at which a flow would end."""

    def __init__(self, at: Callable[[float, Moving, int], None]) -> None:
        self._at = at
        self._on: dict[str, dict[Moving, None]] = {}
        self._paths: dict[tuple[Link, ...], int] = {}
        self._shares: dict[tuple[int, ...], tuple[float, ...]] = {}
        self._moved: dict[str, float] = {}
        self._count = 0
        self._rates: dict[str, float] = {}

    def start(self, whole: object, parts: Iterable[tuple[tuple[Link, ...], float]], now_ms: float) -> list[Moving]:
        """Begin flows of so many bytes each over these links."""
        made = []
        for links, size_bytes in parts:
            path = self._paths.get(links)
            if path is None:
                path = self._paths[links] = len(self._paths)
                for link in links:
                    self._rates[link.name] = min(link.gb_per_s, self._rates.get(link.name, link.gb_per_s))
            self._count += 1
            flow = Moving(self._count, whole, path, links, size_bytes)
            flow.since_ms = now_ms
            made.append(flow)
            self._enter(flow)
        self._share_anew(made, now_ms)
        return made

    def hold_to(self, flows: Sequence[Moving], per_ms: Sequence[float | None], now_ms: float) -> None:
        """Let each flow send no more bytes per ms than this; 0 halts it, None lets it go."""
        affected: list[Moving] = []
        for flow, ceiling in zip(flows, per_ms, strict=True):
            self._settle(flow, now_ms)
            if flow.ceiling == 0.0 and ceiling != 0.0:
                self._enter(flow)
            elif flow.ceiling != 0.0 and ceiling == 0.0:
                affected += self._leave(flow)
                self._set(flow, 0.0, now_ms)
            flow.ceiling = ceiling
            if ceiling != 0.0:
                affected.append(flow)
        self._share_anew(affected, now_ms)

    def is_due(self, flow: Moving, version: int) -> bool:
        """Whether this moment still counts: no share changed since it was told."""
        return flow.version == version

    def end(self, flow: Moving, now_ms: float) -> None:
        """The flow is through, or given up; the others get what it leaves."""
        self._settle(flow, now_ms)
        flow.version += 1
        if flow.ceiling != 0.0:
            self._share_anew(self._leave(flow), now_ms)

    def left_bytes(self, flow: Moving, now_ms: float) -> float:
        """What is still to be sent."""
        self._settle(flow, now_ms)
        return flow.left_bytes

    def gb_per_s(self) -> dict[str, float]:
        """What is on each link now."""
        return {name: sum(flow.per_ms for flow in flows) / _BYTES_PER_MS for name, flows in self._on.items() if flows}

    def limits_gb_per_s(self) -> dict[str, float]:
        """What each link that was ever used can carry."""
        return dict(self._rates)

    def use(self, duration_ms: float) -> tuple[LinkUse, ...]:
        """What each link carried, by name."""
        return tuple(
            LinkUse(
                name=name,
                gb_per_s=rate,
                moved_bytes=self._moved.get(name, 0.0),
                utilisation=self._moved.get(name, 0.0) / (rate * _BYTES_PER_MS * duration_ms) if duration_ms else 0.0,
            )
            for name, rate in sorted(self._rates.items())
        )

    def _enter(self, flow: Moving) -> None:
        for link in flow.links:
            self._on.setdefault(link.name, {})[flow] = None

    def _leave(self, flow: Moving) -> list[Moving]:
        """Take it off its links; one flow that stays, of each link."""
        stay = []
        for link in flow.links:
            others = self._on[link.name]
            others.pop(flow, None)
            if others:
                stay.append(next(iter(others)))
        return stay

    def _settle(self, flow: Moving, now_ms: float) -> None:
        """Count what was sent since the rate last changed."""
        if now_ms > flow.since_ms:
            sent = min(flow.left_bytes, flow.per_ms * (now_ms - flow.since_ms))
            flow.left_bytes -= sent
            for link in flow.links:
                self._moved[link.name] = self._moved.get(link.name, 0.0) + sent
        flow.since_ms = now_ms

    def _set(self, flow: Moving, per_ms: float, now_ms: float) -> None:
        if per_ms == flow.per_ms:
            return
        self._settle(flow, now_ms)
        flow.per_ms = per_ms
        flow.version += 1
        if per_ms > 0.0:
            left_ms = flow.left_bytes / per_ms
            self._at(now_ms + left_ms if left_ms > _AT_ONCE_MS else now_ms, flow, flow.version)

    def _share_anew(self, changed: Sequence[Moving], now_ms: float) -> None:
        """New rates for all flows that share a link with one of these, directly or through others."""
        seen: dict[Moving, None] = {}
        for first in changed:
            if first not in seen:
                group = self._joined(first)
                seen.update(group)
                for flow, per_ms in zip(group, self._rates_of(list(group)), strict=True):
                    self._set(flow, per_ms, now_ms)

    def _joined(self, first: Moving) -> dict[Moving, None]:
        group = {first: None}
        looked: set[str] = set()
        queue = [first]
        for flow in queue:
            for link in flow.links:
                if link.name not in looked:
                    looked.add(link.name)
                    for other in self._on[link.name]:
                        if other not in group:
                            group[other] = None
                            queue.append(other)
        return group

    def _rates_of(self, flows: list[Moving]) -> Sequence[float]:
        """Bytes per ms of each of these flows, which share links with nobody else."""
        if any(flow.ceiling is not None for flow in flows):
            return [share.gb_per_s * _BYTES_PER_MS for share in max_min([_with_ceiling(flow) for flow in flows])]
        key = tuple(flow.path for flow in flows)
        rates = self._shares.get(key)
        if rates is None:
            if len(self._shares) >= _MOST_REMEMBERED:
                self._shares.clear()
            rates = tuple(share.gb_per_s * _BYTES_PER_MS for share in max_min([flow.links for flow in flows]))
            self._shares[key] = rates
        return rates


def _with_ceiling(flow: Moving) -> tuple[Link, ...]:
    if flow.ceiling is None:
        return flow.links
    own = Link(f"what flow {flow.number} has to send", flow.ceiling / _BYTES_PER_MS, "prefill under way")
    return (*flow.links, own)

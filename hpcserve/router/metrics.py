"""What the router counts. Plain numbers while requests pass; Prometheus text only when somebody asks."""

from collections import Counter
from collections.abc import Iterator, Mapping

from hpcserve.router.exposition import Histogram, Series, series_of

__all__ = ["Metrics", "PathCounts"]

_SECONDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0),
)
_ADDED_SECONDS = (0.0001, 0.0002, 0.0003, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.25)
_STEP_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0)
_POOLS = ("prefill", "decode", "aggregated")


class PathCounts:
    """Handoffs between one prefill and one decode worker."""

    __slots__ = ("arrived", "failed", "seconds", "streams", "tokens")

    def __init__(self) -> None:
        self.arrived = 0
        self.failed = 0
        """Failed, or came too late."""
        self.streams = 0
        """Of those that arrived, streams: they show when their first token came."""
        self.seconds = 0.0
        """Of their decode legs up to it."""
        self.tokens = 0.0
        """Prompt tokens whose KV came, about."""


class Metrics:
    """All counters of one router."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str]] = Counter()
        """Ended requests by (route kind: disaggregated, aggregated or none; outcome)."""
        self.retries: Counter[str] = Counter()
        """Legs sent anew, by reason."""
        self.whole: Counter[str] = Counter()
        """Requests served by one worker though pairs were planned, by reason."""
        self.handoffs = 0
        """Decode legs sent with the KV of a prefill leg."""
        self.lease_drops = 0
        """Decode legs dropped because their first token came too late after the prefill's answer, or not at all."""
        self.abandoned: Counter[str] = Counter()
        """Requests whose client left, by the leg that was under way."""
        self.worker_failures: Counter[str] = Counter()
        """Failed legs by worker."""
        self.tenants: Counter[str] = Counter()
        """Requests by tenant, where there are tenants; empty for the job's own key."""
        self.in_flight = 0
        self.prompt_tokens = 0.0
        """Prompt tokens of prefill and whole legs, about."""
        self.predicted_hit_tokens = 0.0
        """Of those, tokens whose KV the worker was expected to have."""
        self.paths: dict[tuple[str, str], PathCounts] = {}
        self.ttft = {"disaggregated": Histogram(_SECONDS), "aggregated": Histogram(_SECONDS)}
        """From the complete request to the first token of a stream, or to a whole answer that is not one."""
        self.tpot = {pool: Histogram(_STEP_SECONDS) for pool in _POOLS}
        """Mean time between the pieces of a stream after its first token, by the pool of the worker that decodes."""
        self.queue = {"prefill": Histogram(_SECONDS), "decode": Histogram(_SECONDS)}
        """prefill: what a leg took beyond computing its prompt; decode: the wait for a place on a link."""
        self.added = Histogram(_ADDED_SECONDS)
        """The part of TTFT that no engine was waited for."""

    def path(self, prefill: str, decode: str) -> PathCounts:
        """The counts of one path."""
        found = self.paths.get((prefill, decode))
        if found is None:
            found = self.paths[prefill, decode] = PathCounts()
        return found

    def series(self) -> Iterator[Series]:
        """Everything that is counted here."""
        yield series_of("counter", "requests", "Ended requests.", ("route", "outcome"), self.requests)
        yield series_of("counter", "retries", "Legs sent anew.", ("reason",), _by_one(self.retries))
        yield series_of(
            "counter",
            "whole_requests",
            "Requests of a disaggregated service that one worker served.",
            ("reason",),
            _by_one(self.whole),
        )
        yield series_of(
            "counter", "handoffs", "Decode legs sent with the KV of a prefill leg.", (), {(): self.handoffs}
        )
        yield series_of(
            "counter", "lease_drops", "Decode legs dropped for a late first token.", (), {(): self.lease_drops}
        )
        yield series_of(
            "counter", "abandoned_requests", "Requests whose client left.", ("leg",), _by_one(self.abandoned)
        )
        yield series_of("counter", "worker_failures", "Failed legs.", ("worker",), _by_one(self.worker_failures))
        yield series_of(
            "counter", "tenant_requests", "Requests, where there are tenants.", ("tenant",), _by_one(self.tenants)
        )
        yield series_of("gauge", "in_flight_requests", "Requests that have not ended.", (), {(): self.in_flight})
        yield series_of(
            "counter", "prompt_tokens", "Prompt tokens sent to be computed, about.", (), {(): self.prompt_tokens}
        )
        yield series_of(
            "counter",
            "predicted_hit_tokens",
            "Of those, tokens whose KV was expected to be there.",
            (),
            {(): self.predicted_hit_tokens},
        )
        yield from self._path_series()
        yield series_of("histogram", "ttft_seconds", "From the complete request to the first token.", ("route",), {
            (route,): histogram for route, histogram in self.ttft.items()
        })  # fmt: skip
        yield series_of("histogram", "tpot_seconds", "Mean time between the pieces of a stream.", ("pool",), {
            (pool,): histogram for pool, histogram in self.tpot.items()
        })  # fmt: skip
        yield series_of("histogram", "queue_seconds", "Waiting before prefill, or for a link.", ("pool",), {
            (pool,): histogram for pool, histogram in self.queue.items()
        })  # fmt: skip
        yield series_of(
            "histogram", "added_ttft_seconds", "The part of TTFT spent in the router.", (), {(): self.added}
        )

    def _path_series(self) -> Iterator[Series]:
        named = ("prefill", "decode")
        for name, help_text, values in (
            ("path_handoffs", "First tokens that came by this path.", {p: float(c.arrived) for p, c in self._ways()}),
            ("path_failures", "Handoffs that failed or came late.", {p: float(c.failed) for p, c in self._ways()}),
            ("path_streams", "Of those, streams.", {p: float(c.streams) for p, c in self._ways()}),
            ("path_seconds", "Their decode legs up to the first token.", {p: c.seconds for p, c in self._ways()}),
            ("path_tokens", "Prompt tokens whose KV came, about.", {p: c.tokens for p, c in self._ways()}),
        ):
            yield series_of("counter", name, help_text, named, values)

    def _ways(self) -> Iterator[tuple[tuple[str, str], PathCounts]]:
        return iter(self.paths.items())


def _by_one(values: Mapping[str, int]) -> dict[tuple[str, ...], float]:
    return {(key,): value for key, value in values.items()}

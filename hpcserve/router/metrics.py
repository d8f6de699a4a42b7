"""What the router counts. Plain integers while requests pass; Prometheus text only when somebody asks."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping

from hpcserve.routing import Load

__all__ = ["Histogram", "Metrics"]

_SECONDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0),
)
_ADDED_SECONDS = (0.0001, 0.0002, 0.0003, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.25)


class Histogram:
    """Counts by upper bound."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def buckets(self) -> tuple[list[tuple[str, float]], float]:
        """Cumulative counts by bound as Prometheus wants them, and the sum."""
        total, found = 0, []
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            total += count
            found.append(("+Inf" if bound == float("inf") else repr(bound), float(total)))
        return found, self._sum


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
        self.in_flight = 0
        self.ttft = {"disaggregated": Histogram(_SECONDS), "aggregated": Histogram(_SECONDS)}
        """From the complete request to the first token of a stream or the head of an answer."""
        self.added = Histogram(_ADDED_SECONDS)
        """The part of it that no engine was waited for."""

    def text(
        self, *, loads: Mapping[str, Load], ready: bool, simulated: bool, proofs: Iterable[tuple[str, bool]]
    ) -> bytes:
        """Everything in Prometheus' text format."""
        # Imported here: 70 ms that a restarted router does not have.
        from prometheus_client.core import (  # noqa: PLC0415 - see above
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )
        from prometheus_client.exposition import generate_latest  # noqa: PLC0415 - see above
        from prometheus_client.registry import Collector, CollectorRegistry  # noqa: PLC0415 - see above

        def counter(
            name: str, help_text: str, labels: tuple[str, ...], values: dict[tuple[str, ...], float]
        ) -> CounterMetricFamily:
            family = CounterMetricFamily(_PREFIX + name, help_text, labels=labels)
            for label_values, value in sorted(values.items()):
                family.add_metric(label_values, value)
            return family

        def gauge(name: str, help_text: str, label: str, values: Mapping[str, float]) -> GaugeMetricFamily:
            family = GaugeMetricFamily(_PREFIX + name, help_text, labels=(label,) if label else ())
            for label_value, value in sorted(values.items()):
                family.add_metric((label_value,) if label else (), value)
            return family

        def by_one(values: Mapping[str, int]) -> dict[tuple[str, ...], float]:
            return {(key,): value for key, value in values.items()}

        ended = self.requests.items()
        families: list[CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily] = [
            counter("requests", "Ended requests.", ("route", "outcome"), {(*key,): n for key, n in ended}),
            counter("retries", "Legs sent anew.", ("reason",), by_one(self.retries)),
            counter(
                "whole_requests", "Requests of a disaggregated service that one worker served.", ("reason",),
                by_one(self.whole),
            ),
            counter("handoffs", "Decode legs sent with the KV of a prefill leg.", (), {(): self.handoffs}),
            counter("lease_drops", "Decode legs dropped for a late first token.", (), {(): self.lease_drops}),
            counter("abandoned_requests", "Requests whose client left.", ("leg",), by_one(self.abandoned)),
            counter("worker_failures", "Failed legs.", ("worker",), by_one(self.worker_failures)),
            gauge("in_flight_requests", "Requests that have not ended.", "", {"": self.in_flight}),
            gauge("worker_in_flight", "Legs under way.", "worker", {k: v.in_flight for k, v in loads.items()}),
            gauge("worker_transfers", "Legs without KV yet.", "worker", {k: v.transfers for k, v in loads.items()}),
            gauge("ready", "1 when every planned worker was proved and a route is alive.", "", {"": float(ready)}),
            gauge("simulated", "1: a worker is a simulated engine.", "", {"": float(simulated)}),
            gauge("proved", "1: the route was proved, 0: it failed.", "route", {k: float(v) for k, v in proofs}),
        ]  # fmt: skip
        ttft = HistogramMetricFamily(
            _PREFIX + "ttft_seconds", "From the complete request to the first token.", labels=("route",)
        )
        for route, histogram in self.ttft.items():
            buckets, total = histogram.buckets()
            ttft.add_metric((route,), buckets, total)
        buckets, total = self.added.buckets()
        added = HistogramMetricFamily(_PREFIX + "added_ttft_seconds", "The part of TTFT spent in the router.")
        added.add_metric((), buckets, total)

        class Everything(Collector):
            def collect(self) -> list[CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily]:
                return [*families, ttft, added]

        registry = CollectorRegistry(auto_describe=False)
        registry.register(Everything())
        return generate_latest(registry)


_PREFIX = "hpcserve_router_"

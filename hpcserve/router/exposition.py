"""Counts as Prometheus' text: what a series is, and the text of many."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Literal, NamedTuple, TypeVar

__all__ = ["PREFIX", "Histogram", "Series", "series_of", "text_of"]

PREFIX = "hpcserve_router_"
Labels = tuple[str, ...]


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


class Series(NamedTuple):
    """One metric: its name without the prefix, the names of its labels, and a value for each set of their values."""

    kind: Literal["counter", "gauge", "histogram"]
    name: str
    help_text: str
    labels: Labels
    values: tuple[tuple[Labels, float | Histogram], ...]


L = TypeVar("L", bound=Labels)
V = TypeVar("V", bound=float | Histogram)


def series_of(
    kind: Literal["counter", "gauge", "histogram"], name: str, help_text: str, labels: Labels, values: Mapping[L, V]
) -> Series:
    """A series of these values, as they are now."""
    return Series(kind, name, help_text, labels, tuple(values.items()))


def text_of(series: Iterable[Series]) -> bytes:
    """All of them in Prometheus' text format."""
    # Imported here: 70 ms that a restarted router does not have.
    from prometheus_client.core import (  # noqa: PLC0415 - see above
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )
    from prometheus_client.exposition import generate_latest  # noqa: PLC0415 - see above
    from prometheus_client.registry import Collector, CollectorRegistry  # noqa: PLC0415 - see above

    families: list[CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily] = []
    for each in series:
        name = PREFIX + each.name
        if each.kind == "histogram":
            histograms = HistogramMetricFamily(name, each.help_text, labels=each.labels)
            for labels, histogram in each.values:
                if isinstance(histogram, Histogram):
                    buckets, total = histogram.buckets()
                    histograms.add_metric(labels, buckets, total)
            families.append(histograms)
            continue
        family = (CounterMetricFamily if each.kind == "counter" else GaugeMetricFamily)(
            name, each.help_text, labels=each.labels
        )
        for labels, value in sorted(each.values, key=itemgetter(0)):
            if not isinstance(value, Histogram):
                family.add_metric(labels, value)
        families.append(family)

    class Everything(Collector):
        def collect(self) -> list[CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily]:
            return families

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Everything())
    return generate_latest(registry)

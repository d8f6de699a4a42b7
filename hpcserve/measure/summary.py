"""Readings -> `Measurement`: figures per pair, per class of paths and per shared link, and what stands out."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import date
from statistics import median

from hpcserve.errors import PlacementError
from hpcserve.fabric import Fabric, GpuAt
from hpcserve.measure.carried import links_carried
from hpcserve.measure.errand import Errand, Flow, Reading
from hpcserve.measure.outliers import Judged, outliers_of
from hpcserve.measure.pairs import at, links_of
from hpcserve.nouns import ClassMeasured, End, Measurement, PairMeasured

__all__ = ["SHARE_PROVED", "judged_pairs", "measurement_of", "static_gb_per_s"]

SHARE_PROVED = 0.95
"""A NIC whose counter grew by this part of what was read carried it."""


def measurement_of(
    errand: Errand, readings: Sequence[Reading], *, fabric: Fabric, day: date, trouble: Sequence[str] = ()
) -> Measurement:
    """What the readings say; flows without figures are named in `missing`, after the run's own trouble."""
    good = [reading for reading in readings if not reading.error and reading.rates_gb_per_s]
    alone = [reading for reading in good if not _task_links(errand, reading)]
    pairs = tuple(_pair(errand, reading) for reading in alone)
    judged = judged_pairs(errand, pairs, fabric)
    links, not_filled = links_carried(errand, good, fabric=fabric)
    nixl = next((reading.nixl for reading in good), "unknown")
    return Measurement(
        schema_="hpcserve.measurement/1",
        site=errand.site,
        day=day.isoformat(),
        tool=(
            f"hpcserve site measure (NIXL {nixl} over {errand.backend}, READ of {errand.blocks} x"
            f" {errand.block_bytes // 2**20} MiB, {errand.seconds:g} s a pair; {errand.scope})"
        ),
        pairs=pairs,
        classes=_classes(judged),
        links=links,
        not_filled=not_filled,
        outliers=outliers_of(judged),
        missing=(*trouble, *_missing(errand, readings)),
    )


def judged_pairs(errand: Errand, pairs: Sequence[PairMeasured], fabric: Fabric) -> tuple[Judged, ...]:
    """Measured pairs beside what the fabric says of their paths."""
    number_of = {(seat.node, seat.gpu): number for number, seat in enumerate(errand.seats)}
    judged = []
    for pair in pairs:
        flow = Flow(source=number_of[pair.a.node, pair.a.gpu], reader=number_of[pair.b.node, pair.b.gpu])
        source, reader = errand.seats[flow.source], errand.seats[flow.reader]
        judged.append(
            Judged(
                source=source.name,
                reader=reader.name,
                ends=(source.node, reader.node),
                kind=fabric.path_class(at(source), at(reader)),
                links=links_of(errand.seats, flow, fabric),
                gb_per_s=pair.gb_per_s,
                static_gb_per_s=static_gb_per_s(fabric, pair),
            )
        )
    return tuple(judged)


def static_gb_per_s(fabric: Fabric, pair: PairMeasured) -> float | None:
    """What the site file says the path of a pair can give; None where it leaves a rate unknown."""
    try:
        return fabric.path(GpuAt(pair.a.node, pair.a.gpu), GpuAt(pair.b.node, pair.b.gpu)).static_gb_per_s
    except PlacementError:
        return None


def _task_links(errand: Errand, reading: Reading) -> tuple[str, ...]:
    return errand.rounds[reading.round][reading.task].links


def _pair(errand: Errand, reading: Reading) -> PairMeasured:
    source, reader = errand.seats[reading.flow.source], errand.seats[reading.flow.reader]
    rates = reading.rates_gb_per_s
    usual = median(rates)
    proved = (
        reader.nic
        if reading.nic_bytes is not None and reading.nic_bytes >= SHARE_PROVED * reading.moved_bytes
        else None
    )
    return PairMeasured(
        a=End(node=source.node, gpu=source.gpu),
        b=End(node=reader.node, gpu=reader.gpu),
        gb_per_s=usual,
        latency_us=reading.latency_us,
        transport=reading.transport,
        device=proved,
        n=len(rates),
        spread=(max(rates) - min(rates)) / usual,
    )


def _classes(judged: Sequence[Judged]) -> tuple[ClassMeasured, ...]:
    by_kind: dict[str, list[Judged]] = defaultdict(list)
    for pair in judged:
        by_kind[pair.kind].append(pair)
    return tuple(
        ClassMeasured(
            class_=kind,
            links=pairs[0].links,
            median=median(pair.gb_per_s for pair in pairs),
            min=min(pair.gb_per_s for pair in pairs),
            max=max(pair.gb_per_s for pair in pairs),
            n=len(pairs),
        )
        for kind, pairs in by_kind.items()
    )


def _missing(errand: Errand, readings: Sequence[Reading]) -> list[str]:
    """One line for each flow without figures, and why."""
    told = {(reading.round, reading.task, reading.flow): reading.error for reading in readings}
    lines = []
    for number, tasks in enumerate(errand.rounds):
        for place, task in enumerate(tasks):
            for flow in task.flows:
                error = told.get((number, place, flow), "its rank ended before it was measured")
                if error:
                    source, reader = errand.seats[flow.source].name, errand.seats[flow.reader].name
                    what = f" (with others over {', '.join(task.links)})" if task.links else ""
                    lines.append(f"{source} to {reader}{what}: {error}")
    return lines

"""A measurement is laid over the site: by pair, by class of path, by link; the site's own figure stays to be told."""

from typing import Any

import pytest

from hpcserve.errors import PlacementError
from hpcserve.fabric import FabricPath, GpuAt, fabric_of
from hpcserve.nouns import ClassMeasured, End, LinkMeasured, Measurement, PairMeasured, Site
from hpcserve.wire import decode_record, encode_record
from tests.fabric.made import rails, two_sockets

SAME_LEAF = "same leaf: box.mlx5_0:1 to box.mlx5_0:1"
ACROSS = "up 1: box.mlx5_0:1 to box.mlx5_0:1"


def measurement(**parts: Any) -> Measurement:
    return Measurement(schema_="hpcserve.measurement/1", site="made", day="2026-05-31", tool="NIXL 1 over UCX", **parts)


def a_pair(a: GpuAt, b: GpuAt, gb_per_s: float) -> PairMeasured:
    return PairMeasured(
        a=End(node=a.node, gpu=a.index),
        b=End(node=b.node, gpu=b.index),
        gb_per_s=gb_per_s,
        latency_us=12.0,
        transport="rc_mlx5",
        device="mlx5_0:1",
        n=7,
        spread=0.02,
    )


def a_class(name: str, median: float) -> ClassMeasured:
    return ClassMeasured(class_=name, links=(), median=median, min=median, max=median, n=3)


def path(site: Site, measured: Measurement | None, a: GpuAt, b: GpuAt) -> FabricPath:
    return fabric_of(site, measured=measured).path(a, b)


A, B, FAR = GpuAt("n11", 0), GpuAt("n12", 0), GpuAt("n21", 0)


def test_a_pair_that_was_measured_has_its_own_figure_one_way_only() -> None:
    measured = measurement(pairs=(a_pair(A, B, 11.0),))
    there = path(rails(), measured, A, B)
    assert (there.gb_per_s, there.static_gb_per_s) == (11.0, 40.0)
    assert there.source == "measured on 2026-05-31: NIXL 1 over UCX, this pair, 7 transfers, rc_mlx5"
    assert [link.is_measured for link in there.links] == [True, False]
    back = path(rails(), measured, B, A)
    assert (back.gb_per_s, back.source) == (40.0, "NDR")


def test_a_class_that_was_measured_speaks_for_all_its_pairs_and_no_other() -> None:
    measured = measurement(classes=(a_class(SAME_LEAF, 30.0),))
    for a, b in ((A, B), (GpuAt("n22", 1), GpuAt("n21", 1))):
        found = path(rails(), measured, a, b)
        assert (found.gb_per_s, found.static_gb_per_s) == (30.0, 40.0)
        assert "median of 3 such pairs" in found.source
    assert path(rails(), measured, A, FAR).gb_per_s == 40.0


def test_a_pairs_own_figure_goes_before_its_classs() -> None:
    measured = measurement(classes=(a_class(SAME_LEAF, 30.0),), pairs=(a_pair(A, B, 11.0),))
    assert path(rails(), measured, A, B).gb_per_s == 11.0
    assert path(rails(), measured, B, A).gb_per_s == 30.0


def test_more_than_the_site_says_raises_every_link_that_carried_it() -> None:
    found = path(rails(), measurement(classes=(a_class(SAME_LEAF, 45.0),)), A, B)
    assert [link.gb_per_s for link in found.links] == [45.0, 45.0]
    assert (found.gb_per_s, found.static_gb_per_s) == (45.0, 40.0)
    across = path(rails(), measurement(classes=(a_class(ACROSS, 45.0),)), A, FAR)
    assert [link.gb_per_s for link in across.links] == [45.0, 60.0, 60.0, 45.0]


def test_a_link_that_was_measured_counts_for_every_path_over_it() -> None:
    measured = measurement(links=(LinkMeasured(name="u1r0 up", gb_per_s=9.0),))
    fabric = fabric_of(rails(), measured=measured)
    for a in (A, B):
        found = fabric.path(a, FAR)
        assert (found.gb_per_s, found.static_gb_per_s) == (9.0, 40.0)
        assert found.source == "measured on 2026-05-31: NIXL 1 over UCX"
        link = next(link for link in found.links if link.is_measured)
        assert (link.name, link.static_gb_per_s, link.where) == ("u1r0 up", 60.0, "switches, u1r0, uplink")
    assert fabric.path(FAR, A).gb_per_s == 40.0
    assert [share.gb_per_s for share in fabric.share([(A, FAR), (B, FAR)])] == [4.5, 4.5]


def test_a_measurement_makes_an_unknown_rate_known() -> None:
    site = two_sockets(nic_gb_per_s=None)
    measured = measurement(classes=(a_class(SAME_LEAF, 12.0),))
    found = path(site, measured, GpuAt("n1", 0), GpuAt("n2", 0))
    assert (found.gb_per_s, found.static_gb_per_s) == (12.0, None)
    with pytest.raises(PlacementError, match="unknown"):
        path(site, measured, GpuAt("n1", 1), GpuAt("n2", 0))


def test_a_measurement_of_another_site_is_refused() -> None:
    other = measurement().model_copy(update={"site": "other"})
    with pytest.raises(PlacementError, match="site `other`, and the site is `made`"):
        fabric_of(rails(), measured=other)


def test_a_measurement_is_read_back_equal() -> None:
    measured = measurement(
        pairs=(a_pair(A, B, 11.0),),
        classes=(a_class(SAME_LEAF, 30.0),),
        links=(LinkMeasured(name="u1r0 up", gb_per_s=9.0),),
        missing=("n22 did not answer",),
    )
    assert decode_record(Measurement, encode_record(measured)) == measured

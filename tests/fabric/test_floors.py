"""What a link carried without being the limit: it can carry that at least, and nothing else is known of it."""

import json

import pytest

from hpcserve.errors import PlacementError
from hpcserve.fabric import GpuAt, fabric_of
from hpcserve.nouns import LinkMeasured, Measurement
from hpcserve.wire import decode_record, encode_record
from tests.fabric.made import rails, two_sockets

A, FAR = GpuAt("n11", 0), GpuAt("n21", 0)
"""Joined by `u1r0 up`, 60 GB/s by the site, between NICs of 40 GB/s."""


def measured(*, links: tuple[LinkMeasured, ...] = (), not_filled: tuple[LinkMeasured, ...] = ()) -> Measurement:
    return Measurement(
        schema_="hpcserve.measurement/1",
        site="made",
        day="2026-05-31",
        tool="NIXL",
        links=links,
        not_filled=not_filled,
    )


def at_least(gb_per_s: float, name: str = "u1r0 up") -> Measurement:
    return measured(not_filled=(LinkMeasured(name=name, gb_per_s=gb_per_s),))


def uplink(measurement: Measurement | None) -> tuple[float, bool, str]:
    links = {link.name: link for link in fabric_of(rails(), measured=measurement).path(A, FAR).links}
    link = links["u1r0 up"]
    return link.gb_per_s, link.is_measured, link.source


def test_a_floor_stands_over_a_lower_figure_of_the_site_and_says_what_it_is() -> None:
    rate, is_measured, source = uplink(at_least(70.0))
    assert (rate, is_measured) == (70.0, True)
    assert source == "measured on 2026-05-31: NIXL, at least: it was not the limit"


@pytest.mark.parametrize("gb_per_s", [12.0, 60.0])
def test_a_floor_lowers_nothing(gb_per_s: float) -> None:
    assert uplink(at_least(gb_per_s)) == uplink(None)


def test_a_limit_goes_before_a_floor() -> None:
    both = measured(
        links=(LinkMeasured(name="u1r0 up", gb_per_s=9.0),), not_filled=(LinkMeasured(name="u1r0 up", gb_per_s=70.0),)
    )
    assert uplink(both)[0] == 9.0


def test_a_floor_makes_no_unknown_rate_known() -> None:
    site = two_sockets(nic_gb_per_s=None)
    names = [link.name for link in fabric_of(site).links(GpuAt("n1", 0), GpuAt("n2", 0))]
    floors = measured(not_filled=tuple(LinkMeasured(name=name, gb_per_s=30.0) for name in names))
    with pytest.raises(PlacementError, match="unknown"):
        fabric_of(site, measured=floors).path(GpuAt("n1", 0), GpuAt("n2", 0))


def test_floors_and_what_the_site_said_are_read_back_equal() -> None:
    link = LinkMeasured(name="u1r0 up", gb_per_s=70.0, static_gb_per_s=80.0)
    written = measured(links=(link,), not_filled=(link,))
    assert decode_record(Measurement, encode_record(written)) == written


def test_a_file_of_before_there_were_floors_is_read() -> None:
    old = {
        "schema": "hpcserve.measurement/1",
        "site": "made",
        "day": "2026-05-31",
        "tool": "NIXL",
        "links": [{"name": "u1r0 up", "gb_per_s": 9.0}],
    }
    found = decode_record(Measurement, json.dumps(old).encode())
    assert found == measured(links=(LinkMeasured(name="u1r0 up", gb_per_s=9.0),))
    assert (found.not_filled, found.links[0].static_gb_per_s) == ((), None)

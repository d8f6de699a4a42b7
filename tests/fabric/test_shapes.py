"""What lies between two GPUs where a fabric is more than one tree of leaves."""

from collections.abc import Callable
from itertools import permutations

import pytest

from hpcserve.errors import PlacementError
from hpcserve.fabric import FabricPath, GpuAt, fabric_of
from hpcserve.nouns import Site
from hpcserve.site import unknown_rates
from tests.fabric.made import domains, dragonfly, nic, node_type, rails, rate, site_of, two_sockets


def path(site: Site, a: tuple[str, int], b: tuple[str, int]) -> FabricPath:
    return fabric_of(site).path(GpuAt(*a), GpuAt(*b))


def names(found: FabricPath) -> list[str]:
    return [link.name for link in found.links]


def test_on_one_rail_a_path_stays_on_that_rails_leaf() -> None:
    for rail in (0, 1):
        found = path(rails(), ("n11", rail), ("n12", rail))
        assert found.hops == (f"n11.mlx5_{rail}:1", f"u1r{rail}", f"n12.mlx5_{rail}:1")
        assert (found.gb_per_s, found.distance) == (40.0, "same-leaf")


def test_from_one_rail_to_another_a_path_crosses_the_spine_even_inside_a_unit() -> None:
    found = path(rails(), ("n11", 0), ("n12", 1))
    assert found.hops == ("n11.mlx5_0:1", "u1r0", "spine", "u1r1", "n12.mlx5_1:1")
    assert names(found)[1:3] == ["u1r0 up", "u1r1 down"]
    assert found.distance == "across-leaves"


def test_nodes_of_a_unit_share_their_leaves_and_those_of_two_units_do_not() -> None:
    fabric = fabric_of(rails())
    assert fabric.distance("n11", "n12") == "same-leaf"
    assert fabric.distance("n11", "n21") == "across-leaves"
    assert dict(fabric.leaves_of("n21")) == {0: "u2r0", 1: "u2r1"}
    assert fabric.switches_above(fabric.leaf_of("n21")) == ("u2r0", "spine")


def test_in_a_dragonfly_group_the_direct_link_counts() -> None:
    found = path(dragonfly(), ("na1", 0), ("na3", 0))
    assert found.hops == ("na1.mlx5_0:1", "a1", "a3", "na3.mlx5_0:1")
    assert names(found)[1] == "a1 to a3"
    assert (found.gb_per_s, found.source) == (25.0, "copper")


def test_between_dragonfly_groups_the_one_link_between_them_counts() -> None:
    found = path(dragonfly(), ("na1", 0), ("nb2", 0))
    assert found.hops == ("na1.mlx5_0:1", "a1", "ga", "gb", "b2", "nb2.mlx5_0:1")
    assert names(found)[1:4] == ["a1 out of ga", "ga to gb", "gb into b2"]
    assert (found.gb_per_s, found.source) == (30.0, "optics")
    assert found.links[1].gb_per_s == 50.0  # two direct links to the other routers of the group


def test_in_an_nvlink_domain_nvlink_carries_it_from_node_to_node() -> None:
    found = path(domains(), ("t1", 0), ("t2", 1))
    assert found.hops == ("t1.gpu0", "rack1", "t2.gpu1")
    assert (found.gb_per_s, found.source) == (700.0, "NVLink 5")
    inside = path(domains(), ("t1", 0), ("t1", 1))
    assert inside.hops == ("t1.gpu0", "rack1", "t1.gpu1")
    assert inside.gb_per_s == 700.0


def test_between_two_cliques_of_one_rack_the_nic_carries_it() -> None:
    found = path(domains(), ("t2", 0), ("t3", 0))
    assert (found.hops[1], found.gb_per_s) == ("leaf", 40.0)


def test_a_nic_of_another_numa_node_is_reached_through_the_host() -> None:
    near, far = path(two_sockets(), ("n1", 0), ("n2", 0)), path(two_sockets(), ("n1", 1), ("n2", 0))
    assert (near.gb_per_s, near.source) == (40.0, "NDR")
    assert (far.gb_per_s, far.source) == (20.0, "PCIe")
    assert names(far)[0] == "n1.host"
    assert names(path(two_sockets(), ("n1", 0), ("n2", 1)))[-1] == "n2.host"


@pytest.mark.parametrize(("slot", "port", "expected"), [(28.2, 40.0, 28.2), (56.4, 40.0, 40.0), (28.2, 12.0, 12.0)])
def test_of_a_port_and_its_slot_the_slower_one_counts(slot: float, port: float, expected: float) -> None:
    found = path(two_sockets(slot=slot, nic_gb_per_s=port), ("n1", 0), ("n2", 0))
    assert found.gb_per_s == expected


def test_a_faster_port_in_a_slow_slot_is_not_the_faster_nic() -> None:
    slow = nic(0, [0], 40.0, slot=rate(14.1, "PCIe 3.0 x16"))
    site = site_of({"box": node_type(1, [slow, nic(1, [0], 25.0)])}, [("n1", "box")], [{"name": "leaf", "hosts": "n1"}])
    assert fabric_of(site).nic(GpuAt("n1", 0)).name == "mlx5_1:1"


def test_an_unknown_rate_is_refused_with_the_link_and_where_to_write_it() -> None:
    site = two_sockets(nic_gb_per_s=None)
    with pytest.raises(PlacementError) as caught:
        path(site, ("n1", 0), ("n2", 0))
    assert "`n1.mlx5_0:1 out` is unknown (NDR)" in caught.value.message
    assert "hpcserve site measure" in caught.value.remedy
    assert "node_types, box, nics, mlx5_0:1, rate" in caught.value.remedy
    assert path(site, ("n1", 0), ("n1", 1)).gb_per_s == 20.0
    assert [one.where for one in unknown_rates(site)] == ["node_types, box, nics, mlx5_0:1, rate"]


def test_the_links_of_an_unknown_path_can_still_be_asked_for() -> None:
    fabric = fabric_of(two_sockets(nic_gb_per_s=None))
    links = fabric.links(GpuAt("n1", 0), GpuAt("n2", 0))
    assert [(link.name, link.gb_per_s, link.static_gb_per_s) for link in links] == [
        ("n1.mlx5_0:1 out", 0.0, None),
        ("n2.mlx5_0:1 in", 0.0, None),
    ]


def test_unknown_rates_are_listed_wherever_they_stand() -> None:
    kind = node_type(2, [nic(0, [0, 1], None, slot=rate(None))], nvlink=[{"gpus": [0, 1], "rate": rate(None, "why")}])
    site = site_of(
        {"box": {**kind, "host_path": rate(None)}},
        [("n[1-2]", "box")],
        [
            {"name": "l1", "hosts": "n1", "uplink": rate(None)},
            {"name": "l2", "hosts": "n2", "uplink": rate(1.0)},
            {"name": "top", "switches": "l[1-2]"},
        ],
        nvlink_domains=[{"name": "rack", "hosts": "n[1-2]", "rate": rate(None)}],
    )
    assert [one.where for one in unknown_rates(site)] == [
        "node_types, box, nics, mlx5_0:1, rate",
        "node_types, box, nics, mlx5_0:1, slot",
        "node_types, box, nvlink, number 1, rate",
        "node_types, box, host_path",
        "nvlink_domains, rack, rate",
        "switches, l1, uplink",
    ]
    assert unknown_rates(site)[2].why == "why"


def test_paths_of_one_kind_have_one_class_and_others_another() -> None:
    fabric = fabric_of(rails())
    one = fabric.path_class(GpuAt("n11", 0), GpuAt("n12", 0))
    assert one == "same leaf: box.mlx5_0:1 to box.mlx5_0:1"
    assert fabric.path_class(GpuAt("n22", 1), GpuAt("n21", 1)) == one
    assert fabric.path_class(GpuAt("n11", 0), GpuAt("n12", 1)) == "up 1: box.mlx5_0:1 to box.mlx5_0:1"
    sockets = fabric_of(two_sockets())
    assert len({sockets.path_class(GpuAt("n1", a), GpuAt("n2", b)) for a in (0, 1) for b in (0, 1)}) == 4
    groups = fabric_of(dragonfly())
    assert groups.path_class(GpuAt("na1", 0), GpuAt("na2", 0)).startswith("mesh 1: ")
    assert groups.path_class(GpuAt("na1", 0), GpuAt("nb2", 0)).startswith("mesh 2: ")
    racks = fabric_of(domains())
    assert racks.path_class(GpuAt("t1", 0), GpuAt("t2", 0)) == "NVLink domain: tray to tray"
    assert racks.path_class(GpuAt("t1", 0), GpuAt("t1", 1)) == "in tray: NVLink"


@pytest.mark.parametrize("made", [rails, dragonfly, domains, two_sockets], ids=lambda made: made.__name__)
def test_in_every_shape_the_way_back_is_the_way_there_reversed_and_alone_is_alone(made: Callable[[], Site]) -> None:
    fabric = fabric_of(made())
    gpus = [GpuAt(node, gpu) for node in fabric.nodes for gpu in range(fabric.node_type(node).gpu.count)]
    for a, b in permutations(gpus, 2):
        there, back = fabric.path(a, b), fabric.path(b, a)
        assert there.hops == back.hops[::-1]
        assert there.gb_per_s == back.gb_per_s == there.static_gb_per_s == min(link.gb_per_s for link in there.links)
        assert fabric.share([(a, b)])[0].gb_per_s == there.gb_per_s
        assert len({link.name for link in there.links}) == len(there.links)
        assert all(link.where and link.source for link in there.links)

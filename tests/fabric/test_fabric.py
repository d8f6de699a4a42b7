from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcserve.errors import NotFoundError, PlacementError
from hpcserve.fabric import Fabric, GpuAt, fabric_of
from hpcserve.nouns import NvlinkIsland, Rate, Site
from hpcserve.site import load_site
from tests.strategies import sites

SITES = Path(__file__).parents[2] / "site_configs"


def shipped(name: str) -> Site:
    return load_site((SITES / f"{name}.yaml").read_text(), source=name)


ONEBOX, H100 = fabric_of(shipped("onebox")), fabric_of(shipped("h100-ib"))


def test_a_path_under_one_leaf_is_bound_by_the_nic() -> None:
    path = ONEBOX.path(GpuAt("node01", 0), GpuAt("node02", 0))
    assert (path.hops, path.distance) == (("node01.data0", "leaf1", "node02.data0"), "same-leaf")
    assert path.gb_per_s == pytest.approx(0.1195)
    assert "1448 of 1514" in path.source


def test_a_path_across_leaves_is_bound_by_the_uplink() -> None:
    path = ONEBOX.path(GpuAt("node02", 0), GpuAt("node03", 0))
    assert path.hops == ("node02.data0", "leaf1", "spine", "leaf2", "node03.data0")
    assert path.distance == "across-leaves"
    assert path.gb_per_s == pytest.approx(0.0239)
    assert [link.name for link in path.links] == ["node02.data0 out", "leaf1 up", "leaf2 down", "node03.data0 in"]


def test_inside_an_island_nvlink_carries_it() -> None:
    path = H100.path(GpuAt("h01", 0), GpuAt("h01", 7))
    assert (path.hops, path.distance) == (("h01.gpu0", "nvlink", "h01.gpu7"), "same-node")
    assert path.gb_per_s == pytest.approx(378)


def test_outside_an_island_the_host_carries_it() -> None:
    site = shipped("h100-ib")
    kind = site.node_types["hgx-h100"]
    island = NvlinkIsland(gpus=(0, 1), rate=Rate(nominal_gb_per_s=450.0, efficiency=1.0, source="halves"))
    halves = fabric_of(
        site.model_copy(update={"node_types": {"hgx-h100": kind.model_copy(update={"nvlink": (island,)})}})
    )
    assert halves.path(GpuAt("h01", 0), GpuAt("h01", 1)).gb_per_s == 450
    path = halves.path(GpuAt("h01", 1), GpuAt("h01", 2))
    assert path.hops == ("h01.gpu1", "host", "h01.gpu2")
    assert path.gb_per_s == pytest.approx(51.2)


def test_each_gpu_uses_the_nic_it_is_nearest_to() -> None:
    assert H100.path(GpuAt("h01", 3), GpuAt("h16", 5)).hops == (
        "h01.mlx5_3:1",
        "leaf1",
        "spine",
        "leaf2",
        "h16.mlx5_5:1",
    )


def test_nodes_that_no_switch_joins_have_no_path() -> None:
    site = shipped("onebox")
    apart = fabric_of(
        site.model_copy(
            update={"switches": tuple(s.model_copy(update={"uplink": None}) for s in site.switches if s.hosts)}
        )
    )
    assert apart.path(GpuAt("node01", 0), GpuAt("node02", 0)).distance == "same-leaf"
    with pytest.raises(PlacementError, match="node01 to node03"):
        apart.path(GpuAt("node01", 0), GpuAt("node03", 0))


@pytest.mark.parametrize("gpu", [GpuAt("node05", 0), GpuAt("node01", 1)])
def test_what_the_site_does_not_have_is_named(gpu: GpuAt) -> None:
    with pytest.raises(NotFoundError, match=gpu.node):
        ONEBOX.path(gpu, GpuAt("node02", 0))


def test_a_gpu_and_itself_need_no_path() -> None:
    with pytest.raises(ValueError, match="itself"):
        ONEBOX.path(GpuAt("node01", 0), GpuAt("node01", 0))


def gpus_of(fabric: Fabric) -> list[GpuAt]:
    return [GpuAt(node, index) for node in fabric.nodes for index in range(fabric.node_type(node).gpu.count)]


@settings(deadline=None)
@given(site=sites(), data=st.data())
def test_the_way_back_is_the_way_there_reversed(site: Site, data: st.DataObject) -> None:
    fabric = fabric_of(site)
    a, b = data.draw(st.tuples(*[st.sampled_from(gpus_of(fabric))] * 2).filter(lambda pair: pair[0] != pair[1]))
    there, back = fabric.path(a, b), fabric.path(b, a)
    assert there.hops == back.hops[::-1]
    assert there.gb_per_s == back.gb_per_s == min(link.gb_per_s for link in there.links)
    assert there.source in {link.source for link in there.links}
    assert there.distance == fabric.distance(a.node, b.node)
    same_leaf = fabric.leaf_of(a.node) == fabric.leaf_of(b.node)
    assert (there.distance != "across-leaves") == same_leaf
    names = [link.name for link in there.links]
    assert len(set(names)) == len(names)


def test_4096_nodes_are_built_in_a_moment_and_a_path_needs_only_its_own_switches() -> None:
    site = shipped("h100-ib")
    leaf = site.switches[0]
    large = fabric_of(
        site.model_copy(
            update={
                "nodes": (site.nodes[0].model_copy(update={"hosts": "h[0001-4096]"}),),
                "switches": (
                    *(
                        leaf.model_copy(update={"name": f"leaf{i}", "hosts": f"h[{32 * i + 1:04}-{32 * i + 32:04}]"})
                        for i in range(128)
                    ),
                    *(
                        leaf.model_copy(
                            update={"name": f"pod{i}", "hosts": None, "switches": f"leaf[{16 * i}-{16 * i + 15}]"}
                        )
                        for i in range(8)
                    ),
                    site.switches[2].model_copy(update={"switches": "pod[0-7]"}),
                ),
            }
        )
    )
    assert len(gpus_of(large)) == 32_768
    path = large.path(GpuAt("h0001", 0), GpuAt("h4096", 7))
    assert path.hops == ("h0001.mlx5_0:1", "leaf0", "pod0", "spine", "pod7", "leaf127", "h4096.mlx5_7:1")
    near = large.path(GpuAt("h0001", 0), GpuAt("h0033", 0))
    assert near.hops == ("h0001.mlx5_0:1", "leaf0", "pod0", "leaf1", "h0033.mlx5_0:1")


def test_of_equal_nics_near_one_gpu_the_first_carries_it_and_a_faster_one_before_it() -> None:
    site = shipped("h100-ib")
    kind = site.node_types["hgx-h100"]
    shared = [nic.model_copy(update={"gpus": tuple(range(8))}) for nic in kind.nics[:3]]
    fast = shared[2].model_copy(update={"rate": Rate(nominal_gb_per_s=100.0, efficiency=1.0, source="fast")})
    for nics, name in ((shared, "mlx5_0:1"), ([*shared[:2], fast], "mlx5_2:1")):
        changed = kind.model_copy(update={"nics": tuple(nics)})
        fabric = fabric_of(site.model_copy(update={"node_types": {"hgx-h100": changed}}))
        assert fabric.nic(GpuAt("h01", 5)).name == name

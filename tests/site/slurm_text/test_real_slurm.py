"""What the one-machine cluster's own Slurm prints says what the cluster was started with."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from hpcserve.site import recognise
from hpcserve.site.slurm_text import (
    MachineList,
    NodeFacts,
    SwitchTree,
    parse_show_config,
    parse_show_node,
    parse_show_partition,
    parse_show_topology,
    parse_sinfo,
    parse_slurm_conf,
    parse_topology_conf,
)

pytestmark = [pytest.mark.real, pytest.mark.whole_cluster]

# The cluster as `slurm/cluster up` starts it without options.
LEAVES = {"leaf1": ("node01", "node02"), "leaf2": ("node03", "node04")}
NODES = ("node01", "node02", "node03", "node04")


@pytest.fixture(scope="module", autouse=True)
def _inside() -> None:
    if "SLURM_CONF" not in os.environ:
        pytest.fail("run these inside the cluster: slurm/cluster exec .venv/bin/pytest -m real", pytrace=False)
    end_s = time.monotonic() + 100
    while subprocess.run(["sinfo", "-h", "-t", "idle", "-o", "%D"], capture_output=True, check=True).stdout != b"4\n":
        assert time.monotonic() < end_s, "jobs of earlier tests still hold nodes"
        time.sleep(0.5)


def printed(*command: str, kind: str) -> str:
    """What a command prints; it must be recognised for what it is."""
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert recognise(text, "-").name == kind
    return text


def configured(name: str) -> str:
    return Path(os.environ["SLURM_CONF"]).with_name(name).read_text()


def by_host(found: MachineList) -> dict[str, NodeFacts]:
    return {host: group for group in found.nodes for host in group.hosts}


def assert_tree(found: object) -> None:
    assert isinstance(found, SwitchTree)
    assert {one.name: one.nodes for one in found.switches} == {**LEAVES, "spine": ()}
    assert {one.name: one.children for one in found.switches}["spine"] == tuple(LEAVES)
    assert (found.roots, found.warnings) == (("spine",), ())


def test_the_tree_as_configured_and_as_printed() -> None:
    assert_tree(parse_topology_conf(configured("topology.conf"), "topology.conf"))
    assert_tree(parse_show_topology(printed("scontrol", "show", "topology", kind="scontrol-show-topology"), "-"))


@pytest.mark.parametrize("how", [(), ("-o",)])
def test_nodes_as_printed_are_as_configured(how: tuple[str, ...]) -> None:
    shown = by_host(parse_show_node(printed("scontrol", *how, "show", "node", kind="scontrol-show-node"), "-"))
    written = by_host(parse_slurm_conf(configured("slurm.conf"), "slurm.conf"))
    assert tuple(shown) == tuple(written) == NODES
    for host in NODES:
        one, other = shown[host], written[host]
        assert (one.gres, one.memory_mib, one.cpus, one.cores) == (
            other.gres,
            other.memory_mib,
            other.cpus,
            other.cores,
        )
        assert (one.features, one.address) == (other.features, other.address)
        assert one.gres is not None
        assert one.gres.gpus == 1
        assert one.features == tuple(leaf for leaf, nodes in LEAVES.items() if host in nodes)
        assert one.usable is not False
        assert one.partitions == ("main",)


@pytest.mark.parametrize("how", [(), ("-o",)])
def test_partitions_as_printed_are_as_configured(how: tuple[str, ...]) -> None:
    text = printed("scontrol", *how, "show", "partition", kind="scontrol-show-partition")
    for found in (parse_show_partition(text, "-"), parse_slurm_conf(configured("slurm.conf"), "slurm.conf")):
        (main,) = found.partitions
        assert (main.name, main.hosts, main.default, main.max_time) == ("main", NODES, True, "UNLIMITED")
        assert (main.exclusive, main.up) == (False, True)


def test_settings() -> None:
    found = parse_show_config(printed("scontrol", "show", "config", kind="scontrol-show-config"), "-")
    version = subprocess.run(["sinfo", "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]
    assert found.setting("SLURM_VERSION") == version
    assert found.setting("TopologyPlugin") == "topology/tree"
    assert found.setting("GresTypes") == "gpu"


@pytest.mark.parametrize("how", [(), ("-N", "-l"), ("-N", "-o", "%N|%P|%t|%G|%f|%m|%c|%z")])
def test_sinfo(how: tuple[str, ...]) -> None:
    found = parse_sinfo(printed("sinfo", *how, kind="sinfo"), "-")
    nodes = by_host(found)
    assert sorted(nodes) == list(NODES)
    assert [(one.name, sorted(one.hosts), one.default) for one in found.partitions] == [("main", list(NODES), True)]
    assert {one.usable for one in nodes.values()} <= {True, None}
    if "-o" in how:
        shown = by_host(parse_show_node(printed("scontrol", "show", "node", kind="scontrol-show-node"), "-"))
        for host in NODES:
            one, other = nodes[host], shown[host]
            assert (one.gres, one.features, one.memory_mib, one.cpus, one.cores) == (
                other.gres,
                other.features,
                other.memory_mib,
                other.cpus,
                other.cores,
            )

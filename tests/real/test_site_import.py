"""A live import of the one-machine cluster: the site that comes out is the cluster, and a second import keeps edits."""

import json
import re
from pathlib import Path

import pytest

from hpcserve.fabric import fabric_of
from hpcserve.site import expand_hosts, hosts_of, load_site
from tests.real.harness import hpcserve, slurm

pytestmark = pytest.mark.whole_cluster

BASE = """\
# What no tool of this cluster prints, in the admin's words.
schema: hpcserve.site/1
name: imported
description: the one-machine cluster, imported

node_types:
  slot: # a share of the machine
    gpu: {model: cpu, memory_gib: 15.6}
    nics:
      - name: data0
        kind: ethernet
        rate: {nominal_gb_per_s: 0.125, efficiency: 0.956, source: shaped by HTB}
        gpus: [0]
    host_path: {effective_gb_per_s: 0.2, source: a guess for the test}

nodes: []

partitions:
  main:
    max_time: 7-00:00:00 # Slurm itself has no limit here
    account_required: false

switches: []

networks:
  control: {interface: ctl0}
  data: {interface: data0}

slurm:
  exclusive: false

transport:
  ucx: {UCX_TLS: tcp}

runtimes:
  hpcserve: {kind: none}

paths:
  jobs: ~/.local/share/hpcserve/jobs
  models: ~/.cache/hpcserve/models
  cache: ~/.cache/hpcserve
"""


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("import")
    base, site = folder / "base.yaml", folder / "imported.yaml"
    base.write_text(BASE)
    hpcserve("site", "import", "--live", "--into", site, "--base", base, "--yes")
    return site


def test_a_live_import_is_accepted_and_equals_the_cluster(imported: Path) -> None:
    told = json.loads(hpcserve("site", "check", imported, "--json"))
    assert told["name"] == "imported"
    site = load_site(imported.read_text(), source=str(imported))
    nodes = re.findall(r"^NodeName=(\S+)", slurm("scontrol", "show", "node"), re.MULTILINE)
    assert list(hosts_of(site)) == nodes
    kind = site.node_types["slot"]
    cpus = {int(one) for one in re.findall(r"CPUTot=(\d+)", slurm("scontrol", "show", "node"))}
    gpus = {int(one) for one in re.findall(r"Gres=gpu:(\d+)", slurm("scontrol", "show", "node"))}
    assert {kind.cores} == cpus
    assert {kind.gpu.count} == gpus
    ((name, hosts),) = re.findall(
        r"PartitionName=(\S+)\n(?:.*\n)*?\s+Nodes=(\S+)", slurm("scontrol", "show", "partition")
    )
    assert {key: expand_hosts(one.hosts) for key, one in site.partitions.items()} == {name: expand_hosts(hosts)}
    truth = {
        switch: expand_hosts(below)
        for switch, below in re.findall(
            r"SwitchName=(\S+) Level=0 .*?Nodes=(\S+)", slurm("scontrol", "show", "topology")
        )
    }
    fabric = fabric_of(site)
    assert {node: fabric.leaf_of(node) for node in nodes} == {
        node: leaf for leaf, below in truth.items() for node in below
    }
    assert len(truth) > 1
    assert site.slurm is not None
    assert site.slurm.version is not None
    assert slurm("scontrol", "--version").strip() == f"slurm {site.slurm.version}" or site.slurm.version in slurm(
        "scontrol", "--version"
    )
    assert (site.slurm.topology, site.slurm.gpu_request, site.slurm.switches_option) == ("tree", "gres", True)


def test_a_second_import_changes_nothing_and_after_an_edit_keeps_edit_and_comment(imported: Path) -> None:
    before = imported.read_bytes()
    hpcserve("site", "import", "--live", "--into", imported, "--yes")
    assert imported.read_bytes() == before
    text = imported.read_text()
    edited = text.replace("    cores: 8\n", "    cores: 6 # two are left to the system\n")
    assert edited != text
    imported.write_text(edited)
    told = json.loads(hpcserve("site", "import", "--live", "--into", imported, "--yes", "--json"))
    assert imported.read_text() == edited
    assert [one["key"] for one in told["kept"]] == ["node_types.slot.cores"]
    assert "# a share of the machine" in edited
    imported.write_text(text)


def test_tools_of_a_node_are_asked_there_and_missing_ones_are_told(imported: Path) -> None:
    told = json.loads(
        hpcserve("site", "import", "--live", "--nodes", "node02", "--into", imported, "--dry-run", "--json")
    )
    assert not told["changed"]
    if not Path("/usr/bin/nvidia-smi").exists():
        assert "node02: nvidia-smi-topo: no such command there" in told["notes"]
    understood = json.loads(hpcserve("site", "import", "--live", "--nodes", "node02", "--dry-run", "--json"))
    kinds = {one["kind"] for one in understood}
    assert {"scontrol-show-node", "scontrol-show-topology", "lscpu", "ip-addr", "sysfs"} <= kinds
    (interfaces,) = [one for one in understood if one["kind"] == "ip-addr"]
    assert "data0" in json.dumps(interfaces)

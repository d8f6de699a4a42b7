"""What `scontrol show`, `--json` and `sinfo` print: the same cluster from each."""

import json
from typing import Any

import pytest

from hpcserve.errors import InputError
from hpcserve.site.slurm_text import (
    MachineList,
    parse_json_machines,
    parse_show_config,
    parse_show_node,
    parse_show_partition,
    parse_sinfo,
    topology_plugin,
)

NODES = """\
NodeName=acc01 Arch=x86_64 CoresPerSocket=32
   CPUAlloc=0 CPUEfctv=128 CPUTot=128 CPULoad=0.10
   AvailableFeatures=h100,ib
   ActiveFeatures=h100
   Gres=gpu:h100:4(S:0-1)
   NodeAddr=10.2.0.1 NodeHostName=acc01 Version=23.11.4
   OS=Linux 5.14.0 #1 SMP PREEMPT_DYNAMIC Mon Jan 1 00:00:00 UTC 2024
   RealMemory=1031000 AllocMem=0 FreeMem=900000 Sockets=2 Boards=1
   State=IDLE ThreadsPerCore=2 TmpDisk=0 Weight=10 Owner=N/A MCS_label=N/A
   Partitions=all,acc
   CfgTRES=cpu=128,mem=1031000M,billing=128,gres/gpu=4,gres/gpu:h100=4
   AllocTRES=

NodeName=acc02 CoresPerSocket=32
   CPUAlloc=0 CPUEfctv=128 CPUTot=128 CPULoad=N/A
   AvailableFeatures=(null)
   ActiveFeatures=(null)
   Gres=(null)
   NodeAddr=acc02 NodeHostName=acc02
   RealMemory=1031000 AllocMem=0 FreeMem=N/A Sockets=2 Boards=1
   State=DOWN*+DRAIN ThreadsPerCore=2 TmpDisk=0 Weight=10 Owner=N/A MCS_label=N/A
   Partitions=all
   CfgTRES=cpu=128,mem=1031000M,billing=128,gres/gpu=4
   Reason=fan broken, see State=IDLE Gres=gpu:16 [root@2026-01-02T03:04:05]
"""

PARTITIONS = """\
PartitionName=all
   AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL
   AllocNodes=ALL Default=YES QoS=N/A
   DefaultTime=NONE DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO
   MaxNodes=UNLIMITED MaxTime=UNLIMITED MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED
   Nodes=acc[01-02],fat1
   PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=NO
   State=UP TotalCPUs=384 TotalNodes=3 SelectTypeParameters=NONE

PartitionName=acc
   AllocNodes=ALL Default=NO QoS=N/A
   MaxNodes=2 MaxTime=1-00:00:00 MinNodes=0
   Nodes=acc[01-02]
   PriorityJobFactor=1 OverSubscribe=EXCLUSIVE
   State=DRAIN TotalCPUs=256 TotalNodes=2 Topology=racks

PartitionName=none
   Nodes=(null)
   State=UP TotalCPUs=0 TotalNodes=0
"""


def one_line(text: str) -> str:
    """As `scontrol -o` prints the same."""
    return "".join(" ".join(part.split()) + "\n" for part in text.split("\n\n"))


def assert_nodes(found: MachineList) -> None:
    first, second = found.nodes
    assert first.hosts == ("acc01",)
    assert first.gres is not None
    assert first.gres.types == {"h100": 4}
    assert (first.memory_mib, first.cpus, first.cores, first.threads_per_core) == (1_031_000, 128, 64, 2)
    assert (first.features, first.state, first.usable) == (("h100",), "IDLE", True)
    assert (first.partitions, first.address) == (("all", "acc"), "10.2.0.1")
    assert second.hosts == ("acc02",)
    assert second.gres is not None
    assert second.gres.types == {"untyped": 4}
    assert (second.features, second.usable, second.partitions) == ((), False, ("all",))


@pytest.mark.parametrize("text", [NODES, one_line(NODES), "scontrol: error: noise\n" + NODES])
def test_nodes(text: str) -> None:
    """A reason may hold anything, and does not change what Slurm says itself."""
    assert_nodes(parse_show_node(text, "nodes.txt"))


@pytest.mark.parametrize("text", [PARTITIONS, one_line(PARTITIONS)])
def test_partitions(text: str) -> None:
    found = parse_show_partition(text, "partitions.txt")
    everything, acc, none = found.partitions
    assert (everything.name, everything.hosts) == ("all", ("acc01", "acc02", "fat1"))
    assert (everything.default, everything.exclusive, everything.max_nodes) == (True, False, None)
    assert (everything.max_time, everything.up) == ("UNLIMITED", True)
    assert (acc.hosts, acc.exclusive, acc.max_nodes) == (("acc01", "acc02"), True, 2)
    assert (acc.max_time, acc.topology, acc.up) == ("1-00:00:00", "racks", False)
    assert (none.hosts, none.exclusive) == ((), None)
    assert found.default_partition == "all"


def test_settings() -> None:
    found = parse_show_config(
        "Configuration data as of 2026-01-01T00:00:00\nClusterName             = alps\n"
        "SLURM_VERSION           = 23.11.4\nTopologyPlugin          = topology/block\n"
        "Epilog                  = (null)\n\n"
        "Slurmctld(primary) at ctl is UP\n",
        "config.txt",
    )
    assert found.setting("SLURM_VERSION") == "23.11.4"
    assert found.setting("topologyplugin") == "topology/block"


@pytest.mark.parametrize(
    ("printed", "plugin"),
    [
        ("topology/tree", "tree"),
        ("topology/block", "block"),
        ("topology/flat", "flat"),
        ("topology/default", "flat"),
        ("topology/none", "flat"),
        ("topology/3d_torus", None),
        ("(null)", None),
        (None, None),
    ],
)
def test_the_topology_plugin_by_all_its_names(printed: str | None, plugin: str | None) -> None:
    assert topology_plugin(printed) == plugin


def json_node(*, new: bool) -> dict[str, Any]:
    return {
        "name": "acc01",
        "state": ["IDLE", "PLANNED"] if new else "idle",
        "state_flags": [] if new else ["PLANNED"],
        "gres": "gpu:h100:4(S:0-1)",
        "real_memory": 1031000,
        "cpus": 128,
        "sockets": 2,
        "cores": 32,
        "threads": 2,
        "features": ["h100", "ib"] if new else "h100,ib",
        "active_features": ["h100"] if new else "h100",
        "partitions": ["all", "acc"],
        "address": "10.2.0.1",
    }


@pytest.mark.parametrize("new", [True, False])
def test_nodes_as_json(new: bool) -> None:
    drained = {"name": "acc02", "state": ["DOWN", "DRAIN"], "gres": "", "tres": "cpu=1,gres/gpu=4", "cpus": 128}
    text = json.dumps({"nodes": [json_node(new=new), {**drained, "partitions": ["all"]}], "errors": []})
    found = parse_json_machines(text, "nodes.json")
    assert [group.hosts for group in found.nodes] == [("acc01",), ("acc02",)]
    first, second = found.nodes
    assert first.gres is not None
    assert (first.gres.types, first.features, first.usable, first.cores) == ({"h100": 4}, ("h100",), True, 64)
    assert second.gres is not None
    assert (second.gres.types, second.usable, second.features) == ({"untyped": 4}, False, ())


def test_partitions_as_json() -> None:
    def number(value: int | None) -> dict[str, Any]:
        return {"set": value is not None, "infinite": value is None, "number": value or 0}

    def partition(name: str, nodes: str, jobs: int, minutes: int | None, most: int | None) -> dict[str, Any]:
        return {
            "name": name,
            "nodes": {"configured": nodes, "total": 2, "allowed_allocation": ""},
            "maximums": {"time": number(minutes), "nodes": number(most), "oversubscribe": {"jobs": jobs, "flags": []}},
            "partition": {"state": ["UP"]},
        }

    text = json.dumps(
        {"partitions": [partition("all", "acc[01-02]", 1, None, None), partition("x", "acc01", 0, 1501, 4)]}
    )
    everything, exclusive = parse_json_machines(text, "partitions.json").partitions
    assert (everything.hosts, everything.exclusive, everything.max_time) == (("acc01", "acc02"), False, "UNLIMITED")
    assert (everything.max_nodes, everything.up) == (None, True)
    assert (exclusive.hosts, exclusive.exclusive, exclusive.max_nodes) == (("acc01",), True, 4)
    assert exclusive.max_time == "1-01:01:00"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"nodes": [', "x.json:1:12: "),
        ('{"sinfo": []}', "x.json:1:1: the groups of `sinfo --json`"),
        ('{"jobs": []}', "x.json:1:1: no list `nodes` or `partitions`"),
        ("[" * 100_000, "x.json:1:1: numbers or nesting of no sane size"),
        ('{"nodes": [' + "9" * 5000 + "]}", "x.json:1:1: numbers or nesting of no sane size"),
        ('{"nodes": [{"name": "a", "gres": "gpu:(("}]}', "x.json:1:1: `nodes[0].gres`: the parentheses in"),
        ('{"nodes": [{"name": "a", "state": "odd"}, 3]}', "x.json:1:1: `nodes[0].state`: `odd` is not a node state"),
    ],
)
def test_what_is_not_slurms_json_is_refused(text: str, found: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_json_machines(text, "x.json")
    assert found in str(caught.value)


def test_sinfo_by_partition() -> None:
    found = parse_sinfo(
        "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\n"
        "all*         up   infinite      1  drain fat1\n"
        "all*         up   infinite      2   idle acc[01-02]\n"
        "acc        down 1-00:00:00      1   idle acc01\n"
        "none         up   infinite      0    n/a \n",
        "sinfo.txt",
    )
    assert {one.name: one.hosts for one in found.partitions} == {
        "all": ("fat1", "acc01", "acc02"),
        "acc": ("acc01",),
        "none": (),
    }
    assert found.default_partition == "all"
    assert [(one.max_time, one.up) for one in found.partitions][:2] == [("UNLIMITED", True), ("1-00:00:00", False)]
    assert {group.hosts: (group.usable, group.partitions) for group in found.nodes} == {
        ("fat1",): (False, ("all",)),
        ("acc01",): (True, ("all", "acc")),
        ("acc02",): (True, ("all",)),
    }


@pytest.mark.parametrize(
    "text",
    [
        (
            "NODELIST|PARTITION|STATE|GRES|AVAIL_FEATURES|MEMORY|CPUS|S:C:T\n"
            "acc01|all*|idle~|gpu:h100:4(S:0,1)|h100,ib|1031000+|128|2:32:2\n"
            "acc01|acc|idle~|gpu:h100:4(S:0,1)|h100,ib|1031000+|128|2:32:2\n"
        ),
        (
            "Mon Jan  1 00:00:00 2026\n"
            "NODELIST PARTITION STATE GRES              AVAIL_FEATURES MEMORY   CPUS S:C:T REASON\n"
            "acc01    all*      idle~ gpu:h100:4(S:0,1) h100,ib        1031000+  128 2:32:2 not yet known\n"
            "acc01    acc       idle~ gpu:h100:4(S:0,1) h100,ib        1031000+  128 2:32:2 not yet known\n"
        ),
    ],
)
def test_sinfo_node_by_node_in_the_columns_that_were_asked_for(text: str) -> None:
    found = parse_sinfo(text, "sinfo.txt")
    (node,) = found.nodes
    assert node.gres is not None
    assert (node.hosts, node.gres.types, node.features) == (("acc01",), {"h100": 4}, ("h100", "ib"))
    assert (node.cpus, node.cores, node.threads_per_core, node.memory_mib) == (128, 64, 2, None)
    assert (node.state, node.usable, node.partitions) == ("idle~", None, ("all", "acc"))


def test_sinfo_lines_that_are_cut_off_are_told() -> None:
    with pytest.raises(InputError) as caught:
        parse_sinfo("NODELIST PARTITION STATE GRES\nacc01 all* idle gpu:4\nacc02 all*\nacc03 all* ill gpu:4\n", "s")
    assert [line.split(";")[0] for line in str(caught.value).splitlines()] == [
        "s:3:1: a line without STATE",
        "s:4:12: `ill` is not a node state",
    ]


@pytest.mark.parametrize("parse", [parse_show_node, parse_show_partition, parse_show_config, parse_sinfo])
def test_text_without_a_record_is_refused(parse: Any) -> None:
    with pytest.raises(InputError) as caught:
        parse("Too many logins.\n", "x")
    assert str(caught.value).startswith("x:1:1: no")

import pytest

from hpcserve.errors import InputError
from hpcserve.site.slurm_text import MachineList, NodeFacts, parse_slurm_conf


def read(text: str) -> MachineList:
    return parse_slurm_conf(text, "slurm.conf")


def nodes(found: MachineList) -> dict[str, NodeFacts]:
    return {host: group for group in found.nodes for host in group.hosts}


def hosts(found: MachineList) -> dict[str, tuple[str, ...]]:
    return {one.name: one.hosts for one in found.partitions}


CLUSTER = """\
ClusterName=alps
SlurmctldHost=ctl(10.1.0.1)   # the head
TopologyPlugin=topology/tree
GresTypes=gpu,nic
SlurmctldParameters=enable_configless,cloud_dns
include nodes.d/old.conf
NodeName=DEFAULT Boards=1 SocketsPerBoard=2 CoresPerSocket=32 ThreadsPerCore=2 RealMemory=1000000 State=UNKNOWN
NodeName=acc[01-03] NodeAddr=10.2.0.[1-3] Gres=gpu:h100:4(S:0-1),nic:2 Feature=h100,ib \\
   Weight=10
nodename=fat[1-2] Procs=64 realmemory=2000000 gres=gpu:a40:2 #Gres=gpu:8
NodeName=DEFAULT RealMemory=64000
NodeName=plain1 Features="slow,old" State=CLOUD
NodeName=later[1-2] State=FUTURE Gres=gpu:8
NodeSet=gpus Feature=h100,a40
NodeSet=named Nodes=fat[1-2],plain1
PartitionName=DEFAULT MaxTime=2-00:00:00 State=UP
PartitionName=all Nodes=ALL Default=YES
PartitionName=acc Nodes=gpus MaxTime=INFINITE OverSubscribe=EXCLUSIVE Topology=racks MaxNodes=8
PartitionName=mixed Nodes=named,acc[01-02] Shared=EXCLUSIVE State=DOWN
PartitionName=empty
"""


def test_defaults_hold_for_the_lines_after_them() -> None:
    found = nodes(read(CLUSTER))
    acc = found["acc02"]
    assert acc.gres is not None
    assert acc.gres.types == {"h100": 4}
    assert (acc.memory_mib, acc.features, acc.cores, acc.threads_per_core) == (1_000_000, ("h100", "ib"), 64, 2)
    fat = found["fat1"]
    assert fat.gres is not None
    assert fat.gres.types == {"a40": 2}
    assert (fat.memory_mib, fat.cpus) == (2_000_000, 64)
    assert (found["plain1"].memory_mib, found["plain1"].gres) == (64_000, None)
    assert found["plain1"].features == ("slow", "old")


def test_states_that_say_nothing_yet() -> None:
    found = nodes(read(CLUSTER))
    assert [found[host].usable for host in ("acc01", "plain1", "later1")] == [None, None, False]


def test_partitions() -> None:
    found = read(CLUSTER)
    everybody = ("acc01", "acc02", "acc03", "fat1", "fat2", "plain1", "later1", "later2")
    assert hosts(found) == {
        "all": everybody,
        "acc": ("acc01", "acc02", "acc03"),
        "mixed": ("fat1", "fat2", "plain1", "acc01", "acc02"),
        "empty": (),
    }
    told = {one.name: one for one in found.partitions}
    assert found.default_partition == "all"
    assert [one.name for one in found.partitions if one.exclusive] == ["acc", "mixed"]
    assert {one.name: one.max_time for one in found.partitions} == {
        "all": "2-00:00:00",
        "acc": "UNLIMITED",
        "mixed": "2-00:00:00",
        "empty": "2-00:00:00",
    }
    assert (told["acc"].topology, told["acc"].max_nodes, told["mixed"].up) == ("racks", 8, False)


def test_settings_and_includes() -> None:
    found = read("SlurmctldPort=6817\nTOPOLOGYPLUGIN = topology/block\nInclude more.conf\n")
    assert found.setting("TopologyPlugin") == "topology/block"
    assert found.setting("GresTypes") is None
    assert (found.includes, found.warnings) == (("more.conf",), ("include more.conf",))


def test_a_partition_of_nodes_that_another_file_has_says_so() -> None:
    found = read("NodeName=a1\nPartitionName=p Nodes=a1,b[1-3]\n")
    assert hosts(found) == {"p": ("a1", "b1", "b2", "b3")}
    assert found.warnings == ("partition p has nodes that no NodeName line here describes: `b1` and 2 more",)


def test_every_mistake_is_told_at_once() -> None:
    with pytest.raises(InputError) as caught:
        read(
            "NodeName=a[1-3] RealMemory=2G Gres=gpu:h100:many:8\n"
            "NodeName=a[3-4] State=SLEEPY\n"
            "NodeName=b[ CPUs=4\n"
            "PartitionName=p Nodes=c[2-1] MaxNodes=few\n"
        )
    assert [line.split(";")[0] for line in str(caught.value).splitlines()] == [
        "slurm.conf:1:28: `RealMemory=2G`",
        "slurm.conf:1:36: `gpu:h100:many:8` is not `NAME[:TYPE][:COUNT]`",
        "slurm.conf:2:1: `a3` a second time",
        "slurm.conf:2:23: `SLEEPY` is not a node state",
        "slurm.conf:3:10: host list `b[`: its brackets do not match",
        "slurm.conf:4:23: host list `c[2-1]`: the range `2-1` runs backwards",
        "slurm.conf:4:39: `MaxNodes=few`",
    ]

"""What tools print -> a site file that `site check` accepts and whose fabric is the cluster's."""

import pytest

from hpcserve.fabric import fabric_of
from hpcserve.nouns import Site
from hpcserve.site import expand_hosts, hosts_of, load_site
from hpcserve.site.learning import Facts, Reading, Refreshed, draft_of, gather, refresh, skeleton, still_empty
from tests.site.learning.texts import (
    ADMIN,
    HOSTS,
    IBSTAT,
    QUERY,
    TOPO,
    ibnetdiscover,
    reading,
    show_config,
    show_node,
    show_partition,
    show_topology,
)

SLURM = [
    reading(show_node(), "nodes.txt"),
    reading(show_partition(), "partitions.txt"),
    reading(show_config(), "config.txt"),
]
TREE = reading(show_topology({"leaf1": "gn[01-04]", "leaf2": "gn[05-08]"}), "topology.txt")
ON_NODE = [reading(IBSTAT, "gn03/ibstat.txt"), reading(TOPO, "gn03/topo.txt"), reading(QUERY, "gn03/query.csv")]


BARE_NODE = (
    "{cores: 64, memory_gib: 500.0, gpu: {model: a100, count: 1, memory_gib: 80.0},"
    " nics: [{name: 'mlx5_0:1', kind: infiniband,"
    " rate: &any {effective_gb_per_s: 20.0, source: the admin}, gpus: [0]}], host_path: *any}"
)


def net(*leaves: list[str], spines: int = 2, cables: int = 2) -> Reading:
    described = [[f"{host} mlx5_0" for host in leaf] for leaf in leaves]
    return reading(ibnetdiscover(described, spines=spines, cables=cables), "net.txt")


def imported(*readings: Reading, text: str = ADMIN, efficiency: float | None = 0.9) -> tuple[Facts, Refreshed]:
    facts = gather(readings)
    return facts, refresh(text, draft_of(facts), source="gamma.yaml", record={}, efficiency=efficiency)


def site_of(refreshed: Refreshed) -> Site:
    return load_site(refreshed.text, source="gamma.yaml")


def test_a_whole_cluster_becomes_a_site_that_is_right() -> None:
    facts, refreshed = imported(*SLURM, TREE, net(HOSTS[:4], HOSTS[4:]), *ON_NODE)
    site = site_of(refreshed)
    assert facts.disagreements == ()
    assert list(hosts_of(site)) == HOSTS
    (kind,) = site.node_types.values()
    assert (kind.cores, kind.memory_gib) == (64, 500.0)
    assert (kind.gpu.model, kind.gpu.count, kind.gpu.memory_gib) == ("NVIDIA A100-SXM4-80GB", 4, 80.0)
    assert (kind.gpu.gres, kind.gpu.numa) == ("a100", (0, 0, 1, 1))
    assert [(nic.name, nic.gpus) for nic in kind.nics] == [("mlx5_0:1", (0, 1)), ("mlx5_1:1", (2, 3))]
    assert [nic.rate.gb_per_s for nic in kind.nics] == pytest.approx([22.5, 22.5])
    assert [island.gpus for island in kind.nvlink] == [(0, 1, 2, 3)]
    assert kind.nvlink[0].rate.unknown
    # PCIe 4.0 x16: 16 GT/s x 16 lanes x 128/130 / 8
    assert kind.host_path.nominal_gb_per_s == 31.5
    assert site.partitions["batch"].max_time == "2-00:00:00"
    assert not site.partitions["batch"].account_required
    assert site.slurm is not None
    assert (site.slurm.gpu_request, site.slurm.version, site.slurm.mpi) == ("gres", "24.05.3", "pmix")
    fabric = fabric_of(site)
    assert {host: fabric.leaf_of(host) for host in HOSTS} == {
        host: "leaf1" if host in HOSTS[:4] else "leaf2" for host in HOSTS
    }
    uplinks = {switch.name: switch.uplink.nominal_gb_per_s for switch in site.switches if switch.uplink is not None}
    # two spines, two cables to each, 4xHDR is 200 Gbit/s
    assert uplinks == {"leaf1": 100.0, "leaf2": 100.0}


@pytest.mark.parametrize(("generation", "gb_per_s"), [(3, 15.8), (5, 63.0), (6, 121.0)])
def test_each_generation_of_pcie_has_its_own_encoding(generation: int, gb_per_s: float) -> None:
    """16 lanes: 128 of 130 bits to the fifth generation, 242 of 256 bytes of a flit in the sixth."""
    query = reading(QUERY.replace("MiB, 4, 16", f"MiB, {generation}, 16"), "gn03/query.csv")
    _, refreshed = imported(*SLURM, TREE, reading(IBSTAT, "gn03/ibstat.txt"), reading(TOPO, "gn03/topo.txt"), query)
    [kind] = site_of(refreshed).node_types.values()
    assert kind.host_path.nominal_gb_per_s == gb_per_s


def test_what_nobody_told_is_left_empty_and_named() -> None:
    facts, refreshed = imported(SLURM[0], text=skeleton("my cluster"), efficiency=None)
    assert facts.switches is None
    empty = dict(still_empty(refreshed.text))
    assert any(needed.startswith("node_types.a100-x4.gpu.model: ") and "a100" in needed for needed in empty.values())
    assert any(needed.startswith("switches: ") for needed in empty.values())
    assert any(needed.startswith("networks.data.interface: ") for needed in empty.values())
    for line, needed in empty.items():
        key = needed.split(":")[0].rpartition(".")[2]
        assert refreshed.text.splitlines()[line - 1].strip().startswith(f"{key}:")
    assert "name: my-cluster" in refreshed.text
    assert "partitions: {}" in refreshed.text


def test_a_rate_that_no_tool_gives_the_use_of_is_unknown_with_what_it_was_built_for() -> None:
    _, refreshed = imported(*SLURM, TREE, net(HOSTS[:4], HOSTS[4:]), *ON_NODE, efficiency=None)
    site = site_of(refreshed)
    rates = [switch.uplink for switch in site.switches if switch.uplink] + [
        nic.rate for kind in site.node_types.values() for nic in kind.nics
    ]
    assert all(rate.unknown for rate in rates)
    assert "100 GB/s one way" in rates[0].source
    assert "25 GB/s one way" in rates[-1].source


def test_ports_that_cannot_carry_kv_or_may_not_are_left_out_and_told() -> None:
    facts, refreshed = imported(*SLURM, *ON_NODE)
    assert "mlx5_2" not in refreshed.text
    assert any("mlx5_2:1" in note and "RoCE" in note for note in refreshed.notes)
    assert any("mlx5_3:1" in note and "Down" in note for note in facts.notes)


@pytest.mark.parametrize(("leaf_count", "spines", "cables"), [(2, 1, 1), (6, 3, 2), (32, 18, 1)])
def test_a_fat_tree_alone_gives_leaves_hosts_and_the_sum_of_all_cables(
    leaf_count: int, spines: int, cables: int
) -> None:
    leaves = [[f"c{leaf:02d}n{host:02d}" for host in range(3)] for leaf in range(leaf_count)]
    facts = gather([net(*leaves, spines=spines, cables=cables)])
    assert facts.switches is not None
    found = {switch.name: switch for switch in facts.switches}
    assert [found[f"isl{leaf + 1}"].hosts for leaf in range(leaf_count)] == [tuple(leaf) for leaf in leaves]
    uplinks = [found[f"isl{leaf + 1}"].uplink for leaf in range(leaf_count)]
    assert {uplink.gbit_per_s for uplink in uplinks if uplink} == {200.0 * spines * cables}
    (root,) = [switch for switch in facts.switches if switch.switches]
    assert set(root.switches) == {f"isl{leaf + 1}" for leaf in range(leaf_count)}
    assert root.uplink is None


def test_a_net_of_576_hosts_becomes_a_site_whose_fabric_is_the_net() -> None:
    leaves = [[f"n{leaf * 18 + port + 1:03d}" for port in range(18)] for leaf in range(32)]
    base = ADMIN.replace("node_types: {}", "node_types: {node: " + BARE_NODE + "}").replace(
        "slurm: {exclusive: true}", "slurm: null"
    )
    _, refreshed = imported(net(*leaves, spines=18, cables=1), text=base, efficiency=0.5)
    site = site_of(refreshed)
    fabric = fabric_of(site)
    assert list(hosts_of(site)) == [host for leaf in leaves for host in leaf]
    assert {host: fabric.leaf_of(host) for leaf in leaves for host in leaf} == {
        host: f"isl{index + 1}" for index, leaf in enumerate(leaves) for host in leaf
    }
    rates = {switch.name: switch.uplink.gb_per_s for switch in site.switches if switch.uplink is not None}
    # 18 cables of 200 Gbit/s, half of which transfers reach
    assert rates == {f"isl{index + 1}": 18 * 25.0 * 0.5 for index in range(32)}


def test_a_fabric_of_rails_gets_a_leaf_and_a_nic_for_each_rail() -> None:
    described = [[f"{host} mlx5_{rail}" for host in HOSTS] for rail in (0, 1)]
    rails = reading(ibnetdiscover(described, spines=2), "net.txt")
    facts, refreshed = imported(*SLURM, TREE, rails, *ON_NODE)
    site = site_of(refreshed)
    leaves = {switch.name: switch.rail for switch in site.switches if switch.hosts}
    assert leaves == {"isl1": 0, "isl2": 1}
    (kind,) = site.node_types.values()
    assert {nic.name: nic.rail for nic in kind.nics} == {"mlx5_0:1": 0, "mlx5_1:1": 1}
    assert any("by rails" in note for note in facts.notes)


def test_a_port_is_known_by_its_guid_where_the_net_names_devices_otherwise() -> None:
    described = [[f"{host} HCA-{3 - rail}" for host in HOSTS] for rail in (1, 2)]
    # The second leaf holds HCA-1, the first port of each host; ibstat calls the same port mlx5_1.
    text = ibnetdiscover(described, spines=1)
    first_of_gn03 = 0x7000_0000 + 8 + 2
    text = text.replace(f"{first_of_gn03:x}", "90000001").replace(f"{first_of_gn03 - 8:x}", "90000000")
    facts = gather([*SLURM, reading(text, "net.txt"), *ON_NODE])
    assert {nic.name: nic.rail for nic in facts.probes["gn03"].nics} == {"mlx5_0:1": 1, "mlx5_1:1": 0}


def test_a_node_under_another_leaf_than_the_net_says_is_told_and_slurm_holds() -> None:
    facts, refreshed = imported(*SLURM, TREE, net([*HOSTS[:4], "gn07"], ["gn05", "gn06", "gn08"]), *ON_NODE)
    (told,) = facts.disagreements
    assert told.startswith("gn07: under leaf2 by Slurm's topology, under isl1 by ibnetdiscover")
    leaves = {switch.name: switch.hosts for switch in site_of(refreshed).switches if switch.hosts}
    assert leaves == {"leaf1": "gn[01-04]", "leaf2": "gn[05-08]"}


def test_texts_that_differ_on_a_node_are_told_once_for_all_nodes() -> None:
    facts = gather([SLURM[0], reading(show_node(HOSTS[2:5], cpus=60), "old.txt")])
    assert facts.disagreements == ("gn[03-05]: 64 CPUs by nodes.txt, 60 by old.txt; nodes.txt is taken",)
    assert facts.nodes["gn03"].cores == 64


def test_a_gpu_that_is_missing_is_told() -> None:
    three = "\n".join(line for line in QUERY.splitlines() if not line.startswith("3,"))
    facts = gather([*SLURM, reading(three, "gn03/query.csv")])
    (told,) = facts.disagreements
    assert told.startswith("gn03: GPUs: 3 by nvidia-smi, 4 by Slurm")


def test_nodes_without_gpus_and_switches_above_none_are_left_out_and_told() -> None:
    nodes = reading(show_node() + show_node(["login1", "cpu1"], gres="(null)"), "nodes.txt")
    tree = reading(show_topology({"leaf1": "gn[01-08]", "leaf9": "cpu1,login1"}), "topology.txt")
    facts, refreshed = imported(nodes, *SLURM[1:], tree, *ON_NODE)
    site = site_of(refreshed)
    assert set(hosts_of(site)) == set(HOSTS)
    assert [switch.name for switch in site.switches] == ["leaf1", "spine"]
    told = " ".join((*facts.notes, *draft_of(facts).notes))
    assert "cpu1,login1" in told
    assert "leaf9" in told


def test_a_text_whose_node_nobody_can_tell_is_not_guessed_at() -> None:
    two_kinds = reading(show_node(HOSTS[:4]) + show_node(HOSTS[4:], gres="gpu:h100:8"), "nodes.txt")
    facts = gather([two_kinds, reading(TOPO, "somewhere/topo.txt")])
    assert facts.probes == {}
    assert any(note.startswith("somewhere/topo.txt") for note in facts.notes)
    named = gather([two_kinds, reading(TOPO, "somewhere/gn05.topo.txt")])
    assert list(named.probes) == ["gn05"]


def test_two_kinds_of_nodes_and_of_features_become_types_and_groups() -> None:
    nodes = reading(
        show_node(HOSTS[:4]) + show_node(HOSTS[4:6], gres="gpu:h100:8") + show_node(HOSTS[6:], features="ib,big"),
        "nodes.txt",
    )
    facts = gather([nodes])
    draft = draft_of(facts)
    assert draft.hosts_of_type == {"a100-x4": (*HOSTS[:4], *HOSTS[6:]), "h100-x8": (*HOSTS[4:6],)}
    text = refresh(skeleton("x"), draft, source="x", record={}).text
    assert "features: [ib, big]" in text
    assert "type: h100-x8" in text


@pytest.mark.parametrize(
    ("limit", "written"),
    [
        ("1-00:00:00", "1-00:00:00"),
        ("30", "00:30:00"),
        ("90:00", "01:30:00"),
        ("100:00:00", "4-04:00:00"),
        ("2-12", "2-12:00:00"),
        ("1-06:30", "1-06:30:00"),
    ],
)
def test_time_limits_of_every_form_are_one_form(limit: str, written: str) -> None:
    facts = gather([SLURM[0], reading(show_partition(max_time=limit), "partitions.txt")])
    assert facts.partitions is not None
    assert facts.partitions["batch"].max_time == written


def test_no_limit_is_no_time() -> None:
    facts = gather([SLURM[0], reading(show_partition(max_time="UNLIMITED"), "partitions.txt")])
    assert facts.partitions is not None
    assert facts.partitions["batch"].max_time is None


def test_a_host_of_the_net_may_have_its_domain() -> None:
    far = [[f"{host}.cluster.example" for host in HOSTS[:4]], [f"{host}.cluster.example" for host in HOSTS[4:]]]
    facts = gather([*SLURM, net(*far)])
    assert facts.switches is not None
    assert {host for switch in facts.switches for host in switch.hosts} == set(HOSTS)
    strangers = gather([*SLURM, net(["x1"], ["x2"])])
    assert strangers.switches is None
    assert any("no host of the net" in note for note in strangers.notes)


def test_host_lists_of_the_site_name_exactly_the_hosts_of_the_leaf() -> None:
    _, refreshed = imported(*SLURM, reading(show_topology({"a": "gn[01-02,08]", "b": "gn[03-07]"}), "t"), *ON_NODE)
    leaves = {one.name: expand_hosts(one.hosts) for one in site_of(refreshed).switches if one.hosts}
    assert leaves == {"a": ("gn01", "gn02", "gn08"), "b": ("gn03", "gn04", "gn05", "gn06", "gn07")}


def test_an_empty_place_in_a_list_is_named_by_its_item() -> None:
    text = (
        "node_types:\n  a:\n    nics:\n      - name: mlx5_0:1 # the first\n        gpus: # not learnt: which\n"
        "switches:\n- name: leaf1\n  uplink:\n    source: # not learnt: who\n- hosts: n1\n"
        "  rail: # not learnt: number\n"
        "slurm: {} # not learnt: all\nmine: # not a gap\nfilled: 3 # not learnt: a number\n"
    )
    assert list(still_empty(text)) == [
        (5, "node_types.a.nics[mlx5_0:1].gpus: which"),
        (9, "switches[leaf1].uplink.source: who"),
        (11, "switches.rail: number"),
        (12, "slurm: all"),
    ]


def test_a_list_of_expressions_is_told_to_give_nothing() -> None:
    facts = gather([*SLURM, reading("gpu:a40:2\ngpu:4\n", "gres.txt")])
    assert [note for note in facts.notes if note.startswith("gres.txt (gres): ")]


def test_partitions_without_a_node_of_the_site_are_named() -> None:
    cpu = show_node(["c1"], gres="(null)")
    partitions = show_partition() + show_partition("c1", name="cpu")
    facts = gather([reading(show_node() + cpu, "nodes.txt"), reading(partitions, "partitions.txt")])
    assert "partitions left out, as none of their nodes is of the site: cpu" in draft_of(facts).notes


TOPOLOGIES = """\
- topology: racks
  cluster_default: false
  block: {block_sizes: [4, 8], blocks: [{block: b1, nodes: "gn[01-04]"}, {block: b2, nodes: "gn[05-08]"}]}
- topology: eth
  cluster_default: true
  tree: {switches: [{switch: e1, nodes: "gn[01-08],c1"}]}
"""


def test_of_several_topologies_that_of_the_partitions_with_gpus_is_taken_else_the_default() -> None:
    machines = "NodeName=gn[01-08] Gres=gpu:a100:4\nNodeName=c1\nPartitionName=cpu Nodes=c1 Topology=eth\n"
    several = reading(TOPOLOGIES, "topology.yaml")
    named = gather([reading(f"{machines}PartitionName=gpu Nodes=gn[01-08] Topology=racks\n", "slurm.conf"), several])
    assert named.slurm is not None
    assert (named.slurm.topology, named.slurm.block_sizes, named.switches) == ("block", (4, 8), None)
    plain = gather([reading(f"{machines}PartitionName=gpu Nodes=gn[01-08]\n", "slurm.conf"), several])
    assert plain.slurm is not None
    assert (plain.slurm.topology, plain.blocks) == ("tree", None)
    for facts in (named, plain):
        assert [note for note in facts.notes if "a site has one" in note]


def test_interfaces_are_told_until_the_networks_are_chosen() -> None:
    address = reading(
        '[{"ifname": "ib0", "flags": ["UP"], "operstate": "UP", "link_type": "infiniband", "mtu": 2044,'
        ' "addr_info": [{"local": "10.3.0.3", "prefixlen": 16}]}]',
        "gn03/ip.json",
    )
    word = "for `networks`: up on gn03 are ib0 10.3.0.3/16"
    assert word in imported(*SLURM, address, text=skeleton("g"))[1].notes
    assert word not in imported(*SLURM, address, text=ADMIN)[1].notes

"""The shipped site file describes the cluster that `slurm/cluster up` starts."""

from pathlib import Path

import yaml

from slurm.onebox.layout import CPUS_PER_NODE, MEMORY_PER_NODE_MB, Options, host_list, lay_out

SITE = Path(__file__).resolve().parents[2] / "site_configs/onebox.yaml"


def test_the_site_file_says_what_the_default_cluster_is() -> None:
    site = yaml.safe_load(SITE.read_text())
    chosen = Options()
    cluster = lay_out("onebox", Path("/srv/onebox"), chosen)
    names = host_list(tuple(node.name for node in cluster.nodes))
    assert [group["hosts"] for group in site["nodes"]] == [names]
    assert site["partitions"]["main"]["hosts"] == names
    leaves = {switch["name"]: switch for switch in site["switches"] if "hosts" in switch}
    assert {name: leaf["hosts"] for name, leaf in leaves.items()} == {
        leaf: host_list(cluster.nodes_of(leaf)) for leaf in cluster.leaves
    }
    for leaf in leaves.values():
        assert leaf["uplink"]["nominal_gb_per_s"] * 8e9 == chosen.uplink_rate_bit_per_s
    slot = site["node_types"]["slot"]
    assert slot["cores"] == CPUS_PER_NODE
    assert slot["memory_gib"] == round(MEMORY_PER_NODE_MB / 1024, 1)  # slurm.conf(5), RealMemory: MB, which are MiB
    assert slot["gpu"]["count"] == chosen.gpus
    assert [nic["rate"]["nominal_gb_per_s"] * 8e9 for nic in slot["nics"]] == [chosen.node_rate_bit_per_s]
    ends = {link.near.device for link in cluster.links if link.name in {node.name for node in cluster.nodes}}
    assert ends == {site["networks"]["data"]["interface"]}

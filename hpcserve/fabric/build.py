"""`Site` -> `Fabric`."""

from hpcserve.fabric.graph import Fabric, SwitchAt
from hpcserve.nouns import Site
from hpcserve.site import expand_hosts, hosts_of

__all__ = ["fabric_of"]


def fabric_of(site: Site) -> Fabric:
    """The fabric of a site that `load_site` has checked: every node in one leaf, switches without loops."""
    leaf_of: dict[str, str] = {}
    parent_of: dict[str, str] = {}
    for switch in site.switches:
        leaf_of.update(dict.fromkeys(expand_hosts(switch.hosts) if switch.hosts else (), switch.name))
        parent_of.update(dict.fromkeys(expand_hosts(switch.switches) if switch.switches else (), switch.name))
    switches = {
        switch.name: SwitchAt(
            name=switch.name,
            parent=parent_of.get(switch.name),
            uplink_gb_per_s=switch.uplink.gb_per_s if switch.uplink else 0.0,
            source=switch.uplink.source if switch.uplink else "",
        )
        for switch in site.switches
    }
    return Fabric(node_types=hosts_of(site), leaf_of=leaf_of, switches=switches)

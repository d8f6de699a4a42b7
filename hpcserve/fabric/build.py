"""`Site` -> `Fabric`."""

from hpcserve.fabric.graph import Fabric
from hpcserve.fabric.overlay import overlay_of
from hpcserve.fabric.switches import SwitchAt
from hpcserve.nouns import Measurement, Site
from hpcserve.site import expand_hosts

__all__ = ["fabric_of"]


def fabric_of(site: Site, *, measured: Measurement | None = None) -> Fabric:
    """The fabric of a site that `load_site` has checked, with what was measured laid over the site's own figures.

    Raises PlacementError for a measurement of another site.
    """
    leaves: dict[str, dict[int | None, str]] = {}
    parent_of: dict[str, str] = {}
    members: dict[str, int] = {}
    for switch in sorted(site.switches, key=lambda one: -1 if one.rail is None else one.rail):
        for host in expand_hosts(switch.hosts) if switch.hosts else ():
            leaves.setdefault(host, {})[switch.rail] = switch.name
        below = expand_hosts(switch.switches) if switch.switches else ()
        parent_of.update(dict.fromkeys(below, switch.name))
        members[switch.name] = len(below)
    return Fabric(
        node_types={
            host: (group.type, site.node_types[group.type])
            for group in site.nodes
            for host in expand_hosts(group.hosts)
        },
        leaves=leaves,
        switches={
            switch.name: SwitchAt(
                name=switch.name,
                parent=parent_of.get(switch.name),
                uplink=switch.uplink,
                mesh=switch.mesh,
                members=members[switch.name],
            )
            for switch in site.switches
        },
        domains={host: domain for domain in site.nvlink_domains for host in expand_hosts(domain.hosts)},
        overlay=overlay_of(measured, site=site.name),
    )

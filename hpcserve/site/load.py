"""YAML text -> `Site`, `Service`, `Sweep`."""

from collections.abc import Iterable
from functools import partial

from hpcserve.nouns import Ask, NodeType, Service, Site, Sweep
from hpcserve.site.check_service import check_service, check_sweep
from hpcserve.site.check_site import check_site
from hpcserve.site.hostlist import expand_hosts
from hpcserve.wire import decode_yaml

__all__ = ["grantable", "hosts_of", "load_service", "load_site", "load_sweep"]


def load_site(text: str, *, source: str) -> Site:
    """Read a site; raises InputError with every mistake, those of meaning too, as `source:line:column`."""
    return decode_yaml(Site, text, source=source, check=check_site)


def load_service(text: str, *, source: str, site: Site | None) -> Service:
    """Read a service, against `site` where one is given; raises InputError with every mistake."""
    return decode_yaml(Service, text, source=source, check=partial(check_service, site=site))


def load_sweep(text: str, *, source: str) -> Sweep:
    """Read a sweep; raises InputError with every mistake."""
    return decode_yaml(Sweep, text, source=source, check=check_sweep)


def hosts_of(site: Site) -> dict[str, NodeType]:
    """Every node of a site in its order, with its type."""
    return {name: site.node_types[group.type] for group in site.nodes for name in expand_hosts(group.hosts)}


def grantable(ask: Ask, site: Site) -> tuple[str, ...]:
    """The nodes that Slurm may grant for what is asked: those named, else the partition's, but for those excluded."""
    if ask.nodelist is not None:
        names: Iterable[str] = ask.nodelist
    elif ask.partition is not None:
        names = expand_hosts(site.partitions[ask.partition].hosts)
    else:
        names = hosts_of(site)
    return tuple(name for name in names if name not in ask.exclude)

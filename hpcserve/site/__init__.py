"""Site, service and sweep YAML -> nouns, checked in themselves and against one another; Slurm host lists.

In: text and the name of its source. Out: `Site`, `Service`, `Sweep`, or every mistake at once. Touches: nothing.
"""

from hpcserve.site.hostlist import HostListError, expand_hosts, fold_hosts
from hpcserve.site.kind import Kind
from hpcserve.site.load import grantable, hosts_of, load_service, load_site, load_sweep
from hpcserve.site.recognise import KINDS, kind_named, recognise
from hpcserve.site.unknown import UnknownRate, rates_of, unknown_rates

__all__ = [
    "KINDS",
    "HostListError",
    "Kind",
    "UnknownRate",
    "expand_hosts",
    "fold_hosts",
    "grantable",
    "hosts_of",
    "kind_named",
    "load_service",
    "load_site",
    "load_sweep",
    "rates_of",
    "recognise",
    "unknown_rates",
]

"""Site, service and sweep YAML -> nouns, checked in themselves and against one another; Slurm host lists.

In: text and the name of its source. Out: `Site`, `Service`, `Sweep`, or every mistake at once. Touches: nothing.
"""

from hpcserve.site.hostlist import HostListError, expand_hosts, fold_hosts
from hpcserve.site.load import hosts_of, load_service, load_site, load_sweep

__all__ = [
    "HostListError",
    "expand_hosts",
    "fold_hosts",
    "hosts_of",
    "load_service",
    "load_site",
    "load_sweep",
]

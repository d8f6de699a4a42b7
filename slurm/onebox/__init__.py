"""A real Slurm cluster of several nodes on one machine, for trying and testing.

In: a cluster's name and options. Out: running Slurm daemons whose nodes are network namespaces with
shaped links. May touch: namespaces and processes of its own, and one private directory; never the
machine's interfaces, its `/etc` or its services. Standard library only: it runs before any
environment exists.
"""

from slurm.onebox.errors import ClusterError
from slurm.onebox.layout import Cluster, Options, lay_out

__all__ = ["Cluster", "ClusterError", "Options", "lay_out"]

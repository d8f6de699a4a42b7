"""Text of the InfiniBand tools -> nets and adapter ports.

In: what ibnetdiscover, iblinkinfo and ibstat printed. Out: `InfinibandNet`, `AdapterPorts`, or every mistake at once.
Touches: nothing.
"""

from hpcserve.site.infiniband_text.kinds import KINDS
from hpcserve.site.infiniband_text.net import InfinibandNet, NetEnd, NetLink, NetNode
from hpcserve.site.infiniband_text.ports import AdapterPort, AdapterPorts
from hpcserve.site.infiniband_text.rates import LinkRate

__all__ = ["KINDS", "AdapterPort", "AdapterPorts", "InfinibandNet", "LinkRate", "NetEnd", "NetLink", "NetNode"]

"""What a site's `transport` makes of a worker's environment and of its KV connector."""

import pytest

from hpcserve.engines.command import network_environment, transfer_config
from hpcserve.errors import PlacementError
from hpcserve.nouns import Nic, NicKind, Rate, Role, Site, Transport
from tests import synthetic
from tests.engines.cases import CPU, node, worker

PREFILL = worker(Role.PREFILL, "node01", gpus=(0,), nics=("data0",))
UCX = {"UCX_TLS": "rc", "UCX_LOG_LEVEL": "warn"}
LIBFABRIC = Transport(backend="libfabric", ucx={}, libfabric={"FI_PROVIDER": "cxi"})


def environment(transport: Transport, kind: NicKind = NicKind.ETHERNET) -> dict[str, str]:
    site = synthetic.site()
    rate = Rate(effective_gb_per_s=1.0, source="drawn")
    box = site.node_types["box"].model_copy(update={"nics": (Nic(name="data0", kind=kind, rate=rate, gpus=(0, 1)),)})
    changed: Site = site.model_copy(update={"node_types": {"box": box}, "transport": transport})
    return network_environment(worker=PREFILL, site=changed, node=node("node01", CPU), side_channel_port=5600)


def test_settings_for_one_kind_of_nic_go_over_those_for_all() -> None:
    transport = Transport(ucx=UCX, kinds={NicKind.ROCE: {"UCX_TLS": "rc,tcp", "UCX_IB_GID_INDEX": "3"}})
    roce, other = environment(transport, NicKind.ROCE), environment(transport, NicKind.INFINIBAND)
    assert (roce["UCX_TLS"], roce["UCX_IB_GID_INDEX"], roce["UCX_LOG_LEVEL"]) == ("rc,tcp", "3", "warn")
    assert other["UCX_TLS"] == "rc"
    assert "UCX_IB_GID_INDEX" not in other
    assert roce["UCX_NET_DEVICES"] == other["UCX_NET_DEVICES"] == "data0"


@pytest.mark.parametrize("kind", [NicKind.SLINGSHOT, NicKind.EFA])
def test_libfabric_gets_its_own_variables_and_no_ucx_devices(kind: NicKind) -> None:
    made = environment(LIBFABRIC, kind)
    assert made["FI_PROVIDER"] == "cxi"
    assert "UCX_NET_DEVICES" not in made


def test_efa_over_ucx_is_refused_with_what_to_write() -> None:
    with pytest.raises(PlacementError, match="backend: libfabric"):
        environment(Transport(ucx=UCX), NicKind.EFA)


def test_the_connector_is_told_of_a_backend_that_is_not_its_usual_one() -> None:
    usual = transfer_config(synthetic.service(), PREFILL, CPU, Transport(ucx=UCX))
    other = transfer_config(synthetic.service(), PREFILL, CPU, LIBFABRIC)
    assert usual is not None
    assert other is not None
    assert usual["kv_connector_extra_config"] == {"kv_lease_duration": 30}
    assert other["kv_connector_extra_config"] == {"kv_lease_duration": 30, "backends": ["LIBFABRIC"]}

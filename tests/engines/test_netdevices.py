from hpcserve.engines import PortState, kv_net_devices

# Two compute NICs, a storage NIC on Ethernet, a port whose cable is out, one without a subnet manager.
PORTS = (
    PortState(device="mlx5_0", port=1, state="Active", physical="LinkUp", link_layer="InfiniBand"),
    PortState(device="mlx5_1", port=1, state="Active", physical="LinkUp", link_layer="Ethernet"),
    PortState(device="mlx5_2", port=1, state="Down", physical="Disabled", link_layer="InfiniBand"),
    PortState(device="mlx5_3", port=1, state="Active", physical="LinkUp", link_layer="InfiniBand"),
    PortState(device="mlx5_4", port=1, state="Initializing", physical="LinkUp", link_layer="InfiniBand"),
)


def test_only_live_infiniband_ports_carry_kv() -> None:
    assert ",".join(kv_net_devices(PORTS, roce=False)) == "mlx5_0:1,mlx5_3:1"


def test_ethernet_counts_where_the_site_says_roce() -> None:
    assert kv_net_devices(PORTS, roce=True) == ("mlx5_0:1", "mlx5_1:1", "mlx5_3:1")

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm.onebox import files, wires
from slurm.onebox.errors import UsageError
from slurm.onebox.layout import LOWEST_RATE_BIT_PER_S, Cluster, Options, host_list, lay_out, parse_rate, write_rate

GOLDEN = Path(__file__).parent / "golden"
DIRECTORY = Path("/var/tmp/hpcserve-cluster-0/onebox")  # noqa: S108  (only a name here)


def cluster(**options: int | str) -> Cluster:
    return lay_out("onebox", DIRECTORY, Options(**options))  # type: ignore[arg-type]  # names are given by each test


@pytest.mark.parametrize(
    ("folder", "laid_out"),
    [
        ("four_nodes", cluster()),
        ("three_nodes_accounting", cluster(nodes=3, gpus=4, accounting="slurmdbd")),
        ("one_node_without_gpus", cluster(nodes=1, leaves=1, gpus=0)),
    ],
)
def test_every_file_byte_by_byte(folder: str, laid_out: Cluster) -> None:
    expected = {path.name: path.read_text() for path in (GOLDEN / folder).iterdir()}
    written = files.configuration(laid_out)
    if laid_out.options.accounting == "slurmdbd":
        written["slurmdbd.conf"] = files.slurmdbd_conf(laid_out, database_password="secret")  # noqa: S106  (golden)
    assert written == expected


options = st.integers(1, 64).flatmap(
    lambda nodes: st.builds(Options, nodes=st.just(nodes), leaves=st.integers(1, nodes), gpus=st.integers(0, 16))
)


@given(options)
def test_leaves_hold_consecutive_nodes_and_differ_by_one_at_most(chosen: Options) -> None:
    laid_out = lay_out("onebox", DIRECTORY, chosen)
    assert [name for leaf in laid_out.leaves for name in laid_out.nodes_of(leaf)] == [n.name for n in laid_out.nodes]
    sizes = [len(laid_out.nodes_of(leaf)) for leaf in laid_out.leaves]
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= 1


@given(options)
def test_the_wires_say_what_topology_conf_says(chosen: Options) -> None:
    laid_out = lay_out("onebox", DIRECTORY, chosen)
    lines = wires.fabric_links(laid_out).splitlines()
    for leaf in laid_out.leaves:
        plugged = [line.split()[2] for line in lines if line.endswith(f" master {leaf}")]
        nodes = [socket.removeprefix("d-") for socket in plugged if socket != f"{leaf}-up"]
        assert tuple(nodes) == laid_out.nodes_of(leaf)
        assert f"SwitchName={leaf} Nodes={host_list(laid_out.nodes_of(leaf))}\n" in files.topology_conf(laid_out)


@given(options)
def test_addresses_and_device_names_are_unique_and_fit_the_kernel(chosen: Options) -> None:
    laid_out = lay_out("onebox", DIRECTORY, chosen)
    addresses = [address for host in laid_out.hosts for address in (host.control_address, host.data_address)]
    assert len(set(addresses)) == len(addresses)
    devices = [
        line.split()[2] for line in wires.fabric_links(laid_out).splitlines() if line.startswith("link add ")
    ] + [link.far.device for link in laid_out.links]
    assert max(map(len, devices)) <= 15  # IFNAMSIZ - 1 of linux/if.h


@given(st.integers(LOWEST_RATE_BIT_PER_S, 400_000_000_000))
def test_a_rate_written_is_the_rate_read(rate_bit_per_s: int) -> None:
    assert parse_rate(write_rate(rate_bit_per_s)) == rate_bit_per_s


@pytest.mark.parametrize(
    ("text", "rate_bit_per_s"), [("1gbit", 10**9), ("200mbit", 2 * 10**8), ("2.5Gbit", 25 * 10**8), ("64kbit", 64_000)]
)
def test_rates_as_tc_writes_them(text: str, rate_bit_per_s: int) -> None:
    assert parse_rate(text) == rate_bit_per_s


@pytest.mark.parametrize("text", ["", "fast", "1", "1gbps", "-1gbit", "1e3mbit", "0gbit", "4kbit"])
def test_other_rates_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="rate: "):
        parse_rate(text)


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(UsageError) as caught:
        lay_out("One Box", Path("/srv/a b" + "c" * 60), Options(nodes=0, leaves=3, gpus=-1, accounting="oracle"))
    said = str(caught.value)
    for part in ("--name", "--nodes 0", "--leaves 3", "--gpus -1", "'oracle'", "too long", "blanks"):
        assert part in said


def test_an_unknown_link_is_answered_with_those_there_are() -> None:
    with pytest.raises(UsageError, match="'node09'; wanted one of node01, node02, node03, node04, leaf1, leaf2"):
        cluster().link("node09")

"""What the real InfiniBand tools print of a simulated fabric is read as the fabric that was simulated."""

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hpcserve.errors import InputError
from hpcserve.site.infiniband_text import KINDS, InfinibandNet
from tests.real.ibsim import Fabric, simulated
from tests.site.infiniband_text.wiring import Wiring, fat_tree

LARGE = fat_tree(leaves=36, hosts=16, spines=18, rate="4xEDR")
FORMS = {
    "ibnetdiscover": ("ibnetdiscover",),
    "ibnetdiscover-p": ("ibnetdiscover", "-p"),
    "iblinkinfo": ("iblinkinfo",),
    "iblinkinfo -l": ("iblinkinfo", "-l"),
}


def net_of(fabric: Fabric, *command: str) -> InfinibandNet:
    text = fabric.ask(*command)
    kind = next(kind for kind in KINDS if kind.looks_like(text))
    assert kind.name.startswith(command[0])
    net = kind.parse(text, "tool.txt")
    assert isinstance(net, InfinibandNet)
    return net


def seen(net: InfinibandNet) -> set[frozenset[tuple[str, int]]]:
    return {frozenset((net.nodes[end.node].name, end.port) for end in link.ends) for link in net.links}


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fabric]:
    with simulated(LARGE, tmp_path_factory.mktemp("large")) as fabric:
        yield fabric


@pytest.mark.parametrize("form", FORMS)
def test_a_fat_tree_of_576_hosts_is_read_cable_by_cable(large: Fabric, form: str) -> None:
    net = net_of(large, *FORMS[form])
    assert len(net.hosts) == 576
    assert seen(net) == LARGE.seen()
    assert len(net.links) == len(LARGE.cables)
    assert {leaf: set(hosts) for leaf, hosts in net.leaves.items()} == LARGE.leaves
    assert set(net.spines) == {f"spine{number}" for number in range(1, 19)}
    assert {str(link.rate) for link in net.links} == {"4xEDR"}
    assert net.slower == ()


SMALL = fat_tree(leaves=2, hosts=4, spines=2, parallel=2, idle=1)


def with_rate(wiring: Wiring, host: str, rate: str) -> Wiring:
    cables = [replace(cable, rate=rate) if host in cable.other.node else cable for cable in wiring.cables]
    return replace(wiring, cables=tuple(cables))


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fabric]:
    """A link that came up at a quarter of its width, and a pulled cable, after a subnet manager's sweep."""
    with simulated(with_rate(SMALL, "node0003", "1xHDR"), tmp_path_factory.mktemp("faulty")) as fabric:
        fabric.manage()
        fabric.unlink("leaf2", 2)
        yield fabric


@pytest.mark.parametrize("form", FORMS)
def test_a_narrow_link_and_a_pulled_cable_are_named(faulty: Fabric, form: str) -> None:
    net = net_of(faulty, *FORMS[form])
    pulled = frozenset({("leaf2", 2), ("node0006 HCA-1", 1)})
    assert seen(net) == SMALL.seen() - {pulled}
    ((link, usual),) = net.slower
    assert set(net.link_label(link).split(" - ")) == {"leaf1 port 3", "node0003 HCA-1"}
    assert (str(link.rate), str(usual)) == ("1xHDR", "4xHDR")
    assert all(link.is_active for link in net.links)
    assert "node0006" not in net.leaves_of
    if form.startswith("iblinkinfo"):
        assert {"leaf1 port 9", "leaf2 port 9", "leaf2 port 2"} <= {net.end_label(end) for end in net.down}


def test_what_the_simulator_can_do_beyond_the_rate_is_read(faulty: Fabric) -> None:
    """Its ports are 12X; iblinkinfo says of each link what it could be."""
    net = net_of(faulty, "iblinkinfo")
    assert {str(link.possible) for link in net.links} == {"12xHDR"}


def test_links_without_a_subnet_manager_are_not_active(tmp_path: Path) -> None:
    with simulated(SMALL, tmp_path) as fabric:
        net = net_of(fabric, "iblinkinfo")
        assert not any(link.is_active for link in net.links)
        assert any("no subnet manager" in warning for warning in net.warnings)
        assert seen(net) == SMALL.seen()
        text = fabric.ask("ibstat")
        kind = next(kind for kind in KINDS if kind.looks_like(text))
        assert kind.understood(kind.parse(text, "ibstat.txt"))["unusable"] == ["ibsim0"]
        fabric.manage()
        text = fabric.ask("ibstat")
        assert kind.understood(kind.parse(text, "ibstat.txt"))["ib_active"] == ["ibsim0"]


def test_a_host_without_adapters_is_told_what_to_do() -> None:
    done = subprocess.run(["/usr/sbin/ibnetdiscover"], capture_output=True, text=True, check=False, timeout=20)
    if done.returncode == 0:
        pytest.skip("this host has an InfiniBand adapter")
    kind = next(kind for kind in KINDS if kind.looks_like(done.stderr))
    with pytest.raises(InputError, match=r"topology\.conf"):
        kind.parse(done.stderr, "stderr.txt")

"""Nets whose wiring is known, written as ibsim reads them and as the tools print them."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

# What `iblinkinfo` prints for a lane of each speed.
SIGNALS = {"SDR": "2.5", "DDR": "5.0", "QDR": "10.0", "FDR": "14.0625", "EDR": "25.78125", "HDR": "53.125"}


@dataclass(frozen=True, kw_only=True)
class Port:
    node: str
    number: int


@dataclass(frozen=True, kw_only=True)
class Cable:
    one: Port
    other: Port
    rate: str = "4xHDR"


@dataclass(frozen=True, kw_only=True)
class Wiring:
    """Switches with their count of ports, hosts' adapters by description, and what joins them."""

    switches: dict[str, int]
    adapters: tuple[str, ...]
    cables: tuple[Cable, ...]

    @property
    def leaves(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for switch, adapter in self.host_cables():
            found.setdefault(switch, set()).add(adapter.split()[0])
        return found

    def host_cables(self) -> Iterator[tuple[str, str]]:
        for cable in self.cables:
            for near, far in ((cable.one.node, cable.other.node), (cable.other.node, cable.one.node)):
                if near in self.switches and far not in self.switches:
                    yield near, far

    @cached_property
    def _ports(self) -> dict[str, list[tuple[int, Port, Cable]]]:
        ports: dict[str, list[tuple[int, Port, Cable]]] = {node: [] for node in self._places}
        for cable in self.cables:
            for near, far in ((cable.one, cable.other), (cable.other, cable.one)):
                ports[near.node].append((near.number, far, cable))
        return {node: sorted(linked, key=lambda port: port[0]) for node, linked in ports.items()}

    @cached_property
    def _places(self) -> dict[str, int]:
        return {node: place for place, node in enumerate((*self.switches, *self.adapters))}

    def far(self, node: str) -> list[tuple[int, Port, Cable]]:
        """Each linked port of a node, the port at its other end, and the cable."""
        return self._ports[node]

    def seen(self) -> set[frozenset[tuple[str, int]]]:
        """Every cable as the two (description, port) that it joins."""
        return {
            frozenset({(cable.one.node, cable.one.number), (cable.other.node, cable.other.number)})
            for cable in self.cables
        }

    def guid(self, node: str) -> int:
        return 0x506B4B0300000000 + 16 * self._places[node]

    def lid(self, node: str) -> int:
        return self._places[node] + 1

    def for_ibsim(self) -> str:
        blocks = []
        for node in (*self.switches, *self.adapters):
            head = f'Switch\t{self.switches[node]}\t"{node}"' if node in self.switches else f'Hca\t1\t"{node}"'
            # ibsim reads the speed where ibnetdiscover prints it.
            ports = [f'[{at}]\t"{far.node}"[{far.number}]\t# lid 0 {cable.rate}' for at, far, cable in self.far(node)]
            blocks.append("\n".join([head, *ports]))
        return "\n\n".join(blocks) + "\n"

    def as_ibnetdiscover(self) -> str:
        lines = ["#", "# Topology file: generated on Mon Mar  2 10:00:00 2026", "#"]
        for node in (*self.switches, *self.adapters):
            guid = self.guid(node)
            lines += ["", "vendid=0x2c9", "devid=0xd2f0", f"sysimgguid={guid:#x}"]
            if node in self.switches:
                lines.append(f"switchguid={guid:#x}({guid:x})")
                about = f'"{node}" enhanced port 0 lid {self.lid(node)} lmc 0'
                lines.append(f'Switch\t{self.switches[node]} "S-{guid:016x}"\t\t# {about}')
            else:
                lines += [f"caguid={guid:#x}", f'Ca\t1 "H-{guid:016x}"\t\t# "{node}"']
            for at, far, cable in self.far(node):
                kind, own = ("S", "") if far.node in self.switches else ("H", f"({self.guid(far.node) + 1:x}) ")
                end = f'"{kind}-{self.guid(far.node):016x}"[{far.number}]{own}'
                said = f'"{far.node}" lid {self.lid(far.node)} {cable.rate}'
                if node in self.switches:
                    lines.append(f"[{at}]\t{end}\t\t# {said}")
                else:
                    lines.append(f"[{at}]({guid + 1:x}) \t{end}\t\t# lid {self.lid(node)} lmc 0 {said}")
        return "\n".join(lines) + "\n"

    def as_port_list(self) -> str:
        return "".join(
            f"{self._row(node, at)} {cable.rate.partition('x')[0]}x {cable.rate.partition('x')[2]}"
            f" - {self._row(far.node, far.number)} ( '{node}' - '{far.node}' )\n"
            for node in (*self.switches, *self.adapters)
            for at, far, cable in self.far(node)
        )

    def _row(self, node: str, port: int) -> str:
        kind, plus = ("SW", 0) if node in self.switches else ("CA", 1)
        return f"{kind} {self.lid(node):5} {port:2} {self.guid(node) + plus:#018x}"

    def as_iblinkinfo(self, *, lids: bool = True) -> str:
        lines = []
        for node in (*self.adapters, *self.switches):
            is_switch = node in self.switches
            lines.append(f"Switch: {self.guid(node):#018x} {node}:" if is_switch else f"CA: {node}:")
            linked = {at: (far, cable) for at, far, cable in self.far(node)}
            for at in range(1, self.switches.get(node, 1) + 1):
                guid = "" if is_switch else f"{self.guid(node) + 1:#018x}"
                near = f"      {guid:18} {self.lid(node) if lids else 0:6} {at:4}[  ] "
                lines.append(near + self._link(linked.get(at), lids=lids, guids=False))
        return "\n".join(lines) + "\n"

    def as_iblinkinfo_lines(self) -> str:
        lines = []
        for node in (*self.adapters, *self.switches):
            linked = {at: (far, cable) for at, far, cable in self.far(node)}
            guid = self.guid(node) + (node not in self.switches)
            for at in range(1, self.switches.get(node, 1) + 1):
                near = f'{guid:#018x} "{node:>30}" {self.lid(node):6} {at:4}[  ] '
                lines.append(near + self._link(linked.get(at), lids=True, guids=True))
        return "\n".join(lines) + "\n"

    def _link(self, linked: tuple[Port, Cable] | None, *, lids: bool, guids: bool) -> str:
        if linked is None:
            return '==(                Down/ Polling)==>             [  ] "" ( )'
        far, cable = linked
        width, _, speed = cable.rate.partition("x")
        guid = f"{self.guid(far.node) + (far.node not in self.switches):#018x} " if guids else ""
        return (
            f"==( {width}X {SIGNALS[speed]:>13} Gbps Active/  LinkUp)==>"
            f' {guid}{self.lid(far.node) if lids else 0:6} {far.number:4}[  ] "{far.node}" ( )'
        )


def fat_tree(*, leaves: int, hosts: int, spines: int, parallel: int = 1, idle: int = 0, rate: str = "4xHDR") -> Wiring:
    """Two tiers: `hosts` on each leaf, `parallel` cables from each leaf to each spine, `idle` further ports a leaf."""
    cables = []
    adapters = []
    for leaf in range(1, leaves + 1):
        for port in range(1, hosts + 1):
            adapters.append(f"node{(leaf - 1) * hosts + port:04} HCA-1")
            cables.append(Cable(one=_port("leaf", leaf, port), other=Port(node=adapters[-1], number=1), rate=rate))
        for spine in range(1, spines + 1):
            for cable in range(parallel):
                up = hosts + (spine - 1) * parallel + cable + 1
                down = (leaf - 1) * parallel + cable + 1
                cables.append(Cable(one=_port("leaf", leaf, up), other=_port("spine", spine, down), rate=rate))
    switches = {f"leaf{leaf}": hosts + spines * parallel + idle for leaf in range(1, leaves + 1)}
    switches |= {f"spine{spine}": leaves * parallel for spine in range(1, spines + 1)}
    return Wiring(switches=switches, adapters=tuple(adapters), cables=tuple(cables))


def _port(tier: str, switch: int, number: int) -> Port:
    return Port(node=f"{tier}{switch}", number=number)

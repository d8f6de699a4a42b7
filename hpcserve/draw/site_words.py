"""Rates of a site in words: what the site says, and beside it what was measured."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hpcserve.draw.site_sketch import Part, Sketch
from hpcserve.nouns import Measurement, Rate, Site
from hpcserve.site import fold_hosts, rates_of

__all__ = [
    "Measured",
    "counted",
    "gb",
    "gpu_words",
    "measured_range",
    "named_rates",
    "names_words",
    "rate_range",
    "rate_words",
    "said_of",
]

_ELLIPSIS = "…"


@dataclass(frozen=True, slots=True)
class Measured:
    """A measurement by the names that its reader looks for; empty without one."""

    found: Measurement | None = None
    links: Mapping[str, float] = field(default_factory=dict)
    """GB/s by the fabric's name of the link: `leaf1 up`, `node01.data0 out`."""
    slow: frozenset[str] = frozenset()
    """Nodes and links that were slower than their like."""

    @classmethod
    def of(cls, found: Measurement | None) -> "Measured":
        """The measurement, ready to be looked up."""
        if found is None:
            return cls()
        return cls(
            found=found,
            links={link.name: link.gb_per_s for link in found.links},
            slow=frozenset(one.name for one in found.outliers),
        )

    def of_uplinks(self, part: Part) -> tuple[float, ...]:
        """GB/s that was measured between the switches of a part and what is above them, the slower way of each."""
        return tuple(value for name in part.names if (value := self.of_switch(name)) is not None)

    def of_switch(self, name: str) -> float | None:
        """GB/s that was measured between one switch and what is above it, the slower way; None without a figure."""
        return min((self.links[link] for link in self._ways(name) if link in self.links), default=None)

    def _ways(self, switch: str) -> tuple[str, ...]:
        """The fabric's names of the links of one switch: to its parent, or all of its direct links in a mesh."""
        mesh = tuple(
            link for link in self.links if link.startswith(f"{switch} out of ") or link.endswith(f" into {switch}")
        )
        return (f"{switch} up", f"{switch} down", *mesh)

    def is_slow(self, name: str) -> bool:
        """Whether a node or switch, or a link of it, was slower than its like."""
        return any(one == name or one.startswith((f"{name} ", f"{name}.")) for one in self.slow)


def gb(value: float) -> str:
    """GB/s with as many digits as a person compares: `378`, `51.2`, `0.0239`."""
    return f"{value:.4g}" if value >= 1 else f"{value:.3g}"


def rate_words(rate: Rate) -> str:
    """`38 GB/s (50 x 0.76)`, `12 GB/s`, or `unknown`."""
    if rate.unknown:
        return "unknown"
    if rate.effective_gb_per_s is not None:
        return f"{gb(rate.effective_gb_per_s)} GB/s"
    return f"{gb(rate.gb_per_s)} GB/s ({rate.nominal_gb_per_s:g} x {rate.efficiency:g})"


def rate_range(rates: Iterable[Rate], *, unit: str = " GB/s") -> str:
    """`608 GB/s`, `300-608 GB/s`, `unknown`, or `300 GB/s or unknown`; empty without rates."""
    all_rates = tuple(rates)
    words = _spread(tuple(rate.gb_per_s for rate in all_rates if not rate.unknown))
    unknown = "unknown" if any(rate.unknown for rate in all_rates) else ""
    return " or ".join(part for part in (f"{words}{unit}" if words else "", unknown) if part)


def measured_range(values: Sequence[float]) -> str:
    """`0.0237`, or `0.0236-0.0239 (n=4)`; empty where nothing was measured."""
    return _spread(values) + (f" (n={len(values)})" if len(values) > 1 else "")


def _spread(values: Sequence[float]) -> str:
    if not values:
        return ""
    low, high = gb(min(values)), gb(max(values))
    return low if low == high else f"{low}-{high}"


def counted(number: int, noun: str) -> str:
    """`1 node`, `2 nodes`, `2 switches`."""
    plural = f"{noun}es" if noun.endswith(("s", "x", "ch")) else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def names_words(names: Sequence[str], *, most: int) -> str:
    """The names as a host list; of one longer than `most` letters, its beginning."""
    words = fold_hosts(names)
    return words if len(words) <= most else words[: most - 1] + _ELLIPSIS


def gpu_words(sketch: Sketch, hosts: Iterable[str]) -> str:
    """`8 x h100-sxm`, of every kind of node among the hosts."""
    kinds = (sketch.kind_of[host].gpu for host in hosts)
    return ", ".join(dict.fromkeys(f"{gpu.count} x {gpu.model}" for gpu in kinds))


def named_rates(site: Site) -> Iterator[tuple[str, Rate]]:
    """Every rate of a site with what it is of, in words: node types first, then NVLink domains, then switches."""
    return ((_what_is_at(site, path), rate) for path, rate in rates_of(site))


def _what_is_at(site: Site, path: tuple[str | int, ...]) -> str:
    match path:
        case ("node_types", str(name), "nics", int(index), key):
            nic = site.node_types[name].nics[index].name
            return f"{name}: {nic}" if key == "rate" else f"{name}: PCIe slot of {nic}"
        case ("node_types", str(name), "nvlink", int(index), _):
            return f"{name}: NVLink of GPUs {', '.join(map(str, site.node_types[name].nvlink[index].gpus))}"
        case ("node_types", str(name), "host_path"):
            return f"{name}: between GPUs without NVLink"
        case ("nvlink_domains", int(index), _):
            return f"NVLink domain {site.nvlink_domains[index].name}"
        case ("switches", int(index), key):
            name = site.switches[index].name
            return f"up from {name}" if key == "uplink" else f"direct links of {name}"
    raise ValueError(f"no words for the rate at {path}")


def said_of(sketch: Sketch, links: Iterable[str]) -> str:
    """What the site itself says that a path over these links gives, `0.119`; `-` where it does not say all of it."""
    rates = [_said_of_link(sketch, link) for link in links]
    known = [rate.gb_per_s for rate in rates if rate is not None and not rate.unknown]
    return gb(min(known)) if known and len(known) == len(rates) else "-"


def _said_of_link(sketch: Sketch, link: str) -> Rate | None:
    """The rate of a link by the fabric's name for it."""
    what, _, _way = link.rpartition(" ")
    for switch in sketch.site.switches:
        if switch.name == what:
            return switch.uplink
    host = next((link[:at] for at, letter in enumerate(link) if letter == "." and link[:at] in sketch.kind_of), None)
    if host is None:
        return None
    kind, port = sketch.kind_of[host], what[len(host) + 1 :]
    for nic in kind.nics:
        if port in {nic.name, f"{nic.name} slot"}:
            return nic.rate if port == nic.name else nic.slot
    if link == f"{host}.host":
        return kind.host_path
    islands = [one.rate for one in kind.nvlink if any(port == f"gpu{gpu}.nvlink" for gpu in one.gpus)]
    domain = sketch.domain_of.get(host)
    return next(iter(islands), domain.rate if domain else None)

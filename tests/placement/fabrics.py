"""Small fabrics of the kinds that sites have: trees, rails, NVLink islands and domains, unequal NICs."""

from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

from hypothesis import strategies as st

from hpcserve.errors import PlacementError
from hpcserve.fabric import GpuAt, fabric_of
from hpcserve.model import cut_of
from hpcserve.nouns import (
    Distance,
    End,
    Gpu,
    LinkMeasured,
    Measurement,
    Mode,
    Nic,
    NicKind,
    NodeGroup,
    NodeType,
    NvlinkDomain,
    NvlinkIsland,
    PairMeasured,
    Partition,
    Role,
    Service,
    Site,
    Switch,
)
from tests.strategies import Case, model_shapes, rates, services, sites

__all__ = ["cases_of_all_kinds", "measurements", "railed_sites", "renamed", "staged_cases"]


@st.composite
def railed_types(draw: st.DrawFn, rails: int) -> NodeType:
    """Up to four GPUs, each near a NIC on one of the rails, in no, one or two NVLink islands."""
    count = draw(st.sampled_from([1, 2, 3, 4, 4]))
    same, all_same = draw(rates()), draw(st.booleans())
    nics = tuple(
        Nic(
            name=f"mlx5_{number}:1",
            kind=NicKind.INFINIBAND,
            rate=same if all_same else draw(rates()),
            rail=number % rails,
            gpus=(number,),
        )
        for number in range(count)
    )
    spare = tuple(
        Nic(name=f"spare{rail}", kind=NicKind.INFINIBAND, rate=same, rail=rail, gpus=())
        for rail in range(min(count, rails), rails)
    )
    cuts = draw(st.sampled_from([(), (count,), (2, count)]))
    islands, start = [], 0
    for end in cuts:
        if end - start >= 2:
            islands.append(NvlinkIsland(gpus=tuple(range(start, end)), rate=draw(rates())))
            start = end
    return NodeType(
        cores=8,
        memory_gib=64.0,
        gpu=Gpu(model="drawn", count=count, memory_gib=80.0),
        nics=nics + spare,
        nvlink=tuple(islands),
        tensor_parallel_across_islands=draw(st.booleans()),
        host_path=draw(rates()),
    )


@st.composite
def railed_sites(draw: st.DrawFn, *, most_nodes: int = 2) -> Site:
    """One or two units of nodes, a leaf for each rail of a unit; the rails joined by a spine each, by one, or not."""
    rails = draw(st.sampled_from([1, 2, 2, 4]))
    units = [draw(st.integers(1, most_nodes)) for _ in range(draw(st.integers(1, 2)))]
    kinds = {f"type{number}": draw(railed_types(rails)) for number in range(draw(st.integers(1, 2)))}
    names = draw(st.permutations([f"n{number:02}" for number in range(sum(units))]))
    remaining = iter(names)
    members = [",".join(next(remaining) for _ in range(count)) for count in units]
    joined = draw(st.sampled_from(["one spine", "a spine for each rail", "not"]))
    same, all_same = draw(rates()), draw(st.booleans())
    switches = [
        Switch(
            name=f"u{unit}r{rail}",
            hosts=hosts,
            rail=rail,
            uplink=None if joined == "not" else same if all_same else draw(rates()),
        )
        for unit, hosts in enumerate(members)
        for rail in range(rails)
    ]
    if joined == "one spine":
        switches.append(Switch(name="spine", switches=",".join(switch.name for switch in switches)))
    elif joined != "not":
        switches += [
            Switch(name=f"spine{rail}", switches=",".join(f"u{unit}r{rail}" for unit in range(len(units))))
            for rail in range(rails)
        ]
    racked = draw(st.lists(st.sampled_from(sorted(names)), unique=True, max_size=3)) if len(names) > 1 else []
    plain = draw(sites())
    return plain.model_copy(
        update={
            "node_types": kinds,
            "nodes": tuple(NodeGroup(hosts=name, type=draw(st.sampled_from(sorted(kinds)))) for name in sorted(names)),
            "partitions": {
                "main": Partition(hosts=",".join(sorted(names)), max_time="1-00:00:00", account_required=False)
            },
            "switches": tuple(switches),
            "nvlink_domains": (NvlinkDomain(name="rack", hosts=",".join(racked), rate=draw(rates())),)
            if racked
            else (),
        }
    )


@st.composite
def even_sites(draw: st.DrawFn) -> Site:
    """Nodes, rails and units all alike, so that only what is asked for or was measured tells them apart."""
    site = draw(railed_sites(most_nodes=3))
    rails = max(switch.rail or 0 for switch in site.switches) + 1
    kind = draw(railed_types(rails))
    nic = kind.nics[0]
    count = draw(st.sampled_from([1, 2, 4]))
    nics = tuple(
        nic.model_copy(
            update={"name": f"n{gpu}", "rail": gpu % rails, "gpus": (gpu,) if gpu < count else ()},
        )
        for gpu in range(max(count, rails))
    )
    uplink = draw(rates())
    islands = (kind.nvlink[0].model_copy(update={"gpus": tuple(range(count))}),) if kind.nvlink and count > 1 else ()
    kind = kind.model_copy(
        update={"nics": nics, "nvlink": islands, "gpu": kind.gpu.model_copy(update={"count": count})}
    )
    return site.model_copy(
        update={
            "node_types": {"even": kind},
            "nodes": tuple(group.model_copy(update={"type": "even"}) for group in site.nodes),
            "switches": tuple(
                switch if switch.uplink is None else switch.model_copy(update={"uplink": uplink})
                for switch in site.switches
            ),
        }
    )


@st.composite
def meshed_sites(draw: st.DrawFn) -> Site:
    """Leaves with a direct link between each two, and PCIe slots that may be slower than the ports in them."""
    site = draw(sites())
    mesh = draw(rates())
    kinds = {
        name: kind.model_copy(
            update={
                "nics": tuple(
                    nic.model_copy(update={"slot": draw(st.none() | rates()), "numa": draw(st.integers(0, 1))})
                    for nic in kind.nics
                ),
                "gpu": kind.gpu.model_copy(
                    update={"numa": tuple(draw(st.integers(0, 1)) for _ in range(kind.gpu.count))}
                ),
            }
        )
        for name, kind in site.node_types.items()
    }
    return site.model_copy(
        update={
            "node_types": kinds,
            "switches": tuple(
                switch.model_copy(update={"uplink": None, "mesh": None if switch.hosts else mesh})
                for switch in site.switches
            ),
        }
    )


@st.composite
def demands(draw: st.DrawFn, *, modes: tuple[str, ...], most_workers: int) -> Service:
    """Services of one to four ranks a worker, some with a second pool of a role, most at no distance in particular."""
    plain = draw(services(modes=modes, most_workers=most_workers))
    pools = tuple(
        pool.model_copy(update={"tensor_parallel": draw(st.sampled_from([1, 1, 2, 2, 4]))}) for pool in plain.pools
    )
    if draw(st.sampled_from([False, False, True])):
        ranks = draw(st.sampled_from([1, 2]))
        pools = (*pools, draw(st.sampled_from(pools)).model_copy(update={"workers": 1, "tensor_parallel": ranks}))
    distance = draw(st.sampled_from([Distance.BEST] * 4 + list(Distance)))
    return plain.model_copy(update={"pools": pools, "distance": distance})


def cases_of_all_kinds(
    *, modes: tuple[str, ...] = ("disaggregated",), most_workers: int = 2
) -> st.SearchStrategy[Case]:
    """Cases on trees, alone and joined, on rails and meshes, and on what is all alike; the engine can run each.

    Of a third of them the nodes are divided between two partitions, and pools are in one or the other.
    """
    whole = st.builds(
        Case,
        site=st.one_of(sites(), sites(joined=False), railed_sites(), even_sites(), meshed_sites()),
        shape=model_shapes(),
        service=demands(modes=modes, most_workers=most_workers),
    ).filter(_can_be_handed_over)
    return st.one_of(whole, whole, divided(whole))


@st.composite
def divided(draw: st.DrawFn, whole: st.SearchStrategy[Case]) -> Case:
    """A case on two partitions, `main` and `other`, with pools of either in any order."""
    case = draw(whole.filter(lambda one: "," in one.site.partitions["main"].hosts))
    main = case.site.partitions["main"]
    names = draw(st.permutations(main.hosts.split(",")))
    cut = draw(st.integers(1, len(names) - 1))
    parts = {"main": names[:cut], "other": names[cut:]}
    partitions = {name: main.model_copy(update={"hosts": ",".join(sorted(hosts))}) for name, hosts in parts.items()}
    pools = tuple(
        pool.model_copy(update={"partition": draw(st.sampled_from([None, "main", "other", "other"]))})
        for pool in case.service.pools
    )
    return Case(
        site=case.site.model_copy(update={"partitions": partitions}),
        shape=case.shape,
        service=case.service.model_copy(update={"pools": pools}),
    )


@st.composite
def staged_cases(draw: st.DrawFn, *, roles: tuple[Role, ...] = (Role.PREFILL, Role.DECODE)) -> Case:
    """Small cases of all kinds whose workers have two pipeline stages, or three."""
    case = draw(cases_of_all_kinds())
    stages = draw(st.sampled_from([2, 2, 2, 3]))
    pools = tuple(
        pool.model_copy(
            update={
                "role": role,
                "workers": draw(st.sampled_from([1, 1, 2])),
                "tensor_parallel": draw(st.sampled_from([1, 1, 2])),
                "pipeline_parallel": stages,
            }
        )
        for pool, role in zip(case.service.pools, roles, strict=False)
    )
    shape = case.shape.model_copy(update={"layers": draw(st.integers(stages, 9))})
    mode = Mode.AGGREGATED if Role.AGGREGATED in roles else Mode.DISAGGREGATED
    return Case(site=case.site, shape=shape, service=case.service.model_copy(update={"pools": pools, "mode": mode}))


def _can_be_handed_over(case: Case) -> bool:
    """Whether prefill and decode may have the numbers of ranks that they have; what else the engine wants is given."""
    cut = cut_of(case.shape)
    sizes = {role: {pool.tensor_parallel for pool in case.service.pools if pool.role == role} for role in Role}
    return all(cut.pair_obstacle(*pair) is None for pair in product(sizes[Role.PREFILL], sizes[Role.DECODE]))


@st.composite
def measurements(draw: st.DrawFn, site: Site) -> Measurement:
    """What was measured of a few links and pairs of a site, fast or slow."""
    fabric = fabric_of(site)
    gpus = [GpuAt(node, gpu) for node in fabric.nodes for gpu in range(fabric.node_type(node).gpu.count)]
    pairs = draw(st.lists(st.permutations(gpus).map(lambda order: tuple(order[:2])), max_size=3)) if gpus[1:] else []
    names: list[str] = []
    measured: list[PairMeasured] = []
    for a, b in pairs:
        try:
            links = fabric.path(a, b).links
        except PlacementError:
            continue
        names += [draw(st.sampled_from([link.name for link in links]))]
        if draw(st.booleans()):
            ends = (End(node=end.node, gpu=end.index) for end in (a, b))
            figures = {"latency_us": None, "transport": None, "device": None, "n": 1, "spread": 0.0}
            measured.append(
                PairMeasured.model_validate(
                    dict(zip("ab", ends, strict=True)) | figures | {"gb_per_s": draw(st.sampled_from([0.05, 10.0]))}
                )
            )
    return Measurement(
        schema_="hpcserve.measurement/1",
        site=site.name,
        day="2026-05-31",
        tool="drawn",
        pairs=tuple({(pair.a, pair.b): pair for pair in measured}.values()),
        links=tuple(
            LinkMeasured(name=name, gb_per_s=draw(st.sampled_from([0.05, 10.0, 200.0]))) for name in sorted(set(names))
        ),
    )


def renamed(site: Site, names: Mapping[str, str], draw: Callable[..., Any]) -> Site:
    """The site with other names of nodes, and nodes and switches in another order."""

    def called(hosts: str) -> str:
        return ",".join(draw(st.permutations([names[host] for host in hosts.split(",")])))

    changes: dict[str, Any] = {
        "nodes": tuple(
            group.model_copy(update={"hosts": names[group.hosts]}) for group in draw(st.permutations(site.nodes))
        ),
        "partitions": {
            name: one.model_copy(update={"hosts": called(one.hosts)}) for name, one in site.partitions.items()
        },
        "switches": tuple(
            switch if switch.hosts is None else switch.model_copy(update={"hosts": called(switch.hosts)})
            for switch in draw(st.permutations(site.switches))
        ),
        "nvlink_domains": tuple(
            domain.model_copy(update={"hosts": called(domain.hosts)}) for domain in site.nvlink_domains
        ),
    }
    return site.model_copy(update=changes)
